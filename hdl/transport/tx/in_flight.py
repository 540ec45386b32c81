"""Which queue pairs have requests between the requester and the wire."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["InFlight"]

NUMBER_BITS = 16
"""Of a request's number: many more than there are requests under way, so an old one is rarely taken for one of them."""


class InFlight(wiring.Component):
    """Says which queue pairs have requests in the transmit path, and whom the requester does something for.

    It numbers the requests that enter the transmit path, and counts those that are done, in their order. A QP whose
    last number is not counted yet has a request there. A reset, or 65,536 requests of others, may make it say so of a
    QP that has none; who asks must bear to wait in vain until all that is under way is done.

    Parameters
    ----------
    qps : int
    busy : bool
        With ``busy``: what the requester does may last as long as host memory likes, and have no request.

    Members
    -------
    busy, busy_qp : 1, 12
        With ``busy``: something is done for this QP.
    enter, enter_qp : 1, 12
        Strobe: a request enters.
    done : 1
        Strobe: the oldest one is done, whatever became of it.
    qp, some : 12, 1
        Whether this QP has a request there, or is busy, 2 cycles later.
    """

    def __init__(self, qps, *, busy=False):
        self.qps = qps
        self.may_be_busy = busy
        super().__init__(
            {"enter": In(1), "enter_qp": In(12), "done": In(1), "qp": In(12), "some": Out(1)}
            | ({"busy": In(1), "busy_qp": In(12)} if busy else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.numbers = numbers = memory.Memory(shape=NUMBER_BITS, depth=self.qps, init=[])
        write, read = numbers.write_port(), numbers.read_port(domain="comb")
        entered, done = Signal(NUMBER_BITS), Signal(NUMBER_BITS)
        behind, all_ = Signal(NUMBER_BITS), Signal(NUMBER_BITS)  # of those under way
        busy = Signal()
        m.d.comb += [
            write.addr.eq(self.enter_qp),
            write.data.eq(entered),
            write.en.eq(self.enter),
            read.addr.eq(self.qp),
        ]
        m.d.sync += [
            entered.eq(entered + self.enter),
            done.eq(done + self.done),
            behind.eq(read.data - done),
            all_.eq(entered - done),
            self.some.eq((behind < all_) | busy),
        ]
        if self.may_be_busy:
            m.d.sync += busy.eq(self.busy & (self.busy_qp == self.qp))
        return m
