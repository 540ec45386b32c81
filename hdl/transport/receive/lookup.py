"""Whom a packet is for, and what is known of that connection."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.contexts import QP_CONTEXT, QpState, QpType
from ...context.bank import ContextBank
from ...context.fetch import ContextFetch
from ...stream.transfer import GID_INDEX_BITS, AttributeWrite, QpControl, Source
from ...wire.opcodes import is_raw
from ...wire.packet_header import Deth, ReceiveHeader, TransportHeader
from .layouts import (
    OPENING,
    REQUEST_ATTRIBUTES,
    RESPONSE_ATTRIBUTES,
    ReadProgress,
    ReceivedRequest,
    ReceivedResponse,
    RecvPlace,
    RequestState,
    Work,
)

__all__ = ["RESPONSES", "ROWS", "ReceiveLookup"]

ACKNOWLEDGE = 0x11  # RC ACKNOWLEDGE
RESPONSES = range(0x0D, 0x13)  # what answers a request: READ responses, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE

ROWS = 2
"""Rows of block RAM for each context: 4 would take half as many block RAMs, and 2 cycles more for each packet."""

GIDS = ("dest_gid_high", "dest_gid_middle", "sgid_index")
"""Attributes that count with a table of GIDs."""


def item_layout(gids):
    """What is fetched, with what comes with a table of GIDs."""
    table = {"source_high": 96, "gid_index": GID_INDEX_BITS, "gid_found": 1}
    return data.StructLayout(
        {
            "work": Work,
            "response": 1,
            "opens": 1,
            "action": QpControl.members["action"],
            "transport": TransportHeader,
            "swap": 64,
            "compare": 64,
            "source": Source,
            "absent": 1,
            **(table if gids else {}),
        }
    )


class ReceiveLookup(wiring.Component):
    """The first stage of all that is received: finds the QP of each packet, and hands it on with the QP's context,
    requests to the responder and responses to the response receiver.

    The low bits of a QP number are the QP's index. A packet is accepted if its QP number is that QP's, the QP is of its
    transport, RC, UC or UD, and in RTR, RTS or SQD (RTS or SQD for a response), its P_Key matches the QP's and it
    comes from the QP's peer, or, of UD, brings the QP's Q_Key: the checks that come first, and that fail in silence
    (kernel ``rxe_recv.c``). P_Keys match if their low 15 bits are equal and one of them, or both, has bit 15, full
    membership (IBA 10.9.3). An ACK has no payload. A raw frame is for a QP of type RAW_PACKET, and from anybody.

    With a table of GIDs it must also have come for the QP's own GID; of UD, for any of the table.

    Opcodes 0x0D to 0x12 go to ``response``, all others to ``request``, also of other transports. Packets that are not
    accepted go there, too, with ``accept`` 0, because their payload has to be taken away even if nobody wants it.

    The responder's flushes and the tokens of the command block come the same way, so all that concerns a context is in
    one order. Tokens go first, but not before a flush that has been chosen; flushes and packets take turns.

    A packet is at an output 4 cycles after it was first seen, and there is one each 4 cycles, see
    :class:`verbena.hdl.context.fetch.ContextFetch`. ``accept`` follows in the next cycle. Packets do not overtake each
    other, nor do the runs that follow from them: both outputs show the same register, and a consumer takes its packet
    only when its whole run has gone.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    requests : bool
        There are responses to be received.
    uc, ud, raw : bool
        There are QPs of type UC, of type UD, of type RAW_PACKET.
    swaps : bool
        With ``closed`` and ``closed_qp``.
    gids : bool
        There is a table of GIDs.

    Members
    -------
    attribute, attribute_en
        Broadcast of QP attributes.
    header : stream of ``ReceiveHeader``
    flush : stream of QP index
        A receive WQE of it may have to be flushed.
    request_control, response_control : streams of ``QpControl``
        Tokens for the responder and, RESET alone, for the response receiver.
    request : stream of ``ReceivedRequest``; response : stream of ``ReceivedResponse``
    settled, next_qp : 1, QP index
        An output may be taken; the QP that the outputs show in the next cycle if they show something new.
    request_state, request_state_en, place, place_en, read_progress, read_progress_en
        What a consumer writes back, in the cycle in which it takes its packet.
    slot, absent : QP index, 1
        With ``swaps``: which slot the packet's QP has, instead of the low bits of its number; or there is no such QP.
    closed, closed_qp : 1, 12
        With ``swaps``: no packet and no flush of this QP is taken, from the next cycle on; what is behind it waits.
    count_drop_qp : 1
        Strobe: a packet is not accepted.
    """

    def __init__(self, qps, *, requests=True, uc=True, ud=True, raw=False, swaps=False, gids=False):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        self.requests = requests
        self.uc = uc
        self.ud = ud
        self.raw = raw
        self.swaps = swaps
        self.gids = gids
        names, states = REQUEST_ATTRIBUTES, {"request_state": RequestState, "place": RecvPlace}
        if requests:
            names = tuple(dict.fromkeys(names + RESPONSE_ATTRIBUTES))
            states |= {"read_progress": ReadProgress}
        names += GIDS if gids else ()
        self._fetch = ContextFetch(item_layout(gids), ContextBank(QP_CONTEXT, names, states, qps, ROWS))
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "header": In(stream.Signature(ReceiveHeader)),
                "flush": In(stream.Signature(range(qps))),
                "request_control": In(stream.Signature(QpControl)),
                "response_control": In(stream.Signature(QpControl)),
                "request": Out(stream.Signature(ReceivedRequest)),
                "response": Out(stream.Signature(ReceivedResponse)),
                "settled": Out(1),
                "next_qp": Out(range(qps)),
                "request_state": In(RequestState),
                "request_state_en": In(1),
                "place": In(RecvPlace),
                "place_en": In(1),
                "read_progress": In(ReadProgress),
                "read_progress_en": In(1),
                "count_drop_qp": Out(1),
            }
            | ({"slot": In(range(qps)), "absent": In(1), "closed": In(1), "closed_qp": In(12)} if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fetch = fetch = self._fetch
        bits = ceil_log2(self.qps)
        header = self.header.payload

        # -- What is fetched next: a packet, if none of the others was chosen in a cycle before. Until it can be taken
        # another may still be chosen.
        tokens = (self.request_control, self.response_control)
        others = (*tokens, self.flush)
        chosen, waiting = Signal(len(others)), Signal(len(others))
        other, token = Signal(), Signal(QpControl)  # what has been chosen; of a flush the QP counts
        taken, packets_turn = Signal(), Signal()
        item, slot = fetch.i.payload.item, fetch.i.payload.slot
        packet_open, flush_open, packet_slot = Const(1), Const(1), header.transport.dest_qpn[:bits]
        if self.swaps:
            packet_slot = self.slot
            closed, closed_qp = Signal(), Signal(bits)  # they come from far
            m.d.sync += [closed.eq(self.closed), closed_qp.eq(self.closed_qp)]
            packet_open = ~(closed & (self.slot == closed_qp)) | self.absent
            flush_open = ~(closed & (self.flush.payload == closed_qp))
            m.d.comb += item.absent.eq(self.absent)
        packet, flush = self.header.valid & packet_open, self.flush.valid & flush_open
        m.d.comb += [
            other.eq(chosen.any()),
            taken.eq(fetch.i.valid & fetch.i.ready),
            waiting.eq(
                Cat(
                    *(port.valid & ~mine for port, mine in zip(tokens, chosen)),
                    flush & ~other & ~(packet & packets_turn),
                )
            ),
        ]
        with m.If(taken & (~other | chosen[2])):
            m.d.sync += packets_turn.eq(other)
        with m.If(taken | ~other):
            m.d.sync += chosen.eq(waiting & -waiting)
            with m.If(waiting[0]):
                m.d.sync += token.eq(self.request_control.payload)
            with m.Elif(waiting[1]):
                m.d.sync += token.eq(self.response_control.payload)
            with m.Else():
                m.d.sync += token.qp.eq(self.flush.payload)
        m.d.comb += [
            fetch.i.valid.eq(other | packet),
            self.header.ready.eq(fetch.i.ready & ~other & packet_open),
            *(port.ready.eq(fetch.i.ready & mine) for port, mine in zip(others, chosen)),
            item.transport.eq(header.transport),
            item.swap.eq(header.swap),
            item.compare.eq(header.compare),
            item.source.ip.eq(header.source_ip),
            item.source.traffic_class.eq(header.traffic_class),
            item.source.hop_limit.eq(header.hop_limit),
            item.action.eq(token.action),
            *(item[name].eq(header[name]) for name in ("source_high", "gid_index", "gid_found") if self.gids),
            slot.eq(Mux(other, token.qp[:bits], packet_slot)),
        ]
        with m.If(other):
            m.d.comb += [
                item.work.eq(Mux(chosen[2], Work.FLUSH, Work.CONTROL)),
                item.response.eq(chosen[1]),
                item.transport.psn.eq(token.psn),
            ]
        with m.Else():
            opcode = header.transport.opcode
            m.d.comb += item.response.eq((opcode >= RESPONSES.start) & (opcode < RESPONSES.stop))
            with m.Switch(opcode[:5]):
                with m.Case(*OPENING):
                    m.d.comb += item.opens.eq(1)

        # -- What has been fetched.
        names = [name for name, _ in fetch.o.payload.attributes.shape()]
        found, attributes, states = fetch.o.payload.item, fetch.o.payload.attributes, fetch.o.payload.states
        transport = found.transport
        known, receives, accept = Signal(), Signal(), Signal()
        unreliable, datagram = transport.opcode[5], transport.opcode[6]  # RC's transport bits are 0, UC's 1, UD's 3
        of_type = Mux(
            datagram,
            (attributes.type == QpType.UD) & self.ud & unreliable,
            Mux(unreliable, (attributes.type == QpType.UC) & self.uc, attributes.type == QpType.RC),
        )
        from_peer = found.source.ip == attributes.dest_ip
        with_key = data.View(Deth, transport.address).qkey == attributes.qkey
        if self.gids:
            high = Cat(attributes.dest_gid_middle, attributes.dest_gid_high)
            from_peer &= (found.source_high == high) & (found.gid_index == attributes.sgid_index) & found.gid_found
            with_key &= found.gid_found
        if self.ud:
            from_peer = Mux(datagram, with_key, from_peer)
        of_wire = transport.opcode[7:] == 0
        if self.raw:
            raw = is_raw(transport.opcode)
            of_type = Mux(raw, attributes.type == QpType.RAW_PACKET, of_type)
            from_peer |= raw
            of_wire |= raw
        m.d.comb += [
            fetch.attribute.eq(self.attribute),
            fetch.attribute_en.eq(self.attribute_en),
            known.eq(
                of_wire
                & (transport.dest_qpn == attributes.qpn)
                & ~((transport.opcode == ACKNOWLEDGE) & (transport.length != 0))
                & ~found.absent
            ),
            # RTR cannot have sent anything that is answered.
            receives.eq(
                (attributes.state == QpState.RTS)
                | (attributes.state == QpState.SQD)
                | (((attributes.state == QpState.RTR) | (attributes.state == QpState.SQE)) & ~found.response)
            ),
            self.settled.eq(fetch.settled),
            self.next_qp.eq(fetch.coming.slot),
            fetch.o.ready.eq(Mux(found.response, self.response.ready, self.request.ready)),
        ]
        over = Signal()  # a packet was taken in the last cycle
        m.d.sync += [
            accept.eq(
                known
                & receives
                & of_type
                & (transport.pkey[:15] == attributes.pkey[:15])
                & (transport.pkey[15] | attributes.pkey[15])
                & from_peer
            ),
            over.eq(fetch.o.valid & fetch.o.ready & (found.work == Work.PACKET)),
        ]
        m.d.comb += self.count_drop_qp.eq(over & ~accept)
        for port, mine in ((self.request, ~found.response), (self.response, found.response)):
            here = port.payload
            m.d.comb += [
                port.valid.eq(fetch.o.valid & mine),
                here.work.eq(found.work),
                here.action.eq(found.action),
                here.qp.eq(fetch.o.payload.slot),
                here.accept.eq(accept),
                here.transport.eq(transport),
                *(here.attributes[key].eq(attributes[key]) for key, _ in here.attributes.shape() if key in names),
            ]
        for name in fetch.write.signature.members:
            write = getattr(fetch.write, name)
            m.d.comb += [write.data.eq(getattr(self, name)), write.en.eq(getattr(self, f"{name}_en"))]
        m.d.comb += [self.request.payload.state.eq(states.request_state), self.request.payload.place.eq(states.place)]
        m.d.comb += self.request.payload.opens.eq(found.opens)
        if self.ud:
            m.d.comb += [
                self.request.payload.datagram.eq(datagram & (found.work == Work.PACKET)),
                self.request.payload.source.eq(found.source),
            ]
        if self.uc or self.ud or self.raw:
            m.d.comb += self.request.payload.unreliable.eq(unreliable & (found.work == Work.PACKET))
        if self.requests:
            m.d.comb += self.response.payload.progress.eq(states.read_progress)
        m.d.comb += [
            self.request.payload.swap.eq(found.swap),
            self.request.payload.compare.eq(found.compare),
        ]
        return m
