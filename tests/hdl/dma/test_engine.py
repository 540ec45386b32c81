"""The whole DMA engine: everything at once on one port, against a model of memory and against cocotbext-axi."""

import pytest
from axi_memory import AxiMemory
from dma_top import LARGEST, engine
from runs import beats_of, packets_of, piece, within
from streams import collect, make_rng, receive_all, send_all, simulate
from verilated import run_bench

pytestmark = pytest.mark.verilator


@pytest.mark.parametrize("each", [10, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("data_width", "atomics"), [(64, 16), (64, 0), (128, 16)])
def test_everything_at_once_with_errors(data_width, atomics, each):
    rng = make_rng()
    dut = engine(data_width, atomics)
    broken = range(0x7000, 0x7010)
    memory = AxiMemory(dut.axi, rng, latency=30, answer=15, stall=0.2, broken=broken)
    expected = {}
    errors = []
    jobs = []

    def structure_reader(name):
        port, largest = getattr(dut, name), LARGEST[name]
        requests = [within(0x6F00 + 8 * rng.randrange(64), 8 * rng.randrange(1, 16), largest) for _ in range(each)]
        count = sum(-(-n // (data_width // 8)) for _, n in requests)

        async def feed(ctx):
            await send_all(ctx, port.request, [{"address": a, "length": n} for a, n in requests], rng)

        async def take(ctx):
            beats = await receive_all(ctx, port.data, count, None)
            assert packets_of(beats, data_width) == [
                (memory.memory.read(a, n), int(memory.fails(a, n))) for a, n in requests
            ]

        return [feed, take]

    jobs += structure_reader("small") + structure_reader("large")
    pieces = [piece(0x100000 + rng.randrange(5000), rng.randrange(1, 400), last=1) for _ in range(each)]
    pieces += [piece(0x7003, 9, last=1), piece(0x6FF0, 40, last=1)]
    rng.shuffle(pieces)

    places = [(p["address"], p["length"]) for p in pieces]

    async def feed_pieces(ctx):
        await send_all(ctx, dut.transmit_piece, pieces, rng)

    async def take_payload(ctx):
        count = sum(-(-p["length"] // (data_width // 8)) for p in pieces)
        beats = await receive_all(ctx, dut.transmit_payload, count, rng)
        assert packets_of(beats, data_width) == [(memory.memory.read(a, n), int(memory.fails(a, n))) for a, n in places]

    runs = [(0x200000 + 512 * n + rng.randrange(100), rng.randrange(1, 400)) for n in range(each)] + [(0x7005, 13)]
    rng.shuffle(runs)
    packets = [rng.randbytes(n) for _, n in runs]

    async def feed_runs(ctx):
        await send_all(ctx, dut.receive_piece, [piece(a, n, last=1) for a, n in runs], rng)

    async def feed_packets(ctx):
        await send_all(ctx, dut.receive_payload, [b for p in packets for b in beats_of(p, data_width)], rng)

    async def take_done(ctx):
        dones = await receive_all(ctx, dut.done, len(runs), rng)
        assert [d.status for d in dones] == [7 * int(memory.fails(a, n)) for a, n in runs]

    entries = [(0x300000 + 32 * n, rng.choice([16, 32])) for n in range(each + 5)]
    entry_data = [rng.randbytes(n) for _, n in entries]

    async def feed_entries(ctx):
        await send_all(ctx, dut.cqe.request, [{"address": a, "length": n} for a, n in entries], rng)

    async def feed_entry_data(ctx):
        await send_all(ctx, dut.cqe.data, [b for p in entry_data for b in beats_of(p, data_width)], rng)

    async def take_answers(ctx):
        await receive_all(ctx, dut.cqe.done, len(entries))

    async def count(ctx):
        async for *_, number in ctx.tick().sample(dut.count_bus_errors):
            errors.append(number)

    writes = [*zip(runs, packets), *zip(entries, entry_data)]
    for (address, _), data in writes:
        expected.update(zip(range(address, address + len(data)), data))
    # nothing that is read is written, so the order of both does not matter
    memory.memory.read = lambda a, n: bytes(memory.memory.untouched(x) for x in range(a, a + n))
    simulate(
        dut,
        *jobs,
        feed_pieces,
        take_payload,
        feed_runs,
        feed_packets,
        take_done,
        feed_entries,
        feed_entry_data,
        take_answers,
        background=[memory.run, count],
        seed=rng.seed_value,
    )
    assert memory.memory.bytes == expected
    size = data_width // 8
    wrong_beats = sum(memory.fails(a + n * size, size) for _, _, a, beats in memory.reads for n in range(beats))
    wrong_writes = sum(memory.fails(a, beats * size, writing=True) for _, _, a, beats in memory.writes)
    assert wrong_beats
    assert wrong_writes
    assert sum(errors) == wrong_beats + wrong_writes
    assert {i for _, i, _, _ in memory.reads} == {0, 1, 2}
    assert {i for _, i, _, _ in memory.writes} == {0, 1}


def test_large_write_lets_small_ones_pass():
    """A CQE waits for the burst that goes, not for all of the payload."""
    rng = make_rng(1)
    dut = engine(64)
    memory = AxiMemory(dut.axi, rng, shuffle=False)
    times, dones = [], []

    async def payload(ctx):
        await send_all(ctx, dut.receive_payload, beats_of(bytes(8 * 4096), 64)[:-1], None)

    async def pieces(ctx):
        await send_all(ctx, dut.receive_piece, [piece(0x10000 + 4096 * n, 4096) for n in range(7)], None)

    async def entry(ctx):
        await ctx.tick().repeat(700)
        start = memory.now
        await send_all(ctx, dut.cqe.request, [{"address": 0x1000, "length": 32}], None)
        await send_all(ctx, dut.cqe.data, beats_of(bytes(32), 64), None)
        times.append(memory.now - start)

    async def until_idle(ctx):
        await ctx.tick().repeat(1600)

    async def take(ctx):
        await collect(ctx, dut.done, dones)

    simulate(dut, entry, until_idle, background=[memory.run, pieces, payload, take])
    print(f"32 bytes written within {times[0]} cycles")
    assert times[0] <= 2 * 256 + 20


@pytest.mark.slow  # `make test` has cocotbext-axi as the whole engine's host: tests/adapter/test_cocotb.py
@pytest.mark.parametrize(("data_width", "stall"), [(64, 0.3), (256, 0.0)])
def test_against_cocotbext_axi(data_width, stall, tmp_path, monkeypatch):
    variables = {"DMA_WIDTH": data_width, "DMA_STALL": stall, "DMA_SEED": make_rng().seed_value}
    run_bench("engine_and_axi_ram", engine(data_width), tmp_path, monkeypatch, **variables)
