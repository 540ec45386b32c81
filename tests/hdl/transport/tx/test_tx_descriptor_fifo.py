"""Order, and how much payload waits."""

import pytest
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.transport.common.layouts import TxDescriptorKind
from verbena.hdl.transport.tx.tx_descriptor_fifo import TxDescriptorFifo


@pytest.mark.parametrize("counted", [TxDescriptorKind.REQUEST, TxDescriptorKind.RESPONSE])
def test_order_and_payload_inside(counted):
    rng = make_rng()
    limit = {TxDescriptorKind.REQUEST: 1000, TxDescriptorKind.RESPONSE: 700}
    dut = TxDescriptorFifo(8, *limit.values(), 8)
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


@pytest.mark.parametrize("limit", [0, -1, 1.5])
def test_arguments(limit):
    with pytest.raises(ValueError, match="request_limit must be"):
        TxDescriptorFifo(8, limit, 1000, 8)
    with pytest.raises(ValueError, match="response_limit must be"):
        TxDescriptorFifo(8, 1000, limit, 8)
