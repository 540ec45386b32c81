"""First half of the access check: is the key good for this access, and which page entries does it need."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.tables import KEY_INDEX_BITS, MPT, AccessStatus, KeyKind
from ..stream.packet import PacketBeat
from ..stream.record import record_layout
from ..stream.transfer import LENGTH_BITS, PAGE_BITS_MAX, AccessRequest, AttributeWrite, ReadRequest
from .cache import CLIENTS, LUT_RAM_ROWS, Cache
from .lookahead import Lookahead
from .qp_numbers import QpNumbers

__all__ = ["PAGE_BITS_MIN", "CheckedAccess", "Protection"]

PAGE_BITS_MIN = 12
"""Logarithm of the smallest page."""


_Key = data.StructLayout({"index": KEY_INDEX_BITS, "unchecked": 1})
"""What a lookup needs of a request."""


class CheckedAccess(data.StructLayout):
    """An access after the key check.

    Members
    -------
    client : 1
    mtt_address : 61
        Bits 63:3 of the bus address of the region's first MTT entry.
    page : 37
        Number of the access's first page in its region.
    offset : 30
        Low bits of the virtual address.
    page_bits : 5
        12 to 30.
    length, quiet, discard, clear, fresh, tag, last, qp
        As in ``AccessRequest``.
    cross : 1
        The access ends in the page behind its first one.
    lookup : 1
        It needs translation: it is neither unchecked nor refused.
    physical : 1
        ``mtt_address + page`` is the number of a page on the bus, not that of an MTT entry.
    status : ``AccessStatus``
        OK, KEY, PD, RIGHTS or RANGE; POISONED in place of the last four if ``quiet``.
    """

    def __init__(self, qps):
        super().__init__(
            {
                "client": 1,
                "mtt_address": 61,
                "page": 49 - PAGE_BITS_MIN,
                "offset": PAGE_BITS_MAX,
                "page_bits": 5,
                "length": LENGTH_BITS,
                "cross": 1,
                "lookup": 1,
                "physical": 1,
                "status": 3,
                "quiet": 1,
                "discard": 1,
                "clear": 1,
                "fresh": 1,
                "tag": 1,
                "last": 1,
                "qp": max(1, ceil_log2(qps)),
            }
        )


class Protection(wiring.Component):
    """Finds the MPT entry of each access in its :class:`.cache.Cache`, and checks the access against it.

    Checks, the first that fails gives ``status``: key index in the table, entry valid and variant equal (KEY); PD
    (PD); rights wanted are granted, none always are (RIGHTS); the ``span`` bytes from the address on lie in the region,
    and the ``length`` bytes do not wrap around 2^64 (RANGE). An access of length 0 or with ``discard`` passes
    unchecked. ``length`` is at most 4096 and at most ``span``, and an entry's ``log_page_size`` is 12 to 30. With
    ``windows``: an entry that is bound to a QP is of another PD for all others (PD), and a window grants rights to
    peers only, so local reads are not (RIGHTS).

    The two clients share one pipeline, in which nothing waits. Each has a queue of its own
    (:class:`.lookahead.Lookahead`), in which its order is kept and its misses overlap. ``o`` is valid 5 cycles after
    the request was taken if nothing waits and the entry is found (6, if the client has found its last one in the other
    way), and a client is served every 4 cycles. ``ready`` is a register's: a request is taken a cycle after it came if
    it was the other client that had the last one.

    Parameters
    ----------
    data_width : int
        Of ``fill``.
    qps : int
    sets : int
        Of the cache.
    waiting : int
        Accesses of a client that wait for their entries, and reads of entries under way; a power of two, at least 4.
    physical : bool
        Entries may say so; otherwise none does.
    windows : bool
        Entries may be memory windows; otherwise none is.

    Members
    -------
    attribute : ``AttributeWrite`` with ``attribute_en``
        With ``windows``: the broadcast to QPs, for their numbers.
    hold : 1
        With ``windows``: as of the cache.
    request : 2 streams of ``AccessRequest``
    o : stream of ``CheckedAccess``
        ``ready`` is not looked at; see ``room``.
    room : a bit a client
        ``o`` will take two more accesses of the client.
    mpt_base, mpt_log_size
        The table.
    read, fill
        Reads of MPT entries, and their data.
    invalidate : stream of ``index``
        As of the cache: accepted when the entry is out of it. What came out of ``o`` before may have seen the entry,
        what comes later has not; in that cycle nothing does. With ``windows`` also ``entry``: if that is valid, it
        comes in place of the old one.
    count_hit, count_miss : 1
        Strobes: an access found its entry without a read for it; a read was made.
    """

    def __init__(self, data_width, qps, *, sets=256, waiting=8, physical=False, windows=False):
        if qps < 1 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, not {qps!r}")
        self.data_width = data_width
        self.qps = qps
        self.sets = sets
        self.waiting = waiting
        self.reads = max(LUT_RAM_ROWS, waiting)
        self.physical = physical
        self.windows = windows
        self._cache = Cache(
            MPT,
            "valid",
            data_width=data_width,
            tag_width=KEY_INDEX_BITS - ceil_log2(sets),
            sets=sets,
            reads=self.reads,
            omit=() if windows else ("kind", "pages_or_qpn"),  # no access depends on them
            replaces=windows,
        )
        self._queues = [Lookahead(waiting) for _ in range(CLIENTS)]
        comes = {"entry": record_layout(MPT)} if windows else {}
        super().__init__(
            {
                "request": In(stream.Signature(AccessRequest)).array(CLIENTS),
                "o": Out(stream.Signature(CheckedAccess(qps))),
                "room": In(CLIENTS),
                "mpt_base": In(64),
                "mpt_log_size": In(5),
                "read": Out(stream.Signature(ReadRequest)),
                "fill": In(stream.Signature(PacketBeat(data_width))),
                "invalidate": In(stream.Signature(data.StructLayout({"index": KEY_INDEX_BITS, **comes}))),
                "count_hit": Out(1),
                "count_miss": Out(1),
            }
            | ({"attribute": In(AttributeWrite), "attribute_en": In(1), "hold": In(1)} if windows else {})
        )

    def elaborate(self, platform):
        m = Module()
        index_bits = ceil_log2(self.sets)
        m.submodules.cache = cache = self._cache
        wiring.connect(m, wiring.flipped(self.read), cache.read)
        wiring.connect(m, wiring.flipped(self.fill), cache.fill)
        m.d.comb += [
            cache.base.eq(self.mpt_base),
            cache.invalidate.valid.eq(self.invalidate.valid),
            cache.invalidate.payload.index.eq(self.invalidate.payload.index[:index_bits]),
            self.invalidate.ready.eq(cache.invalidate.ready),
        ]
        if self.windows:
            comes = self.invalidate.payload.entry
            m.d.comb += [
                cache.hold.eq(self.hold),
                cache.invalidate.payload.put.eq(comes.valid),
                cache.invalidate.payload.tag.eq(self.invalidate.payload.index[index_bits:]),
                *(cache.invalidate.payload.line[name].eq(comes[name]) for name in cache.layout.members),
            ]

        # A request goes to a row of its client: what a lookup needs, and what the check needs. Whose request is taken
        # is decided a cycle before.
        queues = self._queues
        m.submodules.keys = keys = memory.Memory(shape=_Key, depth=CLIENTS * self.waiting, init=[])
        m.submodules.rest = rest = memory.Memory(shape=AccessRequest, depth=CLIENTS * self.waiting, init=[])
        put_key, get_key = keys.write_port(), keys.read_port(domain="comb")
        put_rest, get_rest = rest.write_port(), rest.read_port(domain="comb")
        grant = Signal()
        here = Cat(port.valid & queue.room for port, queue in zip(self.request, queues, strict=True))
        with m.If(here.bit_select(~grant, 1)):
            m.d.sync += grant.eq(~grant)
        request = Signal(AccessRequest)
        m.d.comb += [
            request.eq(Mux(grant, self.request[1].payload.as_value(), self.request[0].payload.as_value())),
            put_rest.addr.eq(Cat(Mux(grant, queues[1].tail, queues[0].tail), grant)),
            put_rest.data.eq(request),
            put_rest.en.eq(here.bit_select(grant, 1)),
            put_key.addr.eq(put_rest.addr),
            put_key.data.index.eq(request.key[8:]),
            put_key.data.unchecked.eq((request.length == 0) | request.discard),
            put_key.en.eq(put_rest.en),
        ]
        for client, (port, queue) in enumerate(zip(self.request, queues, strict=True)):
            m.d.comb += [port.ready.eq(queue.room & (grant == client)), queue.put.eq(port.valid & port.ready)]

        # Stage 0: the client whose turn it is starts. Whose turn it is, is decided a cycle before.
        turn = Signal()
        row0, row1 = Signal(range(self.waiting)), Signal(range(self.waiting))
        valid1, client1, demand1 = Signal(), Signal(), Signal()
        key0, key1 = get_key.data, Signal(_Key)
        can = Cat(queue.can for queue in queues)
        pending = Cat(queue.pending | queue.put for queue in queues)
        m.d.comb += [
            row0.eq(Mux(turn, queues[1].row, queues[0].row)),
            get_key.addr.eq(Cat(row0, turn)),
            cache.lookup.valid.eq(can.bit_select(turn, 1)),
            cache.lookup.payload.client.eq(turn),
            cache.lookup.payload.demand.eq(Mux(turn, queues[1].demand, queues[0].demand)),
            cache.lookup.payload.index.eq(key0.index),
        ]
        start = cache.lookup.valid & cache.lookup.ready
        with m.If((start | ~can.bit_select(turn, 1)) & pending.bit_select(~turn, 1)):
            m.d.sync += turn.eq(~turn)
        m.d.sync += valid1.eq(start)
        with m.If(~valid1):
            m.d.sync += [
                client1.eq(turn),
                row1.eq(row0),
                key1.eq(key0),
                demand1.eq(cache.lookup.payload.demand),
            ]
        for client, queue in enumerate(queues):
            m.submodules[f"queue{client}"] = queue
            m.d.comb += [
                queue.free.eq(self.room[client]),
                queue.start.eq(start & (turn == client)),
            ]
            queue.hear(m, cache, client)

        # Stage 1: the rest of the key. What needs no entry must not be read from memory.
        beyond = Signal(KEY_INDEX_BITS)  # bits of an index that must be 0
        m.d.sync += beyond.eq(Cat(self.mpt_log_size <= bit for bit in range(KEY_INDEX_BITS)))
        unchecked2, dropped2, row2 = Signal(), Signal(), Signal.like(row1)
        absent = demand1 & Mux(client1, queues[1].absent, queues[0].absent)
        m.d.comb += [
            cache.tag.eq(key1.index[index_bits:]),
            cache.drop.eq(key1.unchecked | (key1.index & beyond).any() | absent),
        ]
        with m.If(valid1):
            m.d.sync += [unchecked2.eq(key1.unchecked), dropped2.eq(cache.drop), row2.eq(row1)]

        # Stage 2: the cache answers.
        valid3, client3, unchecked3, found3, row3 = Signal(), Signal(), Signal(), Signal(), Signal.like(row1)
        entry = Signal(cache.layout)
        line_mask = Cat(cache.line.log_page_size[:5] > bit for bit in range(PAGE_BITS_MIN, PAGE_BITS_MAX))
        in_page = Signal(PAGE_BITS_MAX - PAGE_BITS_MIN)
        first_page = Signal(PAGE_BITS_MAX - PAGE_BITS_MIN)  # of the region's address, the bits in its place
        m.d.sync += [
            in_page.eq(line_mask),
            first_page.eq(cache.line.address[PAGE_BITS_MIN:PAGE_BITS_MAX] & ~line_mask),
            valid3.eq(cache.answer.valid & cache.answer.demand & cache.answer.found),
            client3.eq(cache.answer.client),
            unchecked3.eq(unchecked2),
            found3.eq(cache.answer.hit & ~dropped2),
            row3.eq(row2),
            entry.eq(cache.line),
        ]

        # Stage 3: the access leaves its queue; compare what is short, subtract what is long.
        taken = get_rest.data
        had_read = Mux(client3, queues[1].had_read, queues[0].had_read)
        m.d.comb += [
            get_rest.addr.eq(Cat(row3, client3)),
            self.count_hit.eq(valid3 & found3 & ~had_read),
            self.count_miss.eq(cache.over.reads),
        ]
        valid4 = Signal()
        checked = Signal(CheckedAccess(self.qps))
        key_bad, pd_bad, rights_bad, top = Signal(), Signal(), Signal(), Signal()
        from_start = Signal(65)  # of the region; negative if before it
        from_page = Signal(49 - PAGE_BITS_MIN)  # of the region's first page, in 4 KiB; 49 bits are enough if the
        # access is in the region
        slack = Signal(49)  # largest `from_start` that leaves room for the span; negative if none
        end = Signal(14)  # of the access, counted from the 4 KiB boundary below it
        page_mask = Signal(PAGE_BITS_MAX - PAGE_BITS_MIN)
        shift = Signal(5)
        m.d.sync += [
            valid4.eq(valid3),
            key_bad.eq(~found3 | (entry.variant != taken.key[:8])),
            pd_bad.eq(entry.pd != taken.pd),
            rights_bad.eq((taken.access & ~entry.access[:5]).any()),
            from_start.eq(taken.address - entry.address),
            from_page.eq(taken.address[PAGE_BITS_MIN:49] - Cat(first_page, entry.address[PAGE_BITS_MAX:49])),
            shift.eq(entry.log_page_size[:5] - PAGE_BITS_MIN),
            slack.eq(entry.length - taken.span),
            end.eq(taken.address[:PAGE_BITS_MIN] + taken.length),
            top.eq(taken.address[PAGE_BITS_MIN:].all()),
            page_mask.eq(in_page),
            checked.client.eq(client3),
            checked.mtt_address.eq(entry.mtt_address[3:]),
            checked.offset.eq(taken.address),
            checked.page_bits.eq(entry.log_page_size),
            checked.length.eq(taken.length),
            checked.lookup.eq(~unchecked3),
            checked.physical.eq(entry.physical if self.physical else 0),
            checked.quiet.eq(taken.quiet),
            checked.discard.eq(taken.discard),
            checked.clear.eq(taken.clear),
            checked.fresh.eq(taken.fresh),
            checked.tag.eq(taken.tag),
            checked.last.eq(taken.last),
            checked.qp.eq(taken.qp),
        ]

        wrong_qp = self._windows(m, entry, taken, rights_bad) if self.windows else 0

        # Stage 4: compare what is long, shift.
        over = end[12:].any() & (end[13] | end[:12].any())  # beyond the next 4 KiB boundary
        range_bad = (
            from_start[48:].any() | slack[48] | (from_start[:48] > slack[:48]) | (over & top)  # the last: wraps around
        )
        status = Signal(AccessStatus)
        with m.If(~checked.lookup):
            m.d.comb += status.eq(AccessStatus.OK)
        with m.Elif(key_bad):
            m.d.comb += status.eq(AccessStatus.KEY)
        with m.Elif(pd_bad | wrong_qp):
            m.d.comb += status.eq(AccessStatus.PD)
        with m.Elif(rights_bad):
            m.d.comb += status.eq(AccessStatus.RIGHTS)
        with m.Elif(range_bad):
            m.d.comb += status.eq(AccessStatus.RANGE)
        refused = Signal()
        m.d.comb += refused.eq(checked.lookup & (key_bad | pd_bad | wrong_qp | rights_bad | range_bad))
        good = checked.lookup & ~refused
        m.d.comb += [
            self.o.valid.eq(valid4),
            self.o.payload.eq(checked),
            self.o.payload.page.eq(from_page >> shift),
            self.o.payload.status.eq(Mux(checked.quiet & refused, AccessStatus.POISONED, status)),
            self.o.payload.lookup.eq(good),
            self.o.payload.cross.eq(good & over & (checked.offset[PAGE_BITS_MIN:] | ~page_mask).all()),
        ]
        return m

    def _windows(self, m, entry, taken, rights_bad):
        """Stage 3 of what is particular to windows; returns, in stage 4, 1 if it is bound to another QP. The number is
        read with what the access's queue says, so its bits are compared here and put together there."""
        m.submodules.numbers = numbers = QpNumbers(self.qps)
        of_qp, differs = Signal(), Signal.like(entry.pages_or_qpn)
        m.d.comb += [
            numbers.attribute.eq(self.attribute),
            numbers.attribute_en.eq(self.attribute_en),
            numbers.qp.eq(taken.qp),
        ]
        is_window = (entry.kind == KeyKind.WINDOW) | (entry.kind == KeyKind.WINDOW_2)
        m.d.sync += [
            of_qp.eq(entry.kind == KeyKind.WINDOW_2),
            differs.eq(entry.pages_or_qpn ^ numbers.qpn),
            rights_bad.eq((taken.access & ~entry.access[:5]).any() | (is_window & (taken.access == 0))),
        ]
        return of_qp & differs.any()
