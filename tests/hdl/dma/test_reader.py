import pytest
from axi_memory import AxiMemory
from dma_top import Alone
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import packets_of, piece, piece_lists, random_run
from streams import make_rng, receive_all, send_all, shared, simulate
from verbena.hdl.dma.reader import BURSTS, PayloadReader


def read(runs, data_width=64, *, rng, stall=0.3, deadline=60_000, buffer=None, **memory_options):
    """Runs a PayloadReader over ``runs``; (packets, memory, cycles of the pieces and of the payload beats)."""
    top = shared(Alone, PayloadReader, data_width, buffer)
    dut, axi = top.block, top.axi
    memory = AxiMemory(axi, rng, **memory_options)
    expected = []
    for run in runs:
        data = b"".join(memory.memory.read(p["address"], p["length"]) for p in run if not p["discard"])
        failed = any(memory.fails(p["address"], p["length"]) for p in run if p["length"] and not p["discard"])
        if data or run[-1]["status"]:
            expected.append((data, int(failed or run[-1]["status"] != 0)))
    count = sum(max(1, -(-len(data) // (data_width // 8))) for data, _ in expected)
    items, times = [], {"piece": [], "payload": []}

    async def feed(ctx):
        await send_all(ctx, dut.piece, [p for run in runs for p in run], rng, stall)

    async def take(ctx):
        items.extend(await receive_all(ctx, dut.payload, count, rng if stall else None, stall))
        ctx.set(dut.payload.ready, 1)
        for _ in range(10):
            _, _, valid = await ctx.tick().sample(dut.payload.valid)
            assert not valid, "a beat too many"

    size = data_width // 8
    beats = [  # of memory, up to the end of each run
        sum(
            -(-(p["address"] % size + p["length"]) // size)
            for run in runs[: n + 1]
            for p in run
            if p["length"] and not p["discard"]
        )
        for n in range(len(runs))
    ]
    over = []

    async def watch(ctx):
        read = 0
        async for _, _, p_valid, p_ready, o_valid, o_ready, data, ended in ctx.tick().sample(
            dut.piece.valid,
            dut.piece.ready,
            dut.payload.valid,
            dut.payload.ready,
            axi.rvalid & axi.rready,
            dut.over,
        ):
            if ended:
                assert read >= beats[len(over)], "a run is over, and its data has not come"
                over.append(memory.now)
            read += data
            if p_valid:
                times["piece"].append((memory.now, p_ready))
            if o_valid and o_ready:
                times["payload"].append(memory.now)

    simulate(top, feed, take, background=[watch, memory.run], seed=getattr(rng, "seed_value", None), deadline=deadline)
    packets = packets_of(items, data_width)
    assert packets == [(data, error) for data, error in expected]
    assert len(over) == len(runs)
    return packets, memory, times


@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
def test_random_runs(data_width):
    rng = make_rng()
    runs = [random_run(rng, most=1500) for _ in range(40)]
    for run in runs:
        if rng.random() < 0.2:  # a refused run ends in a piece without length
            run[-1].update(length=0, status=3)
        if rng.random() < 0.1:
            run[0].update(discard=1)
    read(runs, data_width, rng=rng, latency=40, stall=0.3)


@settings(max_examples=12)
@given(st.lists(piece_lists(), min_size=1, max_size=3), st.integers(0, 1 << 32))
def test_any_alignment_and_length(lists, seed):
    rng = make_rng(seed)
    runs = [[piece(a, n, last=i == len(pieces) - 1) for i, (a, n) in enumerate(pieces)] for pieces in lists]
    _, memory, _ = read(runs, rng=rng, latency=20, stall=0.1)
    wanted = {a // 8 for run in runs for p in run for a in range(p["address"], p["address"] + p["length"])}
    got = [a // 8 + i for _, _, a, beats in memory.reads for i in range(beats)]
    assert set(got) == wanted, "only beats that hold bytes of a piece are read"


def test_empty_runs_and_refused_runs():
    rng = make_rng()
    runs = [
        [piece(0x1000, 0, last=1)],
        [piece(0x1000, 0, last=1, status=1)],
        [piece(0x1003, 8), piece(0x2000, 0, last=1)],
        [piece(0x1003, 16), piece(0x2000, 0, last=1, status=5)],
        [piece(0x1003, 0), piece(0x2001, 0), piece(0x2001, 3, last=1)],
        [piece(0x2000, 0), piece(0x1000, 0, last=1)],
        [piece(0x3000, 24, last=1)],
    ]
    read(runs, rng=rng, latency=10)


def test_bus_error_marks_its_packet_alone():
    rng = make_rng()
    runs = [
        [piece(0x1000, 100, last=1)],
        [piece(0x5003, 30), piece(0x9000, 17), piece(0x1000, 5, last=1)],
        [piece(0x1001, 100, last=1)],
        [piece(0x9005, 1, last=1)],
        [piece(0x1001, 9, last=1)],
    ]
    packets, _, _ = read(runs, rng=rng, latency=10, broken=range(0x9000, 0x9008))
    assert [error for _, error in packets] == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("count", [4, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("offset", [0, 5])
def test_one_beat_a_cycle_at_latency_128(offset, count):
    rng = make_rng(1)
    runs = [[piece(0x10000 + 8192 * n + offset, 4096, last=1)] for n in range(count)]
    _, memory, times = read(runs, rng=rng, stall=0, shuffle=False)
    cycles = times["payload"][-1] - times["payload"][0] + 1
    print(f"{len(times['payload'])} beats of payload in {cycles} cycles")
    assert cycles <= len(memory.beats) * 1.01 + 4
    assert memory.most_reads >= 3


def test_small_pieces_and_latency():
    rng = make_rng(1)
    runs = [[piece(0x1000 + 8 * n, 8, last=1)] for n in range(200)]
    _, memory, times = read(runs, rng=rng, stall=0, shuffle=False)
    cycles = times["payload"][-1] - times["payload"][0]
    print(f"{cycles / 199:.2f} cycles a packet of 8 bytes, {memory.most_reads} reads in flight")
    assert cycles <= 6 * 199
    first_piece, first_read = times["piece"][0][0], memory.reads[0][0]
    print(f"piece to ARVALID {first_read - first_piece}, R to payload {times['payload'][0] - memory.beats[0]}")
    assert first_read - first_piece <= 3
    assert times["payload"][0] - memory.beats[0] == 5

    runs = [[piece(0x1005 + 24 * n, 8, last=1)] for n in range(200)]  # each in two beats of memory
    _, _, times = read(runs, rng=rng, stall=0, shuffle=False)
    assert times["payload"][-1] - times["payload"][0] <= 6 * 199


def test_data_in_the_next_cycle():
    rng = make_rng()
    read([random_run(rng, most=100) for _ in range(40)], rng=rng, stall=0, latency=0, shuffle=False)


@pytest.mark.parametrize("count", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_never_more_in_flight_than_there_is_room(count):
    rng = make_rng()
    runs = [[piece(0x1000 + n, 4000, last=1)] for n in range(count)]
    read(runs, rng=rng, stall=0.7, latency=5, buffer=4096)


def test_more_bursts_than_descriptions():
    """Of bursts whose data is missing, no more are under way than can be described."""
    rng = make_rng(1)
    runs = [[piece(0x1000 * n, 8, last=1)] for n in range(200)]
    _, memory, _ = read(runs, rng=rng, latency=600, stall=0)
    assert BURSTS - 2 <= memory.most_reads <= BURSTS


@pytest.mark.parametrize(("data_width", "buffer"), [(64, 2048), (64, 5000), (512, 4096), (100, None)])
def test_wrong_arguments(data_width, buffer):
    with pytest.raises(ValueError, match=str(data_width if data_width == 100 else buffer)):
        PayloadReader(data_width, buffer)
