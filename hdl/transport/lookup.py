"""Whom a packet is for."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.contexts import QP_CONTEXT, QpState, QpType
from ..roce.packet_header import ReceiveHeader
from ..stream.table import Table
from ..stream.transfer import AttributeWrite
from .layouts import Ack, LookedUp

__all__ = ["Lookup"]

ACKNOWLEDGE = 0x11  # RC ACKNOWLEDGE
RESPONSES = range(0x0D, 0x13)  # what answers a request; of these only the ACK has a reader


class Lookup(wiring.Component):
    """Finds the QP of each packet, and sends requests to the responder and ACKs to the completer.

    A packet is accepted if its QP number is one of this engine's, the QP is RC and in RTR, RTS or SQD (RTS or SQD for
    an ACK), its P_Key's low 15 bits are the QP's and it comes from the QP's peer: the checks that come first, and that
    fail in silence (kernel ``rxe_recv.c``).

    Every packet but an ACK goes to ``request``, because its payload has to be taken away even if nobody wants it;
    ``accept`` is 0 then. So is it for opcodes of other transports, for responses that nobody asked for, and for an ACK
    with payload. An ACK that is not accepted vanishes.

    A packet leaves 3 cycles after it was first seen, and there is one each 4 cycles. Nothing is buffered: the header
    stays at the input until its copy at the output is taken. While attributes are broadcast no packet starts.

    Parameters
    ----------
    qps : int
        QPs, a power of two; QP numbers are ``qps`` to ``2 * qps - 1``.

    Members
    -------
    attribute, attribute_en
        Broadcast of QP attributes.
    header : stream of ``ReceiveHeader``
    request : stream of ``LookedUp``
        To the responder.
    ack : stream of ``Ack``
        To the completer; ACKs and NAKs.
    count_drop_qp : 1
        Strobe: a packet is not accepted.
    """

    def __init__(self, qps):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "header": In(stream.Signature(ReceiveHeader)),
                "request": Out(stream.Signature(LookedUp)),
                "ack": Out(stream.Signature(Ack)),
                "count_drop_qp": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self.qps)
        transport = self.header.payload.transport
        m.submodules.table = table = Table(
            QP_CONTEXT, Table.words_of(QP_CONTEXT, "state", "type", "pkey", "dest_ip"), self.qps
        )
        row = table.row
        qp = transport.dest_qpn[:bits]

        is_ack = Signal()
        served = Signal()
        accept = Signal()
        receives = Signal()
        m.d.comb += [
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(qp),
            is_ack.eq((transport.opcode == ACKNOWLEDGE) & (transport.length == 0)),
            served.eq(is_ack | ((transport.opcode < RESPONSES.start) | (transport.opcode >= RESPONSES.stop))),
            # RTR cannot have sent anything that is acknowledged.
            receives.eq(
                (row.state == QpState.RTS) | (row.state == QpState.SQD) | ((row.state == QpState.RTR) & ~is_ack)
            ),
            self.request.payload.transport.eq(transport),
            self.request.payload.qp.eq(qp),
            self.request.payload.accept.eq(accept),
            self.ack.payload.qp.eq(qp),
            self.ack.payload.psn.eq(transport.psn),
            self.ack.payload.msn.eq(transport.msn),
            self.ack.payload.syndrome.eq(transport.syndrome),
        ]
        with m.FSM():
            with m.State("ADDRESS"):
                # A row read while it is written is undefined.
                with m.If(self.header.valid & ~self.attribute_en):
                    m.next = "READ"
            with m.State("READ"):
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.sync += accept.eq(
                    (transport.opcode[5:] == 0)
                    & served
                    & (transport.dest_qpn[bits:] == 1)
                    & receives
                    & (row.type == QpType.RC)
                    & (transport.pkey[:15] == row.pkey[:15])
                    & (self.header.payload.source_ip == row.dest_ip)
                )
                m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += [
                    self.request.valid.eq(~is_ack),
                    self.ack.valid.eq(is_ack & accept),
                    self.header.ready.eq((self.request.ready & ~is_ack) | (is_ack & (self.ack.ready | ~accept))),
                    self.count_drop_qp.eq(self.header.ready & ~accept),
                ]
                with m.If(self.header.ready):
                    m.next = "ADDRESS"
        return m
