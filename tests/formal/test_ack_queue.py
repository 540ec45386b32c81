"""The ack queue: nothing overtakes a response, and no NAK is lost to an older ACK."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from prover import assume, claim, cover, prove, reach
from verbena.hdl.transport.common.psn import PSN_BITS, psn_before, psn_difference
from verbena.hdl.transport.responder import ack_queue
from verbena.hdl.transport.responder.ack_queue import AckAction, AckQueue

QPS = 2
DEPTH = 24
LOOKED_AT = 2
"""An answer that was looked at before a hold comes out up to so many cycles after it began."""
STEP = 1 << 20
"""PSNs from one answer to the next: what waits and what comes are never half of all apart."""


class Answers(wiring.Component):
    """An ack queue, and what is asked of QP 0.

    Assumed: ``qp`` stands 3 cycles before ``put``, ``psn`` 1 cycle, strobes are at least 4 cycles apart. Of QP 0: PSNs
    do not go back, but that a duplicate is answered with an ACK for a packet that was executed, and that a response
    which is refused brings a NAK for its own packet; a RELEASE puts it on hold, and HOLD or such a NAK ends that; there
    is no CLEAR. All else is free: when what is put, QP 1, when ``o`` is taken, and ``backlog``.
    """

    def __init__(self):
        self.queue = AckQueue(QPS)
        members = self.queue.signature.members
        super().__init__({name: members[name] for name in ("answer", "put", "action", "hold", "backlog", "o")})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = dut = self.queue
        wiring.connect(m, dut.o, wiring.flipped(self.o))
        m.d.comb += [
            getattr(dut, name).eq(getattr(self, name)) for name in ("answer", "put", "action", "hold", "backlog")
        ]
        answer, out = self.answer, self.o.payload

        # -- How it is driven.
        steady = Signal(range(4))  # cycles for which `qp` has stood
        quiet = Signal(range(4), init=3)
        before = Signal.like(answer)
        m.d.sync += [before.eq(answer), quiet.eq(quiet + (quiet != 3))]
        with m.If(self.put):
            m.d.sync += quiet.eq(0)
        assume(m, answer.qp < QPS)
        stands = (answer.qp == before.qp) & (steady != 0)
        m.d.sync += steady.eq(1)
        with m.If(stands):
            m.d.sync += steady.eq(steady + (steady != 3))
        with m.If(self.put):
            assume(m, (quiet == 3) & stands & (steady == 3) & (answer.psn == before.psn))

        # -- QP 0.
        puts = self.put & (answer.qp == 0)
        asks, is_nak = Signal(), Signal()
        newest = Signal(PSN_BITS)
        held, was_held = Signal(), Signal()
        m.d.comb += [
            asks.eq(puts & (self.action == AckAction.ANSWER)),
            is_nak.eq(answer.syndrome[5:7] != 0),
        ]
        with m.If(puts):
            m.d.sync += [held.eq(self.hold), was_held.eq(was_held | self.hold)]
            assume(m, self.action != AckAction.CLEAR)
            with m.Switch(self.action):
                with m.Case(AckAction.ANSWER):
                    assume(m, (self.hold == held) | (is_nak & ~self.hold))
                with m.Case(AckAction.RELEASE):
                    assume(m, self.hold)
                with m.Case(AckAction.HOLD):
                    assume(m, held | ~self.hold)
        with m.If(puts & (self.action != AckAction.HOLD)):
            m.d.sync += newest.eq(answer.psn)
            step = psn_difference(answer.psn, newest)
            duplicate = (step < 0) & (step > -STEP) & asks & ~is_nak
            refused = (step < 0) & (step > -STEP) & asks & is_nak & held & ~self.hold
            assume(m, ((step >= 0) & (step < STEP)) | duplicate | refused)

        # -- What comes out: while it is held, it is an answer from before.
        shows = self.o.valid & (out.qp == 0)
        shown = Signal()
        held_for = Signal(range(LOOKED_AT + 2))
        m.d.sync += shown.eq(shows & ~self.o.ready)
        with m.If(~held | (puts & ~self.hold)):
            m.d.sync += held_for.eq(0)
        with m.Elif(held_for != LOOKED_AT + 1):
            m.d.sync += held_for.eq(held_for + 1)
        claim(m, "held", ~(shows & ~shown & (held_for > LOOKED_AT)))

        # -- A NAK that waits: until it is out, or its packet has come after all, nothing older comes out.
        due, nak, nak_put = Signal(), Signal(PSN_BITS), Signal()
        older, earlier = Signal(), Signal()  # one that is on its way out was put before
        leaves = shows & self.o.ready
        m.d.comb += older.eq(Mux(nak_put, dut.holds, earlier))
        m.d.sync += [nak_put.eq(asks & is_nak & ~leaves), earlier.eq(older & ~leaves)]
        with m.If(leaves & ~older):
            m.d.sync += due.eq(0)
        with m.If(asks & is_nak):
            m.d.sync += [due.eq(1), nak.eq(answer.psn), earlier.eq(0)]
        with m.Elif(puts & ((self.action == AckAction.RELEASE) | (asks & ~psn_before(answer.psn, nak)))):
            m.d.sync += due.eq(0)
        claim(m, "nak_kept", ~(leaves & due & ~older & psn_before(out.psn, nak)))
        reach(m, "held_and_freed", shows & ~shown & was_held & ~held)
        reach(m, "nak_behind_ack", leaves & due & ~older & (out.syndrome[5:7] != 0))
        return m


def test_it_holds(tmp_path):
    verdict = prove(Answers(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Answers(), tmp_path, DEPTH).holds


def test_a_nak_that_gives_way_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(ack_queue, "psn_before", lambda a, b: a == b)
    assert prove(Answers(), tmp_path, DEPTH).names == ["nak_kept"]


def test_a_hold_that_any_qp_ends_is_found(tmp_path, monkeypatch):
    bits = AckQueue._bits

    def one_for_all(self, m, name, reads):
        if name != "held":
            return bits(self, m, name, reads)
        m.submodules[name] = row = memory.Memory(shape=1, depth=1, init=[])
        return row.write_port(), [row.read_port(domain="comb") for _ in range(reads)]

    monkeypatch.setattr(AckQueue, "_bits", one_for_all)
    assert prove(Answers(), tmp_path, DEPTH).names == ["held"]
