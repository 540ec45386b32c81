"""Block RAM as ECP5 likes it."""

from amaranth.hdl import Module, Shape, Signal, ValueCastable
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["UNDEFINED_COLLISION", "Ram"]

UNDEFINED_COLLISION = "undefined_collision"
"""In the name of a memory: a read of the row being written may return anything. The Verilog generator tells yosys,
which then spends no logic on it.
"""


class Ram(wiring.Component):
    """Memory of ``depth`` rows with one write port and one read port, and a registered output.

    Reading takes 2 cycles: ``r_addr`` in cycle *n*, ``r_data`` in cycle *n + 2*; a new read may start each cycle. A row
    read in the very cycle in which it is written comes out undefined: the user must not need it (in simulation, the
    old row comes).

    Parameters
    ----------
    shape : shape-like
        Shape of a row.
    depth : int
        Rows.
    granularity : int or None
        Bits a lane of ``w_en``; None: whole rows.

    Members
    -------
    w_addr, w_data, w_en
        Write port; ``w_en`` has a bit a lane.
    r_addr, r_data
        Read port.
    r_en : 1
        A read begins; 1 if it is not connected. Else ``r_data`` stays, which changes 2 cycles after a read began.
    """

    def __init__(self, shape, depth, *, granularity=None):
        if depth < 1:
            raise ValueError(f"depth must be positive, not {depth!r}")
        self.shape = shape
        self.depth = depth
        self.granularity = granularity
        width = Shape.cast(shape).width
        if granularity is not None and width % granularity:
            raise ValueError(f"granularity {granularity!r} does not divide the row of {width} bits")
        address = max(1, ceil_log2(depth))
        super().__init__(
            {
                "w_addr": In(address),
                "w_data": In(shape),
                "w_en": In(1 if granularity is None else width // granularity),
                "r_addr": In(address),
                "r_en": In(1, init=1),
                "r_data": Out(shape),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = Shape.cast(self.shape).width
        # Left to itself, yosys builds narrow ones from LUTs, which are the scarcer of the two.
        attrs = {"ram_style": "block"}
        m.submodules[UNDEFINED_COLLISION] = mem = memory.Memory(
            shape=width, depth=max(2, self.depth), init=[], attrs=attrs
        )
        write = mem.write_port(granularity=self.granularity)
        read = mem.read_port()
        raw = self.w_data.as_value() if isinstance(self.w_data, ValueCastable) else self.w_data
        out = Signal(width, reset_less=True)
        comes = Signal(init=1)
        m.d.comb += [
            write.addr.eq(self.w_addr),
            write.data.eq(raw),
            write.en.eq(self.w_en),
            read.addr.eq(self.r_addr),
            read.en.eq(1),
        ]
        m.d.sync += comes.eq(self.r_en)
        with m.If(comes):  # the memory itself may read whatever is addressed
            m.d.sync += out.eq(read.data)
        m.d.comb += (self.r_data.as_value() if isinstance(self.r_data, ValueCastable) else self.r_data).eq(out)
        return m
