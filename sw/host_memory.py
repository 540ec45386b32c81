"""Host memory that simulated devices reach, and its addresses on their bus.

One arena of address space a process; pages take memory only when they are touched. Its first part is for buffers:
bus pages lie in another order than the pages of the process (``page ^ MASK``), as scattered physical pages do, so that
a translation that is left out or wrong shows. Its second part is for rings and tables, contiguous on the bus; a table
of 16,384 QPs takes 32 MiB of it. Other memory of the process is made reachable with :func:`pin`, as registering it
does.

The arena knows no device. A simulation lists :func:`windows` and is told of later changes (:func:`subscribe`).
"""

import bisect
import ctypes
import mmap
import os
import sys
import threading
import weakref
from dataclasses import dataclass

from . import process_memory
from .process_memory import NoMemory, check_pages

__all__ = [
    "PAGE",
    "Heap",
    "NoMemory",
    "Window",
    "alloc",
    "alloc_contiguous",
    "bus_pages",
    "free",
    "pin",
    "read",
    "subscribe",
    "unpin",
    "view",
    "windows",
    "write",
]

PAGE = 4096
SCATTERED = 1 << 29
CONTIGUOUS = 1 << 32
SIZE = SCATTERED + CONTIGUOUS
ADDRESS = 0x2600_2000_0000
"""Where the arena begins in each process, so that a simulation repeats with its addresses: they are on the wire, and
which of their words are zero shows in the cycles of a push.
"""

MASK = 0x15A5B
"""Odd, so that no two neighbouring pages are in order; below the 2**17 pages of the scattered part."""

SCATTERED_BUS = 0x51_0000_0000
CONTIGUOUS_BUS = 0x72_8000_0000
PINNED_BUS = 0x8000_0000_0000
"""All three above 4 GiB, so that the upper word of an address counts."""


@dataclass(frozen=True)
class Window:
    """Bus page ``bus // PAGE + (n ^ mask)`` is page ``n`` of the ``size`` bytes at ``address``."""

    bus: int
    address: int
    size: int
    mask: int


