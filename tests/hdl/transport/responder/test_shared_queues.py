"""How far shared receive queues are used: against a model in Python, in which everything happens at once."""

import pytest
from amaranth.back import rtlil
from streams import make_rng, plain, simulate
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.transport.responder.shared_queues import EVENTS, LIMIT_WORD, STATE_WORD, SharedQueues

LIMIT, ERROR = EventType.SRQ_LIMIT_REACHED, EventType.SRQ_ERR


class World:
    """The block and its model. A cycle is one call of :meth:`cycle`; ``taken`` and ``failed`` SRQs, and words of the
    broadcast, are of that cycle."""

    def __init__(self, qps, srqs):
        self.dut = SharedQueues(qps, srqs)
        self.qps = qps
        self.heads, self.limits = [0] * srqs, [0] * srqs
        self.expected, self.events = [], []
        self.level = 0
        self.new = []  # what the cycle before adds to the queue of events

    def _hear(self, event):
        """Whether there was room for it."""
        if self.level == EVENTS:
            return False
        self.new.append(event)
        self.expected.append(event)
        return True

    async def cycle(self, ctx, *, take=None, fail=None, left=0, srqn=0, word=None, hear=0):
        """``word``: (index, number, data) of the broadcast. ``hear``: an event is taken."""
        dut = self.dut
        srqn = srqn if take is None and fail is None else take if fail is None else fail
        ctx.set(dut.srqn, srqn)
        ctx.set(dut.take, take is not None)
        ctx.set(dut.fail, fail is not None)
        ctx.set(dut.left, left)
        ctx.set(dut.attribute_en, word is not None)
        if word is not None:
            ctx.set(dut.attribute, dict(zip(("index", "word", "data"), word)))
        ctx.set(dut.event.ready, hear)
        if take is not None:
            assert ctx.get(dut.head) == self.heads[srqn]
        _, _, valid, event = await ctx.tick().sample(dut.event.valid, dut.event.payload)
        # What is taken is compared in the next cycle, when an event that is heard now has left.
        heard = bool(valid and hear)
        if heard:
            event = plain(event)
            self.events.append((event.type, event.number))
        self.level += len(self.new) - heard
        self.new = []
        if take is not None:
            self.heads[take] = (self.heads[take] + 1) & 0xFFFF
            if left < self.limits[take] and self._hear((LIMIT, take)):
                self.limits[take] = 0
        if fail is not None:
            self._hear((ERROR, fail))
        if word is not None and word[0] >= self.qps:
            if word[1] == STATE_WORD:
                self.heads[word[0] - self.qps] = 0
            if word[1] == LIMIT_WORD:
                self.limits[word[0] - self.qps] = word[2] >> 16

    async def rest(self, ctx, cycles=2 * EVENTS + 4):
        for _ in range(cycles):
            await self.cycle(ctx, hear=1)

    def run(self, script, rng=None, **kwargs):
        async def testbench(ctx):
            await script(ctx)
            await self.rest(ctx)

        simulate(self.dut, testbench, seed=rng and rng.seed_value, **kwargs)
        assert self.events == self.expected


def context(index, limit=0, state=3):
    """The words that CREATE_SRQ writes, one a cycle: the one with the state first, and last."""
    words = QP_CONTEXT.words(
        state=state, rq_base=0x1234_5678_9000, log_rq_size=9, log_rq_stride=6, srqn=0x5A, srq_limit=limit
    )
    return [(index, 0, 0)] + [(index, number, words[number]) for number in reversed(range(len(words)))]


