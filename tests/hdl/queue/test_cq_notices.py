"""CqNotices against a model in Python: each change in its order, and one event for what is due."""

from types import SimpleNamespace

import pytest
from streams import make_rng, shared, simulate
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.queue.cq_notices import Arms, CqNotices, Notice

SLOTS = 4
CHANGES = ("clear", "renew", "turn", "fill", "lose")


def waiting(dut, vector_of=lambda number: 0):
    """A process in which CQs wait until their event may be said, each for the event queue of its vector."""

    async def process(ctx):
        queues = [[] for _ in dut.due]
        ready = [port.ready for port in dut.due]
        async for _, _, news_en, news, *taken in ctx.tick().sample(dut.news_en, dut.news, *ready):
            for queue, gone in zip(queues, taken):
                if gone:
                    queue.pop(0)
            if news_en and news.begins:
                queues[vector_of(news.number)].append(news.number)
            for queue, port in zip(queues, dut.due):
                ctx.set(port.valid, bool(queue))
                ctx.set(port.payload, queue[0] if queue else 0)

    return process


class Model:
    """Notices, as they are when all that was chosen is applied, and the events that were said."""

    def __init__(self):
        self.notices = [SimpleNamespace(**dict.fromkeys((name for name, _ in Notice), 0)) for _ in range(SLOTS)]
        self.due = []

    def answer(self, number, urgent, failed):
        notice = self.notices[number % SLOTS]
        if failed:
            if not notice.dead:
                notice.error = notice.dead = 1
                self._push(notice, number)
        elif notice.arms != notice.arms_seen or (urgent and notice.solicited_arms != notice.solicited_arms_seen):
            notice.arms_seen, notice.solicited_arms_seen = notice.arms, notice.solicited_arms
            notice.completion = 1
            self._push(notice, number)

    def _push(self, notice, number):
        if not notice.waiting:
            notice.waiting = 1
            self.due.append(number)

    def change(self, kind, number, record):
        notice = self.notices[number % SLOTS]
        if kind in ("clear", "renew"):
            waiting = notice.waiting if kind == "renew" else 0
            vars(notice).update(dict.fromkeys(vars(notice), 0), waiting=waiting)
        elif kind == "turn":
            notice.ring ^= 1
        elif kind == "fill":
            vars(notice).update(dict.fromkeys(vars(notice), 0), **record)
        else:
            notice.error = notice.dead = 1
            self._push(notice, number)

    def say(self):
        """The next event, or None."""
        while self.due:
            number = self.due[0]
            notice = self.notices[number % SLOTS]
            kind = EventType.COMPLETION if notice.completion else EventType.CQ_ERR if notice.error else None
            if not (notice.completion and notice.error):
                notice.error = notice.waiting = 0
                self.due.pop(0)
            notice.completion = 0
            if kind is not None:
                return kind, number
        return None


