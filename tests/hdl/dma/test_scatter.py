import pytest
from runs import beats_of
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.dma.scatter import Scatter


def slices_of(rng, data_width, granularity):
    """Slices of a packet, the places of its bytes as (beat, lane), and its length."""
    lanes = data_width // 8 // granularity
    slices, beats = [], []
    for _ in range(rng.choice([1, 1, 2, 4])):
        start, length = rng.randrange(lanes), rng.randrange(1, 5 * lanes)
        end = start + length - 1
        slices.append({"length": end // lanes, "start": start, "end": end % lanes})
        beats.append((start, length))
    if rng.random() < 0.2:
        slices.append({"empty": 1})
    slices[-1]["last"] = 1
    return slices, beats


@pytest.mark.parametrize(
    ("data_width", "granularity"), [(64, 1), (128, 1), (512, 1), (64, 8), (128, 8), (256, 8), (512, 8)]
)
def test_bytes_go_to_their_lanes(data_width, granularity):
    rng = make_rng()
    dut = Scatter(data_width, granularity)
    size = data_width // 8
    slices, payload, expected = [], [], []
    for _ in range(60):
        some, parts = slices_of(rng, data_width, granularity)
        slices += some
        data = rng.randbytes(granularity * sum(length for _, length in parts))
        payload += beats_of(data + rng.randbytes(rng.choice([0, 0, granularity, 2 * size])), data_width)
        for start, length in parts:
            part, data = data[: length * granularity], data[length * granularity :]
            image = [None] * (start * granularity) + list(part)
            image += [None] * (-len(image) % size)
            expected += [(image[i : i + size], i + size == len(image)) for i in range(0, len(image), size)]
    got = []

    async def feed(ctx):
        await send_all(ctx, dut.i, slices, rng)

    async def feed_payload(ctx):
        await send_all(ctx, dut.payload, payload, rng)

    async def take(ctx):
        for beat in await receive_all(ctx, dut.o, len(expected), rng):
            lanes = [beat.data >> 8 * n & 0xFF if beat.strobe >> n & 1 else None for n in range(size)]
            got.append((lanes, bool(beat.last)))

    simulate(dut, feed, feed_payload, take, seed=rng.seed_value)
    assert got == expected


def test_wrong_arguments():
    with pytest.raises(ValueError, match="4"):
        Scatter(64, 4)
