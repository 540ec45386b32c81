"""The arbiters alone: whose turn it is, and that all of a burst goes where it belongs."""

from collections import defaultdict

import pytest
from axi_memory import AxiMemory
from streams import make_rng, send_all, simulate
from verbena.hdl.dma.arbiter import BurstArbiter, ReadArbiter, WriteArbiter


def test_turns_and_addresses():
    rng = make_rng()
    clients = 5
    dut = BurstArbiter(clients)
    bursts = [[{"address": rng.getrandbits(64), "length": n} for n in range(20)] for _ in range(clients)]
    got, chosen = [], []

    def feed(number):
        async def client(ctx):
            await send_all(ctx, dut.i[number], bursts[number], None)

        return client

    async def take(ctx):
        ctx.set(dut.enable, 1)
        edges = aiter(ctx.tick().sample(dut.valid, dut.client, dut.address, dut.length, dut.chosen))
        while len(got) < 20 * clients:
            ready = rng.random() < 0.7
            ctx.set(dut.ready, ready)
            _, _, valid, *values, wins = await anext(edges)
            if valid and ready:
                got.append(values)
            if wins:
                chosen.append(wins)

    simulate(dut, *[feed(n) for n in range(clients)], take)
    order = [client for client, _, _ in got]
    assert [1 << client for client in order] == chosen
    assert order == list(range(clients)) * 20, "everyone in turn while all want"
    for client in range(clients):
        assert [(a, n) for c, a, n in got if c == client] == [(b["address"], b["length"]) for b in bursts[client]]


NON_BUFFERABLE = 0b0010
"""Normal, not cacheable, not bufferable (AXI4, A4.4): who answers a write has made it visible."""

CLIENTS = 3
BROKEN = range(0x5_0000, 0x6_0000)


