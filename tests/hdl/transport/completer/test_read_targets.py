"""The targets: what is told comes out in order, is shared evenly, and RESET forgets one queue pair's."""

from collections import deque

import pytest
from amaranth.back import rtlil
from streams import make_rng, plain, send_all, simulate
from verbena.hdl.transport.completer.read_targets import READS, ReadTargets

QPS = 4


def target(rng):
    widths = {"psn": 24, "wqe_index": 16, "length": 32, "address": 64, "entry_length": 32, "lkey": 32, "stride": 2}
    fields = {name: rng.getrandbits(width) for name, width in (widths | {"atomic": 1, "sge_count": 3}).items()}
    second = {"address": 64, "length": 32, "lkey": 32}
    return fields | {"second": {name: rng.getrandbits(width) for name, width in second.items()}}


class User:
    """Who looks, and says what is done."""

    def __init__(self, dut):
        self.dut = dut

    async def at(self, ctx, qp):
        ctx.set(self.dut.qp, qp)
        await ctx.tick()
        while not ctx.get(self.dut.free):
            await ctx.tick()

    async def look(self, ctx, qp):
        """(target or None, again, psn)."""
        dut = self.dut
        await self.at(ctx, qp)
        ctx.set(dut.look, 1)
        await ctx.tick()
        ctx.set(dut.look, 0)
        await ctx.tick()
        some, again, psn, begin = (ctx.get(x) for x in (dut.some, dut.again, dut.psn, dut.begin))
        await ctx.tick()
        found = plain(ctx.get(dut.target)) if some else None
        assert not some or (begin.psn, begin.length) == (found["psn"], found["length"])
        return found, again, again and psn

    async def strobe(self, ctx, signal, qp):
        await self.at(ctx, qp)
        await ctx.tick()
        while ctx.get(self.dut.giving):
            await ctx.tick()
        ctx.set(signal, 1)
        await ctx.tick()
        ctx.set(signal, 0)


def test_random():
    """Told, looked at, done and reset in any order, also in the same cycles."""
    rng = make_rng()
    dut = ReadTargets(QPS, 16)
    user = User(dut)
    waiting = [deque() for _ in range(QPS)]
    resumed = [(0, 0)] * QPS
    busy = [False] * QPS  # something of the QP is being told
    told = [0] * QPS
    looks, over = [], []

    async def tell(ctx):
        for _ in range(800):
            qp = rng.randrange(QPS)
            again = int(rng.random() < 0.3)
            if not again and len(waiting[qp]) > ctx.get(dut.allowance):
                await ctx.tick()
                continue
            busy[qp] = True
            item = target(rng)
            await send_all(ctx, dut.reads, [{"qp": qp, "again": again, "target": item}])
            busy[qp] = False
            told[qp] += 1
            if again:
                resumed[qp] = (1, item["psn"])
            else:
                waiting[qp].append(item)
            while rng.random() < 0.3:
                await ctx.tick()
        over.append(True)

    async def look(ctx):
        while not over:
            await ctx.tick()
            qp = rng.randrange(QPS)
            if rng.random() < 0.5 or busy[qp]:
                continue
            before = told[qp]
            found, *where = await user.look(ctx, qp)
            if busy[qp] or told[qp] != before:
                continue
            wanted = waiting[qp][0] if waiting[qp] else None
            assert (found, *where) == (wanted, *resumed[qp])
            looks.append(qp)
            if wanted and rng.random() < 0.5:
                await user.strobe(ctx, dut.done, qp)
                waiting[qp].popleft()
            elif rng.random() < 0.05 and not busy[qp]:
                await user.strobe(ctx, dut.reset, qp)
                waiting[qp].clear()
                resumed[qp] = (0, 0)

    simulate(dut, tell, look, seed=rng.seed_value)
    assert len(looks) > 100


def test_what_each_may_have():
    """One alone its sixteen; of many that want all they can get each about as many; and nobody is refused its first."""
    dut = ReadTargets(16, 64)
    user = User(dut)
    held = [0] * 16

    async def fill(ctx, qps):
        begun = True
        while begun:
            begun = False
            for qp in qps:
                if held[qp] <= ctx.get(dut.allowance) and held[qp] < READS:
                    await send_all(ctx, dut.reads, [{"qp": qp}])
                    held[qp] += 1
                    begun = True
                    await ctx.tick().repeat(4)

    async def script(ctx):
        await fill(ctx, [3])
        assert held[3] == READS
        await fill(ctx, [5, 6])
        assert 10 < held[5] + held[6] < 63 - 13 - READS
        await fill(ctx, range(16))
        assert min(held) >= 1
        # Who has more than its share gets no other one before the rest have as many.
        for _ in range(12):
            await user.strobe(ctx, dut.done, 3)
            held[3] -= 1
            await fill(ctx, range(16))
        assert sum(held) <= 63
        assert max(held[:5] + held[7:]) - min(held) <= 4

    simulate(dut, script)


