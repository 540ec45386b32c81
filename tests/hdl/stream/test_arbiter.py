import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module
from amaranth.lib import wiring
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.arbiter import FirstArbiter, PacketArbiter, SliceArbiter, StreamArbiter
from verbena.hdl.stream.slice import Slice


def merge(dut, items, rng, stalls):
    """Sends ``items[k]`` to input k; what came out."""
    received = []

    def producer(number):
        async def testbench(ctx):
            await send_all(ctx, dut.i[number], items[number], rng, stalls[0])

        return testbench

    async def consumer(ctx):
        received.extend(await receive_all(ctx, dut.o, sum(map(len, items)), rng, stalls[1]))

    simulate(dut, *(producer(number) for number in range(len(items))), consumer, seed=rng.seed_value)
    return received


@pytest.mark.parametrize("arbiter", [StreamArbiter, SliceArbiter])
@pytest.mark.parametrize("stalls", [(0, 0), (0.3, 0.3), (0.9, 0.1)])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_items_are_neither_lost_nor_reordered(count, stalls, arbiter):
    rng = make_rng()
    items = [[number << 12 | k for k in range(100)] for number in range(count)]
    received = merge(arbiter(16, count), items, rng, stalls)
    for number in range(count):
        assert [item for item in received if item >> 12 == number] == items[number]


@pytest.mark.parametrize("arbiter", [StreamArbiter, SliceArbiter])
def test_items_are_served_in_turn(arbiter):
    items = [[number << 12 | k for k in range(50)] for number in range(3)]
    received = merge(arbiter(16, 3), items, make_rng(), (0, 0))
    assert [item >> 12 for item in received] == [0, 1, 2] * 50


@pytest.mark.parametrize("count", [2, 3, 4])
def test_slice_arbiter_is_an_arbiter_and_a_slice(count):
    rng = make_rng()
    m, dut, arbiter, slice_ = Module(), SliceArbiter(16, count), StreamArbiter(16, count), Slice(16)
    m.submodules += [dut, arbiter, slice_]
    wiring.connect(m, arbiter.o, slice_.i)
    for ours, theirs in zip(dut.i, arbiter.i, strict=True):
        m.d.comb += [theirs.valid.eq(ours.valid), theirs.payload.eq(ours.payload)]
    m.d.comb += slice_.o.ready.eq(dut.o.ready)
    seen = set()

    async def testbench(ctx):
        moved = [1] * count
        for _ in range(2000):
            for port, may_change in zip(dut.i, moved, strict=True):
                if may_change:
                    ctx.set(port.valid, rng.random() < 0.4)
                    ctx.set(port.payload, rng.getrandbits(16))
            ctx.set(dut.o.ready, rng.random() < 0.6)
            ready = [ctx.get(port.ready) for port in dut.i]
            assert ready == [ctx.get(port.ready) for port in arbiter.i]
            assert ctx.get(dut.o.valid) == ctx.get(slice_.o.valid)
            if ctx.get(dut.o.valid):
                assert ctx.get(dut.o.payload) == ctx.get(slice_.o.payload)
                seen.add(ctx.get(dut.grant))
            moved = [ctx.get(port.ready) or not ctx.get(port.valid) for port in dut.i]
            await ctx.tick()

    simulate(m, testbench, seed=rng.seed_value)
    assert len(seen) == count


@pytest.mark.parametrize("stalls", [(0.5, 0), (0.9, 0.3)])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_first_loses_nothing(count, stalls):
    rng = make_rng()
    items = [[number << 12 | k for k in range(100)] for number in range(count)]
    received = merge(FirstArbiter(16, count), items, rng, stalls)
    for number in range(count):
        assert [item for item in received if item >> 12 == number] == items[number]


def test_first_passes_at_once():
    dut = FirstArbiter(16, 3)

    async def testbench(ctx):
        for valid in range(8):
            for number in range(3):
                ctx.set(dut.i[number].valid, valid >> number & 1)
                ctx.set(dut.i[number].payload, 100 + number)
            for ready in range(2):
                ctx.set(dut.o.ready, ready)
                first = next((n for n in range(3) if valid >> n & 1), None)
                assert ctx.get(dut.o.valid) == (first is not None)
                if first is not None:
                    assert ctx.get(dut.o.payload) == 100 + first
                    taken = [n for n in range(3) if valid >> n & ctx.get(dut.i[n].ready)]
                    assert taken == [first] * ready
                await ctx.tick()

    simulate(dut, testbench)


@pytest.mark.parametrize("active", [[0], [2], [0, 2], [0, 1, 2]])
def test_an_item_each_cycle(active):
    dut = StreamArbiter(16, 3)

    async def testbench(ctx):
        for number in active:
            ctx.set(dut.i[number].valid, 1)
        await ctx.tick()
        ctx.set(dut.o.ready, 1)
        for _ in range(20):
            assert ctx.get(dut.o.valid)
            await ctx.tick()

    simulate(dut, testbench)


def packets(rng, number, count):
    beats = []
    for k in range(count):
        length = rng.choice([1, 1, 2, 5])
        for j in range(length):
            beats.append(
                {
                    "data": number << 32 | k << 16 | j,
                    "count": 8,
                    "first": j == 0,
                    "last": j == length - 1,
                    "error": k % 7 == 0,
                }
            )
    return beats


@pytest.mark.parametrize("stalls", [(0, 0), (0.3, 0.3), (0.8, 0.1)])
@pytest.mark.parametrize("priority", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_packets_pass_whole(count, priority, stalls):
    rng = make_rng()
    sent = [packets(rng, number, 40) for number in range(count)]
    received = merge(PacketArbiter(64, count, priority=priority), sent, rng, stalls)
    for number in range(count):
        assert [beat for beat in received if beat.data >> 32 == number] == sent[number]
    owner = None
    for beat in received:
        assert beat.first == (owner is None)
        assert owner in (None, beat.data >> 32)
        owner = None if beat.last else beat.data >> 32


def owners(received):
    return [beat.data >> 32 for beat in received if beat.last]


def test_round_robin_of_packets():
    rng = make_rng()
    received = merge(PacketArbiter(64, 3), [packets(rng, number, 20) for number in range(3)], rng, (0, 0))
    assert owners(received) == [0, 1, 2] * 20


def test_priority_is_strict():
    rng = make_rng()
    received = merge(PacketArbiter(64, 3, priority=True), [packets(rng, n, 20) for n in range(3)], rng, (0, 0))
    assert owners(received) == [0] * 20 + [1] * 20 + [2] * 20


def test_priority_interrupts_between_packets():
    dut = PacketArbiter(64, 2, priority=True)

    async def low(ctx):
        await send_all(ctx, dut.i[1], packets(make_rng(1), 1, 30))

    async def high(ctx):
        await ctx.tick().repeat(10)
        await send_all(ctx, dut.i[0], packets(make_rng(2), 0, 2))

    received = []

    async def consumer(ctx):
        while sum(beat.last for beat in received) < 32:
            received.extend(await receive_all(ctx, dut.o, 1))

    simulate(dut, low, high, consumer)
    order = owners(received)
    assert order.index(0) < 12
    assert order[order.index(0) + 1] == 0


def test_converts_and_refuses():
    rtlil.convert(StreamArbiter(16, 3))
    rtlil.convert(PacketArbiter(64, 2, priority=True))
    with pytest.raises(ValueError, match="1"):
        StreamArbiter(16, 1)
    with pytest.raises(ValueError, match="65"):
        PacketArbiter(65, 2)
