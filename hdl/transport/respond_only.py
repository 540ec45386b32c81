"""What stands in the place of the whole requesting side, in an engine that only responds."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import QpAction
from ..abi.tables import Access
from ..queue.ring import PushDoorbell, PushWord
from ..stream.transfer import AccessRequest, Done, QpControl
from .layouts import Failure, LookedUp
from .responder import ResponderReply as Reply

__all__ = ["RespondOnly"]


class RespondOnly(wiring.Component):
    """Answers for requester, collector, completer and send WQE prefetcher as they do for a QP that has never sent.

    Doorbells and pushed words vanish. Tokens are taken at once; RESET's come out again a cycle later, and QUERY is
    answered with zeros. A response, which nobody has asked for, has a run that discards its payload, with ``tag`` 1; it
    passes in its cycle, and is counted.

    Members
    -------
    doorbell, push : streams of ``PushDoorbell`` and ``PushWord``
    requester, collector, completer, sq_fetch : streams of ``QpControl``
    requester_done, collector_done : 1
        Strobes: a token has come out.
    requester_reply : stream of ``{psn, index}``, completer_reply : stream of ``{index}``
    response : stream of ``LookedUp``
    access : stream of ``AccessRequest``
        A run of one access for each response.
    done : stream of ``Done``; failed : stream of ``Failure``
    count_drop_response : 1
    """

    def __init__(self):
        token = stream.Signature(QpControl)
        super().__init__(
            {
                "doorbell": In(stream.Signature(PushDoorbell)),
                "push": In(stream.Signature(PushWord)),
                "requester": In(token),
                "collector": In(token),
                "completer": In(token),
                "sq_fetch": In(token),
                "requester_done": Out(1),
                "collector_done": Out(1),
                "requester_reply": Out(stream.Signature(Reply)),
                "completer_reply": Out(stream.Signature(data.StructLayout({"index": 16}))),
                "response": In(stream.Signature(LookedUp)),
                "access": Out(stream.Signature(AccessRequest)),
                "done": In(stream.Signature(Done)),
                "failed": In(stream.Signature(Failure)),
                "count_drop_response": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        tokens = (self.requester, self.collector, self.completer, self.sq_fetch)
        m.d.comb += [port.ready.eq(1) for port in (*tokens, self.doorbell, self.push, self.done, self.failed)]
        m.d.sync += [self.requester_done.eq(self.requester.valid), self.collector_done.eq(self.collector.valid)]
        for token, reply in ((self.requester, self.requester_reply), (self.completer, self.completer_reply)):
            with m.If(reply.ready):
                m.d.sync += reply.valid.eq(0)
            with m.If(token.valid & (token.payload.action == QpAction.QUERY)):
                m.d.sync += reply.valid.eq(1)

        response, access = self.response, self.access.payload
        m.d.comb += [
            self.access.valid.eq(response.valid),
            response.ready.eq(self.access.ready),
            access.length.eq(response.payload.transport.length),
            access.access.eq(Access.LOCAL_WRITE),
            access.qp.eq(response.payload.qp),
            access.discard.eq(1),
            access.tag.eq(1),
            access.last.eq(1),
            self.count_drop_response.eq(response.valid & response.ready),
        ]
        return m
