"""The prover itself: it proves what holds, finds what does not, and leaves open what hardware leaves open."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from prover import assume, claim, cover, prove, reach
from verbena.hdl.stream.ram import Ram


class Counter(wiring.Component):
    """Counts up to ``last``, it is claimed."""

    en: In(1)

    def __init__(self, last):
        self.last = last
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        count = Signal(4)
        m.d.sync += count.eq(count + self.en)
        claim(m, "low", count <= self.last)
        reach(m, "three", count == 3)
        assume(m, ~self.en | (count < 5))
        return m


class Collision(wiring.Component):
    """A memory of fives and zeros."""

    en: In(1)
    r_addr: In(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(4, 2)
        m.d.comb += [ram.w_en.eq(self.en), ram.w_data.eq(5), ram.w_addr.eq(1), ram.r_addr.eq(self.r_addr)]
        claim(m, "stored", (ram.r_data == 0) | (ram.r_data == 5))
        return m


def test_claims(tmp_path):
    assert prove(Counter(5), tmp_path, 8).holds
    verdict = prove(Counter(4), tmp_path, 8)
    assert not verdict.holds
    assert verdict.names == ["low"]
    assert verdict.trace.exists()
    assert prove(Counter(4), tmp_path, 5).holds


def test_reaches(tmp_path):
    verdict = cover(Counter(5), tmp_path, 4)
    assert verdict.holds
    assert verdict.names == {"three": 3}
    assert not cover(Counter(5), tmp_path, 3).holds


def test_a_row_read_while_it_is_written_is_undefined(tmp_path):
    assert prove(Collision(), tmp_path, 5).names == ["stored"]
