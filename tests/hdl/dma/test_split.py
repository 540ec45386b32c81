from hypothesis import given, settings
from hypothesis import strategies as st
from runs import piece_lists
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.dma.port import burst_limit
from verbena.hdl.dma.split import Splitter


def split(address, length, size, limit):
    """Bursts as (address, beats, start, end, last)."""
    end = address + length
    while address < end:
        stop = min(end, (address // (limit * size) + 1) * limit * size)
        beats = (stop - 1) // size - address // size + 1
        yield address // size * size, beats, address % size, (stop - 1) % size, int(stop == end)
        address = stop


def check(requests, data_width, rng, stall=0.3):
    dut = Splitter(data_width)
    size = data_width // 8
    expected = [b for a, n in requests for b in split(a, n, size, burst_limit(data_width))]
    got, side = [], []

    async def feed(ctx):
        await send_all(ctx, dut.i, [{"address": a, "length": n} for a, n in requests], rng, stall)

    async def take(ctx):
        got.extend(await receive_all(ctx, dut.o, len(expected), rng if stall else None, stall))

    async def watch(ctx):
        async for _, _, moved, *values in ctx.tick().sample(dut.o.valid & dut.o.ready, dut.start, dut.end, dut.last):
            if moved:
                side.append(tuple(values))

    simulate(dut, feed, take, background=[watch], seed=rng.seed_value)
    assert [(burst.address, burst.length + 1, *sides) for burst, sides in zip(got, side, strict=True)] == expected
    for _, beats, *_ in expected:
        assert 1 <= beats <= 256


@settings(max_examples=25)
@given(
    piece_lists().map(lambda pieces: [(a, n) for a, n in pieces if n]),
    st.sampled_from([64, 128, 512]),
    st.integers(0, 1 << 32),
)
def test_any_byte(requests, data_width, seed):
    check(requests, data_width, make_rng(seed))


def test_every_corner_of_a_page():
    requests = [(4096 * 7 + a, n) for a in (0, 1, 2047, 2048, 4088, 4095) for n in (1, 2, 8, 9, 2048, 2049, 4095, 4096)]
    requests += [(2**64 - 4096, 4096), (2**29 - 5, 10), (2**64 - 2**29 - 5, 4096)]  # the longest carries
    check(requests, 64, make_rng(1), stall=0)
