import pytest
from amaranth.lib import data
from conflict_ram import ConflictRam
from streams import make_rng, plain, simulate
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.hdl.context import bank
from verbena.hdl.context.bank import ContextBank

STATE = data.StructLayout({"psn": 24, "index": 16, "address": 64, "left": 31})
OTHER = data.StructLayout({"place": 33, "active": 1})
STATES = {"main": STATE, "other": OTHER}
NAMES = ("state", "pkey", "pd", "dest_ip", "path_mtu", "rq_cqn", "sq_base")


class Model:
    """What the bank must hold, and which reads and writes are under way."""

    def __init__(self, dut, rng):
        self.dut = dut
        self.rng = rng
        self.words = [[0] * (QP_CONTEXT.size // 4) for _ in range(dut.slots)]
        self.states = [{name: self.random(name) for name in STATES} for _ in range(dut.slots)]

    def attributes(self, slot):
        whole = QP_CONTEXT.unpack(b"".join(word.to_bytes(4, "little") for word in self.words[slot]))
        return {name: whole[name] & ~(0xFFF if name == "sq_base" else 0) for name in NAMES}

    def random(self, name):
        return {field: self.rng.getrandbits(width) for field, width in STATES[name].members.items()}


async def write(ctx, port, slot, state):
    ctx.set(port.slot, slot)
    ctx.set(port.data, state)
    ctx.set(port.en, 1)
    await ctx.tick().until(port.ready)
    ctx.set(port.en, 0)


async def fill(ctx, dut, model):
    """Writes all slots once: block RAM has no reset."""
    for slot in range(dut.slots):
        for word in range(QP_CONTEXT.size // 4):
            model.words[slot][word] = model.rng.getrandbits(32)
            ctx.set(dut.attribute, {"index": slot, "word": word, "data": model.words[slot][word]})
            ctx.set(dut.attribute_en, 1)
            await ctx.tick()
        ctx.set(dut.attribute_en, 0)
        for name in STATES:
            await write(ctx, getattr(dut.write, name), slot, model.states[slot][name])
    await ctx.tick().repeat(10)


@pytest.mark.parametrize("cycles", [800, pytest.param(2500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_reads_what_was_written(rows, cycles, monkeypatch):
    """At random: reads back to back, writes of other slots, and of the slot itself from when the read is over."""
    monkeypatch.setattr(bank, "Ram", ConflictRam)
    rng = make_rng()
    dut = ContextBank(QP_CONTEXT, NAMES, STATES, 4, rows)
    model = Model(dut, rng)
    reads = 0

    async def testbench(ctx):
        nonlocal reads
        await fill(ctx, dut, model)
        pending = []  # reads taken: slot, states
        held, looked = None, False  # the last one that came, as long as it stands; there was a look before
        ports = {name: getattr(dut.write, name) for name in STATES}
        edges = aiter(
            ctx.tick().sample(
                dut.r_ready, dut.r_valid, dut.attributes, dut.states, *(port.ready for port in ports.values())
            )
        )
        for _ in range(cycles):
            reading = {slot for slot, _ in pending}
            r_en, attribute_en = rng.random() < 0.8, rng.random() < 0.05
            r_look = r_en or rng.random() < 0.3
            r_slot = rng.randrange(4)
            attribute = {"index": rng.randrange(4), "word": rng.randrange(20), "data": rng.getrandbits(32)}
            attribute_en = attribute_en and attribute["index"] not in reading | {r_slot}
            writes = {}
            for name, port in ports.items():
                # Who writes a slot has read it, and nobody else reads it meanwhile.
                slot, state = rng.randrange(4), model.random(name)
                if rng.random() < 0.4 and slot not in reading and not (r_en and r_slot == slot):
                    writes[name] = slot, state
                ctx.set(port.slot, slot)
                ctx.set(port.data, state)
                ctx.set(port.en, name in writes)
            ctx.set(dut.r_slot, r_slot)
            ctx.set(dut.r_en, r_en)
            ctx.set(dut.r_look, r_look)
            ctx.set(dut.attribute, attribute)
            ctx.set(dut.attribute_en, attribute_en)
            _, _, r_ready, valid, found, kept, *ready = await anext(edges)
            if valid:
                slot, expected = pending.pop(0)
                assert plain(kept) == expected
                assert plain(found) == model.attributes(slot)
                reads += 1
                held = None if pending or looked else (slot, kept, found)
            if held:
                assert (kept, found) == held[1:]
            looked = r_look
            if r_look:
                held = None
            if r_en and r_ready:
                pending.append((r_slot, dict(model.states[r_slot])))
            for name, taken in zip(ports, ready):
                if taken and name in writes:
                    slot, state = writes[name]
                    model.states[slot][name] = state
                    held = held if held and held[0] != slot else None
            if attribute_en:
                held = held if held and held[0] != attribute["index"] else None
                model.words[attribute["index"]][attribute["word"]] = attribute["data"]

    simulate(dut, testbench, seed=rng.seed_value)
    assert reads > 0.72 * cycles / (rows + 1)


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_takes_as_many_cycles_as_rows(rows):
    rng = make_rng()
    dut = ContextBank(QP_CONTEXT, NAMES, STATES, 4, rows)
    model = Model(dut, rng)
    taken, came = [], []

    async def testbench(ctx):
        await fill(ctx, dut, model)
        ctx.set(dut.r_en, 1)
        ctx.set(dut.r_look, 1)
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
    dut = ContextBank(QP_CONTEXT, NAMES, STATES, 4, rows)
    model = Model(dut, rng)

    async def testbench(ctx):
        await fill(ctx, dut, model)
        for delay, waits in ((1, 1), (2, 0), (3, 0)):
            state = model.random("other")
            await write(ctx, dut.write.other, 2, state)
            for _ in range(delay - 1):
                await ctx.tick()
            ctx.set(dut.r_slot, 2)
            ctx.set(dut.r_look, 1)
            ctx.set(dut.r_en, 1)
            for _ in range(waits):
                assert not ctx.get(dut.r_ready)
                await ctx.tick()
            assert ctx.get(dut.r_ready)
            await ctx.tick()
            ctx.set(dut.r_en, 0)
            ctx.set(dut.r_look, 0)
            (kept,) = await ctx.tick().sample(dut.states).until(dut.r_valid)
            assert plain(kept)["other"] == state
            await ctx.tick().repeat(10)

    simulate(dut, testbench, seed=rng.seed_value)


def test_an_attribute_that_is_written_makes_a_read_wait(monkeypatch):
    """A read meets writes of other slots: it comes as much later."""
    monkeypatch.setattr(bank, "Ram", ConflictRam)
    rng = make_rng()
    dut = ContextBank(QP_CONTEXT, NAMES, STATES, 4, 4)
    model = Model(dut, rng)
    cycles = []

    async def testbench(ctx):
        await fill(ctx, dut, model)
        for writes in range(4):
            ctx.set(dut.r_slot, 1)
            ctx.set(dut.r_en, 1)
            ctx.set(dut.r_look, 1)
            await ctx.tick().until(dut.r_ready)
            ctx.set(dut.r_en, 0)
            ctx.set(dut.r_look, 0)
            cycles.append(1)
            found = None
            edges = aiter(ctx.tick().sample(dut.r_valid, dut.attributes))
            while found is None:
                ctx.set(dut.attribute, {"index": 2, "word": 1, "data": 5})
                ctx.set(dut.attribute_en, cycles[-1] <= writes)
                _, _, valid, row = await anext(edges)
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
        ContextBank(QP_CONTEXT, NAMES, STATES, slots, rows)
