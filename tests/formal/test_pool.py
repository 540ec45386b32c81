"""The pool: no row is given twice, what is spare is counted right, and a list comes out as it was put in."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from prover import assume, claim, cover, prove, reach
from verbena.hdl.context.pool import Pool

QPS = 2
ROWS = 8
WIDTH = 3
DEPTH = 23
"""8 cycles until the pool is awake, 3 puts or takes of 4 cycles, and a look."""


class Lists(wiring.Component):
    """A pool whose rows are numbers, which count up in each list.

    Assumed: a second row of a QP is only asked for while something is spare; a look only while nothing changes, and not
    within 3 cycles of another; nothing until the pool is awake. Who puts, takes and looks when is free.
    """

    puts: In(1)
    put_qp: In(1)
    takes: In(1)
    take_qp: In(1)
    every: In(1)
    look: In(1)
    look_qp: In(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.pool = pool = Pool(WIDTH, ROWS, QPS)
        newest, oldest = (
            tuple(Signal(WIDTH, name=f"{name}_{qp}") for qp in range(QPS)) for name in ("newest", "oldest")
        )

        def held(qp):
            return (newest[qp] - oldest[qp])[:WIDTH]

        def of(qp, values):
            return Mux(qp, values[1], values[0])

        # A put or take that waits stays.
        comes, comes_qp = Signal(), Signal()
        waiting, waits_qp, waits_every = Signal(), Signal(), Signal()
        m.d.sync += [
            comes.eq(pool.put.valid & ~pool.put.ready),
            comes_qp.eq(pool.put.payload.qp),
            waiting.eq(pool.take.valid & ~pool.take.ready),
            waits_qp.eq(pool.take.payload.qp),
            waits_every.eq(pool.take.payload.all),
        ]
        m.d.comb += [
            pool.put.payload.qp.eq(self.put_qp),
            pool.put.payload.row.eq(of(self.put_qp, newest)),
            pool.put.valid.eq(
                comes | self.puts & ((held(0) == 0) & ~self.put_qp | (held(1) == 0) & self.put_qp | (pool.spare != 0))
            ),
            pool.take.valid.eq(waiting | self.takes),
            pool.take.payload.qp.eq(Mux(waiting, waits_qp, self.take_qp)),
            pool.take.payload.all.eq(Mux(waiting, waits_every, self.every)),
            pool.look.eq(self.look),
            pool.look_qp.eq(self.look_qp),
        ]
        asleep = Signal(range(ROWS + 1), init=ROWS)
        awake = asleep == 0
        with m.If(~awake):
            m.d.sync += asleep.eq(asleep - 1)
        assume(m, ~comes | (self.put_qp == comes_qp))
        assume(m, awake | ~(self.puts | self.takes | self.look))
        resting = Signal(range(6))  # cycles without a take
        m.d.sync += resting.eq(Mux(pool.take.valid, 0, resting + (resting != 5)))
        looked, ago, wanted, some = Signal(), Signal(range(4)), Signal(WIDTH), Signal()
        stands = Signal()  # what is looked at has stood for a cycle
        stood = Signal()
        m.d.sync += stood.eq(self.look_qp)
        m.d.comb += stands.eq(self.look_qp == stood)
        assume(m, ~self.look | (stands & ~pool.changing & (ago == 0)))
        for qp in range(QPS):
            with m.If(pool.put.valid & pool.put.ready & (self.put_qp == qp)):
                m.d.sync += newest[qp].eq(newest[qp] + 1)
            with m.If(pool.take.valid & pool.take.ready & (pool.take.payload.qp == qp)):
                with m.If(pool.take.payload.all):
                    m.d.sync += oldest[qp].eq(newest[qp])
                with m.Elif(held(qp) != 0):
                    m.d.sync += oldest[qp].eq(oldest[qp] + 1)
        with m.If(self.look):
            m.d.sync += [looked.eq(1), ago.eq(3), wanted.eq(of(self.look_qp, oldest))]
            m.d.sync += some.eq(Mux(self.look_qp, held(1), held(0)) != 0)
        with m.Elif(ago != 0):
            m.d.sync += ago.eq(ago - 1)
        claim(m, "some", ~looked | (pool.some == some))
        claim(m, "order", ~(looked & some & (ago <= 1)) | (pool.row == wanted))
        extra = sum(Mux(held(qp) == 0, 0, held(qp) - 1) for qp in range(QPS))
        claim(m, "spare", ~awake | (pool.spare + extra == ROWS - 1 - QPS) | (resting != 5))
        claim(m, "bounded", held(0) + held(1) <= ROWS - 1)
        reach(m, "at_rest", awake & (resting == 5) & (held(0) == 1) & (oldest[0] != 0))
        reach(m, "second_row", looked & some & (ago == 1) & (wanted == 1))
        return m


def test_it_holds(tmp_path):
    verdict = prove(Lists(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Lists(), tmp_path, DEPTH).holds


def test_a_row_that_is_given_twice_is_found(tmp_path, monkeypatch):
    """The same free row is offered again if its link is not followed."""
    assign = Signal.eq

    def stay(self, value, *args, **kwargs):
        return assign(self, self if self.name == "free" else value, *args, **kwargs)

    monkeypatch.setattr(Signal, "eq", stay)
    assert "order" in prove(Lists(), tmp_path, DEPTH).names
