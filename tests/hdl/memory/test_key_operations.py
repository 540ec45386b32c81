"""Operations on keys against the rules in plain Python, and each step of them in the order that readers rely on."""

from collections import deque

import pytest
from amaranth.back import rtlil
from memory_model import MPT_BASE, TOP, Host, server
from streams import collect, make_rng, pause, receive_all, send_all, shared, simulate
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.hdl.abi.tables import MPT, Access, AccessStatus, KeyKind
from verbena.hdl.memory import key_operations
from verbena.hdl.memory.key_operations import KeyOperation, KeyOperations

LOG_SIZE = 4
INVALIDATE, REGISTER, BIND = KeyOperation
QPS = 4
QPNS = (0x10, 0xABCDEF, 0x11, 0x800010)
"""Of the slots."""
KINDS = {
    INVALIDATE: (KeyKind.FAST_REGION, KeyKind.WINDOW_2),
    REGISTER: (KeyKind.FAST_REGION,),
    BIND: (KeyKind.WINDOW, KeyKind.WINDOW_2),
}
WINDOW_RIGHTS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
REMOTE = Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Entries are kept in few rows, so that some are needed by others."""
    monkeypatch.setattr(key_operations, "KEPT", 8)


def answer(entries, failing, asked):
    """The status, and the entry as it is then; None: unchanged."""
    index = asked["key"] >> 8
    if index >> LOG_SIZE:
        return AccessStatus.KEY, None
    if index in failing:
        return AccessStatus.BUS, None
    entry = entries[index]
    kind = asked["operation"]
    registers, binds = kind == REGISTER, kind == BIND
    wanted = asked["old"] if binds else asked["key"] & 255
    bound = entry["kind"] == KeyKind.WINDOW_2
    if entry["valid"] if registers or (binds and bound) else not entry["valid"] and not binds:
        return AccessStatus.KEY, None
    if entry["valid"] and entry["variant"] != wanted:
        return AccessStatus.KEY, None
    if entry["kind"] not in KINDS[kind]:
        return AccessStatus.RIGHTS, None
    if entry["pd"] != asked["pd"] or (kind == INVALIDATE and bound and entry["pages_or_qpn"] != QPNS[asked["qp"]]):
        return AccessStatus.PD, None
    if kind == INVALIDATE:
        return AccessStatus.OK, entry | {"valid": 0}
    address, length = asked["address"], asked["length"]
    fields = {"variant": asked["key"] & 255, "access": asked["access"], "address": address, "length": length}
    fields |= {"valid": length > 0}
    if registers:
        if asked["access"] & REMOTE and not asked["access"] & 1:
            return AccessStatus.RIGHTS, None
        if address + length > TOP or address % 4096 + length > entry["pages_or_qpn"] << 12:
            return AccessStatus.RANGE, None
        if not length:
            return AccessStatus.OK, entry
        return AccessStatus.OK, entry | fields | {"log_page_size": 12, "physical": 0}
    fields |= {"access": asked["access"] & WINDOW_RIGHTS, "pages_or_qpn": QPNS[asked["qp"]] if bound else 0}
    if not length:
        if bound:
            return AccessStatus.RANGE, None
        return AccessStatus.OK, entry | {"valid": 0}
    index = asked["region"] >> 8
    if index >> LOG_SIZE:
        return AccessStatus.KEY, None
    if index in failing:
        return AccessStatus.BUS, None
    region = entries[index]
    if not region["valid"] or region["variant"] != asked["region"] & 255:
        return AccessStatus.KEY, None
    if region["kind"] in (KeyKind.WINDOW, KeyKind.WINDOW_2):
        return AccessStatus.RIGHTS, None
    if region["pd"] != asked["pd"]:
        return AccessStatus.PD, None
    if not region["access"] & Access.MW_BIND or (asked["access"] & REMOTE and not region["access"] & 1):
        return AccessStatus.RIGHTS, None
    if not region["address"] <= address <= address + length <= region["address"] + region["length"]:
        return AccessStatus.RANGE, None
    log = region["log_page_size"]
    pages = (address >> log) - (region["address"] >> log)
    fields |= {"log_page_size": log, "physical": region["physical"], "mtt_address": region["mtt_address"] + 8 * pages}
    return AccessStatus.OK, entry | fields


def random_entry(rng):
    length = rng.choice([0, 1, 4096, rng.randrange(1 << 20), rng.randrange(1 << 34)])
    return MPT.unpack(
        MPT.pack(
            length=length,
            log_page_size=rng.choice([12, 12, 13, 21, 30]),
            physical=rng.randrange(2),
            kind=rng.choice(list(KeyKind)),
            valid=rng.random() < 0.7,
            address=rng.randrange(TOP - length),
            mtt_address=rng.randrange(1 << 58) << 3,
            pd=rng.choice([1, 1, 1, 2]),
            variant=rng.randrange(4),
            access=rng.choice([31, 31, 23, 30, rng.randrange(32)]),
            pages_or_qpn=rng.choice([0, 1, 5, 0xFFFFFF, *QPNS]),
        )
    )


def random_request(rng, entries, operation):
    """Mostly one that may be right."""

    def some(kinds):
        right = [number for number, entry in enumerate(entries) if entry["kind"] in kinds]
        return rng.choice(right if right and rng.random() < 0.8 else range(len(entries)))

    index, number = some(KINDS[operation]), some((KeyKind.REGION, KeyKind.FAST_REGION))
    entry, region = entries[index], entries[number]
    length = rng.choice(
        [0, 1, 4096, 5 << 12, region["length"], rng.randrange(region["length"] + 2), 1 << 48, 8 + (1 << 48)]
    )
    place = region["address"] + rng.choice([0, 1, region["length"] - length, rng.randrange(region["length"] + 1), -1])
    if operation == REGISTER:
        place = rng.choice([rng.randrange(TOP), TOP - length, rng.randrange(1 << 20) << 12])
    key = index << 8 | (entry["variant"] if operation == INVALIDATE else rng.randrange(4))
    if rng.random() < 0.05:
        key ^= 1 << rng.randrange(32)
    wrong = rng.random() < 0.05
    return {
        "operation": operation,
        "key": key,
        "old": entry["variant"] ^ wrong,
        "region": (number << 8 | region["variant"]) ^ (rng.random() < 0.05) << rng.randrange(32),
        "address": place % TOP,
        "length": length,
        "access": rng.choice([0, 1, 3, 6, 7, 15, rng.randrange(32)]),
        "pd": entry["pd"] if rng.random() < 0.9 else 2,
        "qp": QPNS.index(entry["pages_or_qpn"]) if entry["pages_or_qpn"] in QPNS and wrong == 0 else rng.randrange(QPS),
    }


async def asked_for(ctx, port):
    """The item that a stream shows, once it does."""
    edges = aiter(ctx.tick().sample(port.valid, port.payload))
    valid = False
    while not valid:
        _, _, valid, item = await anext(edges)
    return item


class Memory:
    """The writes of the engine, as they come to host memory, and what must be so at each moment."""

    def __init__(self, host, dut, rng, latency):
        self.host, self.dut, self.rng, self.latency = host, dut, rng, latency
        self.fails = set()  # words that cannot be written
        self.asked = deque()  # writes that are not answered, each with the cycles that it takes
        self.changes = []

    def valid(self, index):
        return self.host.entry(index)["valid"]

    def will_be_valid(self, index):
        """When all that is asked for is written."""
        valid = self.valid(index)
        for address, data, bad in self.asked:
            if address == MPT_BASE + MPT.size * index and not bad:
                valid = MPT.unpack(data.ljust(MPT.size, b"\0"))["valid"]
        return valid

    async def writes(self, ctx):
        dut, rng = self.dut, self.rng
        while True:
            (request,) = await receive_all(ctx, dut.write, 1, rng)
            data = b""
            while len(data) < request.length:
                (beat,) = await receive_all(ctx, dut.data, 1, rng)
                assert beat.first == (not data)
                assert beat.count == min(dut.data_width // 8, request.length - len(data))
                data += beat.data.to_bytes(dut.data_width // 8, "little")[: beat.count]
                assert beat.last == (len(data) == request.length)
            index, place = divmod(request.address - MPT_BASE, MPT.size)
            # The other words change only while the entry is not valid.
            assert (place, len(data)) in ((0, 8), (8, 24))
            assert place == 0 or not self.will_be_valid(index)
            assert ctx.get(dut.hold)
            self.asked.append((request.address, data, index in self.fails))
            assert len(self.asked) <= 3

    async def answers(self, ctx):
        while True:
            await ctx.tick()
            if self.asked:
                address, data, bad = self.asked[0]
                for _ in range(self.latency()):
                    await ctx.tick()
                assert ctx.get(self.dut.hold)
                if not bad:
                    self.host.store(address, data)
                self.asked.popleft()
                await send_all(ctx, self.dut.done, [{"status": AccessStatus.BUS if bad else AccessStatus.OK}], self.rng)

    async def invalidations(self, ctx):
        dut = self.dut
        while True:
            item = await asked_for(ctx, dut.invalidate)
            # What is dropped can come back only as it is in memory now, or as it comes.
            if not item.translations:
                excused = item.index in self.by_command or item.index in self.fails
                assert not self.valid(item.index) or ctx.get(dut.hold) or excused
            await pause(ctx, self.rng, 0.7)
            self.changes.append(item)
            ctx.set(dut.invalidate.ready, 1)
            await ctx.tick()
            ctx.set(dut.invalidate.ready, 0)

    by_command = ()

    @property
    def dropped(self):
        return [(item.translations, item.index) for item in self.changes]


def world_of(data_width, rng, latency=None):
    dut = shared(KeyOperations, data_width, QPS)
    host = Host(log_size=LOG_SIZE)
    entries = [random_entry(rng) for _ in range(1 << LOG_SIZE)]
    for index, entry in enumerate(entries):
        host.store(MPT_BASE + MPT.size * index, MPT.pack(**entry))
    latency = latency or (lambda: rng.choice([0, 1, 5, 20]))
    memory = Memory(host, dut, rng, latency)
    background = [server(host, dut.read, dut.fill, rng, latency), memory.writes, memory.answers, memory.invalidations]
    return dut, host, entries, memory, background


async def configure(ctx, dut):
    for slot, qpn in enumerate(QPNS):
        ctx.set(dut.attribute_en, 1)
        ctx.set(dut.attribute, {"index": slot, "word": QP_CONTEXT.fields["qpn"].offset // 32, "data": qpn})
        await ctx.tick()
        ctx.set(dut.attribute, {"index": slot, "word": 1, "data": ~qpn & 0xFFFFFFFF})
        await ctx.tick()
    ctx.set(dut.attribute_en, 0)
    ctx.set(dut.mpt_base, MPT_BASE)
    ctx.set(dut.mpt_log_size, LOG_SIZE)


@pytest.mark.parametrize("count", [60, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
def test_random(data_width, count):
    rng = make_rng()
    dut, host, entries, memory, background = world_of(data_width, rng)
    seen, told = set(), []

    async def drop(ctx, indices):
        """The command block drops them."""
        memory.by_command = set(indices)
        for index in indices:
            await send_all(ctx, dut.command, [{"index": index}], rng)
        memory.by_command = ()

    async def bench(ctx):
        await configure(ctx, dut)
        for _ in range(count):
            peer = rng.random() < 0.3
            operation = INVALIDATE if peer else rng.choice(list(KeyOperation))
            asked = random_request(rng, entries, operation)
            index = asked["key"] >> 8
            failing = {number for number in range(1 << LOG_SIZE) if rng.random() < 0.02}
            host.broken = {MPT_BASE + MPT.size * number + 16 for number in failing}
            await drop(ctx, failing)
            status, then = answer(entries, failing, asked)
            memory.changes.clear()
            port, result = (dut.receive, dut.received) if peer else (dut.send, dut.sent)
            await send_all(ctx, port, [asked], rng)
            (got,) = await receive_all(ctx, result, 1, rng)
            assert got.status == status, (asked, entries[index & 15])
            seen.add((operation, status))
            if then is None:
                assert not memory.dropped
            else:
                was_valid = entries[index]["valid"]
                now = host.entry(index)
                if was_valid or then["valid"]:
                    (change,) = memory.changes
                    assert (change.index, change.translations, change.unseen) == (index, 0, not was_valid)
                    assert change.entry.valid == then["valid"]
                    assert not then["valid"] or all(change.entry[name] == now[name] for name in now)
                else:
                    assert not memory.changes
                assert now == then, (asked, now, then)
                entries[index] = now
            for number, entry in enumerate(entries):
                assert host.entry(number) == entry
            # Entries that have gone dead come back, so that there is something to do.
            number = rng.randrange(1 << LOG_SIZE)
            if entries[number]["kind"] == KeyKind.FAST_REGION and not entries[number]["valid"]:
                entries[number]["mtt_address"] = rng.randrange(1 << 58) << 3  # it is mapped anew, and nobody is told
            elif rng.random() < 0.5:
                entries[number] = random_entry(rng)
                told.append(number)
            host.store(MPT_BASE + MPT.size * number, MPT.pack(**entries[number]))
            await drop(ctx, told)
            told.clear()

    simulate(dut, bench, background=background, seed=rng.seed_value, deadline=400 * count)
    if count > 100:
        assert {(kind, AccessStatus.OK) for kind in KeyOperation} <= seen
        assert len(seen) > 12


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("data_width", [64, 512])
def test_one_behind_the_other(data_width, count):
    """Operations that are there at once find what those before them have made of few entries."""
    rng = make_rng()
    dut, host, entries, memory, background = world_of(data_width, rng)
    seen, got = set(), []

    async def bench(ctx):
        await configure(ctx, dut)
        for _ in range(count):
            few = rng.sample(range(len(entries)), 3)
            now, requests, wanted = list(entries), [], []
            for _ in range(6):
                operation = rng.choice(list(KeyOperation))
                asked = random_request(rng, [now[index] for index in few], operation)
                for name in ("key", "region"):
                    index = asked[name] >> 8
                    asked[name] = (few[index] if index < len(few) else index) << 8 | asked[name] & 255
                status, then = answer(now, (), asked)
                if then is not None:
                    now[asked["key"] >> 8] = then
                seen.add((operation, status))
                requests.append(asked)
                wanted.append(status)
            got.clear()
            await send_all(ctx, dut.send, requests, rng)
            while len(got) < len(requests):
                await ctx.tick()
            assert [item.status for item in got] == wanted, requests
            for index, entry in enumerate(now):
                assert host.entry(index) == entry
                entries[index] = random_entry(rng) if index in few else entry
                host.store(MPT_BASE + MPT.size * index, MPT.pack(**entries[index]))
            for index in few:
                await send_all(ctx, dut.command, [{"index": index}], rng)

    memory.by_command = range(len(entries))
    background.append(lambda ctx: collect(ctx, dut.sent, got, rng))
    simulate(dut, bench, background=background, seed=rng.seed_value, deadline=2000 * count)
    assert len(seen) > 6


def fast_region(**fields):
    values = {"kind": KeyKind.FAST_REGION, "valid": 1, "pd": 1, "variant": 1, "pages_or_qpn": 8, "length": 8192}
    return MPT.unpack(MPT.pack(**values | fields))


@pytest.mark.parametrize("step", ["clear", "rest"])
def test_a_write_that_fails_is_told(step):
    rng = make_rng()
    dut, host, entries, memory, background = world_of(64, rng)
    entries[3] = fast_region(valid=step == "clear")
    host.store(MPT_BASE + MPT.size * 3, MPT.pack(**entries[3]))
    memory.fails = {3}
    operation = INVALIDATE if step == "clear" else REGISTER

    async def bench(ctx):
        await configure(ctx, dut)
        asked = {"operation": operation, "key": 0x301, "pd": 1, "length": 5, "access": 7}
        await send_all(ctx, dut.send, [asked], rng)
        (got,) = await receive_all(ctx, dut.sent, 1, rng)
        assert got.status == AccessStatus.BUS
        assert memory.dropped == [(0, 3)] * 2  # what came is taken back
        assert not memory.changes[-1].entry.valid
        memory.fails = set()
        await send_all(ctx, dut.send, [asked], rng)
        (got,) = await receive_all(ctx, dut.sent, 1, rng)
        assert got.status == AccessStatus.OK

    simulate(dut, bench, background=background, seed=rng.seed_value)


def test_a_window_that_is_bound_anew():
    """Its old entry is cleared, and nobody is kept from reading entries while accesses still go by it; the new words
    are written when that is over."""
    rng = make_rng()
    dut, host, entries, memory, _ = world_of(64, rng)
    address = 0x7000_0000
    common = {"valid": 1, "pd": 1, "access": 31, "address": address}
    entries[2] = MPT.unpack(MPT.pack(kind=KeyKind.REGION, variant=9, length=1 << 20, log_page_size=12, **common))
    entries[3] = MPT.unpack(MPT.pack(kind=KeyKind.WINDOW, variant=1, length=100, log_page_size=12, **common))
    for index in (2, 3):
        host.store(MPT_BASE + MPT.size * index, MPT.pack(**entries[index]))

    async def bench(ctx):
        await configure(ctx, dut)
        asked = {"operation": BIND, "key": 0x302, "old": 1, "region": 0x209, "pd": 1, "access": 2}
        await send_all(ctx, dut.send, [asked | {"address": address + 4096, "length": 50}], rng)
        change = await asked_for(ctx, dut.invalidate)
        assert (change.index, change.unseen, change.entry.valid, change.entry.address) == (3, 0, 1, address + 4096)
        await ctx.tick().repeat(100)
        assert not ctx.get(dut.hold)
        now = host.entry(3)
        assert (now["valid"], now["variant"], now["address"]) == (0, 1, address)
        ctx.set(dut.invalidate.ready, 1)
        await ctx.tick()
        ctx.set(dut.invalidate.ready, 0)
        (got,) = await receive_all(ctx, dut.sent, 1, rng)
        assert got.status == AccessStatus.OK
        now = host.entry(3)
        assert (now["valid"], now["variant"], now["address"], now["length"]) == (1, 2, address + 4096, 50)
        assert not ctx.get(dut.hold)

    background = [server(host, dut.read, dut.fill, rng, memory.latency), memory.writes, memory.answers]
    simulate(dut, bench, background=background, seed=rng.seed_value)


def test_three_clients_at_once():
    """Each is served, one operation at a time; the command block's are passed on as they are."""
    rng = make_rng()
    dut, host, entries, memory, background = world_of(64, rng)
    for index in range(12):
        entries[index] = fast_region()
        host.store(MPT_BASE + MPT.size * index, MPT.pack(**entries[index]))
    memory.by_command = range(12, 16)

    def client(port, result, indices):
        async def bench(ctx):
            await configure(ctx, dut)
            for index in indices:
                await send_all(ctx, port, [{"operation": INVALIDATE, "key": index << 8 | 1, "pd": 1}], rng)
                (got,) = await receive_all(ctx, result, 1, rng)
                assert got.status == AccessStatus.OK
                assert (0, index) in memory.dropped
                assert not host.entry(index)["valid"]

        return bench

    async def commands(ctx):
        for index in range(12, 16):
            await send_all(ctx, dut.command, [{"index": index}, {"translations": 1}], rng)
            assert (0, index) in memory.dropped

    benches = [client(dut.send, dut.sent, range(6)), client(dut.receive, dut.received, range(6, 12)), commands]
    simulate(dut, *benches, background=background, seed=rng.seed_value)
    assert len(memory.dropped) == 20


