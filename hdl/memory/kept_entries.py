"""Entries of the MPT that work requests have changed or bound to, kept for the next request."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.tables import KEY_INDEX_BITS, MPT
from ..stream.ram import Ram
from ..stream.record import record_layout

__all__ = ["KeptEntries"]


class KeptEntries(wiring.Component):
    """As many entries as there are ``rows``, each in the row that the low bits of its index name, as they are in host
    memory. For as many cycles as there are rows after reset none is there, and none is put.

    Parameters
    ----------
    rows : int
        A power of two, at least 2. Up to 512 take no more block RAM than fewer.

    Members
    -------
    index : 24
        An entry that is looked for.
    here, entry : 1, ``MPT``
        It was kept 2 cycles ago, if ``index`` is the same since, and what it was; of a row that was written in that
        cycle nothing is here.
    put, drop : 1
        Strobes, not both: ``put_entry`` is kept as that of ``put_index`` from the next cycle on, in place of whatever
        was in its row; or nothing is kept in its row.
    put_index, put_entry : 24, ``MPT``
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
                "drop": In(1),
                "put_index": In(KEY_INDEX_BITS),
                "put_entry": In(layout),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self.rows)
        row = data.StructLayout({"used": 1, "tag": KEY_INDEX_BITS - bits, "entry": record_layout(MPT)})
        m.submodules.table = table = Ram(row, self.rows)
        clearing, place = Signal(init=1), Signal(bits)
        with m.If(clearing):
            m.d.sync += [place.eq(place + 1), clearing.eq(~place.all())]
        written, undefined = Signal(), Signal()
        m.d.comb += [
            table.w_addr.eq(Mux(clearing, place, self.put_index[:bits])),
            table.w_data.used.eq(self.put & ~clearing),
            table.w_data.tag.eq(self.put_index[bits:]),
            table.w_data.entry.eq(self.put_entry),
            table.w_en.eq(clearing | self.put | self.drop),
            table.r_addr.eq(self.index[:bits]),
            self.entry.eq(table.r_data.entry),
            self.here.eq(table.r_data.used & (table.r_data.tag == self.index[bits:]) & ~undefined),
        ]
        # Rows that are not cleared yet may say anything.
        m.d.sync += [
            written.eq(clearing | (table.w_en & (table.w_addr == table.r_addr))),
            undefined.eq(written),
        ]
        return m
