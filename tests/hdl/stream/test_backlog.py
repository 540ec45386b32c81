import pytest
from amaranth.back import rtlil
from streams import check_reset_leaves_payload, make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.backlog import Backlog
from verbena.hdl.stream.packet import PacketBeat


@pytest.mark.parametrize(("depth", "parts"), [(2, 1), (16, 2), (4, 4)])
@pytest.mark.parametrize("stalls", [(0, 0), (0.3, 0.3), (0, 0.9), (0.9, 0.3)])
def test_order(depth, parts, stalls):
    rng = make_rng()
    dut = Backlog(18, depth, parts)
    sent = [rng.randrange(1 << 18) for _ in range(2 * depth + 150)]

    async def producer(ctx):
        await send_all(ctx, dut.i, sent, rng, stalls[0])

    async def consumer(ctx):
        assert await receive_all(ctx, dut.o, len(sent), rng, stalls[1]) == sent
        assert not ctx.get(dut.o.valid)
        assert ctx.get(dut.empty)

    simulate(dut, producer, consumer, seed=rng.seed_value)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("depth", [2, 8])
def test_holds_depth_items_and_two(depth, parts):
    dut = Backlog(16, depth, parts)

    async def testbench(ctx):
        assert ctx.get(dut.empty)
        await send_all(ctx, dut.i, range(depth + 2))
        await ctx.tick().repeat(12)
        assert not ctx.get(dut.i.ready)
        assert not ctx.get(dut.empty)
        assert await receive_all(ctx, dut.o, depth + 2) == list(range(depth + 2))

    simulate(dut, testbench)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_latency(parts):
    """1 cycle through an empty one, `parts + 1` to put one behind another, or 1 without parts, and `parts + 3` from one
    to the next.
    """
    dut = Backlog(16, 8, parts)
    out = []

    async def testbench(ctx):
        ctx.set(dut.i.valid, 1)
        taken = []
        for cycle in range(40):
            ctx.set(dut.i.payload, len(taken))
            *_, ready, valid = await ctx.tick().sample(dut.i.ready, dut.o.valid)
            if ready:
                taken.append(cycle)
            if valid and not out:
                out.append(cycle)
        assert out == [1]
        assert taken[:6] == [0, 1, *(1 + (1 if parts == 1 else parts + 1) * n for n in range(1, 5))]
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.o.ready, 1)
        times = []
        for cycle in range(100):
            *_, valid = await ctx.tick().sample(dut.o.valid)
            if valid:
                times.append(cycle)
        assert times == [(parts + 3) * n for n in range(len(taken))]

    simulate(dut, testbench)


def test_keeps_the_shape():
    dut = Backlog(PacketBeat(64), 8, 2)
    beat = {"data": 0x0123456789ABCDEF, "count": 8, "first": 1, "last": 0, "error": 1}

    async def testbench(ctx):
        await send_all(ctx, dut.i, [beat] * 3)
        assert await receive_all(ctx, dut.o, 3) == [beat] * 3

    assert dut.o.payload.shape() == PacketBeat(64)
    simulate(dut, testbench)
    rtlil.convert(dut)


def test_refuses_wrong_sizes():
    with pytest.raises(ValueError, match="depth must be a power of two, at least 2, not 3"):
        Backlog(8, 3)
    with pytest.raises(ValueError, match="parts must be a power of two, not 0"):
        Backlog(8, 4, 0)


def test_a_reset_leaves_the_payload():
    check_reset_leaves_payload(Backlog(8, 4, 1))
