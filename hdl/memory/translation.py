"""Second half of the access check: virtual addresses become bus addresses, runs get their verdict."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.tables import MTT, AccessStatus
from ..stream.packet import PacketBeat
from ..stream.ram import Ram
from ..stream.transfer import Piece, ReadRequest
from .cache import Cache
from .protection import PAGE_BITS_MAX, PAGE_BITS_MIN, CheckedAccess

__all__ = ["RECEIVE", "TRANSMIT", "Translation", "Verdict"]

TRANSMIT, RECEIVE = 0, 1
"""The clients."""

WAITING = 8
"""Accesses of a client that wait between key check and translation; the two clients' fill the 16 rows of LUT RAM."""

Verdict = data.StructLayout({"status": 3})
"""``AccessStatus`` of a run."""


class Translation(wiring.Component):
    """Finds the MTT entry of each page of an access in its :class:`.cache.Cache`, and makes pieces.

    An access that crosses a page boundary becomes two pieces, any other one. A page that is not present fails with
    PAGE. The first access of a run that is not OK makes the run fail and poisons its QP for the client: all its later
    runs fail with POISONED, until an access with ``clear``. A refused access with ``quiet`` makes its run
    fail with POISONED, and poisons nobody.

    A failed run, on transmit, ends in one piece of length 0 with ``status`` and ``last``, when its last access comes;
    pieces of its accesses before the refused one are out by then. On receive the refused access, or what of it lies
    behind its good first page, and the rest of the run become discards of the same lengths, and the piece with ``last``
    carries ``status``. The verdict of a run on transmit comes 1 cycle after its last piece.

    The two clients share one pipeline; each has its order kept, and one client's miss, or a piece or verdict not
    taken, does not delay the other. ``piece`` is valid 4 cycles after the access (hits), and a client gets a piece
    every 4 cycles.

    Parameters
    ----------
    data_width : int
        Of ``fill``.
    qps : int
    sets, ways : int
        Of the cache.
    verdicts : int
        Verdicts that wait for the transmitter, a power of two: pieces run that many packets ahead of it.

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
        Strobes; ``count_error`` once a run that is refused for its own sake (not for poison).
    """

    def __init__(self, data_width, qps, *, sets=256, ways=2, verdicts=16):
        if qps < 1 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, not {qps!r}")
        if verdicts < 1 or verdicts & verdicts - 1:
            raise ValueError(f"verdicts must be a power of two, not {verdicts!r}")
        self.data_width = data_width
        self.qps = qps
        self.verdicts = verdicts
        self.sets = sets
        self.ways = ways
        self._cache = Cache(MTT, "present", data_width=data_width, tag_width=61 - ceil_log2(sets), sets=sets, ways=ways)
        super().__init__(
            {
                "i": In(stream.Signature(CheckedAccess(qps))),
                "room": Out(2),
                "piece": Out(stream.Signature(Piece)).array(2),
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
        index_bits = ceil_log2(self.sets)
        m.submodules.cache = cache = self._cache
        wiring.connect(m, wiring.flipped(self.read), cache.read)
        wiring.connect(m, wiring.flipped(self.fill), cache.fill)
        m.d.comb += [
            cache.invalidate.valid.eq(self.invalidate.valid),
            cache.invalidate.payload.all.eq(1),
            self.invalidate.ready.eq(cache.invalidate.ready),
            self.count_hit.eq(cache.count_hit),
            self.count_miss.eq(cache.count_miss),
        ]

        # A queue a client, in one memory.
        m.submodules.waiting = waiting = memory.Memory(shape=layout, depth=2 * WAITING, init=[])
        put, get = waiting.write_port(), waiting.read_port(domain="comb")
        head, tail = (
            [Signal(range(2 * WAITING), name=f"{name}{client}") for client in range(2)] for name in ("head", "tail")
        )
        level = [(tail[client] - head[client])[: len(head[0])] for client in range(2)]
        waits = Cat(head[client] != tail[client] for client in range(2))
        done = Signal(2)  # the client's first access is over
        i = self.i.payload
        m.d.comb += [
            self.i.ready.eq(1),
            put.addr.eq(Cat(Mux(i.client, tail[1], tail[0])[:-1], i.client)),
            put.data.eq(i),
            put.en.eq(self.i.valid),
        ]
        # One access may come in the cycle before this is seen.
        m.d.sync += self.room.eq(Cat(level[client] < WAITING - 2 for client in range(2)))
        arrives = Signal(2)
        m.d.comb += arrives.eq(Cat(self.i.valid & ~i.client, self.i.valid & i.client))
        for client in range(2):
            with m.If(arrives[client]):
                m.d.sync += tail[client].eq(tail[client] + 1)
            with m.If(done[client]):
                m.d.sync += head[client].eq(head[client] + 1)

        poisoned = Ram(1, 2 * self.qps)
        m.submodules.poisoned = poisoned
        poison_clear = Signal(range(2 * self.qps + 1))  # after reset, nobody is poisoned
        cleared = poison_clear == 2 * self.qps
        with m.If(~cleared):
            m.d.sync += poison_clear.eq(poison_clear + 1)

        # Stage 0: the client whose turn it is starts. Whose turn it is, is decided a cycle before: reading the memory
        # and adding take the whole cycle.
        busy = Signal(2)
        second = Signal(2)  # the client's next piece is in the second page
        turn = Signal()
        pending = Signal(2)
        can = Signal(2)
        free = Signal(2)
        verdict_room = Signal()
        m.d.comb += [
            pending.eq((arrives | waits) & ~cache.blocked),
            free.eq(Cat(~port.valid | port.ready for port in self.piece)),
            can.eq(waits & free & Cat(verdict_room, 1) & ~busy & ~cache.blocked),
            cache.lookup.valid.eq(can.bit_select(turn, 1) & cleared),
            get.addr.eq(Cat(Mux(turn, head[1], head[0])[:-1], turn)),
        ]
        with m.If((cache.lookup.valid | ~can.bit_select(turn, 1)) & pending.bit_select(~turn, 1)):
            m.d.sync += turn.eq(~turn)
        start = cache.lookup.valid & cache.lookup.ready
        first = get.data
        second0 = second.bit_select(turn, 1)
        low = Signal(index_bits + 1)
        m.d.comb += [
            low.eq(first.mtt_address[:index_bits] + first.page[:index_bits] + second0),
            cache.lookup.payload.client.eq(turn),
            cache.lookup.payload.index.eq(low),
            poisoned.r_addr.eq(Cat(first.qp[: ceil_log2(self.qps)], turn)),
        ]
        failed = Signal(2)  # the client's run has
        with m.If(start):
            m.d.sync += busy.bit_select(turn, 1).eq(1)

        # Stage 1: the rest of the entry's address; where the piece begins and how long it is.
        valid1 = Signal()
        access1 = Signal(layout)
        second1, carry1 = Signal(), Signal()
        m.d.sync += [
            valid1.eq(start),
            access1.eq(first),
            access1.client.eq(turn),
            second1.eq(second0),
            carry1.eq(low[index_bits]),
        ]
        need1 = access1.lookup & ~failed.bit_select(access1.client, 1)
        m.d.comb += [
            cache.tag.eq(access1.mtt_address[index_bits:] + access1.page[index_bits:] + carry1),
            cache.drop.eq(~need1),
        ]
        in_page = Cat(
            Const(-1, PAGE_BITS_MIN), (access1.page_bits > bit for bit in range(PAGE_BITS_MIN, PAGE_BITS_MAX))
        )
        start1 = access1.offset[:PAGE_BITS_MIN]
        part = Mux(second1, (start1 + access1.length)[:PAGE_BITS_MIN], (-start1)[:PAGE_BITS_MIN])
        failed1 = failed.bit_select(access1.client, 1)
        old_status = [Signal(AccessStatus, name=f"status{client}") for client in range(2)]
        valid2, need2, failed2, heeds_poison2, undivided2 = Signal(), Signal(), Signal(), Signal(), Signal()
        access2 = Signal(layout)
        part2 = Signal(PAGE_BITS_MIN)
        in_page2 = Signal(PAGE_BITS_MAX)
        m.d.sync += [
            valid2.eq(valid1),
            need2.eq(need1),
            failed2.eq(failed1),
            heeds_poison2.eq(~access1.clear & ~failed1),
            undivided2.eq(~access1.cross | second1),
            access2.eq(access1),
            access2.offset.eq(Mux(second1, 0, access1.offset & in_page)),
            part2.eq(part),
            in_page2.eq(in_page),
        ]
        with m.If(access1.clear):
            m.d.sync += access2.status.eq(AccessStatus.OK)
        with m.Elif(failed1):
            m.d.sync += access2.status.eq(Mux(access1.client, old_status[1], old_status[0]))

        # Stage 2: the cache answers, and the access is decided, or, after a miss, starts again. `hit` comes late.
        client = access2.client
        status = Signal(AccessStatus)
        finish, good, missing, whole, final = Signal(), Signal(), Signal(), Signal(), Signal()
        poison = poisoned.r_data & heeds_poison2
        m.d.comb += [
            finish.eq(valid2 & (~need2 | cache.answer.absent | cache.answer.hit)),
            missing.eq(need2 & cache.answer.absent),
            good.eq(~(poison | (access2.status != AccessStatus.OK) | missing)),
            # A refused access is one discard, or, refused in its second page, two.
            whole.eq(undivided2 | ~good),
            final.eq(access2.last & whole),
            status.eq(access2.status),
        ]
        with m.If(poison):
            m.d.comb += status.eq(AccessStatus.POISONED)
        with m.Elif(missing):
            m.d.comb += status.eq(Mux(access2.quiet, AccessStatus.POISONED, AccessStatus.PAGE))

        # Stage 3: what follows, but the piece, which is in a hurry.
        valid3, finish3, good3, whole3, final3 = Signal(), Signal(), Signal(), Signal(), Signal()
        clear3, quiet3, error3, client3 = Signal(), Signal(), Signal(), Signal()
        qp3 = Signal(ceil_log2(self.qps))
        status3 = Signal(AccessStatus)
        m.d.sync += [
            valid3.eq(valid2),
            finish3.eq(finish),
            good3.eq(good),
            whole3.eq(whole),
            final3.eq(final),
            clear3.eq(access2.clear),
            quiet3.eq(access2.quiet),
            error3.eq(~good & ~failed2 & ~poison),
            client3.eq(client),
            qp3.eq(access2.qp),
            status3.eq(status),
        ]
        with m.If(valid3):
            m.d.sync += busy.bit_select(client3, 1).eq(0)
        with m.If(finish3):
            m.d.sync += [
                second.bit_select(client3, 1).eq(~whole3),
                failed.bit_select(client3, 1).eq(~good3 & ~final3),
            ]
            m.d.comb += done.bit_select(client3, 1).eq(whole3)
        m.d.comb += [
            self.count_error.eq(finish3 & error3),
            poisoned.w_addr.eq(Mux(cleared, Cat(qp3, client3), poison_clear)),
            poisoned.w_data.eq(cleared & ~clear3),
            poisoned.w_en.eq(~cleared | (finish3 & ((~good3 & ~quiet3) | clear3))),
        ]

        # The piece's place is free since the access started. Only `valid` depends on the tag comparison.
        length = Mux(access2.cross & (good | undivided2), part2, access2.length)
        page = Cat(Const(0, PAGE_BITS_MIN), cache.line.page)
        address = Cat((page[:PAGE_BITS_MAX] & ~in_page2) | access2.offset, page[PAGE_BITS_MAX:])
        for index, port in enumerate(self.piece):
            mine = client == index
            swallow = ~good & (~final if index == TRANSMIT else 0)
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
            with m.If(finish & mine & ~swallow):
                m.d.sync += port.valid.eq(1)
            with m.If(valid2 & mine):
                m.d.sync += [
                    port.payload.address.eq(address),
                    port.payload.length.eq(Mux(good, length, 0) if index == TRANSMIT else length),
                    port.payload.discard.eq(access2.discard & good if index == TRANSMIT else access2.discard | ~good),
                    port.payload.status.eq(Mux(final, status, AccessStatus.OK)),
                    port.payload.tag.eq(access2.tag),
                    port.payload.last.eq(final),
                ]
                m.d.sync += old_status[index].eq(status)

        # Verdicts: a queue that an item leaves in the cycle after it came.
        m.submodules.verdicts = verdicts = memory.Memory(shape=Verdict, depth=self.verdicts, init=[])
        verdict_put, verdict_get = verdicts.write_port(), verdicts.read_port(domain="comb")
        verdict_head, verdict_tail = Signal(range(2 * self.verdicts)), Signal(range(2 * self.verdicts))
        m.d.comb += [
            verdict_put.addr.eq(verdict_tail),
            verdict_put.data.status.eq(status3),
            verdict_put.en.eq(finish3 & final3 & (client3 == TRANSMIT)),
            verdict_get.addr.eq(verdict_head),
            verdict_room.eq((verdict_tail ^ verdict_head) != self.verdicts),
            self.verdict.valid.eq(verdict_tail != verdict_head),
            self.verdict.payload.eq(verdict_get.data),
        ]
        with m.If(verdict_put.en):
            m.d.sync += verdict_tail.eq(verdict_tail + 1)
        with m.If(self.verdict.valid & self.verdict.ready):
            m.d.sync += verdict_head.eq(verdict_head + 1)
        return m
