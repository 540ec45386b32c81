"""Doorbells and pushed words: from the queue pair's index to its slot."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..context.directory import Row
from ..context.slot_finder import SlotFinder

__all__ = ["DoorbellSlots"]


class DoorbellSlots(wiring.Component):
    """Passes on what concerns QPs that have a slot, with the slot instead of the index.

    The QPs of all others, and of the one that is about to leave its slot, come out at ``wanted``; what concerned them
    is forgotten. The driver has written to the QP's record what a doorbell says, so whoever brings the QP finds it
    there. What is for a QP that does not exist is forgotten.

    *Latency*: 4 cycles; 1 for the QP of the one before.

    Parameters
    ----------
    shape : shape-like
        Of an item, with a field ``qp``, the index or the slot.
    qps, slots : int
    wants : bool
        With ``wanted`` and ``ring``. Pushed words have neither: their doorbell follows.

    Members
    -------
    i, o : streams of ``shape``
    wanted : stream of QP index
    wait : 1
        What comes from now on waits: it must not overtake words that were pushed before it.
    ring : stream of ``shape``
        Of a QP that has just come, with its slot: goes before the others, when nothing is ``closed``.
    closed, closed_qp : 1, 12
        The slot whose QP is about to leave, or to come: nothing of it passes, from the next cycle on.
    ask : stream of QP index; answered, row, changed : 1, ``Row``, 1
        To and from the directory.
    used, used_en : slot, 1
        Strobe: something has passed.
    """

    def __init__(self, shape, qps, slots, *, wants=True):
        self.shape = shape
        self.qps = qps
        self.slots = slots
        self.wants = wants
        more = {"wanted": Out(stream.Signature(range(qps))), "ring": In(stream.Signature(shape)), "wait": In(1)}
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "closed": In(1),
                "closed_qp": In(12),
                "ask": Out(stream.Signature(range(qps))),
                "answered": In(1),
                "row": In(Row(slots)),
                "changed": In(1),
                "used": Out(range(slots)),
                "used_en": Out(1),
            }
            | (more if wants else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.finder = finder = SlotFinder(self.qps, self.slots)
        wiring.connect(m, finder.ask, wiring.flipped(self.ask))
        passes, leaves, rings = Signal(), Signal(), Signal()
        valid, shown = Signal(), Signal()  # an item is looked at; it was in the cycle before
        m.d.sync += shown.eq(valid & ~self.i.ready)
        m.d.comb += valid.eq(self.i.valid & (shown | ~self.wait if self.wants else 1))
        closed, closed_qp = Signal(), Signal.like(finder.slot)  # they come from far
        m.d.sync += [closed.eq(self.closed), closed_qp.eq(self.closed_qp)]
        leaving = closed & (finder.slot == closed_qp)
        m.d.comb += [
            finder.valid.eq(valid),
            finder.index.eq(self.i.payload.qp),
            finder.taken.eq(self.i.ready),
            finder.answered.eq(self.answered),
            finder.row.eq(self.row),
            finder.changed.eq(self.changed),
            passes.eq(finder.here & ~leaving),
            leaves.eq(finder.away | (finder.here & leaving)),
            self.o.payload.eq(self.i.payload),
            self.o.payload.qp.eq(finder.slot),
            self.o.valid.eq(passes),
            self.used.eq(finder.slot),
            self.used_en.eq(passes & self.i.ready),
        ]
        if not self.wants:
            m.d.comb += self.i.ready.eq(Mux(passes, self.o.ready, leaves | finder.absent))
            return m
        m.d.comb += [
            rings.eq(self.ring.valid & ~self.closed),
            self.ring.ready.eq(rings & self.o.ready),
            self.wanted.valid.eq(leaves),
            self.wanted.payload.eq(self.i.payload.qp),
            self.i.ready.eq(Mux(passes, self.o.ready & ~rings, Mux(leaves, self.wanted.ready, finder.absent))),
        ]
        with m.If(rings):
            m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(self.ring.payload)]
        return m
