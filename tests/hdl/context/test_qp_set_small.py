"""QpSet with fewer QPs than a row of block RAM has bits."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.context.qp_set import QpSet


@pytest.mark.parametrize("serve", [False, True])
@pytest.mark.parametrize("qps", [2, 4, 16])
def test_against_a_set(qps, serve):
    """Members come in ascending order, round and round, and nobody else; with ``serve`` each comes once."""
    rng = make_rng()
    dut = QpSet(qps, serve=serve)

    async def change(ctx, qpn, member):
        ctx.set(dut.change.payload, {"qpn": qpn, "member": member})
        ctx.set(dut.change.valid, 1)
        await ctx.tick().until(dut.change.ready)
        ctx.set(dut.change.valid, 0)
        await ctx.tick().repeat(4)

    async def shown(ctx, cycles):
        found = []
        ctx.set(dut.o.ready, 1)
        for _ in range(cycles):
            _, _, valid, qpn = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            if valid:
                found.append(qpn)
        ctx.set(dut.o.ready, 0)
        return found

    async def testbench(ctx):
        assert await shown(ctx, 20) == []
        assert ctx.get(dut.empty)
        for _ in range(12):
            members = rng.sample(range(qps), rng.randint(1, qps))
            for qpn in members:
                await change(ctx, qpn, 1)
                if rng.random() < 0.3:
                    await change(ctx, qpn, 1)  # it is one already
            assert not ctx.get(dut.empty)
            found = await shown(ctx, 40 + 12 * qps)
            assert set(found) == set(members)
            if serve:
                assert sorted(found) == sorted(members)
            else:
                assert len(found) >= 3 * len(members)
                order = sorted(members)
                found = found[len(members) :]  # the first may have been looked at before the others were there
                begin = order.index(found[0])
                assert found == [order[(begin + n) % len(order)] for n in range(len(found))]
                for qpn in members:
                    await change(ctx, qpn, 0)
                await shown(ctx, 3)  # who stood at `o`
            assert ctx.get(dut.empty)
            assert await shown(ctx, 30) == []

    simulate(dut, testbench, seed=rng.seed_value)
