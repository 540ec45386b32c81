"""What the response receiver gives away of a queue pair, and gets back, in words."""

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...stream.words import WORD_BITS, SavedWord, StateWords
from ..common.layouts import ReadTarget
from ..receive.layouts import ReadProgress
from .read_targets import Resumed

__all__ = ["ReadGroup", "ReadState", "ReadTargetSwap"]

ReadState = data.StructLayout({"progress": ReadProgress, "resumed": Resumed})
"""How far a QP's READs and atomics are, besides their targets."""


ReadGroup = data.StructLayout({"one": 1, "target": ReadTarget})
"""A target, and the bit that tells it from the end."""


class ReadTargetSwap(wiring.Component):
    """Gives away how far a QP's READs are, and then its targets, one after the other; or takes them. It asks for a
    target when the words of the one before have gone. So no other QP waits for words.

    The words are the state's, as many as those of a target; and for each target, the oldest first, those of a 1 and the
    target behind it, the lowest bits first. A word 0 follows.

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
        Strobes: ``state`` and the targets of ``qp`` go; the targets that follow ``came`` are for ``qp``.
    qp, of : QP index
        That of a strobe, and that of the last one.
    state, came : ``ReadState``
        With ``save``; while ``ready``, and in the cycle after ``load``.
    wants : 1
        The oldest target is wanted, and is to be taken out; stays until ``found``.
    found, some, target : 1, 1, ``ReadTarget``
        Here it is, or there is none.
    bring : stream of ``{qp, row}``
        A target that becomes the newest.
    """

    def __init__(self, qps):
        self.qps = qps
        assert ReadState.size <= ReadGroup.size
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
                "state": In(ReadState),
                "came": Out(ReadState),
                "wants": Out(1),
                "found": In(1),
                "some": In(1),
                "target": In(ReadTarget),
                "bring": Out(stream.Signature(data.StructLayout({"qp": range(qps), "row": ReadTarget}))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = StateWords(ReadGroup)
        saved, loaded = self.saved, self.loaded
        group = Value.cast(words.value)
        target = Cat(Const(1, 1), Value.cast(self.target))
        m.d.comb += [
            Value.cast(words.state).eq(Mux(self.empty, Value.cast(self.state), target)),
            Value.cast(self.came).eq(group),
            saved.valid.eq(words.saved.valid),
            saved.payload.data.eq(words.saved.payload),
            words.saved.ready.eq(saved.ready),
            loaded.ready.eq(words.loaded.ready),
            words.loaded.valid.eq(loaded.valid),
            words.loaded.payload.eq(loaded.payload),
            self.bring.payload.qp.eq(self.of),
            Value.cast(self.bring.payload.row).eq(group[1:]),
        ]
        with m.If(self.save | self.load):
            m.d.sync += self.of.eq(self.qp)
        with m.FSM():
            with m.State("EMPTY"):
                m.d.comb += self.empty.eq(1)
                with m.If(self.save):
                    m.d.comb += words.save.eq(1)
                    m.next = "GIVE"
                with m.Elif(loaded.valid):
                    m.d.comb += words.load.eq(1)
                    m.next = "TAKE_STATE"

            with m.State("GIVE"):
                with m.If(~words.busy):
                    m.next = "FIND"
            with m.State("FIND"):
                m.d.comb += self.wants.eq(1)
                with m.If(self.found):
                    m.d.comb += words.save.eq(self.some)
                    m.next = "GIVE"
                    with m.If(~self.some):
                        m.next = "END"
            with m.State("END"):
                m.d.comb += [saved.valid.eq(1), saved.payload.data.eq(0), saved.payload.last.eq(1)]
                with m.If(saved.ready):
                    m.next = "EMPTY"

            with m.State("TAKE_STATE"):
                with m.If(~words.busy):
                    m.next = "READY"
            with m.State("READY"):
                m.d.comb += self.ready.eq(1)
                with m.If(self.load):
                    m.next = "NEXT"
            with m.State("NEXT"):
                with m.If(loaded.valid):
                    m.d.comb += words.load.eq(loaded.payload[0])
                    m.next = "TAKE"
                    with m.If(~loaded.payload[0]):
                        m.d.comb += loaded.ready.eq(1)
                        m.next = "EMPTY"
            with m.State("TAKE"):
                with m.If(~words.busy):
                    m.next = "PUT"
            with m.State("PUT"):
                m.d.comb += self.bring.valid.eq(1)
                with m.If(self.bring.ready):
                    m.next = "NEXT"
        return m
