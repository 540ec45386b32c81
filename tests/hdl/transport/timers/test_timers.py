"""Timers against a model that knows cycles only: when each QP's time began, and how long it is."""

from collections import deque

import pytest
from amaranth.hdl import Value
from at_once import AtOnce
from streams import make_rng, shared, simulate, unpacked
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState
from verbena.hdl.transport.timers.rnr import RNR_TICKS
from verbena.hdl.transport.timers.timers import Timers

NEVER = (1 << 32) - 1
VISIT = 5
PSNS = 1 << 24
TOLD = 16
"""Cycles until what changes in the completer is in the timers, at most."""

WATCHED = {"unacked", "generation", "waiting", "code", "dead"}


class Qp:
    """What completer and requester know of a QP, and since when."""

    def __init__(self, number, psn):
        self.number = number
        self.unacked = psn
        self.last = None
        self.generation = self.waiting = self.code = self.dead = self.timeout = 0
        self.state = QpState.RESET
        self.since = 0  # last change of any kind: it fires no later than that much later
        self.begun = 0  # last one that a visit must have noticed: it fires no earlier
        self.idle_from = 0
        self.past = []  # (until, span, begun, generation)

    @property
    def span(self):
        """Ticks until it fires, or None."""
        if self.dead or self.state not in (QpState.RTS, QpState.SQD):
            return None
        if self.waiting:
            return RNR_TICKS[self.code]
        if self.timeout and self.last is not None and (self.last + 1) % PSNS != self.unacked:
            return 1 << self.timeout
        return None


class Bench:
    """Completer, requester and command block around the timers."""

    def __init__(self, qps, tick, rng, first=0):
        self.dut = shared(Timers, qps)
        self.rng = rng
        self.tick = tick
        self.scan = VISIT * qps
        self.qps = [Qp(n, (first + rng.randrange(-4, 4)) % PSNS) for n in range(qps)]
        self.time = 0
        self.fired = []  # (time, qp, generation, it waited)
        self.timeouts = 0
        self.stall = 0.0
        self.late = 0  # cycles that `fired` may cost
        self.due = (0, NEVER, 0, False)
        self.answer = lambda qp: None
        self.told = deque()  # QPs of which the completer has something to tell

    def change(self, qp, **fields):
        qp.past.append((self.time, qp.span, qp.begun, qp.generation))
        before = qp.unacked, qp.generation, qp.waiting
        was_idle = qp.span is None
        for name, value in fields.items():
            setattr(qp, name, value)
        qp.since = self.time
        if set(fields) & WATCHED:
            self.told.append(qp)
        if (qp.unacked, qp.generation, qp.waiting) != before or not fields:
            qp.begun = self.time
        if qp.span is None and not was_idle:
            qp.idle_from = self.time
        if qp.span is not None and was_idle and self.time - qp.idle_from > 2 * self.scan + self.late:
            qp.begun = self.time

    async def configure(self, ctx, qp, **fields):
        ctx.set(self.dut.attribute_en, 1)
        words = QP_CONTEXT.words(state=fields.get("state", qp.state), timeout=fields.get("timeout", qp.timeout))
        for number, word in enumerate(words):
            ctx.set(self.dut.attribute, {"index": qp.number, "word": number, "data": word})
            await ctx.tick()
            if number == 0:
                self.change(qp, **fields)
        ctx.set(self.dut.attribute_en, 0)

    async def send(self, ctx, qp, psn):
        ctx.set(self.dut.sent, {"qp": qp.number, "psn": psn})
        ctx.set(self.dut.sent_en, 1)
        await ctx.tick()
        ctx.set(self.dut.sent_en, 0)
        if qp.span is None:
            self.change(qp, last=psn)
        qp.last = psn
        for _ in range(2):
            await ctx.tick()

    async def start(self, ctx, qp):
        """What the requester tells of a QP that starts."""
        ctx.set(self.dut.sent, {"qp": qp.number, "psn": (qp.unacked - 1) % PSNS})
        ctx.set(self.dut.sent_en, 1)
        await ctx.tick()
        ctx.set(self.dut.sent_en, 0)
        await ctx.tick()

    async def clock(self, ctx):
        """What the completer tells, and what fires."""
        dut, asked, valid_before, waiting, rose, gone, quiet = self.dut, 0, False, None, 0, 0, False
        visited = dut._fetch.o
        self.told.extend(self.qps)
        put = AtOnce(ctx)
        put(dut.tick, self.tick)
        signals = dut.fired.valid, Value.cast(dut.fired.payload), dut.count_timeouts, dut.next_due
        edges = aiter(ctx.tick().sample(visited.payload.slot, *signals))
        while True:
            ready = self.rng.random() >= self.stall
            put(dut.fired.ready, ready)
            quiet = not quiet and bool(self.told)
            put(dut.watch_en, quiet)
            if quiet:
                qp = self.told.popleft()
                put(dut.watch_qp, qp.number)
                watch = {"unacked": qp.unacked, "generation": qp.generation, "waiting": qp.waiting}
                put(dut.watch, watch | {"rnr_timer": qp.code, "dead": qp.dead})
            put.set()
            _, _, number, valid, payload, counted, due = await anext(edges)
            self.time += 1
            self.timeouts += counted
            if number == 0 and asked:
                self.due = (self.time, due, len(self.fired), len(self.fired) != self.due[2])
            asked = number
            if valid and not valid_before:
                # One that had to wait for its predecessor was judged before that one came out.
                lag = self.time - rose if self.time - gone <= 2 else 0
                self.note(unpacked(dut.fired, payload), TOLD + VISIT + lag)
                rose = self.time
            assert not valid_before or (valid and payload == waiting)
            valid_before, waiting = valid and not ready, payload
            if valid and ready:
                gone = self.time
            for qp in self.qps:
                if qp.span is not None:
                    assert self.time - qp.since <= self.latest(qp.span), qp.number

    def latest(self, span):
        cycles = max(self.tick, 1)
        return (span + 1) * cycles + 2 * self.scan + self.late + TOLD + 8

    def note(self, payload, lag):
        """It fired: now, or at most ``lag`` cycles ago, it was due."""
        qp = self.qps[payload.qp]
        past = [life for life in qp.past if life[0] >= self.time - lag]
        assert any(
            span is not None and generation == payload.generation and until - begun > span * max(self.tick, 1)
            for until, span, begun, generation in [*past, (self.time, qp.span, qp.begun, qp.generation)]
        )
        self.fired.append((self.time, qp.number, payload.generation))
        self.change(qp)
        self.answer(qp)


