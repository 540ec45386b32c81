"""CqDoorbells: doorbells are done in order, for whoever has the slot when they are."""

import pytest
from streams import make_rng, plain, shared, simulate
from verbena.hdl.queue.cq_doorbells import CqDoorbells

SLOTS = 4


@pytest.mark.parametrize("busy", [0.1, 0.5])
def test_against_a_model(busy):
    """CQs come to slots and go, and slots are set, while doorbells are under way."""
    rng = make_rng()
    dut = shared(CqDoorbells, SLOTS)
    holders = dict.fromkeys(range(SLOTS))  # slot: CQN
    rows = {}  # slot: consumer index
    inside = None  # (name, doorbell), and how old it is
    count = {"consumer": 0, "arm": 0, "forgotten": 0}

    async def testbench(ctx):
        nonlocal inside
        offered = {}
        age = 0
        moved = True  # whether a slot may have changed hands in the cycle before
        for cycle in range(4000):
            for name, fields in (("consumer", {"index": 16}), ("arm", {"arms": 3, "solicited_arms": 3})):
                if name not in offered and rng.random() < 0.1:
                    offered[name] = {"cq": rng.randrange(2 * SLOTS)}
                    offered[name] |= {field: rng.randrange(1 << bits) for field, bits in fields.items()}
                    ctx.set(getattr(dut, name).payload, offered[name])
                ctx.set(getattr(dut, name).valid, name in offered)
            closed = rng.random() < busy
            sets = cycle < SLOTS or rng.random() < busy
            slot, index = cycle % SLOTS if cycle < SLOTS else rng.randrange(SLOTS), rng.randrange(1 << 16)
            look, ready = rng.randrange(SLOTS), rng.random() < 0.6
            number = ctx.get(dut.number)
            ctx.set(dut.here, holders[number % SLOTS] == number)
            ctx.set(dut.closed, closed)
            ctx.set(dut.set, sets)
            ctx.set(dut.set_slot, slot)
            ctx.set(dut.set_index, index)
            ctx.set(dut.look, look)
            ctx.set(dut.armed.ready, ready)
            if look in rows:
                assert ctx.get(dut.index) == rows[look]
            rung, armed, changed = ctx.get(dut.rung), ctx.get(dut.armed.valid), ctx.get(dut.changed)
            taken = next((name for name in ("consumer", "arm") if name in offered), None) if inside is None else None
            for name in ("consumer", "arm"):
                assert bool(ctx.get(getattr(dut, name).ready) and name in offered) == (name == taken)
            payload = plain(ctx.get(dut.armed.payload))
            await ctx.tick()

            # -- What it is to have done.
            writes = False
            assert inside is not None or not (rung or armed)
            if inside:
                name, doorbell = inside
                age += 1
                assert number == doorbell["cq"]
                here = holders[number % SLOTS] == number
                due = age >= 2 and not closed and not moved
                if name == "consumer":
                    assert rung == (due and not sets)
                    assert not armed
                    writes = rung and here
                else:
                    assert armed == (due and here)
                    assert rung == (due and (ready or not here))
                    assert not armed or payload == {"number": number} | {k: v for k, v in doorbell.items() if k != "cq"}
                if rung:
                    count[name if here else "forgotten"] += 1
                    inside = None
                if writes:
                    rows[number % SLOTS] = doorbell["index"]
            assert changed == (writes or sets)
            if sets:
                rows[slot] = index
            if taken:
                inside, age = (taken, offered.pop(taken)), 0
            if closed:
                other = rng.randrange(SLOTS)
                holders[other] = rng.choice([None, *range(other, 2 * SLOTS, SLOTS)])
            moved = closed

    simulate(dut, testbench, seed=rng.seed_value)
    assert min(count.values()) > 40
