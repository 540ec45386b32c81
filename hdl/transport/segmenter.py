"""Cuts one packet from a message: its header, and the accesses that gather its payload."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.contexts import QpType
from ..abi.cqe import Syndrome
from ..abi.wqe import SEND_WQE, SGE_OFFSET, SendFlag, SendOpcode
from ..stream.packet import PacketBeat
from ..stream.transfer import AccessRequest
from .inline import InlineQueue
from .layouts import Outstanding, RequestHeader
from .psn import psn_next
from .run_queue import RunQueue
from .wqe_words import WqeWord, WqeWords, word_address

__all__ = ["SGE_MAX", "Segment", "Segmenter", "SendState"]

SGE_MAX = 6
"""Most scatter/gather entries of a send WQE."""

ACK_INTERVAL = 32
"""A long message asks for an acknowledgement every so many PSNs, so that progress shows before its end."""

SendState = data.StructLayout(
    {
        "index": 16,  # WQE being sent, or next
        "psn": 24,  # next packet
        "middle": 1,  # the message has begun; if not, the fields below, `halted` excepted, are undefined
        "remaining": 31,  # bytes of the message still to be cut: in its middle not more than 2**31 - 256
        "sge": 3,  # entry that holds the next byte
        "offset": 32,  # of that byte in the entry
        "halted": 1,  # a WQE was malformed: nothing more until RESET
    }
)
"""Where a QP's send queue stands: 108 bits, three block RAMs."""

Segment = data.StructLayout(
    {
        "qp": 12,
        "state": SendState,
        "path_mtu": 4,  # as in the QP's context
        "type": 4,
        "pd": 24,
        "large": 1,  # WQEs of 128 bytes
        "reset": 1,  # no packet, but a token
    }
)
"""Order to cut one packet."""


