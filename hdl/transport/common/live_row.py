"""A row that one block watches while another writes it."""

from amaranth.hdl import Module, Shape, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...stream.ram import UNDEFINED_COLLISION

__all__ = ["LiveRow"]


class LiveRow(wiring.Component):
    """Memory in block RAM whose output follows the row at ``r_addr``, writes included.

    ``row`` shows the row 2 cycles after its address, and a write 3 cycles after it. A row that is being written when it
    is first addressed comes 1 cycle later; until then ``row`` stays as it was. The same row must not be written in two
    cycles in succession.

    Parameters
    ----------
    width : int
        Bits of a row.
    depth : int
        Rows.

    Members
    -------
    w_addr, w_data, w_en
        Write port.
    r_addr, row
        Read port.
    """

    def __init__(self, width, depth):
        if depth < 2:
            raise ValueError(f"depth must be at least 2, not {depth!r}")
        self.width = Shape.cast(width).width
        self.depth = depth
        address = ceil_log2(depth)
        super().__init__(
            {
                "w_addr": In(address),
                "w_data": In(self.width),
                "w_en": In(1),
                "r_addr": In(address),
                "row": Out(self.width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules[UNDEFINED_COLLISION] = rows = memory.Memory(
            shape=self.width, depth=self.depth, init=[], attrs={"ram_style": "block"}
        )
        write, read = rows.write_port(), rows.read_port()
        clash = Signal()
        m.d.comb += [
            write.addr.eq(self.w_addr),
            write.data.eq(self.w_data),
            write.en.eq(self.w_en),
            read.addr.eq(self.r_addr),
        ]
        m.d.sync += clash.eq(self.w_en & (self.w_addr == self.r_addr))
        with m.If(~clash):
            m.d.sync += self.row.eq(read.data)
        return m
