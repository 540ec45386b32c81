"""Reads of WQEs, and where what they bring is put."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.fifo import Queue
from ..stream.in_flight import InFlight
from ..stream.packet import PacketBeat
from .ring import ring_flight, word_address
from .wqe_area import WqeArea

__all__ = ["WqeReads"]

READ_BITS = 8
"""Of a read's number, see :class:`verbena.hdl.stream.in_flight.InFlight`."""


class WqeReads(wiring.Component):
    """Remembers what each read is for until its last beat is there, and has the blocks, which take all that comes.

    Parameters
    ----------
    data_width : int
        Bits of ``data``.
    rings, blocks, size : int
        Of the prefetcher.
    reads : int
        Most reads in flight.
    puts : bool
        With ``put_addr``, ``put_word`` and ``put_en``, see :class:`.wqe_area.WqeArea`; not while ``data.valid``.

    Members
    -------
    start, flight : 1, ``ring_flight``
        Strobe, while ``room``: a read goes out.
    room : 1
    data : stream of ``PacketBeat``
        A packet for each read, in their order.
    hold : 1
        No beat is taken.
    ends, qp, end, error : 1, ring, 16, 1
        Strobe: a read is there, of this ring up to this index; or it has failed.
    ask, reading : ring, 1
        Whether this ring has reads under way, 2 cycles later (:class:`verbena.hdl.stream.in_flight.InFlight`).
    word_addr, word
        Reads 64 bits, 2 cycles later.
    """

    def __init__(self, data_width, rings, blocks, size, reads, *, puts=False):
        self.data_width = data_width
        self.rings = rings
        self.blocks = blocks
        self.size = size
        self.reads = reads
        self.puts = puts
        words = range(blocks * size // 8)
        self.flight_layout = ring_flight(rings, blocks, size)
        put = {"put_addr": In(words), "put_word": In(64), "put_en": In(1)}
        super().__init__(
            {
                "start": In(1),
                "flight": In(self.flight_layout),
                "room": Out(1),
                "data": In(stream.Signature(PacketBeat(data_width))),
                "hold": In(1),
                "ends": Out(1),
                "qp": Out(ceil_log2(rings)),
                "end": Out(16),
                "error": Out(1),
                "ask": In(ceil_log2(rings)),
                "reading": Out(1),
                "word_addr": In(word_address(blocks, size)),
                "word": Out(64),
            }
            | (put if puts else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.flights = flights = Queue(self.flight_layout, self.reads)
        m.submodules.in_flight = in_flight = InFlight(self.rings, READ_BITS)
        m.submodules.store = store = WqeArea(self.data_width, self.blocks, self.size, puts=self.puts)
        flight = flights.o.payload
        m.d.comb += [
            flights.i.payload.eq(self.flight),
            flights.i.valid.eq(self.start),
            self.room.eq(flights.i.ready),
            self.data.ready.eq(~self.hold),
            store.start.eq(flight.word),
            store.beat.eq(self.data.payload),
            store.beat_en.eq(self.data.valid & self.data.ready),
            store.word_addr.eq(self.word_addr),
            self.word.eq(store.word),
            self.ends.eq(self.data.valid & self.data.ready & self.data.payload.last),
            self.qp.eq(flight.qp),
            self.end.eq(flight.end),
            self.error.eq(self.data.payload.error),
            flights.o.ready.eq(self.ends),
            in_flight.enter.eq(self.start),
            in_flight.enter_qp.eq(self.flight.qp),
            in_flight.done.eq(self.ends),
            in_flight.qp.eq(self.ask),
            self.reading.eq(in_flight.some),
        ]
        if self.puts:
            m.d.comb += [
                store.put_addr.eq(self.put_addr),
                store.put_word.eq(self.put_word),
                store.put_en.eq(self.put_en),
            ]
        return m
