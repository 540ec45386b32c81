"""The merge of requests and responses: order, wholeness, fairness."""

import pytest
from streams import make_rng, pause, receive_all, send_all, simulate
from verbena.hdl.transport.common.layouts import PayloadSource, TxDescriptorKind
from verbena.hdl.transport.tx.transmit_merge import TransmitMerge

REQUEST_ONLY = ("address", "rkey", "dma_length", "immediate")
BOTH = ("opcode", "solicited", "ack_request", "psn", "length", "syndrome", "msn")
WIDTHS = {"address": 64, "rkey": 32, "dma_length": 32, "immediate": 32, "syndrome": 8, "msn": 24, "opcode": 8}
WIDTHS |= {"solicited": 1, "ack_request": 1, "psn": 24, "length": 13}


def packets_of(rng, response, count):
    """(TX descriptor, run) of each packet; ``psn`` is the packet's number, and each access carries it, too."""
    packets = []
    for number in range(count):
        fields = {name: rng.randrange(1 << WIDTHS[name]) for name in BOTH + (() if response else REQUEST_ONLY)}
        descriptor = {
            "transport": fields | {"psn": number},
            "qp": rng.randrange(1 << 12),
            "wqe_index": 0 if response else rng.randrange(1 << 16),
            "traffic_class": 0 if response else rng.randrange(1 << 8),
            "kind": TxDescriptorKind(rng.choice([1, 3] if response else [0, 2, 4])),
            "source": PayloadSource(rng.randrange(3)),
            "message_last": rng.randrange(2),
        }
        size = rng.choice([1, 1, 2, 6])
        run = [
            {
                "key": number,
                "address": rng.randrange(1 << 64),
                "length": rng.randrange(1 << 13),
                "span": rng.getrandbits(32),
                "pd": rng.randrange(1 << 24),
                "access": rng.randrange(32),
                "qp": descriptor["qp"],
                "quiet": rng.randrange(2),
                "discard": rng.randrange(2),
                "clear": rng.randrange(2),
                "fresh": rng.randrange(2),
                "tag": response,
                "last": k == size - 1,
            }
            for k in range(size)
        ]
        packets.append((descriptor, run))
    return packets


@pytest.mark.parametrize("stall", [0, 0.3, 0.8])
def test_random(stall):
    rng = make_rng()
    dut = TransmitMerge()
    count = 60
    sent = [packets_of(rng, response, count) for response in (0, 1)]
    descriptors, accesses = [], []
    total = sum(len(run) for packets in sent for _, run in packets)

    def feeder(port, items):
        async def feed(ctx):
            for item in items:
                if rng.random() < 0.1:
                    await pause(ctx, rng, 0.95)  # a source that has nothing to send
                await send_all(ctx, port, [item], rng, stall)

        return feed

    async def descriptor_sink(ctx):
        descriptors.extend(await receive_all(ctx, dut.packet, 2 * count, rng, stall))

    async def access_sink(ctx):
        accesses.extend(await receive_all(ctx, dut.access, total, rng, stall))

    simulate(
        dut,
        *(feeder(port.packet, [d for d, _ in packets]) for port, packets in zip((dut.request, dut.response), sent)),
        *(
            feeder(port.access, [access for _, run in packets for access in run])
            for port, packets in zip((dut.request, dut.response), sent)
        ),
        descriptor_sink,
        access_sink,
        seed=rng.seed_value,
    )
    runs, begins = [], 0
    for at, access in enumerate(accesses, 1):
        if access["last"]:
            runs.append(accesses[begins:at])
            begins = at
    assert begins == total
    after = [0, 0]
    for descriptor, run in zip(descriptors, runs, strict=True):
        response = descriptor["kind"] in (TxDescriptorKind.RESPONSE, TxDescriptorKind.RESPONSE_TOKEN)
        want, want_run = sent[response][after[response]]
        after[response] += 1
        assert run == want_run
        for name in BOTH + (() if response else REQUEST_ONLY):
            assert descriptor["transport"][name] == want["transport"][name], name
        for name in ("qp", "source", "message_last", *(() if response else ("wqe_index", "traffic_class"))):
            assert descriptor[name] == want[name], name
    assert after == [count, count]


def test_round_robin():
    """Two sources that always want to send alternate; a packet of one access takes two cycles."""
    dut = TransmitMerge()
    count, kinds = 8, []
    packet = {"source": PayloadSource.MEMORY, "message_last": 1}

    def feeder(port, items):
        async def feed(ctx):
            await send_all(ctx, port, items)

        return feed

    async def sink(ctx):
        ctx.set(dut.access.ready, 1)
        ctx.set(dut.packet.ready, 1)
        for cycle in range(4 * count + 2):
            _, _, valid, kind = await ctx.tick().sample(dut.packet.valid, dut.packet.payload.kind)
            if valid:
                kinds.append((cycle, kind))

    simulate(
        dut,
        feeder(dut.request.packet, [packet | {"kind": TxDescriptorKind.REQUEST}] * count),
        feeder(dut.response.packet, [packet | {"kind": TxDescriptorKind.RESPONSE}] * count),
        feeder(dut.request.access, [{"last": 1}] * count),
        feeder(dut.response.access, [{"last": 1}] * count),
        sink,
    )
    assert [kind for _, kind in kinds] == [TxDescriptorKind.REQUEST, TxDescriptorKind.RESPONSE] * count
    assert kinds[-1][0] <= 4 * count
