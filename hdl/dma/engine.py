"""The DMA engine: all that is read and written in host memory."""

from amaranth.hdl import Cat, DomainRenamer, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..stream.connections import connect_signals, connect_via, link
from ..stream.lut_fifo import LutFifo
from ..stream.packet import PacketBeat
from ..stream.router import TagRouter
from ..stream.transfer import Done, Piece, ReadRequest
from .arbiter import ReadArbiter, WriteArbiter
from .atomic import AtomicOperands, AtomicResult, AtomicUnit
from .axi import Axi4
from .bus_watch import BusWatch
from .reader import BURSTS, PayloadReader
from .structure import StructureReader, StructureWriter
from .writer import PayloadWriter

__all__ = ["DmaEngine", "StructureRead", "StructureWrite"]

PIECES = 16
"""Translations ahead of the reads, and as many atomics. A read is asked for without waiting for those before it, so the
memory's latency asks for no more."""

READ_CHANNELS = ("ar", "r")
ADDRESSES = ("araddr", "awaddr")


class StructureRead(wiring.Signature):
    """Who reads structures: ``request`` and ``data`` of a :class:`.structure.StructureReader`, its user's view: it
    takes each beat as it comes.
    """

    def __init__(self, data_width):
        self.data_width = data_width
        beat = PacketBeat(data_width)
        super().__init__({"request": Out(stream.Signature(ReadRequest)), "data": In(stream.Signature(beat))})


class StructureWrite(wiring.Signature):
    """Who writes structures: ``request``, ``data`` and ``done`` of a :class:`.structure.StructureWriter`, its user's
    view: it takes each ``done`` as it comes.
    """

    def __init__(self, data_width):
        self.data_width = data_width
        super().__init__(
            {
                "request": Out(stream.Signature(ReadRequest)),
                "data": Out(stream.Signature(PacketBeat(data_width))),
                "done": In(stream.Signature(Done)),
            }
        )


