"""Which of the received frames are ARP, ICMP, UDP to the service's port, or of neighbour discovery."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..abi.gids import TPID
from ..stream.packet import PacketBeat

__all__ = ["ArpIcmpFilter", "Seen"]

ETHERTYPE, OPERATION, PROTOCOL, PORT = 12, 21, 23, 36
"""Bytes of a frame: the ethertype, the low byte of an ARP packet's operation, the protocol of an IPv4 packet, the
destination port of UDP in one without options."""

ARP, IPV4 = 0x0806, 0x0800
ICMP, UDP = 1, 17

NEXT_HEADER, TYPE = 20, 54
"""Bytes of an IPv6 packet's frame: the next header, the type of ICMPv6."""

IPV6, ICMPV6 = 0x86DD, 58
TYPES = {"solicitation": 135, "advertisement": 136, "echo6": 128}

TAG_BYTES = 4
"""Of an 802.1Q tag, which stands where the ethertype would, and moves all behind it."""

Seen = data.StructLayout(
    dict.fromkeys(("arp", "ipv4", "request", "reply", "icmp", "udp", "port", "ipv6", "icmpv6", *TYPES), 1)
    | {"tagged": 1, "vlan": 12}
)


class ArpIcmpFilter(wiring.Component):
    """Looks at a few fields of each frame, at the speed of the wire.

    Parameters
    ----------
    data_width : int
    udp_port : int or None
        The one of interest.
    ipv6 : bool
        Whether IPv6 is looked at, and what is in a VLAN. A tag of VLAN 0 tells a priority alone (IEEE 802.1Q, 6.9.1).

    Members
    -------
    i, i_valid : ``PacketBeat(data_width)``, 1
    o, o_valid : ``PacketBeat(data_width)``, 1
        The same, 1 cycle later.
    seen : ``Seen``
        What of the frame is so, as far as it has come with ``o``: at the last beat all of it.
    """

    def __init__(self, data_width, udp_port=None, ipv6=False):
        self.data_width = data_width
        self.udp_port = udp_port
        self.ipv6 = ipv6
        beat = PacketBeat(data_width)
        super().__init__({"i": In(beat), "i_valid": In(1), "o": Out(beat), "o_valid": Out(1), "seen": Out(Seen)})

    def elaborate(self, platform):
        m = Module()
        lanes, seen = self.data_width // 8, self.seen
        beats = ((TYPE if self.ipv6 else PORT) + TAG_BYTES) // lanes + 1
        at, next_at = Signal(beats), Signal(beats)
        m.d.comb += at.eq(Mux(self.i.first, 1, next_at))
        m.d.sync += self.o_valid.eq(self.i_valid)

        def bytes_at(number, size):
            return self.i.data.word_select(number % lanes // size, 8 * size)

        def is_(number, value, size):
            return bytes_at(number, size) == int.from_bytes(value.to_bytes(size, "big"), "little")

        fields = [
            ("arp", ETHERTYPE, ARP, 2),
            ("ipv4", ETHERTYPE, IPV4, 2),
            ("request", OPERATION, 1, 1),
            ("reply", OPERATION, 2, 1),
            ("icmp", PROTOCOL, ICMP, 1),
            ("udp", PROTOCOL, UDP, 1),
        ]
        if self.udp_port is not None:
            fields.append(("port", PORT, self.udp_port, 2))
        tagged = Const(0)
        if self.ipv6:
            fields += [("ipv6", ETHERTYPE, IPV6, 2), ("icmpv6", NEXT_HEADER, ICMPV6, 1)]
            fields += [(name, TYPE, value, 1) for name, value in TYPES.items()]
            tagged = Mux(at[ETHERTYPE // lanes], is_(ETHERTYPE, TPID, 2), seen.tagged)
        with m.If(self.i_valid):
            m.d.sync += [self.o.eq(self.i), next_at.eq(at << 1)]
            with m.If(self.i.first):
                m.d.sync += seen.eq(0)
            for moved, here in ((0, ~tagged), (TAG_BYTES, tagged)) if self.ipv6 else ((0, Const(1)),):
                for name, number, value, size in fields:
                    with m.If(at[(number + moved) // lanes] & here):
                        m.d.sync += seen[name].eq(is_(number + moved, value, size))
            if self.ipv6:
                with m.If(at[ETHERTYPE // lanes] & tagged):
                    high, low = bytes_at(ETHERTYPE + 2, 1), bytes_at(ETHERTYPE + 3, 1)
                    m.d.sync += [seen.tagged.eq(1), seen.vlan.eq(Cat(low, high[:4]))]
        return m
