from itertools import pairwise

import pytest
from conflict_ram import ConflictRam
from streams import make_rng, simulate
from verbena.hdl.context import qp_set
from verbena.hdl.context.qp_set import QpSet


@pytest.mark.parametrize("qps", [32, 256])
@pytest.mark.parametrize("serve", [False, True])
def test_against_a_set(qps, serve, monkeypatch):
    """Who is shown is, or was when the row was read, a member; all that stay members come in each round."""
    monkeypatch.setattr(qp_set, "Ram", ConflictRam)
    rng = make_rng()
    dut = QpSet(qps, serve=serve)
    members, history = set(), []
    taken = 0

    async def testbench(ctx):
        nonlocal taken
        few = rng.sample(range(qps), 20)
        pending, fresh = None, True  # what is shown in the next cycle is another one
        edges = aiter(ctx.tick().sample(dut.change.ready, dut.o.valid, dut.o.payload, dut.empty))
        for _ in range(4000):
            if pending is None and rng.random() < 0.1:
                pending = (rng.choice(few), int(rng.random() < 0.6))
                ctx.set(dut.change.payload, {"qpn": pending[0], "member": pending[1]})
            ctx.set(dut.change.valid, pending is not None)
            ready = rng.random() < 0.6
            ctx.set(dut.o.ready, ready)
            _, _, accepted, valid, qpn, empty = await anext(edges)
            before = set(members)
            # What is taken out in the cycle before it is shown is too late for it; nothing else is.
            assert not valid or not fresh or qpn in members or qpn in history[-1] or qpn in history[-2]
            fresh = not valid or ready
            if valid and ready:
                taken += 1
                if serve:
                    members.discard(qpn)
            if pending and accepted:
                (members.add if pending[1] else members.discard)(pending[0])
                pending = None
            assert not empty or not before or not all(old for old in history[-8:])
            history.append(before)
        # Nobody is forgotten.
        ctx.set(dut.change.valid, 0)
        ctx.set(dut.o.ready, 1)
        shown = set()
        for _ in range(4 * qps + 200):
            _, _, valid, qpn = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            if valid:
                shown.add(qpn)
        assert members <= shown
        if serve:
            assert ctx.get(dut.empty)

    simulate(dut, testbench, seed=rng.seed_value)
    assert taken > 100


def test_who_comes_in_the_cycle_in_which_it_is_taken_comes_once_more():
    """And another one of its row is no reason for that."""
    dut = QpSet(32, serve=True)

    async def testbench(ctx):
        async def change(qpn, ready=0):
            while not ctx.get(dut.change.ready):
                await ctx.tick()
            ctx.set(dut.change.payload, {"qpn": qpn, "member": 1})
            ctx.set(dut.change.valid, 1)
            ctx.set(dut.o.ready, ready)
            await ctx.tick()
            ctx.set(dut.change.valid, 0)
            ctx.set(dut.o.ready, 0)
            await ctx.tick().repeat(30)

        await ctx.tick().repeat(4)
        await change(7)
        for again, shown in ((7, 7), (9, 9)):
            assert (ctx.get(dut.o.valid), ctx.get(dut.o.payload)) == (1, 7)
            await change(again, ready=1)
            assert (ctx.get(dut.o.valid), ctx.get(dut.o.payload)) == (1, shown)
        ctx.set(dut.o.ready, 1)
        taken = []
        for _ in range(30):
            _, _, valid, qpn = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            taken += [qpn] if valid else []
        assert taken == [9]
        assert ctx.get(dut.empty)

    simulate(dut, testbench)


@pytest.mark.parametrize("serve", [False, True])
def test_who_comes_first_is_shown_at_once(serve):
    dut = QpSet(16384, serve=serve)
    waited = []

    async def testbench(ctx):
        await ctx.tick().repeat(520)
        for qpn in (9999, 16383, 0):
            ctx.set(dut.change.payload, {"qpn": qpn, "member": 1})
            ctx.set(dut.change.valid, 1)
            await ctx.tick().until(dut.change.ready)
            ctx.set(dut.change.valid, 0)
            waited.append(0)
            while not ctx.get(dut.o.valid):
                await ctx.tick()
                waited[-1] += 1
            assert ctx.get(dut.o.payload) == qpn
            ctx.set(dut.o.ready, 1)
            await ctx.tick()
            ctx.set(dut.o.ready, 0)
            ctx.set(dut.change.payload.member, 0)
            ctx.set(dut.change.valid, 1)
            await ctx.tick().until(dut.change.ready)
            ctx.set(dut.change.valid, 0)
            await ctx.tick().repeat(8)
            assert ctx.get(dut.empty)

    simulate(dut, testbench)
    assert waited == [10, 10, 10]


@pytest.mark.parametrize(
    ("members", "serve", "gaps"),
    [
        ([9999], False, [8 + 511] * 2),  # 512 rows
        ([31, 30], False, [3, 8 + 511, 3]),
        ([31, 30], True, [7]),
        ([64, 0, 16383], False, [8 + 508, 8, 8 + 1, 8 + 508]),  # it goes on where the first one stood
        ([64, 0, 16383], True, [12 + 508, 12]),
    ],
)
def test_how_long_the_next_one_waits(members, serve, gaps):
    dut = QpSet(16384, serve=serve)
    taken = []

    async def testbench(ctx):
        await ctx.tick().repeat(520)
        for qpn in members:
            ctx.set(dut.change.payload, {"qpn": qpn, "member": 1})
            ctx.set(dut.change.valid, 1)
            await ctx.tick().until(dut.change.ready)
        ctx.set(dut.change.valid, 0)
        await ctx.tick().repeat(20)
        ctx.set(dut.o.ready, 1)
        edges = aiter(ctx.tick().sample(dut.o.valid, dut.o.payload))
        for cycle in range(2000):
            _, _, valid, qpn = await anext(edges)
            if valid:
                taken.append((cycle, qpn))

    simulate(dut, testbench)
    assert taken[0][0] == 0
    assert [after - before for (before, _), (after, _) in pairwise(taken)][: len(gaps)] == gaps
    assert len(taken) == len(members) if serve else len(taken) > len(gaps)


@pytest.mark.parametrize("qps", [1, 96])
def test_bad_sizes(qps):
    with pytest.raises(ValueError, match=f"qps must be a power of two, at least 2, not {qps}"):
        QpSet(qps, serve=True)
