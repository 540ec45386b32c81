"""First half of the access check: is the key good for this access, and which page entries does it need."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.tables import KEY_INDEX_BITS, MPT, AccessStatus
from ..stream.packet import PacketBeat
from ..stream.transfer import LENGTH_BITS, AccessRequest, ReadRequest
from .cache import Cache

__all__ = ["PAGE_BITS_MAX", "PAGE_BITS_MIN", "CheckedAccess", "Protection"]

PAGE_BITS_MIN = 12
PAGE_BITS_MAX = 30
"""Logarithms of the smallest and the largest page."""


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
    length, quiet, discard, clear, tag, last, qp
        As in ``AccessRequest``.
    cross : 1
        The access ends in the page behind its first one.
    lookup : 1
        It needs translation: it is neither unchecked nor refused.
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
                "status": 3,
                "quiet": 1,
                "discard": 1,
                "clear": 1,
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
    unchecked. ``length`` is at most 4096 and at most ``span``, and an entry's ``log_page_size`` is 12 to 30.

    The two clients share one pipeline, in which nothing waits; each has its order kept, and one client's miss does
    not delay the other. ``o`` is valid 4 cycles after the request (hits), and a client is served every 4 cycles. A
    request is taken only when its entry is found, and until then it is looked up anew after each invalidation.

    Parameters
    ----------
    data_width : int
        Of ``fill``.
    qps : int
    sets, ways : int
        Of the cache.

    Members
    -------
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
        As of the cache: accepted when the entry is out of it. No request is taken in that cycle: those taken before may
        have seen the entry, those taken later have not.
    count_hit, count_miss : 1
        Strobes.
    """

    def __init__(self, data_width, qps, *, sets=256, ways=2):
        if qps < 1 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, not {qps!r}")
        self.data_width = data_width
        self.qps = qps
        self.sets = sets
        self.ways = ways
        self._cache = Cache(
            MPT, "valid", data_width=data_width, tag_width=KEY_INDEX_BITS - ceil_log2(sets), sets=sets, ways=ways
        )
        super().__init__(
            {
                "request": In(stream.Signature(AccessRequest)).array(2),
                "o": Out(stream.Signature(CheckedAccess(qps))),
                "room": In(2),
                "mpt_base": In(64),
                "mpt_log_size": In(5),
                "read": Out(stream.Signature(ReadRequest)),
                "fill": In(stream.Signature(PacketBeat(data_width))),
                "invalidate": In(stream.Signature(data.StructLayout({"index": KEY_INDEX_BITS}))),
                "count_hit": Out(1),
                "count_miss": Out(1),
            }
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
            self.count_hit.eq(cache.count_hit),
            self.count_miss.eq(cache.count_miss),
        ]
        request = [port.payload for port in self.request]

        # Stage 0: one client starts. Its request stays at the port until stage 3.
        busy = Signal(2)
        favoured = Signal()  # goes first if both want to
        client0 = Signal()
        want = Signal(2)
        m.d.comb += [
            want.eq(Cat(port.valid for port in self.request) & self.room & ~busy & ~cache.blocked),
            client0.eq(Mux(favoured, want[1], ~want[0])),
            cache.lookup.valid.eq(want.any()),
            cache.lookup.payload.client.eq(client0),
            cache.lookup.payload.index.eq(Mux(client0, request[1].key[8:], request[0].key[8:])),
        ]
        start = cache.lookup.valid & cache.lookup.ready
        valid1, client1 = Signal(), Signal()
        m.d.sync += [valid1.eq(start), client1.eq(client0)]
        with m.If(start):
            m.d.sync += [busy.bit_select(client0, 1).eq(1), favoured.eq(~client0)]

        # Stage 1: the rest of the key. What needs no entry must not be read from memory.
        beyond = Signal(KEY_INDEX_BITS)  # bits of an index that must be 0
        m.d.sync += beyond.eq(Cat(self.mpt_log_size <= bit for bit in range(KEY_INDEX_BITS)))
        index = Mux(client1, request[1].key[8:], request[0].key[8:])
        length = Mux(client1, request[1].length, request[0].length)
        unchecked = (length == 0) | Mux(client1, request[1].discard, request[0].discard)
        outside = (index & beyond).any()
        m.d.comb += [cache.tag.eq(index[index_bits:]), cache.drop.eq(unchecked | outside)]
        valid2, client2, unchecked2, dropped2 = Signal(), Signal(), Signal(), Signal()
        m.d.sync += [valid2.eq(valid1), client2.eq(client1), unchecked2.eq(unchecked), dropped2.eq(cache.drop)]

        # Stage 2: the cache answers. After a miss the client is blocked, and then starts again.
        over3, valid3, client3, unchecked3, found3 = Signal(), Signal(), Signal(), Signal(), Signal()
        entry = Signal(cache.layout)
        decided = dropped2 | cache.answer.hit | cache.answer.absent
        m.d.sync += [
            over3.eq(valid2),
            valid3.eq(valid2 & decided),
            client3.eq(client2),
            unchecked3.eq(unchecked2),
            found3.eq(~dropped2 & cache.answer.hit & ~cache.answer.absent),
            entry.eq(cache.line),
        ]

        # Stage 3: the request is taken; compare what is short, subtract what is long.
        taken = Signal(AccessRequest)
        m.d.comb += taken.eq(Mux(client3, request[1].as_value(), request[0].as_value()))
        m.d.comb += [port.ready.eq(valid3 & (client3 == client)) for client, port in enumerate(self.request)]
        with m.If(over3):
            m.d.sync += busy.bit_select(client3, 1).eq(0)
        in_page = Cat(entry.log_page_size[:5] > bit for bit in range(PAGE_BITS_MIN, PAGE_BITS_MAX))
        in_page_bits = Cat(Const(-1, PAGE_BITS_MIN), in_page)
        first_page = Cat(entry.address[:PAGE_BITS_MAX] & ~in_page_bits, entry.address[PAGE_BITS_MAX:])
        valid4 = Signal()
        checked = Signal(CheckedAccess(self.qps))
        key_bad, pd_bad, rights_bad, top = Signal(), Signal(), Signal(), Signal()
        from_start = Signal(65)  # of the region; negative if before it
        from_page = Signal(49)  # of the region's first page; 49 bits are enough if the access is in the region
        slack = Signal(49)  # largest `from_start` that leaves room for the span; negative if none
        end = Signal(14)  # of the access, counted from the 4 KiB boundary below it
        page_mask = Signal(PAGE_BITS_MAX - PAGE_BITS_MIN)
        m.d.sync += [
            valid4.eq(valid3),
            key_bad.eq(~found3 | (entry.variant != taken.key[:8])),
            pd_bad.eq(entry.pd != taken.pd),
            rights_bad.eq((taken.access & ~entry.access[:5]).any()),
            from_start.eq(taken.address - entry.address),
            from_page.eq(taken.address[:49] - first_page[:49]),
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
            checked.quiet.eq(taken.quiet),
            checked.discard.eq(taken.discard),
            checked.clear.eq(taken.clear),
            checked.tag.eq(taken.tag),
            checked.last.eq(taken.last),
            checked.qp.eq(taken.qp),
        ]

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
        with m.Elif(pd_bad):
            m.d.comb += status.eq(AccessStatus.PD)
        with m.Elif(rights_bad):
            m.d.comb += status.eq(AccessStatus.RIGHTS)
        with m.Elif(range_bad):
            m.d.comb += status.eq(AccessStatus.RANGE)
        refused = Signal()
        m.d.comb += refused.eq(checked.lookup & (key_bad | pd_bad | rights_bad | range_bad))
        good = checked.lookup & ~refused
        m.d.comb += [
            self.o.valid.eq(valid4),
            self.o.payload.eq(checked),
            self.o.payload.page.eq(from_page[PAGE_BITS_MIN:] >> (checked.page_bits - PAGE_BITS_MIN)[:5]),
            self.o.payload.status.eq(Mux(checked.quiet & refused, AccessStatus.POISONED, status)),
            self.o.payload.lookup.eq(good),
            self.o.payload.cross.eq(good & over & (checked.offset[PAGE_BITS_MIN:] | ~page_mask).all()),
        ]
        return m
