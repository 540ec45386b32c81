"""Rows that others watch while they are written."""

from streams import make_rng, plain, simulate
from verbena.hdl.transport.completer.ack_context import AckContext
from verbena.hdl.transport.completer.ack_context_store import AckContextStore

QPS = 4


def test_writes_are_seen_at_once():
    rng = make_rng()
    dut = AckContextStore(QPS)
    rows = [0] * QPS
    clashes = []

    async def testbench(ctx):
        row, hold = 0, 0
        for _ in range(600):
            hold = max(0, hold - 1)
            write = not hold and rng.random() < 0.5
            qp = rng.randrange(QPS)
            if write:
                row, hold = rng.randrange(1 << AckContext.size), 2
                ctx.set(dut.w_data, AckContext.from_bits(row))
                ctx.set(dut.w_addr, qp)
            ctx.set(dut.w_en, write)
            watch = rng.randrange(QPS)
            ctx.set(dut.watch_qp, watch | rng.randrange(2) << 11)
            await ctx.tick()
            if write:
                rows[qp] = row
                clashes.append(qp == watch)
            want, seen = plain(AckContext.from_bits(rows[watch])), plain(ctx.get(dut.watch))
            want |= want["progress"]
            assert seen == {name: want[name] for name in seen}

    simulate(dut, testbench, seed=rng.seed_value)
    assert any(clashes)


def test_own_read():
    rng = make_rng()
    dut = AckContextStore(QPS)

    async def testbench(ctx):
        for _ in range(50):
            row = rng.randrange(1 << AckContext.size)
            ctx.set(dut.w_data, AckContext.from_bits(row))
            ctx.set(dut.w_addr, 3)
            ctx.set(dut.w_en, 1)
            await ctx.tick()
            ctx.set(dut.w_en, 0)
            ctx.set(dut.r_addr, 3)
            await ctx.tick().repeat(2)
            assert ctx.get(dut.r_data) == AckContext.from_bits(row)

    simulate(dut, testbench, seed=rng.seed_value)
