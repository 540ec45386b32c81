"""What an operation makes of an MPT entry: for the access check, in host memory, and as its result."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.tables import KEY_INDEX_BITS, MPT, AccessStatus, KeyKind
from ..stream.packet import PacketBeat
from ..stream.record import record_layout
from ..stream.transfer import Done, ReadRequest
from .access import EntryChange

__all__ = ["EntryWriter", "KeyOutcome", "KeyResult"]

NOT_VALID, OTHERS, VALID = range(3)
"""What is written: the first word, so that the entry is not valid; the other words; the first word again."""

WORD = 64
WORDS = MPT.size * 8 // WORD
FIRST = WORD // 8
"""Bytes of the word that says whether an entry is valid."""

KeyResult = data.StructLayout({"status": AccessStatus})
"""What came of it."""

KeyOutcome = data.StructLayout(
    {"status": AccessStatus, "of_peer": 1, "index": KEY_INDEX_BITS, "entry": record_layout(MPT), "was_valid": 1}
)
"""What is to become of the entry ``index`` if ``status`` is OK, and whether it is valid now."""


class EntryWriter(wiring.Component):
    """Changes one entry after the other, and gives the results of the operations.

    The access check has the new entry, or that there is none, before it is in memory, and reads none there (``hold``)
    until that is written. An entry that was valid is made invalid first: it is dropped, and all accesses that have seen
    it are over before new words are written. These follow one behind the other, the one that makes the entry valid
    last; writes of one client come to memory in their order. So when the result comes no access goes by what was there
    before, and the next one finds what is there now, and so does the host.

    What is not OK, or neither was valid nor becomes so, changes nothing. If the bus fails to write (BUS), the entry is
    dropped, and its first word is cleared, before anything else is read; if that fails, too, nobody knows what is
    there.

    *Cycles*, on an idle bus: a result without a change, 1 after the outcome was taken; else 9, or 5 if it only becomes
    invalid, and as long as a write takes to be answered; or, if that is longer, as :class:`.access.AccessUnit` takes to
    invalidate, of a window that was bound before the write. The next outcome is taken in the cycle after the result.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits: of what is written.

    Members
    -------
    i : stream of :data:`KeyOutcome`
    busy, index : 1, 24
        An outcome is not over, and of which entry.
    sent, received : streams of :data:`KeyResult`
        Of operations of this side, and of peers.
    entry : ``MPT``
        Of ``index``, as it becomes.
    drop, put : 1
        Strobes, not both: what is kept of the entry may be wrong; ``entry`` is now in host memory.
    invalidate : stream of ``EntryChange``
        To the access check, which takes it when it is done.
    hold : 1
        To the access check: an entry is being written.
    write, data, done : streams of ``ReadRequest``, ``PacketBeat`` and ``Done``
        8 or 24 bytes of an entry. Up to 3 writes wait for their answers; they must come to memory in their order.
    mpt_base : 64
        The table.
    """

    def __init__(self, data_width):
        self.data_width = data_width
        super().__init__(
            {
                "i": In(stream.Signature(KeyOutcome)),
                "busy": Out(1),
                "index": Out(KEY_INDEX_BITS),
                "sent": Out(stream.Signature(KeyResult)),
                "received": Out(stream.Signature(KeyResult)),
                "entry": Out(record_layout(MPT)),
                "drop": Out(1),
                "put": Out(1),
                "invalidate": Out(stream.Signature(EntryChange)),
                "hold": Out(1),
                "write": Out(stream.Signature(ReadRequest)),
                "data": Out(stream.Signature(PacketBeat(data_width))),
                "done": In(stream.Signature(Done)),
                "mpt_base": In(64),
            }
        )

    def elaborate(self, platform):
        m = Module()
        entry, coming = self.entry, self.i.payload
        of_peer, was_valid = Signal(), Signal()
        status = Signal(AccessStatus)
        place = Signal(64)
        m.d.comb += [
            self.sent.payload.status.eq(status),
            self.received.payload.status.eq(status),
            self.done.ready.eq(1),
        ]

        # -- What is written: the first word, not valid; the others; or the first one, valid.
        step = Signal(2)
        rest = step == OTHERS
        words = [entry.as_value()[WORD * word : WORD * (word + 1)] for word in range(WORDS)]
        lanes = self.data_width // WORD
        beats = -(-(WORDS - 1) // lanes)
        beat = Signal(range(max(2, beats)))
        out = self.data.payload
        m.d.comb += [
            self.write.payload.address.eq(Mux(rest, place + FIRST, place)),
            self.write.payload.length.eq(Mux(rest, MPT.size - FIRST, FIRST)),
            out.first.eq(beat == 0),
        ]
        with m.If(rest), m.Switch(beat):
            for number in range(beats):
                with m.Case(number):
                    held = words[1:][number * lanes : (number + 1) * lanes]
                    m.d.comb += [
                        out.data.eq(Cat(held)),
                        out.count.eq(FIRST * len(held)),
                        out.last.eq(number == beats - 1),
                    ]
        with m.Else():
            m.d.comb += [out.data.eq(Cat(words[0][:-1], step == VALID)), out.count.eq(FIRST), out.last.eq(1)]

        # -- What is under way of a change: writes, and what the access check is told.
        unanswered = Signal(2)
        failed, retracts = Signal(), Signal()  # a write has failed; what it may have left is cleared
        changing = Signal()  # the access check does not have the new entry, or an access still goes by the old one
        asks, answers = self.write.valid & self.write.ready, self.done.valid
        m.d.sync += unanswered.eq(unanswered + asks - answers)
        with m.If(answers & (self.done.payload.status != AccessStatus.OK)):
            m.d.sync += failed.eq(1)
        m.d.comb += [
            self.invalidate.valid.eq(changing),
            self.invalidate.payload.index.eq(self.index),
            self.invalidate.payload.entry.eq(entry),
            self.invalidate.payload.unseen.eq(~was_valid),
        ]
        with m.If(changing & self.invalidate.ready):
            m.d.sync += changing.eq(0)

        m.d.comb += self.busy.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.busy.eq(0), self.i.ready.eq(1)]
                m.d.sync += [
                    self.index.eq(coming.index),
                    place.eq(self.mpt_base + Cat(Const(0, 5), coming.index)),
                    entry.eq(coming.entry),
                    status.eq(coming.status),
                    of_peer.eq(coming.of_peer),
                    was_valid.eq(coming.was_valid),
                    step.eq(Mux(coming.was_valid, NOT_VALID, OTHERS)),
                    failed.eq(0),
                    retracts.eq(0),
                ]
                with m.If(self.i.valid):
                    m.next = "ANSWER"
                    # Nor is a window changed that is bound to nothing, and was before.
                    with m.If((coming.status == AccessStatus.OK) & (coming.was_valid | coming.entry.valid)):
                        m.d.sync += [changing.eq(1), self.hold.eq(1)]
                        m.next = "WRITE"
            with m.State("WRITE"):
                # Behind a bus error nobody knows what the entry is.
                m.d.comb += [self.write.valid.eq(1), self.drop.eq(1)]
                with m.If(self.write.ready):
                    m.next = "DATA"
            with m.State("DATA"):
                m.d.comb += self.data.valid.eq(1)
                with m.If(self.data.ready):
                    m.d.sync += beat.eq(beat + 1)
                    with m.If(out.last):
                        m.d.sync += [beat.eq(0), step.eq(step + 1)]
                        m.next = "WRITTEN"
                        with m.If(rest):
                            m.next = "WRITE"
            with m.State("WRITTEN"), m.If(unanswered == 0):
                with m.If(failed & ~retracts):
                    m.d.sync += [status.eq(AccessStatus.BUS), retracts.eq(1), step.eq(NOT_VALID)]
                    m.next = "WRITE"
                with m.Else():
                    # Who still goes by the old entry may wait for another one: that can be read now.
                    m.d.sync += self.hold.eq(0)
                    with m.If(~changing):
                        m.next = "ANSWER"
                        with m.If(retracts):
                            m.d.sync += [changing.eq(1), was_valid.eq(1), entry.valid.eq(0)]
                            m.next = "DROP"
                        with m.Elif(entry.valid & rest):
                            m.d.sync += self.hold.eq(1)
                            m.next = "WRITE"
                        with m.Else():
                            m.d.comb += self.put.eq((entry.kind != KeyKind.FAST_REGION) | entry.valid)
            with m.State("DROP"):
                with m.If(~changing):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [self.sent.valid.eq(~of_peer), self.received.valid.eq(of_peer)]
                with m.If(Mux(of_peer, self.received.ready, self.sent.ready)):
                    m.next = "IDLE"
        return m
