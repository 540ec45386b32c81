"""What is said, and how long it stays."""

from completer_world import OPCODES
from streams import make_rng, plain, simulate
from verbena.hdl.transport.completer.completer_outputs import CompleterOutputs


def test_completions():
    """What is said when there is room is what comes."""
    rng = make_rng()
    dut = CompleterOutputs(4)
    want, seen = [], []
    nowhere = {"ip": 0, "traffic_class": 0, "hop_limit": 0}

    async def testbench(ctx):
        while len(want) < 100 or ctx.get(dut.completion.valid):
            ctx.set(dut.completion.ready, rng.random() < 0.5)
            if ctx.get(dut.completion.valid) and ctx.get(dut.completion.ready):
                seen.append(plain(ctx.get(dut.completion.payload)))
            emit = ctx.get(dut.free) and len(want) < 100 and rng.random() < 0.5
            names = ("qp", "qpn", "cq", "wqe_index", "syndrome")
            values = {name: rng.randrange(1 << len(getattr(dut, name))) for name in names}
            opcode, status = rng.choice(list(OPCODES)), rng.choice([0, 4, 21])
            for name, value in values.items():
                ctx.set(getattr(dut, name), value)
            ctx.set(dut.opcode, opcode)
            ctx.set(dut.status, status)
            ctx.set(dut.emit, emit)
            if emit:
                code, length = OPCODES[opcode]
                values |= {"opcode": code, "byte_length": length, "status": status, "solicited": status != 0}
                want.append(values)
            await ctx.tick()
        assert len(seen) == len(want)
        for a, b in zip(want, seen):
            assert b == {"source_qpn": 0, "source": nowhere, "flags": 0, "immediate": 0} | a

    simulate(dut, testbench, seed=rng.seed_value)


def test_others():
    """One error and one entry for ``ready`` are kept, and tell that they are; retries are a set."""
    dut = CompleterOutputs(4)

    async def strobe(ctx, name, qp):
        ctx.set(dut.qp, qp)
        ctx.set(dut.wqe_index, 100 + qp)
        ctx.set(getattr(dut, name), 1)
        await ctx.tick()
        ctx.set(getattr(dut, name), 0)
        ctx.set(dut.qp, 0)
        ctx.set(dut.wqe_index, 0)

    async def take(ctx, port):
        ctx.set(port.ready, 1)
        while True:
            _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
            if valid:
                ctx.set(port.ready, 0)
                return plain(payload)

    async def testbench(ctx):
        for name, event in (("fail", 254), ("drained", 5)):
            await strobe(ctx, name, 3)
            assert ctx.get(dut.busy)
            assert await take(ctx, dut.error) == {"qp": 3, "event": event}
            assert not ctx.get(dut.busy)
        await strobe(ctx, "schedule", 2)
        assert ctx.get(dut.busy)
        await strobe(ctx, "answer", 1)
        assert await take(ctx, dut.reply) == {"index": 101}
        assert await take(ctx, dut.ready) == 2
        assert not ctx.get(dut.busy)
        for qp in (1, 3, 2, 3, 2):
            await strobe(ctx, "back", qp)
        assert not ctx.get(dut.busy)
        assert [await take(ctx, dut.retry) for _ in range(3)] == [1, 2, 3]  # of a row the lowest first
        for _ in range(10):
            await ctx.tick()
        assert not ctx.get(dut.retry.valid)

    simulate(dut, testbench)
