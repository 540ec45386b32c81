"""Whether a READ or an atomic may be served now, and how many packets answer it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...wire.packet_header import TransportHeader
from ..common.layouts import ResponseKind
from ..common.psn import PSN_BITS, psn_before
from ..receive.layouts import RequestState
from .request_check import READS_MAX, is_too_long

__all__ = ["ReadAtomicCheck"]


class ReadAtomicCheck(wiring.Component):
    """What :class:`.request_check.RequestCheck` leaves open of a READ or an atomic.

    A new one is invalid if the peer has more of them outstanding than ``max_dest_rd_atomic`` allows, if a READ is
    longer than 2^31 bytes, or if an atomic's address is not a multiple of 8. While duplicates are among them,
    which no limit counts, only the sixteen count that a QP may have: what is beyond that is dropped. So is what finds
    no row in the pool that all QPs share, unless its QP has nothing there.

    An old one is served again if there is room, too, and if the packets of its response are all old. (The
    READ/atomic responder knows whether an old atomic was ever executed.)

    Inputs are sampled each cycle and have to stay; outputs belong to them 3 cycles later.

    Members
    -------
    kind : ResponseKind
        READ, COMPARE_SWAP or FETCH_ADD.
    responds : 1
        It is one.
    transport : TransportHeader
        Of the packet.
    path_mtu, max_dest_rd_atomic
        Attributes of the QP.
    receive : RequestState
    served
        Entries of the QP that are answered, modulo 256.
    room : 1
        There is a row for a QP that has some.
    after
        First PSN behind the packet and all its responses; of other requests the next PSN.
    crowded : 1
        It finds no row in the pool, or its QP has sixteen, and one of the QP's will be answered; 1 cycle later already.
    invalid, full : 1
        Of a new one: invalid request; no room.
    stale : 1
        Of an old one: it cannot be served again.
    mixed : 1
        Once it is accepted, there are, or may be, duplicates among them; not counting itself.
    """

    kind: In(ResponseKind)
    responds: In(1)
    transport: In(TransportHeader)
    path_mtu: In(4)
    max_dest_rd_atomic: In(8)
    receive: In(RequestState)
    served: In(5)
    room: In(1)

    after: Out(PSN_BITS)
    crowded: Out(1)
    invalid: Out(1)
    full: Out(1)
    stale: Out(1)
    mixed: Out(1)

    def elaborate(self, platform):
        m = Module()
        dma_length = self.transport.dma_length
        reads = Signal()
        m.d.comb += reads.eq(self.responds & (self.kind == ResponseKind.READ))

        # Packets: whole ones, and one more for the rest, or for nothing at all.
        whole = Signal(PSN_BITS)
        rest = Signal()
        beyond = Signal()
        m.d.sync += [
            whole.eq(0),
            rest.eq(1),
            self.after.eq((Cat(1, self.transport.psn) + Cat(rest, whole))[1:]),  # one adder: `rest` is its carry
            beyond.eq(psn_before(self.receive.epsn, self.after)),
        ]
        with m.If(reads):
            with m.Switch(self.path_mtu[:3]):
                for path_mtu in range(1, 6):
                    with m.Case(path_mtu):
                        shift = 7 + path_mtu
                        m.d.sync += [
                            whole.eq(dma_length[shift:]),
                            rest.eq(dma_length[:shift].any() | ~dma_length[shift:].any()),
                        ]

        # Entries not answered: 0 to 16, all of which 5 bits tell apart.
        flight = Signal(5)
        over = Signal()
        fits = Signal()
        limit = Mux(self.max_dest_rd_atomic < READS_MAX, self.max_dest_rd_atomic[:5], READS_MAX)
        m.d.sync += [
            flight.eq(self.receive.taken - self.served),
            over.eq(flight >= limit),
            fits.eq(~flight[4] & (self.room | (flight == 0))),
            self.mixed.eq(self.receive.mixed & (flight != 0)),
        ]

        unfit = Signal()
        with m.If(reads):
            m.d.sync += unfit.eq(is_too_long(dma_length))
        with m.Else():
            m.d.sync += unfit.eq(self.transport.address[:3] != 0)
        m.d.comb += [
            self.invalid.eq(self.responds & (unfit | (over & ~self.mixed))),
            self.crowded.eq(self.responds & ~fits & (flight != 0)),
            self.full.eq(self.responds & ~fits),
            self.stale.eq(~fits | (reads & (unfit | beyond))),
        ]
        return m
