"""A set of queue pairs, of all that the table has: those whose timer runs, or that have work, and no slot."""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.ram import Ram

__all__ = ["QpSet"]

ROW = 32
"""QPs of a row of block RAM."""


def _lowest(bits):
    """Number of the lowest set bit of a power of two of bits; the highest one if none is. Halves are compared, so that
    it takes no chain.
    """
    if len(bits) == 1:
        return C(0, 0)
    half = len(bits) // 2
    low, high = bits[:half], bits[half:]
    first = low.any()
    return Cat(Mux(first, _lowest(low), _lowest(high)), ~first)


class QpSet(wiring.Component):
    """A bit for each QP index below ``qps``, in block RAM: 16,384 take one.

    ``change`` puts a QPN in or takes it out. ``o`` shows the members one after the other, in ascending order and round
    and round, from the first that comes into an empty set on; with ``serve`` a member that is taken at ``o`` is no
    member any more, and with ``serve`` off it stays. What is changed while a member stands at ``o`` may be too late
    for it.

    *Cycles*: a change 5, and up to 3 more while rows are looked at. A member that comes into an empty set is shown 10
    after it was given. A member that is taken is followed by the next of its row of 32 after 3, or with ``serve`` after
    7; by one of another row 8 or, with ``serve``, 12 after it was taken, and 1 more for each row between; changes come
    first. After a reset all are taken out, which takes as many cycles as there are rows.

    Parameters
    ----------
    qps : int
        A power of two, at least 2.
    serve : bool
        Whether taking a member takes it out.

    Members
    -------
    change : stream of ``qpn``, ``member``
    o : stream of QPN
    empty : 1
        There is no member, for as long as one whole round lasts.
    """

    def __init__(self, qps, *, serve):
        if not isinstance(qps, int) or qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        self.qps = qps
        self.serve = serve
        super().__init__(
            {
                "change": In(stream.Signature(data.StructLayout({"qpn": range(qps), "member": 1}))),
                "o": Out(stream.Signature(range(qps))),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        low, rows = ceil_log2(ROW), max(2, self.qps // ROW)
        m.submodules.ram = ram = Ram(ROW, rows)
        changed = self.change.payload
        row, walk = Signal(range(rows)), Signal(range(rows))  # that is read; the next one to be looked at
        read = Signal(2)  # of the walk's rows, in the two cycles that a read takes
        bit, member = Signal(ROW), Signal()  # what changes in it, if anything, and how
        place, late = Signal(range(ROW)), Signal()  # its number; it came in the cycle in which a member was taken
        at, found = Signal(range(rows)), Signal(range(ROW))
        here, behind = Signal(ROW), Signal(ROW)  # the row at `o`; its places that have not had their turn
        count = Signal(range(self.qps + 1))
        before, more = Signal(), Signal()  # it was a member; one more, or one less
        gone, served = Signal(), Signal()  # what was taken is to be taken out
        m.d.comb += [
            ram.r_addr.eq(row),
            ram.w_addr.eq(row),
            before.eq((ram.r_data & bit).any()),
            ram.w_data.eq(Mux(member, ram.r_data | bit, ram.r_data & ~bit)),
            served.eq(self.o.valid & self.o.ready),
            self.o.payload.eq(Cat(found, at)),
            self.empty.eq(count == 0),
        ]
        # Who is next is known a cycle after `here` and `behind` have changed.
        some, lowest, changes = Signal(), Signal(range(ROW)), Signal()
        shows = Signal()
        waits = here & behind
        m.d.sync += [some.eq(waits.any()), lowest.eq(_lowest(waits)), changes.eq(served)]
        m.d.comb += shows.eq(~self.o.valid & ~changes & some & ~gone)
        with m.If(served):
            m.d.sync += [self.o.valid.eq(0), gone.eq(self.serve)]
        with m.FSM():
            with m.State("RESET"):
                m.d.comb += [ram.w_data.eq(0), ram.w_en.eq(1)]
                m.d.sync += row.eq(row + 1)
                with m.If(row == rows - 1):
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.comb += self.change.ready.eq(~gone)
                with m.If(gone):
                    m.d.sync += [row.eq(at), member.eq(0), gone.eq(0)]
                    m.next = "READ"
                with m.Elif(self.change.valid):
                    m.d.sync += [row.eq(changed.qpn[low:]), member.eq(changed.member)]
                    m.next = "READ"
                with m.Elif(~self.o.valid & ~changes & ~some & ~self.empty):
                    m.d.sync += [row.eq(walk), read.eq(0)]
                    m.next = "WALK"
                with m.If(gone | self.change.valid):
                    m.d.sync += bit.eq(1 << Mux(gone, found, changed.qpn[:low]))
                m.d.sync += [place.eq(changed.qpn[:low]), late.eq(served)]
                with m.If(shows):
                    m.d.sync += [self.o.valid.eq(1), found.eq(lowest)]
                    m.d.sync += behind.eq(Cat(lowest < place for place in range(ROW)))
            with m.State("READ"):
                m.next = "WAIT"
            with m.State("WAIT"):
                m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += ram.w_en.eq(1)
                m.d.sync += more.eq(member != before)
                with m.If(late & member & (row == at) & (place == found)):  # it comes in once more
                    m.d.sync += gone.eq(0)
                with m.If(row == at):
                    m.d.sync += here.eq(ram.w_data)
                with m.If(self.empty):
                    m.d.sync += walk.eq(row)
                m.next = "COUNT"
            with m.State("COUNT"):
                m.d.sync += bit.eq(0)
                with m.If(more):
                    m.d.sync += count.eq(count + Mux(member, 1, -1))
                m.next = "IDLE"
            with m.State("WALK"):
                m.d.sync += [row.eq(row + 1), read.eq(Cat(1, read))]
                with m.If(read[1]):
                    m.d.sync += [at.eq(walk), walk.eq(walk + 1), changes.eq(1)]
                    m.d.sync += [here.eq(ram.w_data), behind.eq(~0)]
                    with m.If(ram.r_data.any() | self.change.valid):
                        m.next = "IDLE"
        return m
