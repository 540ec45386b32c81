"""Where in memory the payload of a received message goes."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.tables import Access
from ...abi.wqe import GRH_BYTES, SGE, SRQ_WQE, WQE_DEFAULT
from ...queue.ring import receive_batch, word_address
from ...stream.transfer import LENGTH_BITS, AccessRequest
from ..receive.layouts import RecvPlace
from .request_check import is_too_long

__all__ = ["Placement", "PlacementKind", "RecvPlacement"]


class PlacementKind(enum.Enum, shape=2):
    """What happens to a packet's payload."""

    DISCARD = 0
    WRITE = 1  # to where the RETH says
    SEND = 2  # to where the receive WQE says


Placement = data.StructLayout(
    {
        "kind": PlacementKind,
        "clear": 1,  # with DISCARD and length 0: a control token passes
        "fresh": 1,  # what was refused before is forgotten
        "datagram": 1,  # of UD: the first bytes of the receive WQE are the header's
        "begin": 1,  # the message's first packet
        "end": 1,  # and its last
        "length": LENGTH_BITS,  # payload of this packet
        "pd": 24,
        "qp": 12,
        # WRITE, first packet: RETH
        "address": 64,
        "rkey": 32,
        "total": 32,
        # SEND: the receive WQE
        "index": 16,
        "log_stride": 4,
        "shared": 1,  # its first 16 bytes say which it is
    }
)
"""One packet, to be given its place."""


