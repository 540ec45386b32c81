import pytest
from streams import make_rng, receive_all, simulate
from verbena.hdl.dma.buffer import ReadBuffer


@pytest.mark.parametrize(("depth", "burst"), [(2, 1), (8, 4), (32, 16), (64, 8), (64, 1), (128, 32)])
@pytest.mark.parametrize("stall", [0, 0.5])
def test_rows_come_out_in_order_and_fit(depth, burst, stall):
    rng = make_rng()
    dut = ReadBuffer(16, depth, burst)
    sent, got = [rng.getrandbits(16) for _ in range(400)], []
    pending, inside, most = [], 0, 0

    async def reserve(ctx):
        todo = len(sent)
        while todo:
            length = min(rng.randint(1, burst), todo)
            wanted = rng.random() >= stall
            ctx.set(dut.length, length - 1)
            ctx.set(dut.reserve, 0)
            if wanted and ctx.get(dut.room):
                ctx.set(dut.reserve, 1)
                pending.extend([None] * length)
                todo -= length
            await ctx.tick()
            ctx.set(dut.reserve, 0)

    async def write(ctx):
        nonlocal inside, most
        for row in sent:
            while not pending or rng.random() < stall:
                await ctx.tick()
            pending.pop()
            ctx.set(dut.w_en, 1)
            ctx.set(dut.w_data, row)
            await ctx.tick()
            ctx.set(dut.w_en, 0)
            inside += 1
            most = max(most, inside - len(got))

    async def take(ctx):
        while len(got) < len(sent):
            got.extend(await receive_all(ctx, dut.o, 1, rng if stall else None, stall))

    simulate(dut, reserve, write, take, seed=rng.seed_value)
    assert got == sent
    assert most <= depth + 2


@pytest.mark.parametrize("depth", [32, 64])
def test_latency_and_a_row_a_cycle(depth):
    """An empty buffer is passed at once; one that has been stalled gives a row a cycle, too."""
    dut = ReadBuffer(16, depth, 8)
    got = []
    stall = 10

    async def write(ctx):
        for cycle in range(150):
            ctx.set(dut.w_data, cycle)
            ctx.set(dut.w_en, cycle < 100)
            ctx.set(dut.reserve, cycle < 100 and cycle % 2 == 0)
            ctx.set(dut.length, 1)
            ctx.set(dut.o.ready, not 50 <= cycle < 50 + stall)
            assert cycle % 2 or ctx.get(dut.room)
            _, _, valid, ready, row = await ctx.tick().sample(dut.o.valid, dut.o.ready, dut.o.payload)
            if valid and ready:
                got.append((cycle, row))

    simulate(dut, write)
    assert got == [(n + 1 if n < 49 else n + 1 + stall, n) for n in range(100)]


def test_room_is_never_said_in_vain():
    dut = ReadBuffer(16, 32, 8)

    async def reserve(ctx):
        taken = 0
        for _ in range(40):
            room = ctx.get(dut.room)
            ctx.set(dut.reserve, room)
            ctx.set(dut.length, 7)
            taken += 8 * room
            await ctx.tick()
        assert taken == 32

    simulate(dut, reserve)


@pytest.mark.parametrize(("depth", "burst"), [(0, 1), (24, 1), (32, 32), (32, 5), (32, 0)])
def test_wrong_arguments(depth, burst):
    with pytest.raises(ValueError, match=str(burst if depth == 32 else depth)):
        ReadBuffer(8, depth, burst)
