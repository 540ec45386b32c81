"""RoCE packets and raw frames in one order."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.arbiter import StreamArbiter, pick
from ..stream.fifo import Queue
from ..stream.packet import PacketBeat
from ..stream.slice import Slice
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
        m.submodules.turns = turns = StreamArbiter(ReceiveHeader, 2)
        m.submodules.slice = register = Slice(ReceiveHeader)
        m.submodules.orders = orders = Queue(1, self.waiting)
        for port, turn in zip(self.header, turns.i):
            wiring.connect(m, wiring.flipped(port), turn)
        transport = turns.o.payload.transport
        some = Signal()  # it has payload
        m.d.comb += [
            some.eq((transport.length != 0) | (transport.opcode.matches(*sorted(DATAGRAMS)) & self.grh)),
            register.i.payload.eq(turns.o.payload),
            register.i.valid.eq(turns.o.valid & (orders.i.ready | ~some)),
            turns.o.ready.eq(register.i.ready & (orders.i.ready | ~some)),
            orders.i.valid.eq(turns.o.valid & register.i.ready & some),
            orders.i.payload.eq(turns.grant),
        ]
        wiring.connect(m, register.o, wiring.flipped(self.o_header))

        source, here = orders.o.payload, orders.o.valid
        m.d.comb += [
            Value.cast(self.o.payload).eq(pick([Value.cast(port.payload) for port in self.payload], source)),
            self.o.valid.eq(here & pick([port.valid for port in self.payload], source)),
            *(port.ready.eq(here & self.o.ready & (source == n)) for n, port in enumerate(self.payload)),
            orders.o.ready.eq(self.o.valid & self.o.ready & self.o.payload.last),
        ]
        return m
