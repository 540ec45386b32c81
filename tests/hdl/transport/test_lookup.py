"""The lookup: who is let in, what goes where."""

from itertools import pairwise

import pytest
from amaranth.back import rtlil
from receive_world import ACKNOWLEDGE, attributes, write_attributes
from streams import collect, make_rng, send_all, simulate
from verbena.hdl.abi.contexts import QpState, QpType
from verbena.hdl.transport.lookup import Lookup

QPS = 8
FIELDS = {"address": 64, "rkey": 32, "dma_length": 32, "immediate": 32, "msn": 24, "syndrome": 8, "psn": 24}


def run(packets, values, *, stall=0.0, rng=None):
    """Sends headers to a lookup with the attributes ``values`` of each QP; what came out, and when they were taken."""
    dut = Lookup(QPS)
    rng = rng or make_rng()
    requests, acks, taken, drops = [], [], [], []

    async def script(ctx):
        for qp, fields in enumerate(values):
            await write_attributes(ctx, dut, qp, **fields)
        await send_all(ctx, dut.header, packets, rng, stall)
        for _ in range(10):
            await ctx.tick()

    async def count(ctx):
        cycle = 0
        while True:
            _, _, valid, ready, dropped = await ctx.tick().sample(dut.header.valid, dut.header.ready, dut.count_drop_qp)
            if valid and ready:
                taken.append(cycle)
            drops.append(dropped)
            cycle += 1

    async def request(ctx):
        await collect(ctx, dut.request, requests, rng, stall)

    async def ack(ctx):
        await collect(ctx, dut.ack, acks, rng, stall)

    simulate(dut, script, background=(request, ack, count), seed=rng.seed_value)
    return requests, acks, sum(drops), taken


def header(qp=1, opcode=0x0A, **more):
    transport = {"opcode": opcode, "dest_qpn": QPS + qp, "pkey": 0xFFFF, "length": 8, "psn": 5}
    transport.update({name: value for name, value in more.items() if name != "source_ip"})
    return {"transport": transport, "source_ip": more.get("source_ip", 0x0A000002)}


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_random_packets(stall):
    rng = make_rng()
    values = [
        attributes(
            state=rng.choice(list(QpState)),
            type=rng.choice([QpType.RC] * 4 + [QpType.UD]),
            pkey=rng.choice([0xFFFF, 0x7FFF, 0x8001]),
            dest_ip=rng.choice([1, 2]),
        )
        for _ in range(QPS)
    ]
    values[0] = attributes(pkey=0x7FFF, dest_ip=1)
    packets, requests, acks, dropped = [], [], [], 0
    for _ in range(200):
        qp = rng.randrange(QPS)
        opcode = rng.choice([0, 4, 10, 12, 19, 22, ACKNOWLEDGE, ACKNOWLEDGE, 13, 16, 18, 0x24, 0x64, 0x31])
        transport = {name: rng.getrandbits(width) for name, width in FIELDS.items()}
        transport |= {
            "opcode": opcode,
            "dest_qpn": rng.choice([QPS, QPS, QPS, 0, 2 * QPS, 1 << 23]) + qp,
            "pkey": rng.choice([0xFFFF, 0x7FFF, 0x8001, 0x0001]),
            "length": rng.choice([0, 0, 100]),
        }
        source = rng.choice([1, 2])
        packets.append({"transport": transport, "source_ip": source})
        mine = values[qp]
        ack = opcode == ACKNOWLEDGE and transport["length"] == 0
        accept = (
            mine["state"] in ((QpState.RTS, QpState.SQD) if ack else (QpState.RTR, QpState.RTS, QpState.SQD))
            and mine["type"] == QpType.RC
            and transport["dest_qpn"] == QPS + qp
            and (transport["pkey"] ^ mine["pkey"]) & 0x7FFF == 0
            and source == mine["dest_ip"]
            and opcode in (0, 4, 10, 12, 19, 22, *([ACKNOWLEDGE] if ack else []))
        )
        dropped += not accept
        if not ack:
            requests.append((transport, qp, int(accept)))
        elif accept:
            acks.append({"qp": qp} | {name: transport[name] for name in ("psn", "msn", "syndrome")})
    got_requests, got_acks, got_dropped, _ = run(packets, values, stall=stall, rng=rng)
    assert len(got_requests) == len(requests)
    for got, (transport, qp, accept) in zip(got_requests, requests):
        assert (got.qp, got.accept) == (qp, accept)
        assert {name: got.transport[name] for name in transport} == transport
    assert got_acks == acks
    assert got_dropped == dropped
    assert any(accept for _, _, accept in requests)


def test_an_ack_waits_for_nobody_else():
    """RTR sends nothing that could be acknowledged."""
    values = [attributes(state=QpState.RTR)] * QPS
    requests, acks, dropped, _ = run([header(), header(opcode=ACKNOWLEDGE, length=0)], values)
    assert ([r.accept for r in requests], acks, dropped) == ([1], [], 1)


def test_cycles():
    """A packet each 4 cycles, accepted or not."""
    packets = [header(), header(qp=2), header(opcode=ACKNOWLEDGE, length=0), header(source_ip=9), header(), header()]
    *_, taken = run(packets, [attributes()] * QPS)
    assert [b - a for a, b in pairwise(taken)] == [4] * (len(packets) - 1)


def test_arguments():
    with pytest.raises(ValueError, match="qps must be a power of two from 2 to 4096, not 12"):
        Lookup(12)


def test_converts():
    rtlil.convert(Lookup(64))
