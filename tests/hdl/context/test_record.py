"""The checksum of a record."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from record_checksum import remainder
from streams import make_rng, simulate
from verbena.hdl.context.record import checked


class Checked(wiring.Component):
    """The function as a block."""

    checksum: In(64)
    word: In(64)
    then: Out(64)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.then.eq(checked(self.checksum, self.word))
        return m


def test_it_is_the_remainder_of_all_words():
    rng = make_rng()
    dut = Checked()

    async def testbench(ctx):
        for _ in range(20):
            begin = total = rng.getrandbits(64)
            words = [rng.choice([0, (1 << 64) - 1, rng.getrandbits(64)]) for _ in range(rng.randrange(1, 40))]
            whole = begin
            for word in words:
                ctx.set(dut.checksum, total)
                ctx.set(dut.word, word)
                await ctx.delay(1e-9)
                total = ctx.get(dut.then)
                whole = whole << 64 | word
            assert total == remainder(whole)

    simulate(dut, testbench, seed=rng.seed_value)


def test_no_three_bits_of_a_record_cancel_each_other():
    """Wherever in 2 KiB they are: no bit leaves what another one does, or what two others do together."""
    powers = [1]
    while len(powers) < 8 * 2048:
        powers.append(remainder(powers[-1] << 1))
    found = set(powers)
    assert len(found) == 8 * 2048
    assert not any(power ^ 1 in found for power in powers)  # of three bits the last one, moved to the lowest place