@pytest.mark.parametrize("tick", [0, 1, 3, 40])
def test_time(tick):
    """Local ACK timeout and RNR wait, alone: not early, not late, again and again, and counted."""
    bench = Bench(4, tick, make_rng())
    qp = bench.qps[2]

    async def wait(ctx, count):
        while len(bench.fired) < count:
            await ctx.tick()

    async def testbench(ctx):
        await bench.start(ctx, qp)
        await bench.configure(ctx, qp, state=QpState.RTS, timeout=4)
        for _ in range(3 * bench.scan):
            await ctx.tick()
        assert ctx.get(bench.dut.next_due) == NEVER
        await bench.send(ctx, qp, (qp.unacked + 3) % PSNS)
        await wait(ctx, 3)
        assert bench.timeouts == 3
        bench.change(qp, waiting=1, code=5)
        await wait(ctx, 5)
        assert bench.timeouts == 3
        bench.change(qp, waiting=0, unacked=(qp.last + 1) % PSNS, generation=9)
        for _ in range(300):
            await ctx.tick()
        assert len(bench.fired) == 5
        assert ctx.get(bench.dut.next_due) == NEVER
        await bench.configure(ctx, qp, timeout=0)
        await bench.send(ctx, qp, (qp.unacked + 1) % PSNS)
        for _ in range(3 * bench.scan):
            await ctx.tick()
        assert ctx.get(bench.dut.next_due) == NEVER
        assert [q for _, q, _ in bench.fired] == [2] * 5

    simulate(bench.dut, testbench, background=[bench.clock])


def test_longest():
    """Timeout 31 and RNR code 0 do not overflow: what is left is what they say, less what has passed."""
    bench = Bench(2, 1, make_rng())

    async def due(ctx, qp):
        while bench.time < qp.since + 3 * bench.scan:
            await ctx.tick()
        return ctx.get(bench.dut.next_due)

    async def testbench(ctx):
        qp = bench.qps[1]
        await bench.start(ctx, qp)
        await bench.configure(ctx, qp, state=QpState.RTS, timeout=31)
        await bench.send(ctx, qp, (qp.unacked + 3) % PSNS)
        assert 2**31 - 4 * bench.scan <= await due(ctx, qp) <= 2**31
        bench.change(qp, waiting=1, code=0)
        assert 160_000 - 4 * bench.scan <= await due(ctx, qp) <= 160_000
        assert not bench.fired

    simulate(bench.dut, testbench, background=[bench.clock])


