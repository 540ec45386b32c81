"""100 Mb/s: two nibbles a byte, the low one first, and a byte time of ten cycles of the gigabit clock."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["BytesToNibbles", "NibblesToBytes"]

CYCLES = 5
"""Of the gigabit clock, a nibble."""


class BytesToNibbles(wiring.Component):
    """Gives the transmitter its ticks, and stretches what it sends.

    Members
    -------
    slow : 1
        100 Mb/s. To be changed while nothing is sent.
    tick : 1
        The transmitter's byte time is over. A register.
    i_enable, i_data : 1, 8
        What the transmitter sends.
    enable, data : 1, 8
        GMII's; at 100 Mb/s a nibble, twice, that lasts 5 cycles.
    clock : 2
        Levels of the wire's clock in the two halves of this cycle; it rises where ``data`` changes.
    """

    def __init__(self):
        super().__init__(
            {
                "slow": In(1),
                "tick": Out(1),
                "i_enable": In(1),
                "i_data": In(8),
                "enable": Out(1),
                "data": Out(8),
                "clock": Out(2, init=0b01),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cycle, high = Signal(range(CYCLES)), Signal()
        # A register: much depends on it.
        m.d.sync += self.tick.eq(~self.slow | ((cycle == CYCLES - 2) & high))
        nibble = self.i_data.word_select(high, 4)
        with m.If(self.slow):
            m.d.sync += cycle.eq(cycle + 1)
            with m.If(cycle == CYCLES - 1):
                m.d.sync += [cycle.eq(0), high.eq(~high)]
        with m.Else():
            m.d.sync += [cycle.eq(0), high.eq(0)]
        m.d.sync += [
            self.enable.eq(self.i_enable),
            self.data.eq(Mux(self.slow, Cat(nibble, nibble), self.i_data)),
            self.clock.eq(Mux(self.slow, Cat(cycle <= 2, cycle <= 1), 0b01)),
        ]
        return m


class NibblesToBytes(wiring.Component):
    """Puts nibbles together where a frame begins; passes bytes at 1 Gb/s. 1 cycle through.

    Which nibble is a byte's low one the SFD tells: a PHY may lose any number of nibbles of the preamble.

    Members
    -------
    slow : 1
        100 Mb/s.
    i_valid, i_error, i_data : 1, 1, 8
        GMII's, a byte or a nibble (the low one) each cycle.
    tick : 1
        ``valid``, ``error`` and ``data`` are those of another byte time.
    valid, error, data : 1, 1, 8
    """

    def __init__(self):
        super().__init__(
            {
                "slow": In(1),
                "i_valid": In(1),
                "i_error": In(1),
                "i_data": In(8),
                "tick": Out(1),
                "valid": Out(1),
                "error": Out(1),
                "data": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        nibble = self.i_data[:4]
        before, error_before = Signal(4), Signal()
        high = Signal()  # the next nibble is a high one
        inside = Signal()  # behind the SFD
        sfd = self.i_valid & ~inside & (before == 0x5) & (nibble == 0xD)
        m.d.sync += [before.eq(nibble), error_before.eq(self.i_error), high.eq(~high)]
        with m.If(~self.i_valid):
            m.d.sync += [inside.eq(0), high.eq(0), before.eq(0), error_before.eq(0)]
        with m.Elif(sfd):
            m.d.sync += [inside.eq(1), high.eq(0)]
        m.d.sync += [self.valid.eq(self.i_valid), self.error.eq(self.i_error)]
        with m.If(self.slow):
            m.d.sync += [
                self.data.eq(Mux(self.i_valid, Cat(before, nibble), nibble)),
                self.error.eq(self.i_error | error_before),
                # The end of a frame is told at once, whichever nibble comes: half a byte too many is left out.
                self.tick.eq(Mux(self.i_valid, high | sfd, 1)),
            ]
        with m.Else():
            m.d.sync += [self.data.eq(self.i_data), self.tick.eq(1)]
        return m
