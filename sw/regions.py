"""Memory regions: keys, and the tables in host memory that the engine looks them up in."""

from verbena.hdl.abi.tables import MPT, MTT

__all__ = ["LOG_MPT_SIZE", "MAX_REGIONS", "Region", "Regions", "best_pages"]

LOG_MPT_SIZE = 14
MAX_REGIONS = (1 << LOG_MPT_SIZE) - 1
"""Index 0 stays free, so that no key is small."""


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
        Where keys come from.
    drop : callable
        ``drop(index)`` makes the engine forget what it has cached of a key, and returns when it has.
    log_size : int
        Base-2 logarithm of the table's entries.
    """

    def __init__(self, memory, random, drop, log_size=LOG_MPT_SIZE):
        self.memory = memory
        self.random = random
        self.by_index = {}
        self._drop = drop
        self._log_size = log_size
        self._variants = {}  # last one of each index
        self.address, self.bus = memory.alloc_contiguous(MPT.size << log_size)
        memory.write(self.address, bytes(MPT.size << log_size))

    def register(self, pd, address, length, access):
        """Registers memory and returns its :class:`Region`; its pages are as large as the bus addresses allow.

        ``ValueError`` if the device cannot reach the memory, ``MemoryError`` if no key or no memory is left.
        """
        mtt, fields = self._translate(address, length)
        try:
            region = Region(*self._free_key())
        except MemoryError:
            self._free(mtt)
            raise
        region.mtt = mtt
        region.entry.update(fields, pd=pd, access=access)
        self._write(region.index, **region.entry)
        self.by_index[region.index] = region
        return region

    def deregister(self, region):
        self._write(region.index)
        self._drop(region.index)
        self._free(region.mtt)
        del self.by_index[region.index]

    def change(self, region, memory=None, **fields):
        """Replaces fields of a region's entry, and with ``memory``, an address and a length, what it stands for. The
        engine uses the new ones once this returns.
        """
        old, fresh = region.mtt, None
        if memory is not None:
            fresh, translation = self._translate(*memory)
            fields.update(translation)
        try:
            self._write(region.index, **region.entry | fields)
            self._drop(region.index)
        except ValueError:
            self._free(fresh)
            raise
        region.entry.update(fields)
        if memory is not None:
            region.mtt = fresh
            self._free(old)

    def _translate(self, address, length):
        """A translation table, and the fields of an MPT entry that go with it."""
        log_page, entries = best_pages(address, self.memory.bus_pages(address, length)) if length else (12, [])
        mtt, bus = None, 0
        if entries:
            mtt, bus = self.memory.alloc_contiguous(max(64, MTT.size * len(entries)), 64)
            self.memory.write(mtt, b"".join(MTT.pack(present=1, page=entry >> 12) for entry in entries))
        return mtt, {"address": address, "length": length, "log_page_size": log_page, "mtt_address": bus}

    def _free(self, mtt):
        if mtt is not None:
            self.memory.free(mtt)

    def _write(self, index, **fields):
        self.memory.write(self.address + MPT.size * index, MPT.pack(**fields))

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


def best_pages(address, pages):
    """The largest page size in which ``pages`` (bus addresses of 4 KiB pages, the one of ``address`` first) can be
    told, and its entries.
    """
    first = address >> 12
    for log_page in range(30, 12, -1):
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
