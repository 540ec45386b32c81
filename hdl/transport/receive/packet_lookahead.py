"""Whom the next packets are for, before it is their turn."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PacketLookahead"]


class PacketLookahead(wiring.Component):
    """Hears of each packet when it arrives and when it is taken, and names the queue pairs of those that are next, each
    a few packets before its turn. A QP that was named last is not named again.

    What is named is a hint: a packet may be taken before its QP is named. A packet is looked at each 3 cycles.

    Parameters
    ----------
    qps : int
    packets : int
        Packets that may wait, a power of two.
    ahead : int
        How many of those that wait are named, the first included; at most ``packets``.

    Members
    -------
    arrives, index : 1, QP index
        Strobe: a packet arrives.
    taken : 1
        Strobe: one that arrived in a cycle before is taken.
    o : stream of QP index
    """

    def __init__(self, qps, packets, ahead):
        if not isinstance(packets, int) or packets < 2 or packets & packets - 1:
            raise ValueError(f"packets must be a power of two, at least 2, not {packets!r}")
        if not 1 <= ahead <= packets:
            raise ValueError(f"ahead must be 1 to {packets}, not {ahead!r}")
        self.qps = qps
        self.packets = packets
        self.ahead = ahead
        index = range(qps)
        super().__init__(
            {
                "arrives": In(1),
                "index": In(index),
                "taken": In(1),
                "o": Out(stream.Signature(index)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.indices = indices = memory.Memory(shape=range(self.qps), depth=self.packets, init=[])
        write, read = indices.write_port(), indices.read_port(domain="comb")
        # Counts that run on: of packets that have arrived, that were looked at, and that were taken.
        arrived, looked, taken = (Signal(range(2 * self.packets), name=name) for name in ("arrived", "looked", "taken"))
        distance, waiting = Signal.like(taken), Signal.like(taken)  # from the first that waits; as of a cycle ago
        named = Signal()
        m.d.comb += [
            write.addr.eq(arrived),
            write.data.eq(self.index),
            write.en.eq(self.arrives),
            read.addr.eq(looked),
        ]
        m.d.sync += [
            arrived.eq(arrived + self.arrives),
            taken.eq(taken + self.taken),
            distance.eq(looked - taken),
            waiting.eq(arrived - taken),
        ]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.FSM():
            with m.State("MEASURE"):
                m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "MEASURE"
                with m.If(distance > self.packets):  # it was taken before it was looked at
                    m.d.sync += looked.eq(taken)
                with m.Elif(~self.o.valid & (distance < waiting) & (distance < self.ahead)):
                    m.d.sync += [looked.eq(looked + 1), named.eq(1), self.o.payload.eq(read.data)]
                    m.d.sync += self.o.valid.eq(~named | (read.data != self.o.payload))
                    m.next = "MOVED"
            with m.State("MOVED"):
                m.next = "MEASURE"
        return m
