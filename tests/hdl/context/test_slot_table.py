"""SlotTable: who has which slot, against a model."""

import pytest
from amaranth.hdl import ResetInserter, Signal
from streams import make_rng, shared, simulate
from verbena.hdl.context.slot_table import SlotTable


@pytest.mark.parametrize(("slots", "qps", "users"), [(2, 2, 1), (8, 64, 3)])
def test_against_a_model(slots, qps, users):
    """The hand shows each slot as it is; what is used while the hand passes counts for the next round."""
    rng = make_rng()
    dut = shared(SlotTable, slots, qps, users)
    holders, recent = {}, set()
    last = [0] * slots  # who was there last
    known = set()  # slots that somebody had
    seen = set()
    passed = []  # what the hand has left, and is written a cycle later
    waits = {}  # uses that do not count yet: by user

    async def testbench(ctx):
        hand = 0
        looked_before = stepped = None
        await ctx.tick().repeat(slots + 1)
        for cycle in range(1500):
            look = rng.randrange(slots)
            step, kind = rng.random() < 0.3, rng.random()
            put = kind < 0.6 and not step and not stepped and len(holders) < slots
            free = not put and kind > 0.75 and bool(holders)
            slot, qp = rng.randrange(slots), rng.randrange(qps)
            if put:
                slot = rng.choice([other for other in range(slots) if other not in holders])
            if free:
                slot = rng.choice(sorted(holders))
            used = [(rng.randrange(slots), int(rng.random() < 0.2)) for _ in range(users)]
            ctx.set(dut.step, step)
            ctx.set(dut.look, look)
            for name, value in (("put", put), ("put_slot", slot), ("put_index", qp)):
                ctx.set(getattr(dut, name), value)
            ctx.set(dut.free, free)
            ctx.set(dut.free_slot, slot)
            for number, (user, _) in enumerate(used):
                ctx.set(dut.used[number], user)
            ctx.set(dut.used_en, sum(enable << number for number, (_, enable) in enumerate(used)))
            # Now
            assert ctx.get(dut.slot) == hand
            assert ctx.get(dut.taken) == (hand in holders)
            assert ctx.get(dut.recent) == (hand in recent)
            if look in known:
                assert ctx.get(dut.looked) == last[look]
            assert ctx.get(dut.any_free) == (len(holders) < slots)
            # A cycle late
            if cycle > 1:
                assert ctx.get(dut.looked_taken) == looked_before
            looked_before = look in holders
            await ctx.tick()
            counts = waits and not put and not passed
            leaves = step and hand in recent
            for slot_left in passed:
                recent.discard(slot_left)
            passed[:] = [hand] if leaves else []
            stepped = step
            hand = (hand + step) % slots
            if counts:
                recent.add(waits.pop(min(waits)))
            waits.update((number, user) for number, (user, enable) in enumerate(used) if enable)
            if put:
                holders[slot] = last[slot] = qp
                recent.add(slot)
                known.add(slot)
            if free:
                del holders[slot]
            seen.add(len(holders))

    simulate(dut, testbench, seed=rng.seed_value)
    assert seen == set(range(slots + 1))


def test_the_hand_passes_a_used_slot_once_more():
    """Of QPs that are all there, the first that was not used for a round is found, and no sooner."""
    dut = shared(SlotTable, 8, 64, 1)

    async def testbench(ctx):
        await ctx.tick().repeat(9)
        ctx.set(dut.put, 1)
        for slot in range(8):
            ctx.set(dut.put_slot, slot)
            ctx.set(dut.put_index, 10 + slot)
            await ctx.tick()
        ctx.set(dut.put, 0)
        await ctx.tick()
        assert not ctx.get(dut.any_free)
        ctx.set(dut.step, 1)
        for _ in range(8):  # a slot that was just put was used
            assert ctx.get(dut.taken)
            assert ctx.get(dut.recent)
            await ctx.tick()
        ctx.set(dut.step, 0)
        ctx.set(dut.used_en, 1)
        for slot in (0, 1, 3):
            ctx.set(dut.used[0], slot)
            await ctx.tick()
        ctx.set(dut.used_en, 0)
        await ctx.tick()
        passed = []
        ctx.set(dut.step, 1)
        while ctx.get(dut.recent):
            passed.append(ctx.get(dut.slot))
            await ctx.tick()
        assert passed == [0, 1]
        assert ctx.get(dut.slot) == 2

    simulate(dut, testbench)


def test_a_reset_frees_all_slots():
    dut, reset = SlotTable(8, 64, 1), Signal()

    async def testbench(ctx):
        await ctx.tick().repeat(9)
        ctx.set(dut.put, 1)
        for slot in range(8):
            ctx.set(dut.put_slot, slot)
            await ctx.tick()
        ctx.set(dut.put, 0)
        assert not ctx.get(dut.any_free)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        await ctx.tick().repeat(9)
        assert ctx.get(dut.any_free)
        ctx.set(dut.step, 1)
        for slot in range(8):
            assert (ctx.get(dut.slot), ctx.get(dut.taken), ctx.get(dut.recent)) == (slot, 0, 0)
            ctx.set(dut.look, slot)
            await ctx.tick()
            assert not ctx.get(dut.looked_taken)

    simulate(ResetInserter(reset)(dut), testbench)
