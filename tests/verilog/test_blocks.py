"""What ``make test-verilog`` must find, and what it must not take for a difference, by toy blocks."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import ClockDomain, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from block_model import build
from block_trace import Block, read
from streams import make_rng, pause, receive_all, send_all, simulate
from trace_recorder import recording
from verbena.hdl.stream.ram import Ram
from verbena.sim.model import build_directory


class Counter(wiring.Component):
    """Counts what it takes, in one or several steps an item; right, or with the bug that wide engines had."""

    def __init__(self, step_bits, right):
        self.step_bits, self.right = step_bits, right
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(16)), "wide": Out(70)})

    def elaborate(self, platform):
        m = Module()
        step = Signal(self.step_bits)
        # The reduction of no bits is 1 in Amaranth's simulator and 0 in the Verilog.
        last = step == (1 << self.step_bits) - 1 if self.right else step.all()
        m.d.comb += [self.i.ready.eq(~self.o.valid & last), self.wide.eq(self.o.payload << 54)]
        with m.If(self.i.valid & ~self.o.valid):
            m.d.sync += step.eq(step + 1)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(self.o.payload + self.i.payload)]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m


class Store(wiring.Component):
    """Gives back what it has put into a memory. It reads the row after the write, or at the same time."""

    def __init__(self, careful, needed=False):
        self.careful, self.needed = careful, needed
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(8, 2)
        age = Signal(3)
        m.d.sync += age.eq(age << 1 | (self.i.valid & self.i.ready))
        m.d.comb += [
            self.i.ready.eq(~self.o.valid & (age == 0)),
            ram.w_data.eq(self.i.payload),
            ram.w_en.eq(self.i.valid & self.i.ready),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        # The row of one cycle behind the write's, or of that very one, 2 cycles later.
        with m.If(age[2 if self.careful else 1]):
            m.d.sync += [self.o.valid.eq(ram.r_data[0] if self.needed else 1), self.o.payload.eq(ram.r_data)]
        return m


class Compare(wiring.Component):
    """Says whether what comes is less than a row that is being written: two extremes would agree."""

    def __init__(self):
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8)), "between": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(8, 2)
        m.d.comb += [
            ram.w_data.eq(self.i.payload),
            ram.w_en.eq(1),
            self.between.eq((ram.r_data > 50) & (ram.r_data < 200)),
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
        ]
        return m


class TwoClocks(wiring.Component):
    """A register of each of two clocks, the one behind the other."""

    i: In(8)
    middle: Out(8)
    o: Out(8, init=5)

    def elaborate(self, platform):
        m = Module()
        m.d.slow += self.middle.eq(self.i)
        m.d.fast += self.o.eq(self.middle)
        return m


class Choice(wiring.Component):
    """No clock at all; ``register``, a word of C++, is a port like any other."""

    register: In(33)
    b: In(8)
    o: Out(33)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(Mux(self.register[32], self.register, self.b))
        return m


def drive(dut, poke=None, lost=0):
    rng = make_rng()
    items = [rng.randrange(256) | 1 for _ in range(60)]

    async def send(ctx):
        if poke:
            ctx.set(poke(dut), 1)
        await send_all(ctx, dut.i, items, rng)

    async def receive(ctx):
        await receive_all(ctx, dut.o, len(items) - lost, rng)

    simulate(dut, send, receive, seed=rng.seed_value)


def drive_clocks(dut):
    rng = make_rng()
    m = Module()
    m.domains.slow, m.domains.fast = ClockDomain("slow"), ClockDomain("fast")
    m.submodules.dut = dut
    sim = Simulator(m)
    sim.add_clock(3e-9, domain="fast", phase=3e-9)
    sim.add_clock(6e-9, domain="slow", phase=6e-9)  # with every second edge of the fast one

    async def testbench(ctx):
        for _ in range(50):
            ctx.set(dut.i, rng.randrange(256))
            await pause(ctx, rng, 0.5, "fast")
            await ctx.tick("slow")

    sim.add_testbench(testbench)
    sim.run()


def drive_choice(dut):
    rng = make_rng()

    async def testbench(ctx):
        for _ in range(20):
            ctx.set(dut.register, rng.getrandbits(33))
            ctx.set(dut.b, rng.getrandbits(8))
            await ctx.delay(1e-9)

    sim = Simulator(dut)
    sim.add_testbench(testbench)
    sim.run()


CASES = {
    "right": lambda: drive(Counter(2, True)),
    "right without bits": lambda: drive(Counter(0, True)),
    "wrong, but with bits": lambda: drive(Counter(2, False)),
    "reduction of no bits": lambda: drive(Counter(0, False)),
    "row that is there": lambda: drive(Store(True)),
    "row that is being written": lambda: drive(Store(False)),
    "row that is being written and needed": lambda: drive(Store(False, needed=True), lost=1),
    "compared with a row that is being written": lambda: drive(Compare()),
    "two clocks": lambda: drive_clocks(TwoClocks()),
    "no clock": lambda: drive_choice(Choice()),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of each case: what its replay says, and how many rows it has."""
    found = {}
    folders = {}
    for name, run in CASES.items():
        folders[name] = tmp_path_factory.mktemp("traces")
        with recording(folders[name], name):
            run()
    blocks = {name: Block.from_json(next(folder.glob("*.json")).read_text()) for name, folder in folders.items()}
    texts = {block.key: (folders[name] / f"{block.key}.il").read_text() for name, block in blocks.items()}
    models = build(list(blocks.values()), lambda block: texts[block.key], build_directory() / "blocks")
    for (name, folder), model in zip(folders.items(), models, strict=True):
        (trace,) = read(next(folder.glob("*.traces")))
        assert trace.test == name
        replay = model.replay(trace.rows)
        found[name] = SimpleNamespace(
            difference=replay.difference, undefined=replay.undefined, rows=len(trace.rows) // model.block.row
        )
    return found


