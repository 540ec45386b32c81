"""Which READs and atomics are on their way, and where their responses go."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...context.pool import Pool
from ...stream.ram import Ram
from ..common.layouts import ReadTarget
from ..common.psn import PSN_BITS

__all__ = ["HALF_BITS", "READS", "ReadTargetWrite", "ReadTargets", "Resumed"]

READS = 16
"""Most READs and atomics of a QP that are on their way."""

ReadTargetWrite = data.StructLayout({"qp": 12, "again": 1, "target": ReadTarget})
"""A READ or atomic is begun. Or, with ``again``, the rest of a READ is asked for, and ``target.psn`` is the first PSN
of that; the other fields say nothing."""

HALF_BITS = -(-ReadTarget.size // 2)
"""Of the halves in which a target comes out of its pool."""

Resumed = data.StructLayout({"again": 1, "psn": PSN_BITS})
"""Of a QP: whether, and where, the rest of a READ was asked for last."""


class ReadTargets(wiring.Component):
    """The targets of each QP in order, in a pool of rows that all QPs share (:class:`...context.pool.Pool`), and where
    a READ was asked for again.

    Who begins READs shares the rows by :attr:`allowance`: a QP that has no more than this on their way may begin
    another. One that has none always may. While few are spare nobody gets a second one, so what is spare is shared
    evenly: with *n* QPs that want all they can get, each has about 1/(*n* + 1) of it.

    With ``swaps`` targets come back, at most as many as their QP had when they went. ``kept`` rows are for nobody else,
    so ``room`` tells that those of one QP will find rows. Where it is missing, taking out QPs makes some, even if
    nobody's READs end.

    An item of ``reads`` is taken within 6 cycles, unless there are looks, or one comes back; while a QP forgets its
    targets, after that.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    rows : int or None
        Of the pool, a power of two, more than twice the QPs; None: 256, or 4 a QP.
    swaps : bool
        With ``bring``, ``restore``, ``resumed`` and ``room``.

    Members
    -------
    reads : stream of ``ReadTargetWrite``
    allowance : 4
        15 at most. In the cycle after an item is taken it counts.
    look, qp : 1, QP index
        Strobe: the oldest target of the QP is read. Only if ``free``, and not in the cycle after another one.
    free : 1
        ``qp``, which stands since the cycle before, may be looked at. ``done`` and ``reset`` need a cycle before them
        in which it was set, and no other since.
    some : 1
        From the cycle after a look to the next one: the QP has a target.
    begin : ``psn`` and ``length`` of it
        In the second cycle after the look.
    first : half a ``ReadTarget``
        With ``swaps``: its lower bits, in the second cycle after the look.
    target : ``ReadTarget``
        That, 3 cycles after the look, and until the next one.
    again, psn : 1, 24
        2 cycles after the look, and as long as ``qp`` stands: the rest of a READ was asked for, the last time from this
        PSN on.
    done : 1
        Strobe: all responses of the oldest target of ``qp`` have come. One every 8 cycles at most.
    reset : 1
        Strobe: ``qp`` has no targets any more; ``free`` when that is so. Not while ``giving``.
    giving : 1
        What is done has not been given back yet.
    bring : stream of ``{qp, row}``
        A target that comes back, and becomes the newest of its QP. It waits as long as no row is spare.
    restore, resumed : 1, ``Resumed``
        Strobe: where the rest of a READ of ``qp`` was asked for.
    room : 1
        As many rows are spare as a QP can need. It stays so until targets come back.

    Attributes
    ----------
    kept : int
        Rows that are only for targets that come back: those of one QP, which has a row of its own besides, and one that
        is taken by what ``allowance`` was before.
    """

    def __init__(self, qps, rows=None, *, swaps=False):
        self.qps = qps
        self.rows = rows or max(256, 4 * qps)
        self.swaps = swaps
        self.kept = min(READS, (self.rows - qps) // 2 + 1) if swaps else 0
        item = data.StructLayout({"qp": range(qps), "row": ReadTarget})
        swap = {"bring": In(stream.Signature(item)), "restore": In(1), "resumed": In(Resumed)}
        swap |= {"room": Out(1), "first": Out(HALF_BITS)}
        super().__init__(
            {
                "reads": In(stream.Signature(ReadTargetWrite)),
                "allowance": Out(range(READS)),
                "look": In(1),
                "qp": In(range(qps)),
                "free": Out(1),
                "some": Out(1),
                "begin": Out(data.StructLayout({"psn": PSN_BITS, "length": 32})),
                "target": Out(ReadTarget),
                "again": Out(1),
                "psn": Out(PSN_BITS),
                "done": In(1),
                "reset": In(1),
                "giving": Out(1),
            }
            | (swap if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        item = self.reads.payload
        m.submodules.pool = pool = Pool(ReadTarget, self.rows, self.qps)
        m.submodules.resumed = resumed = Ram(Resumed, self.qps)
        gives, every, qp = Signal(), Signal(), Signal(range(self.qps))  # rows, to the pool
        begun = Signal()  # to give them: the pool knows in the next cycle whose they are
        m.d.sync += begun.eq(self.done | self.reset)
        with m.If(gives):
            m.d.sync += gives.eq(~pool.take.ready)
        with m.Else():
            m.d.sync += [gives.eq(self.done | self.reset), every.eq(self.reset), qp.eq(self.qp)]
        # Where a READ was asked for again is written when nobody looks.
        writes, write_qp, write_psn = Signal(), Signal(range(self.qps)), Signal(PSN_BITS)
        with m.If(writes):
            m.d.sync += writes.eq(self.look | self.reset)
        with m.Else():
            m.d.sync += [
                writes.eq(self.reads.valid & item.again),
                write_qp.eq(item.qp),
                write_psn.eq(item.target.psn),
            ]
        m.d.comb += [
            pool.put.payload.qp.eq(item.qp),
            pool.put.payload.row.eq(item.target),
            pool.put.valid.eq(self.reads.valid & ~item.again),
            self.reads.ready.eq(Mux(item.again, ~writes, pool.put.ready)),
            self.allowance.eq(Mux(pool.spare < READS, pool.spare, READS - 1)),
            pool.take.valid.eq(gives),
            pool.take.payload.qp.eq(qp),
            pool.take.payload.all.eq(every),
            pool.look_qp.eq(self.qp),
            pool.look.eq(self.look),
            self.giving.eq(gives),
            self.free.eq(~pool.changing & ~begun),
            self.some.eq(pool.some),
            self.target.eq(pool.row),
            *(self.begin[name].eq(pool.begin[ReadTarget[name].offset :]) for name in ("psn", "length")),
            resumed.r_addr.eq(self.qp),
            self.again.eq(resumed.r_data.again),
            self.psn.eq(resumed.r_data.psn),
            resumed.w_addr.eq(Mux(self.reset, self.qp, write_qp)),
            resumed.w_data.psn.eq(write_psn),
            resumed.w_data.again.eq(~self.reset),
            resumed.w_en.eq(self.reset | (writes & ~self.look)),
        ]
        if self.swaps:
            self._swap(m, pool, resumed, writes)
        return m

    def _swap(self, m, pool, resumed, writes):
        """What comes back."""
        spare, kept = pool.spare, self.kept
        m.d.comb += [
            self.first.eq(pool.begin),
            self.room.eq(spare >= kept - 1),
            self.allowance.eq(Mux(spare < kept, 0, Mux(spare < kept + READS, spare - kept, READS - 1))),
        ]
        with m.If(self.restore):
            m.d.comb += [resumed.w_addr.eq(self.qp), resumed.w_data.eq(self.resumed), resumed.w_en.eq(1)]
            with m.If(writes):
                m.d.sync += writes.eq(1)

        # What is put into the pool must not change before it is taken. In the cycle behind, what is spare is known.
        brings, gap = Signal(), Signal()
        m.d.sync += gap.eq(self.bring.valid & pool.put.ready)
        with m.If(~pool.put.valid | gap):
            m.d.sync += brings.eq(self.bring.valid & (spare != 0))
        with m.Elif(pool.put.ready):
            m.d.sync += brings.eq(0)
        with m.If(brings | gap):
            m.d.comb += pool.put.valid.eq(brings)
            with m.If(~self.reads.payload.again):
                m.d.comb += self.reads.ready.eq(0)
        with m.If(brings):
            m.d.comb += [pool.put.payload.eq(self.bring.payload), self.bring.ready.eq(pool.put.ready)]
