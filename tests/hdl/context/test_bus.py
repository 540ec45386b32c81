"""The lookup on the real bus: the pace of misses, and of hits beside them, with the responder's half as it is."""

import sys
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring
from streams import make_rng, simulate
from verbena.hdl.abi.qpc import HALF_BYTES, QP_RESPONDER, QPC_BYTES
from verbena.hdl.context.lookup import ContextLookup
from verbena.hdl.dma.arbiter import ReadArbiter, WriteArbiter
from verbena.hdl.dma.structure import StructureReader, StructureWriter
from verbena.hdl.transport.receive.layouts import REQUEST_ATTRIBUTES, RecvPlace, RequestState
from verbena.hdl.transport.responder.acknowledger import Memory

sys.path.append(str(Path(__file__).parents[1] / "dma"))
from axi_memory import AxiMemory

BASE = 0x7_0000_0000
QPS = 16384
SERVED = data.StructLayout(
    {"offset": 31, "packets": 23, "atomic": 1, "middle": 1, "quiet": 1, "dead": 1}
    | {"released": 5, "cut": 5, "served": 8, "place": data.StructLayout({"slot": 4, "wrapped": 1})}
)
STATES = {"request_state": RequestState, "place": RecvPlace, "acknowledge": Memory, "served": SERVED}


class Bench:
    """64 slots, an AXI memory of latency 128 for reads and 32 for writes, and who takes each item at once."""

    def __init__(self, data_width, rows=4):
        self.rng = make_rng()
        self.dut = dut = ContextLookup(
            16, QP_RESPONDER, REQUEST_ATTRIBUTES, STATES, slots=64, rows=rows, data_width=data_width, qpn_bits=14
        )
        self.top = m = Module()
        m.submodules.dut = dut
        m.submodules.reader = reader = StructureReader(data_width, 256, max(1, 512 // data_width))
        m.submodules.writer = writer = StructureWriter(data_width)
        m.submodules.reads = reads = ReadArbiter(data_width, 1)
        m.submodules.writes = writes = WriteArbiter(data_width, 1)
        wiring.connect(m, reader.port, reads.client[0])
        wiring.connect(m, writer.port, writes.client[0])
        for one, other in (
            (dut.read, reader.request),
            (reader.data, dut.data),
            (dut.write_request, writer.request),
            (dut.write_data, writer.data),
            (writer.done, dut.done),
        ):
            wiring.connect(m, one, other)
        self.memories = [AxiMemory(arbiter.axi, self.rng, shuffle=False) for arbiter in (reads, writes)]
        self.memories[1].memory = self.memory = self.memories[0].memory
        self.times = []

    def msn(self, qpn):
        address = BASE + qpn * QPC_BYTES + HALF_BYTES
        return QP_RESPONDER.unpack(self.memory.read(address, HALF_BYTES))["request_state_msn"]

    def run(self, qpns):
        """Each item counts its QP's MSN; returns the cycle in which each item was taken."""
        dut, expected, cycle = self.dut, {}, 0

        async def produce(ctx):
            ctx.set(dut.base, BASE)
            ctx.set(dut.log_size, 14)
            for qpn in qpns:
                ctx.set(dut.i.payload.qpn, qpn)
                ctx.set(dut.i.valid, 1)
                await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)

        async def consume(ctx):
            nonlocal cycle
            for qpn in qpns:
                while not (ctx.get(dut.o.valid) and ctx.get(dut.settled)):
                    await ctx.tick()
                    ctx.set(dut.unpin_en, 0)
                    cycle += 1
                assert ctx.get(dut.o.payload.qpn) == qpn
                msn = ctx.get(dut.o.payload.states.request_state.msn)
                assert msn == expected.get(qpn, self.msn(qpn))
                expected[qpn] = (msn + 1) % (1 << 24)
                for part in STATES:
                    port = getattr(dut.write, part)
                    ctx.set(port.data, ctx.get(dut.o.payload.states[part]))
                    ctx.set(port.en, part in ("request_state", "place"))
                ctx.set(dut.write.request_state.data.msn, expected[qpn])
                ctx.set(dut.unpin, ctx.get(dut.o.payload.slot))
                ctx.set(dut.unpin_en, 1)
                ctx.set(dut.o.ready, 1)
                self.times.append(cycle)
                await ctx.tick()
                cycle += 1
                ctx.set(dut.o.ready, 0)
                ctx.set(dut.unpin_en, 0)
                for part in STATES:
                    ctx.set(getattr(dut.write, part).en, 0)

        background = [memory.run for memory in self.memories]
        simulate(self.top, produce, consume, background=background, seed=self.rng.seed_value)
        return self.times


@pytest.mark.parametrize(("data_width", "most"), [(64, 24), (512, 18)])
def test_a_stream_of_misses(data_width, most):
    """Each item of another QP, and each slot dirty when it is taken away."""
    bench = Bench(data_width)
    times = bench.run([bench.rng.randrange(QPS) for _ in range(240)])
    pace = (times[-1] - times[140]) / (len(times) - 141)
    print(f"a miss each {pace:.1f} cycles")
    assert pace <= most


def test_hits_among_misses():
    """All leave in order: of 16 items that wait 4 are misses, so each takes a quarter of a fetch's latency."""
    bench = Bench(64)
    times = bench.run([bench.rng.randrange(QPS) if number % 4 == 0 else number % 3 for number in range(260)])
    pace = (times[-1] - times[140]) / (len(times) - 141)
    print(f"a miss and three hits each {4 * pace:.1f} cycles")
    assert 4 * pace <= 48
