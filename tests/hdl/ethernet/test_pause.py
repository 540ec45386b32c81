"""Pause frames, made and read by scapy."""

import itertools

from ether_frames import MAC, mac_text, padded
from scapy.contrib.mac_control import MACControlPause
from scapy.layers.l2 import Ether
from streams import collect, make_rng, send_all, simulate
from verbena.hdl.ethernet.pause import PauseReceive, PauseTransmit

GROUP = "01:80:c2:00:00:01"


def pause(quanta, to=GROUP):
    return padded(Ether(dst=to, src="02:00:00:00:00:77") / MACControlPause(pause_time=quanta))


def heard(frames):
    """Quanta of the pauses that are found in a list of (bytes, error)."""
    rng = make_rng()
    dut = PauseReceive()
    found = []

    async def sender(ctx):
        for frame, error in frames:
            for n, byte in enumerate(frame):
                last = n == len(frame) - 1
                ctx.set(dut.i, {"data": byte, "last": last, "error": error and last})
                ctx.set(dut.i_valid, 1)
                await ctx.tick()
                ctx.set(dut.i_valid, 0)
                await ctx.tick().repeat(rng.randrange(1, 3))

    async def reader(ctx):
        async for *_, one in ctx.tick().sample(dut.count_pause_received):
            if one:
                found.append(ctx.get(dut.quanta))

    simulate(dut, sender, background=[reader], seed=rng.seed_value)
    return found


def test_pauses_among_other_frames():
    good = pause(0x1234)
    wrong = []
    for place in [*range(6), 12, 13, 14, 15]:
        frame = bytearray(good)
        frame[place] ^= 1 << place % 8
        wrong.append((bytes(frame), 0))
    frames = [(good, 0), *wrong, (good, 1), (good[:17], 0), (good[:18], 0), (pause(0), 0), (b"\x01", 0), (pause(7), 0)]
    assert heard(frames) == [0x1234, 0, 7]


def test_a_pause_without_filling_counts_too():
    assert heard([(pause(9)[:19], 0)]) == [9]


def run_transmit(dut, script, cycles):
    """(frames that come out, the cycle in which each begins, counts) while ``script`` runs."""
    items, starts, counts = [], [], [0, 0]

    async def clock(ctx):
        ctx.set(dut.tick, 1)
        ctx.set(dut.mac, MAC)
        ctx.set(dut.o.ready, 1)
        for now in range(cycles):
            for name, value in script.get(now, {}).items():
                ctx.set(getattr(dut, name), value)
            _, _, valid, item, frames, pauses = await ctx.tick().sample(
                dut.o.valid, dut.o.payload, dut.count_frames, dut.count_pause_sent
            )
            ctx.set(dut.quanta_en, 0)
            if valid:
                if not items or items[-1][1]:
                    starts.append(now)
                items.append((item.data, item.last))
            counts[0] += frames
            counts[1] += pauses

    async def sender(ctx):
        while True:
            await send_all(ctx, dut.i, [{"data": n, "last": n == 19} for n in range(20)])

    simulate(dut, clock, background=[sender], deadline=cycles + 100)
    frames = [[]]
    for data, last in items:
        frames[-1].append(data)
        if last:
            frames.append([])
    return [bytes(frame) for frame in frames if frame], starts, counts


def test_held():
    """For as long as is asked, after the frame that is under way; a second pause takes the place of the first."""
    script = {
        100: {"quanta": 10, "quanta_en": 1},
        300: {"quanta": 20, "quanta_en": 1},
        2500: {"quanta": 9999, "quanta_en": 1},
    }
    script |= {3000: {"quanta": 0, "quanta_en": 1}}
    _, starts, _ = run_transmit(PauseTransmit(), script, 3200)
    assert not [n for n in starts if 104 <= n < 300 + 19 * 64 or 2504 <= n < 3000]
    assert [n for n in starts if 300 + 20 * 64 <= n < 300 + 20 * 64 + 40]
    assert [n for n in starts if 3000 <= n < 3040]


def test_asked():
    """Again before it is over, and an end."""
    script = {100: {"request": 1}, 1000: {"request": 0}, 1300: {"request": 1}, 1302: {"request": 0}}
    frames, starts, counts = run_transmit(PauseTransmit(refresh=5), script, 1600)
    ours = [(n, Ether(frame)) for n, frame in zip(starts, frames) if len(frame) == 18]
    assert all(packet.dst == GROUP and packet.src == mac_text(MAC) for _, packet in ours)
    times = [n for n, packet in ours if packet[MACControlPause].pause_time == 0xFFFF and n < 1000]
    assert len(times) == 3
    assert all(5 * 64 - 64 <= b - a <= 5 * 64 + 30 for a, b in itertools.pairwise(times))
    assert next(packet[MACControlPause].pause_time for n, packet in ours if n > 1000) == 0
    assert ours[-1][1][MACControlPause].pause_time == 0
    assert counts == [sum(len(frame) == 20 for frame in frames), len(ours)]


def test_no_frame_is_torn():
    """Every frame that comes out is whole, with a reader that stalls."""
    rng = make_rng()
    dut = PauseTransmit(refresh=3)
    items = []

    async def sender(ctx):
        ctx.set(dut.tick, 1)
        for n in range(20):
            ctx.set(dut.request, rng.randrange(2))
            await send_all(ctx, dut.i, [{"data": n, "last": k == 9} for k in range(10)], rng)
        await ctx.tick().repeat(100)

    async def reader(ctx):
        await collect(ctx, dut.o, items, rng)

    simulate(dut, sender, background=[reader], seed=rng.seed_value)
    text = bytes(item.data for item in items)
    ends = [n + 1 for n, item in enumerate(items) if item.last]
    parts = [text[a:b] for a, b in zip([0, *ends], ends)]
    assert [part for part in parts if len(part) == 10] == [bytes([n] * 10) for n in range(20)]
    assert all(len(part) in (10, 18) for part in parts)
