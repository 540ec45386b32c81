"""The side of the wire, between packets and frames: instances and connections, no logic."""

from amaranth.hdl import Cat, DomainRenamer, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .ethernet.arp_icmp import ArpIcmp, Service
from .stream.arbiter import PacketArbiter
from .stream.connections import connect_signals, connect_via, link
from .stream.frame_gate import ReceiveGate, TransmitGate
from .stream.packet import PacketBeat
from .stream.slice import Slice
from .transport.receive.lookup import RESPONSES
from .wire.depacketizer import Depacketizer
from .wire.encapsulator import Encapsulator, encapsulated_header
from .wire.gid_match import GidMatch
from .wire.grh_insert import GrhInsert
from .wire.headers import NETWORKS
from .wire.multicast import MulticastReplicator
from .wire.opcodes import ATOMICS, DATAGRAMS, INVALIDATES, REFUSED, SUPPORTED, UNRELIABLE
from .wire.packet_header import ReceiveHeader, TransmitHeader
from .wire.packetizer import Packetizer
from .wire.raw_receive import RawReceive
from .wire.raw_transmit import RawTransmit
from .wire.receive_merge import ReceiveMerge
from .wire.vlan import VlanInsert

__all__ = ["WireSide"]

RECEIVED = 256
"""Packets received and not yet looked at: with the smallest, 11 cycles each, the time of 20 reads of host memory."""


