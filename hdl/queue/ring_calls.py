"""Which rings want a turn."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.ready import ReadyQueue

__all__ = ["RingCalls"]


class RingCalls(wiring.Component):
    """Adds a ring to those that wait for a turn: it has more than one turn takes, the consumer misses its WQEs, some of
    them were consumed, a doorbell has brought work, it was set to another index, or it stood still at its turn.

    One is added a cycle, in this order; what cannot be said again waits here for its place.

    *Latency*: from a strobe to ``o``: 2 cycles, if nobody else waits.

    Parameters
    ----------
    rings : int
        At least 2.
    on_demand : bool
        Whose WQEs are wanted is ``asked`` until its turn.

    Members
    -------
    repeat, repeat_qp : 1, ring
        Strobe: the turn has left work.
    wanted : stream of 12
        WQEs of the ring are posted and not there.
    heard, heard_qp : 1, ring
        Strobe, while ``may_hear``: some of its WQEs were consumed.
    rung, rung_qp : 1, ring
        Strobe, while ``may_ring``: a doorbell was accepted.
    back, back_qp : 1, ring
        Strobe: its indices were set, so that there may be work. Not again while it ``returns``.
    returns : 1
        Such a ring waits for its place.
    missed, missed_qp, still : 1, ring, 1
        Strobe: it had a turn while it stood still. It is added when no ring stands ``still``. Not again while
        ``misses``.
    misses : 1
        Somebody waits for that.
    decided, decided_qp, stopped, stopped_qp : 1, ring
        Strobes: a ring had its turn; it had none, for it is in error or stands still.
    asked, asked_qp : 1, ring
        With ``on_demand``: its WQEs are wanted, and it had no turn since.
    may_hear, may_ring : 1
        In this cycle.
    o : stream of ring
        Who is next.
    """

    def __init__(self, rings, *, on_demand=False):
        self.rings = rings
        self.on_demand = on_demand
        ring = range(rings)
        super().__init__(
            {
                "repeat": In(1),
                "repeat_qp": In(ring),
                "wanted": In(stream.Signature(12)),
                "heard": In(1),
                "heard_qp": In(ring),
                "rung": In(1),
                "rung_qp": In(ring),
                "back": In(1),
                "back_qp": In(ring),
                "returns": Out(1),
                "missed": In(1),
                "missed_qp": In(ring),
                "still": In(1),
                "misses": Out(1),
                "decided": In(1),
                "decided_qp": In(ring),
                "stopped": In(1),
                "stopped_qp": In(ring),
                "asked": Out(1),
                "asked_qp": Out(ring),
                "may_hear": Out(1),
                "may_ring": Out(1),
                "o": Out(stream.Signature(ring)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ready = ready = ReadyQueue(self.rings)
        wiring.connect(m, ready.o, wiring.flipped(self.o))
        wants = Signal()  # who is wanted waits for its place
        back_qp, missed_qp = Signal.like(self.back_qp), Signal.like(self.missed_qp)
        had_turn = (self.decided & (self.decided_qp == self.asked_qp)) | (
            self.stopped & (self.stopped_qp == self.asked_qp)
        )
        m.d.comb += [
            self.wanted.ready.eq(~wants & ~self.asked),
            self.may_hear.eq(~self.repeat & ~wants),
            self.may_ring.eq(~self.repeat & ~wants & ~self.heard),
        ]
        with m.If(had_turn & ~wants):
            m.d.sync += self.asked.eq(0)
        with m.If(wants & ~self.repeat):
            m.d.sync += wants.eq(0)
        with m.If(self.wanted.valid & self.wanted.ready):
            m.d.sync += [wants.eq(1), self.asked_qp.eq(self.wanted.payload), self.asked.eq(self.on_demand)]

        makes_up = self.misses & ~self.still
        m.d.sync += ready.i.valid.eq(self.repeat | wants | self.heard | self.rung | self.returns | makes_up)
        with m.If(self.repeat):
            m.d.sync += ready.i.payload.eq(self.repeat_qp)
        with m.Elif(wants):
            m.d.sync += ready.i.payload.eq(self.asked_qp)
        with m.Elif(self.heard):
            m.d.sync += ready.i.payload.eq(self.heard_qp)
        with m.Elif(self.rung):
            m.d.sync += ready.i.payload.eq(self.rung_qp)
        with m.Elif(self.returns):
            m.d.sync += [ready.i.payload.eq(back_qp), self.returns.eq(0)]
        with m.Else():
            m.d.sync += ready.i.payload.eq(missed_qp)
            with m.If(makes_up):
                m.d.sync += self.misses.eq(0)
        with m.If(self.missed):
            m.d.sync += [self.misses.eq(1), missed_qp.eq(self.missed_qp)]
        with m.If(self.back):
            m.d.sync += [self.returns.eq(1), back_qp.eq(self.back_qp)]
        return m
