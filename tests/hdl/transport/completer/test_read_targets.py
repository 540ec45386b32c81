"""The ring of targets: what is told is found, counts go round, RESET zeroes one queue pair's."""

from amaranth.back import rtlil
from streams import make_rng, plain, simulate
from verbena.hdl.transport.completer.read_targets import READS, ReadTargets

QPS = 4


def target(rng):
    widths = {"psn": 24, "wqe_index": 16, "length": 32, "address": 64, "entry_length": 32, "lkey": 32, "large": 1}
    return {name: rng.getrandbits(width) for name, width in (widths | {"atomic": 1}).items()}


def test_random():
    """Told, looked at and reset in any order, also in the same cycles."""
    rng = make_rng()
    dut = ReadTargets(QPS)
    rings = [{} for _ in range(QPS)]
    count, slots = [0] * QPS, [0] * QPS
    resumed = [(0, 0)] * QPS
    looks, over = [], []

    async def tell(ctx):
        for _ in range(300):
            qp = rng.randrange(QPS)
            item, again = target(rng), int(rng.random() < 0.3)
            slot = rng.randrange(READS) if again else slots[qp] % READS
            ctx.set(dut.reads.payload, {"qp": qp, "slot": slot, "again": again, "target": item})
            ctx.set(dut.reads.valid, 1)
            slots[qp] += not again
            taken = False
            while not taken:
                _, _, taken = await ctx.tick().sample(dut.reads.ready)
            ctx.set(dut.reads.valid, 0)
            if again:
                resumed[qp] = (1, item["psn"])
            else:
                rings[qp][(slots[qp] - 1) % READS] = item
                count[qp] += 1
            while rng.random() < 0.3:
                await ctx.tick()
        over.append(True)

    async def look(ctx):
        while not over:
            if not ctx.get(dut.free) or rng.random() < 0.5:
                await ctx.tick()
                continue
            qp = rng.randrange(QPS)
            head = rng.choice(list(rings[qp]) or [0])
            before, wanted, psn = count[qp], rings[qp].get(head), resumed[qp]
            ctx.set(dut.qp, qp)
            ctx.set(dut.head, head + rng.choice([0, READS]))
            await ctx.tick()
            if rng.random() < 0.05:
                ctx.set(dut.reset_qp, qp)
                ctx.set(dut.reset, 1)
                for _ in range(rng.randint(1, 4)):
                    await ctx.tick()
                ctx.set(dut.reset, 0)
                count[qp], resumed[qp] = 0, (0, 0)
                continue
            await ctx.tick()
            assert ctx.get(dut.count) == before % (2 * READS)
            assert (ctx.get(dut.again), ctx.get(dut.psn)) == psn
            if wanted:
                assert plain(ctx.get(dut.target)) == wanted
            looks.append(before)

    simulate(dut, tell, look, seed=rng.seed_value)
    assert len(looks) > 100
    assert max(looks) > READS


def test_free_falls_while_the_count_changes():
    """A count read while it is written is undefined, so nobody may look then."""
    dut = ReadTargets(QPS)
    free = []

    async def script(ctx):
        ctx.set(dut.reads.valid, 1)
        for _ in range(6):
            free.append((ctx.get(dut.free), ctx.get(dut.reads.ready)))
            await ctx.tick()
        ctx.set(dut.reads.valid, 0)
        for cycle in range(5):
            await ctx.tick()
            assert ctx.get(dut.free) == (cycle > 0)

    simulate(dut, script)
    assert free == [(1, 0), (0, 1), (0, 0), (0, 0), (1, 0), (0, 1)]


def test_converts():
    rtlil.convert(ReadTargets(64))
