"""A ring that must stand still before its indices are set: RESET, going back, and making room."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import QpAction
from ..stream.transfer import QpControl
from .ring import RingIndex

__all__ = ["RingHalt"]

CALM = 8
"""Cycles from a look at a ring until all that came of it is seen here."""


class RingHalt(wiring.Component):
    """Stops one ring at a time, waits until its reads in flight are back, and says when to set its indices.

    A ring that is to make room for others may be in use. Then nothing is set, and it goes on.

    *Latency*: a RESET is looked at 1 cycle after it came, and taken 1 cycle after ``set``; any other token in the cycle
    after it came; a token is taken every second cycle at most. ``rewind`` is looked at when it comes, and taken 1 cycle
    after ``set``.

    Parameters
    ----------
    qps : int
    swaps : bool
        SAVE and LOAD are done as RESET is. With ``later`` and ``to``.

    Members
    -------
    control : stream of ``QpControl``
        RESET stops the ring and sets its indices to 0; the token is taken when that is done. Others are just taken.
    later, to : 1, 16
        SAVE or LOAD is not to be done yet; to which index LOAD, or whatever else is done as RESET, sets the ring.
    rewind : stream of ``RingIndex``
        Stops the ring and sets its indices; taken when that is done. Goes before a RESET.
    rewound : stream of ``RingIndex``
        It is done. Until this is taken nothing else is begun.
    evict, evict_qp, evict_index : 1, QP index, 16
        Strobe: the ring is to forget what was fetched from this index on, the first that is not consumed. Counts only
        while nothing else is to be done; ``idle`` tells.
    idle : 1
    in_use, stalled : 1
        Somebody looks at the ring ``qp``, reads its WQEs, or has consumed some: it makes no room. ``stalled``: that
        would not be seen now.
    clean : 1
        No turn is between its decision and its read.
    reading : 1
        Reads of the ring are in flight, as of 2 cycles ago.
    may, armed, hold : 1
        The indices can be written in the next cycle, unless there is ``hold`` in it. ``armed``: that may be now.
    qp, index
        The ring that stands still, and its indices.
    halting : 1
        No turn of ``qp`` may be decided, and nothing of it arrives.
    ignore_consumed : 1
        Items of ``consumed`` for ``qp`` are older than the rewind or the RESET, and do not count.
    setting : 1
        ``set`` is waited for: take no doorbell.
    set, reset, drop : 1
        Strobes: write the indices; and they are those of a RESET; and, in the next cycle, the ring's blocks go back.
    evicting : 1
        The ring is to make room: what is read of it arrives all the same.
    """

    def __init__(self, qps, *, swaps=False):
        self.swaps = swaps
        super().__init__(
            {
                "control": In(stream.Signature(QpControl)),
                "rewind": In(stream.Signature(RingIndex)),
                "rewound": Out(stream.Signature(RingIndex)),
                "evict": In(1),
                "evict_qp": In(ceil_log2(qps)),
                "evict_index": In(16),
                "idle": Out(1),
                "in_use": In(1),
                "stalled": In(1),
                "clean": In(1),
                "reading": In(1),
                "may": In(1),
                "armed": Out(1),
                "hold": In(1),
                "qp": Out(ceil_log2(qps)),
                "index": Out(16),
                "halting": Out(1),
                "ignore_consumed": Out(1),
                "setting": Out(1),
                "set": Out(1),
                "reset": Out(1),
                "drop": Out(1),
                "evicting": Out(1),
            }
            | ({"later": In(1), "to": In(16)} if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        rewinding, resetting = Signal(), Signal()
        resets = Signal()  # a RESET is at `control`, and not done
        calm = Signal(range(CALM + 1))
        token, is_reset, to, later = self.control, self.control.payload.action == QpAction.RESET, 0, 0
        if self.swaps:
            to, swapping = self.to, Signal()
            m.d.comb += swapping.eq((token.payload.action == QpAction.SAVE) | (token.payload.action == QpAction.LOAD))
            is_reset, later = is_reset | swapping, swapping & self.later
        m.d.comb += [
            self.rewound.payload.qp.eq(self.qp),
            self.rewound.payload.index.eq(self.index),
        ]
        m.d.sync += [
            resets.eq(token.valid & is_reset & ~later & ~token.ready & ~self.reset),
            token.ready.eq(token.valid & ~token.ready & (~is_reset | self.reset)),
            self.armed.eq(self.setting & self.may & ~self.set),
        ]
        with m.If(~self.stalled & (calm != 0)):
            m.d.sync += calm.eq(calm - 1)

        def give_up():
            with m.If(self.evicting & self.in_use):
                m.d.sync += [self.halting.eq(0), self.evicting.eq(0)]
                m.next = "WATCH"

        with m.FSM():
            with m.State("WATCH"):
                m.d.comb += self.idle.eq(~self.rewind.valid & ~resets)
                m.d.sync += [rewinding.eq(self.rewind.valid), resetting.eq(~self.rewind.valid & resets), calm.eq(CALM)]
                with m.If(self.rewind.valid):
                    m.d.sync += [self.qp.eq(self.rewind.payload.qp), self.index.eq(self.rewind.payload.index)]
                with m.Elif(resets):
                    m.d.sync += [self.qp.eq(self.control.payload.qp), self.index.eq(to)]
                with m.Else():
                    m.d.sync += [self.qp.eq(self.evict_qp), self.index.eq(self.evict_index)]
                with m.If(self.rewind.valid | resets | self.evict):
                    m.d.sync += [self.halting.eq(1), self.ignore_consumed.eq(~self.idle), self.evicting.eq(self.idle)]
                    m.next = "STOP"
            with m.State("STOP"):  # a turn that was looked up before is decided now
                m.next = "CLEAN"
                give_up()
            with m.State("CLEAN"):
                with m.If(self.clean):
                    m.next = "LOOK"
                give_up()
            with m.State("LOOK"):
                m.next = "DRAIN"
                give_up()
            with m.State("DRAIN"):
                with m.If(~self.reading & (~self.evicting | (calm == 0))):
                    m.next = "SET"
                give_up()
            with m.State("SET"):
                m.d.comb += self.setting.eq(1)
                m.d.comb += self.reset.eq(resetting & self.armed & ~self.hold)
                with m.If(self.armed & ~self.hold & ~(self.evicting & self.in_use)):
                    m.d.comb += self.set.eq(1)
                    m.next = "DROP"
                with m.Else():
                    give_up()
            with m.State("DROP"):  # a turn that was looked up before is decided now
                m.d.comb += [self.drop.eq(1), self.rewind.ready.eq(rewinding)]
                m.d.sync += [self.halting.eq(0), self.evicting.eq(0), self.ignore_consumed.eq(rewinding)]
                m.next = "WATCH"
                with m.If(rewinding):
                    m.next = "SAY"
            with m.State("SAY"):
                m.d.comb += self.rewound.valid.eq(1)
                with m.If(self.rewound.ready):
                    m.d.sync += self.ignore_consumed.eq(0)
                    m.next = "WATCH"
        return m