@pytest.mark.parametrize(
    "name", ["right", "right without bits", "wrong, but with bits", "row that is there", "two clocks", "no clock"]
)
def test_equal(results, name):
    assert results[name].difference is None
    assert results[name].undefined == 0
    assert results[name].rows >= 20


def test_a_reduction_of_no_bits_is_found(results):
    difference = results["reduction of no bits"].difference
    assert (difference.port, difference.wanted, difference.low, difference.high) == ("i__ready", 1, 0, 0)
    assert "i__ready is 0x0, not 0x1" in str(difference)


def test_a_handshake_that_is_undefined_is_found(results):
    difference = results["row that is being written and needed"].difference
    assert difference.port in ("o__valid", "i__ready")
    assert {difference.low, difference.high} == {0, 1}
    assert "undefined" in str(difference)


def test_a_payload_may_be_undefined(results):
    """A field may mean nothing together with others; how often is told."""
    assert results["row that is being written"].difference is None
    assert results["row that is being written"].undefined >= 60
    assert results["compared with a row that is being written"].difference is None


def test_a_changed_trace_is_found(tmp_path):
    with recording(tmp_path, "test"):
        drive(Counter(2, True))
    block = Block.from_json(next(tmp_path.glob("*.json")).read_text())
    (model,) = build([block], lambda block: (tmp_path / f"{block.key}.il").read_text(), build_directory() / "blocks")
    (trace,) = read(next(tmp_path.glob("*.traces")))
    offset = 0
    for port in block.ports:
        if port.output and port.gate is None:
            rows = bytearray(trace.rows)
            rows[7 * block.row + offset + port.size - 1] ^= 1
            difference = model.replay(rows).difference
            assert (difference.row, difference.port) == (7, port.name)
        offset += port.size
    with pytest.raises(ValueError, match="are no rows of"):
        model.replay(trace.rows[1:])


def test_a_test_that_sets_what_is_inside_is_left_out(tmp_path):
    with recording(tmp_path, "test"):
        drive(Counter(0, True), poke=lambda dut: dut.o.payload)
    assert not list(tmp_path.glob("*.traces"))
    (left_out,) = tmp_path.glob("left_out-*")
    assert "o__payload is set inside" in left_out.read_text()


def test_what_a_block_shows_of_its_inside_stays(tmp_path):
    class Shown(Counter):
        def elaborate(self, platform):
            self.count = Signal(16)
            m = super().elaborate(platform)
            m.d.sync += self.count.eq(self.count + 1)
            return m

    dut = Shown(2, True)

    async def testbench(ctx):
        await ctx.tick().repeat(3)
        assert ctx.get(dut.count) == 3

    with recording(tmp_path, "test"):
        simulate(dut, testbench)
    (trace,) = read(next(tmp_path.glob("*.traces")))
    assert trace.test == "test"


def test_a_memory_of_the_bench_is_no_block(tmp_path):
    m = Module()
    m.submodules.words = words = Memory(shape=8, depth=4, init=[1, 2])
    port = words.read_port()

    async def testbench(ctx):
        ctx.set(port.addr, 1)
        await ctx.tick()
        assert ctx.get(port.data) == 2

    with recording(tmp_path, "test"):
        simulate(m, testbench)
    (left_out,) = tmp_path.iterdir()
    assert left_out.read_text() == ""
