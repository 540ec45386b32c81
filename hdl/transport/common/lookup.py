"""Whom a packet is for."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.contexts import QP_CONTEXT, QpState, QpType
from ...stream.table import Table
from ...stream.transfer import AttributeWrite
from ...wire.packet_header import ReceiveHeader
from .layouts import LookedUp

__all__ = ["Lookup"]

ACKNOWLEDGE = 0x11  # RC ACKNOWLEDGE
RESPONSES = range(0x0D, 0x13)  # what answers a request: READ responses, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE


class Lookup(wiring.Component):
    """Finds the QP of each packet, and sends requests to the responder and responses to the response receiver.

    A packet is accepted if its QP number is one of this engine's, the QP is RC and in RTR, RTS or SQD (RTS or SQD for
    a response), its P_Key matches the QP's and it comes from the QP's peer: the checks that come first, and that
    fail in silence (kernel ``rxe_recv.c``). P_Keys match if their low 15 bits are equal and one of them, or
    both, has bit 15, full membership (IBA 10.9.3). An ACK has no payload.

    Opcodes 0x0D to 0x12 go to ``response``, all others to ``request``, also of other transports. Packets that are not
    accepted go there, too, with ``accept`` 0, because their payload has to be taken away even if nobody wants it.

    A packet leaves 1 cycle after it was first seen if its QP is that of the packet before, or if ``hint`` has told of
    it 2 cycles before; otherwise 3. There is one each 2 or 3 cycles. One packet is buffered: while a consumer works on
    it, the next is looked up. Packets do not overtake each other, nor do the runs that follow from them: both outputs
    show the same register, which takes the next packet only after the one before was taken, and a consumer takes it
    only when its whole run has gone. While attributes are broadcast no lookup starts.

    Parameters
    ----------
    qps : int
        QPs, a power of two; QP numbers are ``qps`` to ``2 * qps - 1``.

    Members
    -------
    attribute, attribute_en
        Broadcast of QP attributes.
    header : stream of ``ReceiveHeader``
    hint : QP index
        Probably that of the next header; a wrong one costs only time.
    request : stream of ``LookedUp``
        To the responder.
    response : stream of ``LookedUp``
        To the response receiver. ACKs and NAKs, READ responses, atomic acknowledgements.
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
                "hint": In(range(qps)),
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

        # The table always reads: whose row has come is known two cycles later.
        asked, shown = Signal(range(self.qps)), Signal(range(self.qps))
        m.d.comb += [
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(Mux(self.header.valid, transport.dest_qpn[:bits], self.hint)),
        ]
        m.d.sync += [asked.eq(table.index), shown.eq(asked)]

        found = Signal(LookedUp)
        is_response, accept, known, receives = Signal(), Signal(), Signal(), Signal()
        free, take = Signal(), Signal()
        m.d.comb += [
            is_response.eq((transport.opcode >= RESPONSES.start) & (transport.opcode < RESPONSES.stop)),
            known.eq(
                (transport.opcode[5:] == 0)
                & (transport.dest_qpn[bits:] == 1)
                & ~((transport.opcode == ACKNOWLEDGE) & (transport.length != 0))
            ),
            # RTR cannot have sent anything that is answered.
            receives.eq(
                (row.state == QpState.RTS) | (row.state == QpState.SQD) | ((row.state == QpState.RTR) & ~is_response)
            ),
            accept.eq(
                known
                & receives
                & (row.type == QpType.RC)
                & (transport.pkey[:15] == row.pkey[:15])
                & (transport.pkey[15] | row.pkey[15])
                & (header.source_ip == row.dest_ip)
            ),
            free.eq(~self.request.valid & ~self.response.valid),
            take.eq(self.header.valid & free & (shown == transport.dest_qpn[:bits]) & ~table.write_conflict[1]),
            self.header.ready.eq(take),
            self.request.payload.eq(found),
            self.response.payload.eq(found),
        ]
        m.d.sync += self.count_drop_qp.eq(take & ~accept)
        with m.If(free):
            m.d.sync += [
                found.transport.eq(transport),
                found.swap.eq(header.swap),
                found.compare.eq(header.compare),
                found.qp.eq(transport.dest_qpn[:bits]),
                found.accept.eq(accept),
                self.request.valid.eq(take & ~is_response),
                self.response.valid.eq(take & is_response),
            ]
        for port in (self.request, self.response):
            with m.If(port.valid & port.ready):
                m.d.sync += port.valid.eq(0)
        return m
