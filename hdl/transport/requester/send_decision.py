"""What a turn of a send queue is good for."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.contexts import QpState
from ...queue.ring import RingStatus
from .requester_context import Phase, RequesterContext

__all__ = ["SendAction", "SendDecision", "window_closed"]


def window_closed(index, oldest, window):
    """1 if no message may begin at WQE ``index``: ``window`` of them, a power of two, are under way from ``oldest`` on.
    An index behind the oldest, of a ring that went back, is no such case: the packet turns out to be acknowledged.
    """
    bits = ceil_log2(window)
    return (index[:bits] == oldest[:bits]) & ((index[bits:] - oldest[bits:])[:2] == 1)


class SendAction(enum.Enum):
    """What there is to do, if no packet is to be sent."""

    NOTHING = 0
    GIVE_UP = 1  # the QP is in ERR: all WQEs that are there
    RESUME = 2  # find the packet at which to go on
    PASS = 3  # over a WQE that is complete, on the way there
    DRAINED = 4  # say that nothing is under way
    CLOSED = 5  # the window is
    BROKEN = 6  # the ring is in error
    STOPPED = 7  # nothing, not even to ask for WQEs


class SendDecision(wiring.Component):
    """Decides, on registers: all outputs belong to the inputs of the cycle before.

    A message *starts* in RTS if fewer than ``window`` are begun and not complete. In SQD, or while the state is
    ``draining``, only what was sent before goes on, to the end of its message. Nothing is sent while ``waiting``, nor
    in the phase OPERATING before the state's WQE is the oldest.

    Parameters
    ----------
    window : int
        A power of two.
    swaps : bool
        Whatever else is the case, nothing is done while the state is ``stopped``.

    Members
    -------
    state, status, qp_state, waiting : ``RequesterContext``, ``RingStatus``, 4, 1
        The QP's; ``waiting`` is the ``Progress``'s.
    oldest : 16
        The ``Progress``'s. The state's index is at most ``window`` ahead of it, and at most ``2 * window`` behind.
    fresh : 1
        As of :class:`.admission.AdmissionCheck`.
    send : 1
        A packet is to be sent.
    o : ``SendAction``
        If not.
    alive : 1
        The QP is in RTS or SQD.
    several : 1
        With ``send``: another WQE is there behind this one, or the queue is ``draining``.
    """

    def __init__(self, window, *, swaps=False):
        self.window = window
        self.swaps = swaps
        super().__init__(
            {
                "state": In(RequesterContext),
                "status": In(RingStatus),
                "qp_state": In(4),
                "waiting": In(1),
                "oldest": In(16),
                "fresh": In(1),
                "send": Out(1),
                "o": Out(SendAction),
                "alive": Out(1),
                "several": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        fetched = Signal(16)
        m.d.comb += fetched.eq(self.status.fetched - self.state.index)

        # One bit for each question ...
        dead, waiting, broken, draining, fresh = (Signal() for _ in range(5))
        stopping, pending, closed, at_oldest = Signal(), Signal(), Signal(), Signal()
        phase = Signal(Phase)
        m.d.sync += [
            phase.eq(self.state.phase),
            dead.eq((self.qp_state == QpState.ERR) | (self.qp_state == QpState.SQE)),
            self.alive.eq((self.qp_state == QpState.RTS) | (self.qp_state == QpState.SQD)),
            waiting.eq(self.waiting),
            broken.eq(self.status.error),
            draining.eq(self.state.draining),
            fresh.eq(self.fresh),
            stopping.eq((self.qp_state == QpState.SQD) | self.state.draining),
            pending.eq(self.status.fetched != self.state.index),
            self.several.eq((fetched[1:] != 0) | self.state.draining),
            at_oldest.eq(self.state.index == self.oldest),
            closed.eq(window_closed(self.state.index, self.oldest, self.window)),
        ]

        # ... and what follows from them.
        middle = phase == Phase.MIDDLE
        between = (phase == Phase.BETWEEN) | (phase == Phase.OPERATING)
        begins = (phase == Phase.BETWEEN) | ((phase == Phase.OPERATING) & at_oldest)
        m.d.comb += self.send.eq(self.alive & pending & ~waiting & (middle | (begins & Mux(stopping, ~fresh, ~closed))))
        with m.If(dead):
            m.d.comb += self.o.eq(SendAction.GIVE_UP)
        with m.Elif(~self.alive | (phase == Phase.HALTED) | (phase == Phase.REWINDING)):
            m.d.comb += self.o.eq(SendAction.NOTHING)
        with m.Elif((phase == Phase.RESUME) & at_oldest):
            m.d.comb += self.o.eq(SendAction.RESUME)
        with m.Elif((phase == Phase.RESUME) & pending):
            m.d.comb += self.o.eq(SendAction.PASS)
        with m.Elif(draining & between & fresh):
            m.d.comb += self.o.eq(SendAction.DRAINED)
        with m.Elif(pending & closed & ~stopping):
            m.d.comb += self.o.eq(SendAction.CLOSED)
        with m.Elif(~pending & broken & (~stopping | (phase == Phase.RESUME) | ~fresh)):
            m.d.comb += self.o.eq(SendAction.BROKEN)
        if self.swaps:
            stopped = Signal()
            m.d.sync += stopped.eq(self.state.stopped)
            with m.If(stopped):
                m.d.comb += [self.send.eq(0), self.o.eq(SendAction.STOPPED)]
        return m
