"""READs and atomics that are executed for a peer: what atomics need, and what is known should the peer ask again."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...dma.atomic import AtomicOperands, AtomicResult
from ...stream.ram import Ram
from ..common.layouts import ResponseEntry, ResponseKind
from ..common.psn import PSN_BITS, psn_difference

__all__ = ["KEPT", "MARK_BITS", "ReplayCache", "ReplayRow", "ReplaySlot"]

KEPT = 16
"""READs and atomics of a QP that can be repeated: no peer may have more outstanding."""

MARK_BITS = 18
"""Of a READ's mark: what a row has left of its block RAMs."""

ReplaySlot = data.StructLayout({"slot": 4, "wrapped": 1})
"""Counts a QP's READs and atomics: the place of the next one, and whether there were 16 before it."""

ReplayRow = data.StructLayout({"psn": PSN_BITS, "value": 64, "ok": 1, "read": 1, "mark": MARK_BITS})
"""What is kept of a READ or an atomic. ``ok``: the atomic was executed, or some of the READ was cut."""


class ReplayCache(wiring.Component):
    """Hands the operands of atomics to the atomic unit, and remembers the last 16 READs and atomics of a QP: the value
    that an atomic has found; of a READ its first PSN and a *mark*, in which all that it has in common with the rest of
    it stands.

    An atomic is found by its PSN, a READ by its mark, if it did not begin later. From then on the row stands for what
    was asked for, as the peer has what was before.

    Operands are at ``operands`` 1 cycle after ``put``. A search takes 5 cycles and 1 more a newer
    READ or atomic; in vain, up to 36.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    atomics : int
        One more than there may be between their cut and their result, a power of two; 0: there are none.
    swaps : bool
        With the last members.

    Members
    -------
    qp, place
        Of what is put in or kept, or whose place the search begins behind.
    entry : ``ResponseEntry``
        The READ or atomic; of a search ``psn`` and whether it is REPEAT count.
    mark : 18
        Of the READ; of a search from the next cycle on.
    put : 1
        Strobe: the atomic is cut. Only with ``room``, and not in the cycle after another one.
    room : 1
    keep, cut : 1
        Strobe: the READ is remembered; and whether some of it is cut, or it was given up. ``qp``, ``entry`` and
        ``mark`` are looked at in the next cycle.
    operands : stream of ``AtomicOperands``
        One an atomic, in order.
    result : stream of ``AtomicResult``
        One an atomic, in order, every second cycle at most; taken at once, or a cycle later if a READ is written.
    search : 1
        Strobe; the inputs must stand until the cycle after ``done``, and no result of the QP may be missing.
    done : 1
        Strobe: the search is over.
    found, value, was_cut
        Hold from ``done`` to the next search. ``was_cut``: as was said with ``keep``, or 1 after an earlier search.
    count_atomics : 1
        Strobe: an atomic was executed.
    look, slot : 1, 4
        While ``look`` is set, when nothing is searched, put in or kept: this row of the QP is looked at.
    row : ``ReplayRow``
        It, 2 cycles later.
    write, new_row : 1, ``ReplayRow``
        Strobe, with ``look``: it is this from now on. A result waits a cycle.
    """

    def __init__(self, qps, atomics=16, *, swaps=False):
        self.qps = qps
        self.atomics = atomics
        self.swaps = swaps
        access = {"look": In(1), "slot": In(4), "row": Out(ReplayRow), "write": In(1), "new_row": In(ReplayRow)}
        super().__init__(
            {
                "qp": In(range(qps)),
                "place": In(ReplaySlot),
                "entry": In(ResponseEntry),
                "mark": In(MARK_BITS),
                "put": In(1),
                "room": Out(1),
                "keep": In(1),
                "cut": In(1),
                "operands": Out(stream.Signature(AtomicOperands)),
                "result": In(stream.Signature(AtomicResult)),
                "search": In(1),
                "done": Out(1),
                "found": Out(1),
                "value": Out(64),
                "was_cut": Out(1),
                "count_atomics": Out(1),
            }
            | (access if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.kept = kept = Ram(ReplayRow, self.qps * KEPT)
        result = self.result
        taken = Signal()
        writes_read, read_slot, read_ok = Signal(), Signal(4), Signal()  # a READ is written
        m.d.comb += [
            taken.eq(result.valid & result.ready),
            kept.w_data.value.eq(result.payload.value),
            kept.w_data.read.eq(writes_read),
            kept.w_data.mark.eq(self.mark),
            kept.w_en.eq(taken | writes_read),
            self.count_atomics.eq(taken & result.payload.ok),
        ]
        if self.atomics:
            self._atomics(m, kept, taken, writes_read)
        with m.If(writes_read if self.atomics else 1):
            m.d.comb += [
                kept.w_addr.eq(Cat(read_slot, self.qp)),
                kept.w_data.psn.eq(self.entry.psn),
                kept.w_data.ok.eq(read_ok),
            ]

        # Newest first. Rows of a QP's past life are not looked at: fewer count then.
        slot = Signal(4)
        left = Signal(5)
        running = Signal()
        coming = Signal(3)  # rows on their way to `value` and `hit`
        hit = Signal()
        reads = Signal()
        ahead = Signal(PSN_BITS)  # how far what is asked for is behind the beginning of what is kept
        row = kept.r_data
        m.d.comb += [
            reads.eq(self.entry.kind == ResponseKind.REPEAT),
            ahead.eq(psn_difference(self.entry.psn, row.psn)),
            kept.r_addr.eq(Cat(slot, self.qp)),
            self.done.eq(running & (self.found | ((left == 0) & ~coming.any()))),
        ]
        m.d.sync += [
            writes_read.eq(self.keep | (reads & self.done & self.found)),
            read_slot.eq(Mux(self.keep, self.place.slot, Cat(slot[:2], slot[2:] + 1))),  # it is 4 rows further
            read_ok.eq(self.cut | ~self.keep),
            coming.eq(Cat(running & (left != 0), coming[:2])),
            slot.eq(slot - 1),
            hit.eq(
                coming[1]
                & (reads == row.read)
                & Mux(reads, ~ahead[-1] & (row.mark == self.mark), (ahead == 0) & row.ok)
            ),
        ]
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.If(~hit & ~self.found):
            m.d.sync += [self.value.eq(row.value), self.was_cut.eq(row.ok)]
        with m.If(running & hit):
            m.d.sync += self.found.eq(1)
        with m.If(self.done):
            m.d.sync += [running.eq(0), coming.eq(0), hit.eq(0)]
        with m.If(self.search):
            m.d.sync += [
                running.eq(1),
                self.found.eq(0),
                slot.eq(self.place.slot - 1),
                left.eq(Cat(self.place.slot, self.place.wrapped)),  # beyond 16, the same ones come again
            ]
        if self.swaps:
            m.d.comb += self.row.eq(row)
            with m.If(self.look):
                m.d.comb += kept.r_addr.eq(Cat(self.slot, self.qp))
            with m.If(self.write):
                m.d.comb += [
                    result.ready.eq(0),
                    kept.w_addr.eq(Cat(self.slot, self.qp)),
                    kept.w_data.eq(self.new_row),
                    kept.w_en.eq(1),
                ]
        return m

    def _atomics(self, m, kept, taken, hold):
        """Those under way: operands, and the rows of their results, which wait while ``hold``."""
        bits = ceil_log2(self.atomics)
        owner = data.StructLayout({"slot": 4, "qp": range(self.qps), "psn": PSN_BITS})
        m.submodules.needs = needs = memory.Memory(shape=AtomicOperands, depth=self.atomics, init=[])
        m.submodules.owners = owners = memory.Memory(shape=owner, depth=self.atomics, init=[])
        needs_write, needs_read = needs.write_port(), needs.read_port(domain="comb")
        owners_write, owners_read = owners.write_port(), owners.read_port(domain="comb")
        # In order: those whose operands are gone, and those whose result has come.
        tail, given, head = Signal(bits + 1), Signal(bits + 1), Signal(bits + 1)
        there = Signal()
        m.d.comb += [
            needs_write.addr.eq(tail),
            needs_write.data.swap.eq(self.entry.swap),
            needs_write.data.compare.eq(self.entry.compare),
            needs_write.data.add.eq(self.entry.kind.as_value()[1]),  # FETCH_ADD
            needs_write.en.eq(self.put),
            owners_write.addr.eq(tail),
            owners_write.data.slot.eq(self.place.slot),
            owners_write.data.qp.eq(self.qp),
            owners_write.data.psn.eq(self.entry.psn),
            owners_write.en.eq(self.put),
            needs_read.addr.eq(given),
            owners_read.addr.eq(head),
            self.operands.payload.eq(needs_read.data),
            self.result.ready.eq(there & ~hold),
            kept.w_addr.eq(Cat(owners_read.data.slot, owners_read.data.qp)),
            kept.w_data.psn.eq(owners_read.data.psn),
            kept.w_data.ok.eq(self.result.payload.ok),
        ]
        m.d.sync += [
            tail.eq(tail + self.put),
            given.eq(given + (self.operands.valid & self.operands.ready)),
            self.operands.valid.eq((given != tail) & ~(self.operands.valid & self.operands.ready)),
            head.eq(head + taken),
            there.eq((head != tail) & ~taken),
            self.room.eq((tail - head)[:bits] != self.atomics - 1),
        ]
