"""From where a ring stands to the read of its next WQEs."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.transfer import ReadRequest
from .ring import BATCH

__all__ = ["RingRead"]


class RingRead(wiring.Component):
    """Decides how many WQEs to read, and reads them: as many as are posted, have room, and stand in one aligned block.

    ``read`` becomes valid 3 cycles after ``en``. One ring is inside at a time; a ring with nothing to read leaves after
    1 cycle, others when the read has been placed in ``read`` and there was ``room``.

    Parameters
    ----------
    qps, area : int
        QPs, and bytes a QP on chip.
    strides : range
        Logarithms of the sizes that a WQE may have; of another size nothing is read.

    Members
    -------
    en : 1
        With the values that follow, only while ``clean``.
    qp, issued
        A ring, and its first WQE that has not been asked for.
    posted : 16
        WQEs posted and not consumed.
    used
        WQEs asked for and not consumed.
    base, log_size, log_stride
        The ring's attributes.
    doubtful, sure : 1
        With ``en``: the read is made only if ``sure`` is set in the next cycle.
    clean : 1
        Nothing is inside.
    doubting : 1
        In the cycle after ``en`` with ``doubtful``.
    inside
        QP of the ring inside.
    found : 1
        The last stage: ``start`` may come.
    room : 1
        There is a place for what ``flight`` says.
    start : 1
        A read is placed: WQEs of ``flight.qp`` before ``flight.end`` are asked for, and go to word ``flight.word`` of
        the QP's area.
    read : stream of ``ReadRequest``
    repeat, repeat_qp
        Strobe: this QP has more to read.
    """

    def __init__(self, qps, area, strides):
        self.qps = qps
        self.area = area
        self.strides = strides
        self.room_bits = ceil_log2(area) - strides[0] + 1
        qp_bits = ceil_log2(qps)
        self.flight_layout = data.StructLayout({"qp": qp_bits, "word": ceil_log2(area) - 3, "end": 16})
        super().__init__(
            {
                "en": In(1),
                "qp": In(qp_bits),
                "issued": In(16),
                "posted": In(16),
                "used": In(self.room_bits),
                "base": In(64),
                "log_size": In(4),
                "log_stride": In(4),
                "doubtful": In(1),
                "sure": In(1),
                "clean": Out(1),
                "doubting": Out(1),
                "inside": Out(qp_bits),
                "found": Out(1),
                "room": In(1),
                "start": Out(1),
                "flight": Out(self.flight_layout),
                "read": Out(stream.Signature(ReadRequest)),
                "repeat": Out(1),
                "repeat_qp": Out(qp_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        batch_bits = ceil_log2(BATCH) - self.strides[0]  # of the index of a WQE in a batch

        # First stage: what is posted, what room there is, where the block ends; all in WQEs.
        wide = Signal()
        doubt = Signal()
        posted = Signal(16)
        room = Signal(self.room_bits)
        block = Signal(batch_bits + 1)
        slot = Signal(16)
        at = Signal(self.flight_layout)
        base = Signal(64)
        shift = Signal(4)
        m.d.sync += wide.eq(self.en)
        with m.If(self.en):
            mask = Cat((self.log_size > k) & (self.log_stride < ceil_log2(BATCH) - k) for k in range(batch_bits))
            m.d.sync += [
                doubt.eq(self.doubtful),
                posted.eq(self.posted - self.used),
                block.eq((~self.issued[:batch_bits] & mask) + 1),
                slot.eq(self.issued & Cat(self.log_size > k for k in range(16))),
                at.qp.eq(self.qp),
                at.end.eq(self.issued),
                base.eq(self.base),
                shift.eq(self.log_stride),
                room.eq(0),
            ]
            with m.Switch(self.log_stride):
                for stride in self.strides:
                    with m.Case(stride):
                        m.d.sync += [
                            room.eq((self.area >> stride) - self.used),
                            at.word.eq(self.issued << (stride - 3)),
                        ]

        # Second stage: how many, and where.
        count = Signal(batch_bits + 1)
        more = Signal()
        offset = Signal(16 + self.strides[-1])
        beyond = Signal()
        m.d.comb += beyond.eq((posted > block) & (room > block))
        with m.If(wide):
            m.d.sync += [
                self.found.eq((posted != 0) & (room != 0) & (~doubt | self.sure)),
                more.eq(beyond),
                count.eq(Mux(beyond, block, Mux(posted < room, posted, room))),
            ]
            with m.Switch(shift):
                for stride in self.strides:
                    with m.Case(stride):
                        m.d.sync += offset.eq(slot << stride)

        # Third stage: the read.
        m.d.comb += [
            self.clean.eq(~wide & ~self.found),
            self.doubting.eq(wide & doubt),
            self.inside.eq(at.qp),
            self.start.eq(self.found & ~self.read.valid & self.room),
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
