"""Slots: what is filled is read, what is written is read and comes back, each in its time."""

import pytest
from conflict_ram import ConflictRam
from context_world import NAMES, RECORD, STATES, World
from streams import make_rng, plain, simulate
from verbena.hdl.context import slot_bank
from verbena.hdl.context.layout import LINE_BITS, SlotLayout
from verbena.hdl.context.slot_bank import SlotBank

SLOTS = 4


class Model:
    """What each slot holds, as records."""

    def __init__(self, dut, rng):
        self.dut, self.rng, self.layout = dut, rng, dut.slot_layout
        self.records = [RECORD.unpack(bytes(RECORD.size)) for _ in range(SLOTS)]

    async def fill(self, ctx, slot):
        """Row after row of all lines, of random bits."""
        whole = self.rng.randbytes(RECORD.size)
        self.records[slot] = RECORD.unpack(whole)
        bits = int.from_bytes(whole, "little")
        fill = self.dut.fill
        for at, line in enumerate(self.layout.lines):
            for row in range(self.layout.rows_used(line)):
                value = bits >> line * LINE_BITS + row * self.layout.row_bits & (1 << self.layout.row_bits) - 1
                ctx.set(fill.payload, {"slot": slot, "line": at, "row": row, "data": value})
                ctx.set(fill.valid, 1)
                await ctx.tick().until(fill.ready)
        ctx.set(fill.valid, 0)

    def attributes(self, slot):
        return {name: self.records[slot][name] & ~(0xFFF if name == "rq_base" else 0) for name in NAMES}

    def states(self, slot):
        return {name: value for name, value in self.records[slot].items() if name.partition("_")[0] in STATES}

    def rows(self, slot):
        """{row: (bits that count, their values)} of what is written back."""
        whole = int.from_bytes(RECORD.pack(**self.records[slot]), "little")
        found = {}
        for row in range(self.layout.rows):
            mask = value = at = 0
            for part in STATES:
                line, fields = RECORD.places[part]
                used = (
                    sum(field.mask << field.offset for field in fields) >> line * LINE_BITS + row * self.layout.row_bits
                )
                bits = whole >> line * LINE_BITS + row * self.layout.row_bits
                for column in self.layout.columns[part]:
                    mask |= (used >> column & 1) << at
                    value |= (bits >> column & 1) << at
                    at += 1
            found[row] = mask, value & mask
        return found


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_random(rows, monkeypatch):
    """Reads of a stage back to back, writes of what it has read, write-backs between the reads."""
    monkeypatch.setattr(slot_bank, "Ram", ConflictRam)
    rng = make_rng()
    dut = SlotBank(SlotLayout(RECORD, NAMES, STATES, rows), SLOTS)
    model = Model(dut, rng)
    backs = reads = aways = 0

    async def back(ctx, slot):
        nonlocal backs
        ctx.set(dut.back_slot, slot)
        ctx.set(dut.back_en, 1)
        await ctx.tick().until(dut.back_ready)
        ctx.set(dut.back_en, 0)
        for cycle in range(2 + rows):
            _, _, valid, row, bits, away = await ctx.tick().sample(
                dut.back_valid, dut.back_row, dut.back_data, dut.away
            )
            assert valid == away == (cycle >= 2)
            if valid:
                mask, value = model.rows(slot)[row]
                assert row == cycle - 2
                assert bits & mask == value
        backs += 1

    async def testbench(ctx):
        nonlocal reads, aways
        for slot in range(SLOTS):
            await model.fill(ctx, slot)
        for _ in range(150):
            slot, other = rng.sample(range(SLOTS), 2)
            ctx.set(dut.r_slot, slot)
            ctx.set(dut.r_en, 1)
            await ctx.tick().until(dut.r_ready)
            ctx.set(dut.r_en, 0)
            attributes, states = await ctx.tick().sample(dut.attributes, dut.states).until(dut.r_valid)
            reads += 1

            def check(attributes, states, slot=slot):
                assert dict(plain(attributes)) == model.attributes(slot)
                assert World.flat(plain(states)) == model.states(slot)

            check(attributes, states)
            if rng.random() < 0.5:
                # Meanwhile another slot is written back, and what was read is there again behind it.
                await back(ctx, other)
                check(*(await ctx.tick().sample(dut.attributes, dut.states))[2:])
                aways += 1
            if rng.random() < 0.2:
                await model.fill(ctx, other)
            for part, shape in STATES.items():
                if rng.random() < 0.6:
                    port, value = getattr(dut.write, part), shape.from_bits(rng.getrandbits(shape.size))
                    ctx.set(port.slot, slot)
                    ctx.set(port.data, value)
                    ctx.set(port.en, 1)
                    await ctx.tick().until(port.ready)
                    ctx.set(port.en, 0)
                    model.records[slot].update(World.flat({part: plain(value)}))
            if rng.random() < 0.5:
                await ctx.tick()
                await back(ctx, slot)

    simulate(dut, testbench, seed=rng.seed_value)
    assert backs > 80
    assert aways > 40


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_takes_as_many_cycles_as_rows(rows):
    dut = SlotBank(SlotLayout(RECORD, NAMES, STATES, rows), SLOTS)
    taken, came = [], []

    async def testbench(ctx):
        ctx.set(dut.r_en, 1)
        for cycle in range(8 * rows):
            ctx.set(dut.r_slot, cycle % SLOTS)
            _, _, ready, valid = await ctx.tick().sample(dut.r_ready, dut.r_valid)
            taken.extend([cycle] * ready)
            came.extend([cycle] * valid)

    simulate(dut, testbench)
    assert taken == list(range(0, 8 * rows, rows))
    assert came == [cycle + rows + 1 for cycle in taken][: len(came)]


@pytest.mark.parametrize(("names", "states", "rows", "message"), [
    (("nobody",), STATES, 4, "record 'small' has no attribute 'nobody'"),
    (NAMES, {"fourth": STATES["first"]}, 4, "record 'small' has no state 'fourth'"),
    (NAMES, {"second": STATES["first"]}, 4, "state 'second' is not what record 'small' says"),
    (NAMES, {"first": STATES["first"]}, 4, "line 2 of record 'small' is written back, but 'second' is not kept"),
    (NAMES, STATES, 3, "rows must be 1, 2, 4 or 8, not 3"),
])  # fmt: skip
def test_wrong_layouts(names, states, rows, message):
    with pytest.raises(ValueError, match=message):
        SlotLayout(RECORD, names, states, rows)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="layout must be a SlotLayout, not 5"):
        SlotBank(5, SLOTS)
    with pytest.raises(ValueError, match="slots must be a power of two, at least 2, not 3"):
        SlotBank(SlotLayout(RECORD, NAMES, STATES, 4), 3)
