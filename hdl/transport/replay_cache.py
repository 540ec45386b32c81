"""Atomics that are executed for a peer: what they need, and what came of them, should the peer ask again."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..dma.atomic import AtomicOperands, AtomicResult
from ..stream.ram import Ram
from .layouts import ResponseEntry
from .psn import PSN_BITS

__all__ = ["KEPT", "ReplayCache", "ReplaySlot"]

KEPT = 16
"""Atomics of a QP that can be replayed: no peer may have more outstanding."""

IN_FLIGHT = 16
"""Atomics between their cut and their result: LUT RAM has that many rows anyway."""

ReplaySlot = data.StructLayout({"slot": 4, "wrapped": 1})
"""Counts a QP's atomics: the place of the next one, and whether there were 16 before it."""


class ReplayCache(wiring.Component):
    """Hands the operands of atomics to the atomic unit, and keeps the value that each of the last 16 of a QP has found.

    Operands are at ``operands`` 1 cycle after ``i`` has taken the atomic. A search takes 5 cycles and 1 more a newer
    atomic; in vain, up to 36.

    Parameters
    ----------
    qps : int
        QPs, a power of two.

    Members
    -------
    qp, place
        Of the atomic that is put in, or whose place the search begins behind.
    entry : ``ResponseEntry``
        The atomic; of a search ``psn`` counts.
    put : 1
        Strobe: the atomic is cut. Only with ``room``, and not in the cycle after another one.
    room : 1
    operands : stream of ``AtomicOperands``
        One an atomic, in order.
    result : stream of ``AtomicResult``
        One an atomic, in order; taken at once.
    search : 1
        Strobe; the inputs must stand until ``done``, and no result of the QP may be missing.
    done : 1
        Strobe: the search is over.
    found, value
        Hold from ``done`` to the next search.
    count_atomics : 1
        Strobe: an atomic was executed.
    """

    def __init__(self, qps):
        self.qps = qps
        super().__init__(
            {
                "qp": In(range(qps)),
                "place": In(ReplaySlot),
                "entry": In(ResponseEntry),
                "put": In(1),
                "room": Out(1),
                "operands": Out(stream.Signature(AtomicOperands)),
                "result": In(stream.Signature(AtomicResult)),
                "search": In(1),
                "done": Out(1),
                "found": Out(1),
                "value": Out(64),
                "count_atomics": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(IN_FLIGHT)
        owner = data.StructLayout({"slot": 4, "qp": range(self.qps), "psn": PSN_BITS})
        m.submodules.needs = needs = memory.Memory(shape=AtomicOperands, depth=IN_FLIGHT, init=[])
        m.submodules.owners = owners = memory.Memory(shape=owner, depth=IN_FLIGHT, init=[])
        outcome = data.StructLayout({"psn": PSN_BITS, "value": 64, "ok": 1})
        m.submodules.kept = kept = Ram(outcome, self.qps * KEPT)
        needs_write, needs_read = needs.write_port(), needs.read_port(domain="comb")
        owners_write, owners_read = owners.write_port(), owners.read_port(domain="comb")

        # Of the atomics under way, in order: those whose operands are gone, and those whose result has come.
        tail, given, head = Signal(bits + 1), Signal(bits + 1), Signal(bits + 1)
        result = self.result
        taken = Signal()
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
            result.ready.eq(head != tail),
            taken.eq(result.valid & result.ready),
            kept.w_addr.eq(Cat(owners_read.data.slot, owners_read.data.qp)),
            kept.w_data.psn.eq(owners_read.data.psn),
            kept.w_data.value.eq(result.payload.value),
            kept.w_data.ok.eq(result.payload.ok),
            kept.w_en.eq(taken),
            self.count_atomics.eq(taken & result.payload.ok),
        ]
        m.d.sync += [
            tail.eq(tail + self.put),
            given.eq(given + (self.operands.valid & self.operands.ready)),
            self.operands.valid.eq((given != tail) & ~(self.operands.valid & self.operands.ready)),
            head.eq(head + taken),
            self.room.eq((tail - head)[:bits] != IN_FLIGHT - 1),
        ]

        # Newest first. Rows of a QP's past life are not looked at: fewer count then.
        slot = Signal(4)
        left = Signal(5)
        running = Signal()
        coming = Signal(3)  # rows on their way to `value` and `hit`
        hit = Signal()
        m.d.comb += [
            kept.r_addr.eq(Cat(slot, self.qp)),
            self.done.eq(running & (self.found | ((left == 0) & ~coming.any()))),
        ]
        m.d.sync += [
            coming.eq(Cat(running & (left != 0), coming[:2])),
            slot.eq(slot - 1),
            hit.eq(coming[1] & kept.r_data.ok & (kept.r_data.psn == self.entry.psn)),
        ]
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.If(~hit & ~self.found):
            m.d.sync += self.value.eq(kept.r_data.value)
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
        return m
