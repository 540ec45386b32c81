"""From what the transport wants to say to a frame on the wire."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.almost_full_fifo import AlmostFullFifo
from ..stream.packet import PacketBeat
from ..stream.transfer import LENGTH_BITS
from .encapsulator import encapsulated_header, transmit_maps
from .ethernet_header import EthernetInsert
from .headers import HEADERS, IBA_TRANSPORT, ICRC_BYTES, NETWORKS, UDP, UDP_PORT
from .icrc import Icrc, icrc_mask
from .ip_checksum import IpChecksum
from .layout import header_bits, wire_field
from .opcodes import SUPPORTED
from .packet_header import Deth
from .vlan import VlanTag

__all__ = ["Packetizer"]

WORDS_BITS = LENGTH_BITS - 2
"""Bits of the length of a packet in 32-bit words: 1024 of payload, and headers."""

IP_CONSTANT = {"version": 4, "header_words": 5, "dont_fragment": 1, "protocol": UDP}
"""What all packets have in common. Identification 0 and don't fragment: RFC 6864."""


class Packetizer(wiring.Component):
    """Builds RoCE frames: headers, payload moved behind them, pad, lengths, IPv4 checksum, ICRC.

    A frame takes as many cycles as it has beats, without a pause between frames, at 64 bits; also if a header comes
    only 2 cycles after the one before was taken. At wider ones a packet takes 1 cycle more than it has beats without
    the Ethernet header. The first beat comes 3 cycles after the header at 64 bits (7 or 8 at wider ones), and the frame
    stops where payload is missing. A header is taken with the last beat of its packet; until then it
    stays at the input, which should be a register.

    The pipeline does not stand still: when the wire does, up to 15 beats wait behind it, and no more are begun.

    Payload that ends in ``error`` may be shorter than announced; the frame keeps its length, and its ICRC is inverted,
    so that the receiver drops it. Any other difference in length is not allowed.

    Parameters
    ----------
    data_width : int
    opcodes, networks
        As of the :class:`.encapsulator.Encapsulator` in front of it.

    Members
    -------
    mac, ip : 48, 32
        Own addresses, as numbers. They may change while nothing is sent. With several ``networks`` the second does not
        count.
    tag : ``VlanTag``
        With several ``networks``: what the frame at ``o`` is to have, with the beat with byte 12.
    header : stream of :func:`.encapsulator.encapsulated_header`
    payload : stream of ``PacketBeat(data_width)``
        One packet of ``header.transport.length`` bytes a header; no beat if that is 0. Atomics have payload, too: the
        operands of a request (16 bytes: swap or addend, compare) and the value of an acknowledgement (8), each most
        significant byte first.
    o : stream of ``PacketBeat(data_width)``
        Frames with Ethernet header and ICRC, without FCS, not padded to the least size of a frame. ``error`` is never
        set.
    count_stall_tx_payload, count_stall_tx_wire : 1
        A packet waits for its payload; a beat waits for the wire.
    """

    def __init__(self, data_width, opcodes=SUPPORTED, networks=NETWORKS[:1]):
        self.data_width = data_width
        self.opcodes, self.networks = frozenset(opcodes), tuple(networks)
        self._map = transmit_maps(opcodes, networks)
        super().__init__(
            {
                "mac": In(48),
                "ip": In(32),
                "header": In(stream.Signature(encapsulated_header(opcodes, networks))),
                "payload": In(stream.Signature(PacketBeat(data_width))),
                "o": Out(stream.Signature(PacketBeat(data_width))),
                "count_stall_tx_payload": Out(1),
                "count_stall_tx_wire": Out(1),
            }
            | ({"tag": Out(VlanTag)} if len(self.networks) > 1 else {})
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.data_width // 32
        places = self._map
        beats = places.words // lanes + 1  # up to the one in which the longest headers end
        begins = sorted({sequence.words // lanes for sequence in places.sequences})  # beats in which payload begins
        m.submodules.icrc = icrc = Icrc(self.data_width)
        m.submodules.ethernet = ethernet = EthernetInsert(self.data_width)
        m.d.comb += ethernet.mac.eq(self.mac)
        several = len(places.maps) > 1
        tag_layout = {"tag": VlanTag} if several else {}
        layout = data.StructLayout({"data": self.data_width, "end": ceil_log2(self.data_width // 8) + 1, **tag_layout})
        m.submodules.fifo = fifo = AlmostFullFifo(layout, icrc.crc_latency + 1)
        self._put_out(m, ethernet, fifo)

        # --- Position: the header stays at the input as long as its packet is composed.
        header = self.header.payload
        length = header.transport.length
        prepared = Signal()  # what derives from the header is there
        at = Signal(beats, init=1)  # one-hot position of the beat, none behind the headers
        first = at[0]
        # Words from this beat on, without the ICRC; at the first beat only on buses on which that may be the last one.
        rest = Signal(WORDS_BITS)
        fire, last, over = Signal(), Signal(), Signal()
        m.d.comb += self.header.ready.eq(fire & last)
        m.d.sync += over.eq(self.header.ready)
        # Between two packets stand the beats that the Ethernet header needs: the rest of a frame, and a beat of header.
        m.d.sync += prepared.eq(self.header.valid & ~self.header.ready & ~(over & (lanes == 2)))
        with m.If(fire):
            m.d.sync += at.eq(Mux(last, 1, at << 1))

        if several:
            network, source = header.network, header.source
        else:
            network, source = Const(1, 1), self.ip
        ethertypes = [each.encapsulation.ethertype for each in places.maps]
        if several:
            ethertype = reduce(or_, (Mux(network[n], each, 0) for n, each in enumerate(ethertypes)))
        else:
            ethertype = Const(ethertypes[0], 16)

        # --- Prepare: one cycle after the header came, `kinds`, `words` and what else is its packet's is there.
        of_opcode = header.sequence
        kinds = Signal(len(places.sequences))  # one-hot: which extended headers, in which network
        kinds_now = Cat(of_opcode & mine.replicate(len(of_opcode)) for mine in network)
        offsets = {n: Signal(name=f"offset_{n}") for n in sorted({s.words % lanes for s in places.sequences})}
        begin = {n: Signal(name=f"begin_{n}") for n in begins}
        some = Signal()  # it has payload
        words = Signal(WORDS_BITS)  # of the whole packet, ICRC included
        behind = Signal(WORDS_BITS)  # of those, behind the network header
        m.d.sync += kinds.eq(kinds_now)

        def either(values, chosen):
            return reduce(or_, (Mux(mine, value, 0) for mine, value in zip(chosen, values)))

        def whole_words(without):
            """Words of the packet besides as many, of each map. One adder, which the last bytes carry into."""
            besides = [
                either([sequence.words + ICRC_BYTES // 4 - less for sequence in each.sequences], of_opcode)
                for each, less in zip(places.maps, without)
            ]
            return (Cat(1, length[2:]) + Cat(length[:2].any(), either(besides, network)))[1:]

        for group, key in ((offsets, lambda s: s.words % lanes), (begin, lambda s: s.words // lanes)):
            for n, signal in group.items():
                mine = Cat(kind for kind, sequence in zip(kinds_now, places.sequences) if key(sequence) == n)
                m.d.sync += signal.eq(mine.any())
        m.d.sync += [
            some.eq(length != 0),
            words.eq(whole_words([0] * len(places.maps))),
            behind.eq(whole_words([each.network_words for each in places.maps])),
        ]
        with m.If(fire):
            m.d.sync += [rest.eq(rest - lanes), last.eq(rest[ceil_log2(lanes) :] <= 1)]
        if min(sequence.words for sequence in places.sequences) >= lanes:
            # The first beat is not the last one, so that `words` says early enough what is left of it.
            left = (words - 1)[:WORDS_BITS]
            with m.If(fire & first):
                m.d.sync += [rest.eq((words - 1 - lanes)[:WORDS_BITS]), last.eq(left[ceil_log2(lanes) :] <= 1)]
            with m.Elif(first):
                m.d.sync += last.eq(0)
        else:
            whole = whole_words([1] * len(places.maps))[:WORDS_BITS]
            with m.If(first & ~fire):
                m.d.sync += [rest.eq(whole), last.eq(whole < lanes)]

        # --- Flow.
        # The payload's register: beside it stands which bytes are there, so that nothing has to be compared behind it.
        size = self.data_width // 8
        flow_layout = data.StructLayout({"data": self.data_width, "within": size, "last": 1, "error": 1})
        given, flow, flow_valid = self.payload.payload, Signal(flow_layout, reset_less=True), Signal()
        waits = Signal()  # this beat needs a beat of payload
        pulls = Signal()  # and takes it; and so do those behind it up to its last
        failed, failed_now = Signal(), Signal()
        at_once = begins[0] == 0  # of some packets payload begins in the first beat
        m.d.comb += [
            self.payload.ready.eq(~flow_valid | (prepared & fifo.room & pulls)),
            fire.eq(prepared & fifo.room & (~waits | flow_valid)),
            failed_now.eq(Mux(pulls, flow.last & flow.error, failed & ~first)),
            self.count_stall_tx_payload.eq(prepared & fifo.room & waits & ~flow_valid),
            self.count_stall_tx_wire.eq(self.o.valid & ~self.o.ready),
        ]
        with m.If(self.payload.ready):
            m.d.sync += [
                flow_valid.eq(self.payload.valid),
                flow.data.eq(given.data),
                flow.within.eq(Cat(~given.last | (given.count > n) for n in range(size))),
                flow.last.eq(given.last),
                flow.error.eq(given.error),
            ]
        later = [begin[n] & at[n - 1] for n in begins if n]
        starts = Cat(later).any() if later else 0
        with m.If(fire):
            pulls_on = (pulls & ~flow.last) | (starts & some)
            m.d.sync += [waits.eq(pulls_on), pulls.eq(pulls_on), failed.eq(failed_now)]
        with m.Elif(first):
            if at_once:
                at_first = [index for index, s in enumerate(places.sequences) if s.words < lanes]
                here = (length != 0) & (Cat(kinds_now[index] for index in at_first).any() if len(begins) > 1 else 1)
                m.d.sync += [waits.eq(here), pulls.eq(here)]

        # --- Compose a beat: an OR of what may stand in each lane. Of the headers, what stands behind the first beat is
        # chosen a beat ahead.
        terms, ahead = [[] for _ in range(lanes)], [[] for _ in range(lanes)]
        for word, mine, value in self._header_words(words, behind, network, source, kinds):
            beat, lane = divmod(word, lanes)
            shown = at[beat - 1] if beat else first
            (ahead if beat else terms)[lane].append(Mux(shown & mine, value, 0))
        header_next = Signal(self.data_width)
        with m.If(fire):
            m.d.sync += header_next.eq(Cat(reduce(or_, lane, Const(0, 32)) for lane in ahead))
        for lane in range(lanes):
            terms[lane].append(header_next.word_select(lane, 32))
        # Payload: `flow` from its lane 0 on behind the offset, and in front of it what was left of the beat before.
        # Behind its end are zeros, for the pad.
        held = Signal(self.data_width, reset_less=True)
        within, within_held = flow.within & pulls.replicate(size), Signal(size)
        with m.If(fire):
            m.d.sync += [held.eq(flow.data), within_held.eq(Mux(last, 0, within))]
        for lane in range(lanes):
            for offset, used in offsets.items():
                data_in, mask = (flow.data, within) if lane >= offset else (held, within_held)
                word = (lane - offset) % lanes
                enable = mask.word_select(word, 4) & used.replicate(4)
                spread = Cat(bit.replicate(8) for bit in enable)
                terms[lane].append(data_in.word_select(word, 32) & spread)
        composed = Cat(reduce(or_, lane) for lane in terms)
        assert len(composed) == self.data_width

        # --- A register, the ICRC's stages, and the beat that waits for it.
        stage = data.StructLayout(
            {
                "valid": 1,
                "data": self.data_width,
                "destination": 48,
                "ethertype": 16,
                "first": 1,
                "checksum": 1,  # the IP header's checksum stands in it
                "last": 1,
                "icrc": lanes,  # one-hot: which word is the ICRC
                "failed": 1,
                **tag_layout,
            }
        )
        pipeline = [Signal(stage, name=f"stage_{n}") for n in range(icrc.crc_latency)]
        enter, leave = pipeline[0], pipeline[-1]
        count = rest[: ceil_log2(lanes)]
        summed = (places.maps[0].start("ipv4") * 4 + HEADERS["ipv4"]["checksum"].start // 8) // (lanes * 4)
        masks = [icrc_mask(each.encapsulation, self.data_width, at) for each in places.maps]
        mask = reduce(or_, (Mux(network[n], each, 0) for n, each in enumerate(masks))) if several else masks[0]
        m.d.comb += [
            icrc.valid.eq(fire),
            icrc.first.eq(first),
            icrc.odd.eq(~words[0]),
            icrc.data.eq(composed | mask),
            icrc.words.eq(Mux(last, count, lanes)),
        ]
        # The checksum is filled in behind the ICRC's register, which does not need it.
        m.submodules.checksum = checksum = IpChecksum(IP_CONSTANT, varying=several)
        m.d.comb += [
            checksum.ip.eq(source[:32]),
            checksum.path.eq(header.path),
            checksum.words.eq(words),
        ]
        field = HEADERS["ipv4"]["checksum"]
        filled = [Signal(stage, name=f"filled_{n}") for n in range(len(pipeline))]
        for number, (before, after) in enumerate(zip(pipeline, filled)):
            m.d.comb += after.eq(before)
            if number == checksum.latency - 1 - summed:
                with m.If(before.checksum):
                    m.d.comb += wire_field(after.data, field, -summed * lanes * 4).eq(checksum.o)
        starts_next = Signal()
        m.d.sync += [
            starts_next.eq(fire & first),
            *(after.eq(before) for before, after in zip(filled, pipeline[1:])),
            enter.valid.eq(fire),
            enter.data.eq(composed),
            enter.destination.eq(header.path.mac),
            enter.ethertype.eq(ethertype),
            enter.first.eq(first),
            enter.checksum.eq(at[summed] & network[0]),
            enter.last.eq(last),
            enter.icrc.eq(Cat(last & (count == lane) for lane in range(lanes))),
            enter.failed.eq(failed_now),
            *([enter.tag.eq(header.tag)] if several else []),
        ]

        if several:
            m.d.comb += [fifo.i.tag.eq(leave.tag), self.tag.eq(fifo.o.payload.tag)]
        beat = ethernet.i.beat
        m.d.comb += [
            ethernet.i_valid.eq(leave.valid),
            ethernet.starts_next.eq(starts_next),
            # The beat of header alone leaves while its packet is composed.
            ethernet.i.destination.eq(header.path.mac if lanes == 2 else leave.destination),
            ethernet.i.ethertype.eq(ethertype if lanes == 2 else leave.ethertype),
            beat.data.eq(filled[-1].data),
            beat.first.eq(leave.first),
            beat.last.eq(leave.last),
            beat.count.eq(self.data_width // 8),
        ]
        for lane in range(lanes):
            with m.If(leave.icrc[lane]):
                m.d.comb += beat.data.word_select(lane, 32).eq(icrc.crc ^ leave.failed.replicate(32))
                m.d.comb += beat.count.eq((lane + 1) * 4)
        return m

    def _put_out(self, m, ethernet, fifo):
        """Frames from where they land: the count of a beat that is not the last, which is full, is all ones."""
        came, beat = ethernet.o, self.o.payload
        row, first = fifo.o.payload, Signal(init=1)
        m.d.comb += [
            fifo.i_valid.eq(ethernet.o_valid),
            fifo.i.data.eq(came.data),
            fifo.i.end.eq(Mux(came.last, came.count, ~0)),
            self.o.valid.eq(fifo.o.valid),
            fifo.o.ready.eq(self.o.ready),
            beat.data.eq(row.data),
            beat.last.eq(~row.end.all()),
            beat.count.eq(Mux(beat.last, row.end, self.data_width // 8)),
            beat.first.eq(first),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += first.eq(beat.last)

    def _header_words(self, words, behind, network, source, kinds):
        """Triples: index of a 32-bit word of the packet, whether this packet has it, value."""
        places = self._map
        several = len(places.maps) > 1
        transport, path = self.header.payload.transport, self.header.payload.path
        with_gid = {
            "version": 6,
            "traffic_class": path.traffic_class,
            "flow_label": path.flow_label,
            "payload_length": Cat(Const(0, 2), behind, Const(0, 14 - WORDS_BITS)),
            "hop_limit": path.hop_limit,
            "source": source if several else Const(0, 128),
            "destination": Cat(path.ip, path.gid_high),
        }
        fixed = {
            "ipv4": {
                **IP_CONSTANT,
                "traffic_class": path.traffic_class,
                "total_length": Cat(Const(0, 2), words, Const(0, 14 - WORDS_BITS)),
                "hop_limit": path.hop_limit,
                "source": source[:32],
                "destination": path.ip,
            },
            "ipv6": {**with_gid, "next_header": UDP},
            "grh": {**with_gid, "next_header": IBA_TRANSPORT},
            "udp": {
                "source_port": path.source_port,
                "destination_port": UDP_PORT,
                "length": Cat(Const(0, 2), behind, Const(0, 14 - WORDS_BITS)),
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
        for number, map_ in enumerate(places.maps):
            for name in (*map_.encapsulation.headers, "bth"):
                bits = header_bits(HEADERS[name], **fixed[name])
                for word in range(HEADERS[name].size // 4):
                    yield map_.start(name) + word, network[number], bits[word * 32 : word * 32 + 32]
        for (word, name, index), indices in places.extended_words().items():
            mine = Cat(kinds[each] for each in indices).any()
            fields = data.View(Deth, transport.address) if name == "deth" else transport
            values = {field: fields[field] for field in HEADERS[name].fields if field in fields.shape().members}
            yield word, mine, header_bits(HEADERS[name], **values)[index * 32 : index * 32 + 32]
