"""The cache against a dictionary: any number of clients, ways and sets, misses in flight, invalidation."""

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from memory_model import CollidingRam, Host, server
from streams import make_rng, simulate
from verbena.hdl.abi.record import Field, Record
from verbena.hdl.memory.cache import Cache

ITEM = Record("item", 16, [Field("value", 48), Field("there", 1), Field("_", 15), Field("other", 64)])
BASE = 0x1_0000_0000
TAG = 6


class Client(wiring.Component):
    """What a user of the cache does, in hardware: looks each number up until it is decided. Clients take turns."""

    def __init__(self, clients, sets, **parameters):
        self.cache = Cache(ITEM, "there", tag_width=TAG, sets=sets, clients=clients, **parameters)
        number = sets.bit_length() - 1 + TAG
        answer = data.StructLayout({"number": number, "found": 1, "value": 48, "other": 64})
        super().__init__(
            {
                "number": In(stream.Signature(number)).array(clients),
                "answer": Out(stream.Signature(answer)).array(clients),
                "invalidate": In(self.cache.invalidate.signature.flip()),
                "fill": In(self.cache.fill.signature.flip()),
                "read": Out(self.cache.read.signature),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.cache = cache = self.cache
        for name in ("invalidate", "fill", "read"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(cache, name))
        clients, bits = cache.clients, cache.sets.bit_length() - 1
        turn, turn1 = Signal(range(max(2, clients))), Signal(range(max(2, clients)))
        busy = Signal(clients)
        m.d.sync += [turn.eq(turn + 1), turn1.eq(cache.lookup.payload.client)]
        with m.If(turn == clients - 1):
            m.d.sync += turn.eq(0)
        m.d.comb += [cache.base.eq(BASE), cache.lookup.payload.client.eq(turn)]
        for index, (number, answer) in enumerate(zip(self.number, self.answer, strict=True)):
            with m.If((turn == index) & number.valid & ~busy[index] & ~cache.blocked[index] & ~answer.valid):
                m.d.comb += [cache.lookup.valid.eq(1), cache.lookup.payload.index.eq(number.payload)]
                with m.If(cache.lookup.ready):
                    m.d.sync += busy[index].eq(1)
            with m.If(turn1 == index):
                m.d.comb += cache.tag.eq(number.payload >> bits)
            with m.If(answer.ready):
                m.d.sync += answer.valid.eq(0)
            over = Signal(name=f"over_{index}")
            m.d.sync += over.eq(cache.answer.valid & (cache.answer.client == index))
            with m.If(over):
                m.d.sync += busy[index].eq(0)
            with m.If(cache.answer.valid & (cache.answer.client == index)):
                with m.If(cache.answer.hit | cache.answer.absent):
                    m.d.comb += number.ready.eq(1)
                    m.d.sync += [
                        answer.valid.eq(1),
                        answer.payload.number.eq(number.payload),
                        answer.payload.found.eq(~cache.answer.absent),
                        answer.payload.value.eq(cache.line.value),
                        answer.payload.other.eq(cache.line.other),
                    ]
        return m


@pytest.mark.parametrize(
    ("clients", "sets", "ways", "data_width", "seed"),
    [
        (1, 8, 1, 64, None),
        (2, 4, 2, 64, None),
        (2, 2, 2, 128, None),
        (3, 4, 2, 256, None),
        (4, 8, 2, 64, None),
        (4, 8, 2, 64, 3),  # fills come in the very cycles in which all lines are cleared
    ],
)
def test_random(clients, sets, ways, data_width, seed, monkeypatch):
    """Each answer is a version of the record that no invalidation, taken before it, made stale. Nobody looks a record
    up that is changed while all are invalidated."""
    monkeypatch.setattr("verbena.hdl.memory.cache.Ram", CollidingRam)
    rng = make_rng(seed)
    host = Host()
    dut = Client(clients, sets, ways=ways, data_width=data_width)
    numbers = rng.sample(range(sets << TAG), 6 * sets)
    versions = {}  # number: [(value, other) or None, ...]; the current one is the last
    stale = dict.fromkeys(numbers, 0)
    counter = iter(range(1, 1 << 40))

    def change(number):
        new = None if rng.random() < 0.2 else (next(counter), rng.randrange(1 << 64))
        versions.setdefault(number, []).append(new)
        fields = {"there": 0} if new is None else {"there": 1, "value": new[0], "other": new[1]}
        host.store(BASE + 16 * number, ITEM.pack(**fields))

    for number in numbers:
        change(number)
    answers = [0] * clients
    invalidations = 0
    hits = misses = 0

    async def bench(ctx):
        """Everything in one testbench, so that the order of what happens in a cycle is known."""
        nonlocal invalidations, hits, misses
        asked = [None] * clients
        changed, everything, since = None, 0, 0
        cycle = 0
        while min(answers) < 80 or invalidations < 15:
            for index in range(clients):
                if asked[index] is None and rng.random() < 0.7:
                    allowed = numbers[: 2 * sets] if rng.random() < 0.8 else numbers
                    asked[index] = rng.choice([number for number in allowed if not everything or number != changed])
                    ctx.set(dut.number[index].payload, asked[index])
                    ctx.set(dut.number[index].valid, 1)
                ctx.set(dut.answer[index].ready, rng.random() < 0.7)
            if changed is None and rng.random() < 0.03:
                everything = int(rng.random() < 0.3)
                changed = rng.choice([number for number in numbers if not everything or number not in asked])
                change(changed)
                since = cycle
                ctx.set(dut.invalidate.payload, {"all": everything, "index": changed % sets})
                ctx.set(dut.invalidate.valid, 1)
            ports = [(port.valid, port.ready) for port in dut.number]
            replies = [(port.valid, port.ready, port.payload) for port in dut.answer]
            signals = [signal for port in ports + replies for signal in port]
            strobes = [dut.cache.count_hit, dut.cache.count_miss]
            values = await ctx.tick().sample(*signals, dut.invalidate.ready, *strobes)
            values = list(values[2:])
            hits += values[-2]
            misses += values[-1]
            for index in range(clients):
                valid, ready, payload = values[2 * clients + 3 * index : 2 * clients + 3 * index + 3]
                if valid and ready:
                    answers[index] += 1
                    got = (payload.value, payload.other) if payload.found else None
                    assert got in versions[payload.number][oldest[index] :], (index, payload.number)
                if values[2 * index] and values[2 * index + 1]:  # decided in this cycle
                    oldest[index] = stale[asked[index]]
                    asked[index] = None
                    ctx.set(dut.number[index].valid, 0)
            cycle += 1
            if changed is not None and values[-3]:
                # 6 cycles and 1 a client's fill; or 4 a line, and at most one more for a fill, for each.
                assert cycle - max(since, sets * ways) <= (5 * sets * ways + 6 if everything else 6 + clients)
                stale[changed] = len(versions[changed]) - 1
                ctx.set(dut.invalidate.valid, 0)
                changed, everything = None, 0
                invalidations += 1

    oldest = [0] * clients
    latency = rng.choice([3, 20, 60])
    serve = server(host, dut.read, dut.fill, rng, lambda: rng.randrange(latency), lengths=(16,))
    simulate(dut, bench, background=[serve], seed=rng.seed_value, deadline=60_000)
    assert len(host.reads) <= misses <= len(host.reads) + clients
    assert hits > 0


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_converts(clients):
    assert "module" in rtlil.convert(Cache(ITEM, "there", data_width=64, tag_width=8, clients=clients))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"sets": 3}, "sets must be a power of two, at least 2, not 3"),
        ({"ways": 3}, "ways must be 1 or 2, not 3"),
        ({"clients": 0}, "clients must be positive, not 0"),
        ({"data_width": 65}, "not 65"),
        ({"present": "value"}, "not 'value'"),
        ({"present": "nobody"}, "not 'nobody'"),
        ({"record": Record("odd", 24, [Field("there", 1)])}, "not 24"),
    ],
)
def test_wrong_arguments(wrong, match):
    good = {"record": ITEM, "present": "there", "data_width": 64, "tag_width": 8}
    with pytest.raises(ValueError, match=match):
        Cache(**{**good, **wrong})
