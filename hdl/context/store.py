"""Queue pairs between the blocks that have state of them and their records in host memory."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
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
    """Has room for one QP that goes and one that comes, at the same time; and the next one is read meanwhile.

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
    read : stream of ``{index, whole}``
        This QP's record comes from memory, and not while it is being written; or only the driver's part of it.
    asked : 1
        One was read that does not come yet.
    here, take : 1, 1
        A record has come: they come in order. Strobe, while ``here``: it is not needed any more, and what of it is
        being given goes on.
    bad : 1
        While ``here``: it could not be read, or is not what was written.
    doorbells
        ``sq_producer`` and ``rq_producer`` as the driver has written them, while ``here``.
    back : 1
        Strobe, while ``here``: it is given to its owners.
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
                "read": In(stream.Signature(data.StructLayout({"index": index, "whole": 1}))),
                "asked": Out(1),
                "here": Out(1),
                "take": In(1),
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

        def address(index):
            return self.base + Cat(Const(0, ceil_log2(self.record_bytes)), index)

        # The index, then the address: strobes go along.
        reads, read = Signal(), Signal(self.read.payload.shape())
        following, following_whole = Signal.like(self.written_index), Signal()  # what was asked for last
        writes = Signal(2)
        m.d.sync += [
            writes.eq(Cat(self.write, writes)),
            self.writing.eq(self.write | writes.any() | writer.busy),
            writer.address.eq(address(self.written_index)),
        ]
        m.d.comb += [
            save.begin.eq(self.collect),
            self.given.eq(save.given),
            self.full.eq(save.full),
            self.wake.eq(save.wake),
            save.go.eq(writes[1]),
            save.index.eq(self.written_index),
            writer.go.eq(writes[1]),
            writer.count.eq(save.words),
            self.write_failed.eq(writer.failed),
            self.read.ready.eq(~reads),
            reader.ask.valid.eq(reads),
            reader.ask.payload.address.eq(address(read.index)),
            reader.ask.payload.whole.eq(read.whole),
            reader.room.eq(~load.giving),
            reader.known.eq(load.known),
            reader.words.eq(load.words),
            reader.take.eq(self.take),
            load.begin.eq(reader.begins & following_whole),
            load.index.eq(following),
            load.back.eq(self.back),
            self.asked.eq(reads | reader.asked),
            self.here.eq(reader.here & (~reader.whole | load.full | reader.failed)),
            self.doorbells.eq(reader.doorbells),
            self.bad.eq(reader.failed | (reader.whole & load.bad)),
        ]
        with m.If(self.write):
            m.d.sync += self.written_index.eq(self.write_index)
        with m.If(reader.ask.ready):
            m.d.sync += reads.eq(0)
            with m.If(reads):
                m.d.sync += [following.eq(read.index), following_whole.eq(read.whole)]
        with m.If(self.read.valid & self.read.ready):
            m.d.sync += [reads.eq(1), read.eq(self.read.payload)]
        return m
