"""A cache of records that stand in a table in host memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.packet import PacketBeat
from ..stream.ram import Ram
from ..stream.record import record_layout
from ..stream.transfer import ReadRequest

__all__ = ["Cache"]


class Cache(wiring.Component):
    """Set-associative, read-only cache of ``record``; record number ``Cat(index, tag)`` stands at ``base`` plus its
    number times its size.

    Several clients share one lookup pipeline. A lookup is taken in cycle *n*, its ``tag`` follows in *n + 1*, and
    ``answer`` comes in *n + 2*, always: a lookup may start each cycle and never waits inside. A client has one lookup
    under way at a time. The answer is one of

    * ``hit``: ``line`` holds the record;
    * ``absent``, whatever ``hit``: there was no such record in the table, or the bus failed to read it;
    * neither: the client must repeat the same lookup, in *n + 4* at the earliest, and when it is not ``blocked``. That
      rises in *n + 4* if it is a miss, until the record has been read. Only its own misses block a client: lookups of
      the others go on.

    The ways of a set stand one behind the other in the same block RAM. A lookup looks into one way, that in which the
    client found its record the last time; if it is not there, the repeated lookup looks into the other, and only then
    it is a miss. So block RAM and comparators are those of one way, and a client pays only when it changes between
    records of different ways.

    Answers come straight from tag comparison: register them.

    Reads are answered in their order; each client has at most one under way. A record that is absent is not cached,
    so making it present needs no invalidation. Two clients that miss the same record both read it and fill two ways:
    one of the two answers, and an invalidation clears all ways of the index, so this does no harm. A fill goes to a
    way that is empty, else the ways take turns.

    An invalidation of an ``index`` is accepted when its lines are cleared: no older record can come back. Until then no
    lookup is taken, which is 6 cycles at most, and one more for each fill that arrives. Reads under way do not delay
    it: their records may be older, so they are thrown away, and the clients read again.

    An invalidation of ``all`` is accepted when each line that was there when it began is cleared. It takes a cycle of
    every 4, or of 5 when a fill arrives in it, and lookups go on in the others. What is looked up meanwhile may be
    older, so it is for records that are no longer looked up. After reset, all lines are cleared before the first lookup
    is taken, one a cycle.

    Parameters
    ----------
    record : Record
        From :mod:`verbena.hdl.abi`; its size is a power of two.
    present : str
        The field of 1 bit that says that the record exists.
    data_width : int
        Of ``fill``.
    tag_width : int
        Bits of a record's number beyond those of its index.
    sets, ways : int
        ``sets`` is a power of two; ``index`` has its logarithm in bits. ``ways`` is 1 or 2.
    clients : int

    Members
    -------
    lookup : stream of ``client`` and ``index``
    tag, drop
        In the cycle after ``lookup`` was taken: the rest of the number; ``drop`` calls the lookup off, and its
        answer is void.
    answer : ``valid``, ``client``, ``hit``, ``absent``
        2 cycles after ``lookup`` was taken.
    line
        All fields of the record but ``present``.
    blocked : a bit a client
        Its miss is under way.
    base : 64
        Bus address of record 0.
    read : stream of ``ReadRequest``
    fill : stream of ``PacketBeat``
        A packet a read. Always ready. ``error`` makes the record absent.
    invalidate : stream of ``all`` and ``index``
    count_hit, count_miss : 1
        Strobes. A lookup that is repeated after a miss does not count as a hit.
    """

    def __init__(self, record, present, *, data_width, tag_width, sets=128, ways=2, clients=2):
        if record.size & record.size - 1:
            raise ValueError(f"size of the record must be a power of two, not {record.size!r}")
        if present not in record.fields or record.fields[present].width != 1:
            raise ValueError(f"present must name a field of 1 bit of record {record.name!r}, not {present!r}")
        if sets < 2 or sets & sets - 1:
            raise ValueError(f"sets must be a power of two, at least 2, not {sets!r}")
        if ways not in (1, 2):
            raise ValueError(f"ways must be 1 or 2, not {ways!r}")
        if clients < 1:
            raise ValueError(f"clients must be positive, not {clients!r}")
        self.record = record
        self.present = present
        self.data_width = data_width
        self.tag_width = tag_width
        self.sets = sets
        self.ways = ways
        self.clients = clients
        self.layout = data.StructLayout({f.name: f.width for f in record.fields.values() if f.name != present})
        client = range(max(2, clients))
        index = range(sets)
        super().__init__(
            {
                "lookup": In(stream.Signature(data.StructLayout({"client": client, "index": index}))),
                "tag": In(tag_width),
                "drop": In(1),
                "answer": Out(data.StructLayout({"valid": 1, "client": client, "hit": 1, "absent": 1})),
                "line": Out(self.layout),
                "blocked": Out(clients),
                "base": In(64),
                "read": Out(stream.Signature(ReadRequest)),
                "fill": In(stream.Signature(PacketBeat(data_width))),
                "invalidate": In(stream.Signature(data.StructLayout({"all": 1, "index": index}))),
                "count_hit": Out(1),
                "count_miss": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        client_shape = range(max(2, self.clients))
        index_bits = ceil_log2(self.sets)
        way_bits = self.ways - 1
        row = data.StructLayout({"valid": 1, "tag": self.tag_width, "line": self.layout})
        m.submodules.ram = ram = Ram(row, self.sets * self.ways)

        clearing = Signal(init=1)
        write = Signal()  # a fill is complete in `buffer` and goes to its line

        # The lookup pipeline. No lookup starts in the cycle of a write: the row read might be the one written.
        valid1, valid2 = Signal(), Signal()
        client1, client2 = Signal(client_shape), Signal(client_shape)
        index1, index2 = Signal(index_bits), Signal(index_bits)
        tag2 = Signal(self.tag_width)
        way = Signal(self.clients)  # where the client looks next
        second = Signal(self.clients)  # its next lookup is for the other way of one that found nothing
        absent = Signal(self.clients)  # the client's last read found nothing; its repeated lookup shall hear of it
        missed = Signal(self.clients)  # the client's next lookup repeats one
        way1, way2, second2, absent2, missed2 = Signal(), Signal(), Signal(), Signal(), Signal()
        look = way.bit_select(self.lookup.payload.client, 1)
        initial = Signal(init=1)
        invalidate = self.invalidate
        clear = Signal()  # a line is cleared in this cycle
        m.d.comb += [
            self.lookup.ready.eq(~initial & ~clear & ~write & ~(invalidate.valid & ~invalidate.payload.all)),
            ram.r_addr.eq(Cat(self.lookup.payload.index, look[:way_bits])),
        ]
        m.d.sync += [
            valid1.eq(self.lookup.valid & self.lookup.ready),
            client1.eq(self.lookup.payload.client),
            index1.eq(self.lookup.payload.index),
            way1.eq(look),
            valid2.eq(valid1 & ~self.drop),
            client2.eq(client1),
            index2.eq(index1),
            way2.eq(way1),
            tag2.eq(self.tag),
            second2.eq(second.bit_select(client1, 1) if way_bits else 1),
            absent2.eq(absent.bit_select(client1, 1)),
            missed2.eq(missed.bit_select(client1, 1)),
        ]

        answer, here = self.answer, ram.r_data
        found2 = Signal()
        m.d.comb += [
            self.line.eq(here.line),
            answer.valid.eq(valid2),
            answer.client.eq(client2),
            answer.hit.eq(here.valid & (here.tag == tag2)),
            answer.absent.eq(absent2),
            found2.eq(answer.hit | answer.absent),
        ]
        # What a miss sets off begins a cycle later: the comparison takes most of this one.
        valid3, found3, second3 = Signal(), Signal(), Signal()
        absent3, missed3, empty3 = Signal(), Signal(), Signal()
        client3 = Signal(client_shape)
        miss3, again3 = Signal(), Signal()
        m.d.sync += [
            valid3.eq(valid2),
            found3.eq(found2),
            second3.eq(second2),
            absent3.eq(absent2),
            missed3.eq(missed2),
            empty3.eq(~here.valid),
            client3.eq(client2),
        ]
        m.d.comb += [
            miss3.eq(valid3 & ~found3 & second3),
            again3.eq(valid3 & ~found3 & ~second3),
            self.count_miss.eq(miss3),
            self.count_hit.eq(valid3 & found3 & ~absent3 & ~missed3),
        ]
        spare = Signal(self.clients)  # the first way that the client looked into was empty
        with m.If(valid3):
            m.d.sync += [
                absent.bit_select(client3, 1).eq(0),
                second.bit_select(client3, 1).eq(again3),
                spare.bit_select(client3, 1).eq(again3 & empty3),
            ]
            with m.If(~again3):
                m.d.sync += missed.bit_select(client3, 1).eq(miss3)
        with m.If(again3):
            m.d.sync += way.bit_select(client3, 1).eq(~way.bit_select(client3, 1))

        # What each client waits for. One read port serves both the read request and, with precedence, the fill.
        turn = Signal()
        with m.If(miss3):
            m.d.sync += turn.eq(~turn)
        miss_layout = data.StructLayout({"index": index_bits, "tag": self.tag_width})
        m.submodules.misses = misses = memory.Memory(shape=miss_layout, depth=max(2, self.clients), init=[])
        miss_write, miss_read = misses.write_port(), misses.read_port(domain="comb")
        victim = Signal(self.clients)  # the way that the client's record goes to
        here3 = way.bit_select(client3, 1)  # where it looked in vain, at last
        with m.If(miss3):
            # The way looked into first, if it is empty: so what is filled in succession is found in succession.
            first_was_empty = spare.bit_select(client3, 1)
            m.d.sync += victim.bit_select(client3, 1).eq(Mux(first_was_empty, ~here3, Mux(empty3, here3, turn)))
        wanted = Signal(self.clients)
        oldest = Signal(client_shape)
        next_client = Signal(client_shape)
        for client in reversed(range(self.clients)):
            with m.If(wanted[client]):
                m.d.comb += next_client.eq(client)
        issue = Signal()
        m.d.comb += [
            miss_write.addr.eq(client2),
            miss_write.data.eq(Cat(index2, tag2)),
            miss_write.en.eq(valid2),  # in vain on a hit, but known early; a client that waits looks nothing up
            miss_read.addr.eq(Mux(write, oldest, next_client)),
            issue.eq(wanted.any() & (~self.read.valid | self.read.ready) & ~write),
        ]
        number = Cat(miss_read.data.index, miss_read.data.tag)
        with m.If(self.read.ready):
            m.d.sync += self.read.valid.eq(0)
        with m.If(issue):
            m.d.sync += [
                self.read.valid.eq(1),
                self.read.payload.address.eq(self.base + (number << ceil_log2(self.record.size))),
                wanted.bit_select(next_client, 1).eq(0),
            ]
        m.d.comb += self.read.payload.length.eq(self.record.size)

        # Clients in the order of their reads.
        places = max(2, self.clients)
        order = Signal(data.ArrayLayout(client_shape, places))
        head, tail = Signal(client_shape), Signal(client_shape)
        m.d.comb += oldest.eq(order[head])
        with m.If(issue):
            m.d.sync += [order[tail].eq(next_client), tail.eq(Mux(tail == places - 1, 0, tail + 1))]
        with m.If(write):
            m.d.sync += head.eq(Mux(head == places - 1, 0, head + 1))

        beats = max(1, self.record.size * 8 // self.data_width)
        buffer = Signal(beats * self.data_width)
        filled = data.View(record_layout(self.record), buffer[: self.record.size * 8])
        error = Signal()
        found = Signal()
        m.d.comb += [self.fill.ready.eq(1), found.eq(filled[self.present] & ~error)]
        m.d.sync += write.eq(self.fill.valid & self.fill.payload.last)
        with m.If(self.fill.valid):
            m.d.sync += [
                buffer.eq(Cat(buffer, self.fill.payload.data)[self.data_width :]),
                error.eq(self.fill.payload.error),
            ]
        for client in range(self.clients):
            with m.If(miss3 & (client3 == client)):
                m.d.sync += [self.blocked[client].eq(1), wanted[client].eq(1)]
            with m.Elif(write & (oldest == client)):
                m.d.sync += self.blocked[client].eq(0)
        filled_way = victim.bit_select(oldest, 1)
        spoiled = Signal(self.clients)  # the client's read began before an invalidation
        fresh = ~spoiled.bit_select(oldest, 1)
        with m.If(write):
            m.d.sync += [
                absent.bit_select(oldest, 1).eq(~found & fresh),
                way.bit_select(oldest, 1).eq(filled_way),
                spoiled.bit_select(oldest, 1).eq(0),
            ]

        # Clearing: the lines of one index, or all. A set's ways one after the other, then the next set.
        pace = Signal(2)
        clear_row = Signal(range(self.sets * self.ways))
        clear_index, clear_way = clear_row[:index_bits], clear_row[-1] if way_bits else Const(1)
        everything = invalidate.payload.all
        clear_last = Signal()
        with m.If((pace != 0) | ~write):  # a fill in the cycle of a clear delays it by one
            m.d.sync += pace.eq(pace + 1)
        m.d.comb += [
            clear.eq(clearing & ~write & (initial | ~everything | (pace == 0))),
            clear_last.eq(clear & (~(initial | everything) | clear_index.all()) & clear_way),
            invalidate.ready.eq(clear_last & ~initial),
        ]
        with m.If(clear):
            m.d.sync += clear_row.eq(Cat((clear_index + clear_way)[:index_bits], ~clear_way))
        with m.If(clear_last):
            m.d.sync += [clearing.eq(0), initial.eq(0)]
        with m.If(~clearing & invalidate.valid & (everything | ~(valid1 | valid2 | valid3))):
            m.d.sync += [clearing.eq(1), clear_row.eq(Mux(everything, 0, invalidate.payload.index))]
            with m.If(~everything):
                # What was not there before may be there now.
                m.d.sync += absent.eq(0)
                for client in range(self.clients):
                    m.d.sync += spoiled[client].eq(self.blocked[client] & ~(write & (oldest == client)))
        m.d.comb += [
            ram.w_addr.eq(Mux(clear, clear_row, Cat(miss_read.data.index, filled_way[:way_bits]))),
            ram.w_data.valid.eq(~clear),
            ram.w_data.tag.eq(miss_read.data.tag),
            ram.w_data.line.as_value().eq(Cat(filled[name] for name in self.layout.members)),
            ram.w_en.eq(clear | (write & found & fresh)),
        ]
        return m
