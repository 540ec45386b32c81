"""Second half of the access check: virtual addresses become bus addresses, runs get their verdict."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.tables import MTT, AccessStatus
from ..stream.lut_fifo import LutFifo
from ..stream.packet import PacketBeat
from ..stream.transfer import PAGE_BITS_MAX, Piece, ReadRequest
from .cache import CLIENTS, LUT_RAM_ROWS, Cache
from .lookahead import Lookahead
from .mpt import PAGE_BITS_MIN, CheckedAccess

__all__ = ["RECEIVE", "TRANSMIT", "Translation", "Verdict"]

TRANSMIT, RECEIVE = 0, 1
"""The clients."""

Verdict = data.StructLayout({"status": 3})
"""``AccessStatus`` of a run."""


class Translation(wiring.Component):
    """Finds the MTT entry of each page of an access in its :class:`.cache.Cache`, and makes pieces.

    An access that crosses a page boundary becomes two pieces, any other one. The page of a ``physical`` access has no
    entry: where that would stand is the page's number itself. A page that is not present fails with
    PAGE. The first access of a run that is not OK makes the run fail and poisons its QP for the client: all its later
    runs fail with POISONED, until an access with ``clear``, or one with ``fresh``, which is checked as if nothing had
    been refused before. A refused access with ``quiet`` makes its run
    fail with POISONED, and poisons nobody.

    A failed run, on transmit, ends in one piece of length 0 with ``status`` and ``last``, when its last access comes;
    pieces of its accesses before the refused one are out by then. On receive the refused access, or what of it lies
    behind its good first page, and the rest of the run become discards of the same lengths (two of an access that
    crosses a page boundary), and the piece with ``last`` carries ``status``. The verdict of a run on transmit comes 1
    cycle after its last piece.

    The two clients share one pipeline. Each has a queue of its own (:class:`.lookahead.Lookahead`), in which its order
    is kept and its misses overlap; so one client's miss, or a piece or verdict not taken, does not delay the other.
    ``piece`` is valid 4 cycles after the access if nothing waits and the entry is found (5, if the client has found its
    last one in the other way), and a client gets a piece every 4 cycles.

    Parameters
    ----------
    data_width : int
        Of ``fill``.
    qps : int
    sets : int
        Of the cache.
    waiting : int
        Accesses of a client that wait for their pages, and reads of MTT entries under way; a power of two, at least 4.
    verdicts : int
        Verdicts that wait for the transmitter, a power of two: pieces run that many packets ahead of it.
    physical : bool
        There are regions that are contiguous on the bus: their pages are not looked up.
    renew : bool
        When all entries are invalidated the misses of the accesses that wait overlap, too. ``waiting`` is at least 8.

    Members
    -------
    i : stream of ``CheckedAccess``
        Always ready; the sender looks at ``room``.
    room : a bit a client
        Two more accesses of the client can come.
    piece : 2 streams of ``Piece``
    verdict : stream of ``Verdict``
    read, fill
        Reads of MTT entries, and their data.
    invalidate : stream
        As of the cache: accepted when all entries are out that were there when it began; accesses go on meanwhile.
    count_hit, count_miss, count_error : 1
        Strobes: a piece found its entry without a read for it; a read was made; a run was refused for its own sake (not
        for poison), once a run.
    """

    def __init__(self, data_width, qps, *, sets=256, waiting=16, verdicts=16, physical=False, renew=False):
        if qps < 1 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, not {qps!r}")
        if verdicts < 2 or verdicts & verdicts - 1:
            raise ValueError(f"verdicts must be a power of two, at least 2, not {verdicts!r}")
        if renew and 2 * waiting < LUT_RAM_ROWS:
            raise ValueError(f"waiting must be at least {LUT_RAM_ROWS // 2} with renew, not {waiting!r}")
        self.data_width = data_width
        self.qps = qps
        self.verdicts = verdicts
        self.sets = sets
        self.waiting = waiting
        self.reads = max(LUT_RAM_ROWS, waiting)
        self.physical = physical
        tag_width = 61 - ceil_log2(sets)
        self._cache = Cache(MTT, "present", data_width=data_width, tag_width=tag_width, sets=sets, reads=self.reads)
        self._queues = [Lookahead(waiting, parts=2, margin=1, renew=renew) for _ in range(CLIENTS)]
        super().__init__(
            {
                "i": In(stream.Signature(CheckedAccess(qps))),
                "room": Out(CLIENTS),
                "piece": Out(stream.Signature(Piece)).array(CLIENTS),
                "verdict": Out(stream.Signature(Verdict)),
                "read": Out(stream.Signature(ReadRequest)),
                "fill": In(stream.Signature(PacketBeat(data_width))),
                "invalidate": In(stream.Signature(0)),
                "count_hit": Out(1),
                "count_miss": Out(1),
                "count_error": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        layout = CheckedAccess(self.qps)
        index_bits, qp_bits = ceil_log2(self.sets), ceil_log2(self.qps)
        m.submodules.cache = cache = self._cache
        wiring.connect(m, wiring.flipped(self.read), cache.read)
        wiring.connect(m, wiring.flipped(self.fill), cache.fill)
        m.d.comb += [
            cache.invalidate.valid.eq(self.invalidate.valid),
            cache.invalidate.payload.all.eq(1),
            self.invalidate.ready.eq(cache.invalidate.ready),
        ]

        # A queue a client, each with a memory. Of an entry's number, the index of its set is added up before it waits.
        queues = self._queues
        i = self.i.payload
        row = data.StructLayout(
            {
                **{name: field.shape for name, field in layout if name not in ("client", "mtt_address", "page")},
                "low": index_bits + 1,
                "mtt_high": len(i.mtt_address) - index_bits,
                "page_high": len(i.page) - index_bits,
            }
        )
        put_row = Signal(row)
        m.d.comb += [
            self.i.ready.eq(1),
            self.room.eq(Cat(queue.room for queue in queues)),
            *(put_row[name].eq(i[name]) for name, _ in layout if name in row.members),
            put_row.low.eq(i.mtt_address[:index_bits] + i.page[:index_bits]),
            put_row.mtt_high.eq(i.mtt_address[index_bits:]),
            put_row.page_high.eq(i.page[index_bits:]),
        ]
        oldest = []
        for client, queue in enumerate(queues):
            m.submodules[f"waiting{client}"] = waiting = memory.Memory(shape=row, depth=self.waiting, init=[])
            put, get = waiting.write_port(), waiting.read_port(domain="comb")
            m.d.comb += [put.addr.eq(queue.tail), put.data.eq(put_row), put.en.eq(queue.put), get.addr.eq(queue.row)]
            oldest.append(get.data.as_value())
        for client, queue in enumerate(queues):
            m.submodules[f"queue{client}"] = queue
            m.d.comb += [
                queue.put.eq(self.i.valid & (i.client == client)),
            ]
            queue.hear(m, cache, client)

        m.submodules.poisoned = poisoned = memory.Memory(shape=1, depth=2 * self.qps, init=[])
        poison_put, poison_get = poisoned.write_port(), poisoned.read_port()
        poison_clear = Signal(range(2 * self.qps + 1))  # after reset, nobody is poisoned
        cleared = poison_clear[-1]
        with m.If(~cleared):
            m.d.sync += poison_clear.eq(poison_clear + 1)

        # Stage 0: the client whose turn it is starts. Whose turn it is, is decided a cycle before: reading the memory
        # and adding take the whole cycle.
        turn = Signal()
        valid1 = Signal()
        first, access1, client1 = Signal(row), Signal(row), Signal()
        second1, carry1, demand1 = Signal(), Signal(), Signal()
        can = Cat(queue.can for queue in queues)
        pending = Cat(queue.pending | queue.put for queue in queues)
        m.d.comb += [
            cache.lookup.valid.eq(can.bit_select(turn, 1) & cleared),
            first.eq(Mux(turn, oldest[1], oldest[0])),
        ]
        start = cache.lookup.valid & cache.lookup.ready
        with m.If((start | ~can.bit_select(turn, 1)) & pending.bit_select(~turn, 1)):
            m.d.sync += turn.eq(~turn)
        m.d.comb += [queue.start.eq(start & (turn == client)) for client, queue in enumerate(queues)]
        second0 = Mux(turn, queues[1].part, queues[0].part)
        low = Signal(index_bits + 1)
        m.d.comb += [
            low.eq(first.low + second0),
            cache.lookup.payload.client.eq(turn),
            cache.lookup.payload.index.eq(low),
            cache.lookup.payload.demand.eq(Mux(turn, queues[1].demand, queues[0].demand)),
        ]
        failed = Signal(CLIENTS)  # the client's run has

        # Stage 1, for two cycles: the rest of the entry's address; where the piece begins and how long it is.
        m.d.sync += valid1.eq(start)
        with m.If(~valid1):
            m.d.sync += [
                access1.eq(first),
                client1.eq(turn),
                second1.eq(second0),
                carry1.eq(low[index_bits]),
                demand1.eq(cache.lookup.payload.demand),
            ]
        failed1 = failed.bit_select(client1, 1)
        physical1 = access1.physical if self.physical else Const(0)
        absent1 = Mux(client1, queues[1].absent, queues[0].absent)
        more1 = access1.cross & ~second1
        m.d.comb += [
            poison_get.addr.eq(Cat(access1.qp[:qp_bits], client1)),
            cache.tag.eq(access1.mtt_high + access1.page_high + carry1),
            cache.drop.eq(~access1.lookup | physical1 | (demand1 & (failed1 | absent1))),
        ]
        m.d.comb += [queue.more.eq(more1) for queue in queues]
        in_page = Cat(
            Const(-1, PAGE_BITS_MIN), (access1.page_bits > bit for bit in range(PAGE_BITS_MIN, PAGE_BITS_MAX))
        )
        start1 = access1.offset[:PAGE_BITS_MIN]
        part = Mux(second1, (start1 + access1.length)[:PAGE_BITS_MIN], (-start1)[:PAGE_BITS_MIN])
        old_status = [Signal(AccessStatus, name=f"status{client}") for client in range(CLIENTS)]
        missing2, needed2, failed2, heeds_poison2, final2 = Signal(), Signal(), Signal(), Signal(), Signal()
        access2, client2 = Signal(row), Signal()
        part2 = Signal(PAGE_BITS_MIN)
        in_page2 = Signal(PAGE_BITS_MAX)
        m.d.sync += [
            missing2.eq(access1.lookup & ~failed1 & absent1),
            needed2.eq(~cache.drop),
            failed2.eq(failed1),
            heeds_poison2.eq(~access1.clear & ~access1.fresh & ~failed1),
            final2.eq(access1.last & ~more1),
            access2.eq(access1),
            client2.eq(client1),
            access2.offset.eq(Mux(second1, 0, access1.offset & in_page)),
            part2.eq(part),
            in_page2.eq(in_page),
        ]
        with m.If(access1.clear):
            m.d.sync += access2.status.eq(AccessStatus.OK)
        with m.Elif(failed1):
            m.d.sync += access2.status.eq(Mux(client1, old_status[1], old_status[0]))

        # Stage 2, for two cycles: the cache answers, and the piece is decided. `found` comes late.
        status = Signal(AccessStatus)
        answers, finish, good = Signal(), Signal(), Signal()
        poison = poison_get.data & heeds_poison2
        m.d.comb += [
            answers.eq(cache.answer.valid & cache.answer.demand),
            finish.eq(answers & cache.answer.found),
            good.eq(~(poison | (access2.status != AccessStatus.OK) | missing2)),
            status.eq(access2.status),
        ]
        with m.If(poison):
            m.d.comb += status.eq(AccessStatus.POISONED)
        with m.Elif(missing2):
            m.d.comb += status.eq(Mux(access2.quiet, AccessStatus.POISONED, AccessStatus.PAGE))

        # Stage 3: what follows, but the piece, which is in a hurry.
        finish3, good3, final3, needed3 = Signal(), Signal(), Signal(), Signal()
        forgets3, quiet3, error3, client3 = Signal(), Signal(), Signal(), Signal()
        qp3 = Signal(qp_bits)
        status3 = Signal(AccessStatus)
        m.d.sync += [
            finish3.eq(finish),
            good3.eq(good),
            final3.eq(final2),
            needed3.eq(needed2),
            forgets3.eq(access2.clear | access2.fresh),
            quiet3.eq(access2.quiet),
            error3.eq(~good & ~failed2 & ~poison),
            client3.eq(client2),
            qp3.eq(access2.qp),
            status3.eq(status),
        ]
        with m.If(finish3):
            m.d.sync += failed.bit_select(client3, 1).eq(~good3 & ~final3)
        had_read = Mux(client3, queues[1].had_read, queues[0].had_read)
        m.d.comb += [
            self.count_hit.eq(finish3 & needed3 & ~had_read),
            self.count_miss.eq(cache.over.reads),
            self.count_error.eq(finish3 & error3),
            poison_put.addr.eq(Mux(cleared, Cat(qp3, client3), poison_clear)),
            poison_put.data.eq(cleared & ~good3),
            poison_put.en.eq(~cleared | (finish3 & Mux(good3, forgets3, ~quiet3))),
        ]

        # The piece's place is free since the access started. Only `valid` depends on the tag comparison.
        length = Mux(access2.cross, part2, access2.length)
        page = cache.line.page
        if self.physical:
            low1, physical2, number2 = Signal(index_bits), Signal(), Signal.like(page)
            with m.If(~valid1):
                m.d.sync += low1.eq(low)
            m.d.sync += [physical2.eq(physical1), number2.eq(Cat(low1, cache.tag))]
            page = Mux(physical2, number2, page)
        page = Cat(Const(0, PAGE_BITS_MIN), page)
        address = Cat((page[:PAGE_BITS_MAX] & ~in_page2) | access2.offset, page[PAGE_BITS_MAX:])
        for index, port in enumerate(self.piece):
            mine = client2 == index
            swallow = ~good & (~final2 if index == TRANSMIT else 0)
            m.d.sync += port.valid.eq((finish & mine & ~swallow) | (port.valid & ~port.ready))
            with m.If(answers & mine):
                m.d.sync += [
                    port.payload.address.eq(address),
                    port.payload.length.eq(Mux(good, length, 0) if index == TRANSMIT else length),
                    port.payload.discard.eq(access2.discard & good if index == TRANSMIT else access2.discard | ~good),
                    port.payload.status.eq(Mux(final2, status, AccessStatus.OK)),
                    port.payload.tag.eq(access2.tag),
                    port.payload.last.eq(final2),
                ]
                m.d.sync += old_status[index].eq(status)

        m.submodules.verdicts = verdicts = LutFifo(Verdict, self.verdicts)
        wiring.connect(m, verdicts.o, wiring.flipped(self.verdict))
        m.d.comb += [
            verdicts.i.valid.eq(finish3 & final3 & (client3 == TRANSMIT)),
            verdicts.i.payload.status.eq(status3),
        ]
        # A piece needs a place at its port, and, for the case that it is its run's last one, its verdict, too.
        verdict_room = verdicts.level < Mux(verdicts.i.valid, self.verdicts - 1, self.verdicts)
        for queue, port, room in zip(queues, self.piece, (verdict_room, 1), strict=True):
            m.d.comb += queue.free.eq((~port.valid | port.ready) & room)
        return m
