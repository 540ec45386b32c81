"""Which tokens need not wait behind the jobs of other queue pairs."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...stream.in_flight import InFlight

__all__ = ["TokenPassing"]

JOB_BITS = 8
"""Of a job's number: many more than jobs are under way at a time."""


class TokenPassing(wiring.Component):
    """Counts the jobs of each QP that are under way. A token SAVE or LOAD whose QP has none may pass them all: there is
    nothing that it has to wait for. It is no job of those that are counted.

    Parameters
    ----------
    qps : int

    Members
    -------
    qp, action : 12, ``QpAction``
        The item at hand: whose it is, and what it is if it is ``control``.
    control : 1
        It is a token.
    leaves, by : 1, 1
        Strobe: it is done with, and its job goes out; it is a token that passes by.
    done : 1
        Strobe: the oldest of the jobs that are counted has been taken at the other end.
    held, held_qp : 1, 12
        A job of this QP is still under way there, out of its order.
    passes : 1
        From 3 cycles after it came: the item is a token that may pass. One that must wait may do so later.
    """

    def __init__(self, qps):
        self.qps = qps
        super().__init__(
            {
                "qp": In(12),
                "action": In(QpAction),
                "control": In(1),
                "leaves": In(1),
                "by": In(1),
                "done": In(1),
                "held": In(1),
                "held_qp": In(12),
                "passes": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.jobs = jobs = InFlight(self.qps, JOB_BITS)
        swaps = (self.action == QpAction.SAVE) | (self.action == QpAction.LOAD)
        m.d.sync += self.passes.eq(self.control & swaps & ~jobs.some)
        m.d.comb += [
            jobs.qp.eq(self.qp),
            jobs.enter_qp.eq(self.qp),
            jobs.enter.eq(self.leaves & ~self.by),
            jobs.done.eq(self.done),
            jobs.busy[0].eq(self.held),
            jobs.busy_qp[0].eq(self.held_qp),
        ]
        return m
