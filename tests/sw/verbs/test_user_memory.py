"""Memory of the caller's: what it may be given as, and how long it is held."""

import array
import ctypes
import errno
import mmap

import numpy
import pytest
from verbena.sw import host_memory
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from verbena.sw.verbs.user_memory import UserMemory, address_of


def make(source, length=0, writable=True):
    return UserMemory(host_memory, source, length, writable, "Failed")


def refused(code, *args):
    with pytest.raises(PyverbsRDMAError) as caught:
        make(*args)
    assert caught.value.error_code == code
    return str(caught.value)


def address(writable):
    return ctypes.addressof(ctypes.c_char.from_buffer(writable))


BUFFERS = {
    "bytearray": bytearray(10_000),
    "array": array.array("I", range(2500)),
    "numpy": numpy.zeros((100, 100), numpy.uint8),
    "ctypes": ctypes.create_string_buffer(10_000),
    "mmap": mmap.mmap(-1, 10_000),
    "memoryview": memoryview(bytearray(20_000))[777:10_777],
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers(kind):
    buffer = BUFFERS[kind]
    windows = len(host_memory.windows())
    memory = make(buffer)
    assert (memory.address, memory.length) == (address(buffer), 10_000)
    assert address_of(buffer) == memory.address
    pages = (memory.address + 9_999) // 4096 - memory.address // 4096 + 1
    assert len(host_memory.bus_pages(memory.address, 10_000)) == pages
    memory.release()
    memory.release()
    assert len(host_memory.windows()) == windows


def test_a_buffer_is_held():
    buffer = bytearray(4096)
    memory = make(buffer, 10)
    with pytest.raises(BufferError):
        buffer.extend(b"x")
    mapping = mmap.mmap(-1, 4096)
    mapped = make(mapping)
    with pytest.raises(BufferError):
        mapping.close()
    for each in (memory, mapped):
        each.release()
    buffer.extend(b"x")
    mapping.close()


def test_numbers_and_pointers():
    buffer = ctypes.create_string_buffer(100)
    at = ctypes.addressof(buffer)
    for source in (at, numpy.uint64(at), ctypes.c_void_p(at), ctypes.pointer(buffer)):
        memory = make(source, 100)
        assert (memory.address, memory.length, memory.readonly) == (at, 100, False)
        assert address_of(source) == at
        memory.release()


def test_what_may_only_be_read():
    constant = b"constant" * 4
    memory = make(constant, 0, False)
    assert host_memory.read(memory.address, 8) == b"constant"
    assert memory.readonly
    memory.release()
    assert "the buffer is read-only" in refused(errno.EFAULT, constant)
    mapping = mmap.mmap(-1, 8192, prot=mmap.PROT_READ)
    view, at = memoryview(mapping), address_of(mapping)
    make(at, 8192, False).release()
    assert f"may not write its memory at {at:#x}" in refused(errno.EFAULT, at, 8192)
    view.release()


def test_what_is_refused_leaves_nothing():
    buffer = bytearray(100)
    windows = len(host_memory.windows())
    assert "the buffer has 100 bytes" in refused(errno.EINVAL, buffer, 101)
    refused(errno.EINVAL, buffer, -1)
    refused(errno.EINVAL, 0x1000, 1.5)
    refused(errno.EINVAL, -8, 8)
    refused(errno.EINVAL, (1 << 64) - 7, 8)
    assert "has no memory at 0x1000" in refused(errno.EFAULT, 0x1000, 8)
    with pytest.raises(PyverbsUserError, match="must be contiguous"):
        make(memoryview(buffer)[::2])
    with pytest.raises(PyverbsUserError, match="an integer, a pointer or a buffer, not 'text'"):
        make("text")
    assert len(host_memory.windows()) == windows
    buffer.extend(b"x")


def test_memory_that_cannot_pin():
    """A node's own: its addresses are not those of the process."""
    memory = UserMemory(object(), 0x1000, 8, True, "Failed")
    assert memory.address == 0x1000
    memory.release()
