"""What stands in the place of the whole requesting side, in an engine that only responds."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from ..abi.commands import QpAction
from ..abi.tables import Access
from .receive.layouts import Work
from .send_side import send_side_members
from .timers.timers import NEVER

__all__ = ["RespondOnly"]


class RespondOnly(wiring.Component):
    """Answers for requester, response receiver, completer and send WQE prefetcher as they do for a QP that has never
    sent.

    Doorbells and pushed words vanish. Tokens are taken at once; RESET's come out again a cycle later, and QUERY is
    answered with zeros. A response, which nobody has asked for, has a run that discards its payload, with ``tag`` 1; it
    passes in its cycle, and is counted.

    Its members mean what they mean at a :class:`.send_side.SendSide`.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    """

    def __init__(self, data_width):
        self.readers = {}  # no structures are read
        super().__init__(send_side_members(data_width))

    def elaborate(self, platform):
        m = Module()
        tokens = (self.requester, self.completer, self.sq_fetch)
        is_token = Signal()
        m.d.comb += is_token.eq(self.response.payload.work == Work.CONTROL)
        m.d.comb += [
            port.ready.eq(1) for port in (*tokens, self.doorbell, self.push, self.done, self.failed, self.departed)
        ]
        m.d.sync += [
            self.requester_done.eq(self.requester.valid & (self.requester.payload.action == QpAction.RESET)),
            self.response_receiver_done.eq(self.response.valid & is_token),
        ]
        for token, reply in ((self.requester, self.requester_reply), (self.completer, self.completer_reply)):
            with m.If(reply.ready):
                m.d.sync += reply.valid.eq(0)
            with m.If(token.valid & (token.payload.action == QpAction.QUERY)):
                m.d.sync += reply.valid.eq(1)
        wiring.connect(m, wiring.flipped(self.read_atomic_responder), wiring.flipped(self.o))
        m.d.comb += self.next_due.eq(NEVER)

        response, access = self.response, self.access.payload
        m.d.comb += [
            self.access.valid.eq(response.valid & ~is_token),
            response.ready.eq(self.access.ready | is_token),
            access.length.eq(response.payload.transport.length),
            access.span.eq(response.payload.transport.length),
            access.access.eq(Access.LOCAL_WRITE),
            access.qp.eq(response.payload.qp),
            access.discard.eq(1),
            access.tag.eq(1),
            access.last.eq(1),
            self.count_drop_response.eq(self.access.valid & self.access.ready),
        ]
        return m
