"""Headers in front of datagrams."""

import pytest
from ether_frames import beats, frames_of
from streams import collect, make_rng, send_all, simulate
from verbena.hdl.wire.grh_insert import GrhInsert
from verbena.hdl.wire.opcodes import opcode

UD, UD_IMM, SEND, ACK = (
    opcode(name) for name in ("UD_SEND_ONLY", "UD_SEND_ONLY_WITH_IMMEDIATE", "RC_SEND_ONLY", "RC_ACKNOWLEDGE")
)


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_datagrams_among_others(width, stall):
    rng = make_rng()
    dut = GrhInsert(width)
    packets = [(code, rng.randbytes(n), rng.randbytes(40)) for code in (UD, UD_IMM, SEND) for n in range(70)]
    packets += [(ACK, b"", rng.randbytes(40))] * 20 + [(UD, rng.randbytes(300), rng.randbytes(40))] * 4
    rng.shuffle(packets)
    headers = [
        {
            "header": {"transport": {"opcode": code, "length": len(payload), "psn": number}},
            "network": int.from_bytes(network, "little"),
        }
        for number, (code, payload, network) in enumerate(packets)
    ]
    flow = [beat for _, payload, _ in packets if payload for beat in beats(payload, width, rng=rng)]
    got, items = [], []

    async def headers_in(ctx):
        await send_all(ctx, dut.header, headers, rng, stall)

    async def payload_in(ctx):
        await send_all(ctx, dut.payload, flow, rng, stall)
        await ctx.tick().repeat(100)

    async def headers_out(ctx):
        await collect(ctx, dut.o_header, got, rng, stall)

    async def payload_out(ctx):
        await collect(ctx, dut.o, items, rng, stall)

    simulate(dut, headers_in, payload_in, background=(headers_out, payload_out), seed=rng.seed_value)
    expected = [(network if code in (UD, UD_IMM) else b"") + payload for code, payload, network in packets]
    assert frames_of(items, width) == [(payload, False) for payload in expected if payload]
    said = [(each.transport.psn, each.transport.opcode, each.transport.length) for each in got]
    assert said == [(number, code, len(payload)) for number, (code, payload, _) in enumerate(packets)]
