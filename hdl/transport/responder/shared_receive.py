"""Requests that take their receive WQE from a shared receive queue."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...stream.transfer import AttributeWrite, Event
from ..receive.layouts import ReceivedRequest, SharedWqe
from .shared_queues import SharedQueues

__all__ = ["SharedReceive"]


class SharedReceive(wiring.Component):
    """Says whether a request takes a WQE of a shared receive queue, and which, and tells :class:`.SharedQueues` when it
    is taken.

    A WQE of the shared ring is used up when it is taken. The message keeps it, and uses up one of the QP's own ring
    only if that was set to it.

    Parameters
    ----------
    qps, srqs : int
        Of the responder.

    Members
    -------
    attribute, attribute_en
        The broadcast to rings.
    request, valid : ``ReceivedRequest``, 1
        What is at the responder's input.
    has_found : 1
        The QP's own ring was set to the WQE for this request.
    comes, takes, head, ring : 1, 1, 16, 12
        The request takes the WQE ``head`` of the shared ``ring``; and as of a cycle ago.
    found : 1
        The WQE that the QP has is at its own ring.
    lapses : 1
        Its WQE is given up by a RESET.
    take, consume, left : 1, 1, 16
        The verdict: a WQE of the shared ring is taken, and so many are left; the message is done with its own.
    uses : 1
        The WQE at the ring of this request is used up.
    finish, broken : 1
        Strobe: the request leaves; its QP has failed for an error of the ring.
    event : stream of ``Event``
    """

    def __init__(self, qps, srqs):
        self.qps = qps
        self.srqs = srqs
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "request": In(ReceivedRequest),
                "valid": In(1),
                "has_found": In(1),
                "comes": Out(1),
                "takes": Out(1),
                "head": Out(16),
                "ring": Out(12),
                "found": Out(1),
                "lapses": Out(1),
                "take": In(1),
                "consume": In(1),
                "left": In(16),
                "uses": Out(1),
                "finish": In(1),
                "broken": In(1),
                "event": Out(stream.Signature(Event)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queues = queues = SharedQueues(self.qps, self.srqs)
        request = self.request
        shared, has, own = request.attributes.srq, Signal(), Signal()  # `own`: its own ring stands at what it has
        m.d.sync += self.takes.eq(self.comes)
        m.d.comb += [
            queues.attribute.eq(self.attribute),
            queues.attribute_en.eq(self.attribute_en),
            queues.srqn.eq(request.attributes.srqn),
            queues.take.eq(self.finish & self.take),
            queues.left.eq(self.left),
            queues.fail.eq(self.finish & self.takes & self.broken),
            self.head.eq(queues.head),
            self.ring.eq(self.qps | queues.srqn),
            has.eq((request.state.wqe == SharedWqe.HELD) | (request.state.wqe == SharedWqe.FOUND)),
            own.eq(self.has_found | (request.state.wqe == SharedWqe.FOUND)),
            self.found.eq(shared & has & own),
            self.comes.eq(shared & self.valid & request.opens & ~has),
            self.lapses.eq(shared & has & (request.action == QpAction.RESET)),
            self.uses.eq(Mux(self.takes, self.take, self.consume & (own | ~shared))),
        ]
        wiring.connect(m, queues.event, wiring.flipped(self.event))
        return m
