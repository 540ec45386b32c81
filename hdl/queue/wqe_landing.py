"""Pushed WQEs on their way into a block."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .ring import PushWord
from .wqe_push import WqePush

__all__ = ["WqeLanding"]


class WqeLanding(wiring.Component):
    """Copies a WQE from the buffer of words that were pushed to the spare block, in cycles without data, and says when
    the block becomes its ring's: in a cycle in which nobody else takes blocks or tells of WQEs.

    *Latency*: from ``pushed`` to ``lands``: 9 cycles, or 17 if the WQE has 128 bytes or more; one more for each cycle
    without ``room``, and for each that is ``busy`` then.

    Parameters
    ----------
    rings, blocks, size : int
        Of the prefetcher.
    strides : range
        Logarithms of the sizes that a WQE may have.
    swaps : bool
        QPs leave their places, and others come.

    Members
    -------
    push : stream of ``PushWord``
    hold : 1
        No word is taken.
    qp, index, stride : ring, 16, 4
        The doorbell inside: it counts the WQE before ``index``.
    spare, spare_valid, free : block, 1, 1
        The spare block; there is one; the doorbell's ring has no block.
    mine : 1
        The WQE's words are here, and there is a place for them.
    heard, pushed : 1
        Of a :class:`.ring_doorbell.RingDoorbell`.
    forget : 1
        Strobe: the words of whoever is here are forgotten.
    moved, moved_qp : 1, ring
        With ``swaps``, of :class:`.wqe_push.WqePush`.
    room, busy : 1
        A word may be put; no ring may get its block.
    put_en, put_addr, put_word
        To the blocks.
    lands, wqe_index : 1, 16
        Strobe: all is there; the index of the WQE.
    """

    def __init__(self, rings, blocks, size, strides, *, swaps=False):
        self.rings = rings
        self.blocks = blocks
        self.size = size
        self.strides = strides
        self.swaps = swaps
        ring = ceil_log2(rings)
        super().__init__(
            {
                "push": In(stream.Signature(PushWord)),
                "hold": In(1),
                "qp": In(ring),
                "index": In(16),
                "stride": In(4),
                "spare": In(range(blocks)),
                "spare_valid": In(1),
                "free": In(1),
                "mine": Out(1),
                "heard": In(1),
                "pushed": In(1),
                "forget": In(1),
                "room": In(1),
                "busy": In(1),
                "put_en": Out(1),
                "put_addr": Out(range(blocks * size // 8)),
                "put_word": Out(64),
                "lands": Out(1),
                "wqe_index": Out(16),
            }
            | ({"moved": In(1), "moved_qp": In(ring)} if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.pushes = pushes = WqePush(self.rings, swaps=self.swaps)
        wiring.connect(m, wiring.flipped(self.push), pushes.push)
        place = Signal(ceil_log2(self.size // 8))
        with m.Switch(self.stride):
            for stride in self.strides:
                with m.Case(stride):
                    m.d.comb += place.eq(pushes.put_row[: stride - 3] | self.wqe_index << stride - 3)
        there = Signal()  # all words are
        m.d.sync += there.eq((there & ~self.lands) | pushes.copied)
        m.d.comb += [
            self.wqe_index.eq(self.index - 1),
            self.mine.eq(pushes.mine & self.spare_valid & self.free),
            self.lands.eq(there & ~self.busy),
            self.put_en.eq(pushes.put_en),
            self.put_addr.eq(Cat(place, self.spare)),
            self.put_word.eq(pushes.put_word),
            pushes.hold.eq(self.hold),
            pushes.qp.eq(self.qp),
            # Words of a former life must not get into a new one.
            pushes.start.eq((self.heard & pushes.mine) | self.forget),
            pushes.copy.eq(self.pushed),
            pushes.wide.eq(self.stride != self.strides[0]),
            pushes.room.eq(self.room),
        ]
        if self.swaps:
            m.d.comb += [pushes.moved.eq(self.moved), pushes.moved_qp.eq(self.moved_qp)]
        return m
