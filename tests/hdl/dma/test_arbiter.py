import pytest
from axi_memory import AxiMemory
from dma_top import DmaTop
from runs import beats_of, packets_of, piece, within
from streams import collect, make_rng, receive_all, send_all, simulate
from verbena.hdl.dma.arbiter import BurstArbiter, ReadArbiter, WriteArbiter


def test_turns_and_addresses():
    rng = make_rng()
    clients = 5
    dut = BurstArbiter(clients)
    bursts = [[{"address": rng.getrandbits(64), "length": n} for n in range(20)] for _ in range(clients)]
    got, chosen = [], []

    def feed(number):
        async def client(ctx):
            await send_all(ctx, dut.i[number], bursts[number], None)

        return client

    async def take(ctx):
        ctx.set(dut.enable, 1)
        while len(got) < 20 * clients:
            ready = rng.random() < 0.7
            ctx.set(dut.ready, ready)
            _, _, valid, *values, wins = await ctx.tick().sample(
                dut.valid, dut.client, dut.address, dut.length, dut.chosen
            )
            if valid and ready:
                got.append(values)
            if wins:
                chosen.append(wins)

    simulate(dut, *[feed(n) for n in range(clients)], take)
    order = [client for client, _, _ in got]
    assert [1 << client for client in order] == chosen
    assert order == list(range(clients)) * 20, "everyone in turn while all want"
    for client in range(clients):
        assert [(a, n) for c, a, n in got if c == client] == [(b["address"], b["length"]) for b in bursts[client]]


@pytest.mark.parametrize("data_width", [64, 128])
def test_everything_at_once_with_errors(data_width):
    rng = make_rng()
    dut = DmaTop(data_width)
    broken = range(0x7000, 0x7010)
    memory = AxiMemory(dut.axi, rng, latency=30, answer=15, stall=0.2, broken=broken)
    expected = {}
    errors = {"read": 0, "write": 0}
    jobs = []

    def structure_reader(number):
        block = dut.readers[number].burst * data_width // 8
        requests = [within(0x6F00 + 8 * rng.randrange(64), 8 * rng.randrange(1, 16), block) for _ in range(25)]
        count = sum(-(-n // (data_width // 8)) for _, n in requests)

        async def feed(ctx):
            await send_all(ctx, dut.read_request[number], [{"address": a, "length": n} for a, n in requests], rng)

        async def take(ctx):
            beats = await receive_all(ctx, dut.read_data[number], count, rng)
            assert packets_of(beats, data_width) == [
                (memory.memory.read(a, n), int(memory.fails(a, n))) for a, n in requests
            ]

        return [feed, take]

    jobs += structure_reader(0) + structure_reader(1)
    pieces = [piece(0x100000 + rng.randrange(5000), rng.randrange(1, 400), last=1) for _ in range(25)]
    pieces += [piece(0x7003, 9, last=1), piece(0x6FF0, 40, last=1)]
    rng.shuffle(pieces)

    places = [(p["address"], p["length"]) for p in pieces]

    async def feed_pieces(ctx):
        await send_all(ctx, dut.read_piece, pieces, rng)

    async def take_payload(ctx):
        count = sum(-(-p["length"] // (data_width // 8)) for p in pieces)
        beats = await receive_all(ctx, dut.read_payload, count, rng)
        assert packets_of(beats, data_width) == [(memory.memory.read(a, n), int(memory.fails(a, n))) for a, n in places]

    runs = [(0x200000 + 512 * n + rng.randrange(100), rng.randrange(1, 400)) for n in range(25)] + [(0x7005, 13)]
    rng.shuffle(runs)
    packets = [rng.randbytes(n) for _, n in runs]

    async def feed_runs(ctx):
        await send_all(ctx, dut.write_piece, [piece(a, n, last=1) for a, n in runs], rng)

    async def feed_packets(ctx):
        await send_all(ctx, dut.write_payload, [b for p in packets for b in beats_of(p, data_width)], rng)

    async def take_done(ctx):
        dones = await receive_all(ctx, dut.write_done, len(runs), rng)
        assert [d.status for d in dones] == [7 * int(memory.fails(a, n)) for a, n in runs]

    entries = [(0x300000 + 32 * n, rng.choice([16, 32])) for n in range(30)]
    entry_data = [rng.randbytes(n) for _, n in entries]

    async def feed_entries(ctx):
        await send_all(ctx, dut.write_request, [{"address": a, "length": n} for a, n in entries], rng)

    async def feed_entry_data(ctx):
        await send_all(ctx, dut.write_data, [b for p in entry_data for b in beats_of(p, data_width)], rng)

    async def take_answers(ctx):
        await receive_all(ctx, dut.write_answer, len(entries), rng)

    async def count(ctx):
        while True:
            _, _, reads, writes = await ctx.tick().sample(dut.count_read_errors, dut.count_write_errors)
            errors["read"] += reads
            errors["write"] += writes

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
    assert errors["read"] > 0
    assert errors["write"] == 1
    assert {i for _, i, _, _ in memory.reads} == {0, 1, 2}
    assert {i for _, i, _, _ in memory.writes} == {0, 1}


def test_large_write_lets_small_ones_pass():
    """A CQE waits for the burst that goes, not for all of the payload."""
    rng = make_rng(1)
    dut = DmaTop(64)
    memory = AxiMemory(dut.axi, rng, shuffle=False)
    times, dones = [], []

    async def payload(ctx):
        await send_all(ctx, dut.write_payload, beats_of(bytes(8 * 4096), 64)[:-1], None)

    async def pieces(ctx):
        await send_all(ctx, dut.write_piece, [piece(0x10000 + 4096 * n, 4096) for n in range(7)], None)

    async def entry(ctx):
        await ctx.tick().repeat(700)
        start = memory.now
        await send_all(ctx, dut.write_request, [{"address": 0x1000, "length": 32}], None)
        await send_all(ctx, dut.write_data, beats_of(bytes(32), 64), None)
        times.append(memory.now - start)

    async def until_idle(ctx):
        await ctx.tick().repeat(1600)

    async def take(ctx):
        await collect(ctx, dut.write_done, dones)

    simulate(dut, entry, until_idle, background=[memory.run, pieces, payload, take])
    print(f"32 bytes written within {times[0]} cycles")
    assert times[0] <= 2 * 256 + 20


@pytest.mark.parametrize("kind", [ReadArbiter, WriteArbiter])
@pytest.mark.parametrize("clients", [0, 17])
def test_wrong_arguments(kind, clients):
    with pytest.raises(ValueError, match=str(clients)):
        kind(64, clients)
