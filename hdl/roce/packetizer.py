"""From what the transport wants to say to a frame on the wire."""

from functools import reduce
from itertools import pairwise
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.packet import PacketBeat
from ..stream.transfer import LENGTH_BITS
from .ethernet_header import EthernetInsert
from .headers import ENCAPSULATIONS, HEADERS, UDP_PORT
from .icrc import Icrc, icrc_mask
from .layout import PacketMap, header_bits, wire_field
from .opcodes import SUPPORTED
from .packet_header import TransmitHeader

__all__ = ["Packetizer"]

WORDS_BITS = LENGTH_BITS - 2
"""Bits of the length of a packet in 32-bit words: 1024 of payload, and headers."""

IP_CONSTANT = {"version": 4, "header_words": 5, "dont_fragment": 1, "protocol": 17}
"""What all packets have in common. Identification 0 and don't fragment: RFC 6864."""


class Packetizer(wiring.Component):
    """Builds RoCEv2/IPv4 frames: headers, payload moved behind them, pad, lengths, IPv4 checksum, ICRC.

    A frame takes as many cycles as it has beats, without a pause between frames, at 64 bits; wider ones spend up to 2
    cycles more on a packet. The first beat comes 4 cycles after the header at 64 bits (10 or 11 at wider ones), and not
    before the first beat of the payload is there; nothing is buffered beyond the pipeline. A header is taken as soon as
    the packet before it is on its way, and prepared meanwhile.

    Payload that ends in ``error`` may be shorter than announced; the frame keeps its length, and its ICRC is inverted,
    so that the receiver drops it. Any other difference in length is not allowed.

    Parameters
    ----------
    data_width : int
    opcodes : iterable of int
        What ``header.transport.opcode`` may be; each with extended headers of the flat layout only.

    Members
    -------
    mac, ip : 48, 32
        Own addresses, as numbers. They may change while nothing is sent.
    header : stream of ``TransmitHeader``
    payload : stream of ``PacketBeat(data_width)``
        One packet of ``header.transport.length`` bytes a header; no beat if that is 0.
    o : stream of ``PacketBeat(data_width)``
        Frames with Ethernet header and ICRC, without FCS, not padded to the least size of a frame. ``error`` is never
        set.
    count_stall_tx_payload, count_stall_tx_wire : 1
        A packet waits for its payload; a beat waits for the wire.
    """

    def __init__(self, data_width, opcodes=SUPPORTED):
        self.data_width = data_width
        self.opcodes = frozenset(opcodes)
        self.encapsulation = ENCAPSULATIONS["RoCEv2/IPv4"]
        self._map = PacketMap(self.encapsulation, self.opcodes)
        super().__init__(
            {
                "mac": In(48),
                "ip": In(32),
                "header": In(stream.Signature(TransmitHeader)),
                "payload": In(stream.Signature(PacketBeat(data_width))),
                "o": Out(stream.Signature(PacketBeat(data_width))),
                "count_stall_tx_payload": Out(1),
                "count_stall_tx_wire": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.data_width // 32
        places = self._map
        beats = places.words // lanes + 1  # up to the one in which the longest headers end
        m.submodules.icrc = icrc = Icrc(self.data_width)
        m.submodules.ethernet = ethernet = EthernetInsert(self.data_width, self.encapsulation.ethertype)
        m.d.comb += ethernet.mac.eq(self.mac)
        wiring.connect(m, ethernet.o, wiring.flipped(self.o))

        # --- Prepare the next packet while the one before is sent: its length, and half of its checksum.
        head = self.header.payload
        length = head.transport.length
        kinds = Signal(len(places.sequences))  # one-hot: which extended headers
        extra = Signal(4)  # words besides the least packet and the payload's whole words
        for index, sequence in enumerate(places.sequences):
            m.d.comb += kinds[index].eq(head.transport.opcode.matches(*sequence.codes))
            with m.If(kinds[index]):
                m.d.comb += extra.eq(sequence.words - places.base_words + 1 + (length[:2] != 0))
        prepared = Signal()
        latch = Signal()
        words = Signal(WORDS_BITS)  # of the whole packet, ICRC included
        udp_words = Signal(WORDS_BITS)  # from the UDP header on
        own_sum, static_sum, peer_sum = Signal(17), Signal(19), Signal(17)
        known_sum, varying_sum = Signal(19), Signal(17)
        constant = HEADERS["ipv4"].pack(**IP_CONSTANT)
        m.d.sync += [
            prepared.eq(self.header.valid & ~latch),
            words.eq(length[2:] + (places.base_words + extra)),
            udp_words.eq(length[2:] + (places.base_words - places.start("udp") + extra)),
            own_sum.eq(self.ip[:16] + self.ip[16:]),
            static_sum.eq(
                own_sum + sum(int.from_bytes(constant[i : i + 2], "big") for i in range(0, len(constant), 2))
            ),
            peer_sum.eq(head.path.ip[:16] + head.path.ip[16:]),
            known_sum.eq(static_sum + peer_sum),
            varying_sum.eq(Cat(head.path.traffic_class, head.path.hop_limit) + (words << 2)),
        ]

        # --- The packet that is sent.
        active = Signal()
        age = Signal(2)  # 2: its checksum is complete
        now = Signal(TransmitHeader)
        now_words, now_udp_words = Signal(WORDS_BITS), Signal(WORDS_BITS)
        now_kinds = Signal.like(kinds)
        left = Signal(WORDS_BITS)  # words to be sent, ICRC included
        at = Signal(beats)  # one-hot position of the beat, none behind the headers
        drained = Signal()  # the payload has no more beats
        failed = Signal()
        fire, last = Signal(), Signal()
        first = at[0]
        m.d.comb += [
            last.eq(left <= lanes),
            latch.eq(prepared & (~active | fire & last)),
            self.header.ready.eq(latch),
        ]
        with m.If(fire):
            m.d.sync += [at.eq(at << 1), left.eq(left - lanes)]
            with m.If(last):
                m.d.sync += active.eq(0)
        whole_sum = Signal(19)
        checksum = Signal(16)
        low, high = whole_sum[:16], whole_sum[16:]
        with m.If(age != 2):
            m.d.sync += age.eq(age + 1)
        with m.If(age == 0):
            m.d.sync += whole_sum.eq(known_sum + varying_sum)
        with m.If(age == 1):
            # The carries come around once, and so does the carry of adding them, which needs `low` to be nearly full.
            m.d.sync += checksum.eq(~(low + high + (low[3:].all() & (low[:3] + high)[3])))
        with m.If(latch):
            m.d.sync += [
                active.eq(1),
                age.eq(0),
                now.eq(head),
                now_words.eq(words),
                now_udp_words.eq(udp_words),
                now_kinds.eq(kinds),
                left.eq(words),
                at.eq(1),
            ]

        # --- Compose a beat.
        move = Signal()  # the stage behind takes it
        flow = self.payload.payload
        started = Signal()  # the beat holds payload, or what is left of it
        started_before = Signal()
        boundary = [now_kinds[i] & at[s.words // lanes] for i, s in enumerate(places.sequences)]
        wanted = Signal()
        may_begin = Signal()
        consume = Signal()
        m.d.comb += [
            started.eq(started_before | Cat(*boundary).any()),
            wanted.eq(started & ~drained),
            # A narrow beat's checksum is filled in behind the ICRC's register, which does not need it.
            may_begin.eq(~first | ((drained | self.payload.valid) & (1 if lanes == 2 else age == 2))),
            fire.eq(active & move & may_begin & (~wanted | self.payload.valid)),
            self.payload.ready.eq(active & move & may_begin & wanted),
            consume.eq(self.payload.valid & self.payload.ready),
            self.count_stall_tx_payload.eq(active & move & ~self.payload.valid & (wanted | first & ~drained)),
            self.count_stall_tx_wire.eq(self.o.valid & ~self.o.ready),
        ]
        clean = Signal(self.data_width)  # payload with zeros behind its end
        held = Signal(self.data_width)  # the payload beat before
        for byte in range(self.data_width // 8):
            with m.If(~flow.last | (flow.count > byte)):
                m.d.comb += clean.word_select(byte, 8).eq(flow.data.word_select(byte, 8))
        with m.If(fire):
            m.d.sync += started_before.eq(started)
        with m.If(consume):
            m.d.sync += [held.eq(clean), drained.eq(flow.last), failed.eq(flow.last & flow.error)]
        with m.If(latch):  # behind the others, which see to the packet before
            m.d.sync += [started_before.eq(0), drained.eq(length == 0), failed.eq(0)]

        terms = [[] for _ in range(lanes)]  # of each lane's OR
        for word, condition, value in self._header_words(now, now_words, now_udp_words, now_kinds, checksum):
            terms[word % lanes].append(Mux(at[word // lanes] & condition, value, 0))
        for lane in range(lanes):
            for index, sequence in enumerate(places.sequences):
                offset = sequence.words % lanes
                source = clean if lane >= offset else held
                use = now_kinds[index] & (started if lane >= offset else started_before)
                terms[lane].append(Mux(use, source.word_select((lane - offset) % lanes, 32), 0))
        composed = Signal(self.data_width)
        for lane in range(lanes):
            m.d.comb += composed.word_select(lane, 32).eq(reduce(or_, terms[lane]))

        # --- A register, the ICRC, and the beat that waits for it.
        stage = data.StructLayout(
            {
                "valid": 1,
                "data": self.data_width,
                "destination": 48,
                "at": beats,
                "last": 1,
                "words": range(lanes + 1),  # before the ICRC
                "failed": 1,
            }
        )
        pipeline = [Signal(stage, name=f"stage_{n}") for n in range(1 + icrc.crc_latency)]
        enter, leave = pipeline[0], pipeline[-1]
        masked = Signal(self.data_width)  # `enter.data` as the ICRC wants it
        with m.If(move):
            m.d.sync += [
                *(behind.eq(before) for before, behind in pairwise(pipeline)),
                enter.valid.eq(fire),
                enter.data.eq(composed),
                masked.eq(composed | icrc_mask(self.encapsulation, self.data_width, at)),
                enter.destination.eq(now.path.mac),
                enter.at.eq(at),
                enter.last.eq(last),
                enter.words.eq(Mux(last, left - 1, lanes)),
                enter.failed.eq(Mux(consume, flow.last & flow.error, failed)),
            ]
        m.d.comb += [
            move.eq(~leave.valid | ethernet.i.ready),
            icrc.advance.eq(move),
            icrc.valid.eq(enter.valid),
            icrc.first.eq(enter.at[0]),
            icrc.data.eq(masked),
            icrc.words.eq(enter.words),
        ]

        beat = ethernet.i.payload.beat
        m.d.comb += [
            ethernet.i.valid.eq(leave.valid),
            ethernet.soon.eq(enter.valid & enter.at[0]),
            ethernet.i.payload.destination.eq(enter.destination if lanes == 2 else leave.destination),
            beat.data.eq(leave.data),
            beat.first.eq(leave.at[0]),
            beat.last.eq(leave.last),
            beat.count.eq(Mux(leave.last, (leave.words + 1) << 2, self.data_width // 8)),
        ]
        if lanes == 2:
            field = HEADERS["ipv4"]["checksum"]
            with m.If(leave.at[1]):
                m.d.comb += wire_field(beat.data, field, -self.data_width // 8).eq(checksum)
        for lane in range(lanes):
            with m.If(leave.last & (leave.words == lane)):
                m.d.comb += beat.data.word_select(lane, 32).eq(icrc.crc ^ leave.failed.replicate(32))
        return m

    def _header_words(self, now, words, udp_words, kinds, checksum):
        """Triples: index of a 32-bit word of the packet, condition, value."""
        places = self._map
        transport, path = now.transport, now.path
        fixed = {
            "ipv4": {
                **IP_CONSTANT,
                "traffic_class": path.traffic_class,
                "total_length": Cat(Const(0, 2), words, Const(0, 14 - WORDS_BITS)),
                "hop_limit": path.hop_limit,
                "source": self.ip,
                "destination": path.ip,
                "checksum": 0 if self.data_width == 64 else checksum,
            },
            "udp": {
                "source_port": path.source_port,
                "destination_port": UDP_PORT,
                "length": Cat(Const(0, 2), udp_words, Const(0, 14 - WORDS_BITS)),
            },
            "bth": {
                "opcode": transport.opcode,
                "solicited": transport.solicited,
                "pad": (-transport.length[:2])[:2],
                "pkey": transport.pkey,
                "becn": transport.becn,
                "dest_qpn": transport.dest_qpn,
                "ack_request": transport.ack_request,
                "psn": transport.psn,
            },
        }
        for name, values in fixed.items():
            bits = header_bits(HEADERS[name], **values)
            for word in range(HEADERS[name].size // 4):
                yield places.start(name) + word, 1, bits[word * 32 : word * 32 + 32]
        for name, starts in places.extended().items():
            bits = header_bits(HEADERS[name], **{field: transport[field] for field in HEADERS[name].fields})
            for start, sequences in starts.items():
                condition = Cat(kinds[index] for index in sequences).any()
                for word in range(HEADERS[name].size // 4):
                    yield start + word, condition, bits[word * 32 : word * 32 + 32]
