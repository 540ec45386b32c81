"""Where fetched WQEs wait on chip."""

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.packet import PacketBeat
from ..stream.ram import Ram

__all__ = ["WqeArea"]


class WqeArea(wiring.Component):
    """Memory of ``blocks * size`` bytes that is written a beat a cycle from any 64-bit word on, and read a word at a
    time.

    One bank of 64 bits for each 64 bits of ``data_width``: a beat that does not begin at the first bank is rotated, and
    the banks before its own beginning take their words a row further. With ``puts`` single words are written between
    the beats.

    Parameters
    ----------
    data_width : int
        Bits of a beat: 64, 128, 256 or 512.
    blocks, size : int
        Blocks, and bytes of each; powers of two.
    puts : bool
        With ``put_addr``, ``put_word`` and ``put_en``.

    Members
    -------
    start
        Word at which the packet begins; stays until its last beat.
    beat, beat_en
        ``PacketBeat``, a multiple of 8 bytes; at most 4096 bytes a packet. Can be read from the second cycle on.
    put_addr, put_word, put_en
        One word, written only if ``beat_en`` is not set. Likewise.
    word_addr, word
        Read port: the word, 2 cycles later. A word that is being written comes out undefined.
    """

    def __init__(self, data_width, blocks, size, *, puts=False):
        words = blocks * size // 8
        if words & words - 1 or words * 64 < 2 * data_width:
            raise ValueError(f"blocks * size must be a power of two of at least two beats, not {blocks!r} * {size!r}")
        self.data_width = data_width
        self.words = words
        self.puts = puts
        put = {"put_addr": In(range(words)), "put_word": In(64), "put_en": In(1)}
        super().__init__(
            {
                "start": In(range(words)),
                "beat": In(PacketBeat(data_width)),
                "beat_en": In(1),
                "word_addr": In(range(words)),
                "word": Out(64),
            }
            | (put if puts else {})
        )

    def elaborate(self, platform):
        m = Module()
        banks = self.data_width // 64
        bank_bits = ceil_log2(banks)
        rows = self.words // banks
        beats = Signal(ceil_log2(4096 // (8 * banks)))
        with m.If(self.beat_en):
            m.d.sync += beats.eq(beats + 1)
            with m.If(self.beat.last):
                m.d.sync += beats.eq(0)
        row = Signal(range(rows))
        first = Signal(bank_bits)
        m.d.comb += [first.eq(self.start[:bank_bits]), row.eq(self.start[bank_bits:] + beats)]
        outputs = []
        for bank in range(banks):
            m.submodules[f"bank{bank}"] = ram = Ram(64, rows)
            lane = Signal(bank_bits)  # word of the beat that belongs here
            m.d.comb += [lane.eq(bank - first), ram.r_addr.eq(self.word_addr[bank_bits:])]
            m.d.sync += [  # registers, because many block RAMs stand far from each other
                ram.w_addr.eq(row + (first > bank)),
                ram.w_data.eq(self.beat.data.word_select(lane, 64) if banks > 1 else self.beat.data),
                ram.w_en.eq(self.beat_en & (self.beat.count[3:] > lane)),
            ]
            if self.puts:
                with m.If(~self.beat_en):
                    m.d.sync += [
                        ram.w_addr.eq(self.put_addr[bank_bits:]),
                        ram.w_data.eq(self.put_word),
                        ram.w_en.eq(self.put_en & (self.put_addr[:bank_bits] == bank)),
                    ]
            outputs.append(ram.r_data)
        chosen = Signal(bank_bits)
        before = Signal(bank_bits)
        m.d.sync += Cat(before, chosen).eq(Cat(self.word_addr[:bank_bits], before))
        m.d.comb += self.word.eq(Array(outputs)[chosen] if banks > 1 else outputs[0])
        return m
