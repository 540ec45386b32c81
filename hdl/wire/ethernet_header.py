"""The Ethernet header, 14 bytes: put in front of packets, and taken off frames. A shift by the same bytes always."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.packet import PacketBeat
from .headers import HEADERS
from .layout import header_bits, wire_field

__all__ = ["EthernetInsert", "EthernetStrip", "addressed_layout", "local_layout"]

ETHERNET = HEADERS["ethernet"]


def addressed_layout(data_width):
    """A beat of a packet, and the MAC address it goes to and its ethertype (looked at with ``first``)."""
    return data.StructLayout({"beat": PacketBeat(data_width), "destination": 48, "ethertype": 16})


def local_layout(data_width, ethertypes=1):
    """A beat of a packet, and whether its frame was for this station and of an ethertype wanted (with ``first``); if
    there are several, which one, a bit each, and whether it was for a ``group``.
    """
    which = {"networks": ethertypes, "group": 1} if ethertypes > 1 else {}
    return data.StructLayout({"beat": PacketBeat(data_width), "local": 1, **which})


class EthernetInsert(wiring.Component):
    """Puts an Ethernet header in front of each packet.

    Never stands still: a beat comes out in the cycle in which it goes in, and the rest of a frame in the cycle behind
    its last one. So between two packets there must be a cycle without a beat, and two at 64 bits, of which
    ``starts_next`` is the second. ``error`` passes. Combinational from ``i`` to ``o``.

    Parameters
    ----------
    data_width : int

    Members
    -------
    mac : 48
        Source address.
    i, i_valid : ``addressed_layout(data_width)``
        A last beat that is empty is not allowed. ``destination`` and ``ethertype`` are looked at with ``first``; at 64
        bits with ``starts_next``.
    starts_next : 1
        Only at 64 bits: the first beat comes in the next cycle in which one comes, and the beat of header alone goes
        out now.
    o, o_valid : ``PacketBeat(data_width)``
        Frames without FCS, not padded to the least size of a frame.
    """

    def __init__(self, data_width):
        self.data_width = data_width
        super().__init__(
            {
                "mac": In(48),
                "i": In(addressed_layout(data_width)),
                "i_valid": In(1),
                "starts_next": In(1),
                "o": Out(PacketBeat(data_width)),
                "o_valid": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.data_width // 8
        whole, shift = divmod(ETHERNET.size, lanes)  # beats of header alone, and bytes it has in the next beat
        assert whole <= 1
        beat, o = self.i.beat, self.o
        header = header_bits(ETHERNET, destination=self.i.destination, source=self.mac, ethertype=self.i.ethertype)
        kept = Signal(shift * 8, reset_less=True)  # bytes that the frame's next beat begins with
        flush = Signal()  # the packet is over, and `kept` is its rest
        flush_count = Signal(range(lanes + 1), reset_less=True)
        flush_error = Signal(reset_less=True)
        alone = self.starts_next if whole else Const(0)  # a beat of header alone
        fits = beat.count <= lanes - shift
        rest = Cat(kept, beat.data)[: self.data_width]
        m.d.comb += [
            self.o_valid.eq(flush | alone | self.i_valid),
            o.first.eq(alone if whole else beat.first & self.i_valid),
            o.last.eq(flush | (beat.last & fits & ~alone)),
            o.error.eq(Mux(flush, flush_error, beat.error)),
            o.count.eq(Mux(flush, flush_count, Mux(beat.last & ~alone & fits, beat.count + shift, lanes))),
        ]
        if whole:
            m.d.comb += o.data.eq(Mux(alone, header[: self.data_width], rest))
        else:
            m.d.comb += o.data.eq(Mux(o.first, Cat(header, beat.data)[: self.data_width], rest))
        m.d.sync += flush.eq(self.i_valid & beat.last & ~fits)
        with m.If(alone):
            m.d.sync += kept.eq(header[whole * lanes * 8 :])
        with m.Elif(self.i_valid):
            m.d.sync += [
                kept.eq(beat.data[self.data_width - shift * 8 :]),
                flush_count.eq(beat.count - (lanes - shift)),
                flush_error.eq(beat.error),
            ]
        return m


def _is_group(mac):
    """Whether a MAC address is that of a group of IPv4 or IPv6."""
    return (mac[23:] == 0x01005E << 1) | (mac[32:] == 0x3333)


class EthernetStrip(wiring.Component):
    """Takes the Ethernet header off each frame, and looks whom the frame is for.

    One beat a cycle. Of a frame of *n* beats come out at most *n* (of one too short for a header, an empty one). The
    last beat comes in the cycle of the frame's last, or 1 later if the frame ends far enough in its last beat. Never
    stalls: ``o`` has no ``ready``, and must be taken. It comes from the input without a register.

    Parameters
    ----------
    data_width : int
    ethertypes : int
        One or more.
    groups : bool
        What is for a multicast group of IPv4 (RFC 1112, 6.4) or IPv6 (RFC 2464, 7) is for this station, too; only with
        several ``ethertypes``.

    Members
    -------
    mac : 48
        Own address.
    i : stream of ``PacketBeat(data_width)``
        Frames without FCS. Always ready.
    o, o_valid : ``local_layout(data_width, len(ethertypes))``
        Packets; a last beat may be empty. ``error`` passes.
    """

    def __init__(self, data_width, *ethertypes, groups=False):
        for ethertype in ethertypes:
            if not 0x600 <= ethertype < 0x10000:
                raise ValueError(f"ethertype must be 0x600 to 0xffff, not {ethertype!r}")
        self.data_width = data_width
        if groups and len(ethertypes) < 2:
            raise ValueError(f"groups need several ethertypes, not {ethertypes!r}")
        self.ethertypes = ethertypes
        self.groups = groups
        super().__init__(
            {
                "mac": In(48),
                "i": In(stream.Signature(PacketBeat(data_width))),
                "o": Out(local_layout(data_width, len(ethertypes))),
                "o_valid": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.data_width // 8
        whole, shift = divmod(ETHERNET.size, lanes)
        assert whole <= 1
        now = self.i.payload
        held = Signal(PacketBeat(self.data_width))
        held_valid = Signal()
        held_done = Signal()  # it is the frame's last, and all its bytes went with the beat before
        emit = Signal()
        fresh = Signal(init=1)  # the next beat out is the packet's first
        o = self.o.beat

        # A beat is held until the next one arrives, which completes it.
        go = held_valid & (self.i.valid | held.last)
        only_header = held.first & bool(whole)
        joined = self.i.valid & ~held.last & now.last & (now.count <= shift) & ~only_header
        m.d.comb += [self.i.ready.eq(1), emit.eq(go & ~held_done & ~(only_header & ~held.last))]
        with m.If(self.i.valid):
            m.d.sync += [held.eq(now), held_valid.eq(1), held_done.eq(held_valid & joined)]
        with m.Elif(go):
            m.d.sync += held_valid.eq(0)

        rest = Signal(range(lanes + 1))
        with m.If(~only_header & (held.count > shift)):
            m.d.comb += rest.eq(held.count - shift)
        m.d.comb += [
            self.o_valid.eq(emit),
            o.data.eq(Cat(held.data[shift * 8 :], now.data[: shift * 8])),
            o.last.eq(held.last | joined),
            o.error.eq(Mux(held.last, held.error, now.error)),
            o.count.eq(lanes),
        ]
        with m.If(held.last):
            m.d.comb += o.count.eq(rest)
        with m.Elif(joined):
            m.d.comb += o.count.eq(now.count + (lanes - shift))

        with m.If(emit):
            m.d.sync += fresh.eq(held.last | joined)

        def passes(name, test):
            field = ETHERNET[name]
            if field.start + field.width > whole * self.data_width:
                return test(wire_field(held.data, field, -whole * lanes))
            # It stands in the beat of header alone, and has to be remembered.
            register = Signal(name=f"{name}_matches")
            with m.If(go & held.first):
                m.d.sync += register.eq(test(wire_field(held.data, field)))
            return register

        complete = ~only_header & ~(held.last & (held.count < shift))
        wanted = [passes("ethertype", lambda value, it=ethertype: value == it) for ethertype in self.ethertypes]
        own = passes("destination", lambda value: value == self.mac)
        group = passes("destination", _is_group) if self.groups else Const(0, 1)
        m.d.comb += [
            o.first.eq(fresh),
            self.o.local.eq((own | group) & Cat(wanted).any() & complete),
        ]
        if len(wanted) > 1:
            m.d.comb += [self.o.networks.eq(Cat(wanted)), self.o.group.eq(group)]
        return m
