"""What the response receiver gives away of a queue pair, and gets back, in words."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...stream.words import WORD_BITS, SavedWord
from ..common.layouts import ReadTarget
from .read_targets import HALF_BITS

__all__ = ["ReadGroup", "ReadTargetSwap"]

HALF_WORDS = -(-(1 + HALF_BITS) // WORD_BITS)

ReadGroup = data.ArrayLayout(
    data.StructLayout({"one": 1, "half": HALF_BITS, "unused": HALF_WORDS * WORD_BITS - HALF_BITS - 1}), 2
)
"""A target. The 1 in front tells it from the end."""

WORDS = 2 * HALF_WORDS


class ReadTargetSwap(wiring.Component):
    """Gives away how far a QP's READs are, and then its targets, one after the other; or takes them. It asks for half a
    target when the words of what came before have gone. So no other QP waits for words.

    The state is one more target in front of the others, and becomes the QP's oldest when it is loaded. Each has the
    words of a ``ReadGroup``, the lowest bits first. A word whose lowest bit is 0 follows.

    Parameters
    ----------
    qps : int
        QPs, a power of two.

    Members
    -------
    saved : stream of ``SavedWord``; loaded : stream of words
        The state is taken as soon as it comes. The last word is taken when all targets are put back.
    empty, ready : 1
        ``save`` may come; ``load`` may come, as the state is here.
    save, load : 1
        Strobes: ``state`` and the targets of ``qp`` go; what has come, and the targets that follow, are for ``qp``.
    qp, of : QP index
        That of a strobe, and that of the last one.
    state : ``ReadTarget``
        With ``save``.
    wants, second : 1
        The first or the second half of the oldest target is wanted; stays until ``found``. The target is to be taken
        out with the second one.
    found, some, half : 1, 1, half a ``ReadTarget``
        Here it is, or there is none.
    bring : stream of ``{qp, row}``
        What becomes the newest: first the state, from the cycle after ``load`` on, then each target.
    """

    def __init__(self, qps):
        self.qps = qps
        word = stream.Signature(WORD_BITS)
        super().__init__(
            {
                "saved": Out(stream.Signature(SavedWord)),
                "loaded": In(word),
                "empty": Out(1),
                "ready": Out(1),
                "save": In(1),
                "load": In(1),
                "qp": In(range(qps)),
                "of": Out(range(qps)),
                "state": In(ReadTarget),
                "wants": Out(1),
                "second": Out(1),
                "found": In(1),
                "some": In(1),
                "half": In(HALF_BITS),
                "bring": Out(stream.Signature(data.StructLayout({"qp": range(qps), "row": ReadTarget}))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        saved, loaded = self.saved, self.loaded
        group = Signal(ReadGroup, reset_less=True)
        bits, state = Value.cast(group), Value.cast(self.state)
        left = Signal(range(WORDS + 1))  # words that are still to go, or to come
        loads, moves = Signal(), Signal()
        m.d.comb += [
            saved.payload.data.eq(bits[:WORD_BITS]),
            self.bring.payload.qp.eq(self.of),
            Value.cast(self.bring.payload.row).eq(Cat(group[0].half, group[1].half)),
            moves.eq((saved.valid & saved.ready) | (loaded.valid & loaded.ready)),
        ]
        with m.If(self.save | self.load):
            m.d.sync += self.of.eq(self.qp)
        with m.If(moves):
            m.d.sync += [bits.eq(Cat(bits[WORD_BITS:], loaded.payload)), left.eq(left - 1)]
        with m.If(loads):
            m.d.sync += [
                group[0].one.eq(1),
                group[0].half.eq(Mux(self.empty, state[:HALF_BITS], self.half)),
                group[1].half.eq(state[HALF_BITS:]),  # of a target these words do not go
            ]
        with m.FSM():
            with m.State("EMPTY"):
                m.d.comb += [self.empty.eq(1), loads.eq(self.save)]
                m.d.sync += left.eq(WORDS)
                with m.If(self.save):
                    m.next = "GIVE"
                with m.Elif(loaded.valid):
                    m.next = "TAKE_STATE"

            with m.State("GIVE"):
                m.d.comb += saved.valid.eq(left != 0)
                with m.If(left == 0):
                    m.next = "FIND"
            with m.State("FIND"):
                m.d.comb += [self.wants.eq(1), loads.eq(self.found & self.some)]
                m.d.sync += left.eq(HALF_WORDS)
                with m.If(self.found):
                    m.d.sync += self.second.eq(self.some & ~self.second)
                    m.next = "GIVE"
                    with m.If(~self.some):
                        m.next = "END"
            with m.State("END"):
                m.d.comb += [saved.valid.eq(1), saved.payload.data[0].eq(0), saved.payload.last.eq(1)]
                with m.If(saved.ready):
                    m.next = "EMPTY"

            with m.State("TAKE_STATE"):
                m.d.comb += loaded.ready.eq(left != 0)
                with m.If(left == 0):
                    m.next = "READY"
            with m.State("READY"):
                m.d.comb += self.ready.eq(1)
                with m.If(self.load):
                    m.next = "PUT"
            with m.State("PUT"):
                m.d.comb += self.bring.valid.eq(1)
                with m.If(self.bring.ready):
                    m.next = "NEXT"
            with m.State("NEXT"):
                m.d.sync += left.eq(WORDS)
                with m.If(loaded.valid):
                    m.next = "TAKE"
                    with m.If(~loaded.payload[0]):
                        m.d.comb += loaded.ready.eq(1)
                        m.next = "EMPTY"
            with m.State("TAKE"):
                m.d.comb += loaded.ready.eq(left != 0)
                with m.If(left == 0):
                    m.next = "PUT"
        return m
