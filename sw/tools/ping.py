"""The messages of one end of ``ibv_rc_pingpong`` and its kin (:mod:`.pingpong`), and what they took."""

from dataclasses import dataclass

from ..verbs.libibverbs_enums import ibv_send_flags, ibv_wc_opcode, ibv_wr_opcode
from ..verbs.wr import RecvWR, SendWR
from .endpoint import chain
from .perftest.progress import unheard
from .session import WORKED, Patience, ToolError

__all__ = ["Outcome", "Ping"]

RECV, SEND = 1, 2
"""wr_id of receives and sends."""

PAGE = 4096
LAST_MESSAGES = 1.0
"""Seconds of the wall's clock in which what a peer has sent before its end arrives."""

FILL = 0x7B
"""The client fills its buffer with this, the server with the next; with ``check``, pages begin with a 0."""


@dataclass(frozen=True)
class Outcome:
    """``bytes`` in both directions, and the device's time that they took."""

    bytes: int
    iterations: int
    nanoseconds: int

    def lines(self):
        seconds = max(1, self.nanoseconds) / 1e9
        yield f"{self.bytes} bytes in {seconds:.6f} seconds = {self.bytes * 8 / 1e6 / seconds:.2f} Mbit/sec"
        yield f"{self.iterations} iters in {seconds:.6f} seconds = {seconds * 1e6 / self.iterations:.2f} usec/iter"


class Ping:
    """The messages of one end: on each queue pair a message goes when the one before has gone and the peer's has come.
    All messages are in one place of memory.
    """

    def __init__(self, end, options, *, server):
        self.progress = unheard
        self._end = end
        self._options = options
        self._server = server
        self._posted = 0
        self._last = None
        self._sge = end.sge(end.header, options.size)
        self._room = end.sge(0, end.header + options.size)
        content = bytes([FILL + 1]) * options.size if server else self._clients()
        end.mr.write(content, options.size, end.header)
        self._receive()

    def _clients(self):
        """What the client fills its message with. Each end sends what it has received, so all are like that."""
        content = bytearray([FILL]) * self._options.size
        if self._options.check:
            content[::PAGE] = bytes(len(content[::PAGE]))
        return bytes(content)

    def _receive(self):
        """Posts receives until there are ``rx_depth``."""
        missing = self._options.rx_depth - self._posted
        queue = self._end.qps[0] if self._end.srq is None else self._end.srq
        queue.post_recv(chain(RecvWR(RECV, 1, [self._room]) for _ in range(missing)))
        self._posted += missing

    def _send(self, index):
        flags = ibv_send_flags.IBV_SEND_SIGNALED
        if self._options.size <= self._end.inline:
            flags |= ibv_send_flags.IBV_SEND_INLINE
        wr = SendWR(SEND, ibv_wr_opcode.IBV_WR_SEND, num_sge=1, sg=[self._sge], send_flags=flags)
        self._end.qps[index].post_send(self._end.addressed(wr, index))

    def run(self):
        """Runs to the end and returns the :class:`Outcome`."""
        end, options = self._end, self._options
        start = end.context.time_ns()
        pending = [{RECV} for _ in end.qps]
        if not self._server:
            for index in range(len(end.qps)):
                self._send(index)
                pending[index].add(SEND)
        done = {RECV: 0, SEND: 0}
        while min(done.values()) < options.iterations:
            found = end.poll()
            for wc in found:
                self._take(wc)
                done[wc.wr_id] += 1
                self.progress(int(wc.wr_id == RECV))
                index = end.index[wc.qp_num]
                pending[index].discard(wc.wr_id)
                if not pending[index] and done[SEND] < options.iterations:
                    self._send(index)
                    pending[index] = {RECV, SEND}
            if not found:
                self._check(done[RECV])
            yield WORKED
        passed = end.context.time_ns() - start
        if options.check:
            self._compare()
        yield from end.settle()
        return Outcome(2 * options.size * options.iterations, options.iterations, passed)

    def _take(self, wc):
        if wc.wr_id != RECV:
            return
        if wc.opcode != ibv_wc_opcode.IBV_WC_RECV or wc.byte_len != self._room.length:
            raise ToolError(f"a message of {wc.byte_len} bytes came where {self._options.size} should: {wc!r}")
        self._posted -= 1
        if self._posted <= len(self._end.qps):
            self._receive()

    def _check(self, received):
        """Raises if the peer has ended its test, and nothing that it has sent before can be on its way any more."""
        if self._end.channel is None or not self._end.channel.speaks():
            return
        if self._last is None:
            self._last = Patience(LAST_MESSAGES)
        if self._last.over and not self._end.context.advance():
            raise ToolError(f"the peer has ended after {received} messages: -n must be the same on both sides")

    def _compare(self):
        found, expected = self._end.mr.read(self._options.size, self._end.header), self._clients()
        for at, (there, wanted) in enumerate(zip(found, expected, strict=True)):
            if there != wanted:
                raise ToolError(f"invalid data: byte {at} is {there:#04x}, not {wanted:#04x}")
