"""Memory regions: keys, and the tables in host memory that the engine looks them up in."""

import errno
import os

from verbena.hdl.abi.tables import MPT, MTT, KeyKind

from .errors import AdapterError

__all__ = ["LOG_MPT_SIZE", "MAX_REGIONS", "Region", "Regions", "alloc_pages", "best_pages"]

LOG_MPT_SIZE = 14
MAX_REGIONS = (1 << LOG_MPT_SIZE) - 1
"""Index 0 stays free, so that no key is small."""

LOG_PAGE, LOG_PAGE_MAX = 12, 30
"""Logarithms of the device's smallest and largest page."""

PAGE = 1 << LOG_PAGE

BOUND = "a window is bound to it"

WORD = 8
"""Bytes that the device reads at once, whatever the width of its bus."""

LEAST_TABLE = 64
"""Bytes of the smallest translation table."""


class Region:
    """A registered memory region: its key, its MPT entry, and its translation table in host memory."""

    def __init__(self, index, variant):
        self.index = index
        self.key = index << 8 | variant
        self.mtt = None
        self.entry = {"valid": 1, "variant": variant}


class Regions:
    """The memory protection table of one adapter, and all regions by index.

    Parameters
    ----------
    memory : object
        Host memory, as a :class:`.port.Port` has it.
    random : random.Random
        Where keys come from: nobody who does not know it can foretell one.
    drop : callable
        ``drop(index)`` makes the engine forget what it has cached of a key, and returns when all accesses by it are
        over.
    drop_tables : callable
        ``drop_tables()`` makes the engine forget what it has cached of translation tables.
    log_size : int
        Base-2 logarithm of the table's entries.
    """

    def __init__(self, memory, random, drop, drop_tables, log_size=LOG_MPT_SIZE):
        self.memory = memory
        self.random = random
        self.by_index = {}
        self.windows = {}  # of these, memory windows
        self._drop = drop
        self._drop_tables = drop_tables
        self._retired = []
        self._retired_bytes = 0
        self._log_size = log_size
        self._variants = {}  # last one of each index
        self.address, self.bus = memory.alloc_contiguous(MPT.size << log_size)
        memory.write(self.address, bytes(MPT.size << log_size))

    def register(self, pd, address, length, access, iova=None):
        """Registers memory and returns its :class:`Region`; its pages are as large as the bus addresses allow.

        Peers and work requests name its first byte by ``iova``, which must be at the same place of a 4 KiB page as
        ``address`` is, and is that if it is None.

        ``ValueError`` if the device cannot reach the memory, ``MemoryError`` if no key or no memory is left.
        """
        mtt, fields = self._translate(address, length, address if iova is None else iova)
        try:
            return self._add(mtt, **fields, pd=pd, access=access)
        except MemoryError:
            self._free(mtt)
            raise

    def register_physical(self, pd, bus, length, access, iova):
        """Registers what answers on the bus from the address ``bus`` on, without a translation table; see
        :meth:`register`.
        """
        fields = {"address": iova, "length": length, "log_page_size": LOG_PAGE, "mtt_address": bus // PAGE * WORD}
        return self._add(None, **fields, physical=1, pd=pd, access=access)

    def _add(self, mtt, **fields):
        region = Region(*self._free_key())
        region.mtt = mtt
        region.entry.update(fields)
        self._enter(region.index, MPT.pack(**region.entry))
        self.by_index[region.index] = region
        return region

    def register_fast(self, pd, pages):
        """A region that work requests make valid, of up to ``pages`` pages of 4 KiB; see :meth:`map`."""
        return self._add(None, valid=0, kind=KeyKind.FAST_REGION, pd=pd, pages_or_qpn=pages, log_page_size=LOG_PAGE)

    def register_window(self, pd, kind):
        """A memory window, bound to nothing: of ``KeyKind`` WINDOW or WINDOW_2."""
        window = self._add(None, valid=0, kind=kind, pd=pd, log_page_size=LOG_PAGE)
        self.windows[window.index] = window
        return window

    def map(self, region, address, length):
        """Makes memory, a whole number of 4 KiB pages, that of a fast region which is not valid."""
        pages = self.memory.bus_pages(address, length)
        mtt, bus = self._table(pages)
        # Of what a work request claims the device knows no more than how many pages there are.
        old = self._entry(region.index)
        for fields in ({"pages_or_qpn": 0}, {"mtt_address": bus}, {"pages_or_qpn": len(pages)}):
            old |= fields
            self.memory.write(self._place(region.index) + WORD, MPT.pack(**old)[WORD:])
        self._retire(region.mtt)
        region.mtt = mtt

    def valid_key(self, region):
        """The key by which the device lets somebody use a region or window now; None if it is not valid."""
        entry = self._entry(region.index)
        return region.index << 8 | entry["variant"] if entry["valid"] else None

    def last_key(self, region):
        """The key by which the device let somebody use a region or window last, or does so now."""
        return region.index << 8 | self._entry(region.index)["variant"]

    def bound(self, region):
        """Windows that are bound to a region now: those whose place in a translation table is in its own, as the device
        has written it.
        """
        return self._bound(*self._table_place(region))

    def deregister(self, region):
        """Takes a region or window back. When this returns the device uses its memory no more, nor by a window."""
        place = self._table_place(region)
        self._take_back(region)
        self.memory.write(self._place(region.index), bytes(MPT.size))
        # No other window is bound to it any more. One that is bound elsewhere meanwhile stays so.
        while bound := self._bound(*place):
            for window in bound:
                entry = self._entry(window.index) | {"valid": 0}
                self.memory.write(self._place(window.index), MPT.pack(**entry)[:WORD])
                self._drop(window.index)
        self._retire(region.mtt)
        del self.by_index[region.index]
        self.windows.pop(region.index, None)

    def change(self, region, memory=None, iova=None, **fields):
        """Replaces fields of a region's entry, and with ``memory``, an address and a length, what it stands for (with
        ``iova`` as of :meth:`register`). When this returns the device uses the new ones only. Until then an access sees
        the old entry or the new one, or, if that is not one word's difference, none: then it is refused.
        ``AdapterError`` (EBUSY): a window is bound to it.
        """
        fresh = None
        if memory is not None:
            fresh, translation = self._translate(*memory, memory[0] if iova is None else iova)
            fields.update(translation)
        try:
            old, new = MPT.pack(**region.entry), MPT.pack(**region.entry | fields)
        except ValueError:
            self._free(fresh)
            raise
        if self.bound(region):
            self._free(fresh)
            raise AdapterError(errno.EBUSY, BOUND)
        changed = [at for at in range(0, MPT.size, WORD) if old[at : at + WORD] != new[at : at + WORD]]
        if len(changed) > 1:
            self._withdraw(region.index)
        else:
            self._change_words(region.index, new, changed)
        # A window that was being bound has gone by the old entry.
        if self.bound(region):
            if len(changed) > 1:
                self._enter(region.index, old)
            else:
                self._change_words(region.index, old, changed)
            self._retire(fresh)
            raise AdapterError(errno.EBUSY, BOUND)
        if len(changed) > 1:
            self._enter(region.index, new)
        region.entry.update(fields)
        if memory is not None:
            self._retire(region.mtt)
            region.mtt = fresh

    def close(self):
        """Gives back the tables; the device is gone."""
        while self._retired:
            self._free(self._retired.pop())
        self.memory.free(self.address)

    def _translate(self, address, length, iova):
        """A translation table, its address and size, and the fields of an MPT entry that go with it."""
        log_page, entries = best_pages(iova, self.memory.bus_pages(address, length)) if length else (12, [])
        mtt, bus = self._table(entries) if entries else (None, 0)
        return mtt, {"address": iova, "length": length, "log_page_size": log_page, "mtt_address": bus}

    def _table(self, entries):
        """A translation table, its address and size, and its bus address."""
        size = max(LEAST_TABLE, MTT.size * len(entries))
        try:
            table, bus = self.memory.alloc_contiguous(size, LEAST_TABLE)
        except MemoryError:
            self._free_retired()
            table, bus = self.memory.alloc_contiguous(size, LEAST_TABLE)
        self.memory.write(table, b"".join(MTT.pack(present=1, page=entry >> LOG_PAGE) for entry in entries))
        return (table, size), bus

    def _table_place(self, region):
        """Where the translation table of a region is, as entries have it: whether there are pages of the bus in its
        stead, where it begins, and its bytes.
        """
        entry = self._entry(region.index)
        if region.entry.get("physical"):
            return 1, entry["mtt_address"], WORD * (region.entry["length"] // PAGE + 2)
        return 0, entry["mtt_address"], region.mtt[1] if region.mtt is not None else 0

    def _bound(self, physical, first, size):
        entries = ((window, self._entry(window.index)) for window in self.windows.values())
        return [
            window
            for window, entry in entries
            if entry["valid"] and entry["physical"] == physical and first <= entry["mtt_address"] < first + size
        ]

    def _free(self, mtt):
        if mtt is not None:
            self.memory.free(mtt[0])

    def _retire(self, mtt):
        """Puts a translation table of which the device may still have entries aside: its memory must not become another
        table before the device has dropped them. It drops all that it has, also what is in use, so this is done for
        many tables at once: when they take as much memory as the MPT.
        """
        if mtt is not None:
            self._retired.append(mtt)
            self._retired_bytes += mtt[1]
            if self._retired_bytes >= MPT.size << self._log_size:
                self._free_retired()

    def _free_retired(self):
        self._drop_tables()
        self._retired_bytes = 0
        while self._retired:
            self._free(self._retired.pop())

    def _place(self, index):
        return self.address + MPT.size * index

    def _enter(self, index, entry):
        """Makes an entry valid. The device reads the first word, which says so, before the others."""
        place = self._place(index)
        self.memory.write(place + WORD, entry[WORD:])
        self.memory.write(place, entry[:WORD])

    def _entry(self, index):
        return MPT.unpack(self.memory.read(self._place(index), MPT.size))

    def _take_back(self, region):
        """Makes a region or window invalid, for good. Its last variant, which work requests change, is kept."""
        self._variants[region.index] = self._entry(region.index)["variant"]
        self._withdraw(region.index)
        if region.entry.get("kind", KeyKind.REGION) != KeyKind.REGION:
            # A work request that had looked at the entry before may have written to it since. It is over, but another
            # one may have found what it wrote. What finds nothing writes nothing.
            while any(self.memory.read(self._place(region.index), WORD)):
                self._variants[region.index] = self._entry(region.index)["variant"]
                self._withdraw(region.index)

    def _change_words(self, index, entry, changed):
        for at in changed:
            self.memory.write(self._place(index) + at, entry[at : at + WORD])
        self._drop(index)

    def _withdraw(self, index):
        """Makes an entry invalid, and has the device forget it."""
        self.memory.write(self._place(index), bytes(WORD))
        self._drop(index)

    def _free_key(self):
        """MPT index and variant. A variant is never 0, so that neither a key's successor nor its predecessor is valid
        (0xff + 1 leads to variant 0 of the next index), and never the one that the index had before.
        """
        if len(self.by_index) >= (1 << self._log_size) - 1:
            raise MemoryError(f"all {(1 << self._log_size) - 1} keys are in use")
        while (index := self.random.randrange(1, 1 << self._log_size)) in self.by_index:
            pass
        last = self._variants.get(index)
        variant = self.random.randrange(1, 256) if last is None else last % 255 + 1
        self._variants[index] = variant
        return index, variant


def alloc_pages(memory, length):
    """Address of ``length`` bytes of the driver's own for a region, at the start of a page.

    With ``VERBENA_HUGE_PAGES=1`` in the environment they are contiguous on the bus and aligned so that one page of the
    device holds them, up to 1 GiB, if ``memory`` has such a place. Otherwise they stand in pages of 4 KiB, wherever
    these are. ``MemoryError`` if there is no room.
    """
    if length > PAGE and os.environ.get("VERBENA_HUGE_PAGES", "0") != "0":
        alignment = min(1 << LOG_PAGE_MAX, 1 << (length - 1).bit_length())
        try:
            return memory.alloc_contiguous(length, alignment)[0]
        except (AdapterError, MemoryError, ValueError):
            pass  # there is no such place, or the device does not reach it
    return memory.alloc(max(1, length), PAGE)


def best_pages(address, pages):
    """The largest page size in which ``pages`` (bus addresses of 4 KiB pages, the one of ``address`` first) can be
    told, and its entries.
    """
    first = address >> 12
    for log_page in range(LOG_PAGE_MAX, 12, -1):
        group = 1 << log_page - 12
        if group > 2 * len(pages):
            continue
        mask = group - 1
        if all(
            (pages[i] >> 12) & mask == (first + i) & mask
            and (i == 0 or (first + i) & mask == 0 or pages[i] == pages[i - 1] + 4096)
            for i in range(len(pages))
        ):
            entries = [
                pages[i] & ~((1 << log_page) - 1) for i in range(len(pages)) if i == 0 or (first + i) & mask == 0
            ]
            return log_page, entries
    return 12, list(pages)
