"""Packets on their way to the transmitter."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...stream.fifo import Queue
from ...stream.transfer import LENGTH_BITS
from ..common.layouts import TxDescriptor, TxDescriptorKind

__all__ = ["TxDescriptorFifo"]


class TxDescriptorFifo(wiring.Component):
    """A :class:`verbena.hdl.stream.fifo.Queue` of TX descriptors that knows how much payload its requests and its
    responses have.

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
        2 cycles through; one every second cycle at most.
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
            {"i": In(descriptor), "o": Out(descriptor), "request_crowded": Out(1), "response_crowded": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = Queue(TxDescriptor, self.depth, sparse=True)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        for kind, limit, crowded in (
            (TxDescriptorKind.REQUEST, self.request_limit, self.request_crowded),
            (TxDescriptorKind.RESPONSE, self.response_limit, self.response_crowded),
        ):
            self._count(m, kind, limit, crowded)
        return m

    def _count(self, m, kind, limit, crowded):
        """Counts the payload of one kind."""
        more, less = Signal(LENGTH_BITS), Signal(LENGTH_BITS)
        inside = Signal(LENGTH_BITS + ceil_log2(self.depth))
        leaving = Signal(LENGTH_BITS)
        for change, port in ((more, self.i), (less, self.o)):
            counts = port.valid & port.ready & (port.payload.kind == kind)
            m.d.sync += change.eq(Mux(counts, port.payload.transport.length, 0))
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
