"""Work requests that change the memory protection table: keys are made valid, and invalid."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.tables import KEY_INDEX_BITS, MPT, Access, AccessStatus, KeyKind
from ..stream.connections import link
from ..stream.packet import PacketBeat
from ..stream.record import record_layout
from ..stream.transfer import AttributeWrite, Done, ReadRequest
from .access import EntryChange, Invalidation
from .entry_writer import EntryWriter, KeyResult
from .kept_entries import KeptEntries
from .mpt import PAGE_BITS_MIN
from .qp_numbers import QPN_BITS, QpNumbers

__all__ = ["KEY_CLIENT", "LENGTH_BITS", "KeyOperation", "KeyOperations", "KeyRequest"]

REMOTE_RIGHTS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
"""Those that a window may grant."""

LENGTH_BITS = MPT.fields["length"].width
KEPT = 512
"""Entries that need not be read again: as many rows as a block RAM has."""


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
        "length": LENGTH_BITS + 1,  # with the highest bit it is more than an entry can say
        "access": 8,
        "pd": 24,  # of the QP
        "qp": 12,  # its slot
    }
)
"""An operation on the entry ``key[8:]``."""

KEY_CLIENT = {"operation": Out(stream.Signature(KeyRequest)), "operated": In(stream.Signature(KeyResult))}
"""Members of who asks for operations: a result follows each request."""


class KeyOperations(wiring.Component):
    """Reads an entry of the MPT, checks it, and has it changed (:class:`.entry_writer.EntryWriter`), one operation
    after the other: while one changes its entry, the next one reads and checks others. It waits with an entry that is
    being changed.

    *INVALIDATE* makes a valid FAST_REGION or WINDOW_2 invalid. *REGISTER* gives an invalid FAST_REGION its key, place,
    length and rights; its translation table must stand. *BIND* makes a window a part of a region, with remote rights of
    its own: a WINDOW at any time, and with length 0 it is made invalid; a WINDOW_2 that is not valid, for the QP
    that asks, by which alone it can be made invalid.

    *Errors*, the first that applies: the index is beyond the table, or the key is not that of a valid entry, or of
    REGISTER that of a valid one, or of BIND a WINDOW_2 is valid, or the old key is not that of a valid WINDOW
    (KEY); the entry is of another kind (RIGHTS); it is of another PD, or to be made invalid and bound to another QP
    (PD); remote write or atomic without local write, or a region that windows may not be bound to (RIGHTS); the
    length is more than the table has pages for, or beyond 2^64, or that of a WINDOW_2 is 0, or the window is not
    within the region (RANGE); the bus (BUS). Then the entry is as before, but if it was the bus that failed to write.

    *Entries are kept* (:class:`.kept_entries.KeptEntries`) of what has been changed here, and of regions that windows
    have been bound to: these are not read again until the command block drops the entry, or another one needs its
    place. So who changes a valid entry, or a window's, must have it dropped; of a FAST_REGION that is not valid nothing
    is kept.

    *Cycles*, on an idle bus: 7 until the writer has it, or 14 of a bind, and a read of host memory for each entry that
    is not kept; a bind of a region with large pages up to 18 more. Then as of the writer.

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
        Operations of send queues, and their results in the same order. A result must be taken before another change
        begins.
    receive : stream of ``KeyRequest``; received : stream of ``KeyResult``
        Those of peers, INVALIDATE all.
    command : stream of ``Invalidation``
        Of the command block: taken when it is done, and no operation that has looked at an entry before is under way.
    read, fill : streams of ``ReadRequest`` and ``PacketBeat``
        An entry, 32 bytes.
    invalidate, hold, write, data, done
        As of the writer.
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
        empty = Signal()  # no bytes
        found = Signal(record_layout(MPT))  # as it was read last, also a window's region
        bound = Signal()  # that is a WINDOW_2
        kind, was_valid = Signal(KeyKind), Signal()  # of the entry that is to be changed
        of_region = Signal()  # the entry that is read is the region's
        status = Signal(AccessStatus)
        index = Signal(KEY_INDEX_BITS)  # of the entry that is read
        place = Signal(64)
        beyond = Signal(KEY_INDEX_BITS)
        m.d.sync += [
            beyond.eq(Cat(self.mpt_log_size <= bit for bit in range(KEY_INDEX_BITS))),
            place.eq(self.mpt_base + Cat(Const(0, 5), index)),
            registers.eq(asked.operation == KeyOperation.REGISTER),
            binds.eq(asked.operation == KeyOperation.BIND),
            invalidates.eq(asked.operation == KeyOperation.INVALIDATE),
            empty.eq(asked.length == 0),
        ]
        m.d.comb += [
            bound.eq(found.kind == KeyKind.WINDOW_2),
            index.eq(Mux(of_region, asked.region[8:], asked.key[8:])),
            self.read.payload.address.eq(place),
            self.read.payload.length.eq(MPT.size),
            self.fill.ready.eq(1),
        ]

        # -- Who changes the entry, tells the access check, and gives the result.
        m.submodules.writer = writer = EntryWriter(self.data_width)
        for name in ("sent", "received", "write", "data"):
            wiring.connect(m, getattr(writer, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, wiring.flipped(self.done), writer.done)
        link(m, writer.invalidate, self.invalidate)
        m.d.comb += [self.hold.eq(writer.hold), writer.mpt_base.eq(self.mpt_base)]
        conflict = Signal()  # what was looked at a cycle ago is being changed
        m.d.sync += conflict.eq(writer.busy & (writer.index == index))

        # -- What is kept: what the writer has written, else the region.
        m.submodules.kept = kept = KeptEntries(KEPT)
        drops, keeps = Signal(), Signal()
        m.d.comb += [
            kept.index.eq(index),
            kept.drop.eq(writer.drop | drops),
            kept.put.eq(writer.put | (keeps & ~writer.drop)),
            kept.put_index.eq(Mux(writer.drop | writer.put, writer.index, index)),
            kept.put_entry.eq(Mux(writer.put, writer.entry.as_value(), found.as_value())),
        ]

        # -- What was read, word by word; the last beat fills the highest ones.
        arriving = self.fill.payload.data[: MPT.size * 8]
        looks = Signal()
        with m.If(looks):
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
        end = Signal(LENGTH_BITS + 2)  # of the region, counted from its first page
        top = Signal(65)
        offset, room = Signal(65), Signal(LENGTH_BITS + 2)  # of the window in the region
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

        # -- What becomes of the entry.
        outcome = writer.i.payload
        entry = outcome.entry
        m.d.comb += [
            outcome.status.eq(status),
            outcome.of_peer.eq(of_peer),
            outcome.index.eq(asked.key[8:]),
            outcome.was_valid.eq(was_valid),
            entry.eq(found),
            entry.valid.eq(~invalidates & ~empty),
        ]
        with m.If(~invalidates & ~(binds & empty)):
            m.d.comb += [
                entry.length.eq(asked.length),
                entry.log_page_size.eq(Mux(registers, PAGE_BITS_MIN, found.log_page_size)),
                entry.physical.eq(~registers & found.physical),
                entry.kind.eq(kind),
                entry.address.eq(asked.address),
                entry.mtt_address.eq(found.mtt_address + Cat(Const(0, 3), mine)),
                entry.variant.eq(asked.key[:8]),
                entry.access.eq(Mux(binds, asked.access & REMOTE_RIGHTS, asked.access)),
            ]
            with m.If(binds):
                m.d.comb += entry.pages_or_qpn.eq(Mux(kind == KeyKind.WINDOW_2, own, 0))

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [of_region.eq(0), status.eq(AccessStatus.OK)]
                with m.If(self.command.valid):
                    m.d.sync += asked.key[8:].eq(self.command.payload.index)
                    with m.If(~writer.busy):
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
                    drops.eq(1),
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
                m.next = "SEEK"
            with m.State("SEEK"):
                m.next = "LOOK"
                with m.If(conflict):
                    m.next = "PLACE"
            with m.State("LOOK"):
                m.d.comb += looks.eq(1)
                m.next = "READ"
                with m.If((index & beyond).any()):
                    m.d.sync += status.eq(AccessStatus.KEY)
                    m.next = "CHANGE"
                with m.Elif(kept.here):
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
                        m.next = "CHANGE"
            with m.State("SUBTRACT"):
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += [
                    shift.eq(found.log_page_size - PAGE_BITS_MIN),
                    mine.eq(Mux(of_region, asked.address[PAGE_BITS_MIN:], 0)),
                    theirs.eq(found.address[PAGE_BITS_MIN:]),
                ]
                with m.If(~of_region):
                    m.d.sync += [kind.eq(found.kind), was_valid.eq(found.valid)]
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
                        m.next = "CHANGE"
            with m.State("SHIFT"):
                m.d.comb += keeps.eq(1)
                m.d.sync += [shift.eq(shift - 1), mine.eq(mine >> 1), theirs.eq(theirs >> 1)]
                with m.If(shift == 0):
                    m.d.sync += mine.eq(mine - theirs)
                    m.next = "CHANGE"
            with m.State("CHANGE"):
                m.d.comb += writer.i.valid.eq(1)
                with m.If(writer.i.ready):
                    m.next = "IDLE"
        return m
