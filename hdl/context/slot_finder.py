"""Whether the queue pair that somebody names has a slot, and which."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .directory import Row

__all__ = ["SlotFinder"]


class SlotFinder(wiring.Component):
    """Asks the :class:`.directory.Directory` for the QP ``index``, as long as that is ``valid``, and keeps the answer
    until a row changes, or another QP is named.

    *Latency*: 4 cycles, if nobody else asks; 1 if the QP is the one before, as what is said comes from registers alone.

    Parameters
    ----------
    qps, slots : int

    Members
    -------
    valid, index, taken : 1, QP index, 1
        ``index`` stands while ``valid``, until ``taken``: another one may be named in the next cycle.
    ask : stream of QP index; answered, row, changed : 1, ``Row``, 1
        To and from the directory.
    here, away, absent : 1
        It has ``slot``; it is in host memory; there is no such QP. None of them: it is not known yet.
    slot, timer : slot, 1
        Where it is; whether its timer runs while it is away.
    """

    def __init__(self, qps, slots):
        self.qps = qps
        self.slots = slots
        super().__init__(
            {
                "valid": In(1),
                "index": In(range(qps)),
                "taken": In(1),
                "ask": Out(stream.Signature(range(qps))),
                "answered": In(1),
                "row": In(Row(slots)),
                "changed": In(1),
                "here": Out(1),
                "away": Out(1),
                "absent": Out(1),
                "slot": Out(range(slots)),
                "timer": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        index = Signal.like(self.index)
        kept = Signal(Row(self.slots))
        known, asked, stale = Signal(), Signal(), Signal()
        named, same = Signal(), Signal()  # `index` stood in the cycle before, and was that of `kept`
        fits = Signal()
        m.d.sync += [named.eq(self.valid & ~self.taken), same.eq(self.index == index)]
        m.d.comb += [
            fits.eq(named & same & known & ~self.changed),
            self.ask.valid.eq(named & ~(same & known) & ~asked),
            self.ask.payload.eq(self.index),
            self.here.eq(fits & kept.here),
            self.away.eq(fits & ~kept.here & kept.known),
            self.absent.eq(fits & ~kept.here & ~kept.known),
            self.slot.eq(kept.slot),
            self.timer.eq(kept.away.timer != 0),
        ]
        with m.If(self.answered):
            m.d.sync += [kept.eq(self.row), known.eq(~stale), asked.eq(0)]
        with m.If(self.changed):
            m.d.sync += [known.eq(0), stale.eq(1)]
        with m.If(self.ask.valid & self.ask.ready):
            m.d.sync += [index.eq(self.index), same.eq(1), known.eq(0), asked.eq(1)]
            m.d.sync += stale.eq(self.changed)
        return m
