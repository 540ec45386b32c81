"""The receive lookup in front of what works on its requests or responses, as in the engine."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In
from receive_world import FIRST_QPN
from verbena.hdl.stream.transfer import AttributeWrite, QpControl
from verbena.hdl.transport.completer.response_receiver import ResponseReceiver
from verbena.hdl.transport.receive.lookup import ReceiveLookup
from verbena.hdl.transport.responder.responder import Responder
from verbena.hdl.wire.packet_header import TransportHeader

__all__ = ["ReceivedRequests", "ReceivedResponses", "connect_ports"]

SOURCE_IP, PKEY = 0x0A000002, 0xFFFF
"""What :func:`receive_world.attributes` says of the peer."""

Packet = data.StructLayout({"transport": TransportHeader, "qp": 12, "accept": 1, "swap": 64, "compare": 64})


def connect_ports(m, block, outer, names):
    """The ports ``names`` of ``block`` are those of ``outer``."""
    for name in names:
        member, inside, outside = block.signature.members[name], getattr(block, name), getattr(outer, name)
        if not member.is_port:
            if member.flow is wiring.Out:
                wiring.connect(m, inside, wiring.flipped(outside))
            else:
                wiring.connect(m, wiring.flipped(outside), inside)
        elif member.flow is wiring.Out:
            m.d.comb += outside.eq(inside)
        else:
            m.d.comb += inside.eq(outside)


class _Received(wiring.Component):
    """``block`` behind a lookup: packets come as ``packets`` with their QP, and whether the lookup lets them in; tokens
    as ``control``. The other ports are the block's."""

    packets, control_port, written = "request", "request_control", ()
    hidden = ()

    def __init__(self, qps, block):
        self.qps = qps
        self.lookup = ReceiveLookup(qps)
        self.block = block
        inner = {self.packets, "settled", "next_qp", *self.hidden}
        for name in self.written:
            inner |= {name, f"{name}_en"}
        self.outer = [name for name in block.signature.members if name not in inner]
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                self.packets: In(stream.Signature(Packet)),
                "control": In(stream.Signature(QpControl)),
                **{name: block.signature.members[name] for name in self.outer},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.lookup = lookup = self.lookup
        m.submodules.block = block = self.block
        port = getattr(self, self.packets)
        packet, header = port.payload, lookup.header.payload
        m.d.comb += [
            lookup.attribute.eq(self.attribute),
            lookup.attribute_en.eq(self.attribute_en & (self.attribute.index < self.qps)),  # behind them stand SRQs
            lookup.header.valid.eq(port.valid),
            port.ready.eq(lookup.header.ready),
            header.transport.eq(packet.transport),
            header.transport.dest_qpn.eq(packet.qp + FIRST_QPN),
            header.transport.pkey.eq(PKEY),
            header.swap.eq(packet.swap),
            header.compare.eq(packet.compare),
            header.source_ip.eq(packet.accept * SOURCE_IP),
            block.settled.eq(lookup.settled),
        ]
        wiring.connect(m, wiring.flipped(self.control), getattr(lookup, self.control_port))
        wiring.connect(m, getattr(lookup, self.packets), getattr(block, self.packets))
        for name in self.written:
            m.d.comb += [
                getattr(lookup, name).eq(getattr(block, name)),
                getattr(lookup, f"{name}_en").eq(getattr(block, f"{name}_en")),
            ]
        connect_ports(m, block, self, self.outer)
        return m


class ReceivedRequests(_Received):
    """A responder, or what has its ports."""

    written, hidden = ("request_state", "place"), ("flush",)

    def __init__(self, qps, blocks=64, atomics=True, *, swaps=False, srqs=0):
        super().__init__(qps, Responder(qps, blocks, atomics, swaps=swaps, srqs=srqs))

    def elaborate(self, platform):
        m = super().elaborate(platform)
        m.d.comb += self.block.next_qp.eq(self.lookup.next_qp)
        wiring.connect(m, self.block.flush, self.lookup.flush)
        return m


class ReceivedResponses(_Received):
    """A response receiver."""

    packets, control_port, written = "response", "response_control", ("read_progress",)

    def __init__(self, qps, data_width=64):
        super().__init__(qps, ResponseReceiver(qps, data_width))
