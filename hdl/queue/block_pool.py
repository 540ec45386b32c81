"""Blocks of memory on chip that all rings share, and which of them hold a ring's WQEs."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["BlockPool"]


class BlockPool(wiring.Component):
    """A queue of free blocks, and for each QP a list of blocks, the oldest first.

    A ring is cut into pieces: all WQEs whose free-running index is the same but for the lowest bits, ``size`` bytes of
    them. A block holds a piece. A QP that holds blocks holds those of consecutive pieces, and a block whose piece is
    consumed goes back. A QP has no state but whether it holds blocks, and the first and the last of them; all else
    stands with the blocks, so the pool does not grow with the QPs.

    One block is kept aside, the *spare*, so that what cannot wait finds one.

    *Latency*: ``take``, ``give``, ``land`` and ``drop`` act at the end of their cycle, and only one of them may come in
    a cycle; the next ``offer`` stands in the second cycle after one was taken. What is said to be consumed takes 3
    cycles, and 3 more for each block that goes back; a cycle in which one of those four comes is lost. ``drop`` gives
    a block a cycle back. A block that went back may be offered 3 cycles later. For as many cycles after a reset as
    there are QPs, or blocks if these are more, it is not ``awake``: nothing is offered, and nothing may be dropped.

    Parameters
    ----------
    qps, blocks : int
        QPs, and blocks, at least 4; powers of two.
    size : int
        Bytes of a block, a power of two, at least the largest stride.
    strides : range
        Logarithms of the sizes that a WQE may have.

    Members
    -------
    awake : 1
    any, offer
        There is a free block: this one.
    look_qp, holds, tail
        Whether a QP holds blocks, and the last of them; in the same cycle.
    take, first, give : 1
        ``offer`` becomes the last block of ``qp``, which holds none if it is ``first``, for the piece of the WQE with
        index ``index``. Or ``behind``, the only block of ``qp``, goes back. ``behind`` is the QP's ``tail``, if it
        holds one.
    qp, behind, index, log_stride
    refill : 1
        A block may be put aside.
    spare_valid, spare
        One is.
    land, land_qp, land_index, land_log_stride
        The spare becomes the only block of a QP that holds none.
    done, done_qp, done_index, ignore_consumed, heard
        All WQEs of the QP before this index are consumed; this stays until ``heard``, in which cycle all blocks have
        gone back that hold no other. Whoever cannot hear it then is told again. With ``ignore_consumed`` none goes
        back. ``heard`` does not wait for anything outside.
    hold : 1
        No block of the QP ``done_qp`` may go back in this cycle. One cycle without it is enough for a block.
    drop, drop_qp : 1, QP index
        All blocks of the QP go back; only while ``may_drop``, and while nothing of the QP is ``done``.
    may_drop : 1
    place_qp, places
        The blocks of the QP's first two pieces, 2 cycles later: that whose number is even, and that whose number is
        odd.
    step, owner
        Who holds, or held, a block, one after the other; another one with each ``step``.
    """

    def __init__(self, qps, blocks, size, strides):
        if not isinstance(blocks, int) or blocks < 4 or blocks & blocks - 1:
            raise ValueError(f"blocks must be a power of two, at least 4, not {blocks!r}")
        if not isinstance(size, int) or size & size - 1 or size < 1 << strides[-1]:
            raise ValueError(f"size must be a power of two, at least {1 << strides[-1]}, not {size!r}")
        self.qps = qps
        self.blocks = blocks
        self.size = size
        self.strides = strides
        qp, block = range(qps), range(blocks)
        super().__init__(
            {
                "awake": Out(1),
                "any": Out(1),
                "offer": Out(block),
                "look_qp": In(qp),
                "holds": Out(1),
                "tail": Out(block),
                "take": In(1),
                "first": In(1),
                "give": In(1),
                "qp": In(qp),
                "behind": In(block),
                "index": In(16),
                "log_stride": In(4),
                "refill": In(1),
                "spare_valid": Out(1),
                "spare": Out(block),
                "land": In(1),
                "land_qp": In(qp),
                "land_index": In(16),
                "land_log_stride": In(4),
                "done": In(1),
                "done_qp": In(qp),
                "done_index": In(16),
                "ignore_consumed": In(1),
                "heard": Out(1),
                "hold": In(1),
                "drop": In(1),
                "drop_qp": In(qp),
                "may_drop": Out(1),
                "place_qp": In(qp),
                "places": Out(data.ArrayLayout(ceil_log2(blocks), 2)),
                "step": In(1),
                "owner": Out(qp),
            }
        )

    def _memory(self, m, name, shape, depth, reads):
        m.submodules[name] = rows = memory.Memory(shape=shape, depth=depth, init=[])
        return rows.write_port(), [rows.read_port(domain="comb") for _ in range(reads)]

    def elaborate(self, platform):
        m = Module()
        block_bits = ceil_log2(self.blocks)
        size_bits = ceil_log2(self.size)
        per_bits = size_bits - self.strides[0]
        # The last index of a block's piece: enough bits to tell before and behind among all that a QP may hold.
        row = data.StructLayout({"end": block_bits + per_bits + 1, "odd": 1})
        last = data.StructLayout({"block": block_bits, "holds": 1})  # without `holds` the block means nothing
        head, (head_done, head_place) = self._memory(m, "heads", block_bits, self.qps, 2)
        tail, (tail_look, tail_done) = self._memory(m, "tails", last, self.qps, 2)
        follow, (follow_done, follow_place) = self._memory(m, "follows", block_bits, self.blocks, 2)
        rows, (row_done, row_place) = self._memory(m, "rows", row, self.blocks, 2)
        owners, (owner,) = self._memory(m, "owners", ceil_log2(self.qps), self.blocks, 1)

        # -- After a reset, which does not reach the memories, nobody holds anything, and all blocks are free.
        at = Signal(range(max(self.qps, self.blocks)))
        with m.If(~self.awake):
            m.d.sync += [at.eq(at + 1), self.awake.eq(at == max(self.qps, self.blocks) - 1)]

        # -- The free blocks, one of them offered, and one put aside.
        free, (free_first,) = self._memory(m, "frees", block_bits, self.blocks, 1)
        begin, end = Signal(block_bits + 1), Signal(block_bits + 1, init=self.blocks)
        frees, freed = Signal(), Signal(block_bits)
        freeing, going = Signal(), Signal(block_bits)  # the same, a cycle later: it is written from registers
        m.d.sync += [freeing.eq(frees & self.awake), going.eq(freed)]
        m.d.comb += [
            free.addr.eq(Mux(self.awake, end[:block_bits], at)),
            free.data.eq(Mux(self.awake, going, at)),
            free.en.eq(freeing | ~self.awake),
            free_first.addr.eq(begin),
        ]
        with m.If(freeing):
            m.d.sync += end.eq(end + 1)
        with m.If((begin != end) & ~self.any & self.awake):
            m.d.sync += [self.any.eq(1), self.offer.eq(free_first.data), begin.eq(begin + 1)]
        with m.If(self.take):
            m.d.sync += self.any.eq(0)
        with m.Elif(self.any & self.refill & ~self.spare_valid):
            m.d.sync += [self.any.eq(0), self.spare.eq(self.offer), self.spare_valid.eq(1)]
        with m.If(self.land):
            m.d.sync += self.spare_valid.eq(0)

        # -- What is consumed: its QP's first block is looked up, then what stands with that block, and in the third
        # cycle it goes back, or not. What was looked up counts only if nothing else came meanwhile.
        first, looked, judged = Signal(block_bits), Signal(), Signal()
        stale, only, next_ = Signal(), Signal(), Signal(block_bits)
        pending, pops = Signal(), Signal()  # a block is to go back, and waits while it is held; it does
        walking, walk, walk_end = Signal(), Signal(block_bits), Signal(block_bits)
        over = Signal.like(row_done.data.end)  # negative if all of the block is consumed
        busy = self.take | self.give | self.land | self.drop | walking
        done_at = Mux(self.drop, self.drop_qp, self.done_qp)
        m.d.comb += [
            *(port.addr.eq(done_at) for port in (head_done, tail_done)),
            over.eq(row_done.data.end - self.done_index),
            row_done.addr.eq(first),
            follow_done.addr.eq(Mux(walking, walk, first)),
            self.heard.eq(judged & ~stale),
            pending.eq(judged & stale),
            pops.eq(pending & ~busy & ~self.hold),
            self.may_drop.eq(self.awake & ~walking),
        ]
        m.d.sync += [
            first.eq(head_done.data),
            looked.eq(self.done & ~looked & ~judged & ~busy),
            judged.eq((looked | (pending & self.hold)) & ~busy),
            stale.eq(tail_done.data.holds & ~self.ignore_consumed & over[-1]),
            only.eq(tail_done.data.block == first),
            next_.eq(follow_done.data),
        ]

        # -- The writes; one thing at a time.
        log_stride = Mux(self.land, self.land_log_stride, self.log_stride)
        index = Mux(self.land, self.land_index, self.index)
        m.d.comb += [
            head.addr.eq(Mux(self.land, self.land_qp, Mux(self.take, self.qp, self.done_qp))),
            head.data.eq(Mux(self.land, self.spare, Mux(self.take, self.offer, next_))),
            head.en.eq((self.take & self.first) | self.land | (pops & ~only)),
            tail.data.block.eq(Mux(self.land, self.spare, self.offer)),
            tail.data.holds.eq((self.take | self.land) & self.awake),
            tail.en.eq(~self.awake | self.take | self.land | self.give | self.drop | (pops & only)),
            follow.addr.eq(self.behind),
            follow.data.eq(self.offer),
            follow.en.eq(self.take & ~self.first),
            rows.addr.eq(Mux(self.land, self.spare, self.offer)),
            rows.data.end.eq(index | Cat(log_stride < size_bits - bit for bit in range(per_bits))),
            rows.en.eq(self.take | self.land),
            owners.addr.eq(rows.addr),
            owners.data.eq(Mux(self.land, self.land_qp, self.qp)),
            owners.en.eq(rows.en),
            frees.eq(self.give | (walking & ~(self.take | self.give | self.land | self.drop)) | pops),
            freed.eq(Mux(self.give, self.behind, Mux(walking, walk, first))),
        ]
        with m.Switch(log_stride):
            for stride in self.strides:
                with m.Case(stride):
                    m.d.comb += rows.data.odd.eq(index[size_bits - stride])
        with m.If(~self.awake):
            m.d.comb += tail.addr.eq(at)
        with m.Elif(self.land):
            m.d.comb += tail.addr.eq(self.land_qp)
        with m.Elif(self.drop):
            m.d.comb += tail.addr.eq(self.drop_qp)
        with m.Elif(self.take | self.give):
            m.d.comb += tail.addr.eq(self.qp)
        with m.Else():
            m.d.comb += tail.addr.eq(self.done_qp)
        with m.If(self.drop & tail_done.data.holds):
            m.d.sync += [walking.eq(1), walk.eq(head_done.data), walk_end.eq(tail_done.data.block)]
        with m.Elif(walking & frees & ~self.give):
            m.d.sync += [walk.eq(follow_done.data), walking.eq(walk != walk_end)]

        # -- Who looks.
        odd, first_place = Signal(), Signal(block_bits)
        second_place, shown = Signal(block_bits), Signal(block_bits)
        victim = Signal(block_bits)
        m.d.comb += [
            tail_look.addr.eq(self.look_qp),
            self.holds.eq(tail_look.data.holds),
            self.tail.eq(tail_look.data.block),
            head_place.addr.eq(self.place_qp),
            row_place.addr.eq(first_place),
            follow_place.addr.eq(first_place),
            self.places[0].eq(Mux(odd, second_place, shown)),
            self.places[1].eq(Mux(odd, shown, second_place)),
            owner.addr.eq(victim),
            self.owner.eq(owner.data),
        ]
        m.d.sync += [
            first_place.eq(head_place.data),
            shown.eq(first_place),
            second_place.eq(follow_place.data),
            odd.eq(row_place.data.odd),
        ]
        with m.If(self.step):
            m.d.sync += victim.eq(victim + 1)
        return m
