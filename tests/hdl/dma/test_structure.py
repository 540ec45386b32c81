import pytest
from axi_memory import AxiMemory
from dma_top import Alone
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import beats_of, packets_of, piece_lists, random_address, within
from streams import make_rng, receive_all, send_all, shared, simulate
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.dma.structure import StructureReader, StructureWriter


def reader(data_width, *arguments):
    return shared(Alone, StructureReader, data_width, *arguments)


def read(requests, top, *, rng, stall=0.3, **memory_options):
    """(packets, memory, cycle of the first beat)."""
    dut, axi = top.block, top.axi
    memory = AxiMemory(axi, rng, **memory_options)
    requests = [within(address, length, dut.largest) for address, length in requests]
    count = sum(-(-n // (dut.data_width // 8)) for _, n in requests)
    items, times = [], {}

    async def feed(ctx):
        await ctx.tick()  # out of reset, the arbiter begins
        await send_all(ctx, dut.request, [{"address": a, "length": n} for a, n in requests], rng, stall)

    async def take(ctx):
        items.extend(await receive_all(ctx, dut.data, count, None))

    async def watch(ctx):
        async for _, _, asked, valid in ctx.tick().sample(dut.request.valid, dut.data.valid):
            for name, value in (("request", asked), ("data", valid)):
                if value:
                    times.setdefault(name, memory.now)

    simulate(top, feed, take, background=[watch, memory.run], seed=rng.seed_value, deadline=40_000)
    packets = packets_of(items, dut.data_width)
    assert [data for data, _ in packets] == [memory.memory.read(a, n) for a, n in requests]
    return packets, memory, times


@pytest.mark.parametrize("largest", [8, 64, 512, 2048])
@pytest.mark.parametrize("stall", [0, 0.4])
def test_reads_at_64_bits(largest, stall):
    rng = make_rng()
    requests = [(random_address(rng) & ~7, 8 * rng.randrange(1, 20)) for _ in range(30)] + [(0x1FE8, 4096)]
    read(requests, reader(64, 16, largest), rng=rng, stall=stall, latency=20, broken=range(0))


@pytest.mark.parametrize("data_width", [128, 256, 512])
@pytest.mark.parametrize(("reads", "largest"), [(16, 512), (1, 8), (64, 4096)])
def test_reads_are_shifted_above_64_bits(data_width, reads, largest):
    rng = make_rng()
    requests = [(random_address(rng) & ~7, 8 * rng.randrange(1, 40)) for _ in range(60)] + [(0x1FE8, 4096)]
    read(requests, reader(data_width, reads, largest), rng=rng, latency=20)


@pytest.mark.parametrize(("data_width", "beats"), [(64, 16), (64, 32), (256, 2)])
def test_no_more_beats_are_under_way(data_width, beats):
    """All of them are, and one more never is; a read of fewer beats takes no more room than it needs."""
    rng = make_rng()
    top = reader(data_width, 16, 64, beats)
    dut, requests = top.block, [(64 * n, rng.choice([8, 64, 64])) for n in range(60)]
    memory = AxiMemory(top.axi, rng, latency=40)
    under_way = [0]

    async def feed(ctx):
        await ctx.tick()
        await send_all(ctx, dut.request, [{"address": a, "length": n} for a, n in requests])

    async def watch(ctx):
        read = dut.port
        ports = (read.burst.valid, read.burst.ready, read.burst.payload.length, read.valid)
        async for _, _, valid, ready, length, comes in ctx.tick().sample(*ports):
            under_way.append(under_way[-1] + (length + 1 if valid and ready else 0) - comes)

    async def take(ctx):
        await receive_all(ctx, dut.data, sum(-(-n // (data_width // 8)) for _, n in requests), None)

    simulate(top, feed, take, background=[watch, memory.run], seed=rng.seed_value, deadline=40_000)
    assert max(under_way) == beats


@pytest.mark.parametrize("data_width", [64, 256])
@pytest.mark.parametrize("largest", [64, 1024])
def test_data_in_the_next_cycle(data_width, largest):
    rng = make_rng()
    requests = [(0x1000 + 8 * rng.randrange(200), 8 * rng.randrange(1, 12)) for _ in range(40)]
    read(requests, reader(data_width, 16, largest), rng=rng, stall=0, latency=0, shuffle=False)


@settings(max_examples=15)
@given(piece_lists(granularity=8), st.sampled_from([64, 256]), st.integers(0, 1 << 32))
def test_any_place_and_length(requests, data_width, seed):
    read(requests, reader(data_width), rng=make_rng(seed), stall=0.1, latency=8)


@pytest.mark.parametrize("data_width", [64, 256])
def test_read_error_marks_its_packet_alone(data_width):
    rng = make_rng()
    requests = [(0x1000, 64), (0x1FC8, 56), (0x1000, 8), (0x1FC0, 64), (0x1000, 64)]
    packets, _, _ = read(requests, reader(data_width), rng=rng, latency=8, broken=range(0x1FF0, 0x1FF8))
    assert [error for _, error in packets] == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(("data_width", "after"), [(64, 1), (256, 5)])
def test_reads_in_flight_and_latency(data_width, after):
    requests = [(0x1000 + 64 * n, 64) for n in range(40)]
    _, memory, times = read(requests, reader(data_width), rng=make_rng(1), stall=0, shuffle=False)
    print(f"{memory.most_reads} reads in flight; request to ARVALID {memory.reads[0][0] - times['request']}")
    print(f"R to data {times['data'] - memory.beats[0]}, last read asked in cycle {memory.reads[-1][0]}")
    assert memory.most_reads >= 16
    assert memory.reads[0][0] - times["request"] <= 1
    assert times["data"] - memory.beats[0] <= after


def write(requests, data_width, *, rng, stall=0.3, writes=16, largest=64, **memory_options):
    top = shared(Alone, StructureWriter, data_width, writes, largest)
    dut, axi = top.block, top.axi
    memory = AxiMemory(axi, rng, **{"answer": 10, **memory_options})
    expected, statuses, payloads = {}, [], []
    for address, length in requests:
        payloads.append(rng.randbytes(length))
        expected.update(zip(range(address, address + length), payloads[-1]))

    async def feed_requests(ctx):
        await send_all(ctx, dut.request, [{"address": a, "length": n} for a, n in requests], rng, stall)

    async def feed_data(ctx):
        await send_all(ctx, dut.data, [b for p in payloads for b in beats_of(p, data_width)], rng, stall)

    async def take(ctx):
        async for _, _, done, status in ctx.tick().sample(dut.done.valid, dut.done.payload.status):
            if done:
                statuses.append(status)
                assert len(memory.writes) - memory.unanswered >= len(statuses), "Done before the answer"
            if len(statuses) == len(requests):
                break
        for _ in range(20):
            _, _, done = await ctx.tick().sample(dut.done.valid)
            assert not done

    simulate(top, feed_requests, feed_data, take, background=[memory.run], seed=rng.seed_value)
    assert memory.memory.bytes == expected
    return statuses, memory


@pytest.mark.parametrize("largest", [64, 512])
@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
def test_writes(data_width, largest):
    rng = make_rng()
    requests = [(32 * n, rng.choice([16, 32])) for n in range(20)]
    for _ in range(60):
        length = 8 * rng.randrange(1, largest // 8 + 1)
        address = random_address(rng) & ~7
        requests.append((min(address, (address | 4095) + 1 - length), length))
    statuses, _ = write(requests, data_width, rng=rng, largest=largest)
    assert set(statuses) == {AccessStatus.OK}


def test_write_error():
    requests = [(0x1000, 32), (0x2000, 16), (0x3000, 32), (0x2000, 64), (0x2008, 8)]
    statuses, _ = write(requests, 64, rng=make_rng(), broken=range(0x2000, 0x2008))
    assert statuses == [0, AccessStatus.BUS, 0, AccessStatus.BUS, 0]


@pytest.mark.parametrize(
    ("reads", "largest", "message"),
    [(0, 64, "reads must be .* not 0"), (3, 64, "not 3"), (16, 4, "from 8 to 2048, not 4"), (16, 4096, "not 4096")],
)
def test_wrong_arguments(reads, largest, message):
    with pytest.raises(ValueError, match=message):
        StructureReader(64, reads, largest)


@pytest.mark.parametrize("writes", [2, 64])
def test_writes_in_flight(writes):
    """As many as it is made for, and no more: 32 bytes take 4 beats, and each answer some 300 cycles."""
    requests = [(32 * n, 32) for n in range(2 * writes)]
    _, memory = write(requests, 64, rng=make_rng(), stall=0, writes=writes, answer=300)
    assert memory.most_unanswered == writes


@pytest.mark.parametrize("writes", [1, 12, 128, 8.0])
def test_writes_that_are_refused(writes):
    with pytest.raises(ValueError, match="writes must be a power of two from 2 to 64"):
        StructureWriter(64, writes)


@pytest.mark.parametrize("largest", [32, 96, 4096, 64.0])
def test_sizes_that_are_refused(largest):
    with pytest.raises(ValueError, match="largest must be a power of two from 64 to 2048"):
        StructureWriter(64, 2, largest)
