"""ContextWords: with the table of attributes."""

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from streams import make_rng, pause, plain, send_all, simulate
from verbena.hdl.abi.contexts import QP_CONTEXT, QP_CONTEXT_WORDS, QpState
from verbena.hdl.control.context_words import ATTRIBUTE_WORDS, ContextWords
from verbena.hdl.control.contexts import Contexts
from verbena.hdl.stream.connections import connect_signals
from verbena.hdl.stream.transfer import AttributeWrite

SLOTS = 4
WORDS = 2 * ATTRIBUTE_WORDS
QPN_WORD = QP_CONTEXT.fields["qpn"].word


class Bench(wiring.Component):
    """Both, side by side as in the command block; ``other_…`` writes as a command does, while it is not busy."""

    def __init__(self):
        self.words = ContextWords()
        mine = self.words.signature.members
        names = ("save", "load", "clear", "busy", "saved", "loaded")
        super().__init__(
            {name: mine[name] for name in names}
            | {
                "number": In(12),
                "other": In(1),
                "other_word": In(range(QP_CONTEXT_WORDS)),
                "other_data": In(32),
                "qp_attribute": Out(AttributeWrite),
                "qp_attribute_en": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = self.words
        m.submodules.contexts = contexts = Contexts(SLOTS)
        connect_signals(m, self, words, "save", "load", "clear")
        connect_signals(m, words, self, "busy")
        connect_signals(m, contexts, self, "qp_attribute", "qp_attribute_en")
        wiring.connect(m, words.saved, wiring.flipped(self.saved))
        wiring.connect(m, wiring.flipped(self.loaded), words.loaded)
        m.d.comb += [
            words.row.eq(contexts.row),
            contexts.number.eq(self.number),
            contexts.word.eq(Mux(self.other, self.other_word, words.word)),
            contexts.data.eq(Mux(self.other, self.other_data, words.data)),
            contexts.write_qp.eq(self.other | words.write),
        ]
        return m


class World:
    def __init__(self):
        self.rng = make_rng()
        self.dut = Bench()
        self.heard = []  # (slot, word, data)
        self.table = {}

    async def listen(self, ctx):
        async for _, _, enable, item in ctx.tick().sample(self.dut.qp_attribute_en, self.dut.qp_attribute):
            if enable:
                self.heard.append((item.index, item.word, item.data))
                self.table[item.index, item.word] = item.data

    async def create(self, ctx, slot):
        words = [self.rng.getrandbits(32) for _ in range(QP_CONTEXT_WORDS)]
        ctx.set(self.dut.number, slot)
        ctx.set(self.dut.other, 1)
        for word in reversed(range(QP_CONTEXT_WORDS)):
            ctx.set(self.dut.other_word, word)
            ctx.set(self.dut.other_data, words[word])
            await ctx.tick()
        ctx.set(self.dut.other, 0)
        await ctx.tick().repeat(2)
        return words[:WORDS]

    async def strobe(self, ctx, name, slot):
        assert not ctx.get(self.dut.busy)
        ctx.set(self.dut.number, slot)
        ctx.set(getattr(self.dut, name), 1)
        await ctx.tick()
        ctx.set(getattr(self.dut, name), 0)
        assert ctx.get(self.dut.busy)

    async def until_over(self, ctx):
        while ctx.get(self.dut.busy):
            await ctx.tick()

    async def save(self, ctx, slot, stall=0.3):
        """What the QP in this slot gives away."""
        await self.strobe(ctx, "save", slot)
        port, words = self.dut.saved, []
        last = False
        while not last:
            await pause(ctx, self.rng, stall)
            ctx.set(port.ready, 1)
            valid = False
            while not valid:
                assert ctx.get(self.dut.busy)
                _, _, valid, item = await ctx.tick().sample(port.valid, port.payload)
            ctx.set(port.ready, 0)
            item, last = plain(item), item.last
            assert not item.wake
            words.append(item.data)
        await self.until_over(ctx)
        return words

    async def load(self, ctx, slot, words, stall=0.3):
        del self.heard[:]
        await self.strobe(ctx, "load", slot)
        await send_all(ctx, self.dut.loaded, words, self.rng, stall)
        await self.until_over(ctx)

    def run(self, testbench):
        simulate(self.dut, testbench, background=[self.listen], seed=self.rng.seed_value)


def pairs(words):
    return [words[n] | words[n + 1] << 32 for n in range(0, WORDS, 2)]


def test_what_goes_comes_back_to_another_slot():
    """Word for word, and each is broadcast once: the one with the state last."""
    world = World()

    async def testbench(ctx):
        away = [await world.create(ctx, slot) for slot in range(SLOTS)]
        for slot, words in enumerate(away):
            assert await world.save(ctx, slot) == pairs(words)
        for _ in range(8):
            slot, words = world.rng.randrange(SLOTS), world.rng.choice(away)
            await world.load(ctx, slot, pairs(words), world.rng.choice([0, 0.3, 0.8]))
            # It has all been heard when it is over.
            assert sorted(world.heard) == [(slot, word, data) for word, data in enumerate(words)]
            assert world.heard[-1] == (slot, 0, words[0])
            assert await world.save(ctx, slot) == pairs(words)

    world.run(testbench)


def test_a_qp_that_waits_for_its_words_keeps_the_old_state():
    """Until the last word is there nobody hears of the new one, however long that takes."""
    world = World()

    async def testbench(ctx):
        before = await world.create(ctx, 1)
        words = await world.create(ctx, 2)
        await world.strobe(ctx, "load", 1)
        for word in pairs(words)[:-1]:
            await send_all(ctx, world.dut.loaded, [word])
            await ctx.tick().repeat(1 + world.rng.randrange(12))
            assert world.table[1, 0] == before[0]
        await send_all(ctx, world.dut.loaded, pairs(words)[-1:])
        await world.until_over(ctx)
        assert [world.table[1, word] for word in range(WORDS)] == words

    world.run(testbench)


def test_a_slot_that_is_nobodys():
    """The number is 0 first, then the state RESET; the rest, and other slots, stay."""
    world = World()

    async def testbench(ctx):
        old = [await world.create(ctx, slot) for slot in range(SLOTS)]
        del world.heard[:]
        await world.strobe(ctx, "clear", 2)
        cycles = 1
        while ctx.get(world.dut.busy):
            await ctx.tick()
            cycles += 1
        assert cycles <= 5
        assert world.heard == [(2, QPN_WORD, 0), (2, 0, QpState.RESET)]
        for slot, words in enumerate(old):
            expected = list(words)
            if slot == 2:
                expected[0] = expected[QPN_WORD] = 0
            assert await world.save(ctx, slot) == pairs(expected)

    world.run(testbench)


def test_cycles():
    """Of words that nobody stalls."""
    world = World()
    taken = {}

    async def testbench(ctx):
        words = pairs(await world.create(ctx, 0))
        for name in ("save", "load"):
            ctx.set(world.dut.saved.ready, 1)
            ctx.set(world.dut.loaded.valid, 1)
            ctx.set(world.dut.loaded.payload, words[0])
            await world.strobe(ctx, name, 0)
            taken[name] = 1
            while ctx.get(world.dut.busy):
                await ctx.tick()
                taken[name] += 1

    world.run(testbench)
    assert taken["save"] <= 3 * WORDS + 1
    assert taken["load"] <= 3 * ATTRIBUTE_WORDS + 4
