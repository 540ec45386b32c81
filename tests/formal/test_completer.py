"""The completer, whole: each send WQE has one fate, in order, and nothing is acknowledged that was not sent."""

from functools import reduce
from operator import or_

import pytest
from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from prover import assume, claim, cover, prove, reach
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.cqe import WcStatus
from verbena.hdl.context.fetch import ContextFetch
from verbena.hdl.transport.common.layouts import Progress, ResponseJobKind
from verbena.hdl.transport.common.psn import PSN_BITS, psn_next
from verbena.hdl.transport.completer import response_meaning
from verbena.hdl.transport.completer.completer import Completer

QPS = 2
WINDOW = 2
FIRST = (1 << PSN_BITS) - 2
DEPTHS = {"acked": 29, "fates": 32}
INPUTS = ("attribute", "attribute_en", "sent", "sent_en")
STREAMS_IN = ("control", "outstanding", "failed_requester", "failed_transmitter", "flush", "fired", "job", "done")
STREAMS_OUT = ("completion", "error", "ready", "retry", "reply")


def fires(port):
    """Something of QP 0 is taken."""
    return port.valid & port.ready & (port.payload.qp == 0)


class SendQueue(wiring.Component):
    """A completer, and one send queue of QP 0 behind it.

    Assumed of QP 0: it is started, once, with PSN ``FIRST``, and has sent the PSN before, before anything else comes;
    packets are sent in the order of their PSNs, one PSN each; messages are told in order, each with the last packet
    sent, not more than the window holds. Of all QPs: there are two. Of streams: an item stays until it is taken; of
    ``sent``: not in two cycles in succession. All else is free: which responses, failures, timeouts and flushes come
    when, the attributes (also the state), all that concerns QP 1, and when outputs are taken.

    Parameters
    ----------
    claims : str
        "acked": how far the queue is; "fates": what becomes of its WQEs.
    """

    def __init__(self, claims):
        self.claims = claims
        self.completer = Completer(QPS, WINDOW)
        members = self.completer.signature.members
        ports = {name: members[name] for name in (*INPUTS, *STREAMS_IN, *STREAMS_OUT)}
        super().__init__(ports | {"watched": In(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.completer = dut = self.completer
        for name in (*STREAMS_IN, *STREAMS_OUT):
            wiring.connect(m, getattr(dut, name), wiring.flipped(getattr(self, name)))
        m.d.comb += [getattr(dut, name).eq(getattr(self, name)) for name in INPUTS]
        control, told, job = self.control, self.outstanding, self.job
        progress = Signal(Progress)  # of QP 0, as was told
        with m.If(dut.context_en & (dut.context_qp == 0)):
            m.d.sync += progress.eq(dut.progress)

        for port in (self.sent, *(getattr(self, name).payload for name in STREAMS_IN if name != "done")):
            assume(m, port.qp < QPS)

        # -- QP 0's life.
        started = Signal()
        sent_before = Signal()
        m.d.sync += sent_before.eq(self.sent_en)
        for name in STREAMS_IN:
            port = getattr(self, name)
            before, waits = Signal.like(port.payload, name=f"{name}_before"), Signal(name=f"{name}_waits")
            m.d.sync += [before.eq(port.payload), waits.eq(port.valid & ~port.ready)]
            assume(m, ~waits | (port.valid & (port.payload == before)))
        starts = fires(control) & (control.payload.action == QpAction.START_SEND)
        begins = (QpAction.START_SEND, QpAction.RESTART_SEND, QpAction.RESET)
        again = reduce(or_, (control.payload.action == each for each in begins))
        with m.If(starts):
            m.d.sync += started.eq(1)
        assume(m, ~(sent_before & self.sent_en))
        assume(m, job.payload.kind != ResponseJobKind.LOCAL)  # comes of operations on keys alone
        assume(m, job.payload.kind.as_value() <= ResponseJobKind.PASSED.value)
        assume(m, ~(started & control.valid & (control.payload.qp == 0) & again))
        with m.If(~started):
            assume(m, control.valid & (control.payload.qp == 0) & (control.payload.action == QpAction.START_SEND))
            assume(m, control.payload.psn == FIRST)
            for port in (self.failed_requester, self.failed_transmitter, self.flush, self.fired, job):
                assume(m, ~(port.valid & (port.payload.qp == 0)))

        # -- What it sends.
        unsent = Signal(PSN_BITS)  # next PSN
        behind = Signal(PSN_BITS)  # after this cycle
        any_sent, any_sent_now = Signal(), Signal()  # since the last message was told
        top = Signal(16)
        early = Signal(init=1)
        m.d.sync += early.eq(0)
        with m.If(early):
            assume(m, self.sent_en & (self.sent.qp == 0) & (self.sent.psn == FIRST - 1))
        sends = self.sent_en & (self.sent.qp == 0) & ~early
        tells = fires(told)
        m.d.comb += [
            behind.eq(Mux(sends, psn_next(self.sent.psn), unsent)),
            any_sent_now.eq(any_sent | sends),
        ]
        m.d.sync += [unsent.eq(behind), any_sent.eq(any_sent_now & ~tells)]
        with m.If(starts):
            m.d.sync += unsent.eq(control.payload.psn)
        with m.If(tells):
            m.d.sync += top.eq(top + 1)
        room = (top - progress.oldest + 1)[:16]
        with m.If(sends):
            assume(m, started & (self.sent.psn == unsent))
        with m.If(told.valid & (told.payload.qp == 0)):
            assume(m, started & any_sent_now & (told.payload.wqe_index == top) & (room <= WINDOW))
            assume(m, psn_next(told.payload.last_psn) == behind)

        if self.claims == "acked":
            self._acked(m, progress, started, unsent)
        else:
            self._fates(m, tells)
        return m

    def _acked(self, m, progress, started, unsent):
        """What is acknowledged was sent, and stays acknowledged."""
        settled = Signal(2)  # since the start is written
        unacked, unsent_before = Signal(PSN_BITS), Signal(PSN_BITS)
        with m.If(started & (settled != 3)):
            m.d.sync += settled.eq(settled + 1)
        m.d.sync += [unacked.eq(progress.unacked), unsent_before.eq(unsent)]
        flight, advance = (unsent - progress.unacked)[:PSN_BITS], (progress.unacked - unacked)[:PSN_BITS]
        claim(m, "acked_was_sent", (settled != 3) | (flight < 32))
        claim(m, "acked_grows", (settled != 3) | (advance <= (unsent_before - unacked)[:PSN_BITS]))
        reach(m, "all_acked", (settled == 3) & (flight == 0) & (unsent == 0) & (advance != 0))

    def _fates(self, m, tells):
        """What becomes of one WQE, whichever, among the others."""
        watched = Signal(16)
        known, signaled, complete = Signal(), Signal(), Signal()
        told, completes = self.outstanding, fires(self.completion)
        index = self.completion.payload.wqe_index
        success = self.completion.payload.status == WcStatus.SUCCESS
        early = Signal(init=1)
        m.d.sync += early.eq(0)
        with m.If(early):
            m.d.sync += watched.eq(self.watched)
        with m.If(tells & (told.payload.wqe_index == watched)):
            m.d.sync += [known.eq(1), signaled.eq(told.payload.signaled)]
        with m.If(completes & (index == watched)):
            m.d.sync += complete.eq(1)
        highest = Signal(16)  # behind the last one that was completed
        with m.If(completes):
            m.d.sync += highest.eq(index + 1)
        claim(m, "once", ~(completes & (index == watched) & complete))
        claim(m, "in_order", ~completes | ~(index - highest)[15])
        claim(m, "none_skipped", ~(completes & known & signaled & (index == (watched + 1)[:16])) | complete)
        reach(m, "two_in_order", completes & success & (index == 1) & (watched == 0) & complete)


@pytest.mark.parametrize("claims", DEPTHS)
def test_it_holds(tmp_path, claims):
    verdict = prove(SendQueue(claims), tmp_path, DEPTHS[claims])
    assert verdict.holds, verdict.log


@pytest.mark.parametrize("claims", DEPTHS)
def test_it_is_reached(tmp_path, claims):
    assert cover(SendQueue(claims), tmp_path, DEPTHS[claims]).holds


def test_an_ack_that_counts_for_one_packet_more_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(response_meaning, "psn_next", lambda psn: psn_next(psn, 2))
    assert not prove(SendQueue("acked"), tmp_path, DEPTHS["acked"]).holds


def test_a_row_that_is_read_while_it_is_written_is_found(tmp_path, monkeypatch):
    """It is never noticed that the event before was of the same QP, whose row was perhaps read before it was written
    back."""
    monkeypatch.setattr(ContextFetch, "_same", lambda self, going, kept: Const(0))
    assert not prove(SendQueue("fates"), tmp_path, DEPTHS["fates"]).holds
