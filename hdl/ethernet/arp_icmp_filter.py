"""Which of the received frames are ARP, ICMP, UDP to the service's port, or of neighbour discovery."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

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

Seen = data.StructLayout(
    dict.fromkeys(("arp", "ipv4", "request", "reply", "icmp", "udp", "port", "ipv6", "icmpv6", *TYPES), 1)
)


class ArpIcmpFilter(wiring.Component):
    """Looks at a few fields of each frame, at the speed of the wire.

    Parameters
    ----------
    data_width : int
    udp_port : int or None
        The one of interest.
    ipv6 : bool
        Whether IPv6 is looked at.

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
        beats = (TYPE if self.ipv6 else PORT) // lanes + 1
        at, next_at = Signal(beats), Signal(beats)
        m.d.comb += at.eq(Mux(self.i.first, 1, next_at))
        m.d.sync += self.o_valid.eq(self.i_valid)

        def is_(number, value, size=1):
            text = self.i.data.word_select(number % lanes // size, 8 * size)
            return text == int.from_bytes(value.to_bytes(size, "big"), "little")

        with m.If(self.i_valid):
            m.d.sync += [self.o.eq(self.i), next_at.eq(at << 1)]
            with m.If(self.i.first):
                m.d.sync += seen.eq(0)
            with m.If(at[ETHERTYPE // lanes]):
                m.d.sync += [seen.arp.eq(is_(ETHERTYPE, ARP, 2)), seen.ipv4.eq(is_(ETHERTYPE, IPV4, 2))]
            with m.If(at[OPERATION // lanes]):
                m.d.sync += [seen.request.eq(is_(OPERATION, 1)), seen.reply.eq(is_(OPERATION, 2))]
            with m.If(at[PROTOCOL // lanes]):
                m.d.sync += [seen.icmp.eq(is_(PROTOCOL, ICMP)), seen.udp.eq(is_(PROTOCOL, UDP))]
            if self.ipv6:
                with m.If(at[ETHERTYPE // lanes]):
                    m.d.sync += seen.ipv6.eq(is_(ETHERTYPE, IPV6, 2))
                with m.If(at[NEXT_HEADER // lanes]):
                    m.d.sync += seen.icmpv6.eq(is_(NEXT_HEADER, ICMPV6))
                with m.If(at[TYPE // lanes]):
                    m.d.sync += [seen[name].eq(is_(TYPE, value)) for name, value in TYPES.items()]
            if self.udp_port is not None:
                with m.If(at[PORT // lanes]):
                    m.d.sync += seen.port.eq(is_(PORT, self.udp_port, 2))
        return m
