"""Who waits while packets enough wait for their payload, and who is first behind them."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...stream.transfer import LENGTH_BITS

__all__ = ["TurnHold"]

LARGE = 1024
"""Bytes of payload from which on a packet counts as large: only of those one too many would matter."""


class TurnHold(wiring.Component):
    """Puts turns off.

    Who is put off first is the next one that sends; else those queues whose turns meet the ends of ``hold`` take all.
    Who sent last is not put off first unless it comes twice without another in between: an index may wait for its turn
    in one place and be under way in another, and would follow itself.

    *Latency*: from ``hold`` to ``held`` 0 cycles; a turn is judged from its second cycle on.

    Parameters
    ----------
    qps : int

    Members
    -------
    hold : 1
        Packets enough wait for their payload. It may come 5 cycles behind the packet that causes it, if that is a large
        one.
    left, length : 1, 13
        Strobe: a packet of so many bytes leaves.
    here, qp : 1, QP index
        The turn that is here is this QP's.
    held : 1
        It may not send.
    counted : 1
        ``hold`` counts all packets that have left: a turn may be put off. Before, it would only come too early again.
    put_off, comes : 1
        Strobes: the turn is put off; it sends, or has nothing to send.
    """

    def __init__(self, qps):
        self.qps = qps
        super().__init__(
            {
                "hold": In(1),
                "left": In(1),
                "length": In(LENGTH_BITS),
                "here": In(1),
                "qp": In(range(qps)),
                "held": Out(1),
                "counted": Out(1),
                "put_off": In(1),
                "comes": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cycles = Signal(range(5))  # until `hold` counts the packet that has left
        with m.If(self.left & (self.length >= LARGE)):
            m.d.sync += cycles.eq(4)
        with m.Elif(~self.counted):
            m.d.sync += cycles.eq(cycles - 1)
        owed, owed_qp = Signal(), Signal.like(self.qp)
        late = Signal()  # that is another one than the QP here, or there was none here a cycle ago
        m.d.sync += late.eq(owed & (~self.here | (self.qp != owed_qp)))
        m.d.comb += [self.counted.eq(cycles == 0), self.held.eq(self.hold | ~self.counted | late)]
        last, seen = Signal.like(self.qp), Signal()
        with m.If(self.put_off & ~owed):
            m.d.sync += [owed.eq(seen | (self.qp != last)), owed_qp.eq(self.qp), seen.eq(1)]
        with m.If(self.comes & ~late):
            m.d.sync += [owed.eq(0), last.eq(self.qp), seen.eq(0)]
        return m
