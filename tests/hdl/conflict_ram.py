"""Block RAM that tells who needs what is undefined: Amaranth's simulator gives the old row, a chip anything."""

from amaranth.hdl import Cat, Module, Signal, Value
from verbena.hdl.context import bank
from verbena.hdl.stream import table
from verbena.hdl.stream.ram import Ram
from verbena.hdl.transport.completer import outstanding_messages

__all__ = ["ConflictRam", "tear"]


class ConflictRam(Ram):
    """A :class:`verbena.hdl.stream.ram.Ram` whose rows come out inverted if they were read while they were written."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.whole = whole = Ram(self.shape, self.depth, granularity=self.granularity)
        write_conflict = Signal(2)
        row = Value.cast(self.r_data)
        m.d.sync += write_conflict.eq(Cat(self.w_en.any() & (self.w_addr == self.r_addr), write_conflict[0]))
        m.d.comb += [
            whole.w_addr.eq(self.w_addr),
            whole.w_data.eq(self.w_data),
            whole.w_en.eq(self.w_en),
            whole.r_addr.eq(self.r_addr),
            row.eq(Value.cast(whole.r_data) ^ write_conflict[1].replicate(len(row))),
        ]
        return m


def tear(monkeypatch):
    """Makes the rows of all tables, banks and messages that are built from now on come from a :class:`ConflictRam`."""
    for module in (table, bank, outstanding_messages):
        monkeypatch.setattr(module, "Ram", ConflictRam)
