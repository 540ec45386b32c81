"""Cuts one packet from a message: its header, and the accesses that gather its payload."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.cqe import WcStatus
from ...abi.wqe import SEND_WQE, WQE_DEFAULT, SendFlag, SendOpcode, send_sges
from ...memory.key_operations import LENGTH_BITS, KeyOperation, KeyRequest
from ...queue.ring import send_batch, word_address
from ...stream.packet import PacketBeat
from ...stream.transfer import AccessRequest
from ...wire.opcodes import Transport
from ...wire.opcodes import opcode as wire_opcode
from ..common.layouts import (
    OPERATED,
    STRIDE_BITS,
    Outstanding,
    PayloadSource,
    ReadTarget,
    TxDescriptor,
    TxDescriptorKind,
    UdRoute,
)
from ..common.psn import PSN_BITS, psn_next
from .admission import Admission
from .gather import Gather
from .inline import InlineQueue
from .pending_operations import OperationBegun
from .requester_context import Phase, RequesterContext
from .run_queue import RunQueue
from .wqe_head import WqeHead
from .wqe_words import WqeWord, WqeWords

__all__ = ["ReadBegun", "Segment", "Segmenter"]

ACK_BYTES = 8192
ACK_PACKETS = 8
"""A long message asks for an acknowledgement after so many bytes or packets, whichever come first: so progress shows
before its end, and a timeout can be short."""

ONE_SIDED = {
    SendOpcode.RDMA_READ: "RC_RDMA_READ_REQUEST",
    SendOpcode.ATOMIC_CMP_AND_SWP: "RC_COMPARE_SWAP",
    SendOpcode.ATOMIC_FETCH_AND_ADD: "RC_FETCH_ADD",
}
"""Names on the wire of what is answered with data."""

Segment = data.StructLayout(
    {
        "qp": 12,
        "state": RequesterContext,
        "admission": Admission,
        "path_mtu": 4,  # as in the QP's context
        "connected": 1,  # the QP is RC, UC, UD or RAW_PACKET
        "unreliable": 1,  # it is UC, UD or RAW_PACKET
        "datagram": 1,  # it is UD
        "raw": 1,  # it is RAW_PACKET
        "pd": 24,
        "stride": STRIDE_BITS,  # log2 of how many times a WQE has 64 bytes
        "kind": TxDescriptorKind,  # REQUEST: a packet; else only this TX descriptor, and a run that clears the poison
    }
)
"""Order to cut one packet."""

ReadBegun = data.StructLayout({"qp": 12, "again": 1, "target": ReadTarget})
"""A READ or atomic is begun, and its responses go to ``target``. With ``again`` the
rest of a READ is asked for, from ``target.psn`` on."""


class Segmenter(wiring.Component):
    """Reads the words of a WQE in one burst and cuts the next packet of its message.

    The accesses of a packet come out once the run is known to be complete, the header once ``outstanding`` has taken
    the message that it ends, and ``reads`` the READ or atomic. A malformed WQE emits nothing, nor does one that must
    wait (``blocked``). From ``i`` to ``access``: 8 cycles; to ``packet``: 8, or 9 for the last packet of a message. A
    further scatter/gather entry takes 2 or 3 more, also one that is passed over after a retry; the first word of inline
    data 2, a further one 1; an atomic 3. The next segment is taken when header, message and READ are gone: one every 9
    or 10 cycles.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits: width of ``inline``.
    blocks : int
        Blocks of fetched WQEs, a power of two.
    gids : bool
        There is a table of GIDs: a header of UD comes out once ``route`` has taken its route, and 3 cycles later.
    keys : bool
        There are operations on MPT entries, and SENDs with invalidate.
    wqe_bytes : int
        Bytes of the largest WQE.

    Members
    -------
    i : stream of ``Segment``
    cancel : 1
        In the cycle after a segment was taken: nothing comes of it.
    ahead, ahead_index, ahead_stride, ahead_datagram : 1, 16, 2, 1
        In the next cycle a segment of this WQE is there. If it can be taken then, its words are asked for already, and
        all comes a cycle earlier; ``places`` are those of this cycle. If it is not taken all the same, none is in the
        cycle that follows. Only while no other one is under way.
    busy, qp : 1, 12
        A segment of this QP is under way. Falls with ``done``.
    sends : 1
        The message need not wait; after that comes ``good``, or the WQE is malformed.
    good : 1
        A packet is cut; ``done`` follows in the next cycle.
    more : 1
        With ``good``: the message has more packets.
    lost : 1
        The packet is acknowledged already, and the state that follows with ``done`` says so.
    done : 1
        ``next``, ``ended``, ``begun``, ``failed`` and ``fresh`` hold in this cycle. Not given for what is no packet,
        nor for one that must wait.
    next : ``RequesterContext``
        State after the packet.
    ended, begun : 1
        The packet is the last of its message; and is so for the first time.
    fresh : 1
        The packet was never sent.
    failed, status, syndrome : 1, 8, 8
        The WQE is malformed, and how: :class:`verbena.hdl.abi.cqe.WcStatus` and ``Syndrome``.
    places
        With ``i``: where its WQE stands, as of :class:`verbena.hdl.queue.wqe_fetcher.RingPrefetcher`.
    word_address, word
        Words of fetched WQEs; a word comes two cycles after its address.
    operation : stream of ``KeyRequest``
        With ``keys``, as of the requester. A segment waits until its operation is taken, and is ``good`` then.
    operates, begun_operation : 1, ``OperationBegun``
        With ``keys``: strobe, together with ``good``, of an operation.
    occupied : 1
        With ``keys``: as many operations as there may be are not over. A segment that asks for another is not sent.
    postponed : 1
        With ``keys``: strobe, as it finds that.
    packet, access, inline, outstanding, reads, route
        As of :class:`verbena.hdl.transport.requester.requester.Requester`.
    """

    def __init__(self, data_width, blocks=32, gids=False, *, keys=False, wqe_bytes=WQE_DEFAULT):
        self.keys = keys
        self.wqe_bytes = wqe_bytes
        self.data_width = data_width
        self.blocks = blocks
        self.gids = gids
        super().__init__(
            {
                "i": In(stream.Signature(Segment)),
                "cancel": In(1),
                "ahead": In(1),
                "ahead_index": In(16),
                "ahead_stride": In(STRIDE_BITS),
                "ahead_datagram": In(1),
                "busy": Out(1),
                "qp": Out(12),
                "sends": Out(1),
                "good": Out(1),
                "more": Out(1),
                "lost": Out(1),
                "done": Out(1),
                "next": Out(RequesterContext),
                "ended": Out(1),
                "begun": Out(1),
                "fresh": Out(1),
                "failed": Out(1),
                "syndrome": Out(8),
                "status": Out(8),
                "places": In(data.ArrayLayout(ceil_log2(blocks), 2)),
                "word_address": Out(word_address(blocks, send_batch(wqe_bytes))),
                "word": In(64),
                "packet": Out(stream.Signature(TxDescriptor)),
                "access": Out(stream.Signature(AccessRequest)),
                "inline": Out(stream.Signature(PacketBeat(data_width))),
                "outstanding": Out(stream.Signature(Outstanding)),
                "reads": Out(stream.Signature(ReadBegun)),
            }
            | ({"route": Out(stream.Signature(UdRoute))} if gids else {})
            | (
                {
                    "operation": Out(stream.Signature(KeyRequest)),
                    "operates": Out(1),
                    "begun_operation": Out(OperationBegun),
                    "occupied": In(1),
                    "postponed": Out(1),
                }
                if keys
                else {}
            )
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = WqeWords(self.blocks, self.gids, self.wqe_bytes)
        m.submodules.head = head = WqeHead(keys=self.keys, wqe_bytes=self.wqe_bytes)
        m.submodules.gather = gather = Gather()
        m.submodules.runs = runs = RunQueue(send_sges(self.wqe_bytes) + 1)
        m.submodules.inline_queue = inline = InlineQueue(self.data_width, self.wqe_bytes)
        wiring.connect(m, runs.o, wiring.flipped(self.access))
        wiring.connect(m, inline.o, wiring.flipped(self.inline))

        header, message, read = self.packet.payload, self.outstanding.payload, self.reads.payload
        transport, target = header.transport, read.target
        have = Signal()  # the header waits to leave
        active, finish, take, taken = Signal(), Signal(), Signal(), Signal()
        open_ = Signal()  # not in the cycle after `finish`: words asked for in vain are still to come
        job = Signal(Segment)
        state, coming = job.state, self.i.payload
        starts_middle, middle = Signal(), Signal()  # the message has begun: the one that comes, and this one
        is_packet, marking = Signal(), Signal()  # marking: what is no packet gets its run
        m.d.comb += [
            self.i.ready.eq(open_),
            take.eq(self.i.valid & self.i.ready),
            starts_middle.eq(coming.state.phase == Phase.MIDDLE),
            is_packet.eq(job.kind == TxDescriptorKind.REQUEST),
            self.busy.eq(active | self.done),
            self.qp.eq(job.qp),
        ]

        # -- The words, and what they say.
        peer = Signal(64)  # of UD, as in the WQE
        inlined = Signal()  # the payload comes from the WQE
        refused_before, failing_before = Signal(), Signal()  # the packet was found not to be sent in the last cycle
        listening = Signal()  # it is not known yet whether the packet is complete
        waiting = Signal()  # all pieces of the packet are known
        opens = Signal()  # in the next cycle `open_` is set: what stands here has left, and may change
        ahead, was_ahead, in_vain = Signal(), Signal(), Signal()
        m.d.sync += was_ahead.eq(ahead)
        m.d.comb += [
            ahead.eq(self.ahead & opens),
            in_vain.eq(was_ahead & ~take),
            words.start.eq((take & (coming.kind == TxDescriptorKind.REQUEST) & ~was_ahead) | ahead),
            words.stop.eq(finish | self.cancel | in_vain),
            words.places.eq(self.places),
            words.index.eq(Mux(active, state.index, Mux(self.ahead, self.ahead_index, coming.state.index))),
            words.stride.eq(Mux(active, job.stride, Mux(self.ahead, self.ahead_stride, coming.stride))),
            words.datagram.eq(Mux(self.ahead, self.ahead_datagram, coming.datagram)),
            words.is_inline.eq(head.inline),
            words.is_atomic.eq(head.atomic),
            words.is_swap.eq(head.opcode[0]),
            words.second.eq(middle & state.blocks[0]),
            words.inline_words.eq(head.inline_words),
            words.inline_room.eq(inline.room),
            self.word_address.eq(words.address),
            head.arriving.eq(words.arriving),
            head.word.eq(self.word),
            head.active.eq(listening),
            head.middle.eq(middle),
            head.psn.eq(state.psn),
            head.taken.eq(gather.offset),
            head.path_mtu.eq(job.path_mtu),
            head.stride.eq(job.stride),
            head.connected.eq(job.connected),
            head.datagram.eq(job.datagram | job.raw),
            head.unreliable.eq(job.unreliable),
            head.admission.eq(job.admission),
            gather.load.eq(self.i.ready),
            gather.start_blocks.eq(Mux(starts_middle, coming.state.blocks, 0)),
            gather.active.eq(listening),
            gather.arriving.eq(words.arriving),
            gather.word.eq(self.word),
            gather.sized.eq(head.sized),
            gather.size.eq(head.size),
            gather.whole.eq(head.one_sided | inlined),
            gather.pair.eq(head.one_sided & ~head.atomic & head.count[1:].any()),
            gather.atomic.eq(head.atomic),
            gather.count.eq(head.count),
        ]
        with m.If(words.arriving == WqeWord.START):
            field = SEND_WQE.fields["immediate"]
            m.d.sync += transport.immediate.eq(self.word[field.offset : field.offset + field.width])
            field = SEND_WQE.fields["traffic_class"]
            m.d.sync += header.traffic_class.eq(self.word[field.offset : field.offset + field.width])
        with m.If(words.arriving == WqeWord.PEER):
            m.d.sync += peer.eq(self.word)
        with m.If(words.arriving == WqeWord.SIZE):
            field = SEND_WQE.fields["rkey"]
            m.d.sync += transport.rkey.eq(self.word[field.offset % 64 : field.offset % 64 + field.width])
        with m.If(words.arriving == WqeWord.REMOTE):
            m.d.sync += transport.address.eq(gather.sum)
        with m.If(head.sized):
            m.d.sync += inlined.eq(head.inline)

        # -- Inline data as it stands in memory; operands most significant byte first, and a FETCH_ADD has but one.
        operand = Cat(self.word.word_select(lane, 8) for lane in reversed(range(8)))
        void = ~head.opcode[0] & words.inline_last
        m.d.comb += [
            inline.put.eq((words.arriving == WqeWord.INLINE) & inlined),
            inline.word.data.eq(Mux(head.atomic, Mux(void, 0, operand), self.word)),
            inline.word.last.eq(words.inline_last),
            inline.word.count.eq(Mux(words.inline_last, head.length[:3], 0)),
        ]

        # -- Piece by piece, until the packet is complete, or found not to be sent.
        # The run may leave at once; what else follows, follows a cycle later.
        complete, failing, refused = Signal(), Signal(), Signal()
        may_end = Signal(init=1)  # no operation waits to be taken
        m.d.comb += [
            refused.eq(gather.cut & head.blocked),
            failing.eq(gather.cut & ~head.blocked & (head.wrong | gather.unfit)),
            complete.eq(gather.cut & ~head.blocked & ~(head.wrong | gather.unfit) & gather.complete),
            finish.eq(
                active
                & (marking | refused_before | failing_before | (waiting & may_end & (~inlined | words.inline_done)))
            ),
            self.good.eq(active & waiting & may_end & (~inlined | words.inline_done)),
            self.sends.eq(listening & (words.arriving == WqeWord.SIZE) & ~head.blocked),
            self.more.eq(~head.last),
            self.lost.eq(refused_before & job.admission.behind),
            runs.put.eq(
                marking | (complete & ~head.operates) | (gather.cut & ~refused & ~failing & (gather.length != 0))
            ),
            runs.commit.eq(marking | (complete & ~head.operates)),
            runs.drop.eq(refused | failing),
            runs.access.key.eq(gather.key),
            runs.access.address.eq(gather.address),
            runs.access.length.eq(Mux(gather.whole | marking, 0, gather.length)),
            runs.access.pd.eq(job.pd),
            runs.access.qp.eq(job.qp),
            runs.access.clear.eq(marking),
            runs.access.last.eq(marking | complete),
        ]
        m.d.sync += [refused_before.eq(refused), failing_before.eq(failing)]
        with m.If(complete):
            m.d.sync += [waiting.eq(1), listening.eq(0)]
        with m.If(refused | failing):
            m.d.sync += [inlined.eq(0), listening.eq(0)]  # words of it may be on their way

        # -- Begin and end.
        newest = job.admission.newest
        passed = Signal()  # done, and a packet came of it
        m.d.sync += [marking.eq(take & (coming.kind != TxDescriptorKind.REQUEST)), self.done.eq(0)]
        staying = self.packet.valid & ~self.packet.ready
        first = (self.outstanding, self.reads, *([self.route] if self.gids else []))
        hidden = Cat(port.valid for port in first).any()  # the header, if there is one, behind these
        m.d.comb += opens.eq(~active & ~take & ~staying & ~hidden & ~in_vain & runs.room)
        m.d.sync += open_.eq(opens)
        with m.If(open_):
            # Loaded whether or not something comes, so that nothing as late as `valid` enables so many registers.
            m.d.sync += [job.eq(coming), middle.eq(starts_middle), waiting.eq(0), inlined.eq(0)]
        m.d.sync += taken.eq(take)
        with m.If(take):
            m.d.sync += active.eq(1)
        with m.If(taken):  # until now words may come that the segment before has asked for in vain
            m.d.sync += listening.eq(1)
        with m.If(finish):
            m.d.sync += [
                active.eq(0),
                have.eq((self.good & ~head.operates) | marking),
                self.outstanding.valid.eq(self.good & head.last & newest),
                self.ended.eq(self.good & head.last),
                self.begun.eq(self.good & head.last & newest),
                self.fresh.eq(self.good & job.admission.fresh),
                self.reads.valid.eq(self.good & head.one_sided & (newest | middle)),
                self.done.eq(self.good | failing_before | self.lost),
                self.failed.eq(failing_before),
                passed.eq(self.good),
            ]
        with m.If(self.cancel):
            m.d.sync += [active.eq(0), listening.eq(0)]
        with m.If(self.packet.valid & self.packet.ready):
            m.d.sync += have.eq(0)
        if self.gids:
            with m.If(finish):
                m.d.sync += self.route.valid.eq(self.good & job.datagram)
            for word, half in ((WqeWord.ROUTE_FIRST, 0), (WqeWord.ROUTE_LAST, 1)):
                with m.If(words.arriving == word):
                    m.d.sync += self.route.payload.as_value().word_select(half, 64).eq(self.word)
        for port in first:
            with m.If(port.valid & port.ready):
                m.d.sync += port.valid.eq(0)

        # -- What comes out; all of it stands in registers that do not change before the next segment.
        last = head.last & is_packet
        asks = Signal()
        next_psn = Signal(PSN_BITS)  # what has no packet has no PSN
        with m.Switch(job.path_mtu):
            for code in range(1, 6):
                interval = min(ACK_PACKETS, ACK_BYTES // (128 << code))
                with m.Case(code):
                    m.d.comb += asks.eq(state.psn % interval == interval - 1)
        place = Mux(last, Mux(middle, 2, 4) + head.opcode[0], middle)
        m.d.comb += [
            self.packet.valid.eq(have & ~Cat(port.valid for port in first).any()),
            header.qp.eq(job.qp),
            header.wqe_index.eq(state.index),
            header.kind.eq(job.kind),
            header.source.eq(Mux(inlined, PayloadSource.INLINE, PayloadSource.MEMORY)),
            header.message_last.eq(last),
            transport.opcode.eq(
                (place + Mux(head.opcode[1], 0, 6))[:5]
                | Mux(job.unreliable, Mux(job.datagram, Transport.UD, Transport.UC), Transport.RC)
                | Mux(job.raw, 1 << 7, 0)
            ),
            transport.psn.eq(state.psn),
            transport.dma_length.eq(Mux(job.datagram, peer[:32], head.remaining)),
            Cat(transport.msn, transport.syndrome).eq(peer[32:]),  # those of a request say nothing but of UD
            transport.length.eq(Mux(is_packet, head.length, 0)),
            transport.ack_request.eq((last | asks) & ~job.unreliable),
            transport.solicited.eq(
                last & head.flags[SendFlag.SOLICITED.bit_length() - 1] & head.opcode[:2].any() & ~head.one_sided
            ),
            next_psn.eq(Mux(head.operates, state.psn, head.next_psn)),
            message.qp.eq(job.qp),
            message.wqe_index.eq(state.index),
            message.last_psn.eq(psn_next(next_psn, -1)),
            message.opcode.eq(head.opcode),
            message.signaled.eq(head.flags[SendFlag.SIGNALED.bit_length() - 1]),
            read.qp.eq(job.qp),
            read.again.eq(middle),
            target.psn.eq(state.psn),
            target.wqe_index.eq(state.index),
            target.length.eq(head.remaining),
            target.address.eq(gather.address),
            target.entry_length.eq(gather.entry_length),
            target.lkey.eq(gather.key),
            target.stride.eq(job.stride),
            target.atomic.eq(head.atomic),
            target.second.eq(gather.second),
            target.sge_count.eq(head.count),
        ]
        with m.If(head.one_sided):
            with m.Switch(head.opcode):
                for code, name in ONE_SIDED.items():
                    with m.Case(code):
                        m.d.comb += transport.opcode.eq(wire_opcode(name))
        if self.keys:
            with m.If(head.invalidates & last):
                whole, end = wire_opcode("RC_SEND_ONLY_WITH_INVALIDATE"), wire_opcode("RC_SEND_LAST_WITH_INVALIDATE")
                m.d.comb += transport.opcode.eq(Mux(middle, end, whole))

        # -- Where the queue stands then.
        m.d.comb += [
            self.syndrome.eq(head.syndrome),
            self.status.eq(Mux(head.too_long, WcStatus.LOC_LEN_ERR, WcStatus.LOC_QP_OP_ERR)),
            self.next.index.eq(state.index + self.ended),
            self.next.psn.eq(next_psn),
            self.next.blocks.eq(Mux(middle, state.blocks, 0) + head.length[8:]),
            self.next.top.eq(Mux(self.begun, self.next.index, state.top)),
            self.next.reads.eq(state.reads + (head.one_sided & self.begun)),
            self.next.top_psn.eq(Mux(self.fresh, next_psn, state.top_psn)),
            self.next.draining.eq(state.draining),
        ]
        with m.If(self.failed):
            m.d.comb += self.next.phase.eq(Phase.HALTED)
        with m.Elif(~passed):
            m.d.comb += self.next.phase.eq(Phase.RESUME)
        with m.Else():
            between = Mux(head.operates, Phase.OPERATING, Phase.BETWEEN)
            m.d.comb += self.next.phase.eq(Mux(head.last, between, Phase.MIDDLE))
        if self.keys:
            self._operate(m, job, head, gather, complete, refused, may_end)
        return m

    def _operate(self, m, job, head, gather, complete, refused, may_end):
        """A WQE that changes an MPT entry is sent to who does that, and is begun then."""
        asked, begun, transport = self.operation.payload, self.begun_operation, self.packet.payload.transport
        with m.If(complete & head.operates):
            m.d.sync += may_end.eq(0)
        with m.Elif(self.operation.ready):
            m.d.sync += may_end.eq(1)
        m.d.comb += [
            head.occupied.eq(self.occupied),
            self.postponed.eq(refused & head.postponed),
            self.operation.valid.eq(~may_end),
            asked.operation.eq(head.operation),
            asked.key.eq(transport.rkey),
            asked.old.eq(transport.immediate),
            asked.region.eq(gather.key),
            asked.address.eq(transport.address),
            asked.length.eq(Cat(gather.address[:LENGTH_BITS], gather.address[LENGTH_BITS:].any())),
            asked.access.eq(self.packet.payload.traffic_class),
            asked.pd.eq(job.pd),
            asked.qp.eq(job.qp),
            self.operates.eq(self.good & head.operates),
            begun.qp.eq(job.qp),
            begun.wqe_index.eq(job.state.index),
            begun.psn.eq(self.outstanding.payload.last_psn),
            begun.binds.eq(head.operation == KeyOperation.BIND),
        ]
        with m.If(head.operates):
            m.d.comb += self.outstanding.payload.opcode.eq(OPERATED | head.operation.as_value())