class DmaEngine(wiring.Component):
    """Moves payload, executes atomics, reads and writes the engine's own structures, all by one AXI4 manager.

    Each purpose is a client of the arbiters and has its own AXI ID: 0 is payload, then come the structures in the order
    in which they are named, last atomics. Lower numbers are not better: the arbiters go round. What happens to each is
    the contract of its part.

    All but the arbiters may be reset while the bus goes on: what was asked of it is completed, and nothing of it comes
    to the new life (:class:`.arbiter.ReadArbiter`, :class:`.arbiter.WriteArbiter`).

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    buffer : int or None
        Bytes of payload that are read ahead, see :class:`.reader.PayloadReader`.
    readers : dict of str to tuple of int
        Structures that are read: how many reads may be under way, bytes of the largest, and, if it has three, how many
        beats, all powers of two. Nothing is kept here: who asks takes each beat as it comes.
    writers : dict of str to tuple of int
        Structures that are written: how many of each may wait for their answer, and, if it has two, bytes of the
        largest, all powers of two; the first at a beat a cycle, others every second cycle.
    bursts : int
        Bursts of received payload that may wait for their answer.
    atomics : int
        Atomics in flight, see :class:`.atomic.AtomicUnit`. 0: there is no atomic unit, no piece may have ``tag`` 1, and
        the streams of that unit are silent.
    address_width : int
        Bits of addresses that are kept; those above are 0 on the bus.
    bus_domain : str
        Clock domain of the arbiters: that of the others, perhaps with another reset.

    Members
    -------
    transmit_piece : stream of ``Piece``
        What is sent: ``tag`` 0 is payload, 1 an atomic. 16 of each may wait.
    transmit_payload : stream of ``PacketBeat``, hint : 1
        Of the :class:`.reader.PayloadReader`.
    operands, atomic_payload, result
        Of the :class:`.atomic.AtomicUnit`: streams.
    receive_piece, receive_payload, done
        Of the :class:`.writer.PayloadWriter`: streams.
    over : 3
        Strobes: a run of pieces has ended and touches memory no more. What is sent with ``tag`` 0, with ``tag`` 1, what
        is received; each in the order of its runs.
    <reader> : ``StructureRead``, <writer> : ``StructureWrite``
        One of each name.
    axi : AXI4 manager
    stop, life, cut, begun, ended
        Of the arbiters; the last two have bit 0 for reads and bit 1 for writes.
    limit : 16, overdue : 1
        Of a :class:`.bus_watch.BusWatch` over all purposes.
    count_bus_errors : 2
        Answers that were not OKAY.
    count_stall_rx_memory : 1
    """

    def __init__(
        self, data_width, buffer=None, *, readers, writers, bursts=16, atomics=16, address_width=64, bus_domain="sync"
    ):
        self.data_width = data_width
        self.buffer = buffer
        self.readers = dict(readers)
        self.writers = dict(writers)
        self.bursts = bursts
        self.atomics = atomics
        self.address_width = address_width
        self.bus_domain = bus_domain
        beat = PacketBeat(data_width)
        super().__init__(
            {
                "transmit_piece": In(stream.Signature(Piece)),
                "transmit_payload": Out(stream.Signature(beat)),
                "hint": Out(1),
                "operands": In(stream.Signature(AtomicOperands)),
                "atomic_payload": Out(stream.Signature(beat)),
                "result": Out(stream.Signature(AtomicResult)),
                "receive_piece": In(stream.Signature(Piece)),
                "receive_payload": In(stream.Signature(beat)),
                "done": Out(stream.Signature(Done)),
                "over": Out(3),
                **{name: In(StructureRead(data_width)) for name in self.readers},
                **{name: In(StructureWrite(data_width)) for name in self.writers},
                "axi": Out(Axi4(data_width)),
                "stop": In(1),
                "life": In(1),
                "cut": In(1),
                "begun": Out(2),
                "ended": Out(2),
                "limit": In(16),
                "overdue": Out(1),
                "count_bus_errors": Out(2),
                "count_stall_rx_memory": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = self.data_width
        m.submodules.payload_reader = payload_reader = PayloadReader(width, self.buffer)
        m.submodules.payload_writer = payload_writer = PayloadWriter(width, bursts=self.bursts)
        reads, writes = [payload_reader.port], [payload_writer.port]

        # Translation runs ahead: a miss on the next page costs nothing while this one's bytes are on their way.
        m.submodules.piece_router = router = TagRouter(Piece)
        connect_via(m, "pieces", LutFifo(Piece, PIECES), flipped(self.transmit_piece), router.i)
        link(m, router.o[0], payload_reader.piece)
        connect(m, payload_reader.payload, flipped(self.transmit_payload))
        connect_signals(m, payload_reader, self, "hint")
        connect(m, flipped(self.receive_piece), payload_writer.piece)
        connect(m, flipped(self.receive_payload), payload_writer.payload)
        connect(m, payload_writer.done, flipped(self.done))
        connect_signals(m, payload_writer, self, "count_stall_rx_memory")
        m.d.comb += [self.over[0].eq(payload_reader.over), self.over[2].eq(payload_writer.over)]

        for name, sizes in self.readers.items():
            user = getattr(self, name)
            m.submodules[f"{name}_reader"] = reader = StructureReader(width, *sizes)
            link(m, user.request, reader.request)
            link(m, reader.data, user.data)
            reads.append(reader.port)
        for name, sizes in self.writers.items():
            user = getattr(self, name)
            m.submodules[f"{name}_writer"] = writer = StructureWriter(width, *sizes)
            link(m, user.request, writer.request)
            link(m, user.data, writer.data)
            link(m, writer.done, user.done)
            writes.append(writer.port)
        if self.atomics:
            self._atomics(m, router.o[1], reads, writes)
        self._arbitrate(m, reads, writes)
        self._watch(m, reads, writes)
        return m

    def _atomics(self, m, pieces, reads, writes):
        m.submodules.atomic = atomic = AtomicUnit(self.data_width, self.atomics)
        link(m, pieces, atomic.piece)
        connect(m, flipped(self.operands), atomic.operands)
        connect(m, atomic.payload, flipped(self.atomic_payload))
        connect(m, atomic.result, flipped(self.result))
        m.d.comb += self.over[1].eq(atomic.over)
        reads.append(atomic.read)
        writes.append(atomic.write)

    def _watch(self, m, reads, writes):
        slots = [self.atomics] if self.atomics else []
        most = [BURSTS, *(sizes[0] for sizes in self.readers.values()), *slots]
        most += [self.bursts, *(sizes[0] for sizes in self.writers.values()), *slots]
        m.submodules.watch = watch = BusWatch(most)
        m.d.comb += [
            watch.taken.eq(Cat(port.burst.valid & port.burst.ready for port in (*reads, *writes))),
            watch.answered.eq(Cat(*(port.valid & port.last for port in reads), *(port.answer for port in writes))),
        ]
        connect_signals(m, self, watch, "stop", "limit")
        connect_signals(m, watch, self, "overdue")

    def _arbitrate(self, m, reads, writes):
        read_arbiter, write_arbiter = (
            ReadArbiter(self.data_width, len(reads)),
            WriteArbiter(self.data_width, len(writes)),
        )
        m.submodules.read_arbiter = DomainRenamer(self.bus_domain)(read_arbiter)
        m.submodules.write_arbiter = DomainRenamer(self.bus_domain)(write_arbiter)
        for arbiter in (read_arbiter, write_arbiter):
            connect_signals(m, self, arbiter, "stop", "life")
        connect_signals(m, self, write_arbiter, "cut")
        for ports, arbiter in ((reads, read_arbiter), (writes, write_arbiter)):
            for port, client in zip(ports, arbiter.client, strict=True):
                connect(m, port, client)
        for name, member in self.axi.signature.members.items():
            owner = (read_arbiter if name.startswith(READ_CHANNELS) else write_arbiter).axi
            if member.flow == Out:
                value = getattr(owner, name)
                m.d.comb += getattr(self.axi, name).eq(value[: self.address_width] if name in ADDRESSES else value)
            else:
                m.d.comb += getattr(owner, name).eq(getattr(self.axi, name))
        m.d.comb += [
            self.begun.eq(Cat(read_arbiter.begun, write_arbiter.begun)),
            self.ended.eq(Cat(read_arbiter.ended, write_arbiter.ended)),
        ]
        m.d.comb += self.count_bus_errors.eq(read_arbiter.count_bus_errors + write_arbiter.count_bus_errors)
