"""A packet of a response: what it is, and how far its entry is cut behind it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.tables import Access
from ...stream.transfer import LENGTH_BITS, AccessRequest
from ...wire.opcodes import opcode
from ..common.layouts import READ_EXTENT, PayloadSource, ResponseEntry, TxDescriptor, TxDescriptorKind
from ..common.psn import psn_next
from .replay_cache import ReplaySlot

__all__ = ["CutState", "EntryKind", "ResponsePacket"]

ATOMIC_BYTES = 8

LARGE_BITS = 10
"""From 2**10 bytes on a packet counts as large: only of those one too many would matter."""

CutState = data.StructLayout(
    {
        "atomic": 1,  # the last entry that was begun is no READ
        "middle": 1,  # the next one is a READ that was begun; if not, the two below are 0
        "packets": 23,  # of it that were cut, each of the path MTU
        "quiet": 1,  # a refusal is not told: it was once served
        "place": ReplaySlot,
    }
)
"""How far a QP's responses are cut."""

EntryKind = data.StructLayout({"read": 1, "repeat": 1, "replay": 1})
"""What an entry is: a READ, perhaps one that is asked for again; an atomic that is asked for again; if neither, an
atomic."""


class ResponsePacket(wiring.Component):
    """Makes the next packet of an entry, or a token, and offers it and its run until both are taken. All of it stands
    in registers, and in the row of the entry, until then.

    In the first cycle with ``ends`` the end of a READ's range is computed, in that with ``load`` the packet, but for
    the length of a READ, which comes with ``measure``.

    Members
    -------
    qp, token : 12, 1
        Whose packet it is; it is a token.
    entry : ``ResponseEntry``; kind : ``EntryKind``; state : ``CutState``
        The entry, in all cycles until the packet has gone; ``kind`` with ``load``.
    ends, load, measure, say : 1
        Strobes. ``say``: the packet is offered from the next cycle on.
    again, was_cut : 1
        Strobe: the READ was asked for before; and whether some of it was cut then.
    lost : 1
        The entry has no answer: ``following`` is that of an entry that was given up.
    end : 64
        Address behind the range of a READ, in the cycle behind ``ends``.
    psn : 24
        Of the packet.
    last, fresh : 1
        It is the last one of its entry; the entry is a READ of which nothing was cut, and that was not asked for
        before.
    large : 1
        A packet of 1024 bytes or more is offered.
    gone : 1
        What was offered is taken, in this cycle at the latest.
    following : ``CutState``
        Behind the packet.
    access, packet
        See :class:`.read_atomic_responder.ReadAtomicResponder`.
    """

    def __init__(self, qps):
        super().__init__(
            {
                "qp": In(range(qps)),
                "token": In(1),
                "entry": In(ResponseEntry),
                "kind": In(EntryKind),
                "state": In(CutState),
                "ends": In(1),
                "load": In(1),
                "measure": In(1),
                "say": In(1),
                "again": In(1),
                "was_cut": In(1),
                "lost": In(1),
                "end": Out(64),
                "psn": Out(24),
                "last": Out(1),
                "fresh": Out(1),
                "large": Out(1),
                "gone": Out(1),
                "following": Out(CutState),
                "access": Out(stream.Signature(AccessRequest)),
                "packet": Out(stream.Signature(TxDescriptor)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        entry, state, kind, token = self.entry, self.state, self.kind, self.token
        extent = data.View(READ_EXTENT, entry.swap)
        access, header = self.access.payload, self.packet.payload.transport
        left = Signal(32)
        length = Signal(LENGTH_BITS)
        atomic, replay = Signal(), Signal()
        mtu, mtu_bytes, fits = Signal(LENGTH_BITS), Signal(LENGTH_BITS), Signal()
        packets = Signal.like(state.packets)  # with this one
        waits = Signal(2)  # access, packet

        offset = Signal(31)  # of the packet in its READ
        m.d.sync += packets.eq(state.packets + 1)
        with m.Switch(entry.path_mtu):
            for code in range(5, 0, -1):
                # A context that the host has spoiled may have another code: 256 bytes, so that its READs end.
                with m.Case(code) if code > 1 else m.Default():
                    m.d.sync += offset.eq(state.packets << 7 + code)
                    m.d.comb += mtu_bytes.eq(128 << code)
        with m.If(self.ends | self.load):
            m.d.sync += access.address.eq(entry.address + Mux(self.ends, extent.length, offset))
        with m.If(self.load):
            m.d.sync += [
                access.quiet.eq(state.quiet),
                access.pd.eq(entry.pd),
                mtu.eq(mtu_bytes),
                header.psn.eq(psn_next(entry.psn, state.packets)),
                left.eq(extent.length - offset),
                length.eq(Mux(token, 0, ATOMIC_BYTES)),
                self.last.eq(~token),
                atomic.eq(~token & ~kind.read & ~kind.replay),
                replay.eq(~token & kind.replay),
                self.fresh.eq(~token & kind.read & ~kind.repeat & ~state.middle),
            ]
        with m.If(self.again):
            m.d.sync += access.quiet.eq(self.was_cut)
        m.d.comb += fits.eq((left[LENGTH_BITS:] == 0) & (left[:LENGTH_BITS] <= mtu))
        with m.If(self.measure):
            m.d.sync += [self.last.eq(fits), length.eq(Mux(fits, left, mtu))]

        still = waits & ~Cat(self.access.ready, self.packet.ready)
        m.d.sync += waits.eq(Mux(self.say, 3, still))
        m.d.comb += [
            self.end.eq(access.address),
            self.psn.eq(header.psn),
            self.gone.eq(still == 0),
            self.large.eq(waits[1] & (length[LARGE_BITS:] != 0)),
            self.access.valid.eq(waits[0]),
            access.key.eq(entry.rkey),
            access.length.eq(Mux(replay, 0, length)),
            access.span.eq(Mux(atomic, ATOMIC_BYTES, left)),
            access.access.eq(Mux(atomic, Access.REMOTE_ATOMIC, Access.REMOTE_READ)),
            access.qp.eq(self.qp),
            access.clear.eq(token),
            access.tag.eq(atomic),
            access.last.eq(1),
            self.packet.valid.eq(waits[1]),
            self.packet.payload.qp.eq(self.qp),
            self.packet.payload.kind.eq(Mux(token, TxDescriptorKind.RESPONSE_TOKEN, TxDescriptorKind.RESPONSE)),
            self.packet.payload.source.eq(
                Mux(atomic, PayloadSource.ATOMIC, Mux(replay, PayloadSource.INLINE, PayloadSource.MEMORY))
            ),
            self.packet.payload.message_last.eq(self.last),
            header.opcode.eq(opcode("RC_RDMA_READ_RESPONSE_FIRST") + Cat(state.middle ^ self.last, self.last)),
            header.syndrome.eq(entry.credits),
            header.msn.eq(entry.msn),
            header.length.eq(length),
        ]
        with m.If(atomic | replay):
            m.d.comb += header.opcode.eq(opcode("RC_ATOMIC_ACKNOWLEDGE"))

        following = self.following
        with m.If(~token):
            m.d.comb += [following.place.eq(state.place), following.atomic.eq(atomic | replay)]
            with m.If(~self.last):
                m.d.comb += [
                    following.middle.eq(1),
                    following.packets.eq(packets),
                    following.quiet.eq(access.quiet),
                ]
            with m.If(atomic | self.fresh):
                m.d.comb += [
                    following.place.slot.eq(state.place.slot + 1),
                    following.place.wrapped.eq(state.place.wrapped | state.place.slot.all()),
                ]
        with m.If(self.lost):
            m.d.comb += following.atomic.eq(state.atomic)  # none was begun
        return m