def test_what_comes_back_has_room():
    """Others that take all they can get leave the rows of a QP; and what they put in meanwhile is in order, too."""
    rng = make_rng()
    dut = ReadTargets(QPS, 32, swaps=True)
    user = User(dut)
    lists = [deque() for _ in range(QPS)]
    bringing = []

    async def fill(ctx):
        for _ in range(200):
            qp = rng.randrange(1, QPS)
            if len(lists[qp]) > ctx.get(dut.allowance):
                await ctx.tick()
                continue
            item = target(rng)
            lists[qp].append(item)
            await send_all(ctx, dut.reads, [{"qp": qp, "target": item}], rng, 0.2)
            assert ctx.get(dut.room) or bringing

    async def bring(ctx):
        await ctx.tick().repeat(700)
        assert ctx.get(dut.room)
        bringing.append(True)
        for _ in range(dut.kept):
            lists[0].append(target(rng))
            await send_all(ctx, dut.bring, [{"qp": 0, "row": lists[0][-1]}], rng, 0.2)

    async def script(ctx):
        while len(lists[0]) < dut.kept:
            await ctx.tick()
        await ctx.tick().repeat(200)
        assert not ctx.get(dut.room)
        for qp in range(QPS):
            for item in lists[qp]:
                assert (await user.look(ctx, qp))[0] == item
                await user.strobe(ctx, dut.done, qp)
            assert (await user.look(ctx, qp))[0] is None
        assert ctx.get(dut.room)

    simulate(dut, fill, bring, script, seed=rng.seed_value)


def test_where_no_row_is_spare_what_comes_back_waits():
    dut = ReadTargets(2, 8, swaps=True)
    user = User(dut)
    extra = 8 - 1 - 2

    async def bring(ctx):
        await send_all(ctx, dut.bring, [{"qp": 0, "row": {"psn": psn}} for psn in range(extra + 1)])
        await send_all(ctx, dut.bring, [{"qp": 1, "row": {"psn": 100 + psn}} for psn in range(2)])

    async def script(ctx):
        await ctx.tick().repeat(100)
        assert ctx.get(dut.bring.valid)
        for psn in range(extra + 1):
            assert (await user.look(ctx, 0))[0]["psn"] == psn
            await user.strobe(ctx, dut.done, 0)
        for psn in range(2):
            assert (await user.look(ctx, 1))[0]["psn"] == 100 + psn
            await user.strobe(ctx, dut.done, 1)

    simulate(dut, bring, script)


def test_what_comes_back_and_what_is_begun():
    """At the same time: each is put into its list once."""
    rng = make_rng()
    dut = ReadTargets(QPS, 256, swaps=True)
    user = User(dut)
    lists = [[target(rng) for _ in range(50)] for _ in range(QPS)]
    over = []

    async def put(ctx, port, qps, name):
        waiting = {qp: list(lists[qp]) for qp in qps}
        while any(waiting.values()):
            qp = rng.choice([qp for qp in qps if waiting[qp]])
            await send_all(ctx, port, [{"qp": qp, name: waiting[qp].pop(0)}], rng, rng.choice([0, 0.5, 0.8]))
        over.append(qps)

    async def begin(ctx):
        await put(ctx, dut.reads, (0, 1), "target")

    async def bring(ctx):
        await put(ctx, dut.bring, (2, 3), "row")

    async def script(ctx):
        while len(over) < 2:
            await ctx.tick()
        for qp, wanted in enumerate(lists):
            for item in wanted:
                assert (await user.look(ctx, qp))[0] == item
                await user.strobe(ctx, dut.done, qp)
            assert (await user.look(ctx, qp))[0] is None

    simulate(dut, begin, bring, script, seed=rng.seed_value)


def test_restored():
    """Where a READ was asked for again, though the same is told of another QP in any cycle around."""
    dut = ReadTargets(QPS, 16, swaps=True)
    user = User(dut)

    async def script(ctx):
        for number in range(12):
            await user.at(ctx, 1)
            ctx.set(dut.resumed, {"again": number % 2, "psn": 1000 + number})
            ctx.set(dut.reads.payload, {"qp": 2, "again": 1, "target": {"psn": number}})
            for cycle in range(6):
                ctx.set(dut.restore, cycle == 2)
                ctx.set(dut.reads.valid, cycle == number // 2)
                await ctx.tick()
            ctx.set(dut.resumed, {"again": 1, "psn": 5})
            assert (await user.look(ctx, 1))[1:] == (number % 2, number % 2 and 1000 + number)
            assert (await user.look(ctx, 2))[1:] == (1, number)

    simulate(dut, script)


@pytest.mark.slow
def test_converts():
    rtlil.convert(ReadTargets(64))
    rtlil.convert(ReadTargets(64, swaps=True))
