"""Packets on their way to the transmitter."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...stream.fifo import Queue
from ...stream.lut_fifo import LutFifo
from ...stream.part_fifo import PartFifo
from ...stream.transfer import LENGTH_BITS
from ...wire.packet_header import TransportHeader
from ..common.layouts import TxDescriptor, TxDescriptorKind

__all__ = ["TxDescriptorFifo"]

LUT_ROWS = 16
"""Most TX descriptors kept in LUT RAM: one row of it each. More take twice as much, and stand in block RAM."""

PARTS = 4
"""Rows of block RAM for each: what is left of a TX descriptor fills two block RAMs then."""

UNKNOWN = ("becn", "pkey", "dest_qpn")
"""Of the transport header, what the transmitter fills in."""

Kept = data.StructLayout(
    {name: field.shape for name, field in TxDescriptor if name not in ("qp", "transport")}
    | {name: field.shape for name, field in TransportHeader if name not in UNKNOWN}
)
"""A TX descriptor but for its QP."""


class TxDescriptorFifo(wiring.Component):
    """A queue of TX descriptors that knows how much payload its requests and its responses have.

    What is in it is sent even if a queue pair goes back meanwhile, and before all that comes later. So it should hold
    no more than covers the memory's latency. Requests and responses are counted apart, each with a limit of its own:
    neither waits for the other.

    Parameters
    ----------
    depth : int
        TX descriptors.
    request_limit, response_limit : int
        Bytes.
    width : int
        Bytes of a beat of the wire.

    Members
    -------
    i, o : stream of ``TxDescriptor``
        8 cycles through, and one every 7 cycles at most: less than the transmitter takes for the path. Up to
        :data:`LUT_ROWS` descriptors pass in 2 cycles, one every second cycle. Of the header, :data:`UNKNOWN` is zero.
    next, next_qp : 1, 12
        There is a next one at ``o``, or will be, and its QP: at most 2 cycles after ``i``, and after the one before
        was taken.
    request_crowded, response_crowded : 1
        The requests (the responses) inside, and what the wire has not carried of the one that left last, have so many
        bytes of payload as the limit says or more; 4 cycles behind. The wire is taken to carry a beat a cycle.
    """

    def __init__(self, depth, request_limit, response_limit, width):
        for name, limit in (("request_limit", request_limit), ("response_limit", response_limit)):
            if not isinstance(limit, int) or limit < 1:
                raise ValueError(f"{name} must be a positive int, not {limit!r}")
        self.depth = depth
        self.request_limit = request_limit
        self.response_limit = response_limit
        self.width = width
        descriptor = stream.Signature(TxDescriptor)
        super().__init__(
            {
                "i": In(descriptor),
                "o": Out(descriptor),
                "next": Out(1),
                "next_qp": Out(12),
                "request_crowded": Out(1),
                "response_crowded": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        if self.depth > LUT_ROWS:
            self._in_parts(m)
        else:
            m.submodules.queue = queue = Queue(TxDescriptor, self.depth, sparse=True)
            wiring.connect(m, wiring.flipped(self.i), queue.i)
            wiring.connect(m, queue.o, wiring.flipped(self.o))
            m.d.comb += [self.next.eq(self.o.valid), self.next_qp.eq(self.o.payload.qp)]
        for kind, limit, crowded in (
            (TxDescriptorKind.REQUEST, self.request_limit, self.request_crowded),
            (TxDescriptorKind.RESPONSE, self.response_limit, self.response_crowded),
        ):
            self._count(m, kind, limit, crowded)
        return m

    def _in_parts(self, m):
        """The QPs in LUT RAM, all else in block RAM."""
        m.submodules.qps = qps = LutFifo(len(self.next_qp), self.depth)
        m.submodules.rows = rows = PartFifo(Kept, self.depth, PARTS)
        i, o = self.i, self.o
        m.d.comb += [
            qps.i.payload.eq(i.payload.qp),
            self.next.eq(qps.o.valid),
            self.next_qp.eq(qps.o.payload),
            o.payload.qp.eq(qps.o.payload),
            i.ready.eq(qps.i.ready & rows.i.ready),
            qps.i.valid.eq(i.valid & rows.i.ready),
            rows.i.valid.eq(i.valid & qps.i.ready),
            o.valid.eq(rows.o.valid),
            rows.o.ready.eq(o.ready),
            qps.o.ready.eq(rows.o.valid & o.ready),
        ]
        for names, given, taken in (
            ([name for name, _ in TxDescriptor if name not in ("qp", "transport")], i.payload, o.payload),
            ([name for name, _ in TransportHeader if name not in UNKNOWN], i.payload.transport, o.payload.transport),
        ):
            for name in names:
                m.d.comb += [rows.i.payload[name].eq(given[name]), taken[name].eq(rows.o.payload[name])]

    def _count(self, m, kind, limit, crowded):
        """Counts the payload of one kind."""
        more, less = Signal(LENGTH_BITS), Signal(LENGTH_BITS)
        inside = Signal(LENGTH_BITS + ceil_log2(self.depth))
        leaving = Signal(LENGTH_BITS)
        for change, port in ((more, self.i), (less, self.o)):
            # Whether it is taken comes late, and goes to one bit.
            counts, length = Signal(), Signal(LENGTH_BITS)
            m.d.sync += [
                counts.eq(port.valid & port.ready & (port.payload.kind == kind)),
                length.eq(port.payload.transport.length),
            ]
            m.d.comb += change.eq(Mux(counts, length, 0))
        total = Signal(len(inside) + 1)
        m.d.sync += [
            inside.eq(inside + more - less),
            total.eq(inside + leaving),
            crowded.eq(total >= limit),
        ]
        with m.If(less != 0):
            m.d.sync += leaving.eq(less)
        with m.Elif(leaving[ceil_log2(self.width) :] != 0):
            m.d.sync += leaving.eq(leaving - self.width)
