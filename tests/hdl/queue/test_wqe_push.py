"""WqePush against a dictionary of words: who may push, what is read, and that nothing stays."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.queue.wqe_push import WqePush


class Model:
    """One buffer, open for one QP."""

    def __init__(self):
        self.owner, self.words = None, {}

    def push(self, qp, word, data):
        if word == 0:
            self.owner, self.words = qp, {}
        if qp == self.owner:
            self.words[word] = data

    def rows(self, count):
        words = [self.words.get(n, 0) for n in range(2 * count)]
        return [low | high << 32 for low, high in zip(words[::2], words[1::2])]


@pytest.mark.parametrize("count", [50, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stall", [0, 0.5])
def test_random(stall, count):
    """Words of several QPs in any order; then one QP's doorbell, whose WQE is copied, forgotten, or not there."""
    rng = make_rng()
    dut = WqePush(4, swaps=True)
    model = Model()
    copies = [0]

    async def push(ctx, qp, word, data):
        ctx.set(dut.push.payload, {"qp": qp, "word": word, "data": data})
        ctx.set(dut.push.valid, 1)
        waited = 0
        edges = aiter(ctx.tick().sample(dut.push.ready, dut.hold))
        while True:
            ctx.set(dut.hold, rng.random() < stall)
            _, _, ready, hold = await anext(edges)
            assert not (ready and hold)
            waited += not hold
            assert waited < 20
            if ready:
                break
        ctx.set(dut.push.valid, 0)
        ctx.set(dut.hold, 0)
        model.push(qp, word, data)

    async def testbench(ctx):
        for _ in range(count):
            qps = rng.choice([[0], [1], [2], [3], [0, 1], [1, 2, 3]])
            for _ in range(rng.choice([0, 3, 8, 20])):
                await push(ctx, rng.choice(qps), rng.choice([0, *range(1, 32)]), rng.getrandbits(32))
            first = rng.choice(qps)
            if rng.random() < 0.8:
                for word in sorted({0, *(rng.randrange(32) for _ in range(rng.randrange(20)))}):
                    await push(ctx, first, word, rng.getrandbits(32))
            if rng.random() < 0.2:  # somebody leaves, and his next words are those of another
                left = rng.choice([first, rng.randrange(4)])
                ctx.set(dut.moved_qp, left)
                ctx.set(dut.moved, 1)
                await ctx.tick()
                ctx.set(dut.moved, 0)
                if model.owner == left:
                    model.owner = None
                if rng.random() < 0.5:
                    await push(ctx, left, rng.randrange(1, 32), rng.getrandbits(32))
            doorbell = rng.choice([first, first, rng.randrange(4)])
            ctx.set(dut.hold, 1)
            ctx.set(dut.qp, doorbell)
            for _ in range(17):
                mine = ctx.get(dut.mine)
                if mine == (model.owner == doorbell):
                    break
                assert not mine
                await ctx.tick()
            assert mine == (model.owner == doorbell)
            wide = rng.randrange(2)
            expected = model.rows(16 if wide else 8)
            copy = mine and rng.random() < 0.7
            if mine or rng.random() < 0.2:  # or a reset
                model.owner = None
                ctx.set(dut.start, 1)
                ctx.set(dut.copy, copy)
                ctx.set(dut.wide, wide)
                await ctx.tick()
                ctx.set(dut.start, 0)
            got = []
            while copy:
                room = rng.random() >= stall
                ctx.set(dut.room, room)
                assert ctx.get(dut.put_en)
                at, word, copied = ctx.get(dut.put_row), ctx.get(dut.put_word), ctx.get(dut.copied)
                if room:
                    assert at == len(got)
                    got.append(word)
                assert copied == (room and at == len(expected) - 1)
                await ctx.tick()
                if copied:
                    break
            ctx.set(dut.room, rng.randrange(2))
            assert not ctx.get(dut.put_en)
            ctx.set(dut.hold, 0)
            if copy:
                copies[0] += 1
                assert got == expected

    simulate(dut, testbench, seed=rng.seed_value, deadline=60_000)
    assert copies[0] > count // 12


def test_words_of_others_are_forgotten():
    """Behind the word that opens the buffer, words of another queue pair change nothing."""
    dut = WqePush(4)
    rows = []

    async def testbench(ctx):
        for _ in range(20):
            await ctx.tick()
        ctx.set(dut.push.valid, 1)
        for qp, word in [(2, 0), *((qp, word) for word in range(1, 16) for qp in (2, 1, 3, 0))]:
            ctx.set(dut.push.payload, {"qp": qp, "word": word, "data": 100 * qp + word})
            assert ctx.get(dut.push.ready)
            await ctx.tick()
        ctx.set(dut.push.valid, 0)
        for qp in range(4):
            ctx.set(dut.qp, qp)
            assert ctx.get(dut.mine) == (qp == 2)
        for port in (dut.room, dut.copy, dut.start):
            ctx.set(port, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        while len(rows) < 8:
            rows.append(ctx.get(dut.put_word))
            await ctx.tick()

    simulate(dut, testbench)
    assert rows == [200 + 2 * row | 201 + 2 * row << 32 for row in range(8)]


def test_words_come_as_fast_as_they_may():
    dut = WqePush(2)

    async def testbench(ctx):
        for _ in range(20):
            await ctx.tick()
        for word in range(32):
            ctx.set(dut.push.payload, {"qp": 1, "word": word, "data": word + 1})
            ctx.set(dut.push.valid, 1)
            assert ctx.get(dut.push.ready)
            await ctx.tick()
        ctx.set(dut.push.valid, 0)
        ctx.set(dut.qp, 1)
        ctx.set(dut.wide, 1)
        ctx.set(dut.room, 1)
        ctx.set(dut.copy, 1)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        for row in range(16):
            assert ctx.get(dut.put_word) == 2 * row + 1 | 2 * row + 2 << 32
            assert ctx.get(dut.copied) == (row == 15)
            await ctx.tick()
        assert not ctx.get(dut.mine)

    simulate(dut, testbench)
