"""From where a ring stands to the read of its next WQEs."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.transfer import ReadRequest
from .ring import ring_flight

__all__ = ["RingRead"]


class RingRead(wiring.Component):
    """Decides how many WQEs to read, and where on chip they go, and reads them: as many as are posted, up to the end of
    the block that the first of them belongs to, or of the ring.

    WQEs of a piece of the ring go to one block (:class:`.block_pool.BlockPool`). A ring that begins a piece takes the
    block that is offered. It may have ``quota`` blocks, the first of them before all others: as long as rings wait for
    a first block, it has the turn only if it is ``granted`` to it. If there is none for a ring that has no other, it
    ``waits``. A ring with no WQE to read, nor to be consumed, gives its block back.

    ``read`` becomes valid 3 cycles after ``en``, and the pool is asked for a block 2 cycles after it. One ring is
    inside at a time; a ring with nothing to read leaves after 1 cycle, others when the read has been placed in ``read``
    and there was ``room``.

    Parameters
    ----------
    qps, blocks, size : int
        QPs, blocks on chip, and bytes of each, which is also the most of a read.
    quota : int
        Most blocks of a ring, at least 2.
    strides : range
        Logarithms of the sizes that a WQE may have; of another size nothing is read.

    Members
    -------
    en : 1
        With the values that follow, only while ``clean``.
    qp, issued
        A ring, and its first WQE that has not been asked for.
    posted : 16
        WQEs posted and not asked for.
    used : 0 to those of ``quota`` blocks
        WQEs asked for and not consumed.
    base, log_size, log_stride
        The ring's attributes; ``base`` in the cycle after ``en``.
    holds, tail : 1, block
        The ring has blocks; the last of them.
    granted : 1
        It is the turn of one that has waited for a block.
    may_wait : 1
        In the cycle after ``en``: the ring waits if it has no block.
    doubtful, sure : 1
        With ``en``: what is found counts only if ``sure`` is set in the next cycle.
    any, offer, waiting, more : 1, block, 1, 1
        In the cycle after ``en``: a block is offered; rings wait for one; the ring may have more than one.
    take, first, give, waits, index, stride, behind
        In the second cycle after ``en``, about ``inside``: it takes the block, and has no other; it gives back the only
        one; it waits. ``index`` and ``stride`` say what the block is taken for, ``behind`` is the ring's ``tail``.
    clean : 1
        Nothing is inside.
    deciding, doubting : 1
        It is the cycle after ``en``; and ``en`` came with ``doubtful``.
    inside
        QP of the ring inside.
    found : 1
        The last stage: ``start`` may come.
    room, hold : 1
        There is a place for what ``flight`` says; and ``start`` may not come in this cycle.
    start : 1
        A read is placed: WQEs of ``flight.qp`` before ``flight.end`` are asked for, and go to word ``flight.word`` of
        the memory on chip.
    read : stream of ``ReadRequest``
    repeat, repeat_qp
        Strobe: this QP has more to read.
    """

    def __init__(self, qps, blocks, size, quota, strides):
        if not isinstance(quota, int) or not 2 <= quota < blocks:
            raise ValueError(f"quota must be at least 2, and less than there are blocks, not {quota!r}")
        self.size = size
        self.quota = quota
        self.strides = strides
        self.block_bits = ceil_log2(blocks)
        self.word_bits = ceil_log2(size // 8)
        qp_bits = ceil_log2(qps)
        self.flight_layout = ring_flight(qps, blocks, size)
        super().__init__(
            {
                "en": In(1),
                "qp": In(qp_bits),
                "issued": In(16),
                "posted": In(16),
                "used": In(range(quota * (size >> strides[0]) + 1)),
                "base": In(64),
                "log_size": In(4),
                "log_stride": In(4),
                "holds": In(1),
                "tail": In(self.block_bits),
                "granted": In(1),
                "may_wait": In(1),
                "doubtful": In(1),
                "sure": In(1),
                "any": In(1),
                "offer": In(self.block_bits),
                "waiting": In(1),
                "more": In(1),
                "take": Out(1),
                "first": Out(1),
                "give": Out(1),
                "waits": Out(1),
                "index": Out(16),
                "stride": Out(4),
                "behind": Out(self.block_bits),
                "clean": Out(1),
                "deciding": Out(1),
                "doubting": Out(1),
                "inside": Out(qp_bits),
                "found": Out(1),
                "room": In(1),
                "hold": In(1),
                "start": Out(1),
                "flight": Out(self.flight_layout),
                "read": Out(stream.Signature(ReadRequest)),
                "repeat": Out(1),
                "repeat_qp": Out(qp_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size_bits = ceil_log2(self.size)
        piece_bits = size_bits - self.strides[0]  # of the index of a WQE in its piece

        # First stage: what is posted, and what it needs; all in WQEs.
        wide, doubt = Signal(), Signal()
        posted, used = Signal(16), Signal()
        some = Signal()  # `posted` is not 0
        end = Signal(piece_bits + 1)  # from the first to the end of its piece, or of the ring
        needs, within, granted = Signal(), Signal(), Signal()
        slot, offset_words = Signal(16), Signal(self.word_bits)
        qp, index = Signal.like(self.qp), Signal(16)
        base = Signal(64)
        shift = Signal(4)
        m.d.sync += wide.eq(self.en)
        with m.If(self.en):
            in_piece = Cat(self.log_stride < size_bits - k for k in range(piece_bits))
            in_ring = Cat(self.log_size > k for k in range(piece_bits))
            m.d.sync += [
                doubt.eq(self.doubtful),
                posted.eq(self.posted),
                some.eq(self.posted != 0),
                used.eq(self.used != 0),
                end.eq((~self.issued[:piece_bits] & in_piece & in_ring) + 1),
                needs.eq(~self.holds | ((self.issued[:piece_bits] & in_piece) == 0)),
                self.first.eq(~self.holds),
                self.behind.eq(self.tail),
                granted.eq(self.granted),
                within.eq(0),
                slot.eq(self.issued & Cat(self.log_size > k for k in range(16))),
                qp.eq(self.qp),
                index.eq(self.issued),
                shift.eq(self.log_stride),
            ]
            with m.Switch(self.log_stride):
                for stride in self.strides:
                    with m.Case(stride):
                        m.d.sync += [
                            within.eq(self.used <= (self.quota - 1) << size_bits - stride),
                            offset_words.eq(self.issued << (stride - 3)),
                        ]
                with m.Default():
                    m.d.sync += [posted.eq(0), some.eq(0)]

        # Second stage: how many, and where.
        counts, wants, allowed = Signal(), Signal(), Signal()
        m.d.comb += [
            counts.eq(wide & (~doubt | self.sure)),
            wants.eq(counts & some),
            allowed.eq(self.any & (~self.waiting | granted) & (self.first | (within & self.more))),
            self.index.eq(index),
            self.stride.eq(shift),
        ]
        m.d.sync += [
            self.take.eq(wants & needs & allowed),
            self.waits.eq(wants & self.first & ~allowed & (self.may_wait | granted)),
            self.give.eq(wide & ~doubt & ~some & ~used & ~self.first),
        ]
        count = Signal(piece_bits + 1)
        more = Signal()
        offset = Signal(16 + self.strides[-1])
        at = Signal(self.flight_layout)
        with m.If(wide):
            m.d.sync += [
                base.eq(self.base),
                self.found.eq(wants & (~needs | allowed)),
                more.eq(posted > end),
                count.eq(Mux(posted > end, end, posted)),
                at.qp.eq(qp),
                at.word.eq(Cat(offset_words, Mux(needs, self.offer, self.behind))),
                at.end.eq(index),
            ]
            with m.Switch(shift):
                for stride in self.strides:
                    with m.Case(stride):
                        m.d.sync += offset.eq(slot << stride)

        # Third stage: the read.
        m.d.comb += [
            self.clean.eq(~wide & ~self.found),
            self.deciding.eq(wide),
            self.doubting.eq(wide & doubt),
            self.inside.eq(qp),
            self.start.eq(self.found & ~self.read.valid & self.room & ~self.hold),
            self.flight.eq(at),
            self.flight.end.eq(at.end + count),
        ]
        m.d.sync += self.repeat.eq(self.start & more)
        with m.If(self.read.ready):
            m.d.sync += self.read.valid.eq(0)
        with m.If(self.start):
            m.d.sync += [
                self.found.eq(0),
                self.read.valid.eq(1),
                self.read.payload.address.eq(Cat(offset[:12], base[12:] + offset[12:])),
                self.repeat_qp.eq(at.qp),
            ]
            with m.Switch(shift):
                for stride in self.strides:
                    with m.Case(stride):
                        m.d.sync += self.read.payload.length.eq(count << stride)
        return m
