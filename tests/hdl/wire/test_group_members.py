"""The table of group members."""

from network_frames import member_words
from streams import make_rng, simulate
from verbena.hdl.abi.gids import GROUP_MEMBERS
from verbena.hdl.wire.group_members import GroupMembers

WORDS = 5
"""Of a row."""


async def put(ctx, dut, rows):
    ctx.set(dut.write_en, 1)
    for write in member_words(rows):
        ctx.set(dut.write, write)
        await ctx.tick()
    ctx.set(dut.write_en, 0)
    await ctx.tick()


async def members(ctx, dut, gid, rng, stall=0.3):
    """Those that come out, and the cycles until all is over."""
    found, cycles = [], 0
    assert ctx.get(dut.over)
    ctx.set(dut.gid, gid)
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)
    while not ctx.get(dut.over):
        ctx.set(dut.o.ready, rng.random() >= stall)
        *_, valid, ready, payload = await ctx.tick().sample(dut.o.valid, dut.o.ready, dut.o.payload)
        found += [payload] if valid and ready else []
        cycles += 1
        assert cycles < 500
    return found, cycles


def test_groups():
    """Who is in a group is found in the order of rows, and nobody else, also if the group differs in one bit."""
    rng = make_rng()
    dut = GroupMembers()
    groups = [rng.getrandbits(128) for _ in range(3)]
    groups += [groups[0] ^ 1 << bit for bit in rng.sample(range(128), 6)]
    rows = {
        row: (rng.choice(groups), rng.getrandbits(24)) for row in range(GROUP_MEMBERS) if row < 3 or rng.randrange(4)
    }
    rows[0] = (groups[0], 0xABCDEF)

    async def testbench(ctx):
        await put(ctx, dut, rows)
        for gid in [*groups, rng.getrandbits(128), 0]:
            found, _ = await members(ctx, dut, gid, rng)
            assert found == [qpn for group, qpn in rows.values() if group == gid]
        everybody = {row: (groups[1], row + 1) for row in range(GROUP_MEMBERS)}
        await put(ctx, dut, everybody)
        assert (await members(ctx, dut, groups[1], rng))[0] == [qpn for _, qpn in everybody.values()]
        await put(ctx, dut, {})
        found, cycles = await members(ctx, dut, groups[1], rng, stall=0)
        assert (found, cycles) == ([], GROUP_MEMBERS + 1)

    simulate(dut, testbench, seed=rng.seed_value)


def test_a_row_changes_as_a_whole():
    """Until its last word is written, a row is what it was."""
    rng = make_rng()
    dut = GroupMembers()
    old, new = rng.getrandbits(128), rng.getrandbits(128)

    async def testbench(ctx):
        await put(ctx, dut, {5: (old, 1)})
        *first, last = list(member_words({5: (new, 2)}))[5 * WORDS :][:WORDS]
        for write in first:
            ctx.set(dut.write_en, 1)
            ctx.set(dut.write, write)
            await ctx.tick()
            ctx.set(dut.write_en, 0)
            assert (await members(ctx, dut, old, rng))[0] == [1]
            assert (await members(ctx, dut, new, rng))[0] == []
        ctx.set(dut.write_en, 1)
        ctx.set(dut.write, last)
        await ctx.tick()
        ctx.set(dut.write_en, 0)
        assert (await members(ctx, dut, new, rng))[0] == [2]
        assert (await members(ctx, dut, old, rng))[0] == []

    simulate(dut, testbench, seed=rng.seed_value)
