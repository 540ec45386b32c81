"""Which queue pair has which slot."""

from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.ram import Ram

__all__ = ["BANK", "CLASS_BITS", "PHASE_BITS", "Away", "Directory", "Row"]

CLASS_BITS = 5
PHASE_BITS = 2

Away = data.StructLayout({"timer": CLASS_BITS, "phase": PHASE_BITS})
"""Of a QP without a slot: its timer, see :class:`.away_timers.AwayTimers`."""


class Row(data.StructLayout):
    """What is known of a QP: ``here``, in ``slot``; else ``away``, in host memory, if it is ``known``, or nothing."""

    def __init__(self, slots):
        self.slots = slots
        bits = max(ceil_log2(slots), Away.size)
        super().__init__({"here": 1, "known": 1, "value": bits})

    def __call__(self, value):
        return RowView(self, value)


class RowView(data.View):
    """A :class:`Row`."""

    @property
    def slot(self):
        return self.value[: ceil_log2(self.shape().slots)]

    @property
    def away(self):
        return data.View(Away, self.value[: Away.size])


BANK = 2048
"""Rows of a bank: one block RAM of an ECP5 has so many of 9 bits."""


class Directory(wiring.Component):
    """A row for each QP that there may be, in banks of block RAM.

    One read a cycle; of several that ask, the first. A row is there 2 cycles after it was asked for; one that is
    written meanwhile, or in the cycle in which it is asked for, may be either: ``changed`` tells. After a reset all
    rows are 0, which takes a cycle a row of a bank; ``ready`` is set when that is done, and nothing is read or written
    before.

    Parameters
    ----------
    qps, slots : int
        Powers of two.
    readers : int

    Members
    -------
    ready : 1
    ask : array of streams of QP index
        Of each reader.
    answered : a bit a reader
        Strobe: ``row`` is what was asked for.
    row : ``Row``
    write, index, new : 1, QP index, ``Row``
        Strobe.
    changed : 1
        A row is written in this cycle.
    """

    def __init__(self, qps, slots, readers):
        self.qps = qps
        self.slots = slots
        self.readers = readers
        self.shape = Row(slots)
        super().__init__(
            {
                "ready": Out(1),
                "ask": In(stream.Signature(range(qps))).array(readers),
                "answered": Out(readers),
                "row": Out(self.shape),
                "write": In(1),
                "index": In(range(qps)),
                "new": In(self.shape),
                "changed": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = min(BANK, self.qps)
        banks = [Ram(self.shape, depth) for _ in range(self.qps // depth)]
        wake = Signal(range(depth))
        index = Signal(range(self.qps))  # that is read
        asks = Signal(self.readers)
        taken = [Signal(self.readers, name=f"taken_{age}") for age in range(3)]
        m.d.comb += [
            asks.eq(Cat(port.valid for port in self.ask)),
            taken[0].eq(Cat(asks[0], *(asks[n] & ~asks[:n].any() for n in range(1, self.readers)))),
            self.answered.eq(taken[2]),
            self.changed.eq(self.write),
        ]
        m.d.sync += [taken[1].eq(taken[0]), taken[2].eq(taken[1])]
        # Which is read is told by ORs: the block RAMs are far from each other.
        m.d.comb += index.eq(
            reduce(or_, (Mux(taken[0][number], port.payload, 0) for number, port in enumerate(self.ask)))
        )
        m.d.comb += [port.ready.eq(taken[0][number]) for number, port in enumerate(self.ask)]
        for number, part in enumerate(banks):
            m.submodules[f"bank_{number}"] = part
            with m.If(self.ready):
                m.d.comb += [part.w_addr.eq(self.index), part.w_data.eq(self.new), part.w_en.eq(self.write)]
            with m.Else():
                m.d.comb += [part.w_addr.eq(wake), part.w_en.eq(1)]
            m.d.comb += part.r_addr.eq(index)
        if len(banks) == 1:
            m.d.comb += self.row.eq(banks[0].r_data)
        else:
            high = ceil_log2(depth)
            reads = [Signal(range(len(banks)), name=f"reads_{age}") for age in range(3)]
            m.d.comb += [reads[0].eq(index[high:]), self.row.eq(Array(bank.r_data for bank in banks)[reads[2]])]
            m.d.sync += [reads[1].eq(reads[0]), reads[2].eq(reads[1])]
            for number, bank in enumerate(banks):
                with m.If(self.ready & (self.index[high:] != number)):
                    m.d.comb += bank.w_en.eq(0)
        with m.If(~self.ready):
            m.d.comb += taken[0].eq(0)
            m.d.sync += [wake.eq(wake + 1), self.ready.eq(wake == depth - 1)]
        return m
