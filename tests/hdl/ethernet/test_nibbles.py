"""Nibbles of 100 Mb/s."""

import itertools

import pytest
from streams import make_rng, simulate
from verbena.hdl.ethernet.nibbles import BytesToNibbles, NibblesToBytes


def run_bytes(slow, cycles, values):
    """Rows of (tick, enable, data, clock); ``values`` are the (enable, data) that follow each tick."""
    dut = BytesToNibbles()
    rows, pending = [], iter(values)

    async def testbench(ctx):
        ctx.set(dut.slow, slow)
        for _ in range(cycles):
            _, _, *row = await ctx.tick().sample(dut.tick, dut.enable, dut.data, dut.clock)
            rows.append(tuple(row))
            if row[0]:
                enable, data = next(pending, (0, 0))
                ctx.set(dut.i_enable, enable)
                ctx.set(dut.i_data, data)

    simulate(dut, testbench)
    return rows


def test_bytes_at_full_speed():
    values = [(1, n * 37 % 256) for n in range(20)]
    rows = run_bytes(0, 25, values)
    assert all(tick for tick, *_ in rows[1:])
    assert [(enable, data) for _, enable, data, _ in rows[3:23]] == values
    assert {clock for *_, clock in rows[1:]} == {0b01}


def test_bytes_at_a_tenth():
    """Ten cycles a byte, the low nibble first; the clock rises where the nibble changes, and is high half the time."""
    values = [(1, n * 37 % 256) for n in range(6)]
    rows = run_bytes(1, 100, values)
    assert sum(tick for tick, *_ in rows) == 10
    halves = [clock >> half & 1 for *_, clock in rows for half in (0, 1)]
    rises = [n for n in range(11, len(halves)) if halves[n] and not halves[n - 1]]
    assert {b - a for a, b in itertools.pairwise(rises)} == {10}
    assert all(sum(halves[n : n + 10]) == 5 for n in rises[:-1])
    changes = [n for n in range(5, 100) if rows[n][1:3] != rows[n - 1][1:3]]
    assert all(2 * n in rises for n in changes)
    nibbles = [rows[n // 2][2] for n in rises if rows[n // 2][1]]
    assert nibbles == [nibble * 0x11 for _, byte in values for nibble in (byte & 15, byte >> 4)]


def run_nibbles(nibbles, slow=1):
    """Bytes of each run of ``valid``, as (data, error)."""
    dut = NibblesToBytes()
    frames, inside = [], [False]

    async def sender(ctx):
        ctx.set(dut.slow, slow)
        for valid, error, data in [*nibbles, (0, 0, 0), (0, 0, 0)]:
            ctx.set(dut.i_valid, valid)
            ctx.set(dut.i_error, error)
            ctx.set(dut.i_data, data)
            await ctx.tick()

    async def reader(ctx):
        async for *_, tick, valid, error, data in ctx.tick().sample(dut.tick, dut.valid, dut.error, dut.data):
            if tick:
                if valid:
                    if not inside[0]:
                        frames.append([])
                    frames[-1].append((data, error))
                inside[0] = valid

    simulate(dut, sender, background=[reader])
    return frames


@pytest.mark.parametrize("left", range(1, 16))
@pytest.mark.parametrize("extra", [0, 1])
def test_nibbles(left, extra):
    """Whatever number of nibbles of the preamble is left, odd ones too, and half a byte too many at the end."""
    rng = make_rng()
    content = rng.randbytes(20)
    nibbles = [n for byte in content for n in (byte & 15, byte >> 4)]
    wire = [(1, 0, n | rng.randrange(16) << 4) for n in [5] * left + [13] + nibbles + [7] * extra]
    for frame in run_nibbles([(0, 0, 0)] * rng.randrange(1, 4) + wire + [(0, 0, 0)] + wire):
        data = bytes(byte for byte, _ in frame)
        start = data.index(0xD5)
        assert data[:start] == b"\x55" * start
        assert data[start + 1 :] == content
        assert not any(error for _, error in frame)


@pytest.mark.parametrize("half", [0, 1])
def test_an_error_in_either_nibble(half):
    wire = [(1, int(n == 20 + half), v) for n, v in enumerate([5] * 15 + [13] + [1, 2] * 10)]
    (frame,) = run_nibbles(wire)
    assert [n for n, (_, error) in enumerate(frame) if error] == [10]


def test_bytes_pass_at_full_speed():
    rng = make_rng()
    wire = [(1, rng.randrange(2), rng.randrange(256)) for _ in range(30)]
    assert run_nibbles([(0, 0, 0), *wire], slow=0) == [[(data, error) for _, error, data in wire]]