def some_bursts(rng, width, limit=40):
    """Bursts of random length within 4 KiB; those in `BROKEN` fail on the bus."""
    size = width // 8
    for _ in range(limit):
        beats = rng.choice([1, 2, rng.randint(1, 16)])
        page = rng.choice([0x5_0000, rng.getrandbits(40) << 20, 0xFFFF_FFFF_FFFF_0000])
        yield {"address": page + rng.randrange(4096 // size - beats + 1) * size, "length": beats - 1}


def check_channel(addresses, width):
    """The other fields of an address channel are the same for all bursts."""
    expected = {
        "size": (width // 8).bit_length() - 1,
        "burst": 1,
        "cache": NON_BUFFERABLE,
        "lock": 0,
        "prot": 0,
        "qos": 0,
    }
    assert addresses
    assert all(address == expected for address in addresses)


def watch_channel(axi, channel, seen):
    names = ["size", "burst", "cache", "lock", "prot", "qos"]

    async def watch(ctx):
        signals = [getattr(axi, channel + name) for name in names]
        async for _, _, valid, *values in ctx.tick().sample(getattr(axi, f"{channel}valid"), *signals):
            if valid:
                seen.append(dict(zip(names, values, strict=True)))

    return watch


@pytest.mark.parametrize("width", [64, 512])
def test_reads_come_back_to_who_asked(width):
    rng = make_rng()
    dut = ReadArbiter(width, CLIENTS)
    memory = AxiMemory(dut.axi, rng, latency=20, stall=0.2, broken=BROKEN)
    bursts = [list(some_bursts(rng, width)) for _ in range(CLIENTS)]
    got, seen, errors = defaultdict(list), [], [0]
    wanted = {
        number: [
            (memory.memory.read(burst["address"] + beat * width // 8, width // 8), beat == burst["length"])
            for burst in bursts[number]
            for beat in range(burst["length"] + 1)
        ]
        for number in range(CLIENTS)
    }

    def client(number):
        port = dut.client[number]

        async def send(ctx):
            await send_all(ctx, port.burst, bursts[number], rng)
            while len(got[number]) < len(wanted[number]):
                await ctx.tick()

        async def take(ctx):
            async for _, _, valid, *beat in ctx.tick().sample(port.valid, port.data, port.last, port.error):
                if valid:
                    got[number].append(beat)

        return send, take

    async def count(ctx):
        async for _, _, error in ctx.tick().sample(dut.count_bus_errors):
            errors[0] += error

    sends, takes = zip(*map(client, range(CLIENTS)), strict=True)
    background = [*takes, count, memory.run, watch_channel(dut.axi, "ar", seen)]
    simulate(dut, *sends, background=background, seed=rng.seed_value)
    broken = 0
    for number in range(CLIENTS):
        fails = [burst["address"] in BROKEN for burst in bursts[number] for _ in range(burst["length"] + 1)]
        broken += sum(fails)
        assert [error for *_, error in got[number]] == fails
        found = [(data.to_bytes(width // 8, "little"), last) for data, last, _ in got[number]]
        assert [last for _, last in found] == [last for _, last in wanted[number]]
        assert all(f == w for f, w, fail in zip(found, wanted[number], fails, strict=True) if not fail)
    assert broken - 1 <= errors[0] <= broken  # the last one may come after the end
    check_channel(seen, width)


@pytest.mark.parametrize("width", [64, 512])
def test_writes_and_their_answers(width):
    rng = make_rng()
    dut = WriteArbiter(width, CLIENTS)
    memory = AxiMemory(dut.axi, rng, answer=10, stall=0.2, broken=BROKEN)
    # Each client writes pages of its own, so that the order between clients does not count.
    bursts = [
        [burst | {"address": burst["address"] % (1 << 60) | number << 60} for burst in some_bursts(rng, width)]
        for number in range(CLIENTS)
    ]
    answers, seen, errors = defaultdict(list), [], [0]
    expected = {}
    beats = [[] for _ in range(CLIENTS)]
    for number in range(CLIENTS):
        for burst in bursts[number]:
            for beat in range(burst["length"] + 1):
                data, strobe = rng.getrandbits(width), rng.getrandbits(width // 8)
                beats[number].append({"data": data, "strobe": strobe, "last": beat == burst["length"]})
                for lane in range(width // 8):
                    if strobe >> lane & 1:
                        expected[burst["address"] + beat * width // 8 + lane] = data >> 8 * lane & 255

    def client(number):
        port = dut.client[number]

        async def send(ctx):
            await send_all(ctx, port.burst, bursts[number], rng)
            while len(answers[number]) < len(bursts[number]):
                await ctx.tick()

        async def give(ctx):
            await send_all(ctx, port.beat, beats[number], rng)

        async def take(ctx):
            async for _, _, answer, error in ctx.tick().sample(port.answer, port.error):
                if answer:
                    answers[number].append(error)

        return send, give, take

    async def count(ctx):
        async for _, _, error in ctx.tick().sample(dut.count_bus_errors):
            errors[0] += error

    sends, gives, takes = zip(*map(client, range(CLIENTS)), strict=True)
    background = [*takes, count, memory.run, watch_channel(dut.axi, "aw", seen)]
    simulate(dut, *sends, *gives, background=background, seed=rng.seed_value)
    for number in range(CLIENTS):
        assert answers[number] == [burst["address"] in BROKEN for burst in bursts[number]]
    assert memory.memory.bytes == expected
    broken = sum(map(sum, answers.values()))
    assert broken - 1 <= errors[0] <= broken  # the last one may come after the end
    check_channel(seen, width)


class Bus:
    """A bus that takes addresses and data with stalls, and answers in any order between IDs; it notes what it sees."""

    def __init__(self, axi, rng, latency=20):
        self.axi, self.rng, self.latency = axi, rng, latency
        self.addresses, self.data, self.waiting = [], [], []
        self.answers = True

    async def run(self, ctx):
        axi, rng = self.axi, self.rng
        now, held, stable, open_, beats = 0, None, {}, [], []
        channels = {"ar": [axi.arvalid, axi.arready], "aw": [axi.awvalid, axi.awready]}
        fields = ("addr", "len", "id", "size", "burst", "cache")
        for name, signals in channels.items():
            signals += [getattr(axi, name + field) for field in fields]
        edges = aiter(ctx.tick().sample(
            axi.rready, axi.bready, axi.wvalid, axi.wready, axi.wdata, axi.wstrb, axi.wlast,
            *channels["ar"], *channels["aw"],
        ))  # fmt: skip
        while True:
            for name in ("ar", "aw", "w"):
                ctx.set(getattr(axi, f"{name}ready"), rng.random() < 0.6)
            if held is None and self.answers:
                oldest = {item["id"]: item for item in reversed(self.waiting) if item["whole"]}
                due = [item for item in oldest.values() if item["due"] <= now]
                held = rng.choice(due) if due and rng.random() < 0.7 else None
                ctx.set(axi.rvalid, held is not None and held["read"])
                ctx.set(axi.bvalid, held is not None and not held["read"])
                if held:
                    ctx.set(axi.rid, held["id"])
                    ctx.set(axi.bid, held["id"])
                    ctx.set(axi.rdata, held["addr"] + 8 * held["given"])
                    ctx.set(axi.rlast, held["given"] == held["len"])
            _, _, rready, bready, wvalid, wready, wdata, wstrb, wlast, *rest = await anext(edges)
            now += 1
            if held:
                assert rready if held["read"] else bready
                held["given"] += 1
                if not held["read"] or held["given"] > held["len"]:
                    self.waiting.remove(held)
                held = None
            elif not self.answers:
                ctx.set(axi.rvalid, 0)
                ctx.set(axi.bvalid, 0)
            for name, (valid, ready, *values) in (("ar", rest[:8]), ("aw", rest[8:])):
                assert stable.get(name) in (None, (valid, *values)), f"{name} changed before it was taken"
                stable[name] = (valid, *values) if valid and not ready else None
                if valid and ready:
                    item = dict(zip(fields, values), read=name == "ar", given=0, due=now + rng.randrange(self.latency))
                    item["whole"] = item["read"]
                    self.addresses.append(item)
                    self.waiting.append(item)
                    if not item["read"]:
                        open_.append(item)
            assert stable.get("w") in (None, (wvalid, wdata, wstrb, wlast)), "w changed before it was taken"
            stable["w"] = (wvalid, wdata, wstrb, wlast) if wvalid and not wready else None
            if wvalid and wready:
                self.data.append((wdata, wstrb, wlast))
                beats.append(wlast)
            while beats and open_:  # data may come before its address
                item, wlast = open_[0], beats.pop(0)
                item["given"] += 1
                assert wlast == (item["given"] == item["len"] + 1), "WLAST"
                if wlast:
                    item["whole"] = True
                    open_.pop(0)


def bursts_of(rng, clients, count):
    return [
        [{"address": rng.getrandbits(53) << 8, "length": rng.randrange(6)} for _ in range(count)]
        for _ in range(clients)
    ]


def seen(bus):
    """(client, address, length) of the bursts on the bus; what is the same for all is checked."""
    for item in bus.addresses:
        assert (item["size"], item["burst"]) == (3, 1)
        # Normal, not cacheable, not bufferable: who answers a write has made it visible.
        assert item["cache"] == 0b0010
    return [(item["id"] & 7, item["addr"], item["len"]) for item in bus.addresses]


def per_client(found, client):
    return [(address, length) for who, address, length in found if who == client]


def one_reset(kind, answers, rng):
    clients = 3
    dut = kind(64, clients)
    bus = Bus(dut.axi, rng)
    old, new = bursts_of(rng, clients, 40), bursts_of(rng, clients, 10)
    life = []
    heard = [0] * clients

    async def listen(ctx):
        ports = [port.valid & port.last if kind is ReadArbiter else port.answer for port in dut.client]
        async for _, _, *values in ctx.tick().sample(*ports):
            for number, value in enumerate(values):
                heard[number] += bool(life) and value

    async def bench(ctx):
        ports = [port.burst for port in dut.client]
        beats = [port.beat for port in dut.client] if kind is WriteArbiter else []
        at = [0] * clients
        given = [0] * clients
        flat = [[n == b["length"] for b in bursts for n in range(b["length"] + 1)] for bursts in old]

        async def cycle(bursts, flat, at, given):
            """The clients ask and give as they are taken."""
            for number in range(clients):
                if at[number] < len(bursts[number]):
                    ctx.set(ports[number].payload, bursts[number][at[number]])
                ctx.set(ports[number].valid, at[number] < len(bursts[number]))
                if beats and given[number] < len(flat[number]):
                    ctx.set(beats[number].payload, {"data": 0, "strobe": 0xFF, "last": flat[number][given[number]]})
                if beats:
                    ctx.set(beats[number].valid, given[number] < len(flat[number]))
            signals = [s for port in (*ports, *beats) for s in (port.valid, port.ready)]
            _, _, *values = await ctx.tick().sample(*signals)
            for number in range(clients):
                at[number] += values[2 * number] & values[2 * number + 1]
                if beats:
                    given[number] += values[2 * clients + 2 * number] & values[2 * clients + 2 * number + 1]

        for _ in range(rng.randrange(5, 60)):
            await cycle(old, flat, at, given)
        bus.answers = answers
        ctx.set(dut.stop, 1)
        if kind is WriteArbiter:
            ctx.set(dut.cut, 1)
        await cycle(old, flat, at, given)
        for port in (*ports, *beats):
            ctx.set(port.valid, 0)
        for _ in range(150):
            await ctx.tick()
        real = list(given)
        written = [strobe for _, strobe, _ in bus.data]
        assert len(bus.addresses) == sum(at)
        if beats:
            assert len(bus.data) == sum(item["len"] + 1 for item in bus.addresses)
            assert written.count(0xFF) == sum(real)
            assert written.count(0) == len(written) - sum(real)
        assert (bus.waiting == []) == answers
        # The new life.
        ctx.set(dut.life, not answers)
        if kind is WriteArbiter:
            ctx.set(dut.cut, 0)
        await ctx.tick()
        life.append(1)
        del bus.addresses[:]
        ctx.set(dut.stop, 0)
        at, given = [0] * clients, [0] * clients
        flat = [[n == b["length"] for b in bursts for n in range(b["length"] + 1)] for bursts in new]
        for number in range(700):
            if number == 100:
                bus.answers = True
            await cycle(new, flat, at, given)
        assert heard == [10] * clients
        assert bus.waiting == []
        for client in range(clients):
            assert per_client(seen(bus), client) == [(b["address"], b["length"]) for b in new[client]]

    simulate(dut, bench, background=[bus.run, listen], seed=rng.seed_value)


@pytest.mark.parametrize("kind", [ReadArbiter, WriteArbiter])
@pytest.mark.parametrize("answers", [True, False])
def test_clients_are_reset(kind, answers):
    """Whatever was asked for is brought to its end by the rules of AXI, data that does not come without strobes; and
    the new life gets only what is its own, even if the bus answers the old one later.
    """
    rng = make_rng()
    for _ in range(4):
        one_reset(kind, answers, rng)


@pytest.mark.parametrize("kind", [ReadArbiter, WriteArbiter])
@pytest.mark.parametrize("clients", [0, 17])
def test_wrong_arguments(kind, clients):
    with pytest.raises(ValueError, match=str(clients)):
        kind(64, clients)
