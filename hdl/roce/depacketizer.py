"""From frames on the wire to what they say to the transport."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.packet import PacketBeat
from ..stream.queue import PacketQueue
from ..stream.transfer import LENGTH_BITS
from .ethernet_header import EthernetStrip
from .headers import ENCAPSULATIONS, HEADERS
from .icrc import Icrc
from .layout import PacketMap, wire_field
from .opcodes import SUPPORTED
from .packet_header import ReceiveHeader
from .parser import PacketParser, parsed_layout

__all__ = ["Depacketizer"]


class Depacketizer(wiring.Component):
    """Takes RoCEv2/IPv4 frames apart, and lets through only whole, well-formed ones with a right ICRC.

    Takes a beat each cycle, always. A good packet's header comes out 5 or 6 cycles after its last beat went in at 64
    bits (2 more at wider ones), its payload a few cycles later; both only when the packet is known to be good, and both
    or neither. Whatever came in, the next packet is not affected.

    A dropped frame is counted once, for the first of these that is true: it is not for this engine; it contradicts
    itself; its ICRC is wrong or it is damaged on the wire (``error``); there is no room. Filling behind the IP packet
    is ignored.

    Parameters
    ----------
    data_width : int
    depth : int
        Bytes of the payload buffer; a power of two. One packet of 4096 bytes must fit.
    headers : int
        Packets whose headers can wait; a power of two. They stand in LUT RAM.
    opcodes : iterable of int
        What is accepted; each with extended headers of the flat layout only.

    Members
    -------
    mac, ip : 48, 32
        Own addresses, as numbers. A frame to another address, also to a group, is not for this engine.
    i : stream of ``PacketBeat(data_width)``
        Frames with Ethernet header and ICRC, without FCS. ``ready`` is always 1.
    header : stream of ``ReceiveHeader``
    payload : stream of ``PacketBeat(data_width)``
        One packet of ``header.transport.length`` bytes a header, without pad; no beat if that is 0. ``error`` is never
        set. May be taken before its header.
    empty : 1
        Nothing waits in the two queues.
    count_rx_packets, count_rx_bytes : 1, 13
        A packet is accepted, and the bytes of its payload.
    count_drop_not_roce, count_drop_malformed, count_drop_icrc, count_drop_overflow : 1
    """

    def __init__(self, data_width, *, depth=16384, headers=16, opcodes=SUPPORTED):
        self.data_width = data_width
        self.depth = depth
        self.headers = headers
        self.opcodes = frozenset(opcodes)
        self.encapsulation = ENCAPSULATIONS["RoCEv2/IPv4"]
        self._map = PacketMap(self.encapsulation, self.opcodes)
        if not isinstance(depth, int) or depth < 8192 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, at least 8192, not {depth!r}")
        if not isinstance(headers, int) or headers < 2 or headers & headers - 1:
            raise ValueError(f"headers must be a power of two, at least 2, not {headers!r}")
        super().__init__(
            {
                "mac": In(48),
                "ip": In(32),
                "i": In(stream.Signature(PacketBeat(data_width))),
                "header": Out(stream.Signature(ReceiveHeader)),
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
        m.submodules.strip = strip = EthernetStrip(self.data_width, self.encapsulation.ethertype)
        m.submodules.parser = parser = PacketParser(self.data_width, places)
        m.submodules.icrc = icrc = Icrc(self.data_width)
        m.submodules.queue = queue = PacketQueue(self.data_width, self.depth * 8 // self.data_width)
        wiring.connect(m, wiring.flipped(self.i), strip.i)
        wiring.connect(m, queue.o, wiring.flipped(self.payload))
        m.d.comb += [
            strip.mac.eq(self.mac),
            parser.ip.eq(self.ip),
            parser.i.eq(strip.o),
            parser.i_valid.eq(strip.o_valid),
            icrc.advance.eq(1),
            icrc.valid.eq(parser.o_valid),
            icrc.first.eq(parser.o.first),
            icrc.data.eq(parser.masked),
            icrc.words.eq(parser.o.words),
        ]

        # --- A beat waits until the next one completes it as payload; meanwhile the ICRC goes through its stages.
        layout = parsed_layout(self.data_width, places)
        pipeline = [(parser.o, parser.o_valid)]
        for n in range(icrc.state_latency):
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

        # --- Payload: `offset` words of the beat are not of this row, and as many of the next are.
        offset = Signal(range(lanes))
        started, started_before = Signal(), Signal()
        starts = []
        row = Signal(self.data_width)
        for index, sequence in enumerate(places.sequences):
            starts.append(beat.kinds[index] & beat.at[sequence.words // lanes])
            with m.If(beat.kinds[index]):
                m.d.comb += offset.eq(sequence.words % lanes)
        with m.Switch(offset):
            for n in sorted({sequence.words % lanes for sequence in places.sequences}):
                with m.Case(n):
                    m.d.comb += row.eq(Cat(beat.data[n * 32 :], after.data[: n * 32]))
        other = offset + 1  # words besides payload: those, and the ICRC
        some = Signal()
        m.d.comb += [
            started.eq(Cat(starts).any() | (started_before & ~beat.first)),
            some.eq(started & (beat.left > other)),
        ]
        with m.If(go):
            m.d.sync += started_before.eq(started)

        # --- The verdict, one cycle later, and with it the last row: it waits in its register till the frame is over.
        bad_before, bad = Signal(3), Signal(3)
        icrc_good = Signal()
        m.d.comb += bad[:2].eq(Mux(beat.first, 0, bad_before[:2]) | Cat(beat.not_roce, beat.malformed))
        m.d.comb += bad[2].eq(~Mux(beat.ends, icrc.good, icrc_good) | beat.error)
        end, rows, push, row_last, row_some = Signal(), Signal(self.data_width), Signal(), Signal(), Signal()
        row_count = Signal(range(lanes * 4 + 1))
        m.d.sync += [end.eq(go & beat.last), push.eq(go & some)]
        with m.If(go):
            m.d.sync += [bad_before.eq(bad), row_some.eq(some | (row_some & ~beat.first))]
            with m.If(beat.ends):
                m.d.sync += icrc_good.eq(icrc.good)
            with m.If(some):
                m.d.sync += [
                    rows.eq(row),
                    row_last.eq(beat.left <= other + lanes),
                    row_count.eq(Mux(beat.left <= other + lanes, ((beat.left - other) << 2) - beat.pad, lanes * 4)),
                ]
        good = ~bad_before.any()
        header_room = Signal()
        open_row = Signal()  # some of this packet's rows are in the queue
        accept = Signal()
        m.d.comb += [
            queue.i.valid.eq((push & ~row_last) | (end & row_some)),
            queue.i.payload.data.eq(rows),
            queue.i.payload.count.eq(row_count),
            queue.i.payload.first.eq(~open_row),
            queue.i.payload.last.eq(end),
            queue.i.payload.error.eq(end & ~good),
            queue.refuse.eq(~header_room),
            accept.eq(end & good & header_room & (~row_some | queue.committed)),
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

        fields = self._capture(m, go, beat)
        with m.If(accept):
            m.d.comb += self.count_rx_bytes.eq(fields.length)
        self._header_queue(m, accept, fields, header_room, queue.empty)
        return m

    def _capture(self, m, go, beat):
        """Registers with the fields that the transport wants; complete in the cycle behind the packet's last beat.

        Extended headers are kept as the words at their place, where they share the registers; one that has several
        places has registers of its own.
        """
        places, lanes = self._map, self.data_width // 32
        layout = {"source_ip": 32, "ecn": 2, "length": LENGTH_BITS}
        bth = ["opcode", "solicited", "becn", "pkey", "dest_qpn", "ack_request", "psn"]
        layout.update({name: HEADERS["bth"][name].width for name in bth})
        sources = [("source_ip", "ipv4", "source"), ("ecn", "ipv4", "traffic_class")]
        sources += [(name, "bth", name) for name in bth]
        words = []  # (field, word, index in field, condition)
        for name, starts in places.extended().items():
            size = HEADERS[name].size // 4
            for place, (start, sequences) in enumerate(starts.items()):
                for index in range(size):
                    if len(starts) == 1:
                        layout[f"word_{start + index}"] = 32
                        words.append((f"word_{start + index}", start + index, 0, 1))
                    else:
                        layout[name] = size * 32
                        condition = Cat(beat.kinds[n] for n in sequences).any() if place else 1
                        words.append((name, start + index, index, condition))

        fields = Signal(data.StructLayout(layout))
        with m.If(go):
            m.d.sync += fields.length.eq(beat.length)
        for target, header, name in sources:
            field = HEADERS[header][name]
            number = (places.start(header) * 32 + field.start) // self.data_width
            with m.If(go & beat.at[number]):
                base = places.start(header) * 4 - number * lanes * 4
                m.d.sync += fields[target].eq(wire_field(beat.data, field, base))
        for target, word, index, condition in words:
            with m.If(go & beat.at[word // lanes] & condition):
                m.d.sync += fields[target].word_select(index, 32).eq(beat.data.word_select(word % lanes, 32))
        return fields

    def _header_queue(self, m, accept, fields, room, payload_empty):
        layout = fields.shape()
        m.submodules.headers = rows = memory.Memory(shape=Value.cast(fields).shape(), depth=self.headers, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        head, tail = Signal(ceil_log2(self.headers) + 1), Signal(ceil_log2(self.headers) + 1)
        level = Signal.like(head)
        out = data.View(layout, read.data)
        taken = self.header.valid & self.header.ready
        m.d.comb += [
            level.eq(tail - head),
            room.eq(~level[-1]),
            write.addr.eq(tail),
            write.data.eq(fields),
            write.en.eq(accept),
            read.addr.eq(head),
            self.header.valid.eq(level != 0),
            self.empty.eq((level == 0) & payload_empty),
        ]
        m.d.sync += [tail.eq(tail + accept), head.eq(head + taken)]
        payload = self.header.payload
        m.d.comb += [payload.source_ip.eq(out.source_ip), payload.ecn.eq(out.ecn)]
        for name in ("opcode", "solicited", "becn", "pkey", "dest_qpn", "ack_request", "psn", "length"):
            m.d.comb += payload.transport[name].eq(out[name])
        for name, starts in self._map.extended().items():
            header = HEADERS[name]
            (start, *more) = starts
            raw = out[name] if more else Cat(out[f"word_{start + n}"] for n in range(header.size // 4))
            for field in header.fields.values():
                m.d.comb += payload.transport[field.name].eq(wire_field(raw, field))
