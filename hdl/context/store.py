"""Queue pairs between the blocks that have state of them and their records in host memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.qpc import QP_DOORBELLS
from ..stream.packet import PacketBeat
from ..stream.record import word_layout
from ..stream.transfer import Done, ReadRequest
from ..stream.words import WORD_BITS, SavedWord
from .load_buffer import LoadBuffer
from .record import most_words
from .record_read import RecordRead
from .record_write import RecordWrite
from .save_buffer import SaveBuffer

__all__ = ["QpStore"]


class QpStore(wiring.Component):
    """Has room for one QP that goes, one that comes and the next one's record, at the same time.

    Parameters
    ----------
    limits : sequence of int
        Most words of each section of a record.
    qps : int
        QPs in the table, a power of two.
    record_bytes : int
        Of a record, a power of two.
    data_width : int

    Members
    -------
    base : 64
        Bus address of the table, 4 KiB aligned.
    saved : array of streams of ``SavedWord``; loaded : array of streams of words
        Of each section.
    collect : 1
        Strobe, while not ``writing``: a QP begins to give its state away.
    given, full, wake : a bit each section, 1, 1
        What has been given away; all has, as of a cycle ago; the QP must come back by itself.
    write, write_index : 1, QP index
        Strobe, while ``full``: its record goes to memory.
    writing, write_failed : 1
        It is on its way; a write failed, and the record is lost. Both stand until the next ``collect``.
    written_index : QP index
        Whose it is.
    read, read_index, whole : 1, QP index, 1
        Strobe, while not ``reading``: this QP's record comes from memory, or only the driver's part of it. Not while
        it is being written, nor in the cycle of ``write``.
    reading : 1
        It is on its way.
    bad : 1
        While not ``reading``: it could not be read, or is not what was written.
    doorbells
        ``sq_producer`` and ``rq_producer`` as the driver has written them, while not ``reading``.
    back : 1
        Strobe: what has come is given to its owners, when they have all of what came before. The next record may come.
    read_request, read_data, write_request, write_data, write_done : streams
        To the DMA engine.
    """

    def __init__(self, limits, qps, record_bytes, data_width):
        self.limits = tuple(limits)
        self.qps = qps
        self.record_bytes = record_bytes
        self.data_width = data_width
        beat = stream.Signature(PacketBeat(data_width))
        count, index = len(self.limits), range(qps)
        super().__init__(
            {
                "base": In(64),
                "saved": In(stream.Signature(SavedWord)).array(count),
                "loaded": Out(stream.Signature(WORD_BITS)).array(count),
                "collect": In(1),
                "given": Out(count),
                "full": Out(1),
                "wake": Out(1),
                "write": In(1),
                "write_index": In(index),
                "writing": Out(1),
                "write_failed": Out(1),
                "written_index": Out(index),
                "read": In(1),
                "read_index": In(index),
                "whole": In(1),
                "reading": Out(1),
                "bad": Out(1),
                "doorbells": Out(word_layout(QP_DOORBELLS, [0])),
                "back": In(1),
                "read_request": Out(stream.Signature(ReadRequest)),
                "read_data": In(beat),
                "write_request": Out(stream.Signature(ReadRequest)),
                "write_data": Out(beat),
                "write_done": In(stream.Signature(Done)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        words = most_words(self.limits)
        m.submodules.save = save = SaveBuffer(self.limits, self.qps)
        m.submodules.load = load = LoadBuffer(self.limits, self.qps)
        m.submodules.writer = writer = RecordWrite(self.data_width, words)
        m.submodules.reader = reader = RecordRead(self.data_width, words)
        for number in range(len(self.limits)):
            wiring.connect(m, wiring.flipped(self.saved[number]), save.saved[number])
            wiring.connect(m, load.loaded[number], wiring.flipped(self.loaded[number]))
        for mine, part in (
            (self.read_request, reader.request),
            (self.read_data, reader.data),
            (self.write_request, writer.request),
            (self.write_data, writer.data),
            (self.write_done, writer.done),
        ):
            wiring.connect(m, wiring.flipped(mine), part)
        wiring.connect(m, save.o, writer.i)
        wiring.connect(m, reader.o, load.i)

        # The index, then the address, which both use: strobes go along.
        whole, read_index, address = Signal(), Signal.like(self.read_index), Signal(64)
        writes, reads = Signal(2), Signal(2)
        m.d.sync += [
            writes.eq(Cat(self.write, writes)),
            reads.eq(Cat(self.read, reads)),
            self.writing.eq(self.write | writes.any() | writer.busy),
            self.reading.eq(self.read | reads.any() | reader.busy | (whole & ~load.full & ~reader.failed)),
            address.eq(
                self.base + Cat(Const(0, ceil_log2(self.record_bytes)), Mux(writes[0], self.written_index, read_index))
            ),
        ]
        m.d.comb += [
            save.begin.eq(self.collect),
            self.given.eq(save.given),
            self.full.eq(save.full),
            self.wake.eq(save.wake),
            save.go.eq(writes[1]),
            save.index.eq(self.written_index),
            writer.address.eq(address),
            reader.address.eq(address),
            writer.go.eq(writes[1]),
            writer.count.eq(save.words),
            self.write_failed.eq(writer.failed),
            reader.go.eq(reads[1]),
            reader.whole.eq(whole),
            reader.known.eq(load.known),
            reader.words.eq(load.words),
            load.begin.eq(reads[0] & whole),
            load.index.eq(read_index),
            load.back.eq(self.back),
            self.doorbells.eq(reader.doorbells),
            self.bad.eq(reader.failed | (whole & load.bad)),
        ]
        with m.If(self.write):
            m.d.sync += self.written_index.eq(self.write_index)
        with m.If(self.read):
            m.d.sync += [whole.eq(self.whole), read_index.eq(self.read_index)]
        return m
