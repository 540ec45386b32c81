"""Which queue pairs have something on its way."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["InFlight"]


class InFlight(wiring.Component):
    """Says which queue pairs have items on a path that all leave in their order, and whom its entry works for.

    It numbers the items that enter, and counts those that are done. A QP whose last number is not counted yet has an
    item there. A reset, or 2 ** ``bits`` items of others, may make it say so of a QP that has none; who asks must bear
    to wait in vain until all that is under way is done.

    Parameters
    ----------
    qps : int
    bits : int
        Of an item's number: there are many more numbers than items under way, so an old one is rarely taken for one of
        them.
    works : int
        How much may be done at a time of which an item may come.

    Members
    -------
    busy, busy_qp : arrays of ``works``, of 1 and 12
        Something is done for this QP, of which an item may come.
    enter, enter_qp : 1, 12
        Strobe: a request enters.
    done : 1
        Strobe: the oldest one is done, whatever became of it.
    qp, some : 12, 1
        Whether this QP has an item there, or is busy, 2 cycles later.
    """

    def __init__(self, qps, bits, *, works=1):
        self.qps = qps
        self.bits = bits
        self.works = works
        super().__init__(
            {
                "busy": In(1).array(works),
                "busy_qp": In(12).array(works),
                "enter": In(1),
                "enter_qp": In(12),
                "done": In(1),
                "qp": In(12),
                "some": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.numbers = numbers = memory.Memory(shape=self.bits, depth=self.qps, init=[])
        write, read = numbers.write_port(), numbers.read_port(domain="comb")
        entered, done = Signal(self.bits), Signal(self.bits)
        behind, all_ = Signal(self.bits), Signal(self.bits)  # of those under way
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
            busy.eq(Cat(here & (qp == self.qp) for here, qp in zip(self.busy, self.busy_qp, strict=True)).any()),
            self.some.eq((behind < all_) | busy),
        ]
        return m
