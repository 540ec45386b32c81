"""The kept values of atomics against a dictionary, and READs that are known."""

import pytest
from streams import collect, make_rng, pause, plain, receive_all, send_all, simulate
from verbena.hdl.transport.common.layouts import ResponseKind
from verbena.hdl.transport.reads.replay_cache import ReplayCache

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
    ctx.set(dut.entry, {"kind": ResponseKind.REPLAY, "psn": psn})
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


@pytest.mark.parametrize("rounds", [25, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stall", [0, 0.6])
def test_random(stall, rounds):
    """QPs live several lives, whose PSNs and atomics are few enough to be mistaken for one another."""
    rng = make_rng()
    dut = ReplayCache(QPS)
    operands, waiting = [], []  # of waiting ones: what the atomic unit will say
    given = []
    done, executed = [], [0]

    async def user(ctx):
        lives = [[] for _ in range(QPS)]
        total = 0
        for _ in range(rounds):
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


async def keep(ctx, dut, qp, place, psn, mark, cut):
    ctx.set(dut.qp, qp)
    ctx.set(dut.place, place)
    ctx.set(dut.entry, {"kind": ResponseKind.READ, "psn": psn})
    ctx.set(dut.mark, mark)
    ctx.set(dut.cut, cut)
    ctx.set(dut.keep, 1)
    await ctx.tick()
    ctx.set(dut.keep, 0)
    ctx.set(dut.cut, 0)
    await ctx.tick().repeat(2)


async def search_read(ctx, dut, qp, place, psn, mark):
    """Whether the READ is known, and if so whether it was cut."""
    ctx.set(dut.qp, qp)
    ctx.set(dut.place, place)
    ctx.set(dut.entry, {"kind": ResponseKind.REPEAT, "psn": psn})
    ctx.set(dut.search, 1)
    await ctx.tick()
    ctx.set(dut.search, 0)
    ctx.set(dut.mark, mark)
    while not ctx.get(dut.done):
        await ctx.tick()
    await ctx.tick().repeat(2)
    return bool(ctx.get(dut.was_cut)) if ctx.get(dut.found) else None


@pytest.mark.parametrize("atomics", [16, 0])
@pytest.mark.parametrize("count", [1, 5, 16, 40])
def test_reads(count, atomics):
    """A READ is found by its mark, from its first PSN on; and from there on, once it is found. An atomic of the same
    PSN is not taken for it, nor the other way round."""
    rng = make_rng()
    dut = ReplayCache(QPS, atomics)
    base = rng.randrange(1 << 24)

    async def script(ctx):
        marks = rng.sample(range(1 << 18), count)
        cuts = [rng.randrange(2) for _ in marks]
        psns = [(base + 10 * number) % (1 << 24) for number in range(count)]
        if atomics:
            await put(ctx, dut, 1, place_of(0), {"psn": psns[-1]})
            await send_all(ctx, dut.result, [{"value": 77, "ok": 1}])
        first = bool(atomics)  # place of the first READ
        for number, (psn, mark, cut) in enumerate(zip(psns, marks, cuts)):
            await keep(ctx, dut, 1, place_of(number + first), psn, mark, cut)
        place = place_of(count + first)
        assert (await search(ctx, dut, 1, place, psns[-1]))[0] == (77 if atomics and count < 16 else None)
        assert (await search(ctx, dut, 1, place, psns[0]))[0] == (77 if atomics and count == 1 else None)
        for number in rng.sample(range(count), min(count, 16)):
            known = number >= count - 16
            psn, mark, cut = psns[number], marks[number], cuts[number]
            begin = (psn + rng.randrange(3)) % (1 << 24)
            assert await search_read(ctx, dut, 1, place, (psn - 1) % (1 << 24), mark) is None
            assert await search_read(ctx, dut, 2, place_of(0), psn, mark) is None
            assert await search_read(ctx, dut, 1, place, begin, mark ^ 1) is None
            assert await search_read(ctx, dut, 1, place, begin, mark) == (bool(cut) if known else None)
            assert await search_read(ctx, dut, 1, place, begin, mark) == (True if known else None)
            if begin != psn:
                assert await search_read(ctx, dut, 1, place, psn, mark) is None

    simulate(dut, script, seed=rng.seed_value)


def test_a_result_waits_while_a_read_is_kept():
    dut = ReplayCache(QPS)

    async def script(ctx):
        await put(ctx, dut, 1, place_of(0), {"psn": 9})
        ctx.set(dut.result.payload, {"value": 77, "ok": 1})
        ctx.set(dut.result.valid, 1)
        ctx.set(dut.entry, {"kind": ResponseKind.READ, "psn": 10})
        ctx.set(dut.place, place_of(1))
        ctx.set(dut.mark, 5)
        ctx.set(dut.keep, 1)
        ctx.set(dut.result.valid, 0)
        await ctx.tick()
        ctx.set(dut.keep, 0)
        ctx.set(dut.result.valid, 1)
        _, _, ready = await ctx.tick().sample(dut.result.ready)
        assert not ready
        _, _, ready = await ctx.tick().sample(dut.result.ready)
        assert ready
        ctx.set(dut.result.valid, 0)
        assert (await search(ctx, dut, 1, place_of(2), 9))[0] == 77
        assert await search_read(ctx, dut, 1, place_of(2), 10, 5) is False

    simulate(dut, script)


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
