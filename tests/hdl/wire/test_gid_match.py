"""Destinations against the table of GIDs."""

import pytest
from network_frames import MAPPED, TABLE, TAGS, gid_words
from streams import collect, make_rng, send_all, simulate
from verbena.hdl.abi.gids import GidType
from verbena.hdl.wire.gid_match import GidMatch

V4, V6, V1 = GidType.ROCE_V2_IPV4, GidType.ROCE_V2_IPV6, GidType.ROCE_V1


def arrived(gid, kind, vlan=0, group=0):
    """A header to ``gid`` over a network, of a frame with a tag of this VLAN, or none; or to a group's MAC address."""
    six = kind != V4
    at = 24 if six else 36
    tag = {"tagged": vlan != 0, "vlan": vlan, "priority": gid % 8}
    raw = bytes(at) + (gid.to_bytes(16, "big") if six else (gid & 0xFFFFFFFF).to_bytes(4, "big"))
    return {
        "header": {"transport": {"psn": gid & 0xFFFF}},
        "network": int.from_bytes(raw, "little"),
        "networks": 1 << kind,
        "tag": tag,
        "group": group,
    }


def matched(dut, headers, rng):
    """What comes out for ``headers``, with the rows of :data:`TABLE` written before."""
    got = []

    async def sender(ctx):
        for write in gid_words():
            ctx.set(dut.gid, write)
            ctx.set(dut.gid_en, 1)
            await ctx.tick()
        ctx.set(dut.gid_en, 0)
        await send_all(ctx, dut.i, headers, rng, 0.3)

    async def receiver(ctx):
        await collect(ctx, dut.o, got, rng, 0.3)

    simulate(dut, sender, background=(receiver,), seed=rng.seed_value)
    return got


def test_rows():
    """Each row is found over its own network, and no other address is, also if it differs in one bit."""
    rng = make_rng()
    dut = GidMatch()
    cases = []
    for index, (gid, kind) in TABLE.items():
        vlan = TAGS.get(index, (0, 0))[0]
        cases.append((arrived(gid, kind, vlan), index))
        cases += [(arrived(gid, kind, vlan ^ 1 << bit), None) for bit in rng.sample(range(12), 3)]
        other = [n for n, row in TABLE.items() if row == (gid, kind) and n not in TAGS] if vlan else []
        cases += [(arrived(gid, kind, 0 if vlan else 99), other[0] if other else None)]
        bits = rng.sample(range(32 if kind == V4 else 128), 6)
        cases += [(arrived(gid ^ 1 << bit, kind, vlan), None) for bit in bits]
    cases += [(arrived(MAPPED | TABLE[0][0] & 0xFFFFFFFF, V6), None), (arrived(TABLE[5][0], V4), None)]
    cases += [(arrived(TABLE[5][0], V1), None), (arrived(TABLE[6][0], V1), None)]  # rows of RoCEv2
    cases += [(arrived(0, kind), None) for kind in (V4, V6, V1)]  # what empty rows have
    rng.shuffle(cases)
    got = matched(dut, [case for case, _ in cases], rng)
    assert [each.header.gid_index if each.header.gid_found else None for each in got] == [index for _, index in cases]
    assert [each.header.transport.psn for each in got] == [case["header"]["transport"]["psn"] for case, _ in cases]


def test_groups():
    """What comes to the MAC address of a group is for no row; told of as such if a row is of its network and VLAN."""
    rng = make_rng()
    dut = GidMatch()
    group = 0xFF0E << 112 | 77
    cases = [
        (arrived(group, kind, vlan, 1), there)
        for kind, vlan, there in (
            (V4, 0, 1),
            (V6, 0, 1),
            (V1, 0, 1),
            (V6, 100, 1),
            (V1, 100, 1),
            (V4, 0xABC, 1),
            (V4, 100, 0),
            (V6, 101, 0),
            (V6, 0xABC, 0),
            (V1, 0xABC, 0),
        )
    ]
    cases += [(arrived(gid, kind, TAGS.get(n, (0, 0))[0], 1), 1) for n, (gid, kind) in TABLE.items()]
    cases += [(arrived(group, kind), 0) for kind in (V4, V6, V1)]
    rng.shuffle(cases)
    got = matched(dut, [case for case, _ in cases], rng)
    assert [(each.header.gid_found, each.group) for each in got] == [(0, there) for _, there in cases]


@pytest.mark.parametrize(("kind", "expected"), [(V6, [7, 15, 23]), (V1, [7, 15, 23]), (V4, [4, 9, 14, 19, 24])])
def test_cycles(kind, expected):
    dut = GidMatch()
    times = []

    async def testbench(ctx):
        ctx.set(dut.i.payload, arrived(1, kind))
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.o.ready, 1)
        for cycle in range(25):
            *_, valid = await ctx.tick().sample(dut.o.valid)
            times.extend([cycle] if valid else [])

    simulate(dut, testbench)
    assert times == expected
