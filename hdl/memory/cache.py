"""A cache of records that stand in a table in host memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.packet import PacketBeat
from ..stream.ram import Ram
from ..stream.record import record_layout
from ..stream.transfer import ReadRequest

__all__ = ["CLIENTS", "LUT_RAM_ROWS", "Cache"]

CLIENTS = 2
"""Whose accesses are looked up: transmit and receive."""

LUT_RAM_ROWS = 16
"""Rows that LUT RAM has at least, on an ECP5: as many reads under way cost no more than fewer."""


class Cache(wiring.Component):
    """Read-only cache of ``record`` with two ways and several reads under way. Record number ``Cat(index, tag)``
    stands at ``base`` plus its number times its size.

    The clients share one lookup pipeline, in which nothing waits. A lookup is taken in cycle *n*, at most one every two
    cycles, and its ``tag`` follows in *n + 1*. The ways of a set stand one behind the other in the same block RAM: in
    *n + 2* comes the ``answer`` from the way in which the client found its record the last time, and in *n + 3*, if the
    record was not there, that from the other one. ``over`` follows a cycle after the last answer. Answers come straight
    from the comparison of tags: register them.

    A lookup that finds nothing queues a read. ``reads`` may be under way, answered in their order. A client has at most
    one ``demand`` lookup's read at a time, which always has room; for other lookups, *prefetches*, there may be none.
    They queue no read, either, if the client's last one, which is on its way, was for the same set: most likely, for
    this record.

    An answer is written to its line at once: to a way that was empty, else the ways take turns. So a lookup that
    follows finds it, unless another record of the set has come in between. A record that is absent is not cached, so
    making it present needs no invalidation. A record that is read twice at the same time may come to stand in both
    ways; one of the two answers, and an invalidation clears both. A row that is written in the cycle in which it is
    looked at holds nothing that can be used: such a lookup finds nothing, and queues no read.

    An invalidation of an ``index`` is accepted when its lines are cleared: no older record can come back. Until then no
    lookup is taken, which is 8 cycles at most, and one more for each answer that arrives. Reads under way do not delay
    it: their records may be older, so they are thrown away. With ``replaces`` a record may come in the place of the old
    one: it is found from then on. It stands in host memory before anybody reads it there.

    An invalidation of ``all`` is accepted when each line that was there when it began is cleared, one a cycle, or, in
    a cycle in which an answer is written, none. Lookups go on. What is looked up meanwhile may be older, so it is for
    records that are no longer looked up. After reset, all lines are cleared before the first lookup is taken.

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
    sets : int
        A power of two; ``index`` has its logarithm in bits. Each has two ways.
    reads : int
        Reads under way, of both clients; a power of two, at least 4.
    omit : iterable of str
        Fields that nobody needs.
    replaces : bool
        An invalidation of an index may bring a record.

    Members
    -------
    lookup : stream of ``client``, ``index`` and ``demand``
    tag, drop
        In the cycle after ``lookup`` was taken: the rest of the number; ``drop`` says that no record is needed: the
        lookup is over as if it had been found.
    answer : ``valid``, ``client``, ``demand``, ``hit``, ``found``
        2 cycles after ``lookup`` was taken, and perhaps again a cycle later. ``hit``: ``line`` holds the record;
        ``found``: it does, or the lookup is dropped.
    line
        All fields of the record but ``present`` and those of ``omit``.
    over : ``valid``, ``client``, ``demand``, ``found``, ``reads``, ``again``
        A cycle after a lookup's last answer. ``reads``: it has queued a read; ``again``: it has not, for lack of room,
        or because the row was being written.
    answered : ``valid``, ``client``, ``demand``, ``absent``
        A read is answered, and its line is written; it can be looked up in the next cycle. ``absent``: there is no
        such record, or the bus failed to read it.
    forget : 1
        Strobe: an invalidation of an index begins. No lookup is under way, and what was absent may be there now.
    base : 64
        Bus address of record 0.
    read : stream of ``ReadRequest``
        Its address is added up behind a register.
    fill : stream of ``PacketBeat``
        A packet a read. Always ready. ``error`` makes the record absent.
    invalidate : stream of ``all`` and ``index``
        With ``replaces`` also ``put``, ``tag`` and ``line``: this record comes. Not together with ``all``.
    hold : 1
        With ``replaces``: no further read is asked for.
    """

    def __init__(self, record, present, *, data_width, tag_width, sets=128, reads=8, omit=(), replaces=False):
        if record.size & record.size - 1:
            raise ValueError(f"size of the record must be a power of two, not {record.size!r}")
        if present not in record.fields or record.fields[present].width != 1:
            raise ValueError(f"present must name a field of 1 bit of record {record.name!r}, not {present!r}")
        if sets < 2 or sets & sets - 1:
            raise ValueError(f"sets must be a power of two, at least 2, not {sets!r}")
        if reads < 4 or reads & reads - 1:
            raise ValueError(f"reads must be a power of two, at least 4, not {reads!r}")
        self.record = record
        self.present = present
        self.data_width = data_width
        self.tag_width = tag_width
        self.sets = sets
        self.reads = reads
        self.replaces = replaces
        kept = [f for f in record.fields.values() if f.name != present and f.name not in omit]
        self.layout = data.StructLayout({f.name: f.width for f in kept})
        index = range(sets)
        comes = {"put": 1, "tag": tag_width, "line": self.layout} if replaces else {}
        super().__init__(
            {
                "lookup": In(stream.Signature(data.StructLayout({"client": 1, "index": index, "demand": 1}))),
                "tag": In(tag_width),
                "drop": In(1),
                "answer": Out(data.StructLayout({"valid": 1, "client": 1, "demand": 1, "hit": 1, "found": 1})),
                "line": Out(self.layout),
                "over": Out(
                    data.StructLayout({"valid": 1, "client": 1, "demand": 1, "found": 1, "reads": 1, "again": 1})
                ),
                "answered": Out(data.StructLayout({"valid": 1, "client": 1, "demand": 1, "absent": 1})),
                "forget": Out(1),
                "base": In(64),
                "read": Out(stream.Signature(ReadRequest)),
                "fill": In(stream.Signature(PacketBeat(data_width))),
                "invalidate": In(stream.Signature(data.StructLayout({"all": 1, "index": index, **comes}))),
            }
            | ({"hold": In(1)} if replaces else {})
        )

    def elaborate(self, platform):
        m = Module()
        index_bits = ceil_log2(self.sets)
        row = data.StructLayout({"valid": 1, "tag": self.tag_width, "line": self.layout})
        m.submodules.ram = ram = Ram(row, 2 * self.sets)

        # Reads under way, in their order: not asked for yet from `asked` on.
        wanted = data.StructLayout({"index": index_bits, "tag": self.tag_width, "way": 1, "client": 1, "demand": 1})
        m.submodules.queue = queue = memory.Memory(shape=wanted, depth=self.reads, init=[])
        put, get = queue.write_port(), queue.read_port(domain="comb")
        tail, asked, head = (Signal(range(2 * self.reads), name=name) for name in ("tail", "asked", "head"))
        under_way = (tail - head)[: len(tail)]
        # A read is queued every second cycle at most: when one is, both know of the one before.
        crowded, full = Signal(), Signal()  # no prefetch has room; nothing has
        write = Signal()  # an answer is complete in `buffer`
        oldest = get.data  # while `write`

        # The lookup pipeline: stages 1 and 2 of the first way looked into; the second follows a cycle behind.
        lookup, invalidate = self.lookup, self.invalidate
        initial = Signal(init=1)
        holds = Signal()  # an index is invalidated: no lookup starts
        valid1, valid2, second2, valid3 = (Signal(name=name) for name in ("valid1", "valid2", "second2", "valid3"))
        client1, client2, demand1, demand2, way1, way2 = (
            Signal(name=name) for name in ("client1", "client2", "demand1", "demand2", "way1", "way2")
        )
        index1, index2 = Signal(index_bits), Signal(index_bits)
        tag2, drop2 = Signal(self.tag_width), Signal()
        some1, some2 = Signal(), Signal()  # a read was under way
        recent = Signal(CLIENTS)  # the way in which the client found its last record
        way0 = recent.bit_select(lookup.payload.client, 1)
        start = lookup.valid & lookup.ready
        m.d.comb += [
            lookup.ready.eq(~initial & ~valid1 & ~holds),
            ram.r_addr.eq(Mux(valid1, Cat(index1, ~way1), Cat(lookup.payload.index, way0))),
        ]
        m.d.sync += [valid1.eq(start), valid2.eq(valid1), holds.eq(invalidate.valid & ~invalidate.payload.all)]
        with m.If(~valid1):
            m.d.sync += [
                client1.eq(lookup.payload.client),
                demand1.eq(lookup.payload.demand),
                index1.eq(lookup.payload.index),
                way1.eq(way0),
                some1.eq(tail != head),
            ]
        with m.If(valid1):
            m.d.sync += [
                client2.eq(client1),
                demand2.eq(demand1),
                index2.eq(index1),
                way2.eq(way1),
                tag2.eq(self.tag),
                drop2.eq(self.drop),
                some2.eq(some1),
            ]
        # A row that was written while it was read: compared a cycle later.
        written, w_addr1, undefined2 = Signal(), Signal.like(ram.w_addr), Signal()
        r_addr1 = Signal.like(ram.r_addr)
        m.d.sync += [
            written.eq(ram.w_en),
            w_addr1.eq(ram.w_addr),
            r_addr1.eq(ram.r_addr),
            undefined2.eq(written & (w_addr1 == r_addr1)),
        ]

        answer, here = self.answer, ram.r_data
        empty2 = ~here.valid & ~undefined2
        found2 = Signal()
        m.d.comb += [
            self.line.eq(here.line),
            answer.valid.eq(valid2 | second2),
            answer.client.eq(client2),
            answer.demand.eq(demand2),
            answer.hit.eq(here.valid & (here.tag == tag2) & ~undefined2),
            found2.eq(answer.hit | (valid2 & drop2)),
            answer.found.eq(found2),
        ]
        # What a miss sets off begins a cycle later: the comparison takes most of this one.
        over = self.over
        found3, demand3, undefined3, client3, way3 = (
            Signal(name=name) for name in ("found3", "demand3", "undefined3", "client3", "way3")
        )
        victim2, first_empty, turn = (Signal(name=name) for name in ("victim2", "first_empty", "turn"))
        same3, lacks3 = Signal(), Signal()
        index3 = Signal(index_bits)
        last = [Signal(index_bits, name=f"last{client}") for client in range(CLIENTS)]
        known = Signal(CLIENTS)  # the client's last read was for `last`
        m.d.comb += victim2.eq(Mux(first_empty, way2, Mux(empty2, ~way2, turn)))
        m.d.sync += [
            second2.eq(valid2 & ~found2),
            valid3.eq((valid2 & found2) | second2),
            found3.eq(found2),
            demand3.eq(demand2),
            client3.eq(client2),
            way3.eq(way2 ^ second2),
            undefined3.eq(undefined2 | (second2 & undefined3)),
            first_empty.eq(empty2),
            index3.eq(index2),
            same3.eq((index2 == Mux(client2, last[1], last[0])) & known.bit_select(client2, 1) & some2),
        ]
        m.d.comb += [
            over.valid.eq(valid3),
            over.client.eq(client3),
            over.demand.eq(demand3),
            over.found.eq(found3),
            lacks3.eq(undefined3 | (~demand3 & crowded)),
            over.reads.eq(valid3 & ~found3 & ~lacks3 & (demand3 | ~same3)),
            over.again.eq(~found3 & lacks3),
            put.addr.eq(tail),
            put.data.eq(Cat(index2, tag2, victim2, client2, demand2)),
            put.en.eq(second2 & ~full),  # in vain on a hit, but known early
        ]
        m.d.sync += [
            crowded.eq(under_way >= self.reads - CLIENTS),
            full.eq(Mux(over.reads, under_way == self.reads - 1, under_way == self.reads)),
        ]
        with m.If(over.reads):
            m.d.sync += [tail.eq(tail + 1), turn.eq(~turn), known.bit_select(client3, 1).eq(1)]
            for client in range(CLIENTS):
                with m.If(client3 == client):
                    m.d.sync += last[client].eq(index3)
        with m.If(valid3 & found3):
            m.d.sync += recent.bit_select(client3, 1).eq(way3)

        # Reads are asked for. One read port serves both this and, with precedence, what is written.
        ask = Signal()
        hold = self.hold if self.replaces else 0
        number = Signal(index_bits + self.tag_width)
        m.d.comb += [
            get.addr.eq(Mux(write, head, asked)),
            ask.eq((asked != tail) & (~self.read.valid | self.read.ready) & ~write & ~hold),
            self.read.payload.address.eq(self.base + (number << ceil_log2(self.record.size))),
            self.read.payload.length.eq(self.record.size),
        ]
        with m.If(self.read.ready):
            m.d.sync += self.read.valid.eq(0)
        with m.If(ask):
            m.d.sync += [self.read.valid.eq(1), number.eq(Cat(get.data.index, get.data.tag)), asked.eq(asked + 1)]

        # Answers.
        beats = max(1, self.record.size * 8 // self.data_width)
        buffer = Signal(beats * self.data_width)
        filled = data.View(record_layout(self.record), buffer[: self.record.size * 8])
        error, found, fresh = Signal(), Signal(), Signal()
        stale = Signal(range(self.reads + 1))  # how many of the oldest reads began before an invalidation
        m.d.comb += [self.fill.ready.eq(1), found.eq(filled[self.present] & ~error), fresh.eq(stale == 0)]
        m.d.sync += write.eq(self.fill.valid & self.fill.payload.last)
        with m.If(self.fill.valid):
            m.d.sync += [
                buffer.eq(Cat(buffer, self.fill.payload.data)[self.data_width :]),
                error.eq(self.fill.payload.error),
            ]
        with m.If(write):
            m.d.sync += head.eq(head + 1)
            with m.If(~fresh):
                m.d.sync += stale.eq(stale - 1)
            with m.If(found & fresh):
                m.d.sync += recent.bit_select(oldest.client, 1).eq(oldest.way)
        m.d.comb += [
            self.answered.valid.eq(write),
            self.answered.client.eq(oldest.client),
            self.answered.demand.eq(oldest.demand),
            self.answered.absent.eq(~found & fresh),
        ]

        # Clearing: the lines of one index, or all. A set's ways one after the other, then the next set.
        everything = invalidate.payload.all
        clearing, clear, clear_last = Signal(init=1), Signal(), Signal()
        clear_row = Signal(range(2 * self.sets))
        clear_index, clear_way = clear_row[:index_bits], clear_row[-1]
        m.d.comb += [
            clear.eq(clearing & ~write),
            clear_last.eq(clear & (~(initial | everything) | clear_index.all()) & clear_way),
            invalidate.ready.eq(clear_last & ~initial),
        ]
        with m.If(clear):
            m.d.sync += clear_row.eq(Cat((clear_index + clear_way)[:index_bits], ~clear_way))
        with m.If(clear_last):
            m.d.sync += [clearing.eq(0), initial.eq(0)]
        empty = holds & ~(valid1 | valid2 | second2 | valid3)
        with m.If(~clearing & invalidate.valid & (everything | empty)):
            m.d.sync += [clearing.eq(1), clear_row.eq(Mux(everything, 0, invalidate.payload.index))]
            with m.If(~everything):
                m.d.sync += [stale.eq(under_way - write), known.eq(0)]
                m.d.comb += self.forget.eq(1)
        m.d.comb += [
            ram.w_addr.eq(Mux(clear, clear_row, Cat(oldest.index, oldest.way))),
            ram.w_data.valid.eq(~clear),
            ram.w_data.tag.eq(oldest.tag),
            ram.w_data.line.as_value().eq(Cat(filled[name] for name in self.layout.members)),
            ram.w_en.eq(clear | (write & found & fresh)),
        ]
        if self.replaces:
            with m.If(~write):
                m.d.comb += [
                    ram.w_data.valid.eq(invalidate.valid & invalidate.payload.put & clear_way & ~initial),
                    ram.w_data.tag.eq(invalidate.payload.tag),
                    ram.w_data.line.eq(invalidate.payload.line),
                ]
        return m
