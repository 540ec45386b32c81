"""Rows of memory that all QPs share: each QP has a list of them, the oldest first."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.ram import Ram

__all__ = ["Pool"]

BLOCK_ROWS = 512
"""Rows of a block RAM that is 36 bits wide: what is narrow and deep takes fewer of them."""


class Pool(wiring.Component):
    """Keeps what is put in for a QP until it is taken out, in order. What a QP has beyond its first row counts as
    *extra*. One row is kept for each QP that has none, so a QP without rows can always have one, whatever others hold;
    the rest are ``spare``.

    The user must put something into a list that is not empty only if ``spare`` is not 0. It may ask for more, to share
    what is spare: a QP that takes no more than ``spare`` at a time leaves as much to others.

    Row numbers are linked: a link, and the last row of each QP, stand in one block RAM; only the first row of each QP
    stands in LUT RAM, as it must be found at once. Free rows are a list of the same kind, last in, first out.

    *Cycles*: a put or a take 4, in the second of which it is taken; of two that wait the take is first. A look delays
    them by a cycle, and no other may follow it in the next one. For as many cycles as there are rows after a reset,
    neither is taken.

    Parameters
    ----------
    shape : shape-like
        Of a row.
    rows : int
        A power of two, more than twice the QPs. One of them is not used.
    qps : int
        A power of two, at least 2.

    Members
    -------
    put : stream of ``{qp, row}``
        The row becomes the last of the QP.
    take : stream of ``{qp, all}``
        The QP's first row goes back; with ``all`` all that it has: then it is taken when that is done. A QP that has
        none stays so. Until it is taken its payload must stand.
    spare
        Rows that may be taken as extra ones. After a put one less at once, after a take one more when that is done.
    look_qp, look : QP index, 1
        Strobe: the QP's first row is read. Not while ``changing``, and ``look_qp`` must stand since the cycle before.
    changing : 1
        A put or take of ``look_qp`` is under way, or a take waits; also after a reset. Right from the second cycle on
        in which ``look_qp``, and the QP of a take that waits, stand.
    some : 1
        From the cycle after the look to the next one: there was a row.
    begin
        The first half of the row's bits, or one more, if so: in the second cycle after the look.
    row
        The row, if so: from 3 cycles after the look to the next one, even if it is taken.
    """

    def __init__(self, shape, rows, qps):
        if not isinstance(qps, int) or qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        if not isinstance(rows, int) or rows <= 2 * qps or rows & rows - 1:
            raise ValueError(f"rows must be a power of two, more than twice the {qps} QPs, not {rows!r}")
        self.shape = shape
        self.rows = rows
        self.qps = qps
        super().__init__(
            {
                "put": In(stream.Signature(data.StructLayout({"qp": range(qps), "row": shape}))),
                "take": In(stream.Signature(data.StructLayout({"qp": range(qps), "all": 1}))),
                "spare": Out(range(rows)),
                "look_qp": In(range(qps)),
                "look": In(1),
                "changing": Out(1),
                "some": Out(1),
                "begin": Out(-(-Shape.cast(shape).width // 2)),
                "row": Out(shape),
            }
        )

    def _store(self, m, at, head, puts):
        """The rows themselves, each in two rows of block RAM if that takes fewer of them."""
        width = Shape.cast(self.shape).width
        parts = 2 if 2 * self.rows <= BLOCK_ROWS else 1
        part = -(-width // parts)
        m.submodules.store = store = Ram(part, self.rows * parts)
        m.d.comb += self.begin.eq(store.r_data)
        value, out = self.put.payload.row, self.row
        if not isinstance(self.shape, (int, Shape)):
            value, out = value.as_value(), out.as_value()
        if parts == 1:
            m.d.comb += [
                store.w_addr.eq(at),
                store.w_data.eq(value),
                store.w_en.eq(puts),
                store.r_addr.eq(head),
                store.r_en.eq(self.look),
                out.eq(store.r_data),
            ]
            return
        # The second half follows in the next cycle, in which nothing else is written or read.
        more, written = Signal(), Signal(part, reset_less=True)
        reads, coming = Signal(), Signal()
        first, half = Signal.like(head), Signal(part, reset_less=True)
        m.d.sync += [more.eq(puts), reads.eq(self.look), coming.eq(reads)]
        with m.If(puts):
            m.d.sync += written.eq(value[part:])
        with m.If(self.look):
            m.d.sync += first.eq(head)
        with m.If(coming):
            m.d.sync += half.eq(store.r_data)
        m.d.comb += [
            store.w_addr.eq(Cat(more, at)),
            store.w_data.eq(Mux(more, written, value[:part])),
            store.w_en.eq(puts | more),
            store.r_addr.eq(Mux(reads, Cat(reads, first), Cat(reads, head))),
            store.r_en.eq(self.look | reads),
            out.eq(Cat(half, store.r_data)),
        ]

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self.rows)
        none = self.rows - 1
        m.submodules.heads = heads = memory.Memory(shape=bits, depth=self.qps, init=[])
        heads_write = heads.write_port()
        heads_read, heads_look = heads.read_port(domain="comb"), heads.read_port(domain="comb")
        m.submodules.links = links = Ram(bits, 2 * self.rows)

        def last_of(qp):
            """Where the number of the QP's last row stands; a row's link stands at its own number."""
            return Cat(qp[: ceil_log2(self.qps)], 0).as_unsigned() | self.rows

        free = Signal(bits)  # the first free row
        at = Signal(bits)
        putting, waking, idle, reading, puts = (Signal() for _ in range(5))
        mine, awaited = Signal(), Signal()  # what is done, or waits, is for the QP that is looked at
        first = Signal(bits)  # row of that QP, also if it is just being written
        known = Signal(bits)  # that, as looked up in the cycle before
        next_qp, qp = Signal(range(self.qps)), Signal(range(self.qps))
        head, only = Signal(bits), Signal()
        sets = Signal()  # what is done gives its QP another first row
        forward = Signal()  # that is written in this cycle, and the QP is the one that is looked at
        put, take = self.put.payload, self.take.payload
        none_there = Signal()
        m.d.comb += [
            next_qp.eq(Mux(idle, Mux(self.take.valid, take.qp, put.qp), qp)),
            none_there.eq(head == none),
            self.changing.eq(waking | (self.take.valid & awaited) | (reading & mine)),
            first.eq(Mux(forward, heads_write.data, known)),
            heads_read.addr.eq(next_qp),
            heads_look.addr.eq(self.look_qp),
            heads_write.addr.eq(qp),
            heads_write.data.eq(Mux(putting, free, Mux(only, none, links.r_data))),
            links.w_data.eq(free),
            links.r_addr.eq(Mux(putting, free, head)),
        ]
        m.d.sync += [
            mine.eq(next_qp == self.look_qp),
            forward.eq(0),
            awaited.eq(take.qp == self.look_qp),
            known.eq(Mux(heads_write.en & (qp == self.look_qp), heads_write.data, heads_look.data)),
        ]
        with m.If(self.look):
            m.d.sync += self.some.eq(first != none)
        self._store(m, free, first, puts)

        with m.FSM():
            with m.State("RESET"):
                # A reset does not reach the memories.
                m.d.sync += [at.eq(at + 1), self.spare.eq(none - self.qps)]
                m.d.comb += [
                    waking.eq(1),
                    heads_write.addr.eq(at),
                    heads_write.data.eq(none),
                    heads_write.en.eq(1),
                    links.w_addr.eq(at),
                    links.w_data.eq(at + 1),
                    links.w_en.eq(1),
                ]
                with m.If(at == none):
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.comb += [idle.eq(1), links.r_addr.eq(last_of(next_qp))]
                m.d.sync += [qp.eq(next_qp), head.eq(heads_read.data), putting.eq(~self.take.valid)]
                with m.If((self.take.valid | self.put.valid) & ~self.look):
                    m.next = "LINK"
            with m.State("LINK"):
                m.d.comb += [
                    reading.eq(1),
                    puts.eq(putting),
                    self.put.ready.eq(putting),
                    self.take.ready.eq(~putting & (none_there | ~take.all)),
                ]
                with m.If(putting & ~none_there):
                    m.d.sync += self.spare.eq(self.spare - 1)
                m.next = "LAST"
                with m.If(~putting & none_there):
                    m.next = "IDLE"
            with m.State("LAST"):
                m.d.comb += [reading.eq(1), links.w_addr.eq(links.r_data), links.w_en.eq(putting & ~none_there)]
                m.d.sync += [
                    only.eq(links.r_data == head),
                    sets.eq(~putting | none_there),
                    forward.eq((~putting | none_there) & (qp == self.look_qp)),
                ]
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [
                    heads_write.en.eq(sets),
                    links.w_addr.eq(Mux(putting, last_of(qp), head)),
                    links.w_en.eq(1),
                ]
                m.d.sync += free.eq(Mux(putting, links.r_data, head))
                with m.If(~putting & ~only):
                    m.d.sync += self.spare.eq(self.spare + 1)
                m.next = "IDLE"
        return m
