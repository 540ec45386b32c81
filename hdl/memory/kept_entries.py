"""Entries of the MPT that work requests have changed or bound to, kept for the next request."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.tables import KEY_INDEX_BITS, MPT
from ..stream.record import record_layout

__all__ = ["KeptEntries"]


class KeptEntries(wiring.Component):
    """As many entries as there are ``rows``, each in the row that the low bits of its index name, as they are in host
    memory. None after reset.

    Parameters
    ----------
    rows : int
        A power of two, at least 2.

    Members
    -------
    index : 24
        An entry's. What follows is about it, in the same cycle.
    here, entry : 1, ``MPT``
        It is kept, and what it is.
    put, put_entry : 1, ``MPT``
        Strobe: it is kept from the next cycle on, in place of whatever was in its row.
    drop : 1
        Strobe: nothing is kept in its row from the next cycle on. Not together with ``put``.
    """

    def __init__(self, rows):
        if rows < 2 or rows & rows - 1:
            raise ValueError(f"rows must be a power of two, at least 2, not {rows!r}")
        self.rows = rows
        layout = record_layout(MPT)
        super().__init__(
            {
                "index": In(KEY_INDEX_BITS),
                "here": Out(1),
                "entry": Out(layout),
                "put": In(1),
                "put_entry": In(layout),
                "drop": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self.rows)
        row = data.StructLayout({"tag": KEY_INDEX_BITS - bits, "entry": record_layout(MPT)})
        m.submodules.table = table = memory.Memory(shape=row, depth=self.rows, init=[])
        put, get = table.write_port(), table.read_port(domain="comb")
        used = Signal(self.rows)
        place, tag = self.index[:bits], self.index[bits:]
        m.d.comb += [
            put.addr.eq(place),
            put.data.tag.eq(tag),
            put.data.entry.eq(self.put_entry),
            put.en.eq(self.put),
            get.addr.eq(place),
            self.entry.eq(get.data.entry),
            self.here.eq(used.bit_select(place, 1) & (get.data.tag == tag)),
        ]
        with m.If(self.put | self.drop):
            m.d.sync += used.bit_select(place, 1).eq(self.put)
        return m
