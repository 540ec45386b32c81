"""Memory without a Context."""

import mmap as system

import pytest
from verbena.sw import host_memory
from verbena.sw.verbs import mem_alloc as m
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pyverbs_error import PyverbsUserError


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096, 1 << 16])
def test_posix_memalign_is_aligned_and_zero(alignment):
    at = m.posix_memalign(100, alignment)
    assert at % alignment == 0
    assert m.read(at, 100) == bytes(100)
    m.write(at, b"\xff" * 100)
    m.free(at)
    again = m.posix_memalign(100, alignment)
    assert m.read(again, 100) == bytes(100)
    m.free(again)


@pytest.mark.parametrize(("size", "alignment"), [(-1, 8), (8, 0), (8, 3), (8, -4)])
def test_posix_memalign_refused(size, alignment):
    with pytest.raises(PyverbsUserError, match="Failed to allocate"):
        m.posix_memalign(size, alignment)


def test_no_room():
    with pytest.raises(MemoryError):
        m.malloc(1 << 40)
    with pytest.raises(MemoryError):
        m.posix_memalign(1 << 40)


def test_free():
    at = m.malloc(10)
    m.free(at)
    m.free(0)
    with pytest.raises(PyverbsUserError, match="not allocated"):
        m.free(at)


def test_read_and_write():
    at = m.malloc(32)
    m.write(at, bytes(32))
    m.write(at, "text")
    m.write(at, b"abcdef", 3, offset=8)
    m.write(at + 16, bytearray(b"xyz"))
    assert m.read(at, 20) == b"text\0\0\0\0abc\0\0\0\0\0xyz\0"
    assert m.read(at, 3, offset=16) == b"xyz"
    m.free(at)


def test_mmap():
    at = m.mmap(length=5000)
    assert at % 4096 == 0
    assert m.read(at, 8192) == bytes(8192)
    m.write(at, b"\1" * 8192)
    m.madvise(at, 8192, system.MADV_NORMAL)
    with pytest.raises(PyverbsUserError, match="no such mapping"):
        m.munmap(at, 4096)
    m.munmap(at, 5000)
    with pytest.raises(PyverbsUserError, match="no such mapping"):
        m.munmap(at, 5000)
    with pytest.raises(PyverbsUserError, match="Failed to map"):
        m.mmap(length=0)


def test_madvise_refused():
    with pytest.raises(PyverbsUserError, match="Invalid argument"):
        m.madvise(m.malloc(64) | 1, 64, system.MADV_NORMAL)


def test_a_region_can_be_made_of_it(pd):
    at = m.posix_memalign(4096, 4096)
    with MR(pd, 100, 1, address=at + 7) as mr:
        mr.write("abc", 3)
        assert m.read(at, 10) == bytes(7) + b"abc"
    assert host_memory.read(at, 10) == bytes(7) + b"abc"  # not the region's to free
    m.free(at)


def test_numbers():
    at = m.posix_memalign(32)
    m.writebe32(at, 0x01020304, 1)
    m.writebe64(at, 0x05060708090A0B0C, offset=1)
    assert m.read(at, 16).hex() == "00000000010203" + "0405060708090a0b0c"
    assert m.read32(at, 1) == 0x04030201
    assert m.read64(at, 1) == 0x0C0B0A0908070605
    assert m.read64(at) == 0x04030201_00000000
    m.free(at)


def test_a_mapped_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abcdefgh".ljust(4096, b"."))
    with path.open("r+b") as file:
        at = m.mmap(0, 4096, m.PROT_READ_ | m.PROT_WRITE_, m.MAP_SHARED_, file.fileno())
    m.write(at, "ABCD")
    with pytest.raises(PyverbsUserError, match="no such mapping"):
        m.munmap(at, 8192)
    m.munmap(at, 4096)
    assert path.read_bytes()[:8] == b"ABCDefgh"
    with pytest.raises(PyverbsUserError, match="no such mapping"):
        m.munmap(at, 4096)
    with pytest.raises(MemoryError, match="Failed to mmap memory: Bad file descriptor"):
        m.mmap(0, 4096, m.PROT_READ_, m.MAP_SHARED_, 999)


def test_a_region_of_mapped_memory(pd):
    at = m.mmap(0, 8192, m.PROT_READ_ | m.PROT_WRITE_, m.MAP_PRIVATE_ | m.MAP_ANONYMOUS_ | m.MAP_POPULATE_, -1)
    with MR(pd, 8192, 1, at) as mr:
        mr.write("there", 5)
    assert m.read(at, 5) == b"there"
    m.munmap(at, 8192)


def test_memory_that_is_not_there():
    for call in (lambda: m.read(4096, 8), lambda: m.read32(4096), lambda: m.writebe64(4096, 1)):
        with pytest.raises(PyverbsUserError, match="the process has no memory at 0x1000"):
            call()


def test_constants():
    names = [name for name in dir(system) if name.startswith(("PROT_", "MAP_", "MADV_")) and hasattr(m, name + "_")]
    assert {"PROT_READ", "MAP_SHARED", "MAP_POPULATE", "MAP_STACK"} <= set(names)
    assert {name: getattr(m, name + "_") for name in names} == {name: getattr(system, name) for name in names}
