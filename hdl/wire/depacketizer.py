"""From frames on the wire to what they say to the transport."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.gids import MAPPED
from ..stream.backlog import Backlog
from ..stream.packet import PacketBeat
from ..stream.queue import PacketQueue
from ..stream.transfer import LENGTH_BITS
from .ethernet_header import EthernetStrip
from .headers import ENCAPSULATIONS, HEADERS, NETWORKS, check_networks
from .icrc import Icrc
from .layout import RECEIVE_CARRIED, PacketMaps, wire_field
from .opcodes import REFUSED, SUPPORTED
from .packet_header import ArrivedHeader, ReceiveHeader
from .parser import PacketParser, parsed_layout
from .vlan import VlanStrip, VlanTag

__all__ = ["Depacketizer"]

BTH = ("opcode", "solicited", "becn", "pkey", "dest_qpn", "ack_request", "psn")
"""Fields of the BTH that the transport gets."""

RENAMED = {"swap_add": "swap"}
"""Fields of headers that have another name in the transport's record."""


NETWORK_WORDS = HEADERS["ipv6"].size // 4
"""32-bit words of the longest network header."""


class Depacketizer(wiring.Component):
    """Takes RoCE frames apart, and lets through only whole, well-formed ones with a right ICRC.

    Takes a beat each cycle, always. A good packet's header comes out 5 or 6 cycles after its last beat went in at 64
    bits (2 more at wider ones, more if headers wait), its payload a few cycles later; both only when
    the packet is known to be good, and both or neither. Whatever came in, the next packet is not affected.

    A dropped frame is counted once, for the first of these that is true: it is not for this engine; it contradicts
    itself; its ICRC is wrong or it is damaged on the wire (``error``); there is no room. Filling behind the IP packet
    is ignored.

    Parameters
    ----------
    data_width : int
    depth : int
        Bytes of the payload buffer; a power of two. One packet of 4096 bytes must fit.
    headers : int
        Packets whose headers can wait, in block RAM, besides two; a power of two.
    opcodes : iterable of int
        What is served; each with extended headers of the flat layout only.
    refused : iterable of int
        What is let through besides, for somebody to refuse it: of the extended headers nothing is told.
    networks : tuple of str
        Of :data:`.headers.NETWORKS` as many as there are, from the first one on.
    groups : bool
        Frames to groups come out, too; only with several ``networks``.

    Members
    -------
    mac, ip : 48, 32
        Own addresses, as numbers. A frame to another address is not for this engine. With several
        ``networks`` that is decided behind: only the MAC address is looked at, and a frame may have an 802.1Q tag.
    i : stream of ``PacketBeat(data_width)``
        Frames with Ethernet header and ICRC, without FCS. ``ready`` is always 1.
    header : stream of ``ReceiveHeader``, or with several ``networks`` of ``ArrivedHeader``
    payload : stream of ``PacketBeat(data_width)``
        One packet of ``header.transport.length`` bytes a header, without pad; no beat if that is 0. ``error`` is never
        set. May be taken before its header. An atomic acknowledgement has 8 bytes: the value, least significant first.
    empty : 1
        Nothing waits in the two queues.
    count_rx_packets, count_rx_bytes : 1, 13
        A packet is accepted, and the bytes of its payload.
    count_drop_not_roce, count_drop_malformed, count_drop_icrc, count_drop_overflow : 1
    """

    def __init__(
        self,
        data_width,
        *,
        depth=16384,
        headers=16,
        opcodes=SUPPORTED,
        refused=REFUSED,
        networks=NETWORKS[:1],
        groups=False,
    ):
        self.data_width = data_width
        self.depth = depth
        self.headers = headers
        self.opcodes = frozenset(opcodes)
        self.refused = frozenset(refused)
        self.networks = tuple(networks)
        check_networks(self.networks)
        self.groups = groups
        self.encapsulations = [ENCAPSULATIONS[name] for name in self.networks]
        self._map = PacketMaps(self.encapsulations, self.opcodes, RECEIVE_CARRIED, self.refused)
        if not isinstance(depth, int) or depth < 8192 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, at least 8192, not {depth!r}")
        if not isinstance(headers, int) or headers < 2 or headers & headers - 1:
            raise ValueError(f"headers must be a power of two, at least 2, not {headers!r}")
        super().__init__(
            {
                "mac": In(48),
                "ip": In(32),
                "i": In(stream.Signature(PacketBeat(data_width))),
                "header": Out(stream.Signature(ReceiveHeader if len(self.networks) == 1 else ArrivedHeader)),
                "payload": Out(stream.Signature(PacketBeat(data_width))),
                "empty": Out(1),
                "count_rx_packets": Out(1),
                "count_rx_bytes": Out(LENGTH_BITS),
                "count_drop_not_roce": Out(1),
                "count_drop_malformed": Out(1),
                "count_drop_icrc": Out(1),
                "count_drop_overflow": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        places, lanes = self._map, self.data_width // 32
        m.submodules.strip = strip = EthernetStrip(
            self.data_width, *(each.ethertype for each in self.encapsulations), groups=self.groups
        )
        m.submodules.parser = parser = PacketParser(self.data_width, places)
        m.submodules.icrc = icrc = Icrc(self.data_width)
        m.submodules.queue = queue = PacketQueue(self.data_width, self.depth * 8 // self.data_width)
        if len(places.maps) > 1:
            m.submodules.vlan = vlan = VlanStrip(self.data_width)
            wiring.connect(m, wiring.flipped(self.i), vlan.i)
            wiring.connect(m, vlan.o, strip.i)
            m.d.comb += parser.tag.eq(vlan.tag)
        else:
            wiring.connect(m, wiring.flipped(self.i), strip.i)
        wiring.connect(m, queue.o, wiring.flipped(self.payload))
        m.d.comb += [
            strip.mac.eq(self.mac),
            parser.ip.eq(self.ip),
            parser.i.eq(strip.o),
            parser.i_valid.eq(strip.o_valid),
            icrc.valid.eq(parser.check_valid),
            *(getattr(icrc, name).eq(parser.check[name]) for name in parser.check.shape().members),
        ]

        # --- A beat waits until the next one completes it as payload; meanwhile the ICRC goes through its stages.
        layout = parsed_layout(self.data_width, places)
        pipeline = [(parser.o, parser.o_valid)]
        for n in range(icrc.state_latency - 1):
            pipeline.append((Signal(layout, name=f"beat_{n}"), Signal(name=f"valid_{n}")))
        (after, after_valid), (beat, valid) = pipeline[-2:]
        go = Signal()
        m.d.comb += go.eq(valid & (after_valid | beat.last))
        for (before, before_valid), (behind, behind_valid) in pairwise(pipeline):
            with m.If(before_valid):
                m.d.sync += behind.eq(before)
            if behind is not beat:
                m.d.sync += behind_valid.eq(before_valid)
        with m.If(after_valid | go):
            m.d.sync += valid.eq(after_valid)

        # --- Payload: as many words of the beat as its offset are not of this row, and as many of the next are. What
        # derives from the headers is decided while the beat comes.
        offset = Signal(range(lanes))
        filled = [s.carried or set(s.codes) & set(places.payload_codes) for s in places.sequences]  # have payload
        offsets = sorted({s.words % lanes for s, any_payload in zip(places.sequences, filled) if any_payload})
        started, started_now = Signal(), Signal()
        some, some_last = Signal(), Signal()  # the beat begins a row; and that is the last
        starts, more, ends = [], [], []
        for n in offsets:
            mine = [index for index, s in enumerate(places.sequences) if filled[index] and s.words % lanes == n]
            here = Cat(after.kinds[index] for index in mine).any()
            # Words of the packet besides payload in this beat and behind: those, and the ICRC.
            more.append(here & (after.left > n + 1))
            ends.append(here & (after.left <= n + 1 + lanes))
            starts += [after.kinds[index] & after.at[places.sequences[index].words // lanes] for index in mine]
            with m.If(after_valid & here):
                m.d.sync += offset.eq(n)
        m.d.comb += started_now.eq(Cat(starts).any() | (started & ~after.first))
        with m.If(after_valid):
            m.d.sync += [
                started.eq(started_now),
                some.eq(started_now & Cat(more).any()),
                some_last.eq(Cat(ends).any()),
            ]
        row, left = Signal(self.data_width), Signal(range(lanes + 1))
        m.d.comb += left.eq(beat.left - offset - 1)
        with m.Switch(offset):
            for n in offsets:
                with m.Case(n):
                    m.d.comb += row.eq(Cat(beat.data[n * 32 :], after.data[: n * 32]))

        # --- The verdict, one cycle later, and with it the last row: it waits in its register till the frame is over.
        bad_before, bad = Signal(3), Signal(3)
        icrc_good = Signal()
        m.d.comb += bad[:2].eq(Mux(beat.first, 0, bad_before[:2]) | Cat(beat.not_roce, beat.malformed))
        m.d.comb += bad[2].eq(~Mux(beat.ends, icrc.good, icrc_good) | beat.error)
        end, rows, push, row_last, row_some = Signal(), Signal(self.data_width), Signal(), Signal(), Signal()
        row_count = Signal(range(lanes * 4 + 1))
        original = Signal()  # the row is an atomic's original value, most significant byte first
        carried = [n for n, sequence in enumerate(places.sequences) if sequence.carried]
        m.d.sync += [end.eq(go & beat.last), push.eq(go & some)]
        with m.If(go):
            m.d.sync += [bad_before.eq(bad), row_some.eq(some | (row_some & ~beat.first))]
            with m.If(beat.ends):
                m.d.sync += icrc_good.eq(icrc.good)
            with m.If(some):
                m.d.sync += [
                    rows.eq(row),
                    row_last.eq(some_last),
                    row_count.eq(Mux(some_last, (left << 2) - beat.pad, lanes * 4)),
                    original.eq(Cat(beat.kinds[n] for n in carried).any() if carried else 0),
                ]
        good = ~bad_before.any()
        fields = self._capture(m, go, beat)
        # As many parts as the shortest frame leaves time for: it is 4 beats long at 128 bits, 2 at 256.
        m.submodules.headers = headers = Backlog(fields.shape(), self.headers, 1 if self.data_width > 128 else 2)
        open_row = Signal()  # some of this packet's rows are in the queue
        accept = Signal()
        m.d.comb += [
            queue.i.valid.eq((push & ~row_last) | (end & row_some)),
            queue.i.payload.data.eq(
                Cat(Mux(original, Cat(rows.word_select(n, 8) for n in reversed(range(8))), rows[:64]), rows[64:])
            ),
            queue.i.payload.count.eq(row_count),
            queue.i.payload.first.eq(~open_row),
            queue.i.payload.last.eq(end),
            queue.i.payload.error.eq(end & ~good),
            queue.refuse.eq(~headers.i.ready),
            accept.eq(end & good & headers.i.ready & (~row_some | queue.committed)),
            headers.i.valid.eq(accept),
            headers.i.payload.eq(fields),
            self.empty.eq(headers.empty & queue.empty),
            self.count_drop_not_roce.eq(end & bad_before[0]),
            self.count_drop_malformed.eq(end & ~bad_before[0] & bad_before[1]),
            self.count_drop_icrc.eq(end & (bad_before == 0b100)),
            self.count_drop_overflow.eq(end & good & ~accept),
            self.count_rx_packets.eq(accept),
        ]
        with m.If(end):
            m.d.sync += open_row.eq(0)
        with m.Elif(queue.i.valid):
            m.d.sync += open_row.eq(1)

        with m.If(accept):
            m.d.comb += self.count_rx_bytes.eq(fields.length)
        m.d.comb += [self.header.valid.eq(headers.o.valid), headers.o.ready.eq(self.header.ready)]
        self._header_fields(m, headers.o.payload)
        return m

    def _capture(self, m, go, beat):
        """Registers with the fields that the transport wants; complete in the cycle behind the packet's last beat.

        Extended headers are kept as the words at their place, where they share the registers; one that has several
        places, at the last.
        """
        places, lanes = self._map, self.data_width // 32
        several = len(places.maps) > 1
        addresses = {"source_ip": "source", "traffic_class": "traffic_class", "hop_limit": "hop_limit"}
        layout = {
            **({} if several else {name: HEADERS["ipv4"][field].width for name, field in addresses.items()}),
            "length": LENGTH_BITS,
            **{name: HEADERS["bth"][name].width for name in BTH},
        }
        sources = [] if several else [(name, "ipv4", field) for name, field in addresses.items()]
        sources += [(name, "bth", name) for name in BTH]
        if several:
            layout |= {
                "networks": len(places.maps),
                "tag": VlanTag,
                "group": 1,
                **{f"network_{word}": 32 for word in range(NETWORK_WORDS)},
            }
        words = {}  # register to word to kinds of packets
        for name, starts in places.extended().items():
            for start, kinds in starts.items():
                for index in range(HEADERS[name].size // 4):
                    register = words.setdefault(max(starts) + index, {})
                    register.setdefault(start + index, set()).update(kinds)
        layout.update({f"word_{register}": 32 for register in sorted(words)})

        fields = Signal(data.StructLayout(layout))
        with m.If(go):
            m.d.sync += fields.length.eq(beat.length)
        for target, header, name in sources:
            field = HEADERS[header][name]
            for map_, mine in zip(places.maps, beat.networks if several else [1]):
                number = (map_.start(header) * 32 + field.start) // self.data_width
                with m.If(go & beat.at[number] & mine):
                    base = map_.start(header) * 4 - number * lanes * 4
                    m.d.sync += fields[target].eq(wire_field(beat.data, field, base))
        if several:
            self._capture_network(m, go, beat, fields)
        for register, sources in words.items():
            for number, word in enumerate(sorted(sources)):
                # What the first place holds of other packets is overwritten or means nothing.
                here = Cat(beat.kinds[kind] for kind in sources[word]).any() if number else 1
                with m.If(go & beat.at[word // lanes] & here):
                    m.d.sync += fields[f"word_{register}"].eq(beat.data.word_select(word % lanes, 32))
        return fields

    def _capture_network(self, m, go, beat, fields):
        """The network headers, at the end of their registers: what one leaves free is 0."""
        lanes = self.data_width // 32
        with m.If(go & beat.first):
            m.d.sync += [fields.networks.eq(beat.networks), fields.tag.eq(beat.tag), fields.group.eq(beat.group)]
        sizes = [each.network_words for each in self._map.maps]
        for words in sorted(set(sizes)):
            mine = Cat(beat.networks[n] for n, size in enumerate(sizes) if size == words).any()
            for word in range(NETWORK_WORDS):
                register, place = fields[f"network_{word}"], word - (NETWORK_WORDS - words)
                with m.If(go & beat.at[max(0, place) // lanes] & mine):
                    m.d.sync += register.eq(beat.data.word_select(place % lanes, 32) if place >= 0 else 0)

    def _header_fields(self, m, fields):
        payload = self.header.payload
        if len(self.networks) > 1:
            raw = Cat(fields[f"network_{word}"] for word in range(NETWORK_WORDS))
            m.d.comb += [payload.network.eq(raw), payload.networks.eq(fields.networks), payload.tag.eq(fields.tag)]
            m.d.comb += payload.group.eq(fields.group)
            payload = payload.header
            v4 = raw[(NETWORK_WORDS * 4 - HEADERS["ipv4"].size) * 8 :]
            for name in ("traffic_class", "hop_limit"):
                either = (wire_field(v4, HEADERS["ipv4"][name]), wire_field(raw, HEADERS["ipv6"][name]))
                m.d.comb += payload[name].eq(Mux(fields.networks[0], *either))
            source = wire_field(raw, HEADERS["ipv6"]["source"])
            mapped = Cat(wire_field(v4, HEADERS["ipv4"]["source"]), Const(MAPPED, 96))
            m.d.comb += Cat(payload.source_ip, payload.source_high).eq(Mux(fields.networks[0], mapped, source))
        else:
            m.d.comb += [payload[name].eq(fields[name]) for name in ("source_ip", "traffic_class", "hop_limit")]
        transport = payload.transport
        m.d.comb += [transport[name].eq(fields[name]) for name in (*BTH, "length")]
        for name, starts in self._map.extended().items():
            header = HEADERS[name]
            raw = Cat(fields[f"word_{max(starts) + n}"] for n in range(header.size // 4))
            if name == "deth":
                continue  # it stands where the RETH's address does, and is read there
            for field in header.fields.values():
                name = RENAMED.get(field.name, field.name)
                record = transport if name in transport.shape().members else payload
                m.d.comb += record[name].eq(wire_field(raw, field))
