import pytest
from amaranth.back import rtlil
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.realign import Realigner


def fragments(rng, width, granularity, packets):
    """Random packets as fragments, and the beats that must come out."""
    size = width // 8
    sent, expected = [], []
    for _ in range(packets):
        content, damaged = b"", False
        count = rng.choice([1, 1, 2, 3, 10])
        full = rng.random() < 0.3
        for k in range(count):
            last = k == count - 1
            offset, length = 0, size
            if not full:
                offset = rng.randrange(0, size, granularity)
                length = rng.randrange(0, size - offset + 1, granularity)
            if last and length and rng.random() < 0.5:
                length -= rng.randrange(granularity)
            error = rng.random() < 0.05
            word = rng.randbytes(size)
            content += word[offset : offset + length]
            damaged |= error
            fragment = {"offset": offset, "count": length, "last": last, "error": error}
            sent.append({"data": int.from_bytes(word, "little"), **fragment})
        if rng.random() < 0.1:
            sent[-1]["last"] = 0
            sent.append({"offset": rng.randrange(0, size, granularity), "last": 1})
        beats = [content[at : at + size] for at in range(0, len(content), size)] or ([b""] if damaged else [])
        for k, beat in enumerate(beats):
            last = k == len(beats) - 1
            expected.append((beat, k == 0, last, last and damaged))
    return sent, expected


def flat(beat):
    content = beat.data.to_bytes(64, "little")[: beat.count]
    return content, bool(beat.first), bool(beat.last), bool(beat.error)


@pytest.mark.parametrize("stall", [0, 0.3])
@pytest.mark.parametrize("granularity", [1, 4, 8])
@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_gathers(width, granularity, stall):
    rng = make_rng()
    dut = Realigner(width, granularity)
    sent, expected = fragments(rng, width, granularity, 150)

    async def producer(ctx):
        await send_all(ctx, dut.i, sent, rng, stall)

    async def consumer(ctx):
        beats = await receive_all(ctx, dut.o, len(expected), rng, stall)
        assert [flat(beat) for beat in beats] == expected
        await ctx.tick().repeat(10)
        assert not ctx.get(dut.o.valid)

    simulate(dut, producer, consumer, seed=rng.seed_value)


@pytest.mark.parametrize(
    ("width", "granularity", "latency"), [(64, 8, 2), (64, 4, 3), (64, 1, 3), (128, 1, 4), (512, 1, 4)]
)
def test_takes_a_fragment_each_cycle(width, granularity, latency):
    rng = make_rng()
    dut = Realigner(width, granularity)
    sent, expected = fragments(rng, width, granularity, 50)
    sent = [{"data": 5, "offset": 0, "count": 8, "last": 1}, *sent]
    first = []

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        for cycle, fragment in enumerate(sent + [{}] * 10):
            ctx.set(dut.i.payload, fragment)
            ctx.set(dut.i.valid, cycle < len(sent))
            assert ctx.get(dut.i.ready)
            if ctx.get(dut.o.valid):
                first.append(cycle)
            await ctx.tick()

    simulate(dut, testbench, seed=rng.seed_value)
    assert first[0] == latency
    assert len(first) == len(expected) + 1


def test_converts():
    rtlil.convert(Realigner(64, 1))


def test_refuses_wrong_parameters():
    with pytest.raises(ValueError, match="2"):
        Realigner(64, 2)
    with pytest.raises(ValueError, match="65"):
        Realigner(65, 1)
