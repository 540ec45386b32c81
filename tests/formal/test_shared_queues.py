"""Shared receive queues: no WQE is given twice, none is passed over, and each limit tells once."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from prover import assume, claim, cover, prove, reach
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.transport.responder import shared_queues
from verbena.hdl.transport.responder.shared_queues import LIMIT_WORD, STATE_WORD, SharedQueues

QPS, SRQS = 4, 2
DEPTH = 24
APART = 4
"""Cycles between broadcasts of different queues, at least: a command takes longer."""
SHORTEST = 3
"""Cycles from a message's packet to the strobe that its WQE is taken, at least, as in the responder."""


class Messages(wiring.Component):
    """Who takes WQEs, one message at a time as the responder does: of any queue, after any time; or it does not take
    its WQE in the end.

    A queue is new when nothing of it is under way; nothing is taken of one that was never new. A limit comes at any
    time; who may take the events, and when, is free.
    """

    comes: In(1)
    of: In(1)
    ends: In(1)
    takes: In(1)
    left: In(16)
    tells: In(1)
    about: In(1)
    limits: In(1)
    data: In(32)
    listens: In(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.queues = queues = SharedQueues(QPS, SRQS)
        busy, srqn, index, age = Signal(), Signal(), Signal(16), Signal(range(SHORTEST + 1))
        new, due, sets, said = (
            Array(Signal(bits, name=f"{name}_{n}") for n in range(SRQS))
            for name, bits in (("new", 1), ("due", 16), ("sets", 8), ("said", 8))
        )
        ago, last = Signal(range(APART + 1), init=APART), Signal()

        # -- A message: its WQE is the one at the head when it comes.
        begins, finish = self.comes & ~busy, self.ends & busy & (age == SHORTEST)
        take = finish & self.takes
        m.d.comb += [
            queues.srqn.eq(srqn),
            queues.take.eq(take),
            queues.left.eq(self.left),
            queues.event.ready.eq(self.listens),
        ]
        m.d.sync += age.eq(age + (age != SHORTEST))
        with m.If(begins):
            assume(m, new[self.of] & ~((ago != APART) & (last == self.of)))
            m.d.comb += queues.srqn.eq(self.of)
            m.d.sync += [busy.eq(1), srqn.eq(self.of), index.eq(queues.head), age.eq(1)]
        with m.If(finish):
            m.d.sync += busy.eq(0)

        # -- What is told of a queue.
        makes, sets_limit = self.tells & ~self.limits, self.tells & self.limits
        m.d.comb += [
            queues.attribute_en.eq(self.tells),
            queues.attribute.index.eq(self.about | QPS),
            queues.attribute.word.eq(STATE_WORD),
            queues.attribute.data.eq(self.data),
        ]
        with m.If(self.limits):
            m.d.comb += queues.attribute.word.eq(LIMIT_WORD)
        m.d.sync += ago.eq(ago + (ago != APART))
        with m.If(self.tells):
            assume(m, (ago == APART) | (self.about == last))
            m.d.sync += [ago.eq(0), last.eq(self.about)]
        with m.If(makes):
            assume(m, ~(busy & (srqn == self.about)) & ~(self.comes & (self.of == self.about)))
            m.d.sync += [new[self.about].eq(1), due[self.about].eq(0)]
        with m.If(sets_limit):
            m.d.sync += sets[self.about].eq(sets[self.about] + 1)

        # -- What follows.
        event, tell = queues.event.payload, queues.event.valid & queues.event.ready
        limit_reached = tell & (event.type == EventType.SRQ_LIMIT_REACHED)
        with m.If(take):
            m.d.sync += due[srqn].eq(due[srqn] + 1)
        with m.If(limit_reached):
            m.d.sync += said[event.number[0]].eq(said[event.number[0]] + 1)
        claim(m, "once", ~take | (index == due[srqn]))
        claim(m, "limit", ~limit_reached | (said[event.number[0]] != sets[event.number[0]]))
        claim(m, "known", ~queues.event.valid | (event.number < SRQS))
        reach(m, "both", (due[0] == 2) & (due[1] == 1))
        reach(m, "told", said[0] == 1)
        reach(m, "waited", take & self.tells & (srqn != self.about))
        return m


def test_no_wqe_is_given_twice(tmp_path):
    verdict = prove(Messages(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Messages(), tmp_path, DEPTH).holds


def test_a_limit_that_makes_the_queue_new_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_queues, "STATE_WORD", LIMIT_WORD)
    assert prove(Messages(), tmp_path, DEPTH).names == ["once"]
