"""Atomics on memory: read, compute, write."""

from functools import reduce
from operator import xor

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.tables import AccessStatus
from ..stream.fifo import Queue
from ..stream.lut_fifo import LutFifo
from ..stream.packet import PacketBeat
from ..stream.transfer import Piece
from .port import ReadPort, WritePort

__all__ = ["AtomicOperands", "AtomicResult", "AtomicUnit"]

HASH_BITS, HASHED = 12, 3
"""Bits that tell two words apart: their address, folded, so that words a power of two apart differ as well. Those of
32 KiB are never taken for each other."""

PIECES = 16
"""That wait for a slot."""

AtomicOperands = data.StructLayout({"swap": 64, "compare": 64, "add": 1})
"""What an atomic does: with ``add``, adds ``swap`` (FETCH_ADD; ``compare`` is ignored); else writes ``swap`` if the
value is ``compare`` (CMP_AND_SWP)."""

AtomicResult = data.StructLayout({"value": 64, "ok": 1})
"""The word's value before, if ``ok``."""


class AtomicUnit(wiring.Component):
    """Executes atomics, in order, on 8-byte words in memory; words are little-endian there.

    Each piece takes one of the operands, and gives one packet and one result. A piece whose status is not OK is not
    executed: it waits until all before it are over, and gives one beat of count 0 with ``error``. If RRESP or BRESP is
    not OKAY, ``error`` stands in the beat, and the result is not ``ok``. A compare that fails writes nothing.

    Up to ``slots`` are in flight. One that goes to the same word as an earlier one is begun when the earlier one's
    write is answered, so that nobody sees a value that is about to change; words are told apart by bits 14:3 of their
    address, folded with bits 26:15 and 38:27. Accesses that do not come through this unit are not kept apart.

    A read is asked for 3 cycles after its piece was taken. A write is asked for 4 cycles after the data has come, its
    beat stands ready in the next; the packet comes out 3 cycles after the write's answer. One atomic every 7 cycles.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits: of the ports.
    slots : int
        Atomics in flight, a power of two, at least 2.

    Members
    -------
    piece : stream of ``Piece``
        One a run: 8 bytes, 8-byte aligned; or not OK. 16 may wait.
    operands : stream of :data:`AtomicOperands`
        They stay where they are until the word has come.
    payload : stream of ``PacketBeat``
        The value before, most significant byte first, after the write's answer.
    result : stream of :data:`AtomicResult`
        Comes with the packet.
    over : 1
        Strobe, one a piece, in order: it will not touch memory any more.
    read : ``ReadPort``, write : ``WritePort``
        To the arbiters; single beats.
    """

    def __init__(self, data_width, slots=16):
        if not isinstance(slots, int) or slots < 2 or slots & slots - 1:
            raise ValueError(f"slots must be a power of two, at least 2, not {slots!r}")
        self.data_width = data_width
        self.slots = slots
        super().__init__(
            {
                "piece": In(stream.Signature(Piece)),
                "operands": In(stream.Signature(AtomicOperands)),
                "payload": Out(stream.Signature(PacketBeat(data_width))),
                "result": Out(stream.Signature(AtomicResult)),
                "over": Out(1),
                "read": Out(ReadPort(data_width)),
                "write": Out(WritePort(data_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        slots = self.slots
        piece, operands, payload, result = self.piece, self.operands, self.payload, self.result
        slot_bits = ceil_log2(slots)
        lane_bits = ceil_log2(self.data_width // 64)

        # Slots are a ring: taken at the tail; their data has come, in order, before `arrived`; decided, and the write
        # asked for if there is one, before `decided`; over before `head`. One bit more tells full from empty.
        head, decided, arrived, tail = (
            Signal(slot_bits + 1, name=name) for name in ("head", "decided", "arrived", "tail")
        )
        value_row = data.StructLayout({"value": 64, "error": 1})
        m.submodules.words = words = memory.Memory(shape=61, depth=slots, init=[])
        m.submodules.values = values = memory.Memory(shape=value_row, depth=slots, init=[])
        m.submodules.written = written = memory.Memory(shape=1, depth=slots, init=[])  # there is an answer to wait for
        words_write, words_read = words.write_port(), words.read_port(domain="comb")
        values_write, values_read = values.write_port(), values.read_port(domain="comb")
        written_write, written_read = written.write_port(), written.read_port(domain="comb")
        m.submodules.answers = answers = LutFifo(1, slots)

        # The front: a piece waits until no slot has its word, then its read is asked for.
        queued = data.StructLayout({"word": 61, "hash": HASH_BITS, "good": 1})
        m.submodules.pieces = pieces = Queue(queued, PIECES)
        given_word, next_piece = piece.payload.address[3:], pieces.o.payload
        word = next_piece.word
        busy = Signal(slots)
        hashes = Signal(data.ArrayLayout(HASH_BITS, slots))
        conflict, clear, asked = Signal(), Signal(), Signal()
        m.d.comb += [
            pieces.i.valid.eq(piece.valid),
            piece.ready.eq(pieces.i.ready),
            pieces.i.payload.word.eq(given_word),
            pieces.i.payload.hash.eq(
                reduce(xor, (given_word[k * HASH_BITS : (k + 1) * HASH_BITS] for k in range(HASHED)))
            ),
            pieces.i.payload.good.eq(piece.payload.status == AccessStatus.OK),
            conflict.eq(
                Cat(Cat(hashes[i], busy[i]) == Cat(next_piece.hash, pieces.o.valid) for i in range(slots)).any()
            ),
            self.read.burst.valid.eq(clear),
            *self._burst(self.read.burst.payload, word),
            asked.eq(clear & self.read.burst.ready),
            words_write.addr.eq(tail),
            words_write.data.eq(word),
            words_write.en.eq(asked),
        ]
        m.d.sync += clear.eq(
            Mux(clear, ~asked, pieces.o.valid & next_piece.good & ~conflict & ((tail ^ head) != slots))
        )
        with m.If(asked):
            m.d.sync += [
                tail.eq(tail + 1),
                busy.bit_select(tail[:slot_bits], 1).eq(1),
                hashes[tail[:slot_bits]].eq(next_piece.hash),
            ]

        # Read data, of which one lane is the word.
        lane = data.View(data.ArrayLayout(64, 1 << lane_bits), self.read.data)
        came = lane[0]
        if lane_bits:
            m.submodules.lanes = lanes = memory.Memory(shape=lane_bits, depth=slots, init=[])
            lanes_write, lanes_read = lanes.write_port(), lanes.read_port(domain="comb")
            m.d.comb += [
                lanes_write.addr.eq(tail),
                lanes_write.data.eq(word[:lane_bits]),
                lanes_write.en.eq(asked),
                lanes_read.addr.eq(arrived),
            ]
            came = lane[lanes_read.data]
        m.d.comb += [
            values_write.addr.eq(arrived),
            values_write.data.value.eq(came),
            values_write.data.error.eq(self.read.error),
            values_write.en.eq(self.read.valid),
            answers.i.valid.eq(self.write.answer),
            answers.i.payload.eq(self.write.error),
        ]
        with m.If(self.read.valid):
            m.d.sync += arrived.eq(arrived + 1)

        # One slot at a time: to be over, or to be decided.
        at = Signal(slot_bits)
        answering = Signal()
        failed = Signal()
        given, given_failed = Signal(64), Signal()  # what stands at the outputs; meanwhile others are decided
        adding, equal, go = Signal(), Signal(4), Signal()  # `equal`: a bit for each quarter of the word
        expected = Signal()  # an answer has come for the slot
        beat = Signal()  # `changed` waits for W
        addend, changed = Signal(64), Signal(64)
        none = Signal()  # the piece was refused
        waits = written_read.data
        over, refused, free = Signal(), Signal(), Signal()
        old, operand = values_read.data, operands.payload
        m.d.comb += [
            words_read.addr.eq(at),
            values_read.addr.eq(at),
            written_write.addr.eq(at),
            written_write.data.eq(go),
            written_read.addr.eq(head),
            free.eq(~payload.valid & ~result.valid),
            over.eq(free & (head != decided) & (~waits | answers.o.valid)),
            pieces.o.ready.eq(asked | refused),
            *self._burst(self.write.burst.payload, words_read.data),
            self.write.beat.valid.eq(beat),
            self.write.beat.payload.data.eq(changed.replicate(1 << lane_bits)),
            self.write.beat.payload.last.eq(1),
            payload.payload.data.eq(Cat(given.word_select(7 - i, 8) for i in range(8))),
            payload.payload.count.eq(Mux(none, 0, 8)),
            payload.payload.first.eq(1),
            payload.payload.last.eq(1),
            payload.payload.error.eq(given_failed),
            result.payload.value.eq(given),
            result.payload.ok.eq(~given_failed),
        ]
        beat_lane = Signal(range(max(2, 1 << lane_bits)))
        m.d.comb += self.write.beat.payload.strobe.word_select(beat_lane, 8).eq(0xFF)
        with m.If(self.write.beat.ready):
            m.d.sync += beat.eq(0)
        for port in (payload, result):
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
        m.d.sync += self.over.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [
                    at.eq(Mux(over, head, decided)),
                    answering.eq(over),
                    expected.eq(waits),
                ]
                with m.If(over | ((self.read.valid | (decided != arrived)) & ~beat & operands.valid)):
                    m.next = "LOAD"
                with m.Elif(free & pieces.o.valid & ~next_piece.good & operands.valid & (head == tail)):
                    m.next = "REFUSE"
            with m.State("REFUSE"):
                m.d.comb += [refused.eq(1), operands.ready.eq(1)]
                m.d.sync += [given_failed.eq(1), none.eq(1), payload.valid.eq(1), result.valid.eq(1), self.over.eq(1)]
                m.next = "IDLE"
            with m.State("LOAD"):
                m.d.sync += [
                    failed.eq(old.error),
                    adding.eq(operand.add),
                    equal.eq(Cat(old.value[k : k + 16] == operand.compare[k : k + 16] for k in range(0, 64, 16))),
                    addend.eq(old.value),
                ]
                with m.If(~operand.add):
                    m.d.sync += addend.eq(0)
                with m.If(answering):
                    m.d.comb += answers.o.ready.eq(expected)
                    m.d.sync += [
                        none.eq(0),
                        given.eq(old.value),
                        given_failed.eq(old.error | (answers.o.ready & answers.o.payload)),
                        head.eq(head + 1),
                        busy.bit_select(at, 1).eq(0),
                        payload.valid.eq(1),
                        result.valid.eq(1),
                        self.over.eq(1),
                    ]
                    m.next = "IDLE"
                with m.Else():
                    m.next = "COMPUTE"
            with m.State("COMPUTE"):
                m.d.comb += operands.ready.eq(1)
                m.d.sync += [
                    changed.eq(addend + operand.swap),
                    beat_lane.eq(words_read.data[:lane_bits]),
                    go.eq(~failed & (adding | equal.all())),
                ]
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += self.write.burst.valid.eq(go)
                with m.If(~go | self.write.burst.ready):
                    m.d.comb += written_write.en.eq(1)
                    m.d.sync += [beat.eq(go), decided.eq(decided + 1)]
                    m.next = "IDLE"
        return m

    def _burst(self, burst, word):
        """The beat that holds the ``word``."""
        lane_bits = ceil_log2(self.data_width // 64)
        return [burst.address.eq(Cat(Const(0, 3 + lane_bits), word[lane_bits:]))]
