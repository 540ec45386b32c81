"""Where the state of a queue pair is between two slots."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.ram import Ram
from ..stream.words import WORD_BITS, SavedWord

__all__ = ["SWAPPED", "SwapBuffer"]

SWAPPED = (
    "responder",
    "acknowledger",
    "read_atomic_responder",
    "response_receiver",
    "completer",
    "timers",
    "sq_fetch",
    "rq_fetch",
    "requester",
)
"""The blocks that have state of a QP, in the order in which they get it back."""


class SwapBuffer(wiring.Component):
    """Keeps what the blocks give away of one queue pair, and gives it back to them.

    Each block's words stand in a section of their own. Words are taken as they come, one a cycle; they go back block by
    block, one every 3 cycles at most.

    Parameters
    ----------
    words : int
        Most words of a block, a power of two.

    Members
    -------
    saved : array of streams of ``SavedWord``; loaded : array of streams of words
        Of each of :data:`SWAPPED`.
    begin : 1
        Strobe: forget what is here.
    full : 1
        All have given all.
    back : 1
        Give it back, as long as this is set; what has gone goes again once it was not set.
    """

    def __init__(self, words):
        if not isinstance(words, int) or words < 2 or words & words - 1:
            raise ValueError(f"words must be a power of two, at least 2, not {words!r}")
        self.words = words
        count = len(SWAPPED)
        super().__init__(
            {
                "saved": In(stream.Signature(SavedWord)).array(count),
                "loaded": Out(stream.Signature(WORD_BITS)).array(count),
                "begin": In(1),
                "full": Out(1),
                "back": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        blocks, place_bits = len(SWAPPED), ceil_log2(self.words)
        m.submodules.store = store = Ram(WORD_BITS, blocks * self.words)
        counts = Array(Signal(place_bits + 1, name=f"count_{name}") for name in SWAPPED)
        done = Signal(blocks)
        m.d.comb += self.full.eq(done.all())

        # One of those that have a word.
        before = Const(0, 1)
        for number, port in enumerate(self.saved):
            mine = Signal(name=f"takes_{number}")
            m.d.comb += [mine.eq(port.valid & ~before), port.ready.eq(~before)]
            with m.If(mine):
                m.d.comb += [
                    store.w_addr.eq(Cat(counts[number][:place_bits], Const(number, ceil_log2(blocks)))),
                    store.w_data.eq(port.payload.data),
                    store.w_en.eq(1),
                ]
                m.d.sync += [counts[number].eq(counts[number] + 1), done[number].eq(port.payload.last)]
            before = before | port.valid
        with m.If(self.begin):
            m.d.sync += [*(count.eq(0) for count in counts), done.eq(0)]

        section, place = Signal(range(blocks)), Signal(place_bits + 1)
        valid, taken = Signal(), Signal()
        m.d.comb += [
            store.r_addr.eq(Cat(place[:place_bits], section)),
            taken.eq(Cat(port.ready for port in self.loaded).bit_select(section, 1)),
        ]
        for number, port in enumerate(self.loaded):
            m.d.comb += [port.valid.eq(valid & (section == number)), port.payload.eq(store.r_data)]
        with m.FSM():
            with m.State("READ"):
                m.d.sync += Cat(section, place).eq(Mux(self.back, Cat(section, place), 0))
                with m.If(self.back & (place != counts[section])):
                    m.next = "WAIT"
                with m.Elif(self.back & (section != blocks - 1)):
                    m.d.sync += [section.eq(section + 1), place.eq(0)]
            with m.State("WAIT"):
                m.next = "SHOW"
            with m.State("SHOW"):
                m.d.comb += valid.eq(1)
                with m.If(taken):
                    m.d.sync += place.eq(place + 1)
                    m.next = "READ"
        return m
