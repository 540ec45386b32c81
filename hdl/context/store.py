"""Brings contexts from host memory to their slots, and back."""

from functools import reduce
from operator import xor

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.qpc import HALF_BYTES, LINE_BYTES, QPC_BYTES
from ..abi.tables import AccessStatus
from ..stream.fifo import Queue
from ..stream.packet import PacketBeat
from ..stream.transfer import Done, ReadRequest
from .directory import job_layout
from .layout import SlotLayout

__all__ = ["ContextStore"]

HASH_BITS = 6
"""So many bits, folded out of the QPN, tell write-backs apart: a fetch waits for those that look like its own."""

SAVES = 8
"""Lines that are written back and not answered."""

ContextError = data.StructLayout({"qpn": 24, "write": 1})
"""A context could not be read, or not be written back."""


class ContextStore(wiring.Component):
    """Does the jobs of a :class:`.directory.Directory`, in their order, for a :class:`.slot_bank.SlotBank`.

    A job first has the slot's dirty lines read out of the bank; then the lines of the new context are read from host
    memory. So a fetch does not wait for the write-back's answer, but it does if the context itself is being written
    back, or another one with the same 6 bits folded out of its QPN. Up to ``fetches`` are under way, answered in their
    order.

    A fetch that fails is ``bad``: its slot holds nothing that counts. Each fetch and each write-back that fails is told
    on ``error``, once.

    Cycles of a job: 1 more than lines to fetch, and 1 more if there is something to write back, once the bank takes it
    and the write-back before has been sent. What comes from memory is written to the bank as it comes, a row a cycle at
    most; what goes there is a beat a cycle, and 2 more a line.

    Parameters
    ----------
    layout : SlotLayout
    slots : int
    data_width : int
        64, 128, 256 or 512 bits.
    qpn_bits : int
        At most 24.
    jobs : int
        That wait.
    fetches : int
        Under way.

    Members
    -------
    base : 64
        Bus address of QP 0's record, 4 KiB aligned.
    job : stream of :func:`.directory.job_layout`
    saved : 1
        Strobe: the oldest job without ``fetch`` is done: whatever was written of its QPN is in memory.
    filled : ``valid``, ``slot``, ``bad``
        Strobe: the oldest fetch is done; the bank may be read from the next cycle on.
    read : stream of ``ReadRequest``; data : stream of ``PacketBeat``
        A line each, of 8 to 64 bytes.
    write : stream of ``ReadRequest``; write_data : stream of ``PacketBeat``; done : stream of ``Done``
        The same.
    error : stream of ``qpn``, ``write``
    fill, back_slot, back_en, back_ready, back_valid, back_row, back_data
        To the bank.
    """

    def __init__(self, layout, slots, *, data_width=64, qpn_bits=24, jobs=16, fetches=16):
        if not isinstance(layout, SlotLayout):
            raise TypeError(f"layout must be a SlotLayout, not {layout!r}")
        if not isinstance(qpn_bits, int) or not 1 <= qpn_bits <= 24:
            raise ValueError(f"qpn_bits must be 1 to 24, not {qpn_bits!r}")
        self.layout = layout
        self.slots = slots
        self.data_width = data_width
        self.qpn_bits = qpn_bits
        self.jobs = jobs
        self.fetches = fetches
        row = range(max(2, layout.rows))
        fill = {"slot": range(slots), "line": range(max(2, len(layout.lines))), "row": row, "data": layout.row_bits}
        beat = PacketBeat(data_width)
        super().__init__(
            {
                "base": In(64),
                "job": In(stream.Signature(job_layout(slots, qpn_bits, len(layout.saved)))),
                "saved": Out(1),
                "filled": Out(data.StructLayout({"valid": 1, "slot": range(slots), "bad": 1})),
                "read": Out(stream.Signature(ReadRequest)),
                "data": In(stream.Signature(beat)),
                "write": Out(stream.Signature(ReadRequest)),
                "write_data": Out(stream.Signature(beat)),
                "done": In(stream.Signature(Done)),
                "error": Out(stream.Signature(ContextError)),
                "fill": Out(stream.Signature(data.StructLayout(fill))),
                "back_slot": Out(range(slots)),
                "back_en": Out(1),
                "back_ready": In(1),
                "back_valid": In(1),
                "back_row": In(row),
                "back_data": In(sum(len(layout.columns[part]) for part in layout.states)),
            }
        )

    def _address(self, qpn, line):
        """Bus address of a line; ``line`` is the number that it has in its half."""
        half = self.layout.record.number * (HALF_BYTES // LINE_BYTES)
        bits = ceil_log2(LINE_BYTES)
        return self.base + Cat(Const(0, bits), (half + line)[: ceil_log2(QPC_BYTES) - bits], qpn)

    def elaborate(self, platform):
        m = Module()
        layout = self.layout
        m.submodules.jobs = jobs = Queue(self.job.payload.shape(), self.jobs)
        wiring.connect(m, wiring.flipped(self.job), jobs.i)
        job = jobs.o.payload

        # -- Write-backs under way: begun and answered of each hash.
        hash_bits = min(self.qpn_bits, HASH_BITS)

        def folded(qpn):
            return reduce(xor, (qpn[at : at + hash_bits] for at in range(0, self.qpn_bits, hash_bits)))[:hash_bits]

        count = range(2 * SAVES)
        counts = {}
        for name in ("begun", "answered"):
            m.submodules[name] = store = memory.Memory(shape=count, depth=1 << hash_bits, init=[])
            counts[name] = store.write_port(), store.read_port(domain="comb"), store.read_port(domain="comb")
        waking, wake = Signal(init=1), Signal(hash_bits)
        m.d.sync += wake.eq(wake + 1)
        with m.If(wake.all()):
            m.d.sync += waking.eq(0)
        saving_begins, saving_ends, ended = Signal(), Signal(), Signal(self.qpn_bits)
        for (put, own, seen), at, strobe in (
            (counts["begun"], job.old, saving_begins),
            (counts["answered"], ended, saving_ends),
        ):
            m.d.comb += [
                own.addr.eq(folded(at)),
                put.addr.eq(Mux(waking, wake, folded(at))),
                put.data.eq(Mux(waking, 0, own.data + 1)),
                put.en.eq(waking | strobe),
                seen.addr.eq(folded(job.qpn)),
            ]
        unsaved = Signal()  # what would be fetched is under way to memory
        m.d.comb += unsaved.eq(counts["begun"][2].data != counts["answered"][2].data)

        # -- Jobs.
        saving, backed = Signal(), Signal()  # something is read out of the bank, or written; of this job it has been
        clear = Signal()  # nothing of the QPN is under way to memory, a cycle ago
        number = Signal(range(max(2, len(layout.lines))))
        lines, lengths = Signal(3), Signal(range(LINE_BYTES + 1))
        with m.Switch(number):
            for at, line in enumerate(layout.lines):
                with m.Case(at):
                    m.d.comb += [lines.eq(line), lengths.eq(layout.bytes_used(line))]
        m.submodules.under_way = under_way = Queue(
            data.StructLayout({"slot": range(self.slots), "qpn": self.qpn_bits}), self.fetches
        )
        needs_back, asks, over = Signal(), Signal(), Signal()
        m.d.comb += [
            needs_back.eq(job.dirty.any() & ~backed),
            self.back_slot.eq(job.slot),
            self.back_en.eq(jobs.o.valid & needs_back & ~saving & ~waking),
            saving_begins.eq(self.back_en & self.back_ready),
            under_way.i.payload.slot.eq(job.slot),
            under_way.i.payload.qpn.eq(job.qpn),
            asks.eq(jobs.o.valid & ~needs_back & clear & job.fetch & (~self.read.valid | self.read.ready)),
            # Its place must be there when the first line is asked for.
            under_way.i.valid.eq(asks & (number == 0)),
            over.eq((asks & (number == len(layout.lines) - 1) & (under_way.i.ready | (number != 0))) | self.saved),
            self.saved.eq(jobs.o.valid & ~needs_back & clear & ~job.fetch),
            jobs.o.ready.eq(over),
        ]
        m.d.sync += clear.eq(jobs.o.valid & ~needs_back & ~unsaved & ~waking & ~over)
        with m.If(self.read.ready):
            m.d.sync += self.read.valid.eq(0)
        with m.If(asks & (under_way.i.ready | (number != 0))):
            m.d.sync += [
                self.read.valid.eq(1),
                self.read.payload.address.eq(self._address(job.qpn, lines)),
                self.read.payload.length.eq(lengths),
                number.eq(number + 1),
            ]
        with m.If(saving_begins):
            m.d.sync += backed.eq(1)
        with m.If(over):
            m.d.sync += [backed.eq(0), number.eq(0)]

        self._fill(m, under_way)
        self._save(m, job, saving, saving_begins, saving_ends, ended)
        return m

    def _fail(self, m, qpn, write):
        m.d.sync += [self.error.valid.eq(1), self.error.payload.qpn.eq(qpn), self.error.payload.write.eq(write)]

    def _fill(self, m, under_way):
        """What comes from memory."""
        layout, beat, fill = self.layout, self.data.payload, self.fill.payload
        line, row = Signal(range(max(2, len(layout.lines)))), Signal(range(max(2, layout.rows)))
        failed, last_line, last_row = Signal(), Signal(), Signal()
        fails, completes, goes = Signal(), Signal(), Signal()
        ends = Signal()  # with this row the beat is used up
        whole = Signal()  # with this beat the row is there
        ratio = max(layout.row_bits, self.data_width) // min(layout.row_bits, self.data_width)
        place = Signal(range(max(2, ratio)))
        with m.Switch(line):
            for at, number in enumerate(layout.lines):
                with m.Case(at):
                    m.d.comb += last_row.eq(row == layout.rows_used(number) - 1)
        if layout.row_bits > self.data_width:
            before = Signal((ratio - 1) * self.data_width, reset_less=True)
            with m.If(self.data.valid & ~whole):
                m.d.sync += before.eq(Cat(before, beat.data)[self.data_width :])
            m.d.comb += [fill.data.eq(Cat(before, beat.data)), whole.eq(place == ratio - 1), ends.eq(1)]
        else:
            m.d.comb += [
                fill.data.eq(beat.data.word_select(place, layout.row_bits)),
                whole.eq(1),
                ends.eq((place == ratio - 1) | last_row),
            ]
        m.d.comb += [
            last_line.eq(line == len(layout.lines) - 1),
            completes.eq(last_line & last_row & whole),
            fails.eq(failed | beat.error),
            # A failure needs the place in which it is told.
            goes.eq(self.data.valid & under_way.o.valid & (~completes | ~fails | ~self.error.valid)),
            fill.slot.eq(under_way.o.payload.slot),
            fill.line.eq(line),
            fill.row.eq(row),
            self.fill.valid.eq(goes & whole),
            self.data.ready.eq(goes & (~whole | (self.fill.ready & ends))),
            self.filled.slot.eq(under_way.o.payload.slot),
            self.filled.bad.eq(fails),
            self.filled.valid.eq(self.fill.valid & self.fill.ready & completes),
            under_way.o.ready.eq(self.filled.valid),
        ]
        step = goes & (~whole | self.fill.ready)
        with m.If(step):
            m.d.sync += place.eq(Mux(whole & ends, 0, place + 1))
            with m.If(whole):
                m.d.sync += row.eq(row + 1)
                with m.If(last_row):
                    m.d.sync += [row.eq(0), line.eq(line + 1), failed.eq(fails)]
                with m.If(completes):
                    m.d.sync += [line.eq(0), failed.eq(0)]
        with m.If(self.error.ready):
            m.d.sync += self.error.valid.eq(0)
        with m.If(self.filled.valid & fails):
            self._fail(m, under_way.o.payload.qpn, 0)

    def _save(self, m, job, saving, begins, ends, ended):
        """What goes to memory."""
        layout = self.layout
        width = len(self.back_data)
        m.submodules.rows = rows = memory.Memory(shape=width, depth=max(2, layout.rows), init=[])
        put, get = rows.write_port(), rows.read_port(domain="comb")
        qpn, dirty, there = Signal(self.qpn_bits), Signal(len(layout.saved)), Signal()
        m.d.comb += [put.addr.eq(self.back_row), put.data.eq(self.back_data), put.en.eq(self.back_valid)]
        with m.If(begins):
            m.d.sync += [saving.eq(1), qpn.eq(job.old), dirty.eq(job.dirty)]
        with m.If(self.back_valid & (self.back_row == layout.rows - 1)):
            m.d.sync += there.eq(1)

        # -- One line after the other.
        line, writes = Signal(range(max(2, len(layout.saved)))), Signal()
        numbers, lengths, last_row = Signal(3), Signal(range(LINE_BYTES + 1)), Signal()
        row, ratio = Signal(range(max(2, layout.rows))), max(layout.row_bits, self.data_width) // layout.row_bits
        later, at = Signal(len(layout.saved)), 0
        parts = {}
        for part in layout.states:
            parts[part] = get.data[at : at + len(layout.columns[part])]
            at += len(layout.columns[part])
        whole = Signal(layout.row_bits)
        with m.Switch(line):
            for place, number in enumerate(layout.saved):
                with m.Case(place):
                    m.d.comb += [
                        numbers.eq(number),
                        lengths.eq(layout.bytes_used(number)),
                        last_row.eq(row == layout.rows_used(number) - 1),
                        whole.eq(layout.whole(number, parts, row)),
                        later.eq(dirty & ~((1 << place + 1) - 1)),
                    ]
        notes_layout = data.StructLayout({"qpn": self.qpn_bits, "last": 1})
        m.submodules.notes = notes = Queue(notes_layout, SAVES)
        mine = dirty.bit_select(line, 1)
        asks, moves, completes = Signal(), Signal(), Signal()
        m.d.comb += [
            get.addr.eq(row),
            self.write.valid.eq(there & mine & ~writes & notes.i.ready),
            self.write.payload.address.eq(self._address(qpn, numbers)),
            self.write.payload.length.eq(lengths),
            asks.eq(self.write.valid & self.write.ready),
            notes.i.valid.eq(asks),
            notes.i.payload.qpn.eq(qpn),
            notes.i.payload.last.eq(~later.any()),
        ]
        with m.If(asks):
            m.d.sync += writes.eq(1)

        # -- Beats: some of a row, or some rows.
        beat, out = self.write_data.payload, Signal(self.data_width, reset_less=True)
        parts_of_row = max(1, layout.row_bits // self.data_width)
        place = Signal(range(max(2, parts_of_row, ratio)))
        empty = ~self.write_data.valid | self.write_data.ready
        row_over, beat_over = Signal(), Signal()
        m.d.comb += [
            moves.eq(writes & empty),
            row_over.eq(place == parts_of_row - 1 if parts_of_row > 1 else 1),
            beat_over.eq(((place == ratio - 1) | last_row) if ratio > 1 else 1),
            completes.eq(moves & row_over & last_row),
            beat.data.eq(out),
        ]
        size = self.data_width // 8
        with m.If(self.write_data.ready):
            m.d.sync += self.write_data.valid.eq(0)
        with m.If(moves):
            m.d.sync += [
                place.eq(Mux(beat_over if ratio > 1 else row_over, 0, place + 1)),
                self.write_data.valid.eq(beat_over),
                beat.last.eq(last_row & row_over),
            ]
            if ratio > 1:
                with m.Switch(place):
                    for at in range(ratio):
                        with m.Case(at):
                            m.d.sync += out[at * layout.row_bits : (at + 1) * layout.row_bits].eq(whole)
                m.d.sync += beat.count.eq((place + 1) * (layout.row_bits // 8))
            else:
                m.d.sync += [out.eq(whole.word_select(place, self.data_width)), beat.count.eq(size)]
            with m.If(row_over):
                m.d.sync += row.eq(row + 1)
        opens = Signal(init=1)
        m.d.comb += beat.first.eq(opens)
        with m.If(self.write_data.valid & self.write_data.ready):
            m.d.sync += opens.eq(beat.last)
        with m.If((there & ~mine) | completes):
            m.d.sync += [line.eq(line + 1), writes.eq(0), row.eq(0)]
            with m.If(~later.any()):
                m.d.sync += [line.eq(0), saving.eq(0), there.eq(0)]

        # -- Answers.
        failed, fails = Signal(), Signal()
        note = notes.o.payload
        m.d.comb += [
            fails.eq(failed | (self.done.payload.status != AccessStatus.OK)),
            self.done.ready.eq(
                notes.o.valid & ~(note.last & fails & self.error.valid) & ~(self.filled.valid & self.filled.bad)
            ),
            ends.eq(self.done.valid & self.done.ready & note.last),
            notes.o.ready.eq(self.done.valid & self.done.ready),
            ended.eq(note.qpn),
        ]
        with m.If(self.done.valid & self.done.ready):
            m.d.sync += failed.eq(fails & ~note.last)
        with m.If(ends & fails):
            self._fail(m, note.qpn, 1)
