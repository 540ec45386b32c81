"""QPs that leave the requester at any time and come back in another slot: they go on as if nothing had been."""

from itertools import groupby

import pytest
from requester_checker import Checker, random_wqe
from requester_swapper import Swapper
from requester_world import PSNS, World
from send_queue import Wqe
from streams import make_rng, send_all, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState, QpType
from verbena.hdl.abi.wqe import SendFlag, SendOpcode
from verbena.hdl.transport.common.layouts import TxDescriptorKind
from verbena.hdl.transport.requester.requester_context import Phase
from verbena.hdl.transport.requester.requester_swap import RequesterSwap

COUNT = 8
"""Messages of a QP in the random tests."""


def random_rings(rng, qps):
    psn = {qp: rng.choice([0, PSNS - 3, rng.randrange(PSNS)]) for qp in qps}
    code = {qp: rng.choice([1, 1, 2]) for qp in qps}
    stride = {qp: rng.choice([64, 128]) for qp in qps}
    rings = {qp: [random_wqe(rng, stride[qp], 128 << code[qp], qp == qps[0]) for _ in range(COUNT)] for qp in qps}
    return psn, code, stride, rings


@pytest.mark.parametrize(("stall", "losses"), [(0, False), (0.3, False), (0, True), (0.3, True)])
def test_random_messages(stall, losses):
    """Without losses each packet leaves once, in order. With them all is sent in the end, and each message told of
    once; retries come at any time, between STOP and SAVE, too. One of three QPs is UC.
    """
    rng = make_rng()
    world = World(rng, stall=stall, window=rng.choice([4, 64]), swaps=True)
    qps = rng.sample(range(8), 3)
    psn, code, stride, rings = random_rings(rng, qps)
    depth = {qp: rng.choice([1, 2, 16]) for qp in qps}
    checker = Checker(world, rings, {qp: 128 << code[qp] for qp in qps}, psn, stride, depth, qps[:1])
    swapper = Swapper(
        world, qps, pauses=rng.choice([(0.9, 0.8, 0.9), (0.98, 0.97, 0.9)] if losses else [(0.7, 0.5, 0.7)])
    )

    def traffic(ctx):
        checker.check()
        for qp in qps:
            unacked, latest = world.progress[qp]["unacked"], checker.latest[qp]
            there = (latest - unacked + 1) % PSNS
            if there and rng.random() < 0.008:
                world.ack(ctx, qp, (unacked + rng.choice([there, rng.randrange(1, there + 1)]) - 1) % PSNS)
            elif losses and there and rng.random() < 0.006 and qp not in (world.retries if qp in world.away else ()):
                world.retries.append(qp)

    async def testbench(ctx):
        for qp in qps:
            more = {"type": QpType.UC if qp == qps[0] else QpType.RC, "max_rd_atomic": depth[qp]}
            await world.set_up(ctx, qp, psn=psn[qp], mtu=code[qp], stride=stride[qp], **more)
            world.post(ctx, qp, *rings[qp][: COUNT // 2])
        world.each_cycle = traffic
        await world.settle(ctx, 500)
        for qp in qps:
            world.post(ctx, qp, *rings[qp][COUNT // 2 :])
        await world.until(ctx, lambda: all(world.progress[qp]["oldest"] == COUNT for qp in qps), 12_000)
        await world.until(ctx, lambda: not world.busy)
        swapper.most = 0
        await world.settle(ctx, 200)

    world.run(testbench, 25_000, background=(swapper,))
    checker.check()
    checker.payloads()
    assert [checker.began[qp] for qp in qps] == [COUNT] * 3
    if not losses:
        assert set(checker.jumps.values()) == {0}
    for qp in qps:
        numbers = [(number - psn[qp]) % PSNS for who, number in world.sent if who == qp]
        assert numbers == sorted(set(numbers))
    assert world.of("failed") == [] == world.of("flush")
    assert swapper.swaps >= 5
    assert not losses or swapper.retried


def write(length=8, flags=0):
    return Wqe(SendOpcode.RDMA_WRITE, flags, [(0x1000, length, 0x55)], remote_address=0x2000, rkey=0x77)


def read(length=8, flags=0):
    return Wqe(SendOpcode.RDMA_READ, flags, [(0x3000, length, 0x55)], remote_address=0x2000, rkey=0x77)


def sent(world, qp=2):
    return [p["transport"]["psn"] for p in world.of("packet", qp) if p["kind"] == TxDescriptorKind.REQUEST]


async def long_messages(world, ctx):
    await world.set_up(ctx, 2)
    world.post(ctx, 2, write(3000), write(2000))
    await world.until(ctx, lambda: len(sent(world)) == 20)


async def reads_and_a_fence(world, ctx):
    await world.set_up(ctx, 2, max_rd_atomic=2)
    world.post(ctx, 2, read(), write(), read(600), write(), read(), write(8, SendFlag.FENCE), write())
    for count, psn in (4, 1), (5, 5), (5, 6):
        await world.until(ctx, lambda n=count: len(sent(world)) >= n)
        await world.settle(ctx, 100)
        world.ack(ctx, 2, psn)
    await world.until(ctx, lambda: len(sent(world)) == 7)


async def part_of_a_read(world, ctx):
    await world.set_up(ctx, 2, psn=PSNS - 10)
    world.post(ctx, 2, read(1 << 31), write())
    await world.until(ctx, lambda: sent(world))
    await world.settle(ctx, 200)
    world.ack(ctx, 2, (PSNS - 10 + (1 << 22)) % PSNS)
    await world.until(ctx, lambda: len(sent(world)) == 2)
    world.retries.append(2)
    await world.until(ctx, lambda: len(sent(world)) == 4)


async def credits_and_waiting(world, ctx):
    send = Wqe(SendOpcode.SEND, 0, [(0, 8, 1)])
    await world.set_up(ctx, 2)
    world.advance(ctx, 2, limited=1, limit=0)
    world.post(ctx, 2, send, write(), send, write())
    await world.until(ctx, lambda: len(sent(world)) == 2)
    await world.settle(ctx, 100)
    world.advance(ctx, 2, limit=3, waiting=1)
    await world.settle(ctx, 100)
    assert len(sent(world)) == 2
    world.advance(ctx, 2, waiting=0)
    await world.until(ctx, lambda: len(sent(world)) == 4)


async def a_drain(world, ctx):
    await world.set_up(ctx, 2)
    world.post(ctx, 2, write(3000), write(), write())
    await world.until(ctx, lambda: len(sent(world)) == 3)
    await world.attributes(ctx, 2, state=QpState.SQD, **world.context)
    await world.control(ctx, 2, QpAction.DRAIN)
    await world.until(ctx, lambda: len(sent(world)) == 8)
    world.ack(ctx, 2, 5)
    await world.until(ctx, lambda: len(sent(world)) == 12)
    await world.until(ctx, lambda: world.of("flush"))
    world.retries.append(2)
    await world.until(ctx, lambda: len(sent(world)) == 18)
    await world.settle(ctx, 100)
    await world.attributes(ctx, 2, state=QpState.RTS, **world.context)
    await world.control(ctx, 2, QpAction.RESUME)
    await world.until(ctx, lambda: len(sent(world)) == 20)


async def an_error(world, ctx):
    await world.set_up(ctx, 2)
    world.post(ctx, 2, write(5000), write())
    await world.until(ctx, lambda: len(sent(world)) == 21)
    world.advance(ctx, 2, waiting=1)
    world.flushing = True
    world.post(ctx, 2, write(), write())
    await world.settle(ctx, 100)
    await world.attributes(ctx, 2, state=QpState.ERR, **world.context)
    await world.control(ctx, 2, QpAction.ERROR)
    await world.until(ctx, lambda: world.of("flush") and world.of("flush")[-1]["index"] == 4)
    await world.settle(ctx, 200)
    world.post(ctx, 2, write())
    await world.until(ctx, lambda: world.of("flush")[-1]["index"] == 5)


async def a_malformed_wqe(world, ctx):
    await world.set_up(ctx, 2)
    world.post(ctx, 2, write(), write(), Wqe(200), write())
    await world.until(ctx, lambda: world.of("failed"))
    await world.settle(ctx, 300)
    world.ack(ctx, 2, 0)
    world.retries.append(2)
    await world.until(ctx, lambda: len(world.of("failed")) == 2)


async def a_ring_in_error(world, ctx):
    await world.set_up(ctx, 2)
    world.post(ctx, 2, write(), write())
    await world.until(ctx, lambda: len(sent(world)) == 2)
    world.rings[2] += [write()] * 3
    world.errors[2] = 1
    fetch, world.fetch = world.fetch, lambda ctx, qp: world.status(ctx, qp)
    world.status(ctx, 2)
    world.to_schedule.append(2)
    await world.until(ctx, lambda: world.of("failed"))
    await world.settle(ctx, 200)
    world.flushing = True
    await world.attributes(ctx, 2, state=QpState.ERR, **world.context)
    await world.control(ctx, 2, QpAction.ERROR)
    await world.until(ctx, lambda: world.of("flush"))
    world.fetch = fetch


async def a_closed_window(world, ctx):
    await world.set_up(ctx, 2)
    world.post(ctx, 2, *[write(300)] * 9)
    for count, psn in (8, 3), (12, 11):
        await world.until(ctx, lambda n=count: len(sent(world)) == n)
        await world.settle(ctx, 100)
        world.ack(ctx, 2, psn)
    await world.until(ctx, lambda: len(sent(world)) == 18)


SCENES = [part_of_a_read, credits_and_waiting, a_closed_window, a_drain, an_error, a_malformed_wqe, a_ring_in_error]
SCENES += [long_messages, pytest.param(reads_and_a_fence, marks=pytest.mark.slow)]  # random messages have many fences


def said(scene, swaps):
    """All that a QP has said in a scene; what was said twice running counts once where that means nothing."""
    rng = make_rng()
    world = World(rng, window=4 if scene is a_closed_window else 64, swaps=swaps)
    swapper = Swapper(world, [2], pauses=rng.choice([(0.9, 0.6, 0.6), (0.96, 0.9, 0.8)]))

    async def testbench(ctx):
        await scene(world, ctx)
        await world.until(ctx, lambda: not world.busy)
        swapper.most = 0
        await world.settle(ctx, 40)

    world.run(testbench, 60_000, background=(swapper,) if swaps else ())
    result = {name: world.of(name, 2) for name in ("outstanding", "reads", "failed", "rewind")}
    result["flush"] = [item for item, _ in groupby(world.of("flush", 2))]
    result["packets"] = [
        (header, run, payload) for header, run, payload in world.packets() if header["kind"] == TxDescriptorKind.REQUEST
    ]
    result["sent"] = world.sent
    for _, run, _ in result["packets"]:
        assert all(access["qp"] == 2 for access in run)
    return result, swapper


@pytest.mark.parametrize("scene", SCENES)
def test_scenes(scene):
    """What a QP says is the same, however often it goes and comes."""
    wanted, _ = said(scene, False)
    found, swapper = said(scene, True)
    for name, items in wanted.items():
        assert found[name] == items, name
    assert swapper.swaps >= 2
    phases = {a_malformed_wqe: Phase.HALTED, a_ring_in_error: Phase.HALTED, long_messages: Phase.MIDDLE}
    assert phases.get(scene, Phase.BETWEEN) in swapper.phases


def test_a_stopped_qp_does_nothing():
    """Whatever its turns would do in its state; after RESET, too, until START_SEND or ERROR."""
    world = World(make_rng(), swaps=True)

    async def stop(ctx):
        count = len(world.of("packet"))
        await world.control(ctx, 2, QpAction.STOP)
        await world.until(ctx, lambda: len(world.of("packet")) > count)
        assert world.of("packet")[-1]["kind"] == TxDescriptorKind.REQUEST_TOKEN

    async def quiet(ctx):
        begun = len(world.log)
        world.to_schedule.append(2)
        await world.settle(ctx, 100)
        assert world.log[begun:] == []

    async def testbench(ctx):
        await world.set_up(ctx, 2)
        await stop(ctx)
        world.post(ctx, 2, write())
        await quiet(ctx)
        await world.attributes(ctx, 2, state=QpState.ERR, **world.context)
        await quiet(ctx)
        await world.control(ctx, 2, QpAction.RESET)
        await world.until(ctx, lambda: len(world.of("packet")) == 2)
        await world.attributes(ctx, 2, state=QpState.RTS, **world.context)
        await quiet(ctx)
        await world.attributes(ctx, 2, state=QpState.ERR, **world.context)
        await quiet(ctx)
        world.flushing = True
        await world.control(ctx, 2, QpAction.ERROR)
        await world.until(ctx, lambda: world.of("flush"))
        assert world.of("flush")[0] == {"qp": 2, "index": 1, "drain": 0}

    world.run(testbench)


def test_others_do_not_wait_for_words():
    """Words that nobody takes, or that do not come, stop no packet of another QP, nor its retries."""
    world = World(make_rng(), stall=0, swaps=True)
    dut = world.dut

    async def traffic(ctx):
        count = len(sent(world, 3))
        world.post(ctx, 3, write(600))
        await world.until(ctx, lambda: len(sent(world, 3)) == count + 3, 200)
        world.retries.append(3)
        await world.until(ctx, lambda: len(sent(world, 3)) == count + 6, 400)
        world.ack(ctx, 3, world.latest[3])
        await world.settle(ctx, 20)

    async def testbench(ctx):
        for qp in (2, 3):
            await world.set_up(ctx, qp)
        world.post(ctx, 2, write())
        await world.until(ctx, lambda: len(sent(world)) == 1)
        await world.control(ctx, 2, QpAction.STOP)
        await world.control(ctx, 2, QpAction.SAVE)
        await traffic(ctx)
        words = []
        ctx.set(dut.saved.ready, 1)
        while len(words) < 2:
            if ctx.get(dut.saved.valid):
                words.append(ctx.get(dut.saved.payload.data))
            await world.tick(ctx)
        ctx.set(dut.saved.ready, 0)
        ctx.set(dut.control.payload, {"qp": 2, "action": QpAction.LOAD})
        ctx.set(dut.control.valid, 1)
        for word in words:
            await traffic(ctx)
            assert not ctx.get(dut.control.ready)
            ctx.set(dut.loaded.payload, word)
            ctx.set(dut.loaded.valid, 1)
            await world.tick(ctx)
            ctx.set(dut.loaded.valid, 0)
        world.starts.append((2, 0))
        await world.control(ctx, 2, QpAction.LOAD)
        world.post(ctx, 2, write())
        await world.until(ctx, lambda: sent(world) == [0, 1])

    world.run(testbench)


@pytest.mark.parametrize("many", [3, 50])
def test_save_waits_for_retries_before_it(many):
    """And for the rings that they make go back; of those that come later it does not wait for ever."""
    rng = make_rng()
    dut = RequesterSwap(8)
    events = []

    async def save(ctx):
        await ctx.tick()
        await send_all(ctx, dut.control, [{"qp": 1, "action": QpAction.SAVE}])
        events.append("save")
        ctx.set(dut.save, 1)
        await ctx.tick()
        ctx.set(dut.save, 0)

    async def retries(ctx):
        for qp in range(many):
            await send_all(ctx, dut.retry, [qp % 8])

    async def rings(ctx):
        while len(events) < 1 + many:
            await ctx.tick()
            if rng.random() < 0.5:
                continue
            ctx.set(dut.retried.ready, 1)
            _, _, valid = await ctx.tick().sample(dut.retried.valid)
            ctx.set(dut.retried.ready, 0)
            if valid:
                events.append("retry")
                for name in "rewind", "rewound":
                    ctx.set(dut.token.ready, 0)
                    ctx.set(getattr(dut, name), 1)
                    await ctx.tick()
                    ctx.set(getattr(dut, name), 0)
                    # The ring goes back: no SAVE passes, and others do.
                    for _ in range(rng.randrange(4) if name == "rewind" else 0):
                        assert not ctx.get(dut.token.valid)
                        await ctx.tick()
            ctx.set(dut.token.ready, 1)

    simulate(dut, save, retries, rings, seed=rng.seed_value)
    assert events.index("save") in (min(many, 32), min(many, 33))  # one may be on its way when the SAVE comes


def test_no_retry_passes_a_save_that_is_said():
    """However long the SAVE is not taken; then the retry comes."""
    dut = RequesterSwap(8)

    async def testbench(ctx):
        ctx.set(dut.control.payload, {"qp": 1, "action": QpAction.SAVE})
        ctx.set(dut.control.valid, 1)
        await ctx.tick().until(dut.token.valid)
        ctx.set(dut.retry.valid, 1)
        ctx.set(dut.retry.payload, 5)
        for _ in range(10):
            await ctx.tick()
            assert ctx.get(dut.token.valid)
            assert not ctx.get(dut.retry.ready)
            assert not ctx.get(dut.retried.valid)
        ctx.set(dut.token.ready, 1)
        await ctx.tick()
        ctx.set(dut.control.valid, 0)
        await ctx.tick().until(dut.retried.valid)
        assert ctx.get(dut.retried.payload) == 5

    simulate(dut, testbench)


async def wake_of_save(world, ctx):
    """What the last word says of the QP that gives its state away."""
    saved = world.dut.saved
    ctx.set(saved.ready, 1)
    while not (ctx.get(saved.valid) and ctx.get(saved.payload.last)):
        await world.tick(ctx)
    return ctx.get(saved.payload.wake)


@pytest.mark.parametrize(
    ("state", "posted", "wake"),
    [(QpState.RTS, 0, 0), (QpState.RTS, 1, 1), (QpState.SQD, 1, 0), (QpState.ERR, 0, 0), (QpState.ERR, 1, 1)],
)
def test_who_has_something_to_do_says_so(state, posted, wake):
    """With the last word: something is posted behind STOP, and nobody else will remind the QP of it."""
    world = World(make_rng(), stall=0, swaps=True)

    async def testbench(ctx):
        await world.set_up(ctx, 2)
        await world.control(ctx, 2, QpAction.STOP)
        if posted:
            world.post(ctx, 2, write())
        await world.attributes(ctx, 2, state=state, **world.context)
        await world.settle(ctx, 40)
        await world.control(ctx, 2, QpAction.SAVE)
        assert await wake_of_save(world, ctx) == wake

    world.run(testbench)


def test_who_has_gone_back_behind_what_is_acknowledged_says_so():
    """Four messages are sent once more, and before their WQEs have come again all are acknowledged. Of the fifth, which
    has been posted meanwhile, nobody else will remind the QP.
    """
    world = World(make_rng(), stall=0, swaps=True)

    async def testbench(ctx):
        await world.set_up(ctx, 2)
        world.post(ctx, 2, *[write() for _ in range(4)])
        await world.until(ctx, lambda: sent(world) == [0, 1, 2, 3])
        world.fetch = lambda ctx, qp: None
        world.retries.append(2)
        await world.until(ctx, lambda: world.of("rewind"))
        await world.settle(ctx)
        world.post(ctx, 2, write())
        world.status(ctx, 2)
        world.ack(ctx, 2, 3)
        await world.settle(ctx)
        await world.control(ctx, 2, QpAction.STOP)
        await world.control(ctx, 2, QpAction.SAVE)
        assert await wake_of_save(world, ctx)
        assert len(sent(world)) == 4

    world.run(testbench)
