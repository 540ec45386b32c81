"""The kept values of atomics against a dictionary."""

import pytest
from streams import collect, make_rng, pause, plain, receive_all, send_all, simulate
from verbena.hdl.transport.layouts import ResponseKind
from verbena.hdl.transport.replay_cache import ReplayCache

QPS = 4


async def put(ctx, dut, qp, place, entry):
    while not ctx.get(dut.room):
        await ctx.tick()
    ctx.set(dut.qp, qp)
    ctx.set(dut.place, place)
    ctx.set(dut.entry, entry)
    ctx.set(dut.put, 1)
    await ctx.tick()
    ctx.set(dut.put, 0)
    await ctx.tick()


async def search(ctx, dut, qp, place, psn):
    """The value kept, or None; and the cycles it took."""
    ctx.set(dut.qp, qp)
    ctx.set(dut.place, place)
    ctx.set(dut.entry, {"psn": psn})
    ctx.set(dut.search, 1)
    await ctx.tick()
    ctx.set(dut.search, 0)
    cycles = 1
    while not ctx.get(dut.done):
        await ctx.tick()
        cycles += 1
    await ctx.tick()
    return (ctx.get(dut.value) if ctx.get(dut.found) else None), cycles


def place_of(count):
    return {"slot": count % 16, "wrapped": count >= 16}


@pytest.mark.parametrize("stall", [0, 0.6])
def test_random(stall):
    """QPs live several lives, whose PSNs and atomics are few enough to be mistaken for one another."""
    rng = make_rng()
    dut = ReplayCache(QPS)
    operands, waiting = [], []  # of waiting ones: what the atomic unit will say
    given = []
    done, executed = [], [0]

    async def user(ctx):
        lives = [[] for _ in range(QPS)]
        total = 0
        for _ in range(60):
            for _ in range(rng.randrange(12)):
                qp = rng.randrange(QPS)
                entry = {
                    "kind": rng.choice([ResponseKind.COMPARE_SWAP, ResponseKind.FETCH_ADD]),
                    "psn": rng.randrange(64),
                    "swap": rng.randrange(1 << 64),
                    "compare": rng.randrange(1 << 64),
                }
                if entry["psn"] in [psn for psn, _ in lives[qp][-16:]]:
                    continue
                result = {"value": rng.randrange(1 << 64), "ok": rng.random() < 0.8}
                waiting.append(result)
                given.append((entry["swap"], entry["compare"], entry["kind"] == ResponseKind.FETCH_ADD))
                await put(ctx, dut, qp, place_of(len(lives[qp])), entry)
                lives[qp].append((entry["psn"], result["value"] if result["ok"] else None))
                total += 1
            while executed[0] < total:
                await ctx.tick()
            await ctx.tick()
            for qp, life in enumerate(lives):
                psn = rng.randrange(64)
                found, cycles = await search(ctx, dut, qp, place_of(len(life)), psn)
                assert found == dict(life[-16:]).get(psn), (qp, psn)
                assert cycles <= 35
            if rng.random() < 0.2:
                lives[rng.randrange(QPS)] = []
        done.append(total)

    async def unit(ctx):
        while not done or executed[0] < done[0]:
            if waiting:
                await send_all(ctx, dut.result, [waiting.pop(0)], rng, stall)
                executed[0] += 1
            await ctx.tick()

    async def listener(ctx):
        await collect(ctx, dut.operands, operands, rng, stall)

    simulate(dut, user, unit, background=[listener], seed=rng.seed_value, deadline=60_000)
    assert [(o["swap"], o["compare"], o["add"]) for o in operands] == given


def test_room():
    """15 atomics may be under way; a result makes room for one."""
    rng = make_rng()
    dut = ReplayCache(QPS)

    async def testbench(ctx):
        await ctx.tick()
        for number in range(15):
            assert ctx.get(dut.room)
            await put(ctx, dut, 1, place_of(number), {"psn": number, "swap": number})
        await ctx.tick()
        assert not ctx.get(dut.room)
        await send_all(ctx, dut.result, [{"value": 77, "ok": 1}])
        await ctx.tick()
        assert ctx.get(dut.room)
        assert [item["swap"] for item in await receive_all(ctx, dut.operands, 15, rng)] == list(range(15))
        await pause(ctx, rng, 0.5)
        assert plain(ctx.get(dut.operands.valid)) == 0

    simulate(dut, testbench, seed=rng.seed_value)


def test_cycles():
    """The newest atomic is found in 5 cycles."""
    dut = ReplayCache(QPS)

    async def testbench(ctx):
        await put(ctx, dut, 1, place_of(0), {"psn": 9})
        await send_all(ctx, dut.result, [{"value": 77, "ok": 1}])
        assert await search(ctx, dut, 1, place_of(1), 9) == (77, 5)

    simulate(dut, testbench)
