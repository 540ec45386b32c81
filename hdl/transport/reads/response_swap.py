"""What a QP's responses leave behind, as words."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...stream.words import WORD_BITS, SavedWord, StateWords
from .replay_cache import KEPT, ReplayRow, ReplaySlot
from .response_scheduler import ResponseCounts

__all__ = ["ResponseState", "ResponseSwap"]

ResponseState = data.StructLayout({"counts": ResponseCounts, "atomic": 1, "place": ReplaySlot})
"""Of a QP, none of whose entries is under way; ``atomic`` and ``place`` as of
:data:`verbena.hdl.transport.reads.response_packet.CutState`. Its rows in the replay cache follow."""


class ResponseSwap(wiring.Component):
    """Gives away what is known of a QP's responses, or takes it: two words of a ``ResponseState``, in the lowest bits,
    then two for each ``ReplayRow`` that counts, in the order of their slots. ``place`` tells how many count.

    From strobe to strobe of its end 5 cycles, and 4 more for each row, if no word waits.

    Members
    -------
    save, load : 1
        Strobes, while not ``busy``.
    state : ``ResponseState``
        What ``save`` is for; stands while ``busy``.
    loaded_state : ``ResponseState``
        What ``load`` has brought, when it is not ``busy`` any more.
    busy : 1
        From the cycle after a strobe on.
    look, slot, row, write, new_row
        To the replay cache.
    saved, loaded : streams of ``SavedWord`` and of words
    """

    def __init__(self):
        super().__init__(
            {
                "save": In(1),
                "load": In(1),
                "state": In(ResponseState),
                "loaded_state": Out(ResponseState),
                "busy": Out(1),
                "look": Out(1),
                "slot": Out(4),
                "row": In(ReplayRow),
                "write": Out(1),
                "new_row": Out(ReplayRow),
                "saved": Out(stream.Signature(SavedWord)),
                "loaded": In(stream.Signature(WORD_BITS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = StateWords(ReplayRow)
        assert words.words == 2
        assert ResponseState.size <= ReplayRow.size
        came = Signal(ResponseState)  # if it was the state that came
        saving = Signal()
        left = Signal(range(KEPT + 1))  # rows
        m.d.comb += [
            Value.cast(came).eq(Value.cast(words.value)),
            words.state.eq(self.row),
            self.new_row.eq(words.value),
            self.look.eq(self.busy),
            self.saved.valid.eq(words.saved.valid),
            self.saved.payload.data.eq(words.saved.payload.data),
            self.saved.payload.last.eq(words.saved.payload.last & (left == 0)),
            words.saved.ready.eq(self.saved.ready),
        ]
        wiring.connect(m, wiring.flipped(self.loaded), words.loaded)
        m.d.sync += self.write.eq(0)

        def rows(state):
            return Mux(state.place.wrapped, KEPT, state.place.slot)

        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.comb += [
                    words.save.eq(self.save),
                    words.load.eq(self.load),
                    Value.cast(words.state)[: ResponseState.size].eq(self.state),
                ]
                m.d.sync += [saving.eq(self.save), left.eq(rows(self.state)), self.slot.eq(0)]
                with m.If(self.save | self.load):
                    m.next = "STATE"
            with m.State("STATE"), m.If(~words.busy):
                with m.If(~saving):
                    m.d.sync += [self.loaded_state.eq(came), left.eq(rows(came))]
                m.next = "NEXT"
            with m.State("NEXT"):
                # The next row is read while the words of this one go, which takes as long; one that came is written.
                m.d.sync += self.slot.eq(self.slot + (saving | self.write))
                m.next = "IDLE"
                with m.If(left != 0):
                    m.d.comb += [words.save.eq(saving), words.load.eq(~saving)]
                    m.d.sync += left.eq(left - 1)
                    m.next = "ROW"
            with m.State("ROW"), m.If(~words.busy):
                m.d.sync += self.write.eq(~saving)
                m.next = "NEXT"
        return m
