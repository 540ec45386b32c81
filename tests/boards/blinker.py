"""A board's design that is small enough for a test."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import io
from amaranth_boards.ecpix5 import ECPIX545Platform
from verbena.boards.board import Board
from verbena.boards.clocking import Clocking, pll_settings

__all__ = ["Blinker", "tiny"]


def tiny(name="tiny", **options):
    return Board(name, ECPIX545Platform, 100_000_000, **options)


class Blinker(Elaboratable):
    """As large as a design must be to have the clocks and the reset of a board."""

    def __init__(self, board, **_):
        self.board = board

    def elaborate(self, platform):
        m = Module()
        m.submodules.clocking = clocking = Clocking(pll_settings(100_000_000, self.board.core))
        m.domains += clocking.domains
        m.submodules.clock = clock = io.Buffer("i", platform.request("clk100", 0, dir="-"))
        m.d.comb += [clocking.reference.eq(clock.i), clocking.received.eq(clock.i)]
        m.submodules.counter = counter = Counter()
        m.submodules.led = led = io.Buffer("o", platform.request("rgb_led", 0, dir=dict.fromkeys("rgb", "-")).r)
        m.d.comb += led.o.eq(counter.o)
        return m


class Counter(Elaboratable):
    def __init__(self):
        self.o = Signal()

    def elaborate(self, platform):
        m = Module()
        count = Signal(24)
        m.d.sync += count.eq(count + 1)
        m.d.comb += self.o.eq(count[-1])
        return m
