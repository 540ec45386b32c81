"""Whether a packet, or the first of a message, may be sent now: what can be said before the WQE is read."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.layouts import Progress
from ..common.psn import PSN_BITS
from .requester_context import RequesterContext

__all__ = ["Admission", "AdmissionCheck"]

FAR_BITS = PSN_BITS - 2
"""No packet is begun 2**22 PSNs or more ahead of the first that is not acknowledged: a quarter of all, so that with the
2**23 of a READ behind that it is still less than all."""

Admission = data.StructLayout(
    {
        "fresh": 1,  # the packet was never sent
        "newest": 1,  # the WQE was never begun
        "oldest": 1,  # the WQE is the oldest that is not complete
        "behind": 1,  # the packet is acknowledged already
        "far": 1,  # too many packets are not acknowledged; undefined with `behind`
        "fenced": 1,  # READs or atomics are outstanding
        "full": 1,  # as many of them as may be
        "rd_atomic_disabled": 1,  # none may ever be; UC has none
        "no_credit": 1,  # no credit for a message that needs a receive WQE
    }
)


class AdmissionCheck(wiring.Component):
    """Compares where a send queue stands with how far the peer is; combinational, one carry chain deep.

    Source: IBA volume 1, 9.7.7.2.5 (limited credits: with nothing outstanding a message may go), 10.8.3.3 (fence),
    9.7.4 (requests outstanding).

    Members
    -------
    state, progress : ``RequesterContext``, ``Progress``
    unreliable : 1
        The QP is UC: there are no credits, and no READs and atomics.
    max_rd_atomic : 8
        As in the QP's context.
    read_allowance : 4
        So many READs and atomics may be outstanding where another one is begun.
    begun : 16
        WQEs from the oldest that is not complete to the state's; more than half of all if that one is complete.
    o : ``Admission``
    """

    def __init__(self):
        super().__init__(
            {
                "state": In(RequesterContext),
                "progress": In(Progress),
                "unreliable": In(1),
                "max_rd_atomic": In(8),
                "read_allowance": In(4),
                "begun": Out(16),
                "o": Out(Admission),
            }
        )

    def elaborate(self, platform):
        m = Module()
        state, progress = self.state, self.progress
        ahead = Signal(PSN_BITS)
        reads = Signal(8)
        credit = Signal(16)
        m.d.comb += [
            ahead.eq(state.psn - progress.unacked),
            self.begun.eq(state.index - progress.oldest),
            reads.eq(state.reads - progress.reads),
            credit.eq(state.index - progress.limit),
            self.o.fresh.eq(state.psn == state.top_psn),
            self.o.newest.eq(state.index == state.top),
            self.o.oldest.eq(self.begun == 0),
            # All that is outstanding may be more than half of all PSNs; in the oldest WQE it is less.
            self.o.behind.eq(self.begun[-1] | ((self.begun == 0) & ahead[-1])),
            self.o.far.eq(ahead[FAR_BITS:] != 0),
            self.o.fenced.eq(reads != 0),
            self.o.full.eq((reads >= self.max_rd_atomic) | (reads > self.read_allowance)),
            self.o.rd_atomic_disabled.eq((self.max_rd_atomic == 0) | self.unreliable),
            self.o.no_credit.eq(progress.limited & ~credit[-1] & (self.begun != 0) & ~self.unreliable),
        ]
        return m
