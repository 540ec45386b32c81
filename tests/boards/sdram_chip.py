"""A strict SDRAM, edge by edge: data sheet times are asserted, and what is not driven reads as noise."""

from math import ceil

from verbena.boards.sdram_pins import Command

__all__ = ["SdramModel"]


class SdramModel:
    """Chips as ``chip`` says, at ``clock`` Hz. Attributes: ``words`` by (bank, row, column), ``commands`` counted."""

    def __init__(self, chip, clock, rng):
        self.chip, self.clock, self.rng = chip, clock, rng
        self.words = {}
        self.commands = dict.fromkeys(Command, 0)
        self.now = 0
        self.ready = False
        self.free = self.cycles(chip.power_up)  # when the next command may come
        self.precharged = False
        self.refreshed = None
        self.open = {}  # bank to (row, since when)
        self.closed = {}  # bank to when it was
        self.opened = {}
        self.written = self.read_at = -9
        self.drives = {}  # edge to word

    def cycles(self, seconds):
        return ceil(seconds * self.clock - 1e-9)

    def edge(self, command, bank, address, dq):
        """An edge of the chip's clock; ``dq`` is what somebody else drives, or None. Returns what the chip drives for
        this edge to be sampled, or None.
        """
        command, now, chip = Command(command), self.now, self.chip
        out = self.drives.pop(now, None)
        # It begins to drive up to a cycle before.
        assert dq is None or (out is None and now + 1 not in self.drives), "two drive the data"
        if command != Command.NOP:
            self.commands[command] += 1
            assert now >= self.free, f"{command.name} comes {self.free - now} cycles early"
            getattr(self, command.name.lower())(bank, address, dq)
        if self.refreshed is not None:
            assert now - self.refreshed <= 1.2 * self.cycles(chip.refresh_all / chip.rows), "refresh is late"
        self.now += 1
        return out

    def mode(self, bank, address, dq):
        assert self.precharged
        assert self.commands[Command.REFRESH] >= 2, "refreshes at the beginning"
        assert (bank, address) == (0, self.chip.cas << 4), "CAS latency, single words"
        self.ready = True
        self.free = self.now + 2

    def precharge(self, bank, address, dq):
        chip, now = self.chip, self.now
        assert address >> 10 & 1, "all banks"
        for _row, since in self.open.values():
            assert now - since >= self.cycles(chip.row_active), "row closed early"
        assert now - self.written >= chip.write_recovery, "row closed before the last word is written"
        assert now - self.read_at >= 1, "row closed before the last word is read"
        self.closed = dict.fromkeys(range(chip.banks), now)
        self.open = {}
        self.precharged = True

    def refresh(self, bank, address, dq):
        assert self.precharged
        assert not self.open
        assert self.now - self.closed[0] >= self.cycles(self.chip.precharge)
        self.refreshed = self.now
        self.free = self.now + self.cycles(self.chip.refresh)

    def activate(self, bank, address, dq):
        chip, now = self.chip, self.now
        assert self.ready, "not set up"
        assert bank not in self.open
        assert now - self.closed[bank] >= self.cycles(chip.precharge)
        assert now - self.opened.get(bank, -99) >= self.cycles(chip.row_active + chip.precharge)
        assert address < chip.rows
        self.open[bank] = (address, now)
        self.opened[bank] = now

    def _place(self, bank, address):
        assert not address >> 10, "no automatic precharge"
        assert address < self.chip.columns
        row, since = self.open[bank]
        assert self.now - since >= self.cycles(self.chip.row_to_column)
        return bank, row, address

    def write(self, bank, address, dq):
        assert dq is not None, "nobody drives what is written"
        self.words[self._place(bank, address)] = dq
        self.written = self.now

    def read(self, bank, address, dq):
        place = self._place(bank, address)
        self.drives[self.now + self.chip.cas] = self.words.get(place, self.rng.getrandbits(self.chip.width))
        self.read_at = self.now
