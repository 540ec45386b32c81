import pytest
from amaranth.back import rtlil
from streams import make_rng, receive_all, simulate
from verbena.hdl.stream.queue import PacketQueue


def beats_of(rng, width, length, error):
    """Random packet of ``length`` beats; one of a single beat may be empty."""
    size = width // 8
    beats = []
    for k in range(length):
        last = k == length - 1
        count = rng.randrange(0 if length == 1 else 1, size + 1) if last else size
        # `error` of a beat that is not the last means nothing.
        beats.append(
            {
                "data": rng.getrandbits(width),
                "count": count,
                "first": k == 0,
                "last": last,
                "error": error if last else rng.randrange(2),
            }
        )
    return beats


def flat(beat):
    return beat["data"] & (1 << 8 * beat["count"]) - 1, beat["count"], bool(beat["first"]), bool(beat["last"])


async def offer(ctx, dut, beats, refuse=False):
    """Sends a packet without a gap; the strobes of its last cycle."""
    for beat in beats:
        ctx.set(dut.i.payload, beat)
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.refuse, refuse and beat["last"])
        names = ("committed", "dropped", "count_drop_overflow", "count_drop_error")
        _, _, ready, *strobes = await ctx.tick().sample(dut.i.ready, *(getattr(dut, name) for name in names))
        assert ready
        assert any(strobes) == bool(beat["last"])
    ctx.set(dut.i.valid, 0)
    ctx.set(dut.refuse, 0)
    return {name for name, strobe in zip(names, strobes) if strobe}


@pytest.mark.parametrize("stalls", [(0, 0), (0.5, 0.5), (0, 0.8)])
@pytest.mark.parametrize(("width", "depth"), [(64, 16), (64, 64), (512, 32)])
def test_forwards_what_it_committed(width, depth, stalls):
    rng = make_rng()
    dut = PacketQueue(width, depth)
    expected, received = [], []
    seen = set()
    finished = []

    async def producer(ctx):
        after_drop = False
        for _ in range(60):
            length = rng.choice([1, 1, 2, 3, 7, depth // 2, depth - 2, depth, depth + 3])
            error, refuse = rng.random() < 0.15, rng.random() < 0.1
            while rng.random() < stalls[0]:
                await ctx.tick()
                after_drop = False
            beats = beats_of(rng, width, length, error)
            inside = len(expected) - len(received)
            strobes = await offer(ctx, dut, beats, refuse)
            seen.update(strobes)
            if "committed" in strobes:
                assert strobes == {"committed"}
                assert not error
                assert not refuse
                assert length < depth
                expected.extend(flat(beat) for beat in beats)
            elif error:
                assert strobes == {"dropped", "count_drop_error"}
            else:
                assert strobes == {"dropped", "count_drop_overflow"}
                assert refuse or after_drop or inside + length > depth - 2
            after_drop = "dropped" in strobes
            if rng.random() < 0.1:
                for _ in range(100):
                    await ctx.tick()
        finished.append(True)

    async def consumer(ctx):
        while not finished or len(received) < len(expected):
            _, _, valid = await ctx.tick().sample(dut.o.valid)
            if valid and rng.random() >= stalls[1]:
                (beat,) = await receive_all(ctx, dut.o, 1)
                assert not beat.error
                received.append(flat(beat))
        await ctx.tick().repeat(10)
        assert not ctx.get(dut.o.valid)
        assert ctx.get(dut.empty)

    simulate(dut, producer, consumer, seed=rng.seed_value)
    assert received == expected
    assert seen == {"committed", "dropped", "count_drop_overflow", "count_drop_error"}


def test_latency_and_throughput():
    rng = make_rng()
    dut = PacketQueue(64, 256)
    times = []

    async def producer(ctx):
        await offer(ctx, dut, beats_of(rng, 64, 100, 0))
        await offer(ctx, dut, beats_of(rng, 64, 50, 0))

    async def consumer(ctx):
        ctx.set(dut.o.ready, 1)
        edges = aiter(ctx.tick().sample(dut.o.valid))
        for cycle in range(300):
            _, _, valid = await anext(edges)
            if valid:
                times.append(cycle)

    simulate(dut, producer, consumer, seed=rng.seed_value)
    assert times[:100] == list(range(99 + 5, 99 + 5 + 100))
    assert times[100:] == list(range(149 + 5 + 50, 149 + 5 + 100))


@pytest.mark.parametrize("gap", [0, 1, 2])
def test_fits_and_recovers(gap):
    """The longest packet that is promised to fit does so, one that is longer leaves no trace."""
    rng = make_rng()
    dut = PacketQueue(64, 16)

    async def testbench(ctx):
        for _ in range(3):
            assert "count_drop_overflow" in await offer(ctx, dut, beats_of(rng, 64, 17, 0))
            await ctx.tick().repeat(2)
            assert ctx.get(dut.empty)
            packet = beats_of(rng, 64, 14, 0)
            for beat in packet[:-1]:
                ctx.set(dut.i.payload, beat)
                ctx.set(dut.i.valid, 1)
                await ctx.tick()
                ctx.set(dut.i.valid, 0)
                for _ in range(gap):
                    await ctx.tick()
            assert await offer(ctx, dut, packet[-1:]) == {"committed"}
            assert not ctx.get(dut.empty)
            got = await receive_all(ctx, dut.o, 14)
            assert [flat(beat) for beat in got] == [flat(beat) for beat in packet]

    simulate(dut, testbench, seed=rng.seed_value)


def test_converts_and_refuses():
    rtlil.convert(PacketQueue(64, 2048))
    for depth in (4, 100):
        with pytest.raises(ValueError, match=str(depth)):
            PacketQueue(64, depth)
    with pytest.raises(ValueError, match="63"):
        PacketQueue(63, 64)
