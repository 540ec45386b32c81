"""The atomic unit against a model that executes one atomic after the other."""

from dataclasses import dataclass

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from axi_memory import AxiMemory, SparseMemory
from runs import packets_of, piece
from streams import make_rng, receive_all, send_all, shared, simulate
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.dma.arbiter import ReadArbiter, WriteArbiter
from verbena.hdl.dma.atomic import AtomicOperands, AtomicResult, AtomicUnit
from verbena.hdl.dma.axi import Axi4

TOP = 1 << 64


class Top(wiring.Component):
    """The unit with an arbiter for each direction."""

    def __init__(self, data_width, slots=16):
        self.unit = AtomicUnit(data_width, slots)
        members = self.unit.signature.members
        ports = {name: members[name] for name in ("piece", "operands", "payload", "result")}
        super().__init__({"axi": Out(Axi4(data_width)), **ports})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self.unit
        m.submodules.read = read = ReadArbiter(unit.data_width, 1)
        m.submodules.write = write = WriteArbiter(unit.data_width, 1)
        wiring.connect(m, unit.read, read.client[0])
        wiring.connect(m, unit.write, write.client[0])
        for name in ("piece", "operands"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(unit, name))
        for name in ("payload", "result"):
            wiring.connect(m, getattr(unit, name), wiring.flipped(getattr(self, name)))
        for name, member in self.axi.signature.members.items():
            owner = (read if name.startswith(("ar", "r")) else write).axi
            if member.flow == Out:
                m.d.comb += getattr(self.axi, name).eq(getattr(owner, name))
            else:
                m.d.comb += getattr(owner, name).eq(getattr(self.axi, name))
        return m


@dataclass
class Atomic:
    """One atomic, and what the model says of it."""

    address: int
    swap: int = 0
    compare: int = 0
    add: int = 0
    status: int = 0
    packet: bytes = None  # None: undefined
    value: int = None  # None: not ok
    writes: bool = False

    def run(self, memory, broken, broken_writes):
        if self.status:
            self.packet = b""
        elif self.address not in broken:
            value = int.from_bytes(memory.read(self.address, 8), "little")
            self.writes = bool(self.add or value == self.compare)
            if self.writes:
                new = (value + self.swap) % TOP if self.add else self.swap
                memory.write(self.address, new.to_bytes(8, "little"))
            if not self.writes or self.address not in broken_writes:
                self.packet, self.value = value.to_bytes(8, "big"), value


def execute(atomics, data_width=64, slots=16, *, rng, stall=0.3, late=0, deadline=60_000, **options):
    """Runs ``atomics`` and compares with the model; their values are taken from cycle ``late`` on. Returns the bus and
    the cycles of what was seen on it.
    """
    dut = shared(Top, data_width, slots)
    bus = AxiMemory(dut.axi, rng, **{"latency": 64, **options})
    model = SparseMemory()
    for atomic in atomics:
        atomic.run(model, bus.broken, bus.broken_writes)
    times = {"piece": [], "ar": [], "r": [], "aw": [], "b": [], "payload": []}
    beats, results, over = [], [], []

    async def pieces(ctx):
        items = [piece(a.address, 0 if a.status else 8, status=a.status, tag=1, last=1) for a in atomics]
        await send_all(ctx, dut.piece, items, rng, stall)

    async def operands(ctx):
        items = [{"swap": a.swap, "compare": a.compare, "add": a.add} for a in atomics]
        await send_all(ctx, dut.operands, items, rng, stall)

    async def take_payload(ctx):
        for _ in range(late):
            await ctx.tick()
        beats.extend(await receive_all(ctx, dut.payload, len(atomics), rng if stall else None, stall))

    async def take_results(ctx):
        for item in await receive_all(ctx, dut.result, len(atomics), rng if stall else None, stall):
            results.append(item["value"] if item["ok"] else None)

    async def watch(ctx):
        axi = dut.axi
        to_read = [a.address for a in atomics if not a.status]
        to_write = [a.address for a in atomics if a.writes]
        unanswered = []
        cycle = 0
        async for _, _, ar, araddr, r, aw, awaddr, b, p, o, ended in ctx.tick().sample(
            axi.arvalid & axi.arready,
            axi.araddr,
            axi.rvalid,
            axi.awvalid & axi.awready,
            axi.awaddr,
            axi.bvalid,
            dut.piece.valid & dut.operands.valid,
            dut.payload.valid & dut.payload.ready,
            dut.unit.over,
        ):
            if ended:
                over.append(cycle)
                ours = atomics[: len(over)]
                assert len(times["r"]) >= sum(not a.status for a in ours), "over before its data has come"
                assert len(times["b"]) >= sum(a.writes for a in ours), "over before its write is answered"
            if ar:
                address = to_read.pop(0)
                assert address // (data_width // 8) * (data_width // 8) == araddr
                assert address not in unanswered, "read before the earlier write to this word was answered"
            if aw:
                unanswered.append(to_write.pop(0))
                assert unanswered[-1] // (data_width // 8) * (data_width // 8) == awaddr
            if b:
                unanswered.pop(0)
            for name, seen in (("piece", p), ("ar", ar), ("r", r), ("aw", aw), ("b", b), ("payload", o)):
                if seen:
                    times[name].append(cycle)
            cycle += 1

    simulate(
        dut, pieces, operands, take_payload, take_results, background=[watch, bus.run], deadline=deadline,
        seed=rng.seed_value,
    )  # fmt: skip
    packets = packets_of(beats, data_width)
    assert [error for _, error in packets] == [a.value is None for a in atomics]
    for (packet, _), atomic in zip(packets, atomics, strict=True):
        assert atomic.packet is None or packet == atomic.packet
    assert results == [a.value for a in atomics]
    assert len(over) == len(atomics)
    assert bus.memory.bytes == model.bytes, "memory differs"
    assert sum(bus.written.values()) == 8 * sum(a.writes for a in atomics), "a byte was written that is none of a word"
    return bus, times


