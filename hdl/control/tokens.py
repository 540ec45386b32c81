"""Control tokens: how the command block resets, starts and stops a QP in every block that has state of it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import QpAction
from ..stream.transfer import QpControl

__all__ = ["Tokens"]

REQUESTER, RESPONDER, RESPONSE_RECEIVER, COMPLETER, SQ_FETCH, RQ_FETCH = range(6)


class Tokens(wiring.Component):
    """Says a token to one block after the other.

    RESET goes to all, and waits on its way: for requester, responder and READ/atomic responder, until their tokens have
    come out at the ends of the transmit and the receive path; then for the response receiver's. So what comes to the
    completer and to the prefetchers last belongs to no packet of the old life. DRAIN goes to the requester alone, all
    others to all but the response receiver.

    While ``new``, nothing of an old life is on any path: RESET waits for nobody, and ``under_way`` tells whether tokens
    of it still are.

    A block sees its token 1 cycle after the one before was taken, and each costs 3 cycles. Every ``valid`` is a
    register, and a block's ``ready`` goes to that register only.

    Members
    -------
    request : stream of ``QpControl``
        The token; ``ready`` when all have it, and RESET has waited.
    new, under_way : 1
    requester, responder, response_receiver, completer, sq_fetch, rq_fetch : streams of ``QpControl``
    requester_done, responder_done, read_atomic_responder_done, response_receiver_done : 1
        Strobes: a RESET token has left the pipeline. Those of a token come after it was taken.

    Parameters
    ----------
    most : int
        RESET tokens at most that are on one path at once.
    """

    def __init__(self, most):
        self.most = most
        token = stream.Signature(QpControl)
        super().__init__(
            {
                "request": In(token),
                "new": In(1),
                "under_way": Out(1),
                "requester": Out(token),
                "responder": Out(token),
                "response_receiver": Out(token),
                "completer": Out(token),
                "sq_fetch": Out(token),
                "rq_fetch": Out(token),
                "requester_done": In(1),
                "responder_done": In(1),
                "read_atomic_responder_done": In(1),
                "response_receiver_done": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        action = self.request.payload.action
        ports = [self.requester, self.responder, self.response_receiver, self.completer, self.sq_fetch, self.rq_fetch]
        target = Signal(range(len(ports)))
        open_ = Signal(len(ports))  # said and not taken
        reset, alone, may = Signal(), Signal(), Signal()
        for number, port in enumerate(ports):
            m.d.comb += [port.valid.eq(open_[number]), port.payload.eq(self.request.payload)]
            with m.If(port.ready):
                m.d.sync += open_[number].eq(0)
        m.d.comb += [
            reset.eq(action == QpAction.RESET),
            alone.eq(action == QpAction.DRAIN),
        ]

        # Who is told first of what comes out at each end.
        paths = [
            (REQUESTER, self.requester_done),
            (RESPONDER, self.responder_done),
            (RESPONDER, self.read_atomic_responder_done),
            (RESPONSE_RECEIVER, self.response_receiver_done),
        ]
        said = Signal()
        out = Signal(len(paths))
        for path, (first, done) in enumerate(paths):
            count = Signal(range(self.most + 1), name=f"under_way_{path}")
            m.d.sync += [count.eq(count + (said & (target == first)) - done), out[path].eq(count == 0)]
        m.d.comb += [said.eq(may & reset), self.under_way.eq(~out.all())]

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += target.eq(REQUESTER)
                with m.If(self.request.valid):
                    m.next = "SAY"
            with m.State("SAY"):
                m.d.comb += may.eq(1)
                with m.If(target == RESPONSE_RECEIVER):
                    m.d.comb += may.eq(~reset | self.new | out[:3].all())
                with m.Elif(target == COMPLETER):
                    m.d.comb += may.eq(~reset | self.new | out[3])
                with m.If(may):
                    m.d.sync += open_.bit_select(target, 1).eq(reset | (target != RESPONSE_RECEIVER))
                    m.next = "TAKEN"
            with m.State("TAKEN"), m.If(~open_.any()):
                m.d.sync += target.eq(target + 1)
                m.next = "SAY"
                with m.If(alone | (target == RQ_FETCH)):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.request.ready.eq(1)
                m.next = "IDLE"
        return m
