"""Block RAM as the engine's host memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2
from verbena.hdl.dma.axi import Axi4, Response
from verbena.hdl.stream.fifo import Prefetch
from verbena.hdl.stream.ram import Ram

from .bridge_bus import BridgeBus

__all__ = ["BlockMemory"]


class BlockMemory(wiring.Component):
    """``size`` bytes at ``base`` of the engine's bus, which a bridge reaches, too, by the same addresses.

    One burst of reads and one of writes at a time, of full beats with consecutive addresses, as the engine makes them;
    a beat a cycle, the first 6 cycles after its address. A beat outside of the memory is answered with DECERR, and has
    no effect. The bridge comes between two bursts.

    Parameters
    ----------
    data_width : int
    size : int
        Bytes; a power of two, at least 4096.
    base : int
        Bus address, a multiple of ``size``.

    Members
    -------
    axi : ``Axi4``, flipped
    bus : ``BridgeBus``, flipped
        ``error`` outside of the memory.
    """

    def __init__(self, data_width, size, base):
        if not isinstance(size, int) or size < 4096 or size & size - 1:
            raise ValueError(f"size must be a power of two of at least 4096, not {size!r}")
        if base % size:
            raise ValueError(f"base must be a multiple of {size:#x}, not {base:#x}")
        self.data_width = data_width
        self.size = size
        self.base = base
        super().__init__({"axi": In(Axi4(data_width)), "bus": In(BridgeBus())})

    def elaborate(self, platform):
        m = Module()
        axi, request, answer = self.axi, self.bus.request, self.bus.answer
        lanes = self.data_width // 8
        low, high = ceil_log2(lanes), ceil_log2(self.size)
        m.submodules.ram = ram = Ram(self.data_width, self.size // lanes, granularity=8)
        m.submodules.prefetch = prefetch = Prefetch(self.data_width)
        at = request.payload.address
        ours = at[high:] == self.base >> high & (1 << 32 - high) - 1
        reading, writing = Signal(), Signal()  # the bridge's turn
        with m.If(answer.ready):
            m.d.sync += answer.valid.eq(0)

        # --- Reads.
        row, left, beats = Signal(high - low), Signal(9), Signal(9)
        response = Signal(Response)
        wait = Signal(3)
        m.d.comb += [
            ram.r_addr.eq(Mux(reading, at[low:high], row)),
            prefetch.row.eq(ram.r_data),
            prefetch.unread.eq(left != 0),
            axi.rdata.eq(prefetch.o.payload),
            axi.rresp.eq(response),
            axi.rlast.eq(beats == 1),
            axi.rvalid.eq(prefetch.o.valid),
            prefetch.o.ready.eq(axi.rready),
        ]
        with m.If(prefetch.take):
            m.d.sync += [row.eq(row + 1), left.eq(left - 1)]
        with m.If(axi.rvalid & axi.rready):
            m.d.sync += beats.eq(beats - 1)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(request.valid & ~request.payload.write & ~answer.valid):
                    m.next = "BRIDGE"
                with m.Else():
                    m.d.comb += axi.arready.eq(1)
                    with m.If(axi.arvalid):
                        m.d.sync += [
                            row.eq(axi.araddr[low:]),
                            left.eq(axi.arlen + 1),
                            beats.eq(axi.arlen + 1),
                            axi.rid.eq(axi.arid),
                            response.eq(self._response(axi.araddr)),
                        ]
                        m.next = "BURST"
            with m.State("BURST"):
                with m.If(axi.rvalid & axi.rready & axi.rlast):
                    m.next = "IDLE"
            with m.State("BRIDGE"):
                m.d.comb += reading.eq(1)
                m.d.sync += wait.eq(Cat(1, wait))
                with m.If(wait[2]):
                    m.d.comb += request.ready.eq(1)
                    m.d.sync += [
                        wait.eq(0),
                        answer.valid.eq(1),
                        answer.payload.data.eq(ram.r_data.word_select(at[2:low], 32)),
                        answer.payload.error.eq(~ours),
                    ]
                    m.next = "IDLE"

        # --- Writes.
        put, good = Signal(high - low), Signal()
        word = request.payload.data
        m.d.comb += [
            ram.w_addr.eq(Mux(writing, at[low:high], put)),
            ram.w_data.eq(Mux(writing, word.replicate(lanes // 4), axi.wdata)),
        ]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(request.valid & request.payload.write & ~answer.valid):
                    m.d.comb += [
                        writing.eq(1),
                        ram.w_en.eq(Mux(ours, 0xF << (at[2:low] << 2), 0)),
                        request.ready.eq(1),
                    ]
                    m.d.sync += [answer.valid.eq(1), answer.payload.error.eq(~ours)]
                with m.Else():
                    m.d.comb += axi.awready.eq(1)
                    with m.If(axi.awvalid):
                        inside = self._response(axi.awaddr) == Response.OKAY
                        m.d.sync += [put.eq(axi.awaddr[low:]), axi.bid.eq(axi.awid), good.eq(inside)]
                        m.next = "BURST"
            with m.State("BURST"):
                m.d.comb += [axi.wready.eq(1), ram.w_en.eq(Mux(axi.wvalid & good, axi.wstrb, 0))]
                with m.If(axi.wvalid):
                    m.d.sync += put.eq(put + 1)
                    with m.If(axi.wlast):
                        m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [axi.bvalid.eq(1), axi.bresp.eq(Mux(good, Response.OKAY, Response.DECERR))]
                with m.If(axi.bready):
                    m.next = "IDLE"
        return m

    def _response(self, address):
        # Bursts do not cross 4 KiB, so the first beat decides for all.
        high = ceil_log2(self.size)
        return Mux(address[high:] == self.base >> high, Response.OKAY, Response.DECERR)
