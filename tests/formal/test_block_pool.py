"""The pool of blocks: none is given twice, and each QP's list is what was put into it."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from prover import assume, claim, cover, prove, reach
from verbena.hdl.queue.block_pool import BlockPool

QPS, BLOCKS, SIZE = 2, 4, 256
DEPTH = 16
SETTLED = 4
"""Cycles after which one of two blocks that went back is offered, if nothing happens meanwhile."""
STRIDES = (6, 7)
"""Logarithm of each QP's stride: WQEs of 64 bytes, four a block, and of 128, two."""


class Blocks(wiring.Component):
    """A pool, and who uses it as it is meant to be used.

    Each QP has two free-running indices, ``consumed`` and ``issued``, from 65530 on, so that they wrap. In a cycle
    one QP, any, does one thing, any, that it may: takes a block for the next piece, gives its only one back when
    nothing is used, has the spare land, drops all; or WQEs are issued up to the end of its last piece, any number.
    Meanwhile something is consumed, any amount up to what is issued, of a QP, until it is heard; no block of it goes
    back in the cycle in which the same QP takes or gives one.
    """

    def __init__(self, wrong=False):
        self.wrong = wrong
        self.pool = BlockPool(QPS, BLOCKS, SIZE, range(6, 8))
        ports = {"act": In(3), "qp": In(1), "amount": In(3), "refill": In(1)}
        super().__init__(ports | {"done": In(1), "done_qp": In(1), "done_index": In(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.pool = pool = self.pool
        consumed = Array(Signal(16, init=65530, name=f"consumed_{qp}") for qp in range(QPS))
        issued = Array(Signal(16, init=65530, name=f"issued_{qp}") for qp in range(QPS))
        # What each block is thought to be: somebody's, and of which piece.
        held = Array(Signal(name=f"held_{block}") for block in range(BLOCKS))
        owner = Array(Signal(name=f"owner_{block}") for block in range(BLOCKS))
        piece = Array(Signal(15, name=f"piece_{block}") for block in range(BLOCKS))

        def piece_of(qp, index):
            return Mux(qp, index >> 1, index >> 2)[:15]

        at, qp = issued[self.qp], self.qp
        aligned = Mux(qp, at[:1] == 0, at[:2] == 0)
        unused = at == consumed[qp]
        mine = [held[block] & (owner[block] == qp) for block in range(BLOCKS)]
        count = sum(mine, start=0)
        take, give, land, drop, grow = (self.act == number for number in range(1, 6))
        m.d.comb += [
            pool.look_qp.eq(qp),
            pool.qp.eq(qp),
            pool.behind.eq(pool.tail),
            pool.first.eq(~pool.holds),
            pool.index.eq(at),
            pool.log_stride.eq(Mux(qp, STRIDES[1], STRIDES[0])),
            pool.land_qp.eq(qp),
            pool.land_index.eq(at),
            pool.land_log_stride.eq(pool.log_stride),
            pool.drop_qp.eq(qp),
            pool.take.eq(take),
            pool.give.eq(give),
            pool.land.eq(land),
            pool.drop.eq(drop),
            pool.refill.eq(self.refill),
            pool.done.eq(self.done),
            pool.done_qp.eq(self.done_qp),
            pool.done_index.eq(self.done_index),
            pool.hold.eq((take | give) & (qp == self.done_qp)),
            pool.place_qp.eq(qp),
        ]

        # -- What it may do.
        with m.If(take):
            assume(m, pool.any & ((count == 0) | aligned))
        with m.If(give):
            assume(m, Const(self.wrong, 1) | ((count == 1) & unused & ~aligned))
        with m.If(land):
            assume(m, pool.spare_valid & (count == 0) & unused)
        with m.If(drop):
            assume(m, pool.may_drop & ~(self.done & (self.done_qp == qp)))
        with m.If(grow):
            assume(m, (count != 0) & ~aligned)
        room = Mux(qp, 2 - at[:1], 4 - at[:2])
        with m.If(take | grow | land):
            assume(m, (self.amount != 0) & (self.amount <= room))
            m.d.sync += issued[qp].eq(at + self.amount)
        with m.If(drop):
            m.d.sync += consumed[qp].eq(at)

        # -- What is consumed: it stays until it is heard.
        old, told = Signal(18), Signal()
        saying = Cat(self.done_qp, self.done_index)
        m.d.sync += [told.eq(self.done & ~pool.heard), old.eq(saying)]
        ahead = (self.done_index - consumed[self.done_qp])[:16]
        with m.If(told):
            assume(m, self.done & (saying == old))
        with m.Elif(self.done):
            assume(m, ahead <= (issued[self.done_qp] - consumed[self.done_qp])[:16])
        goes = [
            self.done
            & held[block]
            & (owner[block] == self.done_qp)
            & (piece[block] != piece_of(self.done_qp, self.done_index))
            & ((piece_of(self.done_qp, self.done_index) - piece[block])[:14] < 32)
            for block in range(BLOCKS)
        ]
        with m.If(self.done & pool.heard):
            m.d.sync += consumed[self.done_qp].eq(self.done_index)
            for block in range(BLOCKS):
                with m.If(goes[block]):
                    m.d.sync += held[block].eq(0)

        # -- What follows.
        for block in range(BLOCKS):
            with m.If((take & (pool.offer == block)) | (land & (pool.spare == block))):
                m.d.sync += [held[block].eq(1), owner[block].eq(qp), piece[block].eq(piece_of(qp, at))]
            with m.If((give | drop) & mine[block]):
                m.d.sync += held[block].eq(0)
        claim(m, "once", ~pool.any | ~held[pool.offer] | Array(goes)[pool.offer])
        claim(m, "spare", ~pool.spare_valid | ~held[pool.spare] | Array(goes)[pool.spare])
        claim(m, "apart", ~pool.any | ~pool.spare_valid | (pool.offer != pool.spare))
        quiet = Signal(range(SETTLED + 1))
        acts = take | give | land | drop | (self.refill & ~pool.spare_valid)
        m.d.sync += quiet.eq(Mux(acts | self.done | ~pool.awake, 0, Mux(quiet == SETTLED, quiet, quiet + 1)))
        all_held = sum((held[block] for block in range(BLOCKS)), start=0) + pool.spare_valid == BLOCKS
        claim(m, "kept", (quiet != SETTLED) | pool.any | all_held)
        rest = ~self.done & ~told & (quiet == SETTLED)
        claim(m, "holds", ~rest | (pool.holds == (count != 0)))
        first = piece_of(qp, consumed[qp])
        looked = Signal(range(3))
        before = Signal()
        m.d.sync += [before.eq(qp), looked.eq(Mux((before == qp) & rest, Mux(looked == 2, looked, looked + 1), 0))]
        for block in range(BLOCKS):
            near = (piece[block] == first) | (piece[block] == (first + 1)[: len(first)])
            place = Mux(piece[block][0], pool.places[1], pool.places[0])
            claim(
                m,
                f"place_{block}",
                ~((looked == 2) & rest & (before == qp) & mine[block] & near) | (place == block),
            )
        reach(m, "taken_by_both", held[0] & held[1] & (owner[0] != owner[1]))
        reach(m, "one_goes_back", self.done & pool.heard & (sum(goes, start=0) == 1))
        reach(m, "dropped", drop & (count == 1))
        return m


def test_no_block_is_given_twice(tmp_path):
    verdict = prove(Blocks(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Blocks(), tmp_path, DEPTH).holds


def test_who_gives_what_he_has_not_is_found(tmp_path):
    verdict = prove(Blocks(wrong=True), tmp_path, DEPTH)
    assert not verdict.holds
    assert {"once", "spare", "apart", "holds"} & set(verdict.names)
