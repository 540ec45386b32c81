"""What the process has is found out before a device touches it."""

import ctypes
import errno
import mmap
from types import SimpleNamespace

import pytest
from verbena.sw import process_memory
from verbena.sw.process_memory import check_pages

PAGE = mmap.PAGESIZE


def address_of(mapping):
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def test_pages_and_holes():
    mapping = mmap.mmap(-1, 4 * PAGE)
    at = address_of(mapping)
    libc = ctypes.CDLL(None, use_errno=True)
    check_pages(at, at + 4 * PAGE, True)
    # A hole, and a page that may only be read.
    assert libc.mprotect(ctypes.c_void_p(at + PAGE), ctypes.c_size_t(PAGE), 0) == 0
    assert libc.mprotect(ctypes.c_void_p(at + 3 * PAGE), ctypes.c_size_t(PAGE), mmap.PROT_READ) == 0
    check_pages(at, at + PAGE, True)
    with pytest.raises(ValueError, match=f"may not read its memory at {at + PAGE:#x}"):
        check_pages(at, at + 2 * PAGE, False)
    check_pages(at + 2 * PAGE, at + 4 * PAGE, False)
    with pytest.raises(ValueError, match=f"may not write its memory at {at + 3 * PAGE:#x}"):
        check_pages(at + 2 * PAGE, at + 4 * PAGE, True)
    assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(4 * PAGE), mmap.PROT_READ | mmap.PROT_WRITE) == 0


@pytest.mark.parametrize("start", [0, PAGE, (1 << 63)])
def test_nothing(start):
    with pytest.raises(ValueError, match=f"has no memory at {start:#x}"):
        check_pages(start, start + PAGE, False)


def test_where_nobody_can_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(process_memory, "MAPS", tmp_path / "maps")
    check_pages(0, PAGE, True)


def test_moving_bytes():
    mapping = mmap.mmap(-1, 3 * PAGE)
    at = address_of(mapping)
    process_memory.write(at + PAGE - 2, b"across")
    assert process_memory.read(at + PAGE - 2, 6) == mapping[PAGE - 2 : PAGE + 4] == b"across"
    assert process_memory.read(5, 0) == b""
    process_memory.write(5, b"")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(at + PAGE), ctypes.c_size_t(PAGE), mmap.PROT_READ) == 0
    for call in (
        lambda: process_memory.write(at + PAGE - 2, b"across"),
        lambda: process_memory.read(PAGE, 8),
        lambda: process_memory.read((1 << 64) - 4, 8),
        lambda: process_memory.write(-8, b"x"),
    ):
        with pytest.raises(process_memory.NoMemory, match="the process has no memory at"):
            call()
    assert libc.mprotect(ctypes.c_void_p(at + PAGE), ctypes.c_size_t(PAGE), mmap.PROT_READ | mmap.PROT_WRITE) == 0


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_where_the_system_does_not_move_them(monkeypatch, code):
    """As in some containers: they are moved without a look."""

    def refuses(*arguments):
        ctypes.set_errno(code)
        return -1

    libc = SimpleNamespace(process_vm_readv=refuses, process_vm_writev=refuses)
    memory = bytearray(8)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for kind in (libc, SimpleNamespace()):
        monkeypatch.setattr(process_memory, "_libc", kind)
        process_memory.write(at, b"plain")
        assert process_memory.read(at, 5) == b"plain"
