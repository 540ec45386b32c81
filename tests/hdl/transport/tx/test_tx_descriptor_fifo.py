"""Order, and how much payload waits."""

import pytest
from streams import make_rng, plain, receive_all, send_all, simulate
from verbena.hdl.stream.transfer import LENGTH_BITS
from verbena.hdl.transport.common.layouts import PayloadSource, TxDescriptorKind
from verbena.hdl.transport.tx.tx_descriptor_fifo import TxDescriptorFifo


@pytest.mark.parametrize("depth", [8, 32])
@pytest.mark.parametrize("counted", [TxDescriptorKind.REQUEST, TxDescriptorKind.RESPONSE])
def test_order_and_payload_inside(counted, depth):
    rng = make_rng()
    limit = {TxDescriptorKind.REQUEST: 1000, TxDescriptorKind.RESPONSE: 700}
    dut = TxDescriptorFifo(depth, *limit.values(), 8)
    kinds = list(TxDescriptorKind)
    sent = [
        {"qp": number, "kind": rng.choice(kinds).value, "transport": {"length": rng.choice((0, 8, 256, 4096))}}
        for number in range(200)
    ]
    inside, totals, told, leaving = [0], [0], [], 0

    async def watch(ctx):
        edges = aiter(
            ctx.tick().sample(
                *(
                    signal
                    for port in (dut.i, dut.o)
                    for signal in (port.valid & port.ready, port.payload.kind, port.payload.transport.length)
                ),
                dut.request_crowded if counted is TxDescriptorKind.REQUEST else dut.response_crowded,
            )
        )
        while True:
            change = 0
            _, _, *values = await anext(edges)
            for sign, (moves, kind, length) in ((1, values[:3]), (-1, values[3:6])):
                change += sign * length * (moves and kind == counted)
            nonlocal leaving
            leaving = max(leaving - 8, leaving % 8)
            if values[3] and values[4] == counted and values[5]:
                leaving = values[5]
            inside.append(inside[-1] + change)
            totals.append(inside[-1] + leaving)
            told.append(values[6])

    async def producer(ctx):
        await send_all(ctx, dut.i, sent, rng, 0.2)

    async def consumer(ctx):
        got = await receive_all(ctx, dut.o, len(sent), rng, 0.5)
        assert [item.qp for item in got] == [item["qp"] for item in sent]

    simulate(dut, producer, consumer, background=[watch], seed=rng.seed_value)
    assert set(told) == {0, 1}
    # A move in a cycle shows 4 cycles later.
    assert told[4:] == [int(total >= limit[counted]) for total in totals[1 : len(told) - 3]]


WIDTHS = {"qp": 12, "wqe_index": 16, "message_last": 1, "traffic_class": 8}
TRANSPORT_WIDTHS = {
    "opcode": 8,
    "solicited": 1,
    "ack_request": 1,
    "psn": 24,
    "address": 64,
    "rkey": 32,
    "dma_length": 32,
    "syndrome": 8,
    "msn": 24,
    "immediate": 32,
    "length": LENGTH_BITS,
}


@pytest.mark.parametrize("depth", [4, 16, 32, 64])
@pytest.mark.parametrize(("slow_in", "slow_out"), [(0, 0), (0.5, 0), (0, 0.9), (0.8, 0.8)])
def test_all_fields(depth, slow_in, slow_out):
    """They come out as they went in, and as many are inside as there is room for."""
    rng = make_rng()
    dut = TxDescriptorFifo(depth, 1000, 1000, 8)
    sent = [
        {name: rng.getrandbits(width) for name, width in WIDTHS.items()}
        | {"kind": rng.choice(list(TxDescriptorKind)), "source": rng.choice(list(PayloadSource))}
        | {"transport": {name: rng.getrandbits(width) for name, width in TRANSPORT_WIDTHS.items()}}
        for _ in range(3 * depth)
    ]
    got, most = [], []

    async def give(ctx):
        await send_all(ctx, dut.i, sent, rng if slow_in else None, slow_in)

    async def take(ctx):
        for _ in range(10 * depth):
            await ctx.tick()
        got.extend(
            plain(item) for item in await receive_all(ctx, dut.o, len(sent), rng if slow_out else None, slow_out)
        )

    async def watch(ctx):
        """What is next is so until it is taken."""
        inside, taken, known = 0, 0, None
        signals = (dut.next, dut.next_qp, dut.i.valid & dut.i.ready, dut.o.valid, dut.o.ready, dut.o.payload.qp)
        async for _, _, some, qp, comes, valid, ready, mine in ctx.tick().sample(*signals):
            assert some or not valid
            if some:
                assert qp == sent[taken]["qp"]
                assert known in (None, qp)
            else:
                assert known is None
            if valid:
                assert mine == qp
            known = qp if some and not (valid and ready) else None
            taken += valid & ready
            inside += comes - (valid & ready)
            most.append(inside)

    simulate(dut, give, take, background=[watch], seed=rng.seed_value)
    for ours, theirs in zip(got, sent, strict=True):
        transport = theirs["transport"] | {"becn": 0, "pkey": 0, "dest_qpn": 0}
        assert ours == theirs | {"transport": transport}
    assert max(most) == depth


@pytest.mark.parametrize(("depth", "first", "period"), [(16, (2, 2), 2), (32, (1, 8), 7)])
def test_cycles(depth, first, period):
    """``first``: of ``next``, and of ``o``. The next one is known early enough to read its path in 7 cycles."""
    dut = TxDescriptorFifo(depth, 1000, 1000, 8)
    known, came = [], []

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.i.valid, 1)
        for cycle in range(60):
            known.append(ctx.get(dut.next))
            if ctx.get(dut.o.valid):
                came.append(cycle)
            await ctx.tick()

    simulate(dut, testbench)
    assert (known.index(1), came[0]) == first
    assert came == list(range(came[0], 60, period))


@pytest.mark.parametrize("limit", [0, -1, 1.5])
def test_arguments(limit):
    with pytest.raises(ValueError, match="request_limit must be"):
        TxDescriptorFifo(8, limit, 1000, 8)
    with pytest.raises(ValueError, match="response_limit must be"):
        TxDescriptorFifo(8, 1000, limit, 8)
