"""Scatter/gather entries of send WQEs that READs and atomics still need when the WQE has left the chip."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.wqe import SEND_WQE, SGE_MAX, SGE_OFFSET, WQE_DEFAULT
from ...stream.packet import PacketBeat
from ...stream.transfer import ReadRequest
from ..common.layouts import SGE_COUNT_BITS, STRIDE_BITS

__all__ = ["EntryCache"]


class EntryCache(wiring.Component):
    """Reads a WQE from its send ring in host memory, keeps it, and hands out its entries one after the other.

    The first two entries are the target's. It keeps one WQE, that of the QP which asked last. Entry 2 is asked for once
    in a message and always read anew, so that nothing of an older message, or of the QP's life before a RESET, is taken
    for it; further entries are read again only if another QP has asked in between.

    An entry's address is given 2 cycles after ``want``, its size a cycle later; if the WQE must be read, 2 cycles and
    the read later, and 7 and 3 more words of 8 bytes, in which the WQE is put away.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits: width of ``data``.
    wqe_bytes : int
        Bytes of the largest WQE.
    swaps : bool
        With ``forget``.

    Members
    -------
    want : 1
        Entry ``entry`` is needed; stays until ``take_size`` or ``exhausted``, and falls then for a cycle at least.
    qp, index, stride, entry : 12, 16, 2, 5
        Of what WQE, and log2 of how many times it has 64 bytes. Entries 0 and 1 do not exist here.
    base, log_size : 64, 4
        The QP's send ring; looked at in the first two cycles of ``want``.
    word, take_address, take_size, exhausted : 64, 1, 1, 1
        The answer, see :class:`.scatter_walk.ScatterWalk`: no such entry if the WQE has fewer, or could not be read.
    failed : 1
        With ``exhausted``, and until the next ``want``: the WQE could not be read.
    read : stream of ``ReadRequest``; data : stream of ``PacketBeat``
        To a :class:`verbena.hdl.dma.structure.StructureReader`.
    forget : 1
        What is kept may be another QP's, which had the number before. Not with ``want``.
    """

    def __init__(self, data_width, *, wqe_bytes=WQE_DEFAULT, swaps=False):
        self.data_width = data_width
        self.wqe_bytes = wqe_bytes
        self.swaps = swaps
        super().__init__(
            {
                "want": In(1),
                "qp": In(12),
                "index": In(16),
                "stride": In(STRIDE_BITS),
                "entry": In(range(SGE_MAX + 1)),
                "base": In(64),
                "log_size": In(4),
                "word": Out(64),
                "take_address": Out(1),
                "take_size": Out(1),
                "exhausted": Out(1),
                "failed": Out(1),
                "read": Out(stream.Signature(ReadRequest)),
                "data": In(stream.Signature(PacketBeat(data_width))),
            }
            | ({"forget": In(1)} if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.data_width // 64
        strides = range(6, ceil_log2(self.wqe_bytes) + 1)
        m.submodules.words = words = memory.Memory(shape=64, depth=self.wqe_bytes // 8, init=[])
        write, read = words.write_port(), words.read_port(domain="comb")
        beat = self.data.payload
        kept = Signal()
        fetch = Signal()  # the WQE that is wanted is not here
        owner = Signal(12)
        count = Signal(SGE_COUNT_BITS)  # entries of the WQE
        beyond = Signal()  # there is no such entry; a cycle late
        half = Signal()
        place = Signal(range(self.wqe_bytes // 8))
        lane = place[: ceil_log2(lanes)]
        masked = Signal(15)
        offset = Signal(15 + strides[-1])  # of the WQE in the ring
        request = self.read.payload
        m.d.comb += [
            read.addr.eq(Cat(half, self.entry) + SGE_OFFSET // 8),
            self.word.eq(read.data),
            self.failed.eq(~kept),
            write.addr.eq(place),
            write.data.eq(beat.data.word_select(lane, 64) if lanes > 1 else beat.data),
            masked.eq(self.index & ~(Const((1 << 15) - 1, 15) << self.log_size)),
        ]
        m.d.sync += beyond.eq(self.entry >= count)
        sge_count = SEND_WQE.fields["sge_count"]

        with m.FSM():
            with m.State("IDLE"):
                with m.Switch(self.stride):
                    for number, log in enumerate(strides):
                        with m.Case(number):
                            m.d.sync += offset.eq(masked << log)
                m.d.sync += fetch.eq(~kept | (owner != self.qp) | (self.entry == 2))
                with m.If(self.want):
                    m.next = "CHOOSE"
                if self.swaps:
                    with m.Elif(self.forget):
                        m.d.sync += kept.eq(0)
            with m.State("CHOOSE"):
                # Rings begin at a page, so nothing is carried out of the low 12 bits.
                m.d.sync += [
                    request.address.eq(Cat(offset[:12], self.base[12:] + offset[12:])),
                    request.length.eq(64 << self.stride),
                    owner.eq(self.qp),
                    place.eq(0),
                ]
                m.next = "ADDRESS"
                with m.If(fetch):
                    m.d.sync += [kept.eq(0), self.read.valid.eq(1)]
                    m.next = "READ"
            with m.State("READ"):
                with m.If(self.read.ready):
                    m.d.sync += self.read.valid.eq(0)
                    m.next = "FILL"
            with m.State("FILL"):
                m.d.comb += self.data.ready.eq(lane == lanes - 1)
                with m.If(self.data.valid):
                    m.d.comb += write.en.eq(1)
                    m.d.sync += place.eq(place + 1)
                    with m.If(place == 0):
                        m.d.sync += count.eq(beat.data[sge_count.offset :][: len(count)])
                    with m.If(beat.last & self.data.ready):
                        m.d.sync += kept.eq(~beat.error)
                        m.next = "ADDRESS"
            with m.State("ADDRESS"):
                m.d.comb += [
                    self.exhausted.eq(~kept | beyond),
                    self.take_address.eq(~self.exhausted),
                ]
                m.next = "SIZE"
                with m.If(self.exhausted):
                    m.next = "IDLE"
            with m.State("SIZE"):
                m.d.comb += [half.eq(1), self.take_size.eq(1)]
                m.next = "IDLE"
        return m
