"""The next job: where its queue pair is, and what its record says."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..context.directory import Row
from ..context.slot_finder import SlotFinder
from .next_job import JobKind

__all__ = ["QpFetcher"]


class QpFetcher(wiring.Component):
    """Keeps a job, and looks where its QP is. If it is away its record is read, once, as soon as it is in host memory
    and nothing else is read: the keeper may still work at the job before.

    *Latency*: a job comes out a cycle after it was taken, and is known 4 later; its read begins then. The next job is
    taken in the cycle after one has gone.

    Parameters
    ----------
    qps, slots : int
        Powers of two.

    Members
    -------
    i, o : streams of ``{kind, index}``
        ``o.ready``: what is known of the job is not needed any more.
    here, away, absent, slot, timer
        Of the job at ``o``, see :class:`verbena.hdl.context.slot_finder.SlotFinder`; none for an EVICT.
    ask : stream of QP index; answered, row, changed : 1, ``Row``, 1
        To and from the directory.
    wrote, written_index : 1, QP index
        The record of this QP may still be on its way to memory.
    hold : 1
        Nothing is read.
    read : 1
        Strobe: the whole record of ``o.payload.index``.
    reading : 1
        As of :class:`verbena.hdl.context.store.QpStore`.
    fetched : 1
        The record has been read, or is being read.
    """

    def __init__(self, qps, slots):
        self.qps = qps
        self.slots = slots
        index = range(qps)
        job = stream.Signature(data.StructLayout({"kind": JobKind, "index": index}))
        super().__init__(
            {
                "i": In(job),
                "o": Out(job),
                "here": Out(1),
                "away": Out(1),
                "absent": Out(1),
                "slot": Out(range(slots)),
                "timer": Out(1),
                "ask": Out(stream.Signature(index)),
                "answered": In(1),
                "row": In(Row(slots)),
                "changed": In(1),
                "wrote": In(1),
                "written_index": In(index),
                "hold": In(1),
                "read": Out(1),
                "reading": In(1),
                "fetched": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.finder = finder = SlotFinder(self.qps, self.slots)
        wiring.connect(m, finder.ask, wiring.flipped(self.ask))
        job = self.o.payload
        coming = Signal()  # its record may still be on its way to memory
        m.d.comb += [
            self.i.ready.eq(~self.o.valid),
            finder.valid.eq(self.o.valid & (job.kind != JobKind.EVICT)),
            finder.index.eq(job.index),
            finder.taken.eq(self.o.ready),
            finder.answered.eq(self.answered),
            finder.row.eq(self.row),
            finder.changed.eq(self.changed),
            *(getattr(self, name).eq(getattr(finder, name)) for name in ("here", "away", "absent", "slot", "timer")),
            self.read.eq(finder.away & ~self.fetched & ~coming & ~self.reading & ~self.hold),
        ]
        m.d.sync += coming.eq(self.wrote & (self.written_index == job.index))
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), job.eq(self.i.payload), self.fetched.eq(0)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.read):
            m.d.sync += self.fetched.eq(1)
        return m
