"""Raw frames among packets, on their way to the wire."""

import pytest
from ether_frames import beats, frames_of
from streams import collect, make_rng, send_all, simulate
from verbena.hdl.wire.opcodes import RAW_SEND, opcode
from verbena.hdl.wire.raw_transmit import FRAMES, LEAST_FRAME, RawTransmit

SLOW = pytest.mark.slow
WIDTHS = [64, pytest.param(128, marks=SLOW), pytest.param(256, marks=SLOW), 512]
SEND, ACK = opcode("RC_SEND_ONLY"), opcode("RC_ACKNOWLEDGE")


def run(width, packets, rng, stall=0.0, stall_frames=0.0, pause=0):
    """``packets``: (opcode, payload, error). Returns headers, payload and frames that came out."""
    dut = RawTransmit(width)
    headers, payload, frames, sent = [], [], [], []

    async def producer(ctx):
        for number, (code, content, error) in enumerate(packets):
            header = {"transport": {"opcode": code, "length": len(content), "psn": number}}
            await send_all(ctx, dut.header, [header], rng, stall)
            if content:
                await send_all(ctx, dut.payload, beats(content, width, error=error, rng=rng), rng, stall)
        await ctx.tick().repeat(100 + pause + int(1.5 * FRAMES * 4096 * 8 / width / (1 - stall_frames)))

    async def headers_out(ctx):
        await collect(ctx, dut.o_header, headers, rng, stall)

    async def payload_out(ctx):
        await collect(ctx, dut.o, payload, rng, stall)

    async def frames_out(ctx):
        if pause:
            await ctx.tick().repeat(pause)
        await collect(ctx, dut.frame, frames, rng, stall_frames)

    async def counted(ctx):
        async for _, _, strobe in ctx.tick().sample(dut.count_raw_tx_packets):
            sent.append(strobe)

    simulate(
        dut,
        producer,
        background=(headers_out, payload_out, frames_out, counted),
        seed=rng.seed_value,
        deadline=100_000,
    )
    return headers, frames_of(payload, width), frames_of(frames, width), sum(sent)


@pytest.mark.parametrize("stall", [pytest.param(0.0, marks=SLOW), 0.4])
@pytest.mark.parametrize("width", WIDTHS)
def test_frames_among_packets(width, stall):
    rng = make_rng()
    packets = [(RAW_SEND | rng.randrange(2), rng.randbytes(n), False) for n in (*range(14, 70, 3), *range(56, 66), 200)]
    packets += [(SEND, rng.randbytes(n), False) for n in range(1, 70, 4)] + [(ACK, b"", False)] * 10
    packets += [(RAW_SEND, rng.randbytes(n), True) for n in (14, 30, 59, 60, 61, 500)]
    packets += [(SEND, rng.randbytes(50), True)] * 2 + [(RAW_SEND, b"", False)] * 2
    rng.shuffle(packets)
    headers, payload, frames, count = run(width, packets, rng, stall)
    others = [(number, content, error) for number, (code, content, error) in enumerate(packets) if code < 0x80]
    assert [each.transport.psn for each in headers] == [number for number, _, _ in others]
    assert payload == [(content, error) for _, content, error in others if content]
    good = [content for code, content, error in packets if code >= 0x80 and content and not error]
    assert frames == [(content.ljust(LEAST_FRAME, b"\0"), False) for content in good]
    assert count == len(good)


@pytest.mark.parametrize("width", [pytest.param(64, marks=SLOW), 512])
def test_the_largest_frames_wait_for_a_slow_wire(width):
    rng = make_rng()
    packets = [(RAW_SEND, rng.randbytes(4096), n == 2) for n in range(FRAMES + 2)]
    _, _, frames, _ = run(width, packets, rng, stall_frames=0.5)
    assert frames == [(content, False) for _, content, error in packets if not error]


@pytest.mark.parametrize("width", [pytest.param(64, marks=SLOW), 512])
def test_the_largest_frames_wait_for_a_wire_that_stands(width):
    """Behind the last that fits the next one's header waits, and its payload with it."""
    rng = make_rng()
    packets = [(RAW_SEND, rng.randbytes(4096), False) for _ in range(FRAMES + 2)]
    _, _, frames, count = run(width, packets, rng, pause=8 * 4096 * 8 // width)
    assert frames == [(content, False) for _, content, _ in packets]
    assert count == len(packets)
