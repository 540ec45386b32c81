"""No engine, and no block at its smallest, holds an operator over a value of width 0."""

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.config import Config
from verbena.hdl.dma.arbiter import ReadArbiter, WriteArbiter
from verbena.hdl.dma.buffer import ReadBuffer
from verbena.hdl.dma.structure import StructureReader
from verbena.hdl.dma.writer import PayloadWriter
from verbena.hdl.ethernet.frame_receive import FrameReceive
from verbena.hdl.ethernet.mac import Mac
from verbena.hdl.generate import to_rtlil, to_verilog
from verbena.hdl.queue.completion import CompletionWriter
from verbena.hdl.queue.wqe_fetcher import RingPrefetcher
from verbena.hdl.rnic import Rnic
from verbena.hdl.stream.arbiter import PacketArbiter, StreamArbiter
from verbena.hdl.stream.backlog import Backlog
from verbena.hdl.stream.fifo import Queue
from verbena.hdl.stream.queue import PacketQueue
from verbena.hdl.stream.ram import Ram
from verbena.hdl.stream.ready import ReadyQueue
from verbena.hdl.transport.completer.entry_cache import EntryCache
from verbena.hdl.transport.responder.ack_queue import AckQueue
from verbena.hdl.wire.depacketizer import Depacketizer
from verbena.hdl.wire.packetizer import Packetizer
from verbena.hdl.zero_width import ZeroWidthError, check_zero_widths

SMALLEST = {
    "qps": 2,
    "cqs": 2,
    "window": 2,
    "send_blocks": 8,
    "send_quota": 2,
    "receive_blocks": 8,
    "receive_quota": 2,
    "mpt_sets": 4,
    "mtt_sets": 4,
    "receive_buffer": 8192,
    "headers": 4,
    "address_width": 32,
}
MANY = SMALLEST | {"qps": 128, "cqs": 128, "mpt_sets": 512, "mtt_sets": 512, "headers": 64, "address_width": 64}
NOTHING = Signal(0, name="nothing")
PLANTED = {
    "all": lambda m, a: NOTHING.all(),
    "any": lambda m, a: NOTHING.any(),
    "xor": lambda m, a: NOTHING.xor(),
    "bool": lambda m, a: NOTHING.bool(),
    "bit_select": lambda m, a: a.bit_select(NOTHING, 1),
    "word_select": lambda m, a: a.word_select(NOTHING, 2),
    "array": lambda m, a: Array([a[0], a[1]])[NOTHING],
}


class Planted(wiring.Component):
    """One operator over a signal of no bits, in a submodule."""

    def __init__(self, make):
        super().__init__({"a": In(4), "y": Out(4)})
        self.make = make

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = Module()
        inner.d.comb += self.y.eq(self.make(inner, self.a))
        return m


def if_nothing(m, a):
    out = Signal()
    with m.If(NOTHING):
        m.d.comb += out.eq(a[0])
    return out


def switch_nothing(m, a):
    out = Signal()
    with m.Switch(NOTHING):
        with m.Case(0):
            m.d.comb += out.eq(a[0])
        with m.Default():
            m.d.comb += out.eq(a[1])
    return out


@pytest.mark.parametrize("generate", [to_rtlil, to_verilog])
@pytest.mark.parametrize("make", [*PLANTED.values(), if_nothing, switch_nothing], ids=[*PLANTED, "if", "switch"])
def test_what_is_planted_is_found(make, generate):
    with pytest.raises(ZeroWidthError, match=r"over a value of width 0: \S+ at .*\.py:\d+"):
        generate(Planted(make), "dut")


def test_the_place_is_named():
    with pytest.raises(ZeroWidthError, match=r"^over a value of width 0: \$reduce_and at .*test_zero_width\.py:\d+$"):
        to_rtlil(Planted(PLANTED["all"]), "dut")


def test_one_bit_is_enough():
    check_zero_widths(rtlil.convert(Planted(lambda m, a: a[:1].all() & a.bit_select(a[:1], 1)), name="dut"))


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize(
    ("data_width", "sizes"), [(64, SMALLEST), (64, MANY), (512, SMALLEST | {"requests": False, "udp_port": 1})]
)
def test_engines(data_width, sizes):
    """Those of usual sizes are checked when they are generated, as all are."""
    check_zero_widths(rtlil.convert(Rnic(Config(data_width=data_width, **sizes)), name="rnic"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Backlog(1, 2),
        lambda: Backlog(2, 2, 2),
        lambda: Queue(1, 2),
        lambda: Queue(1, 2, bypass=True),
        lambda: Queue(1, 128),
        lambda: PacketQueue(512, 128),
        lambda: Ram(1, 1),
        lambda: ReadyQueue(2),
        lambda: StreamArbiter(1, 2),
        lambda: PacketArbiter(512, 2),
        lambda: ReadArbiter(64, 1),
        lambda: WriteArbiter(512, 2),
        lambda: ReadBuffer(1, 2, 1),
        lambda: StructureReader(512, 1, 8),
        lambda: PayloadWriter(512, bursts=2),
        lambda: CompletionWriter(512, 2),
        lambda: RingPrefetcher.receive(512, 2, 256),
        lambda: RingPrefetcher.receive(64, 2, 256),
        lambda: EntryCache(64),
        lambda: EntryCache(512),
        lambda: AckQueue(2),
        lambda: Packetizer(64),
        pytest.param(lambda: Packetizer(512), marks=pytest.mark.slow),
        lambda: Depacketizer(64, depth=8192, headers=2),
        pytest.param(lambda: Depacketizer(512, depth=8192, headers=2), marks=pytest.mark.slow),
        lambda: FrameReceive(),
        lambda: Mac(64, receive_depth=None),
    ],
)
def test_blocks_alone(make):
    check_zero_widths(rtlil.convert(make(), name="dut"))
