"""WQEs that the driver pushes through the register space, so that they need not be read from host memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .ring import PUSH_WORDS, PushWord

__all__ = ["WqePush"]

ROWS = PUSH_WORDS // 2


class WqePush(wiring.Component):
    """Keeps the words of one pushed WQE, and hands them on, 64 bits a cycle.

    Word 0 opens the buffer for the QP whose page it comes from, also if it was open for another; words of other QPs are
    taken and forgotten. A word that is not pushed is zero: what is read is cleared, and what is found by who opens the
    buffer is, too, before the next word. So QPs that push at the same time cost each other a WQE read, and see nothing
    of each other's words.

    *Latency*: a word is taken when it comes, unless the buffer is being cleared, which takes 16 cycles. ``put_en``
    comes 1 cycle after ``start``, ``copied`` with the 8th or 16th word.

    Parameters
    ----------
    qps : int
        QPs.
    swaps : bool
        QPs leave their places, and others come.

    Members
    -------
    push : stream of ``PushWord``
    hold : 1
        No word is taken.
    moved, moved_qp : 1, QP index
        With ``swaps``: strobe, the QP leaves, or another one comes in its place: what it pushed is forgotten.
    qp, mine : QP index, 1
        The buffer is open for this QP, and not being cleared; in the same cycle.
    start, copy, wide : 1
        Close the buffer and clear it; with ``copy``, read it before, in 64 or, if ``wide``, 128 bytes. ``wide`` stays.
    put_en, put_row, put_word
        Bytes ``8 * put_row`` and on of the WQE.
    room : 1
        The word is taken in this cycle.
    copied : 1
        The last word is taken.
    """

    def __init__(self, qps, *, swaps=False):
        self.qps = qps
        self.swaps = swaps
        super().__init__(
            {
                "push": In(stream.Signature(PushWord)),
                "hold": In(1),
                "qp": In(ceil_log2(qps)),
                "mine": Out(1),
                "start": In(1),
                "copy": In(1),
                "wide": In(1),
                "put_en": Out(1),
                "put_row": Out(range(ROWS)),
                "put_word": Out(64),
                "room": In(1),
                "copied": Out(1),
            }
            | ({"moved": In(1), "moved_qp": In(ceil_log2(qps))} if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        word = self.push.payload.word
        open_, last = Signal(), Signal()
        walking = Signal(init=1)  # a reset does not reach the memories
        owner = Signal.like(self.qp)
        row = Signal(range(ROWS))
        opens, takes, step = Signal(), Signal(), Signal()
        m.d.comb += [
            opens.eq(word == 0),
            self.push.ready.eq(~self.hold & ~walking),
            takes.eq(self.push.valid & self.push.ready & (opens | (open_ & (self.push.payload.qp == owner)))),
            self.mine.eq(open_ & ~walking & (self.qp == owner)),
            self.copied.eq(self.put_en & last & self.room),
            step.eq(~self.put_en | self.room),
            self.put_row.eq(row),
        ]
        # All is cleared but word 0, which is there when the buffer is opened. Written out of registers, in order: who
        # reads a row comes later.
        place, pushed = Signal.like(row), Signal(32)
        m.d.sync += [
            place.eq(Mux(walking, row, word[1:])),
            pushed.eq(Mux(walking, 0, self.push.payload.data)),
        ]
        for half in range(2):
            m.submodules[f"half{half}"] = rows = memory.Memory(shape=32, depth=ROWS, init=[])
            write, read = rows.write_port(), rows.read_port(domain="comb")
            enable = Signal(name=f"enable_{half}")
            m.d.sync += enable.eq(Mux(walking, step if half else step & (row != 0), takes & (word[0] == half)))
            m.d.comb += [
                write.addr.eq(place),
                write.data.eq(pushed),
                write.en.eq(enable),
                read.addr.eq(row),
                self.put_word.word_select(half, 32).eq(read.data),
            ]
        with m.If(walking & step):
            m.d.sync += [row.eq(row + 1), last.eq(row == Mux(self.wide, ROWS - 2, ROWS // 2 - 2))]
            with m.If(row == ROWS - 1):
                m.d.sync += walking.eq(0)
        with m.If(self.copied):
            m.d.sync += self.put_en.eq(0)
        if self.swaps:
            with m.If(self.moved & open_ & (self.moved_qp == owner)):
                m.d.sync += [open_.eq(0), walking.eq(1)]
        with m.If(takes & opens):
            m.d.sync += [open_.eq(1), owner.eq(self.push.payload.qp), walking.eq(open_)]
        with m.If(self.start):
            m.d.sync += [open_.eq(0), walking.eq(1), self.put_en.eq(self.copy)]
        return m
