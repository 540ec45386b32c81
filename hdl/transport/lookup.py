"""Whom a packet is for."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.contexts import QP_CONTEXT, QpState, QpType
from ..roce.packet_header import ReceiveHeader
from ..stream.table import Table
from ..stream.transfer import AttributeWrite
from .layouts import LookedUp

__all__ = ["Lookup"]

ACKNOWLEDGE = 0x11  # RC ACKNOWLEDGE
RESPONSES = range(0x0D, 0x13)  # what answers a request: READ responses, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE


class Lookup(wiring.Component):
    """Finds the QP of each packet, and sends requests to the responder and responses to the collector.

    A packet is accepted if its QP number is one of this engine's, the QP is RC and in RTR, RTS or SQD (RTS or SQD for
    a response), its P_Key's low 15 bits are the QP's and it comes from the QP's peer: the checks that come first, and
    that fail in silence (kernel ``rxe_recv.c``). An ACK has no payload.

    Opcodes 0x0D to 0x12 go to ``response``, all others to ``request``, also of other transports. Packets that are not
    accepted go there, too, with ``accept`` 0, because their payload has to be taken away even if nobody wants it.

    A packet leaves 4 cycles after it was first seen, and there is one each 4 cycles. One packet is buffered: while a
    consumer works on it, the next is looked up. Packets do not overtake each other, nor do the runs that follow from
    them: both outputs show the same register, which takes the next packet only after the one before was taken, and a
    consumer takes it only when its whole run has gone. While attributes are broadcast no lookup starts.

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
    response : stream of ``LookedUp``
        To the collector. ACKs and NAKs, READ responses, atomic acknowledgements.
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
                "response": Out(stream.Signature(LookedUp)),
                "count_drop_qp": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        header = self.header.payload
        transport = header.transport
        bits = ceil_log2(self.qps)
        m.submodules.table = table = Table(QP_CONTEXT, ("state", "type", "pkey", "dest_ip"), self.qps)
        row = table.row

        found = Signal(LookedUp)
        is_response = Signal()
        accept = Signal()
        known = Signal()
        receives = Signal()
        m.d.comb += [
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(transport.dest_qpn[:bits]),
            # RTR cannot have sent anything that is answered.
            receives.eq(
                (row.state == QpState.RTS) | (row.state == QpState.SQD) | ((row.state == QpState.RTR) & ~is_response)
            ),
            self.request.payload.eq(found),
            self.response.payload.eq(found),
        ]
        with m.If(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        with m.If(self.response.ready):
            m.d.sync += self.response.valid.eq(0)

        with m.FSM():
            with m.State("ADDRESS"):
                # A row read while it is written is undefined.
                with m.If(self.header.valid & ~self.attribute_en):
                    m.next = "READ"
            with m.State("READ"):
                m.d.sync += [
                    is_response.eq((transport.opcode >= RESPONSES.start) & (transport.opcode < RESPONSES.stop)),
                    known.eq(
                        (transport.opcode[5:] == 0)
                        & (transport.dest_qpn[bits:] == 1)
                        & ~((transport.opcode == ACKNOWLEDGE) & (transport.length != 0))
                    ),
                ]
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.sync += accept.eq(
                    known
                    & receives
                    & (row.type == QpType.RC)
                    & (transport.pkey[:15] == row.pkey[:15])
                    & (header.source_ip == row.dest_ip)
                )
                m.next = "SEND"
            with m.State("SEND"), m.If(~self.request.valid & ~self.response.valid):
                m.d.comb += [self.header.ready.eq(1), self.count_drop_qp.eq(~accept)]
                m.d.sync += [
                    found.transport.eq(transport),
                    found.swap.eq(header.swap),
                    found.compare.eq(header.compare),
                    found.qp.eq(transport.dest_qpn[:bits]),
                    found.accept.eq(accept),
                    self.request.valid.eq(~is_response),
                    self.response.valid.eq(is_response),
                ]
                m.next = "ADDRESS"
        return m
