"""Datagrams to groups, among other packets."""

from itertools import pairwise

import pytest
from ether_frames import beats, frames_of
from network_frames import MAPPED, member_words
from streams import collect, make_rng, send_all, simulate
from verbena.hdl.wire.multicast import MulticastReplicator
from verbena.hdl.wire.opcodes import opcode

UD, UD_IMM, SEND, ACK = (
    opcode(name) for name in ("UD_SEND_ONLY", "UD_SEND_ONLY_WITH_IMMEDIATE", "RC_SEND_ONLY", "RC_ACKNOWLEDGE")
)
GROUP_QPN = 0xFFFFFF
FOUR, SIX, EMPTY = MAPPED | 0xE0000105, 0xFF0E << 112 | 0x123456, 0xFF0E << 112 | 0x123457
MEMBERS = {3: (FOUR, 7), 4: (SIX, 0xABCDEF), 9: (FOUR, 8), 10: (FOUR, 0x123456), 31: (SIX, 7)}


def header(number, code, length, gid, *, qpn=GROUP_QPN, group=1):
    four = gid >> 32 == 0xFFFF
    raw = bytes(36) + (gid & 0xFFFFFFFF).to_bytes(4, "big") if four else bytes(24) + gid.to_bytes(16, "big")
    transport = {"opcode": code, "length": length, "psn": number, "dest_qpn": qpn}
    return {
        "header": {"transport": transport, "gid_found": 1 - group},
        "network": int.from_bytes(raw, "little"),
        "networks": 1 if four else 2,
        "group": group,
    }


def copies(sent):
    """What comes out for a header: pairs of destination, and whether that is one of this adapter's."""
    transport = sent["header"]["transport"]
    raw = sent["network"].to_bytes(40, "little")
    gid = MAPPED | int.from_bytes(raw[36:], "big") if sent["networks"] == 1 else int.from_bytes(raw[24:], "big")
    if sent["group"] and transport["dest_qpn"] == GROUP_QPN and transport["opcode"] in (UD, UD_IMM):
        return [(qpn, 1) for group, qpn in MEMBERS.values() if group == gid] or [(GROUP_QPN, 0)]
    return [(transport["dest_qpn"], sent["header"]["gid_found"])]


def run(width, packets, *, stall=0.0, rng=None, waiting=16):
    """``packets``: pairs of header and payload. What comes out, headers and payloads, and when the headers do."""
    rng = rng or make_rng()
    dut = MulticastReplicator(width, waiting)
    flow = [beat for _, payload in packets if payload for beat in beats(payload, width, rng=rng)]
    got, items, times = [], [], []

    async def headers_in(ctx):
        ctx.set(dut.member_en, 1)
        for write in member_words(MEMBERS):
            ctx.set(dut.member, write)
            await ctx.tick()
        ctx.set(dut.member_en, 0)
        await send_all(ctx, dut.header, [sent for sent, _ in packets], rng, stall)

    async def payload_in(ctx):
        await send_all(ctx, dut.payload, flow, rng, stall)
        while ctx.get(dut.busy) or len(got) < sum(len(copies(sent)) for sent, _ in packets):
            await ctx.tick()
        await ctx.tick().repeat(20)

    async def headers_out(ctx):
        await collect(ctx, dut.o_header, got, rng, stall)

    async def payload_out(ctx):
        await collect(ctx, dut.o, items, rng, stall)

    async def watch(ctx):
        cycle = 0
        async for _, _, moves in ctx.tick().sample(dut.o_header.valid & dut.o_header.ready):
            times.extend([cycle] if moves else [])
            cycle += 1

    background = (headers_out, payload_out, watch)
    simulate(dut, headers_in, payload_in, background=background, seed=rng.seed_value, deadline=60_000)
    return got, frames_of(items, width), times


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_groups_among_others(width, stall):
    """Each member's copy, in order; and what is for no group, or for one without a member, once."""
    rng = make_rng()
    packets = []
    for number in range(70):
        length = rng.choice([0, 1, 8, 63, 64, 65, rng.randrange(200)])
        kind = rng.randrange(8)
        gid = rng.choice([FOUR, SIX, EMPTY, FOUR ^ 1])
        if kind < 4:
            sent = header(number, rng.choice([UD, UD_IMM]), length, gid)
        elif kind == 4:  # what no sender of groups says
            code, qpn = rng.choice([(SEND, GROUP_QPN), (UD, 7), (ACK, 8)])
            sent = header(number, code, 0 if code == ACK else length, gid, qpn=qpn)
        else:
            code = rng.choice([UD, SEND, ACK])
            sent = header(number, code, 0 if code == ACK else length, gid, qpn=rng.getrandbits(24), group=0)
        packets.append((sent, rng.randbytes(sent["header"]["transport"]["length"])))
    packets.append((header(99, UD, 4096, FOUR), rng.randbytes(4096)))
    packets.append((header(100, UD, 0, SIX), b""))
    got, payloads, _ = run(width, packets, stall=stall, rng=rng)
    wanted = [(sent, payload, *copy) for sent, payload in packets for copy in copies(sent)]
    for each, (sent, payload, qpn, found) in zip(got, wanted, strict=True):
        transport = each.header.transport
        assert (transport.psn, transport.opcode) == tuple(sent["header"]["transport"][key] for key in ("psn", "opcode"))
        assert (transport.length, transport.dest_qpn, each.header.gid_found) == (len(payload), qpn, found)
        assert (each.network, each.networks) == (sent["network"], sent["networks"])
    assert payloads == [(payload, False) for _, payload, *_ in wanted if payload]


def test_cycles():
    """As the docstring says."""
    plain = [(header(n, SEND, 8, FOUR, qpn=n, group=0), bytes(8)) for n in range(6)]
    *_, times = run(64, plain)
    assert [b - a for a, b in pairwise(times)] == [2] * 5
    for size in (8, 4096):
        *_, times = run(64, [(header(0, UD, size, FOUR), bytes(size))])
        assert len(times) == 3
        assert {b - a for a, b in pairwise(times)} <= {size // 8 + n for n in range(4, 7)}, times


def test_payload_that_is_late():
    """Headers run ahead of their payloads by as many packets as may wait."""
    packets = [(header(n, SEND, 24, FOUR, qpn=n, group=0), bytes([n]) * 24) for n in range(12)]
    packets.insert(6, (header(99, UD, 100, SIX), b"x" * 100))
    got, payloads, _ = run(64, packets, stall=0.6, waiting=4)
    assert [each.header.transport.psn for each in got] == [0, 1, 2, 3, 4, 5, 99, 99, 6, 7, 8, 9, 10, 11]
    assert [payload[:1] for payload, _ in payloads] == [
        *(bytes([n]) for n in range(6)),
        b"x",
        b"x",
        *(bytes([n]) for n in range(6, 12)),
    ]
