"""The access check: every access of the engine to registered memory passes here."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.tables import KEY_INDEX_BITS, MPT
from ..stream.packet import PacketBeat
from ..stream.record import record_layout
from ..stream.transfer import AccessRequest, AttributeWrite, Piece, ReadRequest
from .fence import Fence
from .mpt import Protection
from .mtt import RECEIVE, TRANSMIT, Translation, Verdict

__all__ = ["LANES", "AccessUnit", "EntryChange", "Invalidation"]

LANES = 3
"""Ways that runs take behind this unit, each in order: transmit with tag 0, transmit with tag 1, receive."""

Invalidation = data.StructLayout({"index": KEY_INDEX_BITS, "translations": 1})
"""What shall be forgotten: the MPT entry ``index``; or, with ``translations``, all MTT entries."""

EntryChange = data.StructLayout({**Invalidation.members, "entry": record_layout(MPT), "unseen": 1})
"""An invalidation; of an MPT entry, ``entry`` comes in its place if it is valid. ``unseen``: no access has seen the old
one, since it was not valid."""


class AccessUnit(wiring.Component):
    """Turns runs of accesses into runs of pieces: key check (:class:`.mpt.Protection`), then translation
    (:class:`.mtt.Translation`), for two clients.

    On hits a piece comes 9 cycles after its request (or up to 11, if a cache looks into the wrong way first; and one
    more if the other client's request was the last one), and a client is served every 4 cycles, also if both are busy;
    an access that crosses a page boundary takes 8.

    A miss costs the read and about 10 cycles more, and delays only its own client. Misses overlap: ``mpt_waiting``
    accesses of a client wait for their keys, ``mtt_waiting`` for their pages, and their reads are under way together.
    They still leave in their order, so an access that hits waits for those before it; but as long as these queues have
    room the client goes on, with an access every 6 cycles if all of them miss. After reset, accesses wait until the
    caches and the poison bits are cleared: a cycle a line or, if that is more, two a QP.

    Neither cache knows the host's writes. An MPT entry that is changed must be invalidated, one that becomes valid need
    not. Its invalidation takes the entry out of the cache (8 cycles or a few more, in which no access starts), then
    waits for a :class:`.fence.Fence`: it is accepted when all runs are ``over`` of which an access has seen the old
    entry. So nothing is read or written any more by what that entry said. All other accesses go on meanwhile. With
    ``windows`` a valid entry may come in its place at once; who writes that to host memory sets ``hold`` before it asks
    for the change, and until the writes are answered: no entry is read there meanwhile.

    The MTT entries of a region that is gone stay in their cache, and harm nobody as long as no other region's entries
    stand at these addresses. Before they do, all MTT entries are invalidated: a cycle a line, in which accesses go on.
    What changes an entry of a region that is in use shall use other addresses; an entry that becomes present need not.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512: of the fill ports.
    qps : int
        QPs; a power of two.
    mpt_sets, mtt_sets : int
        Of the caches, which have two ways. Up to 512 lines take no more block RAM than fewer.
    mpt_waiting, mtt_waiting : int
        Accesses of a client that wait in front of each cache, powers of two.
    verdicts : int
        Packets whose verdict waits for the transmitter, a power of two.
    physical : bool
        There may be regions that are contiguous on the bus, and need no translation.
    windows : bool
        Entries may be memory windows, as of :class:`.mpt.Protection`.
    renew : bool
        As of :class:`.mtt.Translation`.

    Attributes
    ----------
    mpt_reads, mtt_reads : int
        Reads of each table that may be under way.

    Members
    -------
    transmit : ``request``, ``piece``, ``verdict``
        Streams of ``AccessRequest``, ``Piece`` and, one a run, ``status``: 1 cycle after the run's last piece.
        Up to ``verdicts`` verdicts wait until they are taken.
    receive : ``request``, ``piece``
    mpt_read, mtt_read : stream of ``ReadRequest``
    mpt_data, mtt_data : stream of ``PacketBeat``
        One packet a read, in order: 32 bytes an MPT entry, 8 an MTT entry. Always ready. Of a packet with ``error``
        nothing is kept, and who waits for the entry does not find it.
    over : a bit of each of :data:`LANES`
        Strobe: the oldest run on that way has ended, and with it all transfers of its pieces.
    attribute : ``AttributeWrite`` with ``attribute_en``
        With ``windows``: the broadcast to QPs.
    invalidate : stream of :data:`Invalidation`, or, with ``windows``, :data:`EntryChange`
        Taken when it is done.
    hold : 1
        With ``windows``: no read of an MPT entry is asked for from the next cycle on, but for one that is offered then.
    mpt_base, mpt_log_size
        Where the MPT stands and how large it is.
    count_mpt_hits, count_mpt_misses, count_mtt_hits, count_mtt_misses : 1
        Strobes: an access, or a page of one, found its entry without a read for it; an entry was read. One read may be
        for several accesses.
    count_access_errors : 1
        Strobe: a run was refused, for another reason than poison.
    """

    def __init__(
        self,
        data_width,
        qps,
        *,
        mpt_sets=256,
        mtt_sets=256,
        mpt_waiting=8,
        mtt_waiting=16,
        verdicts=16,
        physical=False,
        windows=False,
        renew=False,
    ):
        self.data_width = data_width
        self.qps = qps
        self.mpt_sets = mpt_sets
        self.mtt_sets = mtt_sets
        self.windows = windows
        self._protection = Protection(
            data_width, qps, sets=mpt_sets, waiting=mpt_waiting, physical=physical, windows=windows
        )
        self._translation = Translation(
            data_width,
            qps,
            sets=mtt_sets,
            waiting=mtt_waiting,
            verdicts=verdicts,
            physical=physical,
            renew=renew,
        )
        self.mpt_reads = self._protection.reads
        self.mtt_reads = self._translation.reads
        receive = {"request": In(stream.Signature(AccessRequest)), "piece": Out(stream.Signature(Piece))}
        super().__init__(
            {
                "transmit": Out(wiring.Signature({**receive, "verdict": Out(stream.Signature(Verdict))})),
                "receive": Out(wiring.Signature(receive)),
                "mpt_read": Out(stream.Signature(ReadRequest)),
                "mpt_data": In(stream.Signature(PacketBeat(data_width))),
                "mtt_read": Out(stream.Signature(ReadRequest)),
                "mtt_data": In(stream.Signature(PacketBeat(data_width))),
                "over": In(LANES),
                "invalidate": In(stream.Signature(EntryChange if windows else Invalidation)),
                "mpt_base": In(64),
                "mpt_log_size": In(5),
                "count_mpt_hits": Out(1),
                "count_mpt_misses": Out(1),
                "count_mtt_hits": Out(1),
                "count_mtt_misses": Out(1),
                "count_access_errors": Out(1),
            }
            | ({"attribute": In(AttributeWrite), "attribute_en": In(1), "hold": In(1)} if windows else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.protection = protection = self._protection
        m.submodules.translation = translation = self._translation
        flipped = wiring.flipped
        for client, port in ((TRANSMIT, self.transmit), (RECEIVE, self.receive)):
            wiring.connect(m, flipped(port.request), protection.request[client])
            wiring.connect(m, flipped(port.piece), translation.piece[client])
        wiring.connect(m, flipped(self.transmit.verdict), translation.verdict)
        wiring.connect(m, protection.o, translation.i)
        wiring.connect(m, flipped(self.mpt_read), protection.read)
        wiring.connect(m, flipped(self.mpt_data), protection.fill)
        wiring.connect(m, flipped(self.mtt_read), translation.read)
        wiring.connect(m, flipped(self.mtt_data), translation.fill)

        if self.windows:
            m.d.comb += [
                protection.attribute.eq(self.attribute),
                protection.attribute_en.eq(self.attribute_en),
                protection.hold.eq(self.hold),
            ]

        # A run is under way from its first access on that has seen its entry.
        m.submodules.fence = fence = Fence(LANES)
        checked = protection.o.payload
        inside = Signal(2)
        with m.If(protection.o.valid):
            m.d.sync += inside.bit_select(checked.client, 1).eq(~checked.last)
        begins = protection.o.valid & ~inside.bit_select(checked.client, 1)
        transmits = begins & (checked.client == TRANSMIT)
        m.d.comb += [
            fence.enter.eq(
                Cat(transmits & ~checked.tag, transmits & checked.tag, begins & (checked.client == RECEIVE))
            ),
            fence.leave.eq(self.over),
            protection.room.eq(translation.room & Cat(fence.room[:2].all(), fence.room[2])),
        ]

        # An MPT entry goes first, then what has seen it.
        invalidate = self.invalidate
        waiting = Signal()
        changed = protection.invalidate.valid & protection.invalidate.ready
        unseen = invalidate.payload.unseen if self.windows else 0
        if self.windows:
            m.d.comb += protection.invalidate.payload.entry.eq(invalidate.payload.entry)
        m.d.comb += [
            protection.mpt_base.eq(self.mpt_base),
            protection.mpt_log_size.eq(self.mpt_log_size),
            protection.invalidate.valid.eq(invalidate.valid & ~invalidate.payload.translations & ~waiting),
            protection.invalidate.payload.index.eq(invalidate.payload.index),
            translation.invalidate.valid.eq(invalidate.valid & invalidate.payload.translations),
            fence.start.eq(changed & ~unseen),
            invalidate.ready.eq(translation.invalidate.ready | (waiting & fence.done) | (changed & unseen)),
            self.count_mpt_hits.eq(protection.count_hit),
            self.count_mpt_misses.eq(protection.count_miss),
            self.count_mtt_hits.eq(translation.count_hit),
            self.count_mtt_misses.eq(translation.count_miss),
            self.count_access_errors.eq(translation.count_error),
        ]
        with m.If(fence.start):
            m.d.sync += waiting.eq(1)
        with m.Elif(fence.done):
            m.d.sync += waiting.eq(0)
        return m
