"""Packets between clocks."""

import pytest
from clocks import simulate_clocks
from ether_frames import beats, frames_of
from streams import collect, make_rng, send_all
from verbena.hdl.ethernet.packet_crossing import PacketCrossing

CLOCKS = [(64, (8, 8.03)), (512, (8, 3.3)), (64, (3.3, 8)), (512, (8, 40))]
"""Widths and periods."""


def run(rng, dut, frames, periods, stall, read_stall):
    """(frames that come out, count of overflows)."""
    items, lost = [], [0]

    async def sender(ctx):
        for frame, error in frames:
            await send_all(ctx, dut.i, beats(frame, dut.data_width, error=error, rng=rng), rng, stall, domain="a")
            if not dut.wait:
                await ctx.tick("a").repeat(2)  # what is dropped is free only then
        await ctx.delay(30e-6)

    async def reader(ctx):
        await collect(ctx, dut.o, items, rng, read_stall, domain="b")

    async def counter(ctx):
        async for *_, one in ctx.tick("a").sample(dut.count_overflow):
            lost[0] += one

    clocks = {"a": (periods[0], 0.4), "b": (periods[1], 1.7)}
    simulate_clocks(dut, clocks, sender, background=[reader, counter])
    got = frames_of(items, dut.data_width)
    assert not any(error for _, error in got)
    return [frame for frame, _ in got], lost[0]


@pytest.mark.parametrize(("width", "periods"), CLOCKS)
@pytest.mark.parametrize("wait", [False, True])
def test_good_ones_and_bad_ones(width, periods, wait):
    """With a slow enough sender all good ones come; bad ones, and those that are too large, leave no trace."""
    rng = make_rng()
    dut = PacketCrossing(width, 32, i_domain="a", o_domain="b", wait=wait)
    large = 37 * width // 8
    frames = [(rng.randbytes(rng.randrange(1, large // 3)), rng.random() < 0.3) for _ in range(40)]
    for n in (10, 20):
        frames.insert(n, (rng.randbytes(large), False))
    got, lost = run(rng, dut, frames, periods, 0 if wait else max(0.3, 1 - periods[0] / periods[1] / 4), 0)
    assert got == [frame for frame, error in frames if not error and len(frame) < large]
    assert lost == 2


@pytest.mark.parametrize(("width", "periods"), CLOCKS)
def test_what_finds_no_room_is_dropped_whole(width, periods):
    rng = make_rng()
    dut = PacketCrossing(width, 32, i_domain="a", o_domain="b")
    most = 12 * width // 8
    frames = [(n.to_bytes(2, "big") + rng.randbytes(rng.randrange(1, most)), False) for n in range(100)]
    got, lost = run(rng, dut, frames, periods, 0, 0.9)
    numbers = [int.from_bytes(frame[:2], "big") for frame in got]
    assert numbers == sorted(set(numbers))
    assert [frames[n][0] for n in numbers] == got
    assert lost > 5
    assert len(got) + lost >= 95  # the rest had no time to come out


@pytest.mark.parametrize(
    ("width", "size"), [(64, 1), (64, 8), (64, 30 * 8 - 7), (64, 30 * 8), (512, 64), (512, 30 * 64)]
)
def test_largest(width, size):
    rng = make_rng()
    dut = PacketCrossing(width, 32, i_domain="a", o_domain="b", wait=True)
    frames = [(rng.randbytes(size), False) for _ in range(6)]
    assert run(rng, dut, frames, (8, 7), 0.1, 0.1) == ([frame for frame, _ in frames], 0)


def test_no_pause_within_a_packet():
    """The reader takes a beat each eighth cycle, as a gigabit MAC does, and always finds one."""
    rng = make_rng()
    dut = PacketCrossing(64, 64, i_domain="a", o_domain="b", wait=True)
    frames = [rng.randbytes(rng.randrange(60, 400)) for _ in range(10)]
    items, missed = [], [0]

    async def sender(ctx):
        await send_all(ctx, dut.i, [b for f in frames for b in beats(f, 64)], rng, 0.3, domain="a")
        await ctx.delay(10e-6)

    async def reader(ctx):
        inside = False
        while True:
            ctx.set(dut.o.ready, 1)
            *_, valid, beat = await ctx.tick("b").sample(dut.o.valid, dut.o.payload)
            missed[0] += inside and not valid
            if valid:
                items.append(beat)
                inside = not beat.last
                ctx.set(dut.o.ready, 0)
                await ctx.tick("b").repeat(7)

    simulate_clocks(dut, {"a": (30, 0), "b": (8, 1)}, sender, background=[reader])
    assert b"".join(b.data.to_bytes(8, "little")[: b.count] for b in items) == b"".join(frames)
    assert missed == [0]


@pytest.mark.parametrize("depth", [4, 33, 64.0])
def test_arguments(depth):
    with pytest.raises(ValueError, match="power of two"):
        PacketCrossing(64, depth, i_domain="a", o_domain="b")