def test_what_was_sent_in_an_earlier_life():
    """A QP that starts once more has nothing outstanding, wherever its PSNs begin."""
    bench = Bench(2, 1, make_rng())

    async def testbench(ctx):
        qp = bench.qps[1]
        await bench.start(ctx, qp)
        await bench.configure(ctx, qp, state=QpState.RTS, timeout=3)
        await bench.send(ctx, qp, (qp.unacked + 3) % PSNS)
        while not bench.fired:
            await ctx.tick()
        await bench.configure(ctx, qp, state=QpState.RESET)
        for _ in range(2 * bench.scan):
            await ctx.tick()
        count = len(bench.fired)
        bench.change(qp, unacked=0x123456, last=None)
        await bench.start(ctx, qp)
        await bench.configure(ctx, qp, state=QpState.RTS)
        for _ in range(300):
            await ctx.tick()
        assert len(bench.fired) == count
        await bench.send(ctx, qp, 0x123456)
        while len(bench.fired) == count:
            await ctx.tick()

    simulate(bench.dut, testbench, background=[bench.clock])


@pytest.mark.parametrize("cycles", [2_500, pytest.param(8_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stall", [0, 0.7])
def test_many(stall, cycles):
    """Everything changes at any time: what fires was due, and what is due fires."""
    rng = make_rng()
    tick = rng.choice([0, 1, 5, 16])
    bench = Bench(8, tick, rng, first=rng.choice([0, 1000]))
    bench.stall, bench.late = stall, 600 if stall else 150  # the scan waits while attributes are written

    def answer(qp):
        if rng.random() < 0.6:
            bench.change(qp, generation=(qp.generation + 1) % 16, waiting=0)

    bench.answer = answer

    async def testbench(ctx):
        for qp in bench.qps:
            await bench.start(ctx, qp)
            await bench.configure(ctx, qp, state=QpState.RTS, timeout=rng.randrange(6))
        # With some seeds a QP has nothing to wait for for long.
        while bench.time < cycles or (len({qp for _, qp, _ in bench.fired}) < 8 and bench.time < 100_000):
            for _ in range(rng.randrange(60)):
                await ctx.tick()
            qp = rng.choice(bench.qps)
            last = qp.unacked if qp.last is None else qp.last
            match rng.randrange(8):
                case 0 | 1 | 2:
                    await bench.send(ctx, qp, (last + rng.randrange(1, 100)) % PSNS)
                case 3 | 4:
                    ahead = (last + 1 - qp.unacked) % PSNS
                    if qp.last is not None and ahead:
                        step = ahead if rng.random() < 0.5 else rng.randint(1, ahead)
                        bench.change(qp, unacked=(qp.unacked + step) % PSNS)
                case 5:
                    if not qp.waiting:
                        bench.change(qp, waiting=1, code=rng.randrange(1, 9))
                case 6:
                    bench.change(qp, dead=rng.random() < 0.2)
                case 7:
                    await bench.configure(
                        ctx, qp, timeout=rng.randrange(6), state=rng.choice([QpState.RTS, QpState.SQD])
                    )
        assert len({qp for _, qp, _ in bench.fired}) == 8

    simulate(bench.dut, testbench, background=[bench.clock], seed=rng.seed_value, deadline=120_000)
    assert 0 < bench.timeouts < len(bench.fired)


def test_next_due():
    """The clock may be set forward by that much, and then the first one fires soon."""
    rng = make_rng()
    bench = Bench(4, 8, rng)

    async def testbench(ctx):
        for qp in bench.qps:
            await bench.start(ctx, qp)
            await bench.configure(ctx, qp, state=QpState.RTS, timeout=4 + qp.number)
            await bench.send(ctx, qp, (qp.unacked + 3) % PSNS)
        for round_ in range(12):
            for _ in range(2 * bench.scan + rng.randrange(60)):
                await ctx.tick()
            time, due, count, new = bench.due
            while len(bench.fired) == count:
                await ctx.tick()
            cycles = bench.fired[count][0] - time
            assert due * 8 - bench.scan <= cycles, round_
            assert due == 0 if new else cycles <= (due + 2) * 8 + bench.scan, round_

    simulate(bench.dut, testbench, background=[bench.clock], seed=rng.seed_value)


@pytest.mark.parametrize("qps", [1, 3, "4"])
def test_refuses_a_wrong_count(qps):
    with pytest.raises(ValueError, match="power of two"):
        Timers(qps)


def test_rest():
    """Nothing fires of a former life; when the rest is over, what was told meanwhile counts."""
    bench = Bench(2, 1, make_rng())

    async def testbench(ctx):
        ctx.set(bench.dut.rest, 1)
        qp = bench.qps[1]
        await bench.start(ctx, qp)
        await bench.configure(ctx, qp, state=QpState.RTS, timeout=3)
        bench.late = 400
        await bench.send(ctx, qp, (qp.unacked + 3) % PSNS)
        await ctx.tick().repeat(300)
        assert not bench.fired
        assert ctx.get(bench.dut.next_due) == NEVER
        ctx.set(bench.dut.rest, 0)
        while not bench.fired:
            await ctx.tick()

    simulate(bench.dut, testbench, background=[bench.clock])


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize("away", [5, 40])
def test_a_timer_runs_on_while_its_qp_is_away(waiting, away):
    """It fires when it would have, or at once if that is over; not while it is away; and only in the new generation."""
    tick, start = 16, 100
    dut = shared(Timers, 4, swaps=True)
    fired = []

    async def script(ctx):
        ctx.set(dut.tick, tick)
        word = sum(
            value << QP_CONTEXT.fields[name].offset for name, value in {"state": QpState.RTS, "timeout": 4}.items()
        )
        ctx.set(dut.attribute, {"index": 2, "word": 0, "data": word})
        ctx.set(dut.attribute_en, 1)
        await ctx.tick()
        ctx.set(dut.attribute_en, 0)
        await ctx.tick().repeat(start)
        ctx.set(dut.sent, {"qp": 2, "psn": 7})
        watch = {"unacked": 5, "generation": 3, "waiting": waiting, "rnr_timer": 6}
        await tell(ctx, watch)
        ctx.set(dut.sent_en, 1)
        await ctx.tick()
        ctx.set(dut.sent_en, 0)
        await ctx.tick().repeat(60)
        ctx.set(dut.closed_qp, 2)
        ctx.set(dut.closed, 1)
        await ctx.tick().repeat(10)
        ctx.set(dut.control.payload, {"qp": 2, "action": QpAction.SAVE})
        ctx.set(dut.control.valid, 1)
        ctx.set(dut.saved.ready, 1)
        (saved,) = await ctx.tick().sample(dut.saved.payload).until(dut.saved.valid)
        ctx.set(dut.saved.ready, 0)
        ctx.set(dut.control.valid, 0)
        assert saved.last
        await tell(ctx, {"dead": 1})
        await ctx.tick().repeat(away * tick)
        assert not fired
        await tell(ctx, watch | {"generation": 9})
        ctx.set(dut.control.payload, {"qp": 2, "action": QpAction.LOAD})
        ctx.set(dut.control.valid, 1)
        await ctx.tick().repeat(30)
        ctx.set(dut.loaded.payload, saved.data)
        ctx.set(dut.loaded.valid, 1)
        await ctx.tick().until(dut.control.ready)
        ctx.set(dut.loaded.valid, 0)
        ctx.set(dut.control.valid, 0)
        ctx.set(dut.closed, 0)
        while not fired:
            await ctx.tick()

    async def tell(ctx, watch):
        ctx.set(dut.watch_qp, 2)
        ctx.set(dut.watch, watch)
        ctx.set(dut.watch_en, 1)
        await ctx.tick()
        ctx.set(dut.watch_en, 0)

    async def watch_fired(ctx):
        ctx.set(dut.fired.ready, 1)
        time = 0
        async for _, _, valid, item in ctx.tick().sample(dut.fired.valid, dut.fired.payload):
            time += 1
            if valid:
                fired.append((time, item.qp, item.generation))

    simulate(dut, script, background=[watch_fired])
    span = RNR_TICKS[6] if waiting else 1 << 4
    back = start + 60 + away * tick
    time, qp, generation = fired[0]
    assert (qp, generation) == (2, 9)
    if away < span:
        assert start + span * tick <= time <= start + (span + 1) * tick + 100
    else:
        assert back <= time <= back + 200