class WireSide(wiring.Component):
    """Packets become frames, and frames packets: header and payload, each a stream. ARP, neighbour solicitations and
    pings are answered here. Which blocks there are ``config`` says; what each takes stands with each.

    Parameters
    ----------
    config : Config
    border_domain : str
        Clock domain of what goes on through a DEVICE_RESET: the gates, the arbiter behind them, and ARP and ICMP.

    Members
    -------
    tx, rx : streams of ``PacketBeat``
        Frames. ``rx.ready`` is always 1.
    i, payload : streams
        Headers that the :class:`.transport.tx.transmitter.Transmitter` makes, and their payload.
    o, o_payload : streams
        Headers of what was received, and their payload. With ``config.ipv6`` a header says which own GID it is for.
    enable, stop, cut, closed : 1
        ARP and ICMP answer; of both gates, see :mod:`.stream.frame_gate`; of that of transmission.
    mac, ip : 48, 32
        The port's own addresses.
    neighbour_ask, neighbour_ip, neighbour_gid, neighbour_row, neighbour_mac, neighbour_valid
        See :class:`.ethernet.arp_icmp.ArpIcmp`.
    gid, gid_en, member_en : ``GidWrite``, 1, 1
        With ``config.ipv6``, a word of the table of GIDs; with ``config.multicast``, of the table of members.
    multicast_busy : 1
        With ``config.multicast``: copies are still to be made.
    raw_filter
        With ``config.raw_packets``, see :class:`.wire.raw_receive.RawReceive`.
    service : ``Service``
        With ``config.udp_port``.
    count_… : 1 and more
        Counters, see :data:`verbena.hdl.abi.counters.COUNTERS`.

    Attributes
    ----------
    blocks : dict of str to Component
    """

    def __init__(self, config, *, border_domain="sync"):
        self.config = c = config
        self.border_domain = border_domain
        width = c.data_width
        networks = NETWORKS[: 1 + c.ipv6 + c.roce_v1]
        unserved = (frozenset() if c.atomics else ATOMICS) | (frozenset() if c.key_operations else INVALIDATES)
        unserved |= frozenset() if c.requests else frozenset(RESPONSES)  # nobody looks at their headers
        opcodes = SUPPORTED - (frozenset() if c.uc else UNRELIABLE) - (frozenset() if c.ud else DATAGRAMS)
        sent = opcodes - (frozenset() if c.key_operations else INVALIDATES)
        self._border = {
            "tx_arbiter": PacketArbiter(width, 2),
            "transmit_gate": TransmitGate(width),
            "receive_gate": ReceiveGate(width),
            "arp_icmp": ArpIcmp(width, udp_port=c.udp_port, ipv6=c.ipv6),
        }
        self._packets = {
            "encapsulator": Encapsulator(sent, networks),
            "packetizer": Packetizer(width, sent, networks),
            "depacketizer": Depacketizer(
                width,
                depth=c.receive_buffer,
                headers=RECEIVED,
                opcodes=opcodes - unserved,
                refused=REFUSED | unserved,
                networks=networks,
                groups=c.multicast,
            ),
        }
        if c.ipv6:
            self._packets |= {
                "gid_match": GidMatch(),
                "grh_insert": GrhInsert(width, 2 * c.placing),
                "vlan_insert": VlanInsert(width),
            }
        if c.multicast:
            self._packets["multicast"] = MulticastReplicator(width, 2 * c.placing)
        if c.raw_packets:
            self._packets |= {
                "raw_transmit": RawTransmit(width, encapsulated_header(sent, networks)),
                "raw_receive": RawReceive(width),
                "receive_merge": ReceiveMerge(width, 2 * c.placing, grh=c.ipv6),
                "frame_arbiter": PacketArbiter(width, 2),
            }
        self.blocks = self._border | self._packets
        super().__init__(self._members())

    def _members(self):
        c, beat = self.config, stream.Signature(PacketBeat(self.config.data_width))

        def of(name, *members):
            signature = self.blocks[name].signature
            return {member: signature.members[member] for member in members}

        members = {
            "tx": Out(beat),
            "rx": In(beat),
            "i": In(stream.Signature(TransmitHeader)),
            "payload": In(beat),
            "o": Out(stream.Signature(ReceiveHeader)),
            "o_payload": Out(beat),
        }
        members |= of("arp_icmp", "enable", "mac", "ip", "neighbour_ask", "neighbour_mac", "neighbour_valid")
        members |= of("transmit_gate", "stop", "cut", "closed")
        members |= of("arp_icmp", *(("neighbour_gid", "neighbour_row") if c.ipv6 else ("neighbour_ip",)))
        members |= of("gid_match", "gid", "gid_en") if c.ipv6 else {}
        members |= (of("multicast", "member_en") | {"multicast_busy": Out(1)}) if c.multicast else {}
        members |= {"raw_filter": self.blocks["raw_receive"].signature.members["filter"]} if c.raw_packets else {}
        members |= {} if c.udp_port is None else {"service": Out(Service())}
        for name, block in self.blocks.items():
            members |= of(name, *self._counts(block))
        return members

    @staticmethod
    def _counts(block):
        return [name for name in block.signature.members if name.startswith("count_")]

    def elaborate(self, platform):
        m = Module()
        for name, block in self.blocks.items():
            border = name in self._border
            m.submodules[name] = DomainRenamer(self.border_domain)(block) if border else block
            setattr(self, f"_{name}", block)
            connect_signals(m, block, self, *self._counts(block))
        self._send(m)
        self._receive(m)
        for block in (self._packetizer, self._depacketizer, self._arp_icmp):
            connect_signals(m, self, block, "mac", "ip")
        for gate in (self._transmit_gate, self._receive_gate):
            connect_signals(m, self, gate, "stop", "cut")
        connect_signals(m, self._transmit_gate, self, "closed")
        self._answer(m)
        return m

    def _send(self, m):
        """Header and payload, packet, frame."""
        c = self.config
        headers, payload, frames = self._encapsulator.o, flipped(self.payload), self._packetizer.o
        link(m, flipped(self.i), self._encapsulator.i)
        if c.raw_packets:
            link(m, headers, self._raw_transmit.header)
            link(m, payload, self._raw_transmit.payload)
            link(m, self._raw_transmit.o_header, self._packetizer.header)
            payload = self._raw_transmit.o
        else:
            connect_via(m, "header_slice", Slice(headers.payload.shape()), headers, self._packetizer.header)
        link(m, payload, self._packetizer.payload)
        if c.ipv6:
            link(m, frames, self._vlan_insert.i)
            connect_signals(m, self._packetizer, self._vlan_insert, "tag")
            frames = self._vlan_insert.o
        if c.raw_packets:
            link(m, frames, self._frame_arbiter.i[0])
            link(m, self._raw_transmit.frame, self._frame_arbiter.i[1])
            frames = self._frame_arbiter.o
        link(m, frames, self._transmit_gate.i)
        link(m, self._transmit_gate.o, self._tx_arbiter.i[0])
        link(m, self._arp_icmp.o, self._tx_arbiter.i[1])
        link(m, self._tx_arbiter.o, flipped(self.tx))

    def _receive(self, m):
        """Frame, packet, header and payload."""
        c, depacketizer = self.config, self._depacketizer
        link(m, flipped(self.rx), self._receive_gate.i)
        link(m, self._receive_gate.o, depacketizer.i)
        # The ARP/ICMP block only listens: it cannot hold up a frame.
        m.d.comb += [self._arp_icmp.i.eq(self.rx.payload), self._arp_icmp.i_valid.eq(self.rx.valid)]
        headers, payload = depacketizer.header, depacketizer.payload
        if c.ipv6:
            headers, payload = self._with_gids(m, payload)
        if c.raw_packets:
            headers, payload = self._with_raw(m, headers, payload)
        link(m, headers, flipped(self.o))
        link(m, payload, flipped(self.o_payload))

    def _with_gids(self, m, payload):
        """Headers whose GIDs are known, and payload with the network headers of datagrams."""
        match, insert = self._gid_match, self._grh_insert
        link(m, self._depacketizer.header, match.i)
        headers = match.o
        if self.config.multicast:
            multicast = self._multicast
            link(m, headers, multicast.header)
            link(m, payload, multicast.payload)
            m.d.comb += [multicast.member.eq(self.gid), self.multicast_busy.eq(multicast.busy)]
            connect_signals(m, self, multicast, "member_en")
            headers, payload = multicast.o_header, multicast.o
        link(m, headers, insert.header)
        link(m, payload, insert.payload)
        for block in (match, self._encapsulator, self._arp_icmp):
            connect_signals(m, self, block, "gid", "gid_en")
        return insert.o_header, insert.o

    def _with_raw(self, m, headers, payload):
        """Packets, and frames that are none: the depacketizer counts each frame once."""
        raw, merge, depacketizer = self._raw_receive, self._receive_merge, self._depacketizer
        frames = self._receive_gate.o
        judged = [depacketizer.count_drop_not_roce, depacketizer.count_drop_malformed, depacketizer.count_drop_icrc]
        judged += [depacketizer.count_drop_overflow, depacketizer.count_rx_packets]
        m.d.comb += [
            raw.i.eq(frames.payload),
            raw.i_valid.eq(frames.valid),
            raw.judged.eq(Cat(judged).any()),
            raw.foreign.eq(depacketizer.count_drop_not_roce),
            raw.mac.eq(self.mac),
            raw.filter.eq(self.raw_filter),
        ]
        link(m, headers, merge.header[0])
        link(m, payload, merge.payload[0])
        link(m, raw.header, merge.header[1])
        link(m, raw.payload, merge.payload[1])
        return merge.o_header, merge.o

    def _answer(self, m):
        """ARP, neighbours, ICMP, and the service behind UDP."""
        arp = self._arp_icmp
        asks = ("neighbour_gid", "neighbour_row") if self.config.ipv6 else ("neighbour_ip",)
        connect_signals(m, self, arp, "enable", "neighbour_ask", *asks)
        connect_signals(m, arp, self, "neighbour_mac", "neighbour_valid")
        if self.config.udp_port is not None:
            connect(m, arp.service, flipped(self.service))
