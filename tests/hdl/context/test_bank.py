import pytest
from amaranth.lib import data
from streams import make_rng, plain, simulate
from conflict_ram import ConflictRam
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.hdl.context import bank
from verbena.hdl.context.bank import ContextBank

STATE = data.StructLayout({"psn": 24, "index": 16, "address": 64, "left": 31})
NAMES = ("state", "pkey", "pd", "dest_ip", "path_mtu", "rq_cqn", "sq_base")


class Model:
    """What the bank must hold, and which reads and writes are under way."""

    def __init__(self, dut, rng):
        self.dut = dut
        self.rng = rng
        self.words = [[0] * (QP_CONTEXT.size // 4) for _ in range(dut.slots)]
        self.states = [dict.fromkeys(STATE.members, 0) for _ in range(dut.slots)]

    def attributes(self, slot):
        whole = QP_CONTEXT.unpack(b"".join(word.to_bytes(4, "little") for word in self.words[slot]))
        return {name: whole[name] & ~(0xFFF if name == "sq_base" else 0) for name in NAMES}

    def random_state(self):
        return {name: self.rng.getrandbits(width) for name, width in STATE.members.items()}


async def fill(ctx, dut, model):
    """Writes all slots once: block RAM has no reset."""
    for slot in range(dut.slots):
        for word in range(QP_CONTEXT.size // 4):
            model.words[slot][word] = model.rng.getrandbits(32)
            ctx.set(dut.attribute, {"index": slot, "word": word, "data": model.words[slot][word]})
            ctx.set(dut.attribute_en, 1)
            await ctx.tick()
        ctx.set(dut.attribute_en, 0)
        model.states[slot] = model.random_state()
        ctx.set(dut.w_slot, slot)
        ctx.set(dut.w_state, model.states[slot])
        ctx.set(dut.w_en, 1)
        await ctx.tick().until(dut.w_ready)
        ctx.set(dut.w_en, 0)
    await ctx.tick().repeat(10)


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_reads_what_was_written(rows, monkeypatch):
    """At random: reads back to back, writes of other slots, and of the slot itself from when the read is over."""
    monkeypatch.setattr(bank, "Ram", ConflictRam)
    rng = make_rng()
    dut = ContextBank(QP_CONTEXT, NAMES, STATE, 4, rows)
    model = Model(dut, rng)
    reads = 0

    async def testbench(ctx):
        nonlocal reads
        await fill(ctx, dut, model)
        pending = []  # reads taken: slot, state
        for _ in range(4000):
            reading = {slot for slot, _ in pending}
            r_en, w_en, attribute_en = (rng.random() < chance for chance in (0.8, 0.4, 0.05))
            r_slot, w_slot = rng.randrange(4), rng.randrange(4)
            # Who writes a slot has read it, and nobody else reads it meanwhile.
            w_en = w_en and w_slot not in reading and not (r_en and r_slot == w_slot)
            attribute = {"index": rng.randrange(4), "word": rng.randrange(20), "data": rng.getrandbits(32)}
            attribute_en = attribute_en and attribute["index"] not in reading | {r_slot}
            state = model.random_state()
            ctx.set(dut.r_slot, r_slot)
            ctx.set(dut.r_en, r_en)
            ctx.set(dut.w_slot, w_slot)
            ctx.set(dut.w_state, state)
            ctx.set(dut.w_en, w_en)
            ctx.set(dut.attribute, attribute)
            ctx.set(dut.attribute_en, attribute_en)
            _, _, r_ready, w_ready, valid, found, kept = await ctx.tick().sample(
                dut.r_ready, dut.w_ready, dut.r_valid, dut.attributes, dut.state
            )
            if valid:
                slot, expected = pending.pop(0)
                assert plain(kept) == expected
                assert plain(found) == model.attributes(slot)
                reads += 1
            if r_en and r_ready:
                pending.append((r_slot, model.states[r_slot]))
            if w_en and w_ready:
                model.states[w_slot] = state
            if attribute_en:
                model.words[attribute["index"]][attribute["word"]] = attribute["data"]

    simulate(dut, testbench, seed=rng.seed_value)
    assert reads > 3000 // (rows + 1)


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_takes_as_many_cycles_as_rows(rows):
    rng = make_rng()
    dut = ContextBank(QP_CONTEXT, NAMES, STATE, 4, rows)
    model = Model(dut, rng)
    taken, came = [], []

    async def testbench(ctx):
        await fill(ctx, dut, model)
        ctx.set(dut.r_en, 1)
        for cycle in range(10 * rows):
            ctx.set(dut.r_slot, cycle % 4)
            _, _, ready, valid = await ctx.tick().sample(dut.r_ready, dut.r_valid)
            taken.extend([cycle] * ready)
            came.extend([cycle] * valid)

    simulate(dut, testbench, seed=rng.seed_value)
    assert taken == list(range(0, 10 * rows, rows))
    assert came == [cycle + rows + 1 for cycle in taken][: len(came)]


@pytest.mark.parametrize("rows", [1, 4])
def test_a_write_is_in_the_reads_behind_it(rows, monkeypatch):
    """The read that would meet it waits for a cycle; any later one follows it at once."""
    monkeypatch.setattr(bank, "Ram", ConflictRam)
    rng = make_rng()
    dut = ContextBank(QP_CONTEXT, NAMES, STATE, 4, rows)
    model = Model(dut, rng)

    async def testbench(ctx):
        await fill(ctx, dut, model)
        for delay, waits in ((1, 1), (2, 0), (3, 0)):
            state = model.random_state()
            ctx.set(dut.w_slot, 2)
            ctx.set(dut.w_state, state)
            ctx.set(dut.w_en, 1)
            await ctx.tick()
            ctx.set(dut.w_en, 0)
            for _ in range(delay - 1):
                await ctx.tick()
            ctx.set(dut.r_slot, 2)
            ctx.set(dut.r_en, 1)
            for _ in range(waits):
                assert not ctx.get(dut.r_ready)
                await ctx.tick()
            assert ctx.get(dut.r_ready)
            await ctx.tick()
            ctx.set(dut.r_en, 0)
            (kept,) = await ctx.tick().sample(dut.state).until(dut.r_valid)
            assert plain(kept) == state
            await ctx.tick().repeat(10)

    simulate(dut, testbench, seed=rng.seed_value)


def test_an_attribute_that_is_written_makes_a_read_wait(monkeypatch):
    """A read meets writes of other slots: it comes as much later."""
    monkeypatch.setattr(bank, "Ram", ConflictRam)
    rng = make_rng()
    dut = ContextBank(QP_CONTEXT, NAMES, STATE, 4, 4)
    model = Model(dut, rng)
    cycles = []

    async def testbench(ctx):
        await fill(ctx, dut, model)
        for writes in range(4):
            ctx.set(dut.r_slot, 1)
            ctx.set(dut.r_en, 1)
            await ctx.tick().until(dut.r_ready)
            ctx.set(dut.r_en, 0)
            cycles.append(1)
            found = None
            while found is None:
                ctx.set(dut.attribute, {"index": 2, "word": 1, "data": 5})
                ctx.set(dut.attribute_en, cycles[-1] <= writes)
                _, _, valid, row = await ctx.tick().sample(dut.r_valid, dut.attributes)
                cycles[-1] += not valid
                found = plain(row) if valid else None
            assert found == model.attributes(1)

    simulate(dut, testbench, seed=rng.seed_value)
    assert cycles == [5, 6, 7, 8]


@pytest.mark.parametrize(("slots", "rows", "message"), [
    (3, 4, "slots must be a power of two, at least 2, not 3"),
    (1, 4, "slots must be a power of two, at least 2, not 1"),
    (4, 3, "rows must be 1, 2, 4 or 8, not 3"),
])  # fmt: skip
def test_bad_sizes(slots, rows, message):
    with pytest.raises(ValueError, match=message):
        ContextBank(QP_CONTEXT, NAMES, STATE, slots, rows)
