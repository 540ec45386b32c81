"""What a received packet says, and whether it may."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..stream.transfer import LENGTH_BITS
from .ethernet_header import local_layout
from .headers import HEADERS, MAX_PAYLOAD, UDP_PORT
from .icrc import icrc_mask
from .layout import wire_field
from .vlan import VlanTag

__all__ = ["PacketParser", "check_layout", "parsed_layout"]

WORDS_BITS = LENGTH_BITS - 2
MAX_BYTES = 4 << WORDS_BITS
"""Packets from this size on are not told apart; the largest that can be good has 4180 bytes (RoCEv2 over IPv6)."""


def parsed_layout(data_width, places):
    """A beat of a packet and what is known with it.

    ``at``: one-hot position of the beat, none behind the headers. ``left``: 32-bit words of the packet from this beat
    on, ICRC included; 0 in what only fills up the frame. ``ends``: the ICRC is in this beat.
    ``kinds`` (one-hot, in the order of ``places.sequences``), ``pad`` and ``length`` (of the payload): valid from the
    beat on in which the BTH begins. ``not_roce``, ``malformed``: what speaks against the packet in this beat.
    With several maps, ``networks``: which one it is of, a bit each; ``tag``, of its frame; and ``group``: it was for a
    group.
    """
    lanes = data_width // 32
    several = {"networks": len(places.maps), "tag": VlanTag, "group": 1} if len(places.maps) > 1 else {}
    return data.StructLayout(
        {
            "data": data_width,
            "first": 1,
            "last": 1,
            "error": 1,
            "at": places.words // lanes + 1,
            "left": WORDS_BITS,
            "ends": 1,
            "kinds": len(places.sequences),
            "pad": 2,
            "length": LENGTH_BITS,
            "not_roce": 1,
            "malformed": 1,
            **several,
        }
    )


def check_layout(data_width):
    """A beat for :class:`.icrc.Icrc`: its members of the same names."""
    return data.StructLayout({"data": data_width, "words": range(data_width // 32 + 1), "first": 1, "odd": 1})


class PacketParser(wiring.Component):
    """Checks the headers of RoCE packets beat by beat. A beat comes out 2 cycles after it went in.

    Not RoCE: another station, ethertype, protocol, destination address or UDP port. Malformed: IP version or header
    length; wrong IP checksum (RFC 1122, 3.2.1.2); a fragment; lengths of IP, UDP, frame, opcode and pad that contradict
    each other; BTH version; unknown opcode; more than 4096 bytes of payload, or any where the opcode has none.

    With several maps the destination address is not looked at. The UDP checksum never is: over IPv6, too, it may be 0
    (RFC 6936), and the ICRC covers more. An IPv6 packet with extension headers is not RoCE (IBA A17.3.2).

    Parameters
    ----------
    data_width : int
    places : PacketMaps
        Of as many of :data:`.headers.NETWORKS`, from the first one on.

    Members
    -------
    ip : 32
        Own address, with one map.
    tag : ``VlanTag``
        With several maps: of the frame, with the packet's first beat.
    i, i_valid : ``local_layout(data_width, len(places.maps))``
    o, o_valid : ``parsed_layout(data_width, places)``
    check, check_valid : ``check_layout(data_width)``
        What the ICRC wants, 1 cycle before ``o``.
    """

    def __init__(self, data_width, places):
        self.data_width = data_width
        self.places = places
        super().__init__(
            {
                "ip": In(32),
                "i": In(local_layout(data_width, len(places.maps))),
                "i_valid": In(1),
                "o": Out(parsed_layout(data_width, places)),
                "o_valid": Out(1),
                "check": Out(check_layout(data_width)),
                "check_valid": Out(1),
            }
            | ({"tag": In(VlanTag)} if len(places.maps) > 1 else {})
        )

    def elaborate(self, platform):
        m = Module()
        places, lanes = self.places, self.data_width // 32
        beat = self.i.beat
        beats = places.words // lanes + 1

        at = Signal(beats)
        next_at = Signal(beats)
        m.d.comb += at.eq(Mux(beat.first, 1, next_at))
        with m.If(self.i_valid):
            m.d.sync += next_at.eq(at << 1)

        # Which map a packet is of is known with its first beat.
        several = len(places.maps) > 1
        if several:
            networks, of_packet = Signal(len(places.maps)), Signal(len(places.maps))
            m.d.comb += networks.eq(Mux(beat.first, self.i.networks, of_packet))
            with m.If(self.i_valid):
                m.d.sync += of_packet.eq(networks)
        else:
            networks = Const(1, 1)

        def here(number, header, name):
            """The field's value in packets of map ``number``, and the bit of `at` in which it is true."""
            field = HEADERS[header][name]
            start = places.maps[number].start(header) * 4
            place = (start * 8 + field.start) // self.data_width
            return wire_field(beat.data, field, start - place * lanes * 4), place

        # --- Stage 1: fields against constants.
        s1 = Signal(parsed_layout(self.data_width, places))
        s1_valid = Signal()
        s1_count = Signal.like(beat.count)
        s1_payload = Signal()  # the opcode may have payload
        total, udp_length = Signal(16), Signal(16)
        not_roce = [beat.first & ~self.i.local]
        malformed = []
        length, kinds, pad, carries = Signal(16), Signal(len(places.sequences)), Signal(2), Signal()
        for number, map_ in enumerate(places.maps):
            for header, name, wanted, complaints in self._rules(map_.encapsulation):
                value, place = here(number, header, name)
                complaints_of = not_roce if complaints == "not_roce" else malformed
                complaints_of.append(at[place] & networks[number] & (value != wanted))
            # IPv6 and the GRH do not count their own header.
            ip = map_.encapsulation.network
            stated, place = here(number, ip, "total_length" if ip == "ipv4" else "payload_length")
            assert place == 0
            besides = 0 if ip == "ipv4" else HEADERS[ip].size
            least = map_.base_words * 4 - besides
            wrong = (stated[:2] != 0) | (stated < least) | (stated >= MAX_BYTES - besides)
            malformed.append(beat.first & networks[number] & wrong)
            opcode, bth = here(number, "bth", "opcode")
            found = Cat(opcode.matches(*sequence.codes) for sequence in map_.sequences)
            malformed.append(at[bth] & networks[number] & ~found.any())
            with m.If(networks[number]):
                m.d.comb += [
                    length.eq(stated + besides),
                    Cat(kinds[index] for index in places.members(number)).eq(found),
                    pad.eq(here(number, "bth", "pad")[0]),
                    carries.eq(opcode.matches(*places.payload_codes)),
                ]
            if "udp" in map_.encapsulation.headers:
                value, place = here(number, "udp", "length")
                with m.If(self.i_valid & at[place] & networks[number]):
                    m.d.sync += udp_length.eq(value)
        with m.If(self.i_valid):
            m.d.sync += [
                s1.data.eq(beat.data),
                s1.first.eq(beat.first),
                s1.last.eq(beat.last),
                s1.error.eq(beat.error),
                s1.at.eq(at),
                s1.left.eq(Mux(beat.first, length[2:], Mux(s1.left > lanes, s1.left - lanes, 0))),
                s1.not_roce.eq(Cat(not_roce).any()),
                s1.malformed.eq(Cat(malformed).any()),
                s1_count.eq(beat.count),
            ]
            with m.If(beat.first):
                m.d.sync += total.eq(length)
            if several:
                m.d.sync += s1.networks.eq(networks)
                with m.If(beat.first):  # what the packet before was means nothing in front of the BTH
                    m.d.sync += [s1.kinds.eq(0), s1.tag.eq(self.tag), s1.group.eq(self.i.group)]
            with m.If(Cat(self._at(networks, at, "bth")).any()):
                m.d.sync += [s1.kinds.eq(kinds), s1.pad.eq(pad), s1_payload.eq(carries)]

        of_s1 = s1.networks if several else networks
        masks = [icrc_mask(each.encapsulation, self.data_width, s1.at) for each in places.maps]
        mask = masks[0] if not several else reduce(or_, (Mux(of_s1[n], each, 0) for n, each in enumerate(masks)))
        m.d.comb += [
            self.check_valid.eq(s1_valid),
            self.check.data.eq(s1.data | mask),
            self.check.words.eq(Mux(s1.left > lanes, lanes, s1.left)),
            self.check.first.eq(s1.first),
            self.check.odd.eq(total[2]),
        ]

        # --- Stage 2: lengths against each other.
        other_words = Signal(5)  # of the packet, besides those of payload that have no pad
        carried = Signal(LENGTH_BITS)  # bytes of headers that count as payload
        for index, sequence in enumerate(places.sequences):
            with m.If(s1.kinds[index]):
                m.d.comb += [
                    other_words.eq(sequence.words + sequence.carried // 4 + 1 + (s1.pad != 0)),
                    carried.eq(sequence.carried),
                ]
        payload_words = Signal(WORDS_BITS)  # a negative number, at least -8 words, looks like too many
        m.d.comb += payload_words.eq(total[2:LENGTH_BITS] - other_words)
        m.d.sync += [s1_valid.eq(self.i_valid), self.o_valid.eq(s1_valid)]
        s2 = Signal.like(s1)
        payload, may_carry = Signal(LENGTH_BITS), Signal()
        before_udp = Signal(16)
        with m.If(s1_valid):
            m.d.sync += [
                s2.eq(s1),
                s2.ends.eq((s1.left <= lanes) & (s1.left != 0)),
                payload.eq(Cat((-s1.pad)[:2], payload_words)),
                s2.length.eq(carried),
                may_carry.eq(s1_payload),
                before_udp.eq(total - udp_length),
                # The frame ends before the packet does.
                s2.malformed.eq(s1.malformed | (s1.last & ((s1.left << 2) > s1_count))),
            ]
        assert MAX_PAYLOAD == 1 << LENGTH_BITS - 1
        too_long = payload[-1] & (payload[:-1] != 0)
        bad_length = too_long | (~may_carry & (payload != 0))
        of_s2 = s2.networks if several else networks
        of_udp = [each for each in places.maps if "udp" in each.encapsulation.headers]
        bad_udp = [
            here & (before_udp != map_.start("udp") * 4) for here, map_ in zip(self._at(of_s2, s2.at, "udp"), of_udp)
        ]
        bad_sum, summed = self._checksum(m, beat.data, at, s1_valid, s1.first)
        m.d.comb += [
            self.o.eq(s2),
            self.o.length.eq(payload | s2.length),
            self.o.malformed.eq(
                s2.malformed
                | (Cat(self._at(of_s2, s2.at, "bth")).any() & bad_length)
                | Cat(bad_udp).any()
                | (s2.at[summed] & of_s2[0] & bad_sum)
            ),
        ]
        return m

    def _rules(self, encapsulation):
        """``(header, field, value, complaint)`` of what all packets have in common."""
        network, protocol = encapsulation.network, encapsulation.protocol
        if network == "ipv4":
            yield "ipv4", "protocol", protocol, "not_roce"
            if len(self.places.maps) == 1:
                yield "ipv4", "destination", self.ip, "not_roce"
            for name, value in (("version", 4), ("header_words", 5), ("more_fragments", 0), ("fragment_offset", 0)):
                yield "ipv4", name, value, "malformed"
        else:
            yield network, "next_header", protocol, "not_roce"
            yield network, "version", 6, "malformed"
        if "udp" in encapsulation.headers:
            yield "udp", "destination_port", UDP_PORT, "not_roce"
        yield "bth", "version", 0, "malformed"

    def _at(self, networks, at, header):
        """For each map with this header: the packet is of it, and the first word that counts is in this beat."""
        lanes, word = self.data_width // 32, {"bth": 0, "udp": HEADERS["udp"]["length"].start // 32}[header]
        return [
            networks[n] & at[(each.start(header) + word) // lanes]
            for n, each in enumerate(self.places.maps)
            if header in (*each.encapsulation.headers, "bth")
        ]

    def _checksum(self, m, raw, at, s1_valid, s1_first):
        """Whether the IP header up to and with the beat in stage 2 does not add up, and in which beat it should."""
        lanes, words = self.data_width // 32, HEADERS["ipv4"].size // 4
        parts = [Signal(17, name=f"sum_{lane}") for lane in range(min(lanes, words))]
        for lane, part in enumerate(parts):
            word = raw.word_select(lane, 32)
            within = Cat(at[n // lanes] for n in range(lane, words, lanes)).any()
            # The order of bytes does not matter to a ones' complement sum (RFC 1071).
            m.d.sync += part.eq(Mux(within, word[:16] + word[16:], 0))
        total = Signal(20)
        with m.If(s1_valid):
            m.d.sync += total.eq(Mux(s1_first, 0, total) + sum(parts))
        # The two parts add up to all ones without a carry, as they are each other's complement.
        return ~(total[4:16].all() & ((total[:4] ^ total[16:]) == 0xF)), (words - 1) // lanes
