"""What a turn of a send queue is good for."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.contexts import QpState
from .layouts import Progress
from .send_state import SendState

__all__ = ["RingStatus", "Turn", "TurnChoice"]

RingStatus = data.StructLayout({"producer": 16, "fetched": 16, "error": 1})
"""Indices of a QP's ring, as of :class:`verbena.hdl.queue.wqe_fetcher.RingPrefetcher`."""


class Turn(enum.Enum):
    """What there is to do."""

    NOTHING = 0
    GIVE_UP = 1  # the QP is in ERR: all WQEs that are there
    RESUME = 2  # find the packet at which to go on
    PASS = 3  # over a WQE that is complete, on the way there
    SEND = 4  # a packet
    DRAINED = 5  # say that nothing is under way
    CLOSED = 6  # the window is
    BROKEN = 7  # the ring is in error


class TurnChoice(wiring.Component):
    """Decides; combinational.

    A message *starts* in RTS if fewer than ``window`` are begun and not complete. In SQD, or with ``draining``, only
    what was sent before goes on, to the end of its message. Nothing is sent while ``progress.waiting``.

    Parameters
    ----------
    window : int
        A power of two.

    Members
    -------
    state, status, progress, qp_state, draining : ``SendState``, ``RingStatus``, ``Progress``, 4, 1
        The QP's.
    o : ``Turn``
    alive : 1
        The QP is in RTS or SQD.
    several : 1
        With ``SEND``: another WQE is there behind this one.
    """

    def __init__(self, window):
        self.window = window
        super().__init__(
            {
                "state": In(SendState),
                "status": In(RingStatus),
                "progress": In(Progress),
                "qp_state": In(4),
                "draining": In(1),
                "o": Out(Turn),
                "alive": Out(1),
                "several": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        state, progress = self.state, self.progress
        fetched, begun = Signal(16), Signal(16)
        stopping = Signal()
        pending, closed, partial = Signal(), Signal(), Signal()
        m.d.comb += [
            fetched.eq(self.status.fetched - state.index),
            begun.eq(state.index - progress.oldest),
            stopping.eq((self.qp_state == QpState.SQD) | self.draining),
            self.alive.eq((self.qp_state == QpState.RTS) | (self.qp_state == QpState.SQD)),
            pending.eq(fetched != 0),
            self.several.eq(fetched[1:] != 0),
            # An index behind the oldest is no case of a closed window: the packet will turn out to be acknowledged.
            closed.eq(~begun[-1] & (begun[ceil_log2(self.window) : -1] != 0)),
            partial.eq(state.psn != state.top_psn),
        ]
        with m.If(self.qp_state == QpState.ERR):
            m.d.comb += self.o.eq(Turn.GIVE_UP)
        with m.Elif(~self.alive | state.halted | state.rewinding):
            m.d.comb += self.o.eq(Turn.NOTHING)
        with m.Elif(state.resume & (begun == 0)):
            m.d.comb += self.o.eq(Turn.RESUME)
        with m.Elif(pending & state.resume):
            m.d.comb += self.o.eq(Turn.PASS)
        with m.Elif(pending & ~progress.waiting & (state.middle | (stopping & partial) | (~stopping & ~closed))):
            m.d.comb += self.o.eq(Turn.SEND)
        with m.Elif(self.draining & ~state.middle & ~state.resume & ~partial):
            m.d.comb += self.o.eq(Turn.DRAINED)
        with m.Elif(pending & closed & ~stopping):
            m.d.comb += self.o.eq(Turn.CLOSED)
        with m.Elif(~pending & ~state.middle & (~stopping | partial | state.resume) & self.status.error):
            m.d.comb += self.o.eq(Turn.BROKEN)
        return m