def test_the_next_one_is_checked_meanwhile():
    """While a write is not answered the next operation reads another entry, and one that needs the first one's does
    not; neither writes before the first one's result is there."""
    rng = make_rng()
    dut, host, entries, memory, _ = world_of(64, rng)
    for index in (3, 4):
        entries[index] = fast_region()
        host.store(MPT_BASE + MPT.size * index, MPT.pack(**entries[index]))
    written, got = [], []
    answered = False

    async def writes(ctx):
        while True:
            (request,) = await receive_all(ctx, dut.write, 1, rng)
            await receive_all(ctx, dut.data, 1, rng)
            index = (request.address - MPT_BASE) // MPT.size
            written.append(index)
            while index == 3 and not answered:
                await ctx.tick()
            host.store(request.address, bytes(8))
            await send_all(ctx, dut.done, [{"status": AccessStatus.OK}], rng)

    async def bench(ctx):
        nonlocal answered
        await configure(ctx, dut)
        for keys, reads in (((0x301, 0x401), {3, 4}), ((0x301, 0x301), {3})):
            answered = False
            host.reads.clear()
            got.clear()
            written.clear()
            await send_all(ctx, dut.send, [{"operation": INVALIDATE, "key": key, "pd": 1} for key in keys], rng)
            await ctx.tick().repeat(200)
            assert {(address - MPT_BASE) // MPT.size for address in host.reads} == reads
            assert written == [3]
            assert not got
            answered = True
            while len(got) < 2:
                await ctx.tick()
            later = keys[1] >> 8
            assert written == ([3, 4] if later == 4 else [3])
            assert [item.status for item in got] == [
                AccessStatus.OK,
                AccessStatus.OK if later == 4 else AccessStatus.KEY,
            ]
            await send_all(ctx, dut.command, [{"index": 3}, {"index": 4}], rng)
            for index in (3, 4):
                host.store(MPT_BASE + MPT.size * index, MPT.pack(**entries[index]))

    memory.by_command = (3, 4)
    background = [server(host, dut.read, dut.fill, rng, memory.latency), writes, memory.invalidations]
    background.append(lambda ctx: collect(ctx, dut.sent, got, rng))
    simulate(dut, bench, background=background, seed=rng.seed_value)


def test_a_command_waits_for_what_has_looked():
    """It is taken when an operation that has read an entry is over, and the next operation begins behind it."""
    rng = make_rng()
    dut, host, entries, memory, background = world_of(64, rng, lambda: 40)
    entries[3] = fast_region()
    host.store(MPT_BASE + MPT.size * 3, MPT.pack(**entries[3]))
    got, order = [], []

    async def commands(ctx):
        while not host.reads:
            await ctx.tick()
        memory.by_command = (3,)
        await send_all(ctx, dut.command, [{"index": 3}], rng)
        order.append(("command", len(got)))

    async def bench(ctx):
        await configure(ctx, dut)
        await send_all(ctx, dut.send, [{"operation": INVALIDATE, "key": 0x301, "pd": 1}] * 2, rng)
        while len(got) < 2:
            await ctx.tick()

    background.append(lambda ctx: collect(ctx, dut.sent, got, rng))
    simulate(dut, bench, commands, background=background, seed=rng.seed_value)
    assert order == [("command", 1)]
    assert [item.status for item in got] == [AccessStatus.OK, AccessStatus.KEY]
    assert len(host.reads) == 2


def test_what_is_kept():
    """A window in any state, its region, and a region that has been registered are read once, until the command block
    drops them, or another one needs the place; a fast region that is not valid is read each time."""
    rng = make_rng()
    dut, host, entries, memory, background = world_of(64, rng)
    entries[2] = fast_region(access=31, length=1 << 20)
    entries[3] = fast_region(kind=KeyKind.WINDOW, valid=0)
    entries[4] = fast_region(valid=0)
    entries[12] = fast_region(valid=0)
    for index in (2, 3, 4, 12):
        host.store(MPT_BASE + MPT.size * index, MPT.pack(**entries[index]))
    bind = {"operation": BIND, "key": 0x301, "old": 1, "region": 0x201, "pd": 1, "address": entries[2]["address"]}
    register = {"operation": REGISTER, "key": 0x401, "pd": 1, "length": 5}
    invalidate = {"operation": INVALIDATE, "key": 0x401, "pd": 1}
    steps = [
        (bind | {"length": 8}, [3, 2]),
        (bind | {"length": 16}, []),
        (bind, []),
        (bind, []),
        (2, None),
        (bind | {"length": 8}, [2]),
        (register, [4]),
        (invalidate, []),
        (register, [4]),
        (register | {"key": 0xC01}, [12]),
        (invalidate, [4]),
    ]

    async def bench(ctx):
        await configure(ctx, dut)
        await ctx.tick().repeat(20)
        for asked, reads in steps:
            host.reads.clear()
            if reads is None:
                memory.by_command = (asked,)
                await send_all(ctx, dut.command, [{"index": asked}], rng)
                continue
            await send_all(ctx, dut.send, [asked], rng)
            (got,) = await receive_all(ctx, dut.sent, 1, rng)
            assert got.status == AccessStatus.OK
            assert [(address - MPT_BASE) // MPT.size for address in host.reads] == reads, asked

    simulate(dut, bench, background=background, seed=rng.seed_value)


def test_cycles():
    """With a memory that answers at once, and nobody else on the bus."""
    rng = make_rng()
    dut, host, entries, _memory, _ = world_of(64, rng)
    entries[3] = fast_region(valid=0)
    host.store(MPT_BASE + MPT.size * 3, MPT.pack(**entries[3]))

    async def fills(ctx):
        ctx.set(dut.read.ready, 1)
        while True:
            item = await asked_for(ctx, dut.read)
            content = host.load(item.address, 32)
            for place in range(0, 32, 8):
                word = int.from_bytes(content[place : place + 8], "little")
                beat = {"data": word, "count": 8, "first": place == 0, "last": place == 24}
                ctx.set(dut.fill.valid, 1)
                ctx.set(dut.fill.payload, beat)
                await ctx.tick()
            ctx.set(dut.fill.valid, 0)

    async def writes(ctx):
        for port in (dut.write, dut.data, dut.invalidate):
            ctx.set(port.ready, 1)
        async for _, _, written in ctx.tick().sample(dut.data.valid & dut.data.payload.last):
            ctx.set(dut.done.valid, written)

    async def bench(ctx):
        await configure(ctx, dut)
        ctx.set(dut.sent.ready, 1)
        await ctx.tick().repeat(20)
        for operation, cycles in ((REGISTER, 20), (INVALIDATE, 11)):  # the second one finds the entry kept
            await send_all(ctx, dut.send, [{"operation": operation, "key": 0x301, "pd": 1, "length": 5}])
            took = 0
            while not ctx.get(dut.sent.valid):
                await ctx.tick()
                took += 1
            assert took == cycles, operation
            assert ctx.get(dut.sent.payload.status) == AccessStatus.OK
            await ctx.tick()

    simulate(dut, bench, background=[fills, writes], seed=rng.seed_value)


def test_elaborates():
    for data_width in (64, 128, 256, 512):
        rtlil.convert(KeyOperations(data_width, QPS))
