"""The memory of a shared receive queue: a ring of WQEs, and a table of those that are not complete."""

from collections import deque

from verbena.hdl.abi.wqe import SGE, SRQ_WQE

from .work_queue import WorkQueue

__all__ = ["SharedQueue", "log_stride_of"]


def log_stride_of(sges):
    """log2 of the bytes of a WQE that holds so many scatter/gather entries, 1 to 15, behind its header."""
    return (SRQ_WQE.size + SGE.size * sges - 1).bit_length()


class SharedQueue(WorkQueue):
    """``size`` or more WQEs of ``1 << log_stride`` bytes, and the wr_id of each.

    A WQE has a place in the table as long as it is outstanding; the place is its ``id``, by which completions name it,
    in any order. It stands in the ring as well, from which the device takes it in order: as no more WQEs than places
    are outstanding, the ring is never too full. ``address`` and ``bus`` are the table's, as the QPs have it; what
    :class:`.WorkQueue` calls an index is an ``id`` here.

    Any thread may complete WQEs. Who posts is alone in that.
    """

    def __init__(self, memory, size, log_stride):
        super().__init__(memory, size, log_stride)
        try:
            self._ring, self.ring_bus = memory.alloc_contiguous(max(4096, self.size << log_stride))
        except Exception:
            memory.free(self.address)
            raise

    @property
    def free(self):
        """WQEs that can be posted."""
        return len(self._ids)

    def reset(self):
        """Begins anew, empty."""
        self.wr_ids = [0] * self.size
        self.producer = 0
        self._ids = deque(range(self.size))

    def put(self, wr_id, data):
        """Places a WQE with the scatter/gather entries ``data``; the device does not know of it before the doorbell."""
        number = self._ids.popleft()
        self.wr_ids[number] = wr_id
        wqe = (SRQ_WQE.pack(id=number) + data).ljust(1 << self.log_stride, b"\0")
        self.memory.write(self.address + (number << self.log_stride), wqe)
        self.memory.write(self._ring + ((self.producer & self.size - 1) << self.log_stride), wqe)
        self.producer = self.producer + 1 & 0xFFFF

    def complete(self, index):
        """The wr_id of WQE ``index``, which is complete."""
        wr_id = self.wr_ids[index]
        # From here on another thread may use the place again.
        self._ids.append(index)
        return wr_id

    def entries(self, index):
        """``(address, length)`` of the scatter/gather entries of WQE ``index``, which is not complete yet."""
        entries = super().entries(index)
        next(entries)  # the header
        return entries

    def close(self):
        self.memory.free(self._ring)
        super().close()