def random_atomics(rng, count, words, *, refused=0.0):
    """On a few words, so that they meet; compares mostly succeed, since few values are in use."""
    atomics, values = [], SparseMemory()
    for _ in range(count):
        atomic = Atomic(rng.choice(words), swap=rng.choice([0, 1, TOP - 1, rng.getrandbits(64)]), add=rng.randrange(2))
        atomic.compare = int.from_bytes(values.read(atomic.address, 8), "little")
        if rng.random() < 0.4:
            atomic.compare ^= 1 << rng.randrange(64)
        if rng.random() < refused:
            atomic.status = rng.choice([AccessStatus.KEY, AccessStatus.POISONED])
        Atomic(atomic.address, atomic.swap, atomic.compare, atomic.add, atomic.status).run(values, (), ())
        atomics.append(atomic)
    return atomics


@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
def test_random(data_width):
    rng = make_rng()
    page = rng.randrange(1 << 52) << 12
    words = [page + 8 * n for n in range(4)] + [page + 4088, rng.getrandbits(61) << 3, 0, TOP - 8]
    atomics = random_atomics(rng, 150, words, refused=0.05)
    execute(atomics, data_width, rng=rng, latency=rng.choice([0, 5, 64]), answer=rng.choice([0, 3, 40]))


def test_one_word():
    """All on the same word: each sees what the one before has left."""
    rng = make_rng()
    atomics = [Atomic(0x1238, swap=n, add=1) for n in range(30)]
    execute(atomics, rng=rng, stall=0, latency=10, answer=10)
    assert atomics[-1].value == (atomics[0].value + sum(range(29))) % TOP


def test_words_that_look_alike():
    """Same offset in different pages, neighbours in a beat."""
    rng = make_rng()
    words = [0x1000 + (n << 15) for n in range(4)] + [0x1008, 0x1010, 0x9008]
    execute(random_atomics(rng, 100, words), 256, rng=rng, stall=0, latency=20, answer=20)


@pytest.mark.parametrize("slots", [2, 16, 32])
def test_in_flight(slots):
    """As many as there are slots, one behind the other, also of queue pairs that walk a block of 4 KiB each."""
    rng = make_rng(1)
    atomics = [Atomic(0x1000 * (1 + n % 16) + 64 * (n // 16), swap=1, add=1) for n in range(min(100, 10 * slots))]
    bus, times = execute(atomics, slots=slots, rng=rng, stall=0, latency=200, answer=0, shuffle=False)
    assert bus.most_reads == slots
    assert times["ar"][slots - 1] - times["ar"][0] <= 2 * slots


def test_all_are_written_while_a_value_waits():
    """The transmitter takes its time for each value; the memory is not kept waiting meanwhile."""
    rng = make_rng(1)
    atomics = [Atomic(0x1000 + 8 * n, swap=1, add=1) for n in range(16)]
    _, times = execute(atomics, rng=rng, stall=0, late=300, latency=10, answer=10, shuffle=False)
    assert times["aw"][-1] < 300 <= times["payload"][0]


def test_random_with_few_slots():
    rng = make_rng()
    words = [0x4000 + 8 * n for n in range(6)]
    execute(random_atomics(rng, 120, words, refused=0.05), slots=2, rng=rng, latency=30, answer=rng.choice([0, 40]))


def test_pace_and_latency():
    rng = make_rng(1)
    for add in (0, 1):
        atomics = [Atomic(0x1000 + 8 * n, swap=1, add=add) for n in range(200)]
        for atomic in atomics:
            atomic.compare = int.from_bytes(SparseMemory().read(atomic.address, 8), "little")
        _, times = execute(atomics, rng=rng, stall=0, latency=16, answer=8, shuffle=False)
        pace = (times["payload"][-1] - times["payload"][0]) / 199
        waits = {f"{a} to {b}": times[b][0] - times[a][0] for a, b in (("piece", "ar"), ("r", "aw"), ("b", "payload"))}
        print(f"{pace:.2f} cycles an atomic; {waits}")
        assert pace <= 8
        assert waits == {"piece to ar": 4, "r to aw": 5, "b to payload": 3}


def test_errors():
    rng = make_rng()
    refused, poisoned = int(AccessStatus.RIGHTS), int(AccessStatus.POISONED)
    atomics = [
        Atomic(0x1000, 5, add=1),
        Atomic(0, status=refused),
        Atomic(0x2000, 5, add=1),  # cannot be read
        Atomic(0x1000, 6, add=1),
        Atomic(0x3000, 5, add=1),  # cannot be written
        Atomic(0x3000, 5, compare=0),  # compare fails, so is not written
        Atomic(0x1000, 7, add=1),
        Atomic(0, status=poisoned),
        Atomic(0, status=poisoned),
        Atomic(0x1000, 8, add=1),
    ]
    execute(atomics, rng=rng, broken=range(0x2000, 0x2008), broken_writes=range(0x3000, 0x3008))
    assert [a.value is None for a in atomics] == [0, 1, 1, 0, 1, 0, 0, 1, 1, 0]


def test_ports():
    assert AtomicOperands.size == 129
    assert AtomicResult.size == 65
    with pytest.raises(ValueError, match="not 96"):
        AtomicUnit(96)
    with pytest.raises(ValueError, match="slots must be a power of two, at least 2, not 12"):
        AtomicUnit(64, 12)
