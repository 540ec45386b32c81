"""The 40 bytes in front of a datagram."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.wqe import GRH_BYTES
from ..stream.fifo import Queue
from ..stream.packet import PacketBeat
from ..stream.slice import Slice
from .opcodes import DATAGRAMS
from .packet_header import ArrivedHeader, ReceiveHeader

__all__ = ["GrhInsert"]

DATAGRAMS_WAITING = 4
"""Datagrams whose header has gone and whose payload has not."""

Order = data.StructLayout({"datagram": 1, "payload": 1})


class GrhInsert(wiring.Component):
    """Puts a datagram's network header in front of its payload, so that it reaches memory as payload does: of RoCEv1
    the GRH, of IPv6 the IPv6 header, of IPv4 20 bytes of zeros and the IPv4 header (IBA A17.4.3). ``length`` of its
    header stays what it is.

    *Cycles*: a header comes out 2 cycles after it came, one every third cycle; payload not before its header, a beat a
    cycle, and a datagram's after as many beats as 40 bytes take.

    Parameters
    ----------
    data_width : int
    waiting : int
        Packets whose header has gone and whose payload has not, a power of two: as many as may be decided on. Of
        datagrams there are :data:`DATAGRAMS_WAITING`.

    Members
    -------
    header : stream of ``ArrivedHeader``
    payload : stream of ``PacketBeat(data_width)``
        For each header whose ``length`` is not 0 a packet, which comes before or after it.
    o_header : stream of ``ReceiveHeader``; o : stream of ``PacketBeat(data_width)``
        The same, and a datagram's payload is 40 bytes longer.
    """

    def __init__(self, data_width, waiting=16):
        self.data_width = data_width
        self.waiting = waiting
        beat = stream.Signature(PacketBeat(data_width))
        super().__init__(
            {
                "header": In(stream.Signature(ArrivedHeader)),
                "payload": In(beat),
                "o_header": Out(stream.Signature(ReceiveHeader)),
                "o": Out(beat),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.orders = orders = Queue(Order, self.waiting)
        m.submodules.networks = networks = Queue(8 * GRH_BYTES, DATAGRAMS_WAITING)
        m.submodules.slice = register = Slice(ReceiveHeader)
        header, transport = self.header.payload.header, self.header.payload.header.transport
        known, datagram, some, payload, goes = (Signal() for _ in range(5))
        order = orders.i.payload
        # What the packet is, a cycle after its header has come.
        m.d.sync += [
            known.eq(self.header.valid & ~goes),
            datagram.eq(transport.opcode.matches(*sorted(DATAGRAMS))),
            some.eq(transport.length != 0),
        ]
        m.d.comb += [
            payload.eq(datagram | some),
            goes.eq(known & register.i.ready & (orders.i.ready | ~payload) & (networks.i.ready | ~datagram)),
            register.i.payload.eq(header),
            register.i.valid.eq(goes),
            self.header.ready.eq(goes),
            orders.i.valid.eq(goes & payload),
            order.datagram.eq(datagram),
            order.payload.eq(some),
            networks.i.valid.eq(goes & datagram),
            networks.i.payload.eq(self.header.payload.network),
        ]
        wiring.connect(m, register.o, wiring.flipped(self.o_header))

        size = self.data_width // 8
        whole, shift = divmod(GRH_BYTES, size)  # beats of the header alone, and its bytes in the next one
        now, network = orders.o.payload, networks.o.payload
        came, o = self.payload.payload, self.o.payload
        there = Signal()  # the oldest packet's order, and of a datagram its network header
        place, behind = Signal(range(whole + 1)), Signal(init=not whole)  # beat of the header, and all have gone
        kept, kept_valid = Signal(shift * 8, reset_less=True), Signal()
        rest = Signal(range(size + 1))  # bytes of another beat that follows the payload's last one
        ends = Signal()  # it is that
        rest_error = Signal()
        in_header = there & now.datagram & ~behind
        before = Mux(kept_valid, kept, network[whole * size * 8 :]) if shift else kept
        moves, over = Signal(), Signal()
        m.d.comb += [
            moves.eq(self.o.valid & self.o.ready),
            over.eq(moves & o.last),
            there.eq(orders.o.valid & (networks.o.valid | ~now.datagram)),
            orders.o.ready.eq(over),
            networks.o.ready.eq(over & now.datagram),
            o.first.eq(there & ~now.datagram & came.first),
        ]
        with m.If(in_header):
            m.d.comb += [
                self.o.valid.eq(1),
                o.data.eq(network.word_select(place, self.data_width) if whole else 0),
                o.count.eq(size),
                o.first.eq(place == 0),
                o.last.eq((place == whole - 1) & ~now.payload if not shift else 0),
            ]
            with m.If(moves):
                m.d.sync += [place.eq(place + 1), behind.eq(place == whole - 1)]
        with m.Elif(now.datagram & ends):
            m.d.comb += [self.o.valid.eq(1), o.data.eq(kept), o.count.eq(rest), o.last.eq(1), o.error.eq(rest_error)]
        with m.Elif(now.datagram & ~now.payload):
            m.d.comb += [self.o.valid.eq(there), o.data.eq(before), o.count.eq(shift), o.last.eq(1)]
            m.d.comb += o.first.eq(not whole)
        with m.Elif(now.datagram):
            fits = came.count <= size - shift
            m.d.comb += [
                self.o.valid.eq(there & self.payload.valid),
                self.payload.ready.eq(there & self.o.ready),
                o.data.eq(Cat(before, came.data)[: self.data_width]),
                o.last.eq(came.last & fits),
                o.error.eq(came.error & fits),
                o.count.eq(Mux(o.last, came.count + shift, size)),
                o.first.eq((place == 0) & ~kept_valid if not whole else 0),
            ]
            with m.If(moves):
                m.d.sync += [kept.eq(came.data[(size - shift) * 8 :]), kept_valid.eq(1)]
                m.d.sync += [
                    rest.eq(came.count - (size - shift)),
                    rest_error.eq(came.error),
                    ends.eq(came.last & ~fits),
                ]
        with m.Else():
            m.d.comb += [
                self.o.valid.eq(there & self.payload.valid),
                self.payload.ready.eq(there & self.o.ready),
                Cat(o.data, o.count, o.last, o.error).eq(Cat(came.data, came.count, came.last, came.error)),
            ]
        with m.If(over):
            m.d.sync += [place.eq(0), behind.eq(not whole), kept_valid.eq(0), ends.eq(0)]
        return m
