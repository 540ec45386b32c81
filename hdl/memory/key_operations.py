"""Work requests that change the memory protection table: keys are made valid, and invalid."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.tables import KEY_INDEX_BITS, MPT, Access, AccessStatus, KeyKind
from ..stream.packet import PacketBeat
from ..stream.record import record_layout
from ..stream.transfer import AttributeWrite, Done, ReadRequest
from .access import EntryChange, Invalidation
from .kept_entries import KeptEntries
from .mpt import PAGE_BITS_MIN
from .qp_numbers import QPN_BITS, QpNumbers

__all__ = ["KEY_CLIENT", "KeyOperation", "KeyOperations", "KeyRequest", "KeyResult"]

NOT_VALID, OTHERS, VALID = range(3)
"""What is written: the first word, so that the entry is not valid; the other words; the first word again."""

REMOTE_RIGHTS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
"""Those that a window may grant."""

WORD = 64
WORDS = MPT.size * 8 // WORD
LENGTH_BITS = MPT.fields["length"].width
KEPT = 16
"""Entries that need not be read again: a row of LUT RAM, on an ECP5, has no fewer."""

FIRST = WORD // 8
"""Bytes of the word that says whether an entry is valid."""


class KeyOperation(enum.Enum, shape=2):
    """What a work request does to an entry."""

    INVALIDATE = 0
    REGISTER = 1
    BIND = 2


KeyRequest = data.StructLayout(
    {
        "operation": KeyOperation,
        "key": 32,  # INVALIDATE: of the entry; else the one that it gets
        "old": 8,  # BIND of a WINDOW: low bits of the key that it has had
        "region": 32,  # BIND: key of the region
        "address": 64,
        "length": LENGTH_BITS,
        "access": 8,
        "pd": 24,  # of the QP
        "qp": 12,  # its slot
    }
)
"""An operation on the entry ``key[8:]``."""

KeyResult = data.StructLayout({"status": AccessStatus})
"""What came of it."""

KEY_CLIENT = {"operation": Out(stream.Signature(KeyRequest)), "operated": In(stream.Signature(KeyResult))}
"""Members of who asks for operations: a result follows each request."""


class KeyOperations(wiring.Component):
    """Reads an entry of the MPT, checks it, writes it, and has the cached one dropped; one operation at a time.

    *INVALIDATE* makes a valid FAST_REGION or WINDOW_2 invalid. *REGISTER* gives an invalid FAST_REGION its key, place,
    length and rights; its translation table must stand. *BIND* makes a window a part of a region, with remote rights of
    its own: a WINDOW at any time, and with length 0 it is made invalid; a WINDOW_2 that is not valid, for the QP
    that asks, by which alone it can be made invalid. The access check has the new entry, or that there is none, before
    it is in memory, and reads none there (``hold``) until that is written. An entry that was valid is made invalid
    first: it is dropped, and all accesses that have seen it are over before new words are written. These follow one
    behind the other, the one that makes the entry valid last; writes of one client come to memory in their order. So
    when the result comes no access goes by what was there before, and the next one finds what is there now, and so
    does the host.

    *Errors*, the first that applies: the index is beyond the table, or the key is not that of a valid entry, or of
    REGISTER that of a valid one, or of BIND a WINDOW_2 is valid, or the old key is not that of a valid WINDOW
    (KEY); the entry is of another kind (RIGHTS); it is of another PD, or to be made invalid and bound to another QP
    (PD); remote write or atomic without local write, or a region that windows may not be bound to (RIGHTS); the
    length is more than the table has pages for, or beyond 2^64, or that of a WINDOW_2 is 0, or the window is not
    within the region (RANGE); the bus (BUS). Then the entry is as before. But if the bus fails to write, the entry is
    dropped, and its first word is cleared, before anything else is read; if that fails, too, nobody knows what is
    there.

    *Entries are kept* (:class:`.kept_entries.KeptEntries`) of what has been changed here, and of regions that windows
    have been bound to: these are not read again until the command block drops the entry, or another one needs its
    place. So who changes a valid entry, or a window's, must have it dropped; of a FAST_REGION that is not valid nothing
    is kept.

    *Cycles*, on an idle bus: a read of host memory for each entry that is not kept, a write, and some 15 to 25; a bind
    of a region with large pages up to 18 more; and an invalidation, if that takes longer than the write, as long as
    :class:`.access.AccessUnit` takes, of a window that was bound before the write.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits: of what is read and written.
    qps : int
        Slots of QPs.

    Members
    -------
    attribute : ``AttributeWrite`` with ``attribute_en``
        The broadcast to QPs, for their numbers.
    send : stream of ``KeyRequest``; sent : stream of ``KeyResult``
        Operations of send queues. A result comes behind each request; it must be taken before anything else is done.
    receive : stream of ``KeyRequest``; received : stream of ``KeyResult``
        Those of peers, INVALIDATE all.
    command : stream of ``Invalidation``
        Of the command block: taken when it is done.
    invalidate : stream of ``EntryChange``
        To the access check, which takes it when it is done.
    hold : 1
        To the access check: an entry is being written.
    read, fill : streams of ``ReadRequest`` and ``PacketBeat``
        An entry, 32 bytes.
    write, data, done : streams of ``ReadRequest``, ``PacketBeat`` and ``Done``
        8 or 24 bytes of one. Up to 3 writes wait for their answers; they must come to memory in their order.
    mpt_base, mpt_log_size
        The table.
    """

    def __init__(self, data_width, qps):
        self.data_width = data_width
        self.qps = qps
        beat = PacketBeat(data_width)
        super().__init__(
            {
                "send": In(stream.Signature(KeyRequest)),
                "sent": Out(stream.Signature(KeyResult)),
                "receive": In(stream.Signature(KeyRequest)),
                "received": Out(stream.Signature(KeyResult)),
                "command": In(stream.Signature(Invalidation)),
                "invalidate": Out(stream.Signature(EntryChange)),
                "hold": Out(1),
                "read": Out(stream.Signature(ReadRequest)),
                "fill": In(stream.Signature(beat)),
                "write": Out(stream.Signature(ReadRequest)),
                "data": Out(stream.Signature(beat)),
                "done": In(stream.Signature(Done)),
                "mpt_base": In(64),
                "mpt_log_size": In(5),
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        asked = Signal(KeyRequest)
        of_peer = Signal()
        registers, binds, invalidates = Signal(), Signal(), Signal()
        bound = Signal()  # what was read is a WINDOW_2
        empty, clears = Signal(), Signal()  # no bytes; the entry shall only become invalid
        entry, found = (
            Signal(record_layout(MPT)),
            Signal(record_layout(MPT)),
        )  # as it is to be; as it was read last, also a window's region
        of_region = Signal()  # the entry that is read is the region's
        status = Signal(AccessStatus)
        index = Signal(KEY_INDEX_BITS)  # of the entry that is read or written
        place = Signal(64)
        beyond = Signal(KEY_INDEX_BITS)
        m.d.sync += [
            beyond.eq(Cat(self.mpt_log_size <= bit for bit in range(KEY_INDEX_BITS))),
            place.eq(self.mpt_base + Cat(Const(0, 5), index)),
            registers.eq(asked.operation == KeyOperation.REGISTER),
            binds.eq(asked.operation == KeyOperation.BIND),
            invalidates.eq(asked.operation == KeyOperation.INVALIDATE),
            empty.eq(asked.length == 0),
            clears.eq(invalidates | (binds & empty)),
        ]
        m.d.comb += [
            bound.eq(found.kind == KeyKind.WINDOW_2),
            self.sent.payload.status.eq(status),
            self.received.payload.status.eq(status),
            index.eq(Mux(of_region, asked.region[8:], asked.key[8:])),
            self.read.payload.address.eq(place),
            self.read.payload.length.eq(MPT.size),
            self.fill.ready.eq(1),
            self.done.ready.eq(1),
        ]

        # -- What is kept.
        m.submodules.kept = kept = KeptEntries(KEPT)
        here = Signal()
        m.d.comb += [
            kept.index.eq(index),
            kept.put_entry.eq(Mux(of_region, found.as_value(), entry.as_value())),
        ]

        # -- What was read, word by word; the last beat fills the highest ones.
        arriving = self.fill.payload.data[: MPT.size * 8]
        with m.If(here):
            m.d.sync += found.eq(kept.entry)
        with m.Elif(self.fill.valid):
            m.d.sync += found.as_value().eq(Cat(found.as_value(), arriving)[len(arriving) :])

        # -- Who asks.
        m.submodules.numbers = numbers = QpNumbers(self.qps)
        own = Signal(QPN_BITS)
        m.d.sync += own.eq(numbers.qpn)
        m.d.comb += [
            numbers.attribute.eq(self.attribute),
            numbers.attribute_en.eq(self.attribute_en),
            numbers.qp.eq(asked.qp),
        ]

        # -- Checks, each bit in the cycle before it is looked at.
        wrong_key, wrong_kind, wrong_pd, wrong_rights, wrong_range = (Signal() for _ in range(5))
        writes_remotely = (asked.access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)) != 0
        end = Signal(LENGTH_BITS + 1)  # of the region, counted from its first page
        top = Signal(65)
        offset, room = Signal(65), Signal(LENGTH_BITS + 1)  # of the window in the region
        key = Mux(binds & ~of_region, asked.old, Mux(of_region, asked.region[:8], asked.key[:8]))
        with m.If(of_region):
            m.d.sync += [
                wrong_key.eq(~found.valid | (found.variant != key)),
                wrong_kind.eq((found.kind != KeyKind.REGION) & (found.kind != KeyKind.FAST_REGION)),
                wrong_pd.eq(found.pd != asked.pd),
                wrong_rights.eq(
                    ~found.access[Access.MW_BIND.bit_length() - 1] | (writes_remotely & ~(found.access[0]))
                ),
                wrong_range.eq(offset[64] | offset[:64][LENGTH_BITS:].any() | (offset[:LENGTH_BITS] > room) | room[-1]),
            ]
        with m.Else():
            m.d.sync += [
                wrong_key.eq(
                    Mux(invalidates, ~found.valid, (registers | bound) & found.valid)
                    | (Mux(binds, found.valid, ~registers) & (found.variant != key))
                ),
                wrong_kind.eq(
                    (found.kind == KeyKind.REGION)
                    | ((found.kind == KeyKind.FAST_REGION) & binds)
                    | ((found.kind == KeyKind.WINDOW) & ~binds)
                    | (bound & registers)
                ),
                wrong_pd.eq((found.pd != asked.pd) | (bound & invalidates & (found.pages_or_qpn != own))),
                wrong_rights.eq(registers & writes_remotely & ~asked.access[0]),
                wrong_range.eq(
                    (registers & (top[64] & top[:64].any() | (end > Cat(Const(0, 12), found.pages_or_qpn))))
                    | (binds & bound & empty)
                ),
            ]
        m.d.sync += [
            end.eq(asked.address[:PAGE_BITS_MIN] + asked.length),
            top.eq(asked.address + asked.length),
            offset.eq(asked.address - found.address),
            room.eq(found.length - asked.length),
        ]

        # -- The place of a window in its region's translation table.
        mine, theirs = Signal(64 - PAGE_BITS_MIN), Signal(64 - PAGE_BITS_MIN)
        shift = Signal(5)

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
        was_valid = Signal()
        asks, answers = self.write.valid & self.write.ready, self.done.valid
        m.d.sync += unanswered.eq(unanswered + asks - answers)
        with m.If(answers & (self.done.payload.status != AccessStatus.OK)):
            m.d.sync += failed.eq(1)
        m.d.comb += [
            self.invalidate.payload.index.eq(index),
            self.invalidate.payload.entry.eq(entry),
            self.invalidate.payload.unseen.eq(~was_valid),
        ]
        with m.If(changing):
            m.d.comb += self.invalidate.valid.eq(1)
            with m.If(self.invalidate.ready):
                m.d.sync += changing.eq(0)

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [of_region.eq(0), status.eq(AccessStatus.OK), failed.eq(0), retracts.eq(0)]
                with m.If(self.command.valid):
                    m.d.sync += asked.key[8:].eq(self.command.payload.index)
                    m.next = "COMMAND"
                with m.Elif(self.receive.valid):
                    m.d.comb += self.receive.ready.eq(1)
                    m.d.sync += [of_peer.eq(1), asked.eq(self.receive.payload)]
                    m.next = "PLACE"
                with m.Elif(self.send.valid):
                    m.d.comb += self.send.ready.eq(1)
                    m.d.sync += [of_peer.eq(0), asked.eq(self.send.payload)]
                    m.next = "PLACE"
            with m.State("COMMAND"):
                m.d.comb += [
                    kept.drop.eq(1),
                    self.invalidate.valid.eq(self.command.valid),
                    self.invalidate.payload.translations.eq(self.command.payload.translations),
                    self.invalidate.payload.index.eq(self.command.payload.index),
                    self.invalidate.payload.entry.valid.eq(0),
                    self.invalidate.payload.unseen.eq(0),
                    self.command.ready.eq(self.invalidate.ready),
                ]
                with m.If(self.invalidate.ready | ~self.command.valid):
                    m.next = "IDLE"

            with m.State("PLACE"):
                m.d.sync += here.eq(kept.here)
                m.next = "LOOK"
            with m.State("LOOK"):
                m.d.sync += here.eq(0)
                m.next = "READ"
                with m.If((index & beyond).any()):
                    m.d.sync += status.eq(AccessStatus.KEY)
                    m.next = "ANSWER"
                with m.Elif(here):
                    m.next = "SUBTRACT"
            with m.State("READ"):
                m.d.comb += self.read.valid.eq(1)
                with m.If(self.read.ready):
                    m.next = "FILL"
            with m.State("FILL"):
                with m.If(self.fill.valid & self.fill.payload.last):
                    m.next = "SUBTRACT"
                    with m.If(self.fill.payload.error):
                        m.d.sync += status.eq(AccessStatus.BUS)
                        m.next = "ANSWER"
            with m.State("SUBTRACT"):
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += [
                    shift.eq(found.log_page_size - PAGE_BITS_MIN),
                    mine.eq(asked.address[PAGE_BITS_MIN:]),
                    theirs.eq(found.address[PAGE_BITS_MIN:]),
                ]
                with m.If(~of_region):
                    m.d.sync += [entry.eq(found), was_valid.eq(found.valid)]
                m.next = "CHANGE"
                with m.If(of_region):
                    m.next = "SHIFT"
                with m.Elif(binds & ~empty):
                    m.d.sync += of_region.eq(1)
                    m.next = "PLACE"
                for wrong, why in reversed(
                    (
                        (wrong_key, AccessStatus.KEY),
                        (wrong_kind, AccessStatus.RIGHTS),
                        (wrong_pd, AccessStatus.PD),
                        (wrong_rights, AccessStatus.RIGHTS),
                        (wrong_range, AccessStatus.RANGE),
                    )
                ):
                    with m.If(wrong):
                        m.d.sync += status.eq(why)
                        m.next = "ANSWER"
            with m.State("SHIFT"):
                m.d.comb += kept.put.eq(1)
                m.d.sync += [shift.eq(shift - 1), mine.eq(mine >> 1), theirs.eq(theirs >> 1)]
                with m.If(shift == 0):
                    m.d.sync += mine.eq(mine - theirs)
                    m.next = "ADD"
            with m.State("ADD"):
                m.d.sync += entry.mtt_address.eq(found.mtt_address + Cat(Const(0, 3), mine))
                m.next = "CHANGE"

            with m.State("CHANGE"):
                m.d.sync += of_region.eq(0)
                m.next = "FIND"
                with m.If(~clears):
                    m.d.sync += [
                        entry.length.eq(asked.length),
                        entry.log_page_size.eq(Mux(registers, PAGE_BITS_MIN, found.log_page_size)),
                        entry.physical.eq(~registers & found.physical),
                        entry.address.eq(asked.address),
                        entry.variant.eq(asked.key[:8]),
                        entry.access.eq(Mux(binds, asked.access & REMOTE_RIGHTS, asked.access)),
                    ]
                    with m.If(binds):
                        m.d.sync += entry.pages_or_qpn.eq(Mux(entry.kind == KeyKind.WINDOW_2, own, 0))
                m.d.sync += [step.eq(Mux(was_valid, NOT_VALID, OTHERS)), entry.valid.eq(~invalidates & ~empty)]
                # A window that is bound to nothing, and was before.
                with m.If(clears & ~was_valid):
                    m.next = "ANSWER"
            with m.State("FIND"):
                # Behind a bus error nobody knows what the entry is.
                m.d.comb += kept.drop.eq(1)
                m.d.sync += [changing.eq(was_valid | entry.valid), self.hold.eq(1)]
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += self.write.valid.eq(1)
                with m.If(self.write.ready):
                    m.next = "DATA"
            with m.State("DATA"):
                m.d.comb += self.data.valid.eq(1)
                with m.If(self.data.ready):
                    m.d.sync += beat.eq(beat + 1)
                    with m.If(out.last):
                        m.d.sync += [beat.eq(0), step.eq(step + 1)]
                        m.next = "WRITTEN"
                        with m.If(rest & ~empty):
                            m.next = "WRITE"
            with m.State("WRITTEN"), m.If(unanswered == 0):
                with m.If(failed & ~retracts):
                    m.d.sync += [status.eq(AccessStatus.BUS), retracts.eq(1), step.eq(NOT_VALID)]
                    m.next = "WRITE"
                with m.Else():
                    # Who still goes by the old entry may wait for another one: that can be read now.
                    m.d.sync += self.hold.eq(0)
                    with m.If(~changing):
                        m.next = "KEEP"
                        with m.If(retracts):
                            m.d.sync += [changing.eq(1), was_valid.eq(1), entry.valid.eq(0)]
                            m.next = "DROP"
                        with m.Elif(~clears & rest):
                            m.d.sync += self.hold.eq(1)
                            m.next = "WRITE"
            with m.State("DROP"):
                with m.If(~changing):
                    m.next = "ANSWER"
            with m.State("KEEP"):
                m.d.comb += kept.put.eq((entry.kind != KeyKind.FAST_REGION) | entry.valid)
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [self.sent.valid.eq(~of_peer), self.received.valid.eq(of_peer)]
                with m.If(Mux(of_peer, self.received.ready, self.sent.ready)):
                    m.next = "IDLE"
        return m