class RecvPlacement(wiring.Component):
    """Turns each packet into its run of accesses, from the place at which the message stands.

    A WRITE goes where its RETH says, with REMOTE_WRITE, if the lengths agree: the payload of its packets is what the
    RETH announces, at most 2^31 bytes, and only the last packet exhausts it. A SEND fills the entries of its receive
    WQE one after the other, with LOCAL_WRITE; what does not fit is discarded, and so is the packet that brings it
    beyond 2^31 bytes.

    A packet takes 2 cycles, from ``i.valid`` on; of a SEND 3 if it goes on in a receive WQE, 4 if it begins one and
    fits its first entry, otherwise 5; each entry more takes 6 cycles, 5 if it is empty or the last. Of UD the first 40
    bytes of the receive WQE stay as they are, and count as received; that takes 2 cycles more. To begin a WQE of a
    shared receive queue takes a cycle more.

    With ``grh`` the payload of a datagram has 40 bytes more in front, which go there, by accesses of their own: the
    access check takes no access of more than 4096 bytes. That takes 1 cycle more, and a discard another access.

    Parameters
    ----------
    blocks : int
        Blocks of fetched receive WQEs, a power of two.
    grh : bool
        Network headers of datagrams come with their payload.
    wqe_bytes : int
        Bytes of the largest send WQE; receive WQEs have up to 256 of them.

    Members
    -------
    place, next : RecvPlace
        Where the message stands, while ``load`` is set; and behind the packet, from the cycle after its last access on.
        Undefined behind a discard.
    look : 1
        Strobe in the cycle before ``load``: ``index``, ``log_stride`` and ``places`` hold.
    places
        The blocks of the QP's pieces with an even and an odd number, as of
        :class:`verbena.hdl.queue.wqe_fetcher.RingPrefetcher`.
    load : 1
        Strobe: ``i.payload`` shows the packet, but for ``kind``; and the run before is over. ``i.valid`` must rise in
        the next cycle, or the strobe be repeated. Not needed for a discard.
    i : stream of ``Placement``
        Taken together with the run's last access.
    access : stream of ``AccessRequest``
        Exactly one run for each packet.
    misfit, too_long, byte_length
        Valid from the last access on until the next ``load``: the WRITE's lengths disagree, or the SEND is longer than
        2^31 bytes (and the packet's payload is discarded); the SEND did not fit; bytes of the message up to here.
    id : 16
        Which WQE of a shared receive queue stands at ``index``; from the last access on, at the earliest 2 cycles after
        ``i.valid``, until the next ``load``.
    word_addr, word
        Fetched receive WQEs, 64 bits a word, 2 cycles after the address.
    """

    def __init__(self, blocks=64, grh=False, wqe_bytes=WQE_DEFAULT):
        self.blocks = blocks
        self.size = receive_batch(wqe_bytes)
        self.grh = grh
        super().__init__(
            {
                "place": In(RecvPlace),
                "next": Out(RecvPlace),
                "look": In(1),
                "load": In(1),
                "i": In(stream.Signature(Placement)),
                "access": Out(stream.Signature(AccessRequest)),
                "misfit": Out(1),
                "too_long": Out(1),
                "byte_length": Out(32),
                "id": Out(16),
                "places": In(data.ArrayLayout(ceil_log2(blocks), 2)),
                "word_addr": Out(word_address(blocks, self.size)),
                "word": In(64),
            }
        )

    def elaborate(self, platform):
        m = Module()
        packet = self.i.payload
        write = packet.kind == PlacementKind.WRITE
        place = Signal(RecvPlace)
        rest = Signal(LENGTH_BITS)  # of the packet
        length = Signal(LENGTH_BITS)  # of the access
        last = Signal()
        discard = Signal()
        sge = Signal.like(place.sge)
        half = Signal()
        fresh = Signal()
        m.d.comb += [
            self.next.eq(place),
            self.byte_length.eq(place.received),
            self.access.payload.key.eq(place.key),
            self.access.payload.address.eq(place.address),
            self.access.payload.length.eq(length),
            # Of a WRITE all that is left of the message: if that does not fit, not one byte moves.
            self.access.payload.span.eq(Mux(write, place.left, length)),
            self.access.payload.pd.eq(packet.pd),
            self.access.payload.access.eq(Mux(write, Access.REMOTE_WRITE, Access.LOCAL_WRITE)),
            self.access.payload.qp.eq(packet.qp),
            self.access.payload.discard.eq(discard),
            self.access.payload.clear.eq(packet.clear),
            self.access.payload.fresh.eq(packet.fresh),
            self.access.payload.last.eq(last),
        ]

        offset_bits = ceil_log2(self.size // 8)
        strides = range(4, offset_bits + 4)
        base = Signal(offset_bits)  # of the receive WQE
        block = Signal.like(self.word_addr.block)
        exhausted = Signal()
        stride = Signal.like(packet.log_stride)
        empty = Signal()  # `rest` is 0, before anything is taken from it
        skip, skips = Signal(range(GRH_BYTES + 1)), Signal()  # bytes that are still to be left free; there are some
        opened, reads_id = Signal(), Signal()  # the cycle of `i.valid`; and the one behind it
        named = Signal()  # of the WQE comes first which it is
        m.d.sync += reads_id.eq(opened)
        with m.If(reads_id):
            m.d.sync += self.id.eq(self.word[SRQ_WQE.fields["id"].offset :])
        m.d.comb += [
            sge.eq(Mux(fresh, opened & packet.shared, place.sge)),
            self.word_addr.block.eq(block),
            self.word_addr.word.eq(base | Cat(half, sge)[:offset_bits]),
        ]
        with m.If(self.look):
            m.d.sync += stride.eq(packet.log_stride)
            with m.Switch(packet.log_stride):
                for log_stride in strides:
                    with m.Case(log_stride):
                        shift = log_stride - 3
                        m.d.sync += [
                            base.eq(packet.index[: offset_bits - shift] << shift),
                            block.eq(Mux(packet.index[offset_bits - shift], self.places[1], self.places[0])),
                        ]
        with m.Switch(stride):
            for log_stride in strides:
                with m.Case(log_stride):
                    m.d.comb += exhausted.eq(place.sge[log_stride - 4])
        sge_layout = {name: field.offset for name, field in SGE.fields.items()}
        entry_length = self.word[sge_layout["length"] - 64 :][:32]
        amount = Signal(LENGTH_BITS)  # by which the place moves
        m.d.comb += amount.eq(length)

        def move():
            return [place.address.eq(place.address + amount), place.left.eq(place.left - amount)]

        def holds_rest(left):
            """Whether the rest of the packet fits; cheaper than a comparison of 32 bits."""
            return left[LENGTH_BITS:].any() | (left[:LENGTH_BITS] >= rest)

        def send():
            m.d.sync += self.access.valid.eq(1)
            m.next = "SEND"

        def header(size, *, ends=1, thrown=False):
            """An access for the header in front of a datagram, or for the rest of it; it is the last of a datagram
            without payload.
            """
            m.d.sync += [
                self.access.valid.eq(1),
                length.eq(size),
                last.eq(ends & (packet.length == 0)),
                discard.eq(thrown),
            ]
            m.next = "HEADER"

        with m.FSM():
            with m.State("IDLE"):
                old = self.place
                # The first entry is asked for before it is known whether anybody needs it: its address with `load`,
                # its length in the next cycle.
                # Where the WQE says which it is, that comes first.
                m.d.comb += [fresh.eq(1), opened.eq(self.i.valid), half.eq(opened & ~packet.shared)]
                m.d.sync += [skip.eq(GRH_BYTES), skips.eq(packet.datagram), named.eq(packet.shared & packet.begin)]
                m.d.sync += [
                    rest.eq(packet.length),
                    empty.eq(packet.length == 0),
                    length.eq(packet.length),
                    last.eq(1),
                    discard.eq(0),
                ]
                with m.If(self.load):
                    m.d.sync += [
                        self.misfit.eq(0),
                        self.too_long.eq(0),
                        place.eq(old),
                        place.received.eq(
                            Mux(packet.begin, Mux(packet.datagram, GRH_BYTES, 0), old.received) + packet.length
                        ),
                    ]
                    with m.If(packet.begin):
                        # For a WRITE; a SEND's follows.
                        m.d.sync += [
                            place.address.eq(packet.address),
                            place.key.eq(packet.rkey),
                            place.left.eq(packet.total),
                        ]
                with m.If(self.i.valid):
                    with m.Switch(packet.kind):
                        with m.Case(PlacementKind.WRITE):
                            send()
                            # `rest` is the packet's length already.
                            fits = holds_rest(place.left) & ((place.left == rest) == packet.end)
                            with m.If(~fits | is_too_long(place.left)):
                                m.d.sync += [self.misfit.eq(1), discard.eq(~empty)]
                        with m.Case(PlacementKind.SEND):
                            # Packets but the last are of the path MTU, which divides 2^31.
                            with m.If(place.received[31] & place.received[:LENGTH_BITS].any()):
                                m.d.sync += [self.misfit.eq(1), discard.eq(1)]
                                send()
                            with m.Elif(empty & ~packet.datagram):
                                send()
                            with m.Elif(packet.begin):
                                m.d.sync += place.sge.eq(packet.shared)
                                m.next = "TAKE_ADDRESS"
                            with m.Else():
                                m.next = "CUT"
                        with m.Default():
                            send()
                            m.d.sync += discard.eq(packet.length != 0)
                            if self.grh:
                                with m.If(packet.datagram):
                                    header(GRH_BYTES, thrown=True)
            with m.State("ENTRY"):
                with m.If(exhausted):
                    m.d.sync += [self.too_long.eq(1), discard.eq(~empty), length.eq(rest), last.eq(1)]
                    send()
                    if self.grh:
                        with m.If(skips):
                            header(skip, thrown=True)
                with m.Else():
                    m.next = "ENTRY_LENGTH"
            with m.State("ENTRY_LENGTH"):
                m.d.comb += half.eq(1)
                m.next = "TAKE_ADDRESS"
            with m.State("TAKE_ADDRESS"):
                m.d.comb += half.eq(named)
                m.d.sync += [place.address.eq(self.word[sge_layout["address"] :]), named.eq(0)]
                with m.If(~named):
                    m.next = "TAKE_LENGTH"
            with m.State("TAKE_LENGTH"):
                m.d.sync += [
                    place.left.eq(entry_length),
                    place.key.eq(self.word[sge_layout["lkey"] - 64 :][:32]),
                    place.sge.eq(place.sge + 1),
                    length.eq(rest),
                    last.eq(1),
                ]
                with m.If(skips):
                    m.next = "SKIP"
                with m.Elif(holds_rest(entry_length)):
                    send()
                with m.Else():
                    m.next = "CUT"
            if self.grh:
                with m.State("SKIP"):
                    whole = place.left[len(skip) :].any() | (place.left[: len(skip)] >= skip)
                    with m.If(place.left == 0):
                        m.next = "ENTRY"
                    with m.Else():
                        header(Mux(whole, skip, place.left[: len(skip)]), ends=whole)
                with m.State("HEADER"):
                    with m.If(self.access.ready):
                        m.d.sync += [
                            self.access.valid.eq(0),
                            *move(),
                            skip.eq(skip - length),
                            skips.eq(skip != length),
                        ]
                        with m.If(last):
                            m.d.comb += self.i.ready.eq(1)
                            m.next = "IDLE"
                        with m.Elif(discard):
                            m.d.sync += [length.eq(rest), last.eq(1)]
                            send()
                        with m.Elif(skip != length):
                            m.next = "ENTRY"
                        with m.Else():
                            m.next = "CUT"
            else:
                with m.State("SKIP"):
                    m.d.comb += amount.eq(skip)
                    with m.If(place.left[len(skip) :].any() | (place.left[: len(skip)] >= skip)):
                        m.d.sync += [*move(), skips.eq(0)]
                        m.next = "CUT"
                    with m.Else():
                        m.d.sync += skip.eq(skip - place.left[: len(skip)])
                        m.next = "ENTRY"
            with m.State("CUT"):
                enough = holds_rest(place.left)
                m.d.sync += [last.eq(enough), length.eq(Mux(enough, rest, place.left[:LENGTH_BITS]))]
                with m.If((place.left == 0) & ~empty):
                    m.next = "ENTRY"
                with m.Else():
                    send()

            with m.State("SEND"):
                with m.If(self.access.ready):
                    m.d.sync += [
                        self.access.valid.eq(0),
                        *move(),
                        rest.eq(rest - length),
                    ]
                    with m.If(last):
                        m.d.comb += self.i.ready.eq(1)
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "ENTRY"
        return m
