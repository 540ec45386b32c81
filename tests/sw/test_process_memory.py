"""What the process has is found out before a device touches it."""

import ctypes
import mmap

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
