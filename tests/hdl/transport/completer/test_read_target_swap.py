"""Queue pairs that are taken out of the response receiver and put back, in the midst of their READs."""

from collections import Counter
from itertools import count

import pytest
from amaranth.back import rtlil
from receive_world import write_attributes
from received import ReceivedResponses, _Received
from response_world import (
    DATA,
    FIRST,
    LAST,
    MIDDLE,
    NOTHING,
    ONLY,
    PASSED,
    QPS,
    SKIPPED,
    TOKEN,
    Script,
    World,
    check,
    message,
    response,
    sends,
)
from streams import make_rng, receive_all, send_all, shared, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.transport.completer.response_receiver import ResponseReceiver

GROUP = 6
"""Words of the state, and of a target."""


class Responses(ReceivedResponses):
    """A response receiver that takes QPs out and puts them back."""

    def __init__(self, qps, data_width=64, rows=None):
        _Received.__init__(self, qps, ResponseReceiver(qps, data_width, rows, swaps=True))


class SwapWorld(World):
    """A world in which QPs go and come back, one after the other."""

    def __init__(self, rng, values, *, data_width=64, **options):
        super().__init__(rng, values, data_width=data_width, **options)
        self.dut = shared(Responses, QPS, data_width)
        self.saves = []  # event that all has gone, QP, targets
        self.loads = []  # event that all is back, whose state it is, events that must be over before
        self.words = {}  # of each QP: what it gave away
        self.more = (self.give, self.take, self.complete)
        self.passed = 0

    def save(self, qp, targets, after):
        """The event that its words have gone."""
        given = self.add("given", None, [self.add("control", {"qp": qp, "action": QpAction.SAVE}, after)])
        self.saves.append((given, qp, targets))
        return given

    def load(self, qp, after, whose=None):
        """The event that it is back, with the state of the QP ``whose``."""
        self.add("control", {"qp": qp, "action": QpAction.LOAD}, after)
        back = self.add("back", None)
        self.loads.append((back, qp if whose is None else whose, after))
        return back

    async def give(self, ctx):
        for event, qp, targets in self.saves:
            words = []
            while not words or not words[-1].last:
                words += await receive_all(ctx, self.dut.saved, 1, self.rng, self.stall)
            assert len(words) == GROUP * (1 + targets) + 1
            self.words[qp] = [word.data for word in words]
            self.over[event] = True
        async for _ in ctx.tick():
            pass

    async def take(self, ctx):
        for event, whose, after in self.loads:
            while not self.over or not all(self.over[k] for k in after):
                await ctx.tick()
            for _ in range(self.rng.choice([0, 0, 5, 30])):
                await ctx.tick()
            await send_all(ctx, self.dut.loaded, self.words[whose], self.rng, self.stall)
            self.over[event] = True
        async for _ in ctx.tick():
            pass

    async def complete(self, ctx):
        """Takes jobs when it likes, and sees that no token passes one of its own QP."""
        dut, under_way, patience = self.dut, [], 0
        job, passes = dut.job.payload, None
        ctx.set(dut.job_done, 0)
        async for _, _, valid, ready, qp, kind, passed in ctx.tick().sample(
            dut.job.valid, dut.job.ready, job.qp, job.kind, dut.passed
        ):
            if passed:
                self.passed += 1
                passes = True
            done = bool(under_way) and patience == 0
            if valid and ready:
                if kind == PASSED:
                    assert passes
                    assert qp not in under_way
                    passes = None
                else:
                    under_way.append(qp)
            if done:
                under_way.pop(0)
                patience = self.rng.choice([0, 5, 60])
            ctx.set(dut.job_done, done)
            patience -= patience > 0


class SwapScript(Script):
    """A life in which the QP goes and comes now and then."""

    previous = []  # the last swap of any QP

    def step(self):
        if self.rng.random() < 0.08:
            self.model.say(TOKEN)
            self.model.say(TOKEN)
            after = self.tellings[-1:] + [event for event, *_ in self.history[-1:]] + self.barrier + SwapScript.previous
            given = self.world.save(self.qp, len(self.model.waiting), after)
            SwapScript.previous = self.barrier = [self.world.load(self.qp, [given])]
        else:
            super().step()


