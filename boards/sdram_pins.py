"""What stands between a controller and SDRAM chips: their sizes and times, and the pins."""

from dataclasses import dataclass

from amaranth.hdl import ClockSignal, Const, Instance, Module, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["STROBES", "Command", "SdramChip", "SdramPads", "SdramPins"]

STROBES = ("ras_n", "cas_n", "we_n")
"""In the order of the bits of a :class:`Command`."""


class Command(enum.Enum, shape=3):
    """RAS, CAS and WE, 1 for asserted (JESD21-C, 3.11.5.1)."""

    NOP = 0b000
    MODE = 0b111
    REFRESH = 0b011
    PRECHARGE = 0b101
    ACTIVATE = 0b001
    WRITE = 0b110
    READ = 0b010


@dataclass(frozen=True)
class SdramChip:
    """One row of chips: their sizes, and their times in seconds; ``cas`` and ``write_recovery`` are cycles."""

    banks: int
    rows: int
    columns: int
    width: int
    cas: int = 2
    write_recovery: int = 2
    row_to_column: float = 18e-9
    precharge: float = 18e-9
    row_active: float = 42e-9
    refresh: float = 60e-9
    refresh_all: float = 32e-3
    power_up: float = 200e-6

    @property
    def size(self):
        """Bytes."""
        return self.banks * self.rows * self.columns * self.width // 8


class SdramPins(wiring.Signature):
    """The controller's side of the pins. Chip select and clock enable stay asserted, and no byte is ever masked: some
    boards have not connected these pins.

    Members
    -------
    command : ``Command``
    bank, address
    dq_o, dq_oe, dq_i
        Data; ``dq_i`` shows what a READ has asked for a fixed number of cycles behind it.
    """

    def __init__(self, chip):
        self.chip = chip
        super().__init__(
            {
                "command": Out(Command),
                "bank": Out(ceil_log2(chip.banks)),
                "address": Out(max(11, ceil_log2(chip.rows))),
                "dq_o": Out(chip.width),
                "dq_oe": Out(1),
                "dq_i": In(chip.width),
            }
        )


class SdramPads(wiring.Component):
    """An ECP5's pins to SDRAM. The chip's clock is ``sync`` turned round, so that what changes at its pins does so half
    a cycle before and behind its edge; what it drives is sampled at the falling edge of ``sync``, for the same reason.

    Parameters
    ----------
    chip : SdramChip

    Members
    -------
    pins : ``SdramPins``, flipped
    clock, ras_n, cas_n, we_n, bank, address, dq_o : Out
        To buffers.
    dq_oe : Out(1)
    dq_i : In
    """

    def __init__(self, chip):
        self.chip = chip
        pins = SdramPins(chip)
        super().__init__(
            {
                "pins": In(pins),
                "clock": Out(1),
                **{name: Out(1) for name in STROBES},
                **{name: pins.members[name] for name in ("bank", "address", "dq_o", "dq_i")},
                "dq_oe": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pins = self.pins
        self._output(m, "clock", 0, 1, self.clock)
        sources = [(f"{name}", ~bit, getattr(self, name)) for name, bit in zip(STROBES, pins.command.as_value())]
        for name in ("bank", "address", "dq_o"):
            sources += [
                (f"{name}_{n}", source, target)
                for n, (source, target) in enumerate(zip(getattr(pins, name), getattr(self, name)))
            ]
        for name, source, target in sources:
            self._output(m, name, source, source, target)
        m.d.sync += self.dq_oe.eq(pins.dq_oe)  # a cycle, as the data
        for number, (pin, target) in enumerate(zip(self.dq_i, pins.dq_i)):
            m.submodules[f"dq_i_{number}"] = Instance(
                "IDDRX1F", i_SCLK=ClockSignal(), i_RST=Const(0), i_D=pin, o_Q0=Signal(), o_Q1=target
            )
        return m

    def _output(self, m, name, first, second, pin):
        """``first`` while the clock is high, then ``second``."""
        m.submodules[f"{name}_oddr"] = Instance(
            "ODDRX1F", i_SCLK=ClockSignal(), i_RST=Const(0), i_D0=first, i_D1=second, o_Q=pin
        )
