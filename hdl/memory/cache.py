"""A cache of records that stand in a table in host memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
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
    * neither, a miss: the cache reads the record, and the client, ``blocked`` meanwhile, must repeat the same lookup
      afterwards; ``blocked`` rises in *n + 4*, and before that the client must not ask. Only its own misses block a
      client: lookups of the others go on.

    Answers come straight from tag comparison: register them.

    Reads are answered in their order; each client has at most one under way. A record that is absent is not cached,
    so making it present needs no invalidation. Two clients that miss the same record both read it and fill two ways:
    one of the two answers, and an invalidation clears all ways of the index, so this does no harm. A fill goes to a
    way that is empty, else the ways take turns.

    While ``invalidate.valid`` is high no lookup is taken. It is accepted when all fills have arrived and the lines are
    cleared thereafter: no older record can come back. It takes 2 cycles for an index and ``sets + 1`` for all. After
    reset, all lines are cleared likewise before the first lookup is taken.

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
        ``sets`` is a power of two; ``index`` has its logarithm in bits.
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
        if ways < 1:
            raise ValueError(f"ways must be positive, not {ways!r}")
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
        row = data.StructLayout({"valid": 1, "tag": self.tag_width, "line": self.layout})
        rams = [Ram(row, self.sets) for _ in range(self.ways)]
        for way, ram in enumerate(rams):
            m.submodules[f"way{way}"] = ram

        clearing = Signal(init=1)
        write = Signal()  # a fill is complete in `buffer` and goes to its line

        # The lookup pipeline. No lookup starts in the cycle of a write: the row read might be the one written.
        valid1, valid2 = Signal(), Signal()
        client1, client2 = Signal(client_shape), Signal(client_shape)
        index1, index2 = Signal(index_bits), Signal(index_bits)
        tag2 = Signal(self.tag_width)
        absent = Signal(self.clients)  # the client's last read found nothing; its repeated lookup shall hear of it
        missed = Signal(self.clients)  # the client's next lookup repeats one
        absent2, missed2 = Signal(), Signal()
        m.d.comb += self.lookup.ready.eq(~clearing & ~write & ~self.invalidate.valid)
        m.d.comb += [ram.r_addr.eq(self.lookup.payload.index) for ram in rams]
        m.d.sync += [
            valid1.eq(self.lookup.valid & self.lookup.ready),
            client1.eq(self.lookup.payload.client),
            index1.eq(self.lookup.payload.index),
            valid2.eq(valid1 & ~self.drop),
            client2.eq(client1),
            index2.eq(index1),
            tag2.eq(self.tag),
            absent2.eq(absent.bit_select(client1, 1)),
            missed2.eq(missed.bit_select(client1, 1)),
        ]

        matches = Signal(self.ways)
        m.d.comb += [matches[way].eq(ram.r_data.valid & (ram.r_data.tag == tag2)) for way, ram in enumerate(rams)]
        line = rams[0].r_data.line.as_value()
        for way in range(1, self.ways):
            line = Mux(matches[way], rams[way].r_data.line.as_value(), line)
        answer = self.answer
        miss = Signal()
        m.d.comb += [
            self.line.as_value().eq(line),
            answer.valid.eq(valid2),
            answer.client.eq(client2),
            answer.hit.eq(matches.any()),
            answer.absent.eq(absent2),
            miss.eq(valid2 & ~answer.hit & ~answer.absent),
        ]
        # What a miss sets off begins a cycle later: the comparison takes most of this one.
        valid3, miss3 = Signal(), Signal()
        client3 = Signal(client_shape)
        m.d.sync += [valid3.eq(valid2), miss3.eq(miss), client3.eq(client2)]
        m.d.sync += self.count_hit.eq(valid2 & answer.hit & ~missed2)
        m.d.comb += self.count_miss.eq(miss3)
        with m.If(valid2):
            m.d.sync += absent.bit_select(client2, 1).eq(0)
        with m.If(valid3):
            m.d.sync += missed.bit_select(client3, 1).eq(miss3)

        # What each client waits for. One read port serves both the read request and, with precedence, the fill.
        turn = Signal(range(max(2, self.ways)))
        victim = Signal.like(turn)
        m.d.comb += victim.eq(turn)
        for way in reversed(range(self.ways)):
            with m.If(~rams[way].r_data.valid):
                m.d.comb += victim.eq(way)
        with m.If(miss3):
            m.d.sync += turn.eq(Mux(turn == self.ways - 1, 0, turn + 1))
        miss_layout = data.StructLayout({"index": index_bits, "tag": self.tag_width, "way": len(turn)})
        m.submodules.misses = misses = memory.Memory(shape=miss_layout, depth=max(2, self.clients), init=[])
        miss_write, miss_read = misses.write_port(), misses.read_port(domain="comb")
        wanted = Signal(self.clients)
        oldest = Signal(client_shape)
        next_client = Signal(client_shape)
        for client in reversed(range(self.clients)):
            with m.If(wanted[client]):
                m.d.comb += next_client.eq(client)
        issue = Signal()
        m.d.comb += [
            miss_write.addr.eq(client2),
            miss_write.data.eq(Cat(index2, tag2, victim)),
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
        with m.If(write):
            m.d.sync += absent.bit_select(oldest, 1).eq(~found)

        # Clearing: one line or all.
        initial = Signal(init=1)
        clear_all = Signal(init=1)
        clear_index = Signal(index_bits)
        clear_last = Signal()
        m.d.comb += [
            clear_last.eq(clearing & (~clear_all | clear_index.all())),
            self.invalidate.ready.eq(clear_last & ~initial),
        ]
        with m.If(clearing):
            m.d.sync += clear_index.eq(clear_index + 1)
            with m.If(clear_last):
                m.d.sync += [clearing.eq(0), initial.eq(0)]
        with m.Elif(self.invalidate.valid & ~valid1 & ~valid2 & ~miss3 & ~self.blocked.any()):
            m.d.sync += [
                clearing.eq(1),
                clear_all.eq(self.invalidate.payload.all),
                clear_index.eq(Mux(self.invalidate.payload.all, 0, self.invalidate.payload.index)),
                # What was not there before may be there now.
                absent.eq(0),
            ]
        for way, ram in enumerate(rams):
            m.d.comb += [
                ram.w_addr.eq(Mux(clearing, clear_index, miss_read.data.index)),
                ram.w_data.valid.eq(~clearing),
                ram.w_data.tag.eq(miss_read.data.tag),
                ram.w_data.line.as_value().eq(Cat(filled[name] for name in self.layout.members)),
                ram.w_en.eq(clearing | (write & found & (miss_read.data.way == way))),
            ]
        return m
