"""What the completer gives away of a queue pair, and gets back, in words."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ...stream.words import WORD_BITS, SavedWord, StateWords
from ..common.layouts import Outstanding
from ..common.psn import PSN_BITS
from .ack_context import ack_context
from .outstanding_messages import OldestMessage

__all__ = ["CompleterSwap", "completer_head"]

Kept = data.StructLayout({"last_psn": PSN_BITS, "opcode": 4, "signaled": 1})
"""What a word says of a message that is under way."""


def completer_head(window, *, keys=False):
    """Layout of the first words: the context, and how many messages follow."""
    return data.StructLayout({"row": ack_context(keys), "messages": range(window + 1)})


class CompleterSwap(wiring.Component):
    """Keeps a QP's acknowledge context and its messages that are under way: those of a SAVE until all words have gone,
    and those of a LOAD until its token comes. So no other QP waits for words.

    The words are the context with the number of messages behind it, the lowest bits first, and then one for each
    message, in its lowest bits, the oldest first.

    *Cycles*: ``save`` 3, and 1 for each message; ``load`` 1 for each place of the window.

    Parameters
    ----------
    window : int
        Most messages of a QP that are under way, a power of two.
    keys : bool
        As of the context.

    Members
    -------
    saved : stream of ``SavedWord``; loaded : stream of words
        Words are taken as soon as they come, unless some are still to be given away.
    empty, full : 1
        SAVE may come; LOAD may come, as all words are here.
    save, load : 1
        The token is here; stays until ``done``. Only if ``empty`` was set, or ``full``.
    done : 1
        The messages are taken, or put back.
    qp, row : 12, ``ack_context(keys)``
        The token's QP; its context in the cycle of ``done`` is what is given away.
    value : ``ack_context(keys)``
        While ``full``, and with ``load``: what has come.
    seek, message, known : 16, ``OldestMessage``, 1
        With ``save``: see :class:`.outstanding_messages.OutstandingMessages`.
    outstanding : stream of ``Outstanding``
        With ``load``: what is in the places of the window from now on. Where no message is under way that is one of
        the window before.
    """

    def __init__(self, window, *, keys=False):
        self.window = window
        self.head = completer_head(window, keys=keys)
        row = ack_context(keys)
        super().__init__(
            {
                "saved": Out(stream.Signature(SavedWord)),
                "loaded": In(stream.Signature(WORD_BITS)),
                "empty": Out(1),
                "full": Out(1),
                "save": In(1),
                "load": In(1),
                "done": Out(1),
                "qp": In(12),
                "row": In(row),
                "value": Out(row),
                "seek": Out(16),
                "message": In(OldestMessage),
                "known": In(1),
                "outstanding": Out(stream.Signature(Outstanding)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = StateWords(self.head)
        m.submodules.kept = kept = memory.Memory(shape=Kept, depth=self.window, init=[])
        write, read = kept.write_port(), kept.read_port(domain="comb")
        count = Signal(range(self.window + 1))  # messages
        place = Signal(range(self.window))
        ahead, sought = Signal.like(count), Signal(2)  # the next to seek; what comes is what was sought 2 cycles before
        saved, loaded, message, told = self.saved, self.loaded, self.message, self.outstanding.payload
        last = Signal()  # the present place is the last message's
        m.d.comb += [
            words.state.row.eq(self.row),
            words.state.messages.eq(count),
            words.wake.eq(self.row.failed & ~self.row.dead),  # a WQE is still to complete: its queue must go back
            self.value.eq(words.value.row),
            self.seek.eq(self.row.progress.oldest + ahead),
            saved.payload.wake.eq(words.saved.payload.wake),
            saved.payload.data.eq(words.saved.payload.data),
            write.addr.eq(place),
            read.addr.eq(place),
            last.eq(place + 1 == count),
            told.qp.eq(self.qp),
            told.wqe_index.eq(self.value.progress.oldest + place - Mux(place < count, 0, self.window)),
            told.last_psn.eq(read.data.last_psn),
            told.opcode.eq(read.data.opcode),
            told.signaled.eq(read.data.signaled),
        ]
        with m.FSM():
            with m.State("EMPTY"):
                m.d.comb += self.empty.eq(1)
                m.d.sync += [count.eq(0), place.eq(0), ahead.eq(0), sought.eq(0)]
                with m.If(self.save):
                    m.next = "FIND"
                with m.Elif(loaded.valid):
                    m.d.comb += words.load.eq(1)
                    m.next = "TAKE_CONTEXT"

            with m.State("FIND"):
                m.d.sync += [ahead.eq(ahead + 1), sought.eq(Cat(1, sought))]
                m.d.comb += [
                    write.data.last_psn.eq(message.last_psn),
                    write.data.opcode.eq(message.opcode),
                    write.data.signaled.eq(message.signaled),
                ]
                with m.If(sought[1]):
                    with m.If(self.known):
                        m.d.comb += write.en.eq(1)
                        m.d.sync += [count.eq(count + 1), place.eq(place + 1)]
                    with m.Else():  # at the latest behind a whole window: there the oldest is found again
                        m.next = "FOUND"
            with m.State("FOUND"):
                m.d.comb += [words.save.eq(1), self.done.eq(1)]
                m.d.sync += place.eq(0)
                m.next = "GIVE_CONTEXT"
            with m.State("GIVE_CONTEXT"):
                m.d.comb += [
                    saved.valid.eq(words.saved.valid),
                    saved.payload.last.eq(words.saved.payload.last & (count == 0)),
                    words.saved.ready.eq(saved.ready),
                ]
                with m.If(saved.ready & words.saved.payload.last):
                    m.next = "GIVE"
                    with m.If(count == 0):
                        m.next = "EMPTY"
            with m.State("GIVE"):
                m.d.comb += [
                    saved.valid.eq(1),
                    saved.payload.data[: Kept.size].eq(read.data),
                    saved.payload.last.eq(count == 1),
                ]
                with m.If(saved.ready):
                    m.d.sync += [place.eq(place + 1), count.eq(count - 1)]
                    with m.If(count == 1):
                        m.next = "EMPTY"

            with m.State("TAKE_CONTEXT"):
                m.d.comb += [
                    words.loaded.valid.eq(loaded.valid),
                    words.loaded.payload.eq(loaded.payload),
                    loaded.ready.eq(words.loaded.ready),
                ]
                m.d.sync += count.eq(words.value.messages)
                with m.If(~words.busy):
                    m.next = "TAKE"
                    with m.If(words.value.messages == 0):
                        m.next = "FULL"
            with m.State("TAKE"):
                m.d.comb += [
                    loaded.ready.eq(1),
                    write.data.eq(data.View(Kept, loaded.payload[: Kept.size])),
                    write.en.eq(loaded.valid),
                ]
                with m.If(loaded.valid):
                    m.d.sync += place.eq(place + 1)
                    with m.If(last):
                        m.d.sync += place.eq(0)
                        m.next = "FULL"
            with m.State("FULL"):
                m.d.comb += self.full.eq(1)
                with m.If(self.load):
                    m.next = "PUT"
            with m.State("PUT"):
                m.d.comb += self.outstanding.valid.eq(1)
                with m.If(self.outstanding.ready):
                    m.d.sync += place.eq(place + 1)
                    with m.If(place == self.window - 1):
                        m.d.comb += self.done.eq(1)
                        m.next = "EMPTY"
        return m