@pytest.mark.parametrize("count", [120, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", range(3))
def test_random(case, count):
    """One thing after the other, with some cycles between; what is to be said is said now and then."""
    rng = make_rng()
    dut = shared(CqNotices, SLOTS)
    model = Model()

    async def rest(ctx):
        for _ in range(4 * SLOTS):
            await ctx.tick()

    async def user(ctx):
        heard, standing = [], None
        for _ in range(count):
            number = rng.randrange(1 << 14)
            kind = rng.choice(["answer", "arm", "arm", "listen", *CHANGES])
            held = {n % SLOTS for n in model.due} | ({standing[1] % SLOTS} if standing else set())
            if kind in ("fill", "clear") and number % SLOTS in held:
                continue  # who gives a slot away waits for what is to be said
            if kind == "answer":
                urgent, failed = rng.randrange(2), rng.random() < 0.1
                ctx.set(dut.answer, 1)
                for name, value in (("number", number), ("urgent", urgent), ("failed", failed)):
                    ctx.set(getattr(dut, name), value)
                await ctx.tick()
                ctx.set(dut.answer, 0)
                model.answer(number, urgent, failed)
            elif kind == "arm":
                arms = {name: rng.randrange(16) for name in Arms}
                ctx.set(dut.arm.payload, {"number": number, **arms})
                ctx.set(dut.arm.valid, 1)
                await ctx.tick().until(dut.arm.ready)
                ctx.set(dut.arm.valid, 0)
                vars(model.notices[number % SLOTS]).update(arms)
            elif kind == "listen":
                ctx.set(dut.event[0].ready, 1)
                for _ in range(rng.randrange(1, 3)):
                    _, _, valid, event = await ctx.tick().sample(dut.event[0].valid, dut.event[0].payload)
                    if valid:
                        heard.append((event.type, event.number))
                ctx.set(dut.event[0].ready, 0)
            else:
                record = {name: rng.randrange(2) for name in CqNotices.KEPT} if kind == "fill" else {}
                ctx.set(dut.record, record)
                ctx.set(dut.change_number, number)
                ctx.set(getattr(dut.change, kind), 1)
                await ctx.tick().until(dut.granted)
                ctx.set(getattr(dut.change, kind), 0)
                model.change(kind, number, record)
            await rest(ctx)
            # One event stands at the output; what it was of is said already.
            while len(heard) and standing is not None:
                assert heard.pop(0) == standing
                standing = model.say()
            assert not heard
            if standing is None:
                standing = model.say()
            assert ctx.get(dut.event[0].valid) == (standing is not None)
            for slot, notice in enumerate(model.notices):
                ctx.set(dut.look, slot)
                found = ctx.get(dut.notice)
                assert {name: found[name] for name, _ in Notice} == vars(notice)
            assert ctx.get(dut.idle) == (standing is None)

    simulate(dut, user, background=[waiting(dut)], seed=rng.seed_value)


def test_a_record_that_was_lost():
    """It goes before other events that wait, and is said once."""
    dut = shared(CqNotices, SLOTS)

    async def user(ctx):
        for number in (1, 2):
            ctx.set(dut.change_number, number)
            ctx.set(dut.change.lose, 1)
            await ctx.tick().until(dut.granted)
            ctx.set(dut.change.lose, 0)
            for _ in range(6):
                await ctx.tick()
        ctx.set(dut.lost, 1)
        ctx.set(dut.lost_number, 0x1234)
        said = []
        for cycle in range(40):
            ctx.set(dut.event[0].ready, cycle % 5 == 0)
            _, _, valid, event, lost = await ctx.tick().sample(dut.event[0].valid, dut.event[0].payload, dut.lost_said)
            if valid and cycle % 5 == 0:
                said.append((event.type, event.number))
            if lost:
                ctx.set(dut.lost, 0)
        assert said == [(EventType.CQ_ERR, number) for number in (1, 0x1234, 2)]

    simulate(dut, user, background=[waiting(dut)])


def test_news():
    """What is told of CQEs and of errors, of a CQ that is armed and of one that is not."""
    dut = shared(CqNotices, SLOTS)
    heard = []

    async def listen(ctx):
        async for _, _, news_en, news in ctx.tick().sample(dut.news_en, dut.news):
            if news_en:
                heard.append((news.number, news.begins, news.gathers, news.urgent))

    async def user(ctx):
        async def answer(number, **fields):
            ctx.set(dut.answer, 1)
            for name, value in ({"number": number, "urgent": 0, "failed": 0} | fields).items():
                ctx.set(getattr(dut, name), value)
            await ctx.tick()
            ctx.set(dut.answer, 0)
            await ctx.tick().repeat(4)

        async def arm(number, arms, solicited_arms=0):
            ctx.set(dut.arm.payload, {"number": number, "arms": arms, "solicited_arms": solicited_arms})
            ctx.set(dut.arm.valid, 1)
            await ctx.tick().until(dut.arm.ready)
            ctx.set(dut.arm.valid, 0)

        for slot in range(SLOTS):
            ctx.set(dut.change_number, slot)
            ctx.set(dut.change.clear, 1)
            await ctx.tick().until(dut.granted)
            ctx.set(dut.change.clear, 0)
        await answer(5)
        await arm(5, 1)
        await answer(5)
        await arm(5, 2)
        await answer(5)
        await arm(6, 0, 1)
        await answer(6)
        await answer(6, urgent=1)
        await answer(5, failed=1)
        await answer(5, failed=1)
        await answer(7, failed=1)
        assert heard == [
            (5, 0, 1, 0),
            (5, 1, 1, 0),
            (5, 0, 1, 0),
            (6, 0, 1, 0),
            (6, 1, 1, 0),
            (5, 0, 0, 1),
            (7, 1, 0, 1),
        ]

    simulate(dut, user, background=[listen])


def test_event_queues():
    """A queue that nobody reads holds up its own events and no others; errors go to the first one."""
    dut = shared(CqNotices, SLOTS, 4)
    heard = []
    listening = [True, False, True, True]

    async def listen(ctx):
        ports = [signal for port in dut.event for signal in (port.valid, port.ready, port.payload)]
        async for _, _, *values in ctx.tick().sample(*ports):
            for vector, (valid, ready, event) in enumerate(zip(values[::3], values[1::3], values[2::3])):
                if valid and ready:
                    heard.append((vector, event.type, event.number))
                ctx.set(dut.event[vector].ready, listening[vector])

    async def user(ctx):
        async def change(kind, number):
            ctx.set(dut.record, {"arms": 1} if kind == "fill" else {})
            ctx.set(dut.change_number, number)
            ctx.set(getattr(dut.change, kind), 1)
            await ctx.tick().until(dut.granted)
            ctx.set(getattr(dut.change, kind), 0)
            await ctx.tick()

        async def answer(number):
            for name, value in {"answer": 1, "number": number, "urgent": 0, "failed": 0}.items():
                ctx.set(getattr(dut, name), value)
            await ctx.tick()
            ctx.set(dut.answer, 0)
            await ctx.tick().repeat(20)

        async def arm(number, arms):
            ctx.set(dut.arm.payload, {"number": number, "arms": arms, "solicited_arms": 0})
            ctx.set(dut.arm.valid, 1)
            await ctx.tick().until(dut.arm.ready)
            ctx.set(dut.arm.valid, 0)

        for slot in range(SLOTS):
            await change("clear", slot)
            await change("fill", slot)
        done = EventType.COMPLETION
        for number in (1, 2, 3, 0):
            await answer(number)
        assert heard == [(2, done, 2), (3, done, 3), (0, done, 0)]
        heard.clear()
        await arm(1, 2)  # its first event stands at the output
        await answer(1)
        listening[0] = False
        await change("lose", 0)  # stands at the output of the first queue
        await change("lose", 2)
        await change("lose", 3)
        await arm(3, 2)
        await ctx.tick().repeat(20)
        assert heard == []
        listening[0] = True
        await ctx.tick().repeat(30)
        assert sorted(heard) == [(0, EventType.CQ_ERR, number) for number in (0, 2, 3)]
        heard.clear()
        listening[1] = True
        await ctx.tick().repeat(30)
        assert heard == [(1, done, 1)] * 2
        assert ctx.get(dut.idle)

    simulate(dut, user, background=[listen, waiting(dut, lambda number: number % SLOTS)])
