"""Words between the mailbox and the contexts."""

import pytest
from streams import changes, make_rng, simulate
from verbena.hdl.abi.contexts import QP_CONTEXT_WORDS
from verbena.hdl.control.context_mover import ContextMover

KINDS = 3


class World:
    """A mailbox and a table of contexts, of both of which a word comes 2 cycles after its number."""

    def __init__(self):
        self.rng = make_rng()
        self.dut = ContextMover(KINDS)
        self.mailbox = [self.rng.getrandbits(32) for _ in range(64)]
        self.table = [self.rng.getrandbits(32) for _ in range(QP_CONTEXT_WORDS)]
        self.written = []  # (kind, word, data)
        self.read = {}

    async def around(self, ctx):
        dut, put = self.dut, changes(ctx)
        rows, mails = [0, 0], [0, 0]
        while True:
            put(dut.mailbox_r_data, self.mailbox[mails[0]])
            assert ctx.get(dut.coming) == mails[0] % QP_CONTEXT_WORDS
            mails = [mails[1], ctx.get(dut.mailbox_addr)]
            if ctx.get(dut.mailbox_w_en):
                self.read[ctx.get(dut.mailbox_addr)] = self.table[rows[0]]
            if kind := ctx.get(dut.write_word):
                self.written.append((kind, ctx.get(dut.word), ctx.get(dut.data)))
            rows = [rows[1], ctx.get(dut.word)]
            await ctx.tick()

    async def strobe(self, ctx, port, value=1):
        """Returns the cycles in which it was busy."""
        ctx.set(port, value)
        await ctx.tick()
        ctx.set(port, 0)
        cycles = 0
        while ctx.get(self.dut.busy):
            cycles += 1
            await ctx.tick()
        return cycles

    def run(self, host):
        simulate(self.dut, host, background=[self.around], seed=self.rng.seed_value)


@pytest.mark.parametrize("kind", range(KINDS))
@pytest.mark.parametrize("first", [QP_CONTEXT_WORDS - 1, 3, 0])
def test_words_are_written_from_the_first_down_to_the_state(kind, first):
    world = World()

    async def host(ctx):
        ctx.set(world.dut.first, first)
        assert await world.strobe(ctx, world.dut.write, 1 << kind) == first + 4
        assert ctx.get(world.dut.word) == 0
        await ctx.tick().repeat(5)

    world.run(host)
    assert world.written == [(1 << kind, word, world.mailbox[word]) for word in reversed(range(first + 1))]


def test_one_word_alone_zeros_and_a_given_value():
    world = World()
    dut = world.dut

    async def host(ctx):
        ctx.set(dut.first, 15)
        ctx.set(dut.single, 1)
        ctx.set(dut.value, 0xABCDEF01)
        for zero, given in ((0, 0), (0, 1), (1, 1), (1, 0)):
            ctx.set(dut.zero, zero)
            ctx.set(dut.given, given)
            await world.strobe(ctx, dut.write)
        await ctx.tick()

    world.run(host)
    assert world.written == [(1, 15, data) for data in (world.mailbox[15], 0xABCDEF01, 0, 0)]


def test_a_context_is_read_and_a_word_of_the_mailbox_shown():
    world = World()
    dut = world.dut

    async def host(ctx):
        assert await world.strobe(ctx, dut.read) == 4 * QP_CONTEXT_WORDS
        assert ctx.get(dut.word) == 0
        for shown in (17, 16):
            ctx.set(dut.shown, shown)
            await ctx.tick().repeat(4)
            assert ctx.get(dut.data) == world.mailbox[shown]
            assert ctx.get(dut.word) == 0

    world.run(host)
    assert world.read == dict(enumerate(world.table))
    assert not world.written
