"""The cache and the queues of its two clients against a dictionary: misses under way, invalidation, absent records."""

from collections import deque

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from memory_model import CollidingRam, Host, server
from streams import changes, make_rng, simulate, unpacked
from verbena.hdl.abi.record import Field, Record
from verbena.hdl.memory.cache import CLIENTS, Cache
from verbena.hdl.memory.lookahead import Lookahead

ITEM = Record("item", 16, [Field("value", 48), Field("there", 1), Field("_", 15), Field("other", 64)])
BASE = 0x1_0000_0000
TAG = 6


class Clients(wiring.Component):
    """What the users of the cache do, in hardware: a queue each; whoever can start a lookup does, in turn."""

    def __init__(self, sets, waiting, **parameters):
        self.cache = Cache(ITEM, "there", tag_width=TAG, sets=sets, **parameters)
        self.queues = [Lookahead(waiting) for _ in range(CLIENTS)]
        self.waiting = waiting
        self.bits = sets.bit_length() - 1
        answer = data.StructLayout({"number": self.bits + TAG, "found": 1, "value": 48, "other": 64, "had_read": 1})
        super().__init__(
            {
                "number": In(stream.Signature(self.bits + TAG)).array(CLIENTS),
                "answer": Out(stream.Signature(answer)).array(CLIENTS),
                "decided": Out(CLIENTS),
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
        m.submodules.numbers = numbers = memory.Memory(shape=self.bits + TAG, depth=CLIENTS * self.waiting, init=[])
        get = numbers.read_port(domain="comb")
        turn, turn1, valid1, number1 = Signal(), Signal(), Signal(), Signal(self.bits + TAG)
        rows, cans, demands = [], [], []
        for client, queue in enumerate(self.queues):
            m.submodules[f"queue{client}"] = queue
            put = numbers.write_port()
            number, answer = self.number[client], self.answer[client]
            queue.hear(m, cache, client)
            m.d.comb += [
                number.ready.eq(queue.room),
                queue.put.eq(number.valid & number.ready),
                put.addr.eq(Cat(queue.tail, client)),
                put.data.eq(number.payload),
                put.en.eq(queue.put),
                queue.start.eq(cache.lookup.valid & cache.lookup.ready & (turn == client)),
                self.decided[client].eq(
                    cache.answer.valid & cache.answer.demand & cache.answer.found & (cache.answer.client == client)
                ),
            ]
            m.d.comb += queue.free.eq(~answer.valid | answer.ready)
            with m.If(answer.ready):
                m.d.sync += answer.valid.eq(0)
            absent2, number2, had2 = (
                Signal(1 if i != 1 else len(number1), name=f"stage2_{client}_{i}") for i in range(3)
            )
            with m.If(valid1 & (turn1 == client)):
                m.d.sync += [absent2.eq(queue.absent), number2.eq(number1), had2.eq(queue.had_read)]
            with m.If(self.decided[client]):
                m.d.sync += [
                    answer.valid.eq(1),
                    answer.payload.number.eq(number2),
                    answer.payload.found.eq(~absent2),
                    answer.payload.value.eq(cache.line.value),
                    answer.payload.other.eq(cache.line.other),
                    answer.payload.had_read.eq(had2),
                ]
            rows.append(queue.row)
            cans.append(queue.can)
            demands.append(queue.demand)
        absent1, demand1 = Signal(), Signal()
        m.d.comb += [
            get.addr.eq(Cat(Mux(turn, rows[1], rows[0]), turn)),
            cache.base.eq(BASE),
            cache.lookup.valid.eq(Mux(turn, cans[1], cans[0])),
            cache.lookup.payload.client.eq(turn),
            cache.lookup.payload.demand.eq(Mux(turn, demands[1], demands[0])),
            cache.lookup.payload.index.eq(get.data),
            absent1.eq(Mux(turn1, self.queues[1].absent, self.queues[0].absent)),
            cache.tag.eq(number1 >> self.bits),
            cache.drop.eq(demand1 & absent1),
        ]
        m.d.sync += valid1.eq(cache.lookup.valid & cache.lookup.ready)
        with m.If(~valid1):
            m.d.sync += [turn1.eq(turn), number1.eq(get.data), demand1.eq(cache.lookup.payload.demand)]
        with m.If(~valid1 | ~Mux(turn, cans[1], cans[0])):
            m.d.sync += turn.eq(~turn)
        return m


@pytest.mark.parametrize("count", [100, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("sets", "waiting", "data_width", "seed"),
    [(8, 4, 64, None), (4, 8, 64, None), (2, 16, 128, None), (4, 4, 256, None), (8, 8, 64, 3)],
)
def test_random(sets, waiting, data_width, seed, count, monkeypatch):
    """Each answer is a version of the record that no invalidation, taken before the decision, made stale; and none that
    was absent and has been made present before the access came. Nobody looks a record up that is changed while all are
    invalidated."""
    monkeypatch.setattr("verbena.hdl.memory.cache.Ram", CollidingRam)
    rng = make_rng(seed)
    host = Host()
    dut = Clients(sets, waiting, data_width=data_width, reads=rng.choice([4, 8, 16]))
    numbers = rng.sample(range(sets << TAG), 6 * sets)
    versions = {}  # number: [(value, other) or None, ...]; the current one is the last
    stale = dict.fromkeys(numbers, 0)
    counter = iter(range(1, 1 << 40))
    decisions = [0] * CLIENTS
    invalidations = appeared = 0

    def change(number):
        new = None if rng.random() < 0.2 else (next(counter), rng.randrange(1 << 64))
        versions.setdefault(number, []).append(new)
        fields = {"there": 0} if new is None else {"there": 1, "value": new[0], "other": new[1]}
        host.store(BASE + 16 * number, ITEM.pack(**fields))

    for number in numbers:
        change(number)

    async def bench(ctx):
        """Everything in one testbench, so that the order of what happens in a cycle is known."""
        nonlocal invalidations, appeared
        asked = [None] * CLIENTS
        waiting = [deque() for _ in range(CLIENTS)]  # (number, its version when it came)
        floors = [deque() for _ in range(CLIENTS)]  # of decisions whose answer has not been taken
        changed, everything, since, cycle = None, 0, 0, 0
        ports = [(port.valid, port.ready) for port in dut.number]
        replies = [(port.valid, port.ready, Value.cast(port.payload)) for port in dut.answer]
        signals = [signal for port in ports + replies for signal in port]
        edges, put = aiter(ctx.tick().sample(*signals, dut.invalidate.ready, dut.decided)), changes(ctx)
        while min(decisions) < count or invalidations < 15 * count // 250:
            for index in range(CLIENTS):
                if asked[index] is None and rng.random() < 0.7:
                    allowed = numbers[: 2 * sets] if rng.random() < 0.8 else numbers
                    asked[index] = rng.choice([number for number in allowed if not everything or number != changed])
                    ctx.set(dut.number[index].payload, asked[index])
                    ctx.set(dut.number[index].valid, 1)
                put(dut.answer[index].ready, rng.random() < (0.9 if cycle >> 8 & 1 else 0.3))
            if changed is None and rng.random() < 0.03:
                number = rng.choice(numbers)
                if versions[number][-1] is None and rng.random() < 0.7:
                    change(number)  # what becomes present needs no invalidation
                    appeared += 1
                else:
                    busy = {*asked, *(item for queue in waiting for item, _ in queue)}
                    idle = [number for number in numbers if number not in busy]
                    everything = int(bool(idle) and rng.random() < 0.3)
                    changed = rng.choice(idle) if everything else number
                    change(changed)
                    since = cycle
                    ctx.set(dut.invalidate.payload, {"all": everything, "index": changed % sets})
                    ctx.set(dut.invalidate.valid, 1)
            values = (await anext(edges))[2:]
            for index in range(CLIENTS):
                valid, ready, payload = values[2 * CLIENTS + 3 * index : 2 * CLIENTS + 3 * index + 3]
                if valid and ready:
                    payload = unpacked(dut.answer[index], payload)
                    number, came, floor = floors[index].popleft()
                    assert payload.number == number
                    got = (payload.value, payload.other) if payload.found else None
                    known = versions[number]
                    assert any(
                        known[at] == got for at in range(floor, len(known)) if at >= came or known[at] is not None
                    ), (index, number)
                if values[2 * index] and values[2 * index + 1]:
                    waiting[index].append((asked[index], len(versions[asked[index]]) - 1))
                    asked[index] = None
                    ctx.set(dut.number[index].valid, 0)
                if values[-1] >> index & 1:
                    number, came = waiting[index].popleft()
                    floors[index].append((number, came, stale[number]))
                    decisions[index] += 1
            cycle += 1
            if changed is not None and values[-2]:
                # The lines of a set, or all, and a cycle each for an answer that comes meanwhile.
                assert cycle - max(since, 2 * sets) <= (4 * sets + 8 if everything else 12)
                stale[changed] = len(versions[changed]) - 1
                ctx.set(dut.invalidate.valid, 0)
                changed, everything = None, 0
                invalidations += 1

    latency = rng.choice([3, 20, 60])
    serve = server(host, dut.read, dut.fill, rng, lambda: rng.randrange(latency), lengths=(16,))
    simulate(dut, bench, background=[serve], seed=rng.seed_value, deadline=60_000)
    assert appeared > 3 * count // 250


def run(host, numbers, *, latency, waiting=16, sets=64, driver=None):
    """Looks ``numbers`` up (a list a client), as fast as it goes; returns each client's (cycle, found, value)."""
    dut = Clients(sets, waiting, data_width=64, reads=16)
    got = [[] for _ in range(CLIENTS)]
    cycle = 0

    async def clock(ctx):
        nonlocal cycle
        async for _ in ctx.tick():
            cycle += 1

    def asks(client):
        async def ask(ctx):
            port = dut.number[client]
            await ctx.tick().repeat(2 * sets + 4)  # all lines are cleared after reset
            for number in numbers[client]:
                ctx.set(port.payload, number)
                ctx.set(port.valid, 1)
                await ctx.tick().until(port.ready)
            ctx.set(port.valid, 0)
            while len(got[client]) < len(numbers[client]):
                await ctx.tick()

        return ask

    def takes(client):
        async def take(ctx):
            port = dut.answer[client]
            ctx.set(port.ready, 1)
            async for _, _, valid, payload in ctx.tick().sample(port.valid, port.payload):
                if valid:
                    got[client].append((cycle, payload.found, payload.value))

        return take

    async def answer(ctx):
        """Reads are answered in their order, ``latency`` cycles after each, with what was in memory when they came."""
        due = deque()
        now = 0
        ctx.set(dut.read.ready, 1)
        edges = aiter(ctx.tick().sample(dut.read.valid, dut.read.payload))
        while True:
            beats = []
            if due and due[0][0] <= now:
                _, content = due.popleft()
                beats = [content[:8], content[8:]]
            for place, beat in enumerate(beats or [None]):
                ctx.set(dut.fill.valid, beat is not None)
                if beat is not None:
                    payload = {"data": int.from_bytes(beat, "little"), "count": 8, "first": place == 0, "last": place}
                    ctx.set(dut.fill.payload, payload)
                _, _, valid, request = await anext(edges)
                now += 1
                if valid:
                    due.append((now + latency, host.load(request.address, 16)))
                    host.reads.append(request.address)

    async def drive(ctx):
        if driver is not None:
            await driver(ctx, dut, lambda: cycle)

    simulate(dut, *map(asks, range(CLIENTS)), drive, background=[clock, answer, *map(takes, range(CLIENTS))])
    return got


def filled(count):
    host = Host()
    for number in range(count):
        host.store(BASE + 16 * number, ITEM.pack(there=1, value=number + 7))
    return host


@pytest.mark.parametrize("latency", [40, 400])
def test_misses_overlap(latency):
    """14 misses of one client take one latency and 6 cycles each, 3 times 14 that three times; all are read once."""
    numbers = list(range(42))
    host = filled(42)
    got = run(host, [numbers, []], latency=latency)[0]
    assert [(found, value) for _, found, value in got] == [(1, number + 7) for number in numbers]
    begin = got[0][0] - latency
    for rounds in (1, 2, 3):
        assert got[14 * rounds - 1][0] - begin < rounds * (latency + 20) + 14 * rounds * 6
    assert sorted(host.reads) == [BASE + 16 * number for number in numbers]


@pytest.mark.parametrize("client", [0, 1])
def test_a_client_does_not_wait_for_the_other(client):
    """One client's hits go on at their pace while the other's misses fill its queue."""
    host = filled(200)
    numbers = [[0] * 100, [0] * 100]
    numbers[1 - client] = list(range(1, 100))
    got = run(host, numbers, latency=1000)
    times = [cycle for cycle, _, _ in got[client]]
    assert times[99] - times[1] < 99 * 6
    assert got[1 - client][13][0] > times[99]


def test_a_record_is_read_once_for_all_who_wait():
    """A stream that goes on to the next record reads it once, although many accesses wait for it, and hits behind a
    miss leave right behind it."""
    host = filled(8)
    numbers = [number for number in range(8) for _ in range(8)]
    got = run(host, [numbers, []], latency=100)[0]
    assert [value for _, _, value in got] == [number + 7 for number in numbers]
    assert len(host.reads) == 8
    assert got[-1][0] - got[0][0] < 4 * 100 + 64 * 8  # records are read ahead


def test_a_record_that_becomes_present():
    """An access sees a record that has become present before it came, whatever reads were under way at that time."""
    host = filled(0)
    numbers = [[5] * 30, []]
    seen = []

    async def driver(ctx, dut, cycle):
        while not host.reads:
            await ctx.tick()
        await ctx.tick().repeat(40)
        host.store(BASE + 16 * 5, ITEM.pack(there=1, value=1))
        seen.append(cycle())

    got = run(host, numbers, latency=30, driver=driver)[0]
    found = [found for _, found, _ in got]
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] == 1


def test_what_is_read_before_an_invalidation_is_not_kept():
    """A record changes, and is invalidated, while many reads of it and of others are under way: the old one is not
    seen any more by what is decided later, and nothing of it stays."""
    host = filled(16)
    decided = []

    async def driver(ctx, dut, cycle):
        while len(host.reads) < 8:
            await ctx.tick()
        host.store(BASE + 16 * 3, ITEM.pack(there=1, value=1000))
        ctx.set(dut.invalidate.payload.index, 3)
        ctx.set(dut.invalidate.valid, 1)
        await ctx.tick().until(dut.invalidate.ready)
        ctx.set(dut.invalidate.valid, 0)
        decided.append(cycle())

    numbers = list(range(16))
    got = run(host, [numbers * 2, numbers], latency=100, driver=driver)
    for answers in got:
        assert [value for cycle, _, value in answers if value in (10, 1000) and cycle > decided[0] + 1].count(10) == 0
    assert len(host.reads) > 16, "what was under way is read again"


@pytest.mark.parametrize("delay", [0, 99, 112])
def test_an_absence_from_before_an_invalidation_does_not_count(delay):
    """A record comes and is invalidated while a read that did not find it is under way, or has just been answered: who
    waits for it reads again, if that can still be."""
    host = filled(0)
    accepted = []

    async def driver(ctx, dut, cycle):
        while not host.reads:
            await ctx.tick()
        for _ in range(delay):
            await ctx.tick()
        host.store(BASE + 16 * 5, ITEM.pack(there=1, value=1))
        ctx.set(dut.invalidate.payload.index, 5)
        ctx.set(dut.invalidate.valid, 1)
        await ctx.tick().until(dut.invalidate.ready)
        ctx.set(dut.invalidate.valid, 0)
        accepted.append(cycle())

    ((cycle, found, _),) = run(host, [[5], []], latency=100, driver=driver)[0]
    assert found == (cycle > accepted[0] + 1)
    assert len(host.reads) == 1 + found
    assert found or delay > 100


def test_converts():
    assert "module" in rtlil.convert(Cache(ITEM, "there", data_width=64, tag_width=8))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"sets": 3}, "sets must be a power of two, at least 2, not 3"),
        ({"reads": 2}, "reads must be a power of two, at least 4, not 2"),
        ({"reads": 12}, "reads must be a power of two, at least 4, not 12"),
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