class Heap:
    """Offsets, taken and given back: first fit in ``size`` bytes; the free ranges are kept sorted and merged."""

    def __init__(self, size):
        self.starts = [0]
        self.ends = [size]

    def take(self, size, alignment):
        for i, (start, end) in enumerate(zip(self.starts, self.ends)):
            at = -(-start // alignment) * alignment
            if at + size > end:
                continue
            pieces = [(a, b) for a, b in ((start, at), (at + size, end)) if a < b]
            self.starts[i : i + 1] = [a for a, _ in pieces]
            self.ends[i : i + 1] = [b for _, b in pieces]
            return at
        raise MemoryError(f"no {size} bytes of host memory are left")

    def give(self, at, size):
        i = bisect.bisect(self.starts, at)
        start, end = at, at + size
        if i < len(self.starts) and self.starts[i] == end:
            end = self.ends[i]
            del self.starts[i], self.ends[i]
        if i > 0 and self.ends[i - 1] == start:
            i -= 1
            start = self.starts[i]
            del self.starts[i], self.ends[i]
        self.starts.insert(i, start)
        self.ends.insert(i, end)


NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
"""Before 3.13 Python does not know it. Without it the arena counts as memory that is in use: a machine that has less
refuses it, or a fork.
"""

# Python's mmap takes no address.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_longlong]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _reserve():
    """Address of ``SIZE`` bytes, a multiple of ``SCATTERED``: :data:`ADDRESS` where the system grants it."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    start = _libc.mmap(ADDRESS, SIZE + SCATTERED, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if start == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, f"no address space for host memory: {os.strerror(error)}")
    return start + -start % SCATTERED


class _Arena:
    def __init__(self):
        # From a multiple of SCATTERED on: so an address of the second part has the low bits of its address on the bus.
        self.base = _reserve()
        self.memory = memoryview((ctypes.c_ubyte * SIZE).from_address(self.base)).cast("B")
        self.heaps = (Heap(SCATTERED), Heap(CONTIGUOUS))
        self.sizes = {}  # by offset in the arena
        self.windows = [
            Window(SCATTERED_BUS, self.base, SCATTERED, MASK),
            Window(CONTIGUOUS_BUS, self.base + SCATTERED, CONTIGUOUS, 0),
        ]
        self.pins = {}  # page address: [window, count]
        self.listeners = []


_lock = threading.RLock()
# A process that forks has the lock itself, so that its child finds the arena whole, and the lock free.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_arena = None


def _get():
    global _arena
    with _lock:
        if _arena is None:
            _arena = _Arena()
        return _arena


def _alloc(part, size, alignment):
    if size < 0:
        raise ValueError(f"size must not be negative, not {size!r}")
    if alignment < 1 or alignment & alignment - 1:
        raise ValueError(f"alignment must be a power of two, not {alignment!r}")
    with _lock:
        arena = _get()
        # 16 bytes at least, as malloc does: neighbours then share no word of the bus, whatever its callers ask for.
        size = -(-max(size, 1) // 16) * 16
        # Alignment counts for the address in the process: the mapping itself is only known to be page-aligned.
        heap, skew = arena.heaps[part], (arena.base + part * SCATTERED) % alignment
        if skew:
            slack = alignment - PAGE
            at = heap.take(size + slack, PAGE)
            start = -(-(at + skew) // alignment) * alignment - skew
            if start > at:
                heap.give(at, start - at)
            if at + slack > start:
                heap.give(start + size, at + slack - start)
            at = start
        else:
            at = heap.take(size, max(alignment, 16))
        arena.sizes[part * SCATTERED + at] = size
        return arena.base + part * SCATTERED + at


def alloc(size, alignment=8):
    """Address of ``size`` bytes of any content, a multiple of ``alignment``. ``MemoryError`` if there is no room."""
    return _alloc(0, size, alignment)


def alloc_contiguous(size, alignment=PAGE):
    """Address and bus address of ``size`` bytes that are contiguous on the bus; both are multiples of ``alignment``."""
    if alignment > SCATTERED:
        raise ValueError(f"alignment must be at most {SCATTERED}, not {alignment!r}")
    with _lock:
        arena = _get()
        # Both addresses are aligned: up to a page they agree anyway, beyond that the one on the bus is what counts.
        if alignment <= PAGE:
            address = _alloc(1, size, alignment)
        else:
            size = -(-max(size, 1) // 16) * 16
            at = arena.heaps[1].take(size, alignment)
            arena.sizes[SCATTERED + at] = size
            address = arena.base + SCATTERED + at
        return address, CONTIGUOUS_BUS + address - arena.base - SCATTERED


def free(address):
    """Gives back what :func:`alloc` or :func:`alloc_contiguous` returned. ``ValueError`` for anything else."""
    with _lock:
        arena = _get()
        at = address - arena.base
        size = arena.sizes.pop(at, None)
        if size is None:
            raise ValueError(f"{address:#x} is not allocated")
        part = int(at >= SCATTERED)
        arena.heaps[part].give(at - part * SCATTERED, size)
        start, end = -(-at // PAGE) * PAGE, (at + size) // PAGE * PAGE
        if end - start >= 1 << 20 and hasattr(mmap, "MADV_DONTNEED"):
            _libc.madvise(arena.base + start, end - start, mmap.MADV_DONTNEED)


def _inside(address, length):
    """Offset in the arena, or None."""
    arena = _get()
    at = address - arena.base
    return at if at >= 0 and at + length <= SIZE else None


def read(address, length):
    """``length`` bytes at an address of this process. :class:`NoMemory` where it has none."""
    at = _inside(address, length)
    return process_memory.read(address, length) if at is None else bytes(_arena.memory[at : at + length])


def write(address, data):
    """Puts bytes at an address of this process. :class:`NoMemory` where it has none."""
    data = memoryview(data).cast("B")
    at = _inside(address, len(data))
    if at is None:
        process_memory.write(address, bytes(data))
    else:
        _arena.memory[at : at + len(data)] = data


def view(address, length):
    """The arena's bytes themselves, writable, as a ``memoryview``. ``ValueError`` outside of the arena."""
    at = _inside(address, length)
    if at is None:
        raise ValueError(f"{length} bytes at {address:#x} are not in the arena")
    return _arena.memory[at : at + length]


def bus_pages(address, length):
    """Bus addresses of the pages that ``[address, address + length)`` touches, in order.

    ``ValueError`` if a device cannot reach them all: memory outside of the arena must be pinned first.
    """
    with _lock:
        arena = _get()
        first, last = address // PAGE, (address + max(length, 1) - 1) // PAGE
        result = []
        for page in range(first, last + 1):
            at = page * PAGE
            if at in arena.pins:
                result.append(arena.pins[at][0].bus)
                continue
            for window in arena.windows:
                if window.address <= at < window.address + window.size:
                    result.append(window.bus + ((at - window.address) // PAGE ^ window.mask) * PAGE)
                    break
            else:
                raise ValueError(f"no device reaches {at:#x}")
        return result


def pin(address, length, *, writable=False):
    """Makes other memory of this process reachable, page by page, until :func:`unpin`; pins are counted. Memory of the
    arena is reachable anyway.

    ``ValueError``, and nothing is pinned, if the process does not have a page, or may not write it and ``writable`` is
    asked for. Where there is no ``/proc`` nobody can tell, and the caller answers for it.
    """
    with _lock:
        arena = _get()
        pages = range(address // PAGE * PAGE, address + max(length, 1), PAGE)
        pages = [at for at in pages if _inside(at, PAGE) is None]
        if pages:
            check_pages(pages[0], pages[-1] + PAGE, writable)
        for at in pages:
            if at in arena.pins:
                arena.pins[at][1] += 1
                continue
            # A bus address that no other page has, scattered as well.
            window = Window(PINNED_BUS | (at ^ MASK * PAGE) & PINNED_BUS - 1, at, PAGE, 0)
            arena.pins[at] = [window, 1]
            _tell(True, window)


def unpin(address, length):
    """Takes back one :func:`pin` of the same range."""
    with _lock:
        arena = _get()
        for at in range(address // PAGE * PAGE, address + max(length, 1), PAGE):
            if at not in arena.pins:
                continue
            arena.pins[at][1] -= 1
            if arena.pins[at][1] == 0:
                _tell(False, arena.pins.pop(at)[0])


def windows():
    """All that devices can reach."""
    with _lock:
        arena = _get()
        return [*arena.windows, *(window for window, _ in arena.pins.values())]


def subscribe(listener):
    """Calls ``listener.window(added, window)`` when a window comes or goes, as long as the listener lives."""
    with _lock:
        _get().listeners.append(weakref.ref(listener))


def _tell(added, window):
    arena = _get()
    arena.listeners = [reference for reference in arena.listeners if reference() is not None]
    for reference in arena.listeners:
        if (listener := reference()) is not None:
            listener.window(added, window)
