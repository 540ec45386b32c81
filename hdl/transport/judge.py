"""What a request is worth: all checks, and what follows from them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..queue.wqe_fetcher import RingStatus
from .aeth import encode_credits
from .answer import Answer
from .layouts import READ_EXTENT, Job, LookedUp, ResponseEntry, ResponseKind
from .request_check import READS_MAX, ReceiveState, RequestCheck, Verdict
from .response_check import ResponseCheck

__all__ = ["Judge"]


class Judge(wiring.Component):
    """The checks of a request and the answer to it, as a pipeline beside the receive buffer's: a first verdict, which
    the buffer needs, then the late objections, and at last the job with the QP's new state.

    Everything that is looked at must stay from the cycle before ``decide`` on, until the request is done with;
    attributes and ``status`` only until ``decide``. Then ``place`` for as long as the buffer works, at least 2 cycles.

    Parameters
    ----------
    row : shape-like
        Layout of the QP's attributes, with the fields that are used here.
    atomics : bool
        See :class:`.request_check.RequestCheck`.

    Members
    -------
    request : LookedUp
        The packet, if there is one.
    qp
    row
        The QP's attributes.
    receive : ReceiveState
    status : RingStatus
        Of the QP's receive ring.
    served
        Entries of the QP's response ring that are answered, modulo 256.
    look : 1
        The inputs are valid: strobe, in the cycle before ``decide``.
    decide : 1
        Strobe: take the verdict.
    flush, token : 1
        With ``decide``, or ``token`` alone: it is no packet, it is a receive WQE to be flushed, or a token.
    wait : 1
        In the cycle of ``decide``: there is no verdict yet, because the receive WQE is on its way.
    again : 1
        In the cycle of ``decide``: it is a READ or an atomic that is asked for again.
    flushable : 1
        In the cycle of ``decide``: the QP is in ERR, and has a receive WQE to be flushed.
    execute : 1
        From the cycle after ``decide`` on: the payload is wanted.
    write, begin, end : 1
        What the opcode says.
    place : 1
        The buffer works.
    misfit, too_long, byte_length
        The buffer's, valid in the last cycle of ``place``.
    job : Job
        Behind ``place``.
    next : ReceiveState
        The same, the new state.
    consume : 1
        The same: the receive WQE ``receive.index`` is used up.
    slot, entry
        The same, if the job is a release: row of the response ring.
    count_drop_sequence, count_drop_duplicate : 1
        The verdict is one that counts so.
    """

    def __init__(self, row, atomics=True):
        self.atomics = atomics
        super().__init__(
            {
                "request": In(LookedUp),
                "qp": In(12),
                "row": In(row),
                "receive": In(ReceiveState),
                "status": In(RingStatus),
                "served": In(8),
                "look": In(1),
                "decide": In(1),
                "flush": In(1),
                "token": In(1),
                "wait": Out(1),
                "again": Out(1),
                "flushable": Out(1),
                "execute": Out(1),
                "write": Out(1),
                "begin": Out(1),
                "end": Out(1),
                "place": In(1),
                "misfit": In(1),
                "too_long": In(1),
                "byte_length": In(32),
                "job": Out(Job),
                "next": Out(ReceiveState),
                "consume": Out(1),
                "slot": Out(ceil_log2(READS_MAX)),
                "entry": Out(ResponseEntry),
                "count_drop_sequence": Out(1),
                "count_drop_duplicate": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.check = check = RequestCheck(self.atomics)
        m.submodules.responses = responses = ResponseCheck()
        m.submodules.answer = answer = Answer()
        transport = self.request.transport

        # One bit a verdict: what decodes it must be quick.
        verdict = Signal(len(Verdict))
        posted = Signal()
        # Attributes that count until the end; `row` may be torn meanwhile.
        row, kept = Signal.like(self.row), Signal.like(self.row)
        m.d.comb += row.eq(Mux(self.look, self.row.as_value(), kept.as_value()))
        with m.If(self.look):
            m.d.sync += kept.eq(self.row)
        with m.If(self.token):
            m.d.sync += verdict.eq(1 << Verdict.TOKEN.value)
        with m.Elif(self.decide):
            m.d.sync += posted.eq(check.posted)
            with m.If(self.flush):
                m.d.sync += verdict.eq(1 << Verdict.FLUSH.value)
            with m.Else():
                m.d.sync += verdict.eq(1 << check.verdict.as_value())
        with m.If(self.decide | self.token):
            m.d.sync += self.execute.eq(
                (check.verdict == Verdict.EXECUTE) & ~check.responds & self.decide & ~self.flush
            )

        def is_(which):
            return verdict[which.value]

        m.d.comb += [
            check.request.eq(self.request),
            check.receive.eq(self.receive),
            check.state.eq(self.row.state),
            check.path_mtu.eq(self.row.path_mtu),
            check.access.eq(row.access),
            check.status.eq(self.status),
            self.wait.eq(check.wait),
            self.again.eq(check.again),
            self.flushable.eq(check.flush),
            self.write.eq(check.write),
            self.begin.eq(check.begin),
            self.end.eq(check.end),
            responses.transport.eq(transport),
            responses.kind.eq(check.kind),
            responses.responds.eq(check.responds),
            responses.path_mtu.eq(row.path_mtu),
            responses.max_dest_rd_atomic.eq(kept.max_dest_rd_atomic),  # from the decision on is soon enough
            responses.receive.eq(self.receive),
            responses.served.eq(self.served),
            self.count_drop_sequence.eq(is_(Verdict.SEQUENCE) | is_(Verdict.AHEAD)),
            self.count_drop_duplicate.eq(is_(Verdict.DUPLICATE) | is_(Verdict.STALE)),
        ]

        # Receive WQEs left after this packet, and a cycle later their code; if it is refused nobody wants to know.
        left = Signal(16)
        credits = Signal(5)
        uses = Signal()
        m.d.comb += uses.eq(self.execute & check.end & (~check.write | check.immediate))
        with m.If(self.place):
            m.d.sync += [
                left.eq((Cat(1, self.status.producer) + Cat(~uses, ~self.receive.index))[1:]),
                credits.eq(encode_credits(left)),
            ]

        m.d.comb += [
            answer.update.eq(self.place),
            answer.verdict.eq(verdict),
            answer.misfit.eq(self.misfit),
            answer.too_long.eq(self.too_long),
            answer.invalid.eq(responses.invalid),
            answer.full.eq(responses.full),
            answer.stale.eq(responses.stale),
            answer.mixed.eq(responses.mixed),
            answer.allowed.eq(check.allowed),
            answer.responds.eq(check.responds),
            answer.write.eq(check.write),
            answer.end.eq(check.end),
            answer.immediate.eq(check.immediate),
            answer.qp.eq(self.qp),
            answer.byte_length.eq(self.byte_length),
            answer.credits.eq(credits),
            answer.transport.eq(transport),
            answer.receive.eq(self.receive),
            answer.after.eq(responses.after),
            answer.gap.eq(check.gap),
            answer.posted.eq(posted),
            answer.rnr_timer.eq(kept.min_rnr_timer),
            self.job.eq(answer.job),
            self.next.eq(answer.next),
            self.consume.eq(answer.consume),
        ]
        m.d.comb += [
            self.slot.eq(self.receive.taken),
            self.entry.kind.eq(check.kind),
            self.entry.psn.eq(transport.psn),
            self.entry.msn.eq(answer.next.msn),
            self.entry.credits.eq(credits),
            self.entry.address.eq(transport.address),
            self.entry.rkey.eq(transport.rkey),
            self.entry.swap.eq(self.request.swap),
            self.entry.compare.eq(self.request.compare),
        ]
        with m.If(check.kind == ResponseKind.READ):
            extent = data.View(READ_EXTENT, self.entry.swap)
            m.d.comb += [extent.length.eq(transport.dma_length), extent.after.eq(responses.after)]
        with m.If(is_(Verdict.DUPLICATE)):
            again = Mux(check.kind == ResponseKind.READ, ResponseKind.REPEAT, ResponseKind.REPLAY)
            m.d.comb += self.entry.kind.eq(again)
        return m
