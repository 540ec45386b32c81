"""QPs that are to go back."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["RetrySet"]


class RetrySet(wiring.Component):
    """A set of ids of which one is looked at each cycle: for what is rare and must never be refused.

    ``i`` is always ready, and adding an id that waits already changes nothing; one that is at ``o`` is added anew. An
    id comes out at most ``count`` + 2 cycles after it was added, if nothing stands at ``o`` and nothing else is added.

    Parameters
    ----------
    count : int
        Ids, 0 to ``count - 1``; a power of two.

    Members
    -------
    i, o : stream of id
    """

    def __init__(self, count):
        if count < 2 or count & count - 1:
            raise ValueError(f"count must be a power of two, at least 2, not {count!r}")
        self.count = count
        super().__init__({"i": In(stream.Signature(range(count))), "o": Out(stream.Signature(range(count)))})

    def elaborate(self, platform):
        m = Module()
        # An id waits while its bits in these two differ: each has one writer.
        m.submodules.added = added = memory.Memory(shape=1, depth=self.count, init=[])
        m.submodules.served = served = memory.Memory(shape=1, depth=self.count, init=[])
        added_write, added_there = added.write_port(), added.read_port(domain="comb")
        served_write = served.write_port()
        served_here, served_there = served.read_port(domain="comb"), served.read_port(domain="comb")
        place = Signal(ceil_log2(self.count))
        take = Signal()
        m.d.comb += [
            self.i.ready.eq(1),
            served_here.addr.eq(self.i.payload),
            added_write.addr.eq(self.i.payload),
            added_write.data.eq(~served_here.data),
            added_write.en.eq(self.i.valid),
            added_there.addr.eq(place),
            served_there.addr.eq(place),
            take.eq((added_there.data != served_there.data) & ~self.o.valid & ~self.i.valid),
            served_write.addr.eq(place),
            served_write.data.eq(added_there.data),
            served_write.en.eq(take),
        ]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(take):
            m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(place)]
        with m.If(~self.o.valid & ~self.i.valid):
            m.d.sync += place.eq(place + 1)
        return m
