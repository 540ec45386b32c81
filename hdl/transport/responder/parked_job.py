"""The job of a SEND with invalidate, while its key is made invalid."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...abi.tables import AccessStatus
from ...memory.key_operations import KEY_CLIENT, KeyOperation
from ..common.layouts import Job

__all__ = ["ParkedJob"]


class ParkedJob(wiring.Component):
    """Holds one job, asks for its operation, and gives it back with the result.

    Members
    -------
    coming : ``Job``
        The job that is next.
    park : 1
        Strobe, while none is held: ``coming`` is held from the next cycle on.
    here : 1
        A job is held.
    held : 1
        As of a cycle ago: ``coming`` must not pass the job that is held. It is of its QP, or has a key itself.
    back : 1
        The result is there: ``job`` and ``status`` stay until ``leave``.
    job, status : ``Job``, ``AccessStatus``
    leave : 1
        Strobe, with ``back``: nothing is held any more.
    operation : stream of ``KeyRequest``; operated : stream of ``KeyResult``
    """

    def __init__(self):
        super().__init__(
            {
                "coming": In(Job),
                "park": In(1),
                "here": Out(1),
                "held": Out(1),
                "back": Out(1),
                "job": Out(Job),
                "status": Out(AccessStatus),
                "leave": In(1),
            }
            | KEY_CLIENT
        )

    def elaborate(self, platform):
        m = Module()
        job, coming, asked = self.job, self.coming, self.operation.payload
        here, asking = self.here, Signal()
        m.d.comb += [
            self.operation.valid.eq(asking),
            self.operated.ready.eq(here & ~asking & ~self.back),
            asked.operation.eq(KeyOperation.INVALIDATE),
            asked.key.eq(Cat(job.immediate.word_select(lane, 8) for lane in reversed(range(4)))),
            asked.pd.eq(job.pd),
            asked.qp.eq(job.qp),
        ]
        m.d.sync += self.held.eq(here & ((coming.qp == job.qp) | coming.invalidate))
        with m.If(self.park):
            m.d.sync += [job.eq(coming), here.eq(1), asking.eq(1)]
        with m.If(self.operation.valid & self.operation.ready):
            m.d.sync += asking.eq(0)
        with m.If(self.operated.valid & self.operated.ready):
            m.d.sync += [self.back.eq(1), self.status.eq(self.operated.payload.status)]
        with m.If(self.leave):
            m.d.sync += [here.eq(0), self.back.eq(0)]
        return m
