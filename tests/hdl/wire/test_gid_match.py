"""Destinations against the table of GIDs."""

from network_frames import MAPPED, TABLE, TAGS, gid_words, is_mapped
from streams import collect, make_rng, send_all, simulate
from verbena.hdl.wire.gid_match import GidMatch


def arrived(gid, six, vlan=0):
    """A header to ``gid`` over IPv6 or IPv4, of a frame with a tag of this VLAN, or none."""
    at = 24 if six else 36
    tag = {"tagged": vlan != 0, "vlan": vlan, "priority": gid % 8}
    raw = bytes(at) + (gid.to_bytes(16, "big") if six else (gid & 0xFFFFFFFF).to_bytes(4, "big"))
    return {
        "header": {"transport": {"psn": gid & 0xFFFF}},
        "network": int.from_bytes(raw, "little"),
        "networks": 1 + six,
        "tag": tag,
    }


def test_rows():
    """Each row is found over its own network, and no other address is, also if it differs in one bit."""
    rng = make_rng()
    dut = GidMatch()
    cases = []
    for index, (gid, _) in TABLE.items():
        six, vlan = not is_mapped(gid), TAGS.get(index, (0, 0))[0]
        cases.append((arrived(gid, six, vlan), index))
        cases += [(arrived(gid, six, vlan ^ 1 << bit), None) for bit in rng.sample(range(12), 3)]
        cases += [(arrived(gid, six, 0 if vlan else 100), None)]
        cases += [(arrived(gid ^ 1 << bit, six, vlan), None) for bit in rng.sample(range(128 if six else 32), 6)]
    cases += [(arrived(MAPPED | TABLE[0][0] & 0xFFFFFFFF, True), None), (arrived(TABLE[5][0], False), None)]
    cases += [(arrived(0, True), None), (arrived(0, False), None)]  # what empty rows have
    rng.shuffle(cases)
    got = []

    async def sender(ctx):
        for write in gid_words():
            ctx.set(dut.gid, write)
            ctx.set(dut.gid_en, 1)
            await ctx.tick()
        ctx.set(dut.gid_en, 0)
        await send_all(ctx, dut.i, [case for case, _ in cases], rng, 0.3)

    async def receiver(ctx):
        await collect(ctx, dut.o, got, rng, 0.3)

    simulate(dut, sender, background=(receiver,), seed=rng.seed_value)
    assert [each.header.gid_index if each.header.gid_found else None for each in got] == [index for _, index in cases]
    assert [each.header.transport.psn for each in got] == [case["header"]["transport"]["psn"] for case, _ in cases]


def test_cycles():
    dut = GidMatch()
    times = []

    async def testbench(ctx):
        ctx.set(dut.i.payload, arrived(1, True))
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.o.ready, 1)
        for cycle in range(22):
            *_, valid = await ctx.tick().sample(dut.o.valid)
            times.extend([cycle] if valid else [])

    simulate(dut, testbench)
    assert times == [5, 11, 17]
