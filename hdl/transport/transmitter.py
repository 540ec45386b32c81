"""Where requests meet their verdicts and payload, and acknowledgements overtake them."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.contexts import QP_CONTEXT
from ..abi.cqe import Syndrome, WcStatus
from ..abi.tables import AccessStatus
from ..roce.opcodes import opcode
from ..roce.packet_header import TransmitHeader
from ..stream.packet import PacketBeat
from ..stream.table import Table
from ..stream.transfer import LENGTH_BITS, AttributeWrite, Done
from .layouts import Ack, Failure, RequestHeader

__all__ = ["Transmitter"]


class Transmitter(wiring.Component):
    """Sends one packet after the other: the header with the peer's addresses, and the payload beside it.

    A request leaves when its verdict is there and is OK, and the first beat of its payload; the beats behind it may
    still be on their way. While it waits, ACKs and NAKs go ahead. A request whose verdict is not OK vanishes with
    everything that belongs to it.

    *Cycles*: 3 a packet, from all there to ``header`` 2. A request's header waits until the payload of the one before
    has gone, and is there in the next cycle. Nothing is buffered.

    *Errors*: a verdict other than OK is a LOC_PROT_ERR with the verdict as its syndrome, on ``failed``; except
    POISONED, whose cause has been told. Payload that ends in error is a GENERAL_ERR with syndrome BUS, and ``o`` ends
    in error, too: that packet must reach nobody.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    data_width : int
        64, 128, 256 or 512 bits.

    Members
    -------
    attribute, attribute_en : ``AttributeWrite``
        The command block's broadcast.
    packet : stream of ``RequestHeader``
    verdict : stream of ``Done``
        One for each ``packet``, in the same order.
    payload, inline : stream of ``PacketBeat``
        One packet on ``inline`` for each header with ``inline``. One on ``payload`` for each other with ``length`` not
        0, and for each whose verdict is not OK.
    ack : stream of ``Ack``
    header : stream of ``TransmitHeader``
    o : stream of ``PacketBeat``
        A packet for each header whose ``length`` is not 0, after it.
    failed : stream of ``Failure``
    token_done : 1
        A token has arrived here: all earlier packets of its QP are out, or on their way behind ``header``.
    count_tx_packets, count_tx_bytes, count_tx_messages, count_tx_acks, count_tx_naks, count_stall_tx_payload
        What happened in this cycle; bytes are a number.
    """

    def __init__(self, qps, data_width=64):
        if qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        self.qps = qps
        self.data_width = data_width
        beat = PacketBeat(data_width)
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "packet": In(stream.Signature(RequestHeader)),
                "verdict": In(stream.Signature(Done)),
                "payload": In(stream.Signature(beat)),
                "inline": In(stream.Signature(beat)),
                "ack": In(stream.Signature(Ack)),
                "header": Out(stream.Signature(TransmitHeader)),
                "o": Out(stream.Signature(beat)),
                "failed": Out(stream.Signature(Failure)),
                "token_done": Out(1),
                "count_tx_packets": Out(1),
                "count_tx_bytes": Out(LENGTH_BITS),
                "count_tx_messages": Out(1),
                "count_tx_acks": Out(1),
                "count_tx_naks": Out(1),
                "count_stall_tx_payload": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        path = Table.words_of(
            QP_CONTEXT, "dest_qpn", "traffic_class", "pkey", "source_port", "dest_mac", "hop_limit", "dest_ip"
        )
        m.submodules.table = table = Table(QP_CONTEXT, path, self.qps)
        request, ack = self.packet.payload, self.ack.payload
        is_ack = Signal()  # whose turn it is
        look = Signal()  # whose path is looked up
        transport, row = self.header.payload.transport, table.row
        m.d.comb += [
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(Mux(look, ack.qp, request.qp)),
            look.eq(is_ack),
            transport.eq(request.transport),
            # AETH counts with ACKs only, RETH and ImmDt with requests only: nothing to choose there.
            transport.syndrome.eq(ack.syndrome),
            transport.msn.eq(ack.msn),
            transport.dest_qpn.eq(row.dest_qpn),
            transport.pkey.eq(row.pkey),
            transport.becn.eq(0),
            self.header.payload.path.mac.eq(row.dest_mac),
            self.header.payload.path.ip.eq(row.dest_ip),
            self.header.payload.path.source_port.eq(row.source_port),
            self.header.payload.path.traffic_class.eq(row.traffic_class),
            self.header.payload.path.hop_limit.eq(row.hop_limit),
        ]
        with m.If(is_ack):
            m.d.comb += [
                transport.opcode.eq(opcode("RC_ACKNOWLEDGE")),
                transport.psn.eq(ack.psn),
                transport.length.eq(0),
                transport.solicited.eq(0),
                transport.ack_request.eq(0),
            ]

        # -- Payload of the request whose header has gone, or of one that is thrown away.
        moving, dropping = Signal(), Signal()
        from_inline, inline_too = Signal(), Signal()
        source = Mux(from_inline, self.inline.payload, self.payload.payload)
        source_valid = Mux(from_inline, self.inline.valid, self.payload.valid)
        takes = Signal()
        m.d.comb += [
            self.o.payload.eq(source),
            self.o.valid.eq(moving & source_valid),
            takes.eq(dropping | (moving & self.o.ready)),
            self.payload.ready.eq(takes & ~from_inline),
            self.inline.ready.eq(takes & from_inline),
        ]
        owner = Signal(Failure)  # of the payload; whom a failure would concern
        m.d.comb += self.failed.payload.eq(owner)
        with m.If(self.failed.ready):
            m.d.sync += self.failed.valid.eq(0)
        with m.If(takes & source_valid & self.o.payload.last):
            m.d.sync += [moving.eq(0), dropping.eq(dropping & inline_too), from_inline.eq(inline_too)]
            m.d.sync += inline_too.eq(0)
            with m.If(moving & self.o.payload.error):
                m.d.sync += [
                    self.failed.valid.eq(1),
                    owner.status.eq(WcStatus.GENERAL_ERR),
                    owner.syndrome.eq(Syndrome.BUS),
                ]

        # -- Who goes next.
        idle, good, present, has_payload = Signal(), Signal(), Signal(), Signal()
        status = self.verdict.payload.status
        leave = Signal()
        m.d.comb += [
            idle.eq(~moving & ~dropping & ~self.failed.valid),
            good.eq(status == AccessStatus.OK),
            has_payload.eq(request.transport.length != 0),
            present.eq(~has_payload | Mux(request.inline, self.inline.valid, self.payload.valid)),
            self.packet.ready.eq(leave),
            self.verdict.ready.eq(leave),
        ]
        with m.FSM():
            with m.State("CHOOSE"):
                m.d.comb += look.eq(self.ack.valid)
                m.d.sync += is_ack.eq(self.ack.valid)
                with m.If(self.ack.valid | self.packet.valid):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "SEND"
            with m.State("SEND"):
                with m.If(is_ack):
                    m.d.comb += [self.header.valid.eq(1), self.ack.ready.eq(self.header.ready)]
                    with m.If(self.header.ready):
                        m.d.comb += [
                            self.count_tx_acks.eq(ack.syndrome[5:8] == 0),
                            self.count_tx_naks.eq(ack.syndrome[5:8] != 0),
                        ]
                        m.next = "CHOOSE"
                with m.Elif(idle & self.verdict.valid & good & request.token):
                    m.d.comb += [leave.eq(1), self.token_done.eq(1)]
                    m.next = "CHOOSE"
                with m.Elif(idle & self.verdict.valid & good & present):
                    m.d.comb += [self.header.valid.eq(1), leave.eq(self.header.ready)]
                    with m.If(self.header.ready):
                        m.d.comb += [
                            self.count_tx_bytes.eq(request.transport.length),
                            self.count_tx_messages.eq(request.message_last),
                        ]
                        m.d.sync += [moving.eq(has_payload), from_inline.eq(request.inline)]
                        m.next = "CHOOSE"
                with m.Elif(idle & self.verdict.valid & ~good):
                    m.d.comb += [leave.eq(1), self.token_done.eq(request.token)]
                    m.d.sync += [
                        dropping.eq(1),
                        from_inline.eq(0),
                        inline_too.eq(request.inline),
                        self.failed.valid.eq((status != AccessStatus.POISONED) & ~request.token),
                    ]
                    m.next = "CHOOSE"
                with m.Else():
                    m.d.comb += self.count_stall_tx_payload.eq(idle)
                    with m.If(self.ack.valid):
                        m.d.comb += look.eq(1)
                        m.d.sync += is_ack.eq(1)
                        m.next = "LOOK"
                with m.If(leave):
                    m.d.sync += [
                        owner.qp.eq(request.qp),
                        owner.wqe_index.eq(request.wqe_index),
                        owner.status.eq(WcStatus.LOC_PROT_ERR),
                        owner.syndrome.eq(status),
                    ]
        m.d.comb += self.count_tx_packets.eq(self.header.valid & self.header.ready)
        return m
