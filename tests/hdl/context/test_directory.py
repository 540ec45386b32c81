"""Directory: several readers and a writer, against a dictionary."""

import pytest
from conflict_ram import ConflictRam
from streams import make_rng, plain, shared, simulate
from verbena.hdl.context import directory
from verbena.hdl.context.directory import BANK, CLASS_BITS, PHASE_BITS, Directory, Row

QPS, SLOTS, READERS = 16, 8, 3


def value(row):
    return row.as_value() if hasattr(row, "as_value") else row


@pytest.mark.parametrize("cycles", [600, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("qps", "slots", "readers"), [(16, 8, 3), (2, 2, 1), (64, 512, 6), (2 * BANK, 8, 2)])
def test_against_a_dictionary(qps, slots, readers, cycles):
    """Each reader gets, 2 cycles after it was taken, the row that it asked for; of one that was written meanwhile the
    old one or the new one."""
    rng = make_rng()
    dut = shared(Directory, qps, slots, readers)
    bits = Row(slots).size
    rows = dict.fromkeys(range(qps), 0)
    answers, overlaps = [0] * readers, 0

    async def testbench(ctx):
        nonlocal overlaps
        while not ctx.get(dut.ready):
            await ctx.tick()
        few = rng.sample(range(qps), min(qps, 6))
        asking = [None] * readers
        waiting = []  # (cycle, reader, QP, what its row may be)
        edges = aiter(ctx.tick().sample(dut.answered, value(dut.row), *(port.ready for port in dut.ask)))
        for cycle in range(cycles):
            write = rng.random() < 0.4
            index, new = rng.choice(few), rng.getrandbits(bits)
            ctx.set(dut.write, write)
            ctx.set(dut.index, index)
            ctx.set(value(dut.new), new)
            for number, port in enumerate(dut.ask):
                # Who asks may ask for another one, or not any more, before it is taken.
                if asking[number] is None or rng.random() < 0.1:
                    asking[number] = rng.choice(few) if rng.random() < 1 / readers else None
                ctx.set(port.valid, asking[number] is not None)
                ctx.set(port.payload, asking[number] or 0)
            assert ctx.get(dut.changed) == write
            sampled = await anext(edges)
            answered, row, taken = sampled[2], sampled[3], sampled[4:]
            due = [item for item in waiting if item[0] == cycle]
            assert answered == sum(1 << reader for _, reader, _, _ in due)
            for _, reader, _, may in due:
                assert row in may
                answers[reader] += 1
                overlaps += len(may) > 1
            waiting = [item for item in waiting if item[0] != cycle]
            asked = [number for number in range(readers) if asking[number] is not None]
            assert [number for number in asked if taken[number]] == asked[:1]  # the first one
            for number in asked[:1]:
                waiting.append((cycle + 2, number, asking[number], {rows[asking[number]]}))
                asking[number] = None
            if write:
                rows[index] = new
                for _, _, qp, may in waiting:
                    may |= {new} if qp == index else set()

    simulate(dut, testbench, seed=rng.seed_value)
    assert min(answers) > cycles // 75
    assert overlaps > cycles // 75


@pytest.mark.parametrize("qps", [2, 64, 4 * BANK])
def test_after_a_reset_all_rows_are_0(qps):
    """A cycle a row of a bank; nothing is answered, nor written, before; a write that comes then is lost."""
    dut = Directory(qps, SLOTS, 2)
    cycles = 0

    async def read_all(ctx):
        port, rows = dut.ask[0], []
        edges = aiter(ctx.tick().sample(port.ready, dut.answered, value(dut.row)))
        ctx.set(port.valid, 1)
        for qp in range(qps):
            ctx.set(port.payload, qp)
            _, _, ready, answered, row = await anext(edges)
            assert (ready, answered) == (1, qp >= 2)
            rows += [row] * answered
        ctx.set(port.valid, 0)
        for _ in range(2):
            *_, answered, row = await anext(edges)
            assert answered == 1
            rows.append(row)
        return rows

    async def testbench(ctx):
        nonlocal cycles
        ctx.set(dut.ask[1].valid, 1)
        ctx.set(dut.write, 1)
        ctx.set(value(dut.new), 3)
        ctx.set(dut.index, 1)
        while not ctx.get(dut.ready):
            assert not ctx.get(dut.ask[1].ready)
            assert not ctx.get(dut.answered)
            await ctx.tick()
            cycles += 1
        ctx.set(dut.write, 0)
        ctx.set(dut.ask[1].valid, 0)
        await ctx.tick()
        assert await read_all(ctx) == [0] * qps
        assert ctx.get(dut.ready)

    simulate(dut, testbench)
    assert cycles == min(qps, BANK)


def test_what_a_row_says():
    """A slot takes the place of what is known of a QP that is away; both fit, whichever is wider."""
    for slots in (2, 8, 128, 512):
        dut = shared(Directory, QPS, slots, 1)
        seen = []

        async def testbench(ctx, dut=dut, slots=slots, seen=seen):
            while not ctx.get(dut.ready):
                await ctx.tick()
            longest = {"timer": (1 << CLASS_BITS) - 1, "phase": (1 << PHASE_BITS) - 2}
            for new in (slots - 1, longest):
                ctx.set(dut.write, 1)
                ctx.set(value(dut.new), 0)
                if isinstance(new, int):
                    ctx.set(dut.new.value, new)
                else:
                    ctx.set(dut.new.away, new)
                await ctx.tick()
                ctx.set(dut.write, 0)
                ctx.set(dut.ask[0].valid, 1)
                await ctx.tick()
                ctx.set(dut.ask[0].valid, 0)
                await ctx.tick()
                seen.append(ctx.get(dut.row.slot) if isinstance(new, int) else dict(plain(ctx.get(dut.row.away))))
                assert (ctx.get(dut.row.here), ctx.get(dut.row.known)) == (0, 0)
            assert seen == [slots - 1, longest]

        simulate(dut, testbench)


def test_a_row_that_is_read_while_it_is_written_is_told(monkeypatch):
    """On a chip it may be anything: ``changed`` is set in the cycle in which it was asked for."""
    monkeypatch.setattr(directory, "Ram", ConflictRam)
    rng = make_rng()
    dut = Directory(QPS, SLOTS, 1)

    async def testbench(ctx):
        while not ctx.get(dut.ready):
            await ctx.tick()
        rows = dict.fromkeys(range(QPS), 0)
        asked = []
        edges = aiter(ctx.tick().sample(dut.changed, value(dut.row)))
        for cycle in range(400):
            index, new, write, qp = rng.randrange(3), rng.getrandbits(9), rng.random() < 0.5, rng.randrange(3)
            ctx.set(dut.write, write)
            ctx.set(dut.index, index)
            ctx.set(value(dut.new), new)
            ctx.set(dut.ask[0].valid, 1)
            ctx.set(dut.ask[0].payload, qp)
            _, _, changed, row = await anext(edges)
            asked.append(None if changed else rows[qp])
            if cycle >= 2:
                assert asked[cycle - 2] in (None, row)
            if write:
                rows[index] = new

    simulate(dut, testbench, seed=rng.seed_value)
