"""Packets and raw frames in one order."""

from itertools import pairwise

import pytest
from ether_frames import beats, frames_of
from streams import collect, make_rng, send_all, simulate
from verbena.hdl.wire.opcodes import RAW_SEND, opcode
from verbena.hdl.wire.receive_merge import ReceiveMerge

SEND, ACK, UD = opcode("RC_SEND_ONLY"), opcode("RC_ACKNOWLEDGE"), opcode("UD_SEND_ONLY")


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("width", [64, 512])
@pytest.mark.parametrize("grh", [False, True])
def test_headers_and_payload_keep_together(grh, width, stall):
    rng = make_rng()
    dut = ReceiveMerge(width, 8, grh)
    codes = [rng.choice((SEND, ACK, UD)) for _ in range(80)]
    sources = [[(code, b"" if code == ACK else rng.randbytes(rng.randrange(90))) for code in codes]]
    sources += [[(RAW_SEND, rng.randbytes(rng.randrange(14, 200))) for _ in range(40)]]
    got, items = [], []

    def headers(number):
        packets = [
            {"transport": {"opcode": code, "length": len(payload), "psn": 1000 * number + n}}
            for n, (code, payload) in enumerate(sources[number])
        ]

        async def send(ctx):
            await send_all(ctx, dut.header[number], packets, rng, stall)

        return send

    def content(code, payload):
        return bytes(40) + payload if grh and code == UD else payload

    def payloads(number):
        flow = [beat for each in sources[number] if content(*each) for beat in beats(content(*each), width, rng=rng)]

        async def send(ctx):
            await send_all(ctx, dut.payload[number], flow, rng, stall)
            await ctx.tick().repeat(50)

        return send

    async def headers_out(ctx):
        await collect(ctx, dut.o_header, got, rng, stall)

    async def payload_out(ctx):
        await collect(ctx, dut.o, items, rng, stall)

    benches = [make(number) for number in range(2) for make in (headers, payloads)]
    simulate(dut, *benches, background=(headers_out, payload_out), seed=rng.seed_value)
    order = [divmod(header.transport.psn, 1000) for header in got]
    assert sorted(order) == [(number, n) for number in range(2) for n in range(len(sources[number]))]
    for number in range(2):
        assert [n for source, n in order if source == number] == list(range(len(sources[number])))
    expected = [content(*sources[source][n]) for source, n in order]
    assert frames_of(items, width) == [(each, False) for each in expected if each]


def test_in_turns():
    """While both wait they take turns, and whoever waits alone loses nothing."""
    dut = ReceiveMerge(64, 8)
    rng = make_rng()
    seen = []  # a PSN or None, for each cycle
    raw = [{"transport": {"opcode": RAW_SEND, "psn": n}} for n in range(60)]
    packets = [{"transport": {"opcode": ACK, "psn": 100 + n}} for n in range(20)]

    async def frames(ctx):
        await send_all(ctx, dut.header[1], raw, rng, 0)

    async def others(ctx):
        await ctx.tick().repeat(31)
        await send_all(ctx, dut.header[0], packets, rng, 0)
        await ctx.tick().repeat(100)

    async def out(ctx):
        ctx.set(dut.o_header.ready, 1)
        async for *_, valid, psn in ctx.tick().sample(dut.o_header.valid, dut.o_header.payload.transport.psn):
            seen.append(psn if valid else None)

    simulate(dut, frames, others, background=(out,), seed=rng.seed_value)
    cycles = [cycle for cycle, psn in enumerate(seen) if psn is not None]
    numbers = [seen[cycle] for cycle in cycles]
    first = numbers.index(100)
    assert 0 < first < 20
    assert numbers[first : first + 40 : 2] == list(range(100, 120))
    assert [psn for psn in numbers if psn < 100] == list(range(60))
    assert len(numbers) == 80
    assert {after - before for before, after in pairwise(cycles)} == {2}
