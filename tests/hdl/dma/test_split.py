import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import piece_lists
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.dma.port import burst_limit
from verbena.hdl.dma.split import Splitter


def split(address, length, size, limit, granularity):
    """Bursts as (address, beats, start, end, last)."""
    end = address + length
    while address < end:
        stop = min(end, (address // (limit * size) + 1) * limit * size)
        beats = (stop - 1) // size - address // size + 1
        lanes = address % size // granularity, (stop - 1) % size // granularity
        yield address // size * size, beats, *lanes, int(stop == end)
        address = stop


def check(requests, data_width, limit, granularity, rng, stall=0.3):
    dut = Splitter(data_width, limit=limit, granularity=granularity)
    size = data_width // 8
    expected = [b for a, n in requests for b in split(a, n, size, limit or burst_limit(data_width), granularity)]
    got, side = [], []

    async def feed(ctx):
        await send_all(ctx, dut.i, [{"address": a, "length": n} for a, n in requests], rng, stall)

    async def take(ctx):
        got.extend(await receive_all(ctx, dut.o, len(expected), rng if stall else None, stall))

    async def watch(ctx):
        while True:
            _, _, moved, *values = await ctx.tick().sample(dut.o.valid & dut.o.ready, dut.start, dut.end, dut.last)
            if moved:
                side.append(tuple(values))

    simulate(dut, feed, take, background=[watch], seed=rng.seed_value)
    assert [
        ((burst.page + burst.next << 12) % 2**64 + burst.offset, burst.length + 1, *sides)
        for burst, sides in zip(got, side, strict=True)
    ] == expected
    for _, beats, *_ in expected:
        assert 1 <= beats <= 256


@settings(max_examples=25)
@given(
    piece_lists().map(lambda pieces: [(a, n) for a, n in pieces if n]),
    st.sampled_from([(64, None), (64, 16), (128, None), (512, None), (512, 1)]),
    st.integers(0, 1 << 32),
)
def test_any_byte(requests, sizes, seed):
    check(requests, *sizes, 1, make_rng(seed))


@settings(max_examples=15)
@given(piece_lists(granularity=8), st.sampled_from([(64, 8), (64, None), (256, 4)]), st.integers(0, 1 << 32))
def test_multiples_of_8(requests, sizes, seed):
    check(requests, *sizes, 8, make_rng(seed))


def test_every_corner_of_a_page():
    requests = [(4096 * 7 + a, n) for a in (0, 1, 2047, 2048, 4088, 4095) for n in (1, 2, 8, 9, 2048, 2049, 4095, 4096)]
    requests.append((2**64 - 4096, 4096))
    check(requests, 64, None, 1, make_rng(1), stall=0)


@pytest.mark.parametrize(("limit", "granularity"), [(0, 1), (3, 1), (512, 1), (None, 4)])
def test_wrong_arguments(limit, granularity):
    with pytest.raises(ValueError, match=str(granularity if limit is None else limit)):
        Splitter(64, limit=limit, granularity=granularity)
