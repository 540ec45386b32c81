"""Where packets meet their verdicts and payload, and acknowledgements overtake them."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.cqe import WcStatus
from ...abi.tables import AccessStatus
from ...abi.wqe import UD_ADDRESS
from ...memory.mtt import Verdict
from ...stream.arbiter import pick
from ...stream.packet import PacketBeat
from ...stream.record import record_layout
from ...stream.transfer import LENGTH_BITS, AttributeWrite
from ...wire.opcodes import opcode
from ...wire.packet_header import Deth, TransmitHeader
from ..common.layouts import (
    Ack,
    Answered,
    Departed,
    Failure,
    PayloadSource,
    TxDescriptor,
    TxDescriptorKind,
    UdPath,
    UdRoute,
)
from .path_fetch import PathFetch

__all__ = ["Transmitter"]

UNRELIABLE_BIT = 5
"""Of an opcode: set in those of UC and UD, the next one too in those of UD."""

UD_ADDRESS_LAYOUT = record_layout(UD_ADDRESS)

MEMORY, INLINE, ATOMIC, REPLAY = range(4)
"""Streams of payload: as :class:`.layouts.PayloadSource`, and the responses' own inline stream."""


class Transmitter(wiring.Component):
    """Sends one packet after the other: the header with the peer's addresses, and the payload beside it.

    A request or response leaves when its verdict is there and is OK, and the first beat of its payload is there, or
    ``hint`` says that it comes; the beats behind it may still be on their way. While it waits, ACKs and NAKs go ahead.
    A packet whose verdict is not OK vanishes with everything that belongs to it. Tokens and void TX descriptors vanish,
    too, in their turn.

    *Cycles*: 8 a packet, because its path is read when the one before has left (:class:`.path_fetch.PathFetch`); from
    its coming to ``header`` 7, and from all else there 1. A packet's header waits until the payload of the one before
    has gone, and what is to be said about that (``failed``, ``departed``, ``answered``) is taken. Nothing is buffered.

    *Errors*: a request's verdict other than OK is a LOC_PROT_ERR with the verdict as its syndrome, on ``failed``;
    except POISONED, whose cause has been told. A response's verdict goes to ``answered``. Payload that ends in error is
    a GENERAL_ERR with syndrome BUS, or an answer with status BUS; and ``o`` ends in error, too: that packet must reach
    nobody.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    data_width : int
        64, 128, 256 or 512 bits.
    gids : bool
        There is a table of GIDs.

    Members
    -------
    attribute, attribute_en : ``AttributeWrite``
        The command block's broadcast.
    packet : stream of ``TxDescriptor``
    next, next_qp : 1, 12
        Whose packet is next at ``packet``, or will be; until that is taken. The 7 cycles of its path begin here.
    verdict : stream of ``{status}``
        One for each ``packet``, in the same order.
    payload, inline, atomic, replay : stream of ``PacketBeat``
        Payload from memory; of requests with source INLINE; from the atomic unit; of responses with source INLINE. One
        packet for each TX descriptor of that source whose ``length`` is not 0. If a verdict is not OK, there is a
        packet with ``error`` on ``atomic`` if that is the source, else on ``payload``, and those on ``inline`` and
        ``replay`` are there all the same.
    hint : 1
        While nothing of an earlier packet is on ``payload``: the next one's first beat comes in a few cycles, before
        the frame's headers have gone.
    route : stream of ``UdRoute``
        With ``gids``: one for each request of UD, in their order.
    ack : stream of ``Ack``
    header : stream of ``TransmitHeader``
    o : stream of ``PacketBeat``
        A packet for each header whose ``length`` is not 0, after it.
    failed : stream of ``Failure``
    departed : stream of ``Departed``
        Of UC and UD requests, the last packet of a message has left, and its payload.
    answered : stream of ``Answered``
        Also says OK without ``last`` when a token of the READ/atomic responder has arrived here: there, and only there,
        it ends what is said about the QP's past.
    token_done : 1
        A token of the requester has arrived here: all earlier requests of its QP are out, or on their way behind
        ``header``.
    request_done : 1
        Strobe: a request has left this block, its payload too, and whatever is to be said of it on ``failed`` is taken.
    count_tx_packets, count_tx_bytes, count_tx_messages, count_tx_acks, count_tx_naks, count_read_responses,
    count_stall_tx_payload
        What happened in this cycle; bytes are a number, and come in the next.
    """

    def __init__(self, qps, data_width=64, gids=False):
        if qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        self.qps = qps
        self.data_width = data_width
        self.gids = gids
        beat = PacketBeat(data_width)
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "packet": In(stream.Signature(TxDescriptor)),
                "next": In(1),
                "next_qp": In(12),
                "verdict": In(stream.Signature(Verdict)),
                "payload": In(stream.Signature(beat)),
                "hint": In(1),
                "inline": In(stream.Signature(beat)),
                "atomic": In(stream.Signature(beat)),
                "replay": In(stream.Signature(beat)),
                "ack": In(stream.Signature(Ack)),
                "header": Out(stream.Signature(TransmitHeader)),
                "o": Out(stream.Signature(beat)),
                "failed": Out(stream.Signature(Failure)),
                "departed": Out(stream.Signature(Departed)),
                "answered": Out(stream.Signature(Answered)),
                "token_done": Out(1),
                "request_done": Out(1),
                "count_tx_packets": Out(1),
                "count_tx_bytes": Out(LENGTH_BITS),
                "count_tx_messages": Out(1),
                "count_tx_acks": Out(1),
                "count_tx_naks": Out(1),
                "count_read_responses": Out(1),
                "count_stall_tx_payload": Out(1),
            }
            | ({"route": In(stream.Signature(UdRoute))} if gids else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.paths = paths = PathFetch(self.qps, self.gids)
        packet, ack = self.packet.payload, self.ack.payload
        is_ack = Signal()  # whose turn it is
        transport, row = self.header.payload.transport, Signal.like(paths.packet.path)
        m.d.comb += [
            paths.attribute.eq(self.attribute),
            paths.attribute_en.eq(self.attribute_en),
            paths.packet.valid.eq(self.next),
            paths.packet.qp.eq(self.next_qp),
            paths.packet.taken.eq(self.packet.ready),
            paths.ack.valid.eq(self.ack.valid),
            paths.ack.qp.eq(ack.qp),
            paths.ack.taken.eq(self.ack.ready),
            row.eq(Mux(is_ack, paths.ack.path.as_value(), paths.packet.path.as_value())),
            transport.eq(packet.transport),
            transport.dest_qpn.eq(row.dest_qpn),
            transport.pkey.eq(row.pkey),
            transport.becn.eq(0),
            self.header.payload.path.mac.eq(row.dest_mac),
            self.header.payload.path.ip.eq(row.dest_ip),
            self.header.payload.path.source_port.eq(row.source_port),
            self.header.payload.path.traffic_class.eq(row.traffic_class),
            self.header.payload.path.hop_limit.eq(row.hop_limit),
        ]
        if self.gids:
            m.d.comb += [
                self.header.payload.path.gid_high.eq(Cat(row.dest_gid_middle, row.dest_gid_high)),
                self.header.payload.path.flow_label.eq(row.flow_label),
                self.header.payload.path.sgid_index.eq(row.sgid_index),
            ]
        with m.If(is_ack):
            m.d.comb += [
                transport.opcode.eq(opcode("RC_ACKNOWLEDGE")),
                transport.psn.eq(ack.psn),
                transport.syndrome.eq(ack.syndrome),
                transport.msn.eq(ack.msn),
                transport.length.eq(0),
                transport.solicited.eq(0),
                transport.ack_request.eq(0),
            ]

        # -- What the packet is, a cycle after it has come: nothing decides on it before the second.
        is_request, is_response, has_payload = Signal(), Signal(), Signal()
        ends = Signal()  # a message that nobody acknowledges
        is_datagram = Signal()  # its path stands in it
        coming = Signal(2)  # the stream of its payload
        fine, bad = Signal(), Signal()  # the verdict is there
        m.d.sync += [
            is_request.eq(packet.kind == TxDescriptorKind.REQUEST),
            is_response.eq(packet.kind == TxDescriptorKind.RESPONSE),
            has_payload.eq(packet.transport.length != 0),
            is_datagram.eq(
                (packet.kind == TxDescriptorKind.REQUEST)
                & packet.transport.opcode[UNRELIABLE_BIT : UNRELIABLE_BIT + 2].all()
            ),
            ends.eq(
                (packet.kind == TxDescriptorKind.REQUEST)
                & packet.message_last
                & packet.transport.opcode[UNRELIABLE_BIT]
            ),
            coming.eq(packet.source),
            fine.eq(self.verdict.valid & (self.verdict.payload.status == AccessStatus.OK)),
            bad.eq(self.verdict.valid & (self.verdict.payload.status != AccessStatus.OK)),
        ]
        with m.If((packet.source == PayloadSource.INLINE) & (packet.kind == TxDescriptorKind.RESPONSE)):
            m.d.sync += coming.eq(REPLAY)

        with m.If(is_datagram & ~is_ack):
            sent = packet.transport
            address = data.View(UD_ADDRESS_LAYOUT, sent.address)
            deth, path = data.View(Deth, transport.address), self.header.payload.path
            udp = data.View(UdPath, Cat(sent.dma_length, sent.msn, sent.syndrome))
            m.d.comb += [
                transport.dest_qpn.eq(address.dest_qpn),
                deth.source_qpn.eq(row.dest_qpn),
                deth.reserved.eq(0),
                path.mac.eq(udp.mac),
                path.source_port.eq(udp.source_port),
                path.ip.eq(sent.rkey),
                path.hop_limit.eq(address.hop_limit),
                path.traffic_class.eq(packet.traffic_class),
            ]
            if self.gids:
                route = self.route.payload
                m.d.comb += [
                    path.gid_high.eq(Cat(route.dest_gid_middle, route.dest_gid_high)),
                    path.flow_label.eq(route.flow_label),
                    path.sgid_index.eq(route.sgid_index),
                ]
        # Where a datagram goes came ahead of it.
        routed = ~is_datagram | self.route.valid if self.gids else Const(1)
        if self.gids:
            m.d.comb += self.route.ready.eq(self.packet.ready & is_datagram)

        # -- Payload of the packet whose header has gone, or of one that is thrown away.
        moving, dropping = Signal(), Signal()
        source, behind = Signal(2), Signal(2)  # `behind`: another one is thrown away afterwards, from there
        sources = [self.payload, self.inline, self.atomic, self.replay]
        valids = [port.valid for port in sources]
        here, takes, over = Signal(), Signal(), Signal()
        m.d.comb += [
            Value.cast(self.o.payload).eq(pick([Value.cast(port.payload) for port in sources], source)),
            here.eq(pick(valids, source)),
            self.o.valid.eq(moving & here),
            takes.eq(dropping | (moving & self.o.ready)),
            over.eq(takes & here & self.o.payload.last),
            *(port.ready.eq(takes & (source == number)) for number, port in enumerate(sources)),
        ]

        # -- Whom the payload belongs to, and what is said about it.
        idle, leave = Signal(), Signal()
        of_response, broken, departs = Signal(), Signal(), Signal()
        failure, answer = self.failed.payload, self.answered.payload
        m.d.comb += [
            idle.eq(~(moving | dropping | self.failed.valid | self.departed.valid | self.answered.valid)),
            self.departed.payload.qp.eq(answer.qp),
            self.departed.payload.psn.eq(answer.psn),
            failure.qp.eq(answer.qp),
            failure.status.eq(Mux(broken, WcStatus.GENERAL_ERR, WcStatus.LOC_PROT_ERR)),
            failure.syndrome.eq(answer.status),
        ]
        with m.If(idle):  # again and again until it leaves: `leave` is late
            m.d.sync += [
                failure.wqe_index.eq(packet.wqe_index),
                answer.qp.eq(packet.qp),
                answer.status.eq(Mux(is_request | is_response, self.verdict.payload.status, AccessStatus.OK)),
                answer.psn.eq(packet.transport.psn),
                answer.msn.eq(packet.transport.msn),
                answer.last.eq(packet.message_last & is_response),
                of_response.eq(is_response),
                departs.eq(ends),
                broken.eq(0),
            ]
        for port in (self.failed, self.departed, self.answered):
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
        with m.If(over):
            m.d.sync += [moving.eq(0), dropping.eq(dropping & (behind != MEMORY)), source.eq(behind), behind.eq(0)]
            with m.If(moving & self.o.payload.error):
                m.d.sync += [
                    self.failed.valid.eq(~of_response),
                    self.answered.valid.eq(of_response),
                    answer.status.eq(AccessStatus.BUS),
                    broken.eq(1),
                ]
            with m.Elif(moving):
                m.d.sync += [self.answered.valid.eq(of_response & answer.last), self.departed.valid.eq(departs)]

        # -- Who goes next.
        present, sends = Signal(), Signal()
        known = Signal()  # what the packet is
        m.d.sync += known.eq(self.packet.valid & ~leave)
        m.d.comb += [
            present.eq(~has_payload | pick([self.payload.valid | self.hint, *valids[1:]], coming)),
            sends.eq(paths.packet.here & idle & fine & (is_request | is_response) & present & routed & known),
            self.packet.ready.eq(leave),
            self.verdict.ready.eq(leave),
        ]
        counted = Signal()
        with m.FSM():
            with m.State("PACKET"):
                with m.If(sends):
                    m.d.comb += [self.header.valid.eq(1), leave.eq(self.header.ready)]
                    with m.If(self.header.ready):
                        m.d.comb += [
                            counted.eq(1),
                            self.count_tx_messages.eq(packet.message_last & is_request),
                            self.count_read_responses.eq(is_response & (coming == MEMORY)),
                        ]
                        m.d.sync += [
                            moving.eq(has_payload),
                            source.eq(coming),
                            behind.eq(MEMORY),
                            self.answered.valid.eq(is_response & packet.message_last & ~has_payload),
                            self.departed.valid.eq(ends & ~has_payload),
                        ]
                with m.Elif(known & idle & routed & (bad | (fine & ~is_request & ~is_response))):
                    is_token = packet.kind == TxDescriptorKind.RESPONSE_TOKEN
                    m.d.comb += [leave.eq(1), self.token_done.eq(packet.kind == TxDescriptorKind.REQUEST_TOKEN)]
                    m.d.sync += [
                        dropping.eq(bad),
                        source.eq(Mux(coming == ATOMIC, ATOMIC, MEMORY)),
                        behind.eq(Mux(coming[0], coming, MEMORY)),
                        self.failed.valid.eq(bad & is_request & (self.verdict.payload.status != AccessStatus.POISONED)),
                        self.answered.valid.eq((bad & is_response) | is_token),
                    ]
                with m.Else():
                    m.d.comb += self.count_stall_tx_payload.eq(idle & known & (is_request | is_response))
                    with m.If(paths.ack.here):
                        m.next = "ACK"
            with m.State("ACK"):
                m.d.comb += [
                    is_ack.eq(1),
                    self.header.valid.eq(paths.ack.here),
                    self.ack.ready.eq(self.header.ready & paths.ack.here),
                ]
                with m.If(self.ack.ready):
                    m.d.comb += [
                        self.count_tx_acks.eq(ack.syndrome[5:8] == 0),
                        self.count_tx_naks.eq(ack.syndrome[5:8] != 0),
                    ]
                    m.next = "PACKET"
        # The next one leaves only when nothing of this one is left.
        leaving = Signal()
        m.d.comb += self.request_done.eq(leaving & idle)
        with m.If(leave):
            m.d.sync += leaving.eq(is_request)
        with m.Elif(idle):
            m.d.sync += leaving.eq(0)
        # Out of registers: a number has many bits, and the decision to send comes late.
        gone, length = Signal(), Signal(LENGTH_BITS)
        m.d.sync += [gone.eq(counted), length.eq(packet.transport.length)]
        m.d.comb += [
            self.count_tx_bytes.eq(Mux(gone, length, 0)),
            self.count_tx_packets.eq(self.header.valid & self.header.ready),
        ]
        return m
