"""What a response says about the send queue that it is for."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...abi.cqe import Syndrome, WcStatus
from ...abi.tables import AccessStatus
from ..common.aeth import AethSyndrome
from ..common.layouts import ResponseJob, ResponseJobKind
from ..common.psn import PSN_BITS, psn_next
from .credit_limit import NO_CREDITS, credit_count
from .retry_account import RetryCause

__all__ = ["Meaning", "ResponseMeaning"]

FATAL_NAKS = {
    AethSyndrome.NAK_INVALID_REQUEST: WcStatus.REM_INV_REQ_ERR,
    AethSyndrome.NAK_REMOTE_ACCESS: WcStatus.REM_ACCESS_ERR,
    AethSyndrome.NAK_REMOTE_OPERATION: WcStatus.REM_OP_ERR,
    0x64: WcStatus.REM_INV_REQ_ERR,  # invalid RD request
}

Meaning = data.StructLayout(
    {
        "known": 1,  # it is something that a peer may say; else, or if there is no response, the next six are zero
        "inclusive": 1,  # the packet it names has arrived, too: `target` is the next one
        "data": 1,  # it is data: `target` does not pass over a READ or atomic
        "cause": RetryCause,  # SEQUENCE, NOT_READY or NONE
        "fatal": 1,  # the oldest WQE behind those that are complete fails, with the status below
        "failing": 1,  # the WQE of the response fails, with the status below, when its turn comes
        "credits": 1,  # it says how many messages may be sent: those before `limit`, or all if not `limited`
        "local": 1,  # it names no packet that is under way: it is this side's, and right
        "nak": 1,  # `fatal`, or `cause` is not NONE
        "limit": 16,
        "limited": 1,
        "rnr_timer": 5,  # with NOT_READY
        "status": 8,
        "syndrome": 8,
        "target": PSN_BITS,  # all before this packet have arrived, if READs and atomics among them are answered
    }
)


class ResponseMeaning(wiring.Component):
    """Decodes the job of a response, and what became of its payload. With ``start`` a new one is taken; its meaning
    stands 2 cycles later, ``target`` 3, until the next ``start``. Without ``load`` there is no response. Data that was
    POISONED says nothing: what was refused before it, a request of the peer's or other data, has told why.

    Source: InfiniBand volume 1, 9.7.5 (AETH syndromes), 10.8 and 11.6.2 (completion status).

    Members
    -------
    start, load : 1
        An event begins; it is this job's. If not, ``status`` and ``syndrome`` pass all the same.
    job : ``ResponseJob``; done_status : 3
        And the status of its ``Done``.
    psn : 24
        The packet that the response names, in the 2nd cycle behind ``start`` only.
    meaning : ``Meaning``
    count_rx_acks, count_rx_naks : 1
    """

    start: In(1)
    load: In(1)
    job: In(ResponseJob)
    done_status: In(3)
    psn: Out(PSN_BITS)
    meaning: Out(Meaning)
    count_rx_acks: Out(1)
    count_rx_naks: Out(1)

    def elaborate(self, platform):
        m = Module()
        out = self.meaning
        kind = Signal(ResponseJobKind, init=ResponseJobKind.NOTHING)
        syndrome = Signal(8)
        refusal = Signal(3)
        decode, advance = Signal(), Signal()  # 1 and 2 cycles behind `start`
        count = Signal(16)
        m.d.sync += [decode.eq(self.start), advance.eq(decode)]
        m.d.comb += [
            count.eq(credit_count(syndrome[:5])),
            out.target.eq(self.psn),
            out.nak.eq(out.fatal | (out.cause != RetryCause.NONE)),
            out.rnr_timer.eq(syndrome[:5]),
        ]
        with m.If(self.start):
            m.d.sync += [
                kind.eq(Mux(self.load, self.job.kind, ResponseJobKind.NOTHING)),
                syndrome.eq(self.job.syndrome),
                refusal.eq(self.done_status),
                self.psn.eq(self.job.psn),
                out.limit.eq(self.job.msn),
                out.status.eq(self.job.status),
            ]
        with m.If(advance & out.inclusive):
            m.d.sync += self.psn.eq(psn_next(self.psn))

        answer, refused, poisoned = Signal(), Signal(), Signal()
        group = syndrome[5:8]
        m.d.comb += [
            answer.eq(kind == ResponseJobKind.ACK),
            refused.eq((kind == ResponseJobKind.DATA) & (refusal != AccessStatus.OK)),
            poisoned.eq(refusal == AccessStatus.POISONED),
        ]
        m.d.sync += [self.count_rx_acks.eq(0), self.count_rx_naks.eq(0)]
        with m.If(decode):
            m.d.sync += [
                self.count_rx_acks.eq(answer & (group == 0)),
                self.count_rx_naks.eq(answer & ((group == 1) | (group == 3))),
                out.known.eq(0),
                out.local.eq(kind == ResponseJobKind.LOCAL),
                out.inclusive.eq(0),
                out.cause.eq(RetryCause.NONE),
                out.fatal.eq(0),
                out.data.eq(kind == ResponseJobKind.DATA),
                out.failing.eq((refused & ~poisoned) | (kind == ResponseJobKind.FAILED)),
                out.syndrome.eq(syndrome),
                out.credits.eq(answer & (group == 0)),
                out.limited.eq(syndrome[:5] != NO_CREDITS),
                out.limit.eq(out.limit + count),
            ]
            with m.Switch(kind):
                with m.Case(ResponseJobKind.ACK):
                    m.d.sync += out.syndrome.eq(Syndrome.REMOTE_NAK)
                    with m.Switch(syndrome):
                        with m.Case("000-----"):
                            m.d.sync += [out.known.eq(1), out.inclusive.eq(1)]
                        with m.Case("001-----"):
                            m.d.sync += [out.known.eq(1), out.cause.eq(RetryCause.NOT_READY)]
                        with m.Case(AethSyndrome.NAK_SEQUENCE):
                            m.d.sync += [out.known.eq(1), out.cause.eq(RetryCause.SEQUENCE)]
                        for code, status in FATAL_NAKS.items():
                            with m.Case(code):
                                m.d.sync += [out.known.eq(1), out.fatal.eq(1), out.status.eq(status)]
                with m.Case(ResponseJobKind.DATA):
                    m.d.sync += [out.known.eq(~poisoned), out.inclusive.eq(~refused)]
                    with m.If(refused):
                        bus = refusal == AccessStatus.BUS
                        m.d.sync += [
                            out.status.eq(Mux(bus, WcStatus.GENERAL_ERR, WcStatus.LOC_PROT_ERR)),
                            out.syndrome.eq(refusal),
                        ]
                with m.Case(ResponseJobKind.DEPARTED, ResponseJobKind.LOCAL):
                    m.d.sync += [out.known.eq(1), out.inclusive.eq(1)]
                with m.Case(ResponseJobKind.SKIPPED, ResponseJobKind.FAILED):
                    m.d.sync += out.known.eq(1)
        return m
