"""Timers of queue pairs that have no slot."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .directory import CLASS_BITS, PHASE_BITS, Row
from .qp_set import QpSet

__all__ = ["AwayTimers"]

LONGEST = (1 << CLASS_BITS) - 1


class AwayTimers(wiring.Component):
    """Goes round the QPs whose timer runs while they are away, and names those whose time is over.

    A timer has a class *c*, the number of bits of the ticks that were left of it, and the phase in which it began: the
    number, modulo 4, of the period of 2**c ticks. Its time is over in the second period behind that one. So it fires
    after 2**c to 2**(c + 1) ticks, which is one to four times of what was left, or later if a round takes longer than
    two periods; IBA 9.7.6.1.3 allows a local ACK timeout to take four times as long as it says.

    A round takes 1 cycle for each 32 QPs that there may be, up to 10 for each QP whose timer runs, and behind every 32
    of these up to 64 more.

    Parameters
    ----------
    qps, slots : int

    Members
    -------
    tick : 32
        Cycles of a tick, 4.096 us.
    change : stream of ``qpn``, ``member``
        The timer of this QP runs, or runs no more.
    phase : 2
        Which is that of timers of class ``timer``, in this cycle.
    timer : 5
    ask : stream of QP index; answered, row, changed : 1, ``Row``, 1
        To and from the directory.
    o : stream of QP index
        Its time is over. It is named in each round until it is taken out.
    running : 1
        Some timer runs.
    """

    def __init__(self, qps, slots):
        self.qps = qps
        self.slots = slots
        self._set = QpSet(qps, serve=False)
        super().__init__(
            {
                "tick": In(32),
                "change": self._set.signature.members["change"],
                "phase": Out(PHASE_BITS),
                "timer": In(CLASS_BITS),
                "ask": Out(stream.Signature(range(qps))),
                "answered": In(1),
                "row": In(Row(slots)),
                "changed": In(1),
                "o": Out(stream.Signature(range(qps))),
                "running": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.running = running = self._set
        wiring.connect(m, wiring.flipped(self.change), running.change)
        m.d.comb += self.running.eq(~running.empty)

        now = Signal(LONGEST + PHASE_BITS)
        cycles = Signal(33)  # left of this tick, less 1; negative: it ends
        m.d.sync += cycles.eq(Mux(cycles[-1], self.tick, cycles) - Mux(cycles[-1], 2, 1))
        with m.If(cycles[-1]):
            m.d.sync += now.eq(now + 1)
        m.d.comb += self.phase.eq(now >> self.timer)

        # Rounds have different lengths: else one could keep step with the periods of a class, and always meet the same
        # phase. Every 32 QPs there is a pause, and another one each time.
        visits, pause = Signal(11), Signal(6)
        row, since = Signal(Row(self.slots)), Signal(PHASE_BITS)
        stale = Signal()
        m.d.comb += [self.ask.payload.eq(running.o.payload), self.o.payload.eq(running.o.payload)]
        with m.If(self.changed):
            m.d.sync += stale.eq(1)
        with m.FSM():
            with m.State("ASK"):
                m.d.comb += self.ask.valid.eq(running.o.valid)
                m.d.sync += stale.eq(self.changed)
                with m.If(self.ask.valid & self.ask.ready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += row.eq(self.row)
                with m.If(self.answered):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.d.sync += since.eq((now >> row.away.timer) - row.away.phase)
                m.next = "TELL"
            with m.State("TELL"):
                over = since[1] & row.known & ~row.here & ~stale
                m.d.comb += [self.o.valid.eq(over), running.o.ready.eq(~over | self.o.ready)]
                with m.If(running.o.ready):
                    m.d.sync += [visits.eq(visits + 1), pause.eq(visits[5:])]
                    m.next = "ASK"
                    with m.If(visits[:5].all()):
                        m.next = "PAUSE"
            with m.State("PAUSE"):
                m.d.sync += pause.eq(pause - 1)
                with m.If(pause == 0):
                    m.next = "ASK"
        return m
