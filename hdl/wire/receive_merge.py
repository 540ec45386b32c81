"""RoCE packets and raw frames in one order."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.arbiter import SliceArbiter, pick
from ..stream.fifo import Queue
from ..stream.packet import PacketBeat
from .opcodes import DATAGRAMS
from .packet_header import ReceiveHeader

__all__ = ["ReceiveMerge"]


class ReceiveMerge(wiring.Component):
    """Merges received packets and raw frames, headers and payload in the same order. While both wait they take turns.

    *Cycles*: a header comes out 1 cycle after it came, one every second cycle; its payload 2 or more after it came.

    Parameters
    ----------
    data_width : int
    waiting : int
        Packets whose header has gone and whose payload has not.
    grh : bool
        A datagram's payload has its network header in front, which ``length`` does not count.

    Members
    -------
    header : two streams of ``ReceiveHeader``
        Packets; raw frames.
    payload : two streams of ``PacketBeat(data_width)``
        For each header whose ``length`` is not 0, and with ``grh`` for each datagram, a packet, which comes before or
        after it.
    o_header, o : streams of these
    """

    def __init__(self, data_width, waiting, grh=False):
        self.data_width = data_width
        self.waiting = waiting
        self.grh = grh
        beat = stream.Signature(PacketBeat(data_width))
        super().__init__(
            {
                "header": In(stream.Signature(ReceiveHeader)).array(2),
                "payload": In(beat).array(2),
                "o_header": Out(stream.Signature(ReceiveHeader)),
                "o": Out(beat),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.turns = turns = SliceArbiter(ReceiveHeader, 2)
        m.submodules.orders = orders = Queue(1, self.waiting)
        begins = Signal(2)  # payload of this port is next
        for number, (port, turn) in enumerate(zip(self.header, turns.i)):
            transport = port.payload.transport
            some = (transport.length != 0) | (transport.opcode.matches(*sorted(DATAGRAMS)) & self.grh)
            room = orders.i.ready | ~some
            m.d.comb += [
                turn.payload.eq(port.payload),
                turn.valid.eq(port.valid & room),
                port.ready.eq(turn.ready & room),
                begins[number].eq(port.valid & port.ready & some),
            ]
        m.d.comb += [orders.i.valid.eq(begins.any()), orders.i.payload.eq(turns.grant)]
        wiring.connect(m, turns.o, wiring.flipped(self.o_header))

        source, here = orders.o.payload, orders.o.valid
        m.d.comb += [
            Value.cast(self.o.payload).eq(pick([Value.cast(port.payload) for port in self.payload], source)),
            self.o.valid.eq(here & pick([port.valid for port in self.payload], source)),
            *(port.ready.eq(here & self.o.ready & (source == n)) for n, port in enumerate(self.payload)),
            orders.o.ready.eq(self.o.valid & self.o.ready & self.o.payload.last),
        ]
        return m
