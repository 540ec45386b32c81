"""Queue pairs that are taken out of the completer and put back, into any slot, at any time: nothing of them is lost."""

import pytest
from amaranth.back import rtlil
from completer_events import happen
from completer_world import INPUTS, PSNS, QPS, World
from conflict_ram import tear
from streams import make_rng, plain, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState
from verbena.hdl.abi.cqe import Syndrome, WcStatus
from verbena.hdl.abi.wqe import SendOpcode
from verbena.hdl.transport.common.layouts import ResponseJobKind as Kind
from verbena.hdl.transport.completer.completer import Completer

WINDOW = 4
CONTEXT_WORDS = 3


class SwapWorld(World):
    """A world whose QPs may be away: what is away is a queue of the model, and its words."""

    def __init__(self, rng, stall=0.3, window=WINDOW, **options):
        super().__init__(rng, stall, window, swaps=True, **options)
        self.words, self.coming = [], []  # words
        self.ended = True  # the last word was given
        self.pausing = False  # nobody takes or offers words

    async def tick(self, ctx):
        saved, loaded, rng = self.dut.saved, self.dut.loaded, self.rng
        ready = not self.pausing and rng.random() >= self.stall
        self.begin(ctx)(saved.ready, ready)
        if self.coming and not self.pausing and not ctx.get(loaded.valid) and rng.random() >= self.stall:
            ctx.set(loaded.payload, self.coming[0])
            ctx.set(loaded.valid, 1)
        gives = ready and ctx.get(saved.valid)
        word = plain(ctx.get(saved.payload)) if gives else None
        takes = ctx.get(loaded.valid) and ctx.get(loaded.ready)
        await super().tick(ctx)
        if gives:
            assert not self.ended
            self.words.append(word.data)
            self.ended = word.last
        if takes:
            self.coming.pop(0)
            ctx.set(loaded.valid, 0)

    def concerned(self, qp):
        return any(event["qp"] == qp for name in INPUTS if name != "done" for event in self.pending[name])

    async def save(self, ctx, qp, meanwhile=None):
        """(queue, words) of the QP, after all that was said of it."""
        while self.concerned(qp):
            await self.tick(ctx)
        self.respond(qp, Kind.TOKEN)
        while self.pending["job"] or self.tokens < self.model.tokens:
            await self.tick(ctx)
        self.words, self.ended = [], False
        self.control(qp, QpAction.SAVE)
        while self.pending["control"] or not self.ended:
            if meanwhile:
                await meanwhile(ctx)
            await self.tick(ctx)
        queue = self.model.moving
        assert len(self.words) == CONTEXT_WORDS + min(queue.begun - queue.oldest, self.dut.window) or queue.dead
        return queue, self.words

    async def load(self, ctx, qp, away, meanwhile=None):
        """The QP comes to this slot; then the requester says what was sent."""
        queue, words = away
        slot = self.model.queues[qp]
        slot.retry_count, slot.rnr_retry = queue.retry_count, queue.rnr_retry
        await self.state(ctx, qp, queue.state)
        self.model.moving, self.coming = queue, list(words)
        self.control(qp, QpAction.LOAD)
        while self.pending["control"] or self.coming:
            if meanwhile:
                await meanwhile(ctx)
            await self.tick(ctx)
        if queue.failure:
            self.model.out["retry"].append(qp)
        await self.tell(ctx, qp, queue.psn - 1)

    async def swap(self, ctx, qp, slot=None):
        """There and back; into the same slot, or into one that nobody has."""
        await self.load(ctx, qp if slot is None else slot, await self.save(ctx, qp))


