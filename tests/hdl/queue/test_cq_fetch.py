"""CqFetch: records of CQs, and doorbells while they are read."""

import pytest
from streams import make_rng, receive_all, send_all, shared, simulate
from verbena.hdl.abi.cqc import CQ_RECORD, CQC_BYTES, CQN_BITS
from verbena.hdl.queue.cq_fetch import CqFetch

BASE = 0x1_2340_0000


def random_record(rng):
    return {name: rng.getrandbits(field.width) for name, field in CQ_RECORD.fields.items()}


def beats_of(record, width, error=0):
    size = width // 8
    return [
        {
            "data": int.from_bytes(record[at : at + size], "little"),
            "count": size,
            "first": at == 0,
            "last": at == CQC_BYTES - size,
            "error": error if at == CQC_BYTES - size else 0,
        }
        for at in range(0, CQC_BYTES, size)
    ]


async def ask(ctx, dut, number):
    ctx.set(dut.base, BASE)
    ctx.set(dut.number, number)
    ctx.set(dut.go, 1)
    await ctx.tick()
    ctx.set(dut.go, 0)
    ctx.set(dut.number, 0)


@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_records(width):
    rng = make_rng()
    dut = shared(CqFetch, width)
    asked = [(rng.randrange(1 << CQN_BITS), random_record(rng), rng.random() < 0.3) for _ in range(12)]

    async def user(ctx):
        for number, record, error in asked:
            await ask(ctx, dut, number)
            (bad,) = await ctx.tick().sample(dut.bad).until(dut.done)
            assert bad == error
            if not error:
                for name, value in record.items():
                    assert ctx.get(dut.record[name]) == value, name

    async def memory(ctx):
        for number, record, error in asked:
            (request,) = await receive_all(ctx, dut.request, 1, rng, 0.3)
            assert (request["address"], request["length"]) == (BASE + CQC_BYTES * number, CQC_BYTES)
            await send_all(ctx, dut.data, beats_of(CQ_RECORD.pack(**record), width, error), rng, 0.3)

    simulate(dut, user, memory, seed=rng.seed_value)


@pytest.mark.parametrize("number", [5, 6])
def test_a_doorbell_while_it_is_read(number):
    """In any cycle between the request and the last beat: the record of that CQ is read once more, that of another one
    is not. One that comes before the request is in memory by then.
    """
    dut = shared(CqFetch, 64)
    counts = []

    async def user(ctx):
        rng = make_rng(1)
        for moment in range(16):
            reads, done, cycle = 0, False, 0
            await ask(ctx, dut, 5)
            ctx.set(dut.rung_number, number)
            beats = []
            ctx.set(dut.request.ready, 0)
            while not done:
                ctx.set(dut.rung, cycle == moment)
                ctx.set(dut.request.ready, cycle >= 3)
                ctx.set(dut.data.valid, bool(beats))
                if beats:
                    ctx.set(dut.data.payload, beats[0])
                _, _, asks, taken, done = await ctx.tick().sample(
                    dut.request.valid & dut.request.ready, dut.data.valid & dut.data.ready, dut.done
                )
                beats = beats[taken:]
                if asks:
                    reads += 1
                    beats = beats_of(CQ_RECORD.pack(**random_record(rng)), 64)
                cycle += 1
            ctx.set(dut.data.valid, 0)
            ctx.set(dut.rung, 0)
            counts.append(reads)
            await ctx.tick()

    simulate(dut, user)
    # The request is taken in cycle 3, and the last beat in cycle 11.
    assert counts == [2 if number == 5 and 3 <= moment <= 11 else 1 for moment in range(16)]


def test_a_read_that_fails_is_not_repeated():
    dut = shared(CqFetch, 512)

    async def user(ctx):
        await ask(ctx, dut, 1)
        ctx.set(dut.request.ready, 1)
        await ctx.tick()
        ctx.set(dut.rung, 1)
        ctx.set(dut.rung_number, 1)
        ctx.set(dut.data.payload, {"last": 1, "error": 1})
        ctx.set(dut.data.valid, 1)
        _, _, done, bad = await ctx.tick().sample(dut.done, dut.bad)
        assert (done, bad) == (1, 1)
        ctx.set(dut.data.valid, 0)
        for _ in range(4):
            _, _, again = await ctx.tick().sample(dut.request.valid)
            assert not again

    simulate(dut, user)