@pytest.mark.parametrize("cycles", [3000, pytest.param(30_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("qps", "srqs"), [(16, 2), (16, 8), (4, 4)])
def test_random_queues(qps, srqs, cycles):
    """Nothing of an SRQ is taken while that is created. No two WQEs are taken in adjacent cycles."""
    rng = make_rng()
    world = World(qps, srqs)
    seen = {"created": 0, "limited": 0, "at once": 0, "full": 0}

    async def script(ctx):
        words, new, was_taken = [], None, True
        for number in range(cycles):
            stall = (0.3, 0.97)[number // 200 % 2]
            more = {"hear": rng.random() > stall}
            if not words:
                new = None  # for so long nothing of it is taken
                if rng.random() < 0.1:
                    about = rng.randrange(srqs)
                    kind = rng.random()
                    if kind < 0.2 and number:
                        new = about
                        words = [None] * 3 + context(qps + about, rng.choice([0, rng.randrange(100)])) + [None] * 3
                        seen["created"] += 1
                    elif kind < 0.4:
                        words = context(rng.randrange(qps), rng.randrange(100)) + [None] * 3
                    else:
                        words = [(qps + about, LIMIT_WORD, rng.choice([0, 5, 50, 0xFFFF]) << 16 | 0x55AA)] + [None] * 3
                        seen["limited"] += 1
            word = words.pop(0) if words else None
            others = [n for n in range(srqs) if n != new]
            if others and not was_taken and rng.random() < 0.4:
                which = rng.choice(others)
                if word is not None and word[0] >= qps and word[1] == LIMIT_WORD:
                    which = rng.choice([which, *[n for n in others if n == word[0] - qps]])
                    seen["at once"] += 1
                if rng.random() < 0.1:
                    more["fail"] = which
                else:
                    more |= {"take": which, "left": rng.choice([0, 4, 5, 6, rng.randrange(200), 0xFFFF])}
            was_taken = "take" in more or "fail" in more
            seen["full"] += was_taken and world.level == EVENTS
            await world.cycle(ctx, srqn=rng.randrange(srqs), word=word, **more)

    world.run(script, rng, deadline=2 * cycles)
    assert all(seen.values()), seen
    assert {kind for kind, _ in world.events} == {LIMIT, ERROR}


def test_head_is_there_at_once():
    """In the cycle in which the SRQ is named, also right behind a WQE that was taken."""
    world = World(4, 4)

    async def script(ctx):
        for number in range(5):
            for srqn in (1, 3):
                await world.cycle(ctx, take=srqn, left=9)
                ctx.set(world.dut.srqn, srqn)
                assert ctx.get(world.dut.head) == number + 1
        ctx.set(world.dut.srqn, 0)
        assert ctx.get(world.dut.head) == 0

    world.run(script)
    assert world.events == []


@pytest.mark.slow
def test_head_wraps():
    world = World(4, 2)

    async def script(ctx):
        ctx.set(world.dut.srqn, 1)
        ctx.set(world.dut.take, 1)
        await ctx.tick().repeat(65535)
        world.heads[1] = 65535
        await world.cycle(ctx, take=1)
        await world.cycle(ctx, take=1)
        assert world.heads[1] == 1

    world.run(script, deadline=70_000)


def test_a_limit_is_said_once():
    """When fewer are left than it says, not when so many are; then there is none, until it is set again."""
    world = World(4, 4)

    async def script(ctx):
        await world.cycle(ctx, word=(4 + 2, LIMIT_WORD, 5 << 16))
        for left in (7, 6, 5):
            await world.cycle(ctx, take=2, left=left)
            await world.rest(ctx)
        assert world.events == []
        await world.cycle(ctx, take=2, left=4)
        await world.rest(ctx)
        assert world.events == [(LIMIT, 2)]
        for left in (3, 2, 1, 0):
            await world.cycle(ctx, take=2, left=left)
            await world.cycle(ctx, take=1, left=left)
        await world.rest(ctx)
        assert world.events == [(LIMIT, 2)]
        await world.cycle(ctx, word=(4 + 2, LIMIT_WORD, 1 << 16))
        await world.cycle(ctx, take=2, left=1)
        await world.rest(ctx)
        assert world.events == [(LIMIT, 2)]
        await world.cycle(ctx, take=2, left=0)

    world.run(script)
    assert world.events == [(LIMIT, 2)] * 2


@pytest.mark.parametrize("gap", range(4))
@pytest.mark.parametrize("other", [0, 1])
def test_a_limit_is_set_while_something_is_taken(gap, other):
    """It holds for what is taken after it, be it of the same SRQ or of another."""
    world = World(4, 2)

    async def script(ctx):
        await world.cycle(ctx, word=(4, LIMIT_WORD, 9 << 16))
        await world.rest(ctx)
        await world.cycle(ctx, take=other, left=3, word=(4, LIMIT_WORD, 5 << 16))
        await world.rest(ctx, gap + 1)
        await world.cycle(ctx, take=0, left=4)

    world.run(script)
    assert world.events == [(LIMIT, 0)] * (2 - other)


@pytest.mark.parametrize("at", range(26))
def test_a_queue_is_made_while_something_is_taken_of_another(at):
    """In whichever cycle: it begins empty, with its limit."""
    world = World(4, 4)

    async def script(ctx):
        for _ in range(3):
            await world.cycle(ctx, take=2, left=9)
        await world.rest(ctx)
        for number, word in enumerate([None] * 2 + context(4 + 2, limit=7) + [None] * 3):
            await world.cycle(ctx, word=word, take=1 if number == at else None, left=9)
        await world.rest(ctx)
        await world.cycle(ctx, take=2, left=6)
        assert world.heads[2] == 1

    world.run(script)
    assert world.events == [(LIMIT, 2)]


def test_who_finds_no_room_says_it_later():
    """With the next WQE that is taken of it, once an event has gone."""
    world = World(16, 8)

    async def script(ctx):
        for srqn in range(EVENTS + 2):
            await world.cycle(ctx, word=(16 + srqn, LIMIT_WORD, 5 << 16))
            await world.cycle(ctx, take=srqn, left=4)
            for _ in range(3):
                await world.cycle(ctx)
        assert world.expected == [(LIMIT, srqn) for srqn in range(EVENTS)]
        await world.rest(ctx)
        await world.cycle(ctx, take=EVENTS + 1, left=3)
        await world.cycle(ctx, take=0, left=3)
        await world.cycle(ctx, take=EVENTS, left=5)
        await world.cycle(ctx, take=EVENTS, left=4)

    world.run(script)
    assert world.events[EVENTS:] == [(LIMIT, EVENTS + 1), (LIMIT, EVENTS)]


def test_an_srq_in_error_is_told():
    """Each time that a QP fails; nothing is taken then, and the limit stays."""
    world = World(4, 2)

    async def script(ctx):
        await world.cycle(ctx, word=(4 + 1, LIMIT_WORD, 5 << 16))
        await world.cycle(ctx, fail=1, left=0)
        await world.cycle(ctx, fail=1, left=0)
        await world.cycle(ctx, take=1, left=0)

    world.run(script)
    assert world.events == [(ERROR, 1), (ERROR, 1), (LIMIT, 1)]


@pytest.mark.parametrize(("qps", "srqs", "most"), [(512, value, 256) for value in (0, 1, 3, 512, None)] + [(4, 8, 4)])
def test_arguments(qps, srqs, most):
    with pytest.raises(ValueError, match=f"srqs must be a power of two from 2 to {most}, not {srqs}"):
        SharedQueues(qps, srqs)


def test_converts():
    rtlil.convert(SharedQueues(256, 256))
