"""The messages of a test: where in memory each goes from and to, and its work request.

A region has a buffer for each queue pair to send from and, behind all those, one for each to receive in. Small messages
go around in their buffer, a cache line or more apart.
"""

from ...verbs.libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from ...verbs.wr import RecvWR, SendWR
from .kinds import Verb

__all__ = ["CACHE_LINE", "CYCLE_BUFFER", "Layout", "Messages"]

CYCLE_BUFFER = 4096
CACHE_LINE = 64

_OPCODES = {
    Verb.SEND: ibv_wr_opcode.IBV_WR_SEND,
    Verb.WRITE: ibv_wr_opcode.IBV_WR_RDMA_WRITE,
    Verb.READ: ibv_wr_opcode.IBV_WR_RDMA_READ,
}


class Layout:
    """Places in the region of either side; the sides have agreed on ``cycle_buffer`` and ``cache_line``. There is room
    for messages of ``largest`` bytes, by default ``size``, and in front of each for ``header`` bytes.
    """

    def __init__(self, size, qps, cycle_buffer=CYCLE_BUFFER, cache_line=CACHE_LINE, *, largest=None, header=0):
        self.qps = qps
        self.buffer = max((largest or size) + header, cycle_buffer)
        self._step = -(-(size + header) // cache_line) * cache_line
        self._steps = cycle_buffer // self._step if 2 * (size + header) <= cycle_buffer else 1

    @property
    def size(self):
        """Bytes of the whole region."""
        return 2 * self.qps * self.buffer

    def turn(self, number):
        """Where message ``number`` of a queue pair lies in a buffer."""
        return number % self._steps * self._step

    def source(self, index):
        """Offset of the buffer that queue pair ``index`` sends from; what it reads arrives there, too."""
        return index * self.buffer

    def target(self, index):
        """Offset of the buffer that the peer of queue pair ``index`` works on."""
        return (self.qps + index) * self.buffer


class Messages:
    """Work requests of one side. ``keys`` are the peer's, one of each queue pair. The wr_id is the message's number, of
    each queue pair from 0.
    """

    def __init__(self, end, kind, options, layout, keys):
        self._end = end
        self._kind = kind
        self._options = options
        self._layout = layout
        self._keys = keys
        self._inline = options.size <= options.inline and not kind.reading

    def send(self, index, number, *, signaled=True):
        """Message ``number`` of queue pair ``index``. The messages of a latency test all have the same place."""
        turn = 0 if self._kind.latency else self._layout.turn(number)
        flags = ibv_send_flags.IBV_SEND_SIGNALED if signaled else 0
        if self._inline:
            flags |= ibv_send_flags.IBV_SEND_INLINE
        sge = self._end.sge(self._layout.source(index) + turn, self._options.size)
        key = self._keys[index]
        if self._kind.verb is not Verb.ATOMIC:
            wr = SendWR(number, _OPCODES[self._kind.verb], num_sge=1, sg=[sge], send_flags=flags)
            wr.set_wr_rdma(key.rkey, key.vaddr + turn)
            self._end.addressed(wr, index)
        elif self._options.compare_and_swap:
            wr = SendWR(number, ibv_wr_opcode.IBV_WR_ATOMIC_CMP_AND_SWP, num_sge=1, sg=[sge], send_flags=flags)
            wr.set_wr_atomic(key.rkey, key.vaddr + turn, 0, 0)
        else:
            wr = SendWR(number, ibv_wr_opcode.IBV_WR_ATOMIC_FETCH_AND_ADD, num_sge=1, sg=[sge], send_flags=flags)
            wr.set_wr_atomic(key.rkey, key.vaddr + turn, 1)
        return wr

    def receive(self, index, number):
        """The receive for message ``number`` of the peer's."""
        turn = 0 if self._kind.latency else self._layout.turn(number)
        sge = self._end.sge(self._layout.target(index) + turn, self._end.header + self._options.size)
        return RecvWR(number, 1, [sge])