@pytest.mark.parametrize("steps", [50, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("stall", "renew"), [(0, 0), (0.5, 0), (0.3, 0.2)])
def test_random(stall, renew, steps, monkeypatch):
    tear(monkeypatch)
    rng = make_rng()
    world = SwapWorld(rng, stall, renew=renew, alone=True)
    queues = world.model.queues
    away, free, swaps = [], set(), []

    async def others(ctx):
        """While a QP goes or comes, things happen to those that are here."""
        if rng.random() < 0.2:
            qp = rng.choice([qp for qp in range(QPS) if qp not in free])
            if queues[qp].state != QpState.ERR and not queues[qp].dead:
                psn = rng.randrange(queues[qp].acked, queues[qp].psn + 1)
                if queues[qp].unreliable:
                    world.depart(qp, psn)
                else:
                    world.ack(qp, psn, rng.choice([0x1F, 0x60]))
        if rng.random() < 0.05:
            world.fire(rng.randrange(QPS), rng.randrange(1, 4))

    async def testbench(ctx):
        for qp in range(QPS):
            more = {"retry_count": 7, "rnr_retry": 7, "unreliable": qp == 1}
            await world.start(ctx, qp, rng.choice([0, PSNS - 3, rng.randrange(PSNS)]), **more)
        for _ in range(steps):
            qp = rng.randrange(QPS)
            queue = queues[qp]
            if qp in free:
                if rng.random() < 0.5:
                    world.fire(qp, rng.randrange(3))
                else:
                    await world.load(ctx, qp, away.pop(rng.randrange(len(away))), others)
                    free.remove(qp)
                    swaps.append(qp)
                    await world.settle(ctx)
                continue
            if rng.random() < 0.3 and len(free) < QPS - 1:
                free.add(qp)
                away.append(await world.save(ctx, qp, others))
                world.fire(qp, rng.randrange(3))
                await world.settle(ctx)
                continue
            if queue.dead or queue.state == QpState.ERR:
                if rng.random() < 0.5:
                    world.pending["flush"].append({"qp": qp, "index": queue.begun % 65536, "drain": 0})
                elif rng.random() < 0.5:
                    more = {"retry_count": rng.randrange(8), "unreliable": rng.random() < 0.3}
                    await world.start(ctx, qp, rng.randrange(PSNS), **more)
            elif queue.begun < queue.oldest + WINDOW:
                if queue.begun % 3 and queue.acked < queue.psn:  # so that it comes far
                    lacking = [k for k, each in queue.messages.items() if each.lacking]
                    psn = queue.messages[lacking[0]].missing if lacking else queue.psn - 1
                    if queue.unreliable:
                        world.depart(qp, psn)
                    else:
                        world.respond(qp, Kind.DATA if lacking else Kind.ACK, psn, wqe_index=(lacking or [0])[0])
                    await world.settle(ctx)
                only_sends = queue.unreliable or queue.psn != queue.ended
                opcode = rng.choice(range(4) if only_sends else [*range(7), 4, 4])
                await world.send(ctx, qp, rng.choice([1, 1, 2, 5]) if opcode < 5 else 1, opcode, rng.randrange(2))
            for _ in range(rng.choice([0, 1, 2])):
                await happen(world, ctx, qp)
                while any(world.pending.values()):
                    await world.tick(ctx)
            for _ in range(8):
                await world.tick(ctx)
            await world.settle(ctx)

    world.run(testbench, 300_000)
    assert len(swaps) > steps // 20


def run(script, **arguments):
    world = SwapWorld(make_rng(), **arguments)

    async def testbench(ctx):
        await script(world, ctx)
        await world.settle(ctx)

    world.run(testbench)
    return world


@pytest.mark.parametrize("messages", range(WINDOW + 1))
@pytest.mark.parametrize("before", [0, 3, 4, 6])
def test_messages_under_way(before, messages):
    """As many as the window has room for, in any lap of it, and none that is older."""

    async def script(world, ctx):
        for qp in (1, 2):  # what the slots held before
            await world.start(ctx, qp)
            for _ in range(WINDOW):
                await world.send(ctx, qp)
        await world.save(ctx, 2)
        await world.start(ctx, 1, 100)
        for number in range(before):
            await world.send(ctx, 1)
            world.ack(1, 100 + number)
            await world.settle(ctx)
        for number in range(messages):
            await world.send(ctx, 1, opcode=(SendOpcode.SEND, SendOpcode.RDMA_READ)[number % 2])
        await world.swap(ctx, 1, 2)
        while world.model.queues[2].begun < before + 2 * WINDOW:
            while world.model.queues[2].begun < world.model.queues[2].oldest + WINDOW:
                await world.send(ctx, 2)
            index = world.model.queues[2].oldest
            kind = Kind.DATA if world.model.queues[2].messages[index].lacking else Kind.ACK
            world.respond(2, kind, 100 + index, wqe_index=index)
            await world.settle(ctx)

    run(script)


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_retries(limit):
    """They are counted over all lives in slots."""

    async def script(world, ctx):
        await world.start(ctx, 0, 7, retry_count=limit)
        await world.send(ctx, 0)
        for number in range(limit + 1):
            await world.swap(ctx, 0)
            world.fire(0, late=1)
            await world.settle(ctx)
            assert world.counts["retries"] == number
            world.fire(0)
            await world.settle(ctx)

    world = run(script)
    assert world.statuses(0) == [(0, WcStatus.RETRY_EXC_ERR, Syndrome.NONE)]
    assert world.counts["retries"] == limit


def test_not_ready():
    """What waits goes on waiting, for a timer of the new slot."""

    async def script(world, ctx):
        for qp in (0, 1):
            await world.start(ctx, qp, rnr_retry=1)
        await world.save(ctx, 1)
        await world.send(ctx, 0)
        world.ack(0, 0, 0x25)
        await world.settle(ctx)
        old = world.model.queues[0].generation
        await world.swap(ctx, 0, 1)
        assert world.watch[1]["rnr_timer"] == 5
        world.pending["fired"].append({"qp": 0, "generation": old % 16})
        world.fire(1, late=1)
        await world.settle(ctx)
        assert world.counts["retries"] == 0
        world.fire(1)
        await world.settle(ctx)
        assert world.counts["retries"] == 1
        world.ack(1, 0, 0x25)

    world = run(script)
    assert world.statuses(1) == [(0, WcStatus.RNR_RETRY_EXC_ERR, Syndrome.REMOTE_NAK)]


def test_a_failure_that_is_noted():
    """It waits for its turn; and for the requester, which must come to that WQE again, and hears so when it is back."""

    async def script(world, ctx):
        await world.start(ctx, 3)
        for _ in range(2):
            await world.send(ctx, 3)
        refused = {"qp": 3, "wqe_index": 1, "status": WcStatus.LOC_PROT_ERR, "syndrome": Syndrome.KEY}
        world.pending["failed_transmitter"] = [refused]
        while world.pending["failed_transmitter"]:
            await world.tick(ctx)
        queue, words = await world.save(ctx, 3)
        world.model.moving, world.coming = queue, list(words)
        world.control(3, QpAction.LOAD)
        while world.pending["control"]:
            await world.tick(ctx)
        await world.tell(ctx, 0, 77)
        for _ in range(20):
            await world.tick(ctx)
        assert world.out["retry"] == []
        await world.tell(ctx, 3, queue.psn - 1)
        world.model.out["retry"].append(3)
        for _ in range(8):  # nothing tells that it is on its way
            await world.tick(ctx)
        await world.settle(ctx)
        assert world.out["retry"] == [3]
        assert world.out["completion"] == []
        await world.tell(ctx, 3, queue.psn - 1)
        await world.settle(ctx)
        world.ack(3, 0)

    world = run(script)
    assert world.statuses(3) == [(0, 0, 0), (1, WcStatus.LOC_PROT_ERR, Syndrome.KEY)]
    assert world.out["retry"] == [3]
    assert world.counts["retries"] == 0


def test_drain():
    async def script(world, ctx):
        await world.start(ctx, 1)
        await world.send(ctx, 1)
        await world.state(ctx, 1, QpState.SQD)
        world.pending["flush"].append({"qp": 1, "index": 1, "drain": 1})
        await world.swap(ctx, 1)
        await world.settle(ctx)
        assert world.out["error"] == []
        world.ack(1, 0)

    assert run(script).out["error"] == [{"qp": 1, "event": 5}]


def test_failed():
    """What has failed stays so, and is flushed when it is back."""

    async def script(world, ctx):
        await world.start(ctx, 1)
        for _ in range(2):
            await world.send(ctx, 1)
        world.ack(1, 0, 0x62)
        await world.settle(ctx)
        await world.swap(ctx, 1)
        world.ack(1, 1)
        await world.state(ctx, 1, QpState.ERR)
        await world.swap(ctx, 1)
        world.pending["flush"].append({"qp": 1, "index": 3, "drain": 0})

    flushed = [(k, WcStatus.WR_FLUSH_ERR, Syndrome.FLUSHED) for k in (1, 2)]
    assert run(script).statuses(1) == [(0, WcStatus.REM_ACCESS_ERR, Syndrome.REMOTE_NAK), *flushed]


def test_progress_is_seen_while_a_queue_is_away():
    """A retry that the requester still has must go back to what is the oldest WQE. Whether the QP waits is as it was:
    by that the requester knows whether it has something to do."""

    async def script(world, ctx):
        await world.start(ctx, 1, 50)
        for _ in range(3):
            await world.send(ctx, 1)
        world.ack(1, 51)
        await world.settle(ctx)
        await world.save(ctx, 1)
        await world.settle(ctx)
        progress = world.progress[1]
        assert (progress["oldest"], progress["unacked"], progress["waiting"]) == (2, 52, 0)
        assert world.watch[1]["dead"]

    run(script)


def test_a_new_life_where_one_went_away():
    async def script(world, ctx):
        await world.start(ctx, 1, 50)
        for _ in range(3):
            await world.send(ctx, 1)
        await world.save(ctx, 1)
        await world.start(ctx, 1, 50)
        await world.send(ctx, 1)
        world.ack(1, 50)
        world.ack(1, 51)

    assert run(script).statuses(1) == [(0, 0, 0)]


def test_nobody_waits_for_words():
    """While words are not taken, or do not come, other queues go on, and further tokens wait."""

    async def script(world, ctx):
        for qp in range(QPS):
            await world.start(ctx, qp)
            await world.send(ctx, qp)
        world.pausing = True
        world.words, world.ended = [], False
        world.control(1, QpAction.SAVE)
        world.ack(2, 0)
        await world.settle(ctx)
        assert world.statuses(2) == [(0, 0, 0)]
        queue = world.model.moving
        world.control(3, QpAction.SAVE)
        for _ in range(100):
            await world.tick(ctx)
        assert world.withdraw("control")
        assert world.words == []
        world.pausing = False
        while not world.ended:
            await world.tick(ctx)
        words, world.pausing = list(world.words), True
        world.model.moving, world.coming = queue, list(words)
        world.control(1, QpAction.LOAD)
        world.ack(0, 0)
        for _ in range(100):
            await world.tick(ctx)
        assert world.statuses(0) == [(0, 0, 0)]
        assert world.pending["control"]
        world.pausing = False
        await world.settle(ctx)
        world.ack(1, 0)

    assert run(script).statuses(1) == [(0, 0, 0)]


@pytest.mark.parametrize("cycles", range(16))
def test_a_token_passes(cycles):
    """``cycles`` after the job of another one: both are told of, and the job of the one that passed does not count."""
    dut = Completer(QPS, WINDOW, swaps=True)
    counts = {"tokens": 0, "jobs": 0, "taken": 0, "dropped": 0}

    async def script(ctx):
        ctx.set(dut.done.valid, 1)
        kinds = [Kind.TOKEN, Kind.PASSED, Kind.NOTHING, Kind.PASSED]
        for cycle in range(80):
            ctx.set(dut.passed, cycle == cycles)
            ctx.set(dut.job.valid, bool(kinds))
            if kinds:
                ctx.set(dut.job.payload, {"qp": 1, "kind": kinds[0]})
            *_, tokens, jobs, taken, dropped = await ctx.tick().sample(
                dut.token_done, dut.job_done, dut.job.ready, dut.count_drop_response
            )
            counts["tokens"] += tokens
            counts["jobs"] += jobs
            counts["dropped"] += dropped
            if taken and kinds:
                counts["taken"] += 1
                kinds.pop(0)

    simulate(dut, script)
    assert counts == {"tokens": 2, "jobs": 2, "taken": 4, "dropped": 1}


@pytest.mark.slow
@pytest.mark.parametrize("window", [2, 64])
def test_converts(window):
    rtlil.convert(Completer(QPS, window, swaps=True))
