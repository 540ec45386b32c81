"""Commands to SDRAM chips, and the time between them."""

from math import ceil

from amaranth.hdl import Signal

from .sdram_pins import Command

__all__ = ["SdramCommands"]

MODE_CYCLES = 2
ALL_BANKS = 1 << 10


class SdramCommands:
    """The pins of a controller in ``m``, and when they may show the next command: ``pause``, ``active`` and ``recover``
    count down to 0.

    Members
    -------
    pause
        Cycles until the next command.
    active
        Until the row may be closed, since it was opened.
    recover
        Likewise, for the last word's sake.
    due : 1
        A refresh is to come, at first when the power has been there long enough. Who issues it takes this back.
    """

    def __init__(self, m, chip, clock, pins):
        self.m = m
        self.chip = chip
        self.clock = clock
        self.pins = pins
        longest = max(MODE_CYCLES, *map(self.cycles, (chip.refresh, chip.precharge, chip.row_to_column)))
        self.pause = Signal(range(longest))
        self.active = Signal(range(self.cycles(chip.row_active)))
        self.recover = Signal(range(max(chip.cas, chip.write_recovery)))
        self.due = Signal()
        interval = self.cycles(chip.refresh_all / chip.rows) - 1
        power_up = self.cycles(chip.power_up)
        timer = Signal(range(max(interval, power_up) + 1), init=power_up)
        m.d.sync += timer.eq(timer - 1)
        with m.If(timer == 0):
            m.d.sync += [timer.eq(interval), self.due.eq(1)]
        for counter in (self.pause, self.active, self.recover):
            with m.If(counter != 0):
                m.d.sync += counter.eq(counter - 1)
        m.d.sync += [pins.command.eq(Command.NOP), pins.dq_oe.eq(0)]

    def cycles(self, seconds):
        """So many, or more."""
        return ceil(seconds * self.clock - 1e-9)

    def _issue(self, command, cycles):
        self.m.d.sync += [self.pins.command.eq(command), self.pause.eq(cycles - 1)]

    def precharge(self):
        """Closes all rows."""
        self._issue(Command.PRECHARGE, self.cycles(self.chip.precharge))
        self.m.d.sync += self.pins.address.eq(ALL_BANKS)

    def mode(self):
        """CAS latency, single words."""
        self._issue(Command.MODE, MODE_CYCLES)
        self.m.d.sync += [self.pins.bank.eq(0), self.pins.address.eq(self.chip.cas << 4)]

    def refresh(self):
        self._issue(Command.REFRESH, self.cycles(self.chip.refresh))

    def activate(self, bank, row):
        """Opens a row."""
        self._issue(Command.ACTIVATE, self.cycles(self.chip.row_to_column))
        self.m.d.sync += [self.pins.bank.eq(bank), self.pins.address.eq(row)]
        self.m.d.sync += self.active.eq(self.cycles(self.chip.row_active) - 1)

    def _column(self, command, bank, column, recovery):
        self._issue(command, 1)
        self.m.d.sync += [self.pins.bank.eq(bank), self.pins.address.eq(column), self.recover.eq(recovery - 1)]

    def read(self, bank, column):
        self._column(Command.READ, bank, column, self.chip.cas)

    def write(self, bank, column, word):
        self._column(Command.WRITE, bank, column, self.chip.write_recovery)
        self.m.d.sync += [self.pins.dq_o.eq(word), self.pins.dq_oe.eq(1)]