@pytest.mark.parametrize("steps", [140, pytest.param(260, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("data_width", "stall"), [(64, 0.0), (64, 0.4), (512, 0.3)])
def test_random_life(data_width, stall, steps):
    rng = make_rng()
    values = [
        sends(rng, qp, rng.choice([6, 7]), path_mtu=rng.choice([1, 1, 2, 3]), log_sq_size=rng.choice([0, 3, 4, 5, 15]))
        for qp in range(QPS)
    ]
    world = SwapWorld(rng, values, data_width=data_width, stall=stall)
    SwapScript.previous = []
    scripts = [SwapScript(world, qp, rng) for qp in range(QPS)]
    for _ in range(steps):
        rng.choice(scripts).step()
    got = world.run()
    check(got, [script.model for script in scripts], values)
    kinds = Counter(job.kind for _, job in got)
    assert kinds.keys() - {PASSED} >= {DATA, SKIPPED}
    assert kinds[TOKEN] + kinds[PASSED] > 0
    assert world.passed == kinds[PASSED]


def world_of(stall=0.2, **values):
    rng = make_rng()
    return SwapWorld(rng, [sends(rng, qp, **({"log_sq_size": 4} | values)) for qp in range(QPS)], stall=stall)


def tell(world, qp, messages, after=()):
    events = list(after)
    for each in messages:
        payload = {"qp": qp, "target": each.target}
        events = [world.add("reads", payload, events, lambda each=each: world.store(qp, each))]
    return events


@pytest.mark.parametrize("targets", range(17))
def test_targets(targets):
    """As many as a QP can have come back in their order."""
    world = world_of()
    messages = [message(psn, 8, index=psn) for psn in range(targets)]
    told = tell(world, 1, messages)
    back = world.load(1, [world.save(1, targets, told)])
    for psn in range(targets + 1):
        world.add("response", response(1, ONLY, psn, 8), [back])
    jobs = [job for _, job in world.run()]
    assert [job.kind for job in jobs] == [PASSED, PASSED] + [DATA] * targets + [NOTHING]
    assert [job.wqe_index for job in jobs[2:-1]] == list(range(targets))


@pytest.mark.parametrize("came", [1, 2])
@pytest.mark.parametrize("resumed", [None, 1, 2])
def test_a_read_in_the_middle(came, resumed):
    """How much has come, and from where on it was asked for again; in another slot, where another QP had READs."""
    world = world_of()
    reads = {qp: message(5, 600) for qp in (1, 2, 3)}
    for qp, read in reads.items():
        read.entries = [(1000 * qp, 600, qp)]
    told = [event for qp, read in reads.items() for event in tell(world, qp, [read])]
    opcodes, sizes = (FIRST, MIDDLE, LAST), (256, 256, 88)
    for number in range(came):
        told = [world.add("response", response(1, opcodes[number], 5 + number, sizes[number]), told)]
    if resumed is not None:
        told = [world.add("reads", {"qp": 1, "again": 1, "target": {"psn": 5 + resumed}}, told)]
    told = [world.add("reads", {"qp": 2, "again": 1, "target": {"psn": 7}}, told)]
    given = world.save(2, 1, [world.save(1, 1, told)])
    between = world.add("response", response(3, FIRST, 5, 256), [given])
    back = [world.load(2, [between], 1)]
    for number in range(came, 3):
        opcode = opcodes[number]
        if number == resumed:
            opcode = ONLY if number == 2 else FIRST
        back = [world.add("response", response(2, opcode, 5 + number, sizes[number]), back)]
    got = [(run, job) for run, job in world.run() if job.kind not in (TOKEN, PASSED) and job.qp != 3]
    assert [job.kind for _, job in got] == [DATA] * 3
    placed = [(access.address, access.key) for run, _ in got for access in run]
    assert placed == [(1000 + 256 * number, 1) for number in range(3)]


def test_two_change_places():
    """In the midst of messages whose entries are read from memory: nothing that was read for one serves the other."""
    world = world_of(stall=0.1)
    reads = {}
    for qp in (1, 2):
        reads[qp] = message(5, 512, [10, 20, 100, 226, 100, 56], index=3 + qp)
        reads[qp].entries = [(1000 * qp + k, size, qp) for k, (_, size, _) in enumerate(reads[qp].entries)]
    told = tell(world, 1, [reads[1]]) + tell(world, 2, [reads[2]])
    first = [world.add("response", response(qp, FIRST, 5, 256), told) for qp in (2, 1)]
    gone = world.save(2, 1, [world.save(1, 1, first)])

    def move():
        for qp in (1, 2):
            world.store(3 - qp, reads[qp])

    back = [world.load(2, [gone], 1)]
    back = [world.load(1, back, 2)]
    begun = [world.add("response", response(1, LAST, 6, 256), back, move)]
    world.add("response", response(2, LAST, 6, 256), begun)
    last = [(run, job) for run, job in world.run() if job.kind == DATA][2:]
    assert [(job.qp, job.wqe_index) for _, job in last] == [(1, 5), (2, 4)]
    for run, job in last:
        other = 3 - job.qp
        assert [(access.address, access.length, access.key) for access in run] == [
            (1000 * other + 3 + 126, 100, other),
            (1000 * other + 4, 100, other),
            (1000 * other + 5, 56, other),
        ]
    assert len(world.reads) == 4


def test_nobody_waits_for_words():
    """While a QP's words are not taken, or do not come, the responses of others pass."""
    dut = shared(Responses, QPS)
    rng = make_rng()
    values = [sends(rng, qp, log_sq_size=4) for qp in range(QPS)]
    jobs = []

    async def collect(ctx):
        while True:
            jobs.extend(await receive_all(ctx, dut.job, 1))

    async def run(ctx):
        while True:
            await receive_all(ctx, dut.access, 1)

    async def pass_one(ctx, psn):
        before = len(jobs)
        await send_all(ctx, dut.response, [response(2, ONLY, psn, 8)])
        for _ in range(40):
            await ctx.tick()
        assert [job.kind for job in jobs[before:]] == [DATA]

    async def script(ctx):
        for qp in range(QPS):
            await write_attributes(ctx, dut, qp, **values[qp])
        for psn in range(6):
            for qp in (1, 2):
                await send_all(ctx, dut.reads, [{"qp": qp, "target": message(psn).target}])
        psns = count()
        words, last = [], False
        await send_all(ctx, dut.control, [{"qp": 1, "action": QpAction.SAVE}])
        while not jobs:
            await ctx.tick()
        await pass_one(ctx, next(psns))
        while not last:
            (word,) = await receive_all(ctx, dut.saved, 1)
            words.append(word.data)
            last = word.last
            if len(words) in (7, 20):
                await pass_one(ctx, next(psns))
        assert not ctx.get(dut.ready)
        await send_all(ctx, dut.loaded, words[:GROUP])
        await ctx.tick().repeat(2)
        assert ctx.get(dut.ready)
        await send_all(ctx, dut.control, [{"qp": 1, "action": QpAction.LOAD}])
        await ctx.tick().repeat(40)
        await pass_one(ctx, next(psns))
        await send_all(ctx, dut.loaded, words[GROUP : GROUP + 2])
        await pass_one(ctx, next(psns))
        await send_all(ctx, dut.loaded, words[GROUP + 2 :])
        await pass_one(ctx, next(psns))

    simulate(dut, script, background=(collect, run))


@pytest.mark.slow
def test_converts():
    for width in (64, 512):
        rtlil.convert(ResponseReceiver(64, width, swaps=True))
