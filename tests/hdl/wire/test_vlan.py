"""Tags put into frames and taken off, against scapy."""

import pytest
from ether_frames import MAC, PEER_MAC, beats, frames_of, mac_text
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw
from streams import make_rng, pause, receive_all, send_all, simulate
from verbena.hdl.wire.vlan import VlanInsert, VlanStrip

WIDTHS = [64, 128, 256, 512]


def frame(payload, tag=None, kind=0x0800):
    """With ``tag``, (VLAN, priority)."""
    head = Ether(dst=mac_text(MAC), src=mac_text(PEER_MAC))
    if tag is None:
        head.type = kind
        return bytes(head / Raw(payload))
    return bytes(head / Dot1Q(vlan=tag[0], prio=tag[1], type=kind) / Raw(payload))


def random_tag(rng):
    return rng.choice([None, (0, rng.randrange(8)), (rng.randrange(1, 4096), rng.randrange(8)), (100, 5)])


@pytest.mark.parametrize("stall", [0, 0.3])
@pytest.mark.parametrize("width", WIDTHS)
def test_strip(width, stall):
    rng = make_rng()
    dut = VlanStrip(width)
    cases = [(rng.randbytes(size), random_tag(rng), rng.randrange(4) == 0) for size in range(width // 4 + 20)]
    cases += [(rng.randbytes(2), (5, 1), False)] * 3
    items, tags = [], []

    async def sender(ctx):
        for payload, tag, error in cases:
            for beat in beats(frame(payload, tag), width, error=error, rng=rng):
                await pause(ctx, rng, stall)
                ctx.set(dut.i.payload, beat)
                ctx.set(dut.i.valid, 1)
                await ctx.tick()
                ctx.set(dut.i.valid, 0)
        await ctx.tick().repeat(5)

    async def receiver(ctx):
        ended = False
        async for _, _, valid, value, tag in ctx.tick().sample(dut.o.valid, dut.o.payload, dut.tag):
            if ended:
                tags.append((tag.tagged, tag.vlan, tag.priority))
            ended = bool(valid and value.last)
            if valid:
                items.append(value)

    simulate(dut, sender, background=(receiver,), seed=rng.seed_value)
    assert frames_of(items, width) == [(frame(payload), error) for payload, _, error in cases]
    for (tagged, *told), (_, tag, _) in zip(tags, cases, strict=True):
        assert tagged == (tag is not None and tag[0] != 0)
        assert not tagged or tuple(told) == tag


@pytest.mark.parametrize("width", WIDTHS)
def test_frames_cut_short(width):
    """A tag that is not whole is none; what comes behind is whole."""
    rng = make_rng()
    dut = VlanStrip(width)
    whole = frame(rng.randbytes(50), (7, 0))
    sent = [part for cut in range(1, 30) for part in (whole[:cut], whole)]
    items = []

    async def sender(ctx):
        for each in sent:
            for beat in beats(each, width, rng=rng):
                ctx.set(dut.i.payload, beat)
                ctx.set(dut.i.valid, 1)
                await ctx.tick()
        ctx.set(dut.i.valid, 0)
        await ctx.tick().repeat(5)

    async def receiver(ctx):
        async for _, _, valid, value in ctx.tick().sample(dut.o.valid, dut.o.payload):
            if valid:
                items.append(value)

    simulate(dut, sender, background=(receiver,), seed=rng.seed_value)
    got = [each for each, _ in frames_of(items, width)]
    assert got == [each if len(each) < 16 else each[:12] + each[16:] for each in sent]


@pytest.mark.parametrize("stall", [0, 0.3])
@pytest.mark.parametrize("width", WIDTHS)
def test_insert(width, stall):
    rng = make_rng()
    dut = VlanInsert(width)
    cases = [(rng.randbytes(size), random_tag(rng)) for size in range(2, width // 4 + 20)]
    cases = [(payload, None if tag and not tag[0] else tag) for payload, tag in cases]
    expected = [(frame(payload, tag), False) for payload, tag in cases]
    count = sum(-(-len(each) // (width // 8)) for each, _ in expected)
    items = []

    async def sender(ctx):
        for payload, tag in cases:
            fields = {"tagged": 0} if tag is None else {"tagged": 1, "vlan": tag[0], "priority": tag[1]}
            ctx.set(dut.tag, fields)
            await send_all(ctx, dut.i, beats(frame(payload), width, rng=rng), rng, stall)

    async def receiver(ctx):
        items.extend(await receive_all(ctx, dut.o, count, rng, stall))

    simulate(dut, sender, receiver, seed=rng.seed_value)
    assert frames_of(items, width) == expected