class Segmenter(wiring.Component):
    """Reads the words of a WQE in one burst and cuts the next packet of its message.

    The accesses of a packet come out once the run is known to be complete, the header once ``outstanding`` has taken
    the message that it ends. A malformed WQE emits nothing. From ``i`` to ``access``: 7 cycles; to ``packet``: 7, or 8
    for the last packet of a message. A further scatter/gather entry takes 2 or 3 more, a further word of inline data 1.
    The next segment is taken when header and message are gone: one every 8 or 9 cycles.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits: width of ``inline``.
    area : int
        Bytes a QP of fetched WQEs, a power of two: WQE ``i`` begins at ``i << log_sq_stride``, modulo ``area``.

    Members
    -------
    i : stream of ``Segment``
    busy, qp : 1, 12
        A segment of this QP is under way. Falls with ``done``.
    good : 1
        A packet is cut; ``done`` follows in the next cycle.
    more : 1
        With ``good``: the message has more packets.
    done : 1
        ``next``, ``ended`` and ``failed`` hold in this cycle; not given for a token.
    next : ``SendState``
        State after the packet.
    ended : 1
        The packet is the last of its message.
    failed, syndrome : 1, 8
        The WQE is malformed, and how (:class:`verbena.hdl.abi.cqe.Syndrome`).
    word_address, word
        Words of fetched WQEs; a word comes two cycles after its address.
    packet, access, inline, outstanding
        As of :class:`verbena.hdl.transport.requester.Requester`.
    """

    def __init__(self, data_width, area=1024):
        self.data_width = data_width
        self.area = area
        super().__init__(
            {
                "i": In(stream.Signature(Segment)),
                "busy": Out(1),
                "qp": Out(12),
                "good": Out(1),
                "more": Out(1),
                "done": Out(1),
                "next": Out(SendState),
                "ended": Out(1),
                "failed": Out(1),
                "syndrome": Out(8),
                "word_address": Out(word_address(area)),
                "word": In(64),
                "packet": Out(stream.Signature(RequestHeader)),
                "access": Out(stream.Signature(AccessRequest)),
                "inline": Out(stream.Signature(PacketBeat(data_width))),
                "outstanding": Out(stream.Signature(Outstanding)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = WqeWords(self.area)
        m.submodules.runs = runs = RunQueue(SGE_MAX)
        m.submodules.inline_queue = inline = InlineQueue(self.data_width)
        wiring.connect(m, runs.o, wiring.flipped(self.access))
        wiring.connect(m, inline.o, wiring.flipped(self.inline))

        header = self.packet.payload
        transport = header.transport
        have = Signal()  # the header waits to leave
        active = Signal()
        finish = Signal()
        job = Signal(Segment)
        state = job.state
        take = Signal()
        m.d.comb += [
            self.i.ready.eq(~active & ~self.done & ~have & ~self.outstanding.valid & runs.room),
            take.eq(self.i.valid & self.i.ready),
            self.busy.eq(active | self.done),
            self.qp.eq(job.qp),
        ]

        # -- The words, and what they say.
        field = {name: self.word[f.offset % 64 : f.offset % 64 + f.width] for name, f in SEND_WQE.fields.items()}
        opcode, flags, count = Signal(2), Signal(4), Signal(3)
        unknown, crowded, too_long = Signal(), Signal(), Signal()
        is_inline = flags[SendFlag.INLINE.bit_length() - 1]
        length = transport.dma_length
        inlined = Signal()  # there is inline data, and no more than fits
        m.d.comb += [
            words.start.eq(take & ~self.i.payload.reset),
            words.stop.eq(finish),
            words.qp.eq(Mux(active, job.qp, self.i.payload.qp)),
            words.index.eq(Mux(active, state.index, self.i.payload.state.index)),
            words.large.eq(Mux(active, job.large, self.i.payload.large)),
            words.entry.eq(Mux(self.i.payload.state.middle, self.i.payload.state.sge, 0)),
            words.inline_room.eq(inline.room),
            self.word_address.eq(words.address),
            inline.put.eq(words.arriving == WqeWord.INLINE),
            inline.word.data.eq(self.word),
            inline.word.last.eq(words.inline_last),
            inline.word.count.eq(Mux(words.inline_last, length[:3], 0)),
        ]
        with m.If(words.arriving == WqeWord.START):
            m.d.sync += [
                opcode.eq(field["opcode"]),
                flags.eq(field["flags"]),
                count.eq(field["sge_count"]),
                transport.immediate.eq(field["immediate"]),
                unknown.eq((field["opcode"] > SendOpcode.SEND_WITH_IMM) | (job.type != QpType.RC)),
                crowded.eq(field["sge_count"] > Mux(job.large, SGE_MAX, 2)),
            ]
        with m.If(words.arriving == WqeWord.SIZE):
            m.d.sync += [transport.rkey.eq(field["rkey"]), length.eq(field["length"])]
        with m.If(words.arriving == WqeWord.REMOTE):
            m.d.sync += transport.address.eq(self.word)

        # -- How long the packet is: in the cycle after the length has come.
        sized = Signal()
        mtu = Signal(13)
        rest = Signal(32)
        chunk = Signal(13)  # of the packet, still to be gathered
        last, is_last, fits = Signal(), Signal(), Signal()
        m.d.comb += mtu.eq(256)
        with m.Switch(job.path_mtu):
            for code in range(2, 6):
                with m.Case(code):
                    m.d.comb += mtu.eq(128 << code)
        m.d.comb += [
            rest.eq(Mux(state.middle, state.remaining, length)),
            is_last.eq(rest <= mtu),
            fits.eq(length <= Mux(job.large, 128 - SGE_OFFSET, 64 - SGE_OFFSET)),
            words.is_inline.eq(is_inline & (length != 0) & fits & ~unknown),
            words.inline_words.eq((length[:7] + 7)[3:7]),
        ]
        m.d.sync += sized.eq(words.arriving == WqeWord.SIZE)
        with m.If(sized):
            m.d.sync += [
                chunk.eq(Mux(is_last, rest, mtu)),
                transport.length.eq(Mux(is_last, rest, mtu)),
                last.eq(is_last),
                inlined.eq(words.is_inline),
                too_long.eq((length[31] & (length[:31] != 0)) | (is_inline & (~fits | state.middle))),
            ]

        # -- The entries: how much is left in one, then where that is and how much of it the packet takes, then `cut`.
        key, left, address, piece = Signal(32), Signal(32), Signal(64), Signal(13)
        begun, was_begun = Signal(), Signal()  # the entry is the packet's first, `offset` bytes of it are gone
        base = Signal(32)
        cut, enough, complete, exhausted, short, failing, waiting = (Signal() for _ in range(7))
        m.d.comb += [
            base.eq(Mux(begun, state.offset, 0)),
            enough.eq((left[13:] != 0) | (left[:13] >= chunk)),
        ]
        m.d.sync += cut.eq(0)
        with m.If(words.arriving == WqeWord.ENTRY_SIZE):
            m.d.sync += [key.eq(field["sge0_lkey"]), left.eq(field["sge0_length"] - base)]
        with m.If(active & (words.arriving == WqeWord.ENTRY_ADDRESS)):
            m.d.sync += [
                cut.eq(1),
                address.eq(self.word + base),
                piece.eq(Mux(enough, chunk, left)),
                exhausted.eq(~enough | (left == chunk)),
                short.eq(state.sge >= count),
                complete.eq(((state.sge < count) & enough) | (chunk == 0) | inlined),
                begun.eq(0),
                was_begun.eq(begun),
            ]
        with m.If(cut):
            m.d.sync += [
                chunk.eq(chunk - piece),
                state.offset.eq(Mux(exhausted, 0, Mux(was_begun, state.offset, 0) + piece)),
                state.sge.eq(state.sge + exhausted),
                waiting.eq(complete),
            ]
        m.d.comb += [
            failing.eq(~job.reset & (unknown | crowded | too_long | (short & ~complete))),
            finish.eq(active & ((cut & (failing | complete)) | waiting) & (~inlined | failing | words.inline_done)),
            self.good.eq(finish & ~failing & ~job.reset),
            self.more.eq(~last),
            runs.put.eq(cut & ~failing & (complete | (piece != 0))),
            runs.commit.eq(cut & ~failing & complete),
            runs.drop.eq(cut & failing),
            runs.access.key.eq(key),
            runs.access.address.eq(address),
            runs.access.length.eq(Mux(inlined, 0, piece)),
            runs.access.pd.eq(job.pd),
            runs.access.qp.eq(job.qp),
            runs.access.clear.eq(job.reset),
            runs.access.last.eq(complete),
        ]

        # -- Begin and end.
        with m.If(self.i.ready):
            # Loaded whether or not something comes, so that nothing as late as `valid` enables so many registers.
            m.d.sync += [job.eq(self.i.payload), waiting.eq(0), begun.eq(1)]
            with m.If(~self.i.payload.state.middle):
                m.d.sync += [state.sge.eq(0), state.offset.eq(0)]
        with m.If(take):
            m.d.sync += active.eq(1)
            with m.If(self.i.payload.reset):
                m.d.sync += [cut.eq(1), complete.eq(1), piece.eq(0), inlined.eq(0), last.eq(0)]
        m.d.sync += self.done.eq(0)
        with m.If(finish):
            m.d.sync += [
                active.eq(0),
                have.eq(~failing),
                self.outstanding.valid.eq(last & ~failing & ~job.reset),
                self.done.eq(~job.reset),
                self.failed.eq(failing),
            ]
        with m.If(self.packet.valid & self.packet.ready):
            m.d.sync += have.eq(0)
        with m.If(self.outstanding.valid & self.outstanding.ready):
            m.d.sync += self.outstanding.valid.eq(0)

        # -- What comes out; all of it stands in registers that do not change before the next segment.
        is_write = ~opcode[1]
        place = Mux(last, Mux(state.middle, 2, 4) + opcode[0], state.middle)
        message = self.outstanding.payload
        m.d.comb += [
            self.packet.valid.eq(have & ~self.outstanding.valid),
            header.qp.eq(job.qp),
            header.wqe_index.eq(state.index),
            header.inline.eq(inlined),
            header.message_last.eq(last),
            header.token.eq(job.reset),
            transport.opcode.eq(place + Mux(is_write, 6, 0)),
            transport.psn.eq(state.psn),
            transport.ack_request.eq(last | (state.psn % ACK_INTERVAL == ACK_INTERVAL - 1)),
            transport.solicited.eq(
                last & flags[SendFlag.SOLICITED.bit_length() - 1] & (opcode != SendOpcode.RDMA_WRITE)
            ),
            message.qp.eq(job.qp),
            message.wqe_index.eq(state.index),
            message.last_psn.eq(state.psn),
            message.opcode.eq(opcode),
            message.signaled.eq(flags[SendFlag.SIGNALED.bit_length() - 1]),
            self.ended.eq(last & ~self.failed),
            self.next.index.eq(state.index + self.ended),
            self.next.psn.eq(psn_next(state.psn, ~self.failed)),
            self.next.middle.eq(~last),
            self.next.remaining.eq(rest - transport.length),
            self.next.sge.eq(state.sge),
            self.next.offset.eq(state.offset),
            self.next.halted.eq(self.failed),
        ]
        with m.If(unknown):
            m.d.comb += self.syndrome.eq(Syndrome.OPCODE)
        with m.Elif(crowded):
            m.d.comb += self.syndrome.eq(Syndrome.SGE_COUNT)
        with m.Else():
            m.d.comb += self.syndrome.eq(Syndrome.LENGTH)
        return m
