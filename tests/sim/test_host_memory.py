"""Host memory without any device."""

import ctypes
import random
import re
from itertools import pairwise
from pathlib import Path

import pytest
from verbena.sw import host_memory
from verbena.sw.host_memory import PAGE


@pytest.fixture(autouse=True)
def arena(monkeypatch):
    """One of its own: another test's process may need much of the usual one."""
    monkeypatch.setattr(host_memory, "_arena", None)
    return host_memory._get()


def test_random_allocation():
    rng = random.Random(7)
    live = {}
    for step in range(2000):
        if live and rng.random() < 0.5:
            address, (size, mark) = live.popitem() if rng.random() < 0.3 else rng.choice(list(live.items()))
            assert host_memory.read(address, size) == bytes([mark]) * size
            live.pop(address, None)
            host_memory.free(address)
            continue
        size, alignment = rng.choice([1, 8, 60, 4096, 70000]), 1 << rng.randrange(17)
        if rng.random() < 0.3:
            address, bus = host_memory.alloc_contiguous(size, alignment)
            assert bus % alignment == 0
            assert host_memory.bus_pages(address, size)[0] == bus // PAGE * PAGE
            assert len(set(host_memory.bus_pages(address, size))) == len(host_memory.bus_pages(address, size))
        else:
            address = host_memory.alloc(size, alignment)
            assert address % alignment == 0
        assert all(address + size <= other or other + length <= address for other, (length, _) in live.items())
        host_memory.write(address, bytes([step & 255]) * size)
        live[address] = size, step & 255
    for address in live:
        host_memory.free(address)


@pytest.mark.parametrize("alignment", [1, 16, 4096, 1 << 21, 1 << 25])
def test_all_memory_comes_back(arena, alignment):
    before = [(heap.starts[:], heap.ends[:]) for heap in arena.heaps]
    addresses = [host_memory.alloc(100_000, alignment) for _ in range(8)]
    addresses += [host_memory.alloc_contiguous(100_000, alignment)[0] for _ in range(8)]
    assert all(address % alignment == 0 for address in addresses[:8])
    for address in addresses:
        host_memory.free(address)
    assert [(heap.starts, heap.ends) for heap in arena.heaps] == before


def test_pages_are_scattered_but_not_those_of_rings():
    address = host_memory.alloc(64 * PAGE, PAGE)
    pages = host_memory.bus_pages(address + 5, 63 * PAGE)
    assert len(set(pages)) == 64
    assert all(b != a + PAGE for a, b in pairwise(pages))
    assert all(page % PAGE == 0 and page >> 32 for page in pages)
    host_memory.free(address)
    address, bus = host_memory.alloc_contiguous(64 * PAGE)
    assert host_memory.bus_pages(address, 64 * PAGE) == list(range(bus, bus + 64 * PAGE, PAGE))
    host_memory.free(address)


@pytest.mark.parametrize(
    ("offset", "length", "pages"),
    [(0, 0, 1), (0, 1, 1), (0, PAGE, 1), (0, PAGE + 1, 2), (PAGE - 1, 1, 1), (PAGE - 1, 2, 2), (1, 2 * PAGE - 1, 2)],
)
def test_no_page_that_is_not_touched(offset, length, pages):
    address = host_memory.alloc(4 * PAGE, PAGE)
    assert len(host_memory.bus_pages(address + offset, length)) == pages
    host_memory.free(address)


def test_memory_is_taken_only_when_touched():
    address = host_memory.alloc(400 << 20)
    host_memory.write(address + (399 << 20), b"end")
    assert host_memory.read(address + (399 << 20), 3) == b"end"
    with pytest.raises(MemoryError, match="no 419430400 bytes"):
        host_memory.alloc(400 << 20)
    host_memory.free(address)


def test_what_is_not_touched_does_not_count(arena):
    """The kernel does not count it as taken (``ac`` in its list): so a process may fork, whatever its machine has."""
    maps = Path("/proc/self/smaps").read_text().split("\n")
    inside = False
    found = 0
    for line in maps:
        if place := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(place[1], 16) <= arena.base < int(place[2], 16)
        elif inside and line.startswith("VmFlags:"):
            found += 1
            assert "ac" not in line.split()
    assert found == 1


def test_view_is_the_memory_itself():
    address = host_memory.alloc(16)
    view = host_memory.view(address, 16)
    view[:4] = b"view"
    assert host_memory.read(address, 4) == b"view"
    assert ctypes.string_at(address, 4) == b"view"
    host_memory.free(address)


def test_pins_are_counted():
    buffer = ctypes.create_string_buffer(3 * PAGE)
    address = ctypes.addressof(buffer)
    windows = len(host_memory.windows())
    host_memory.pin(address, 3 * PAGE)
    host_memory.pin(address, 1)
    assert len(host_memory.windows()) == windows + len(host_memory.bus_pages(address, 3 * PAGE))
    host_memory.unpin(address, 3 * PAGE)
    assert len(host_memory.bus_pages(address, 1)) == 1
    host_memory.write(address, b"pinned")
    assert buffer.raw[:6] == host_memory.read(address, 6) == b"pinned"
    host_memory.unpin(address, 1)
    with pytest.raises(ValueError, match="no device reaches"):
        host_memory.bus_pages(address, 1)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="alignment must be a power of two, not 12"):
        host_memory.alloc(1, 12)
    with pytest.raises(ValueError, match="size must not be negative, not -1"):
        host_memory.alloc(-1)
    with pytest.raises(ValueError, match="0x10 is not allocated"):
        host_memory.free(0x10)
