"""The access unit against a plain model of the tables: pieces, verdicts, cycles, invalidation."""

from collections import deque

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Cat, Value
from memory_model import CLIENTS, MPT_BASE, QPS, RECEIVE, TOP, TRANSMIT, CollidingRam, Host, access, servers
from streams import changes, make_rng, receive_all, send_all, shared, simulate, unpacked
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.hdl.abi.tables import Access, AccessStatus, KeyKind
from verbena.hdl.memory.access import LANES, AccessUnit


def plain_piece(piece, expected):
    """A received piece as the model says it: no address where the model has none."""
    address = None if expected[0] is None else piece.address
    return address, piece.length, piece.discard, piece.status, piece.tag, piece.last


def check_static(dut, host, requests, rng, *, latency, stall=0.3, deadline=60_000):
    """Runs ``requests`` (a list a client) on tables that do not change, and compares all pieces and verdicts."""
    expected = {client: host.answer(client, requests[client]) for client in CLIENTS}

    async def configure(ctx):
        ctx.set(dut.mpt_base, MPT_BASE)
        ctx.set(dut.mpt_log_size, host.log_size)
        for qp in range(QPS if dut.windows else 0):
            word = {"index": qp, "word": QP_CONTEXT.fields["qpn"].offset // 32, "data": host.qpns[qp]}
            ctx.set(dut.attribute, word)
            ctx.set(dut.attribute_en, 1)
            await ctx.tick()
            ctx.set(dut.attribute_en, 0)

    def client_benches(client):
        port = getattr(dut, client)
        pieces, verdicts = expected[client]

        async def request(ctx):
            await configure(ctx)
            await send_all(ctx, port.request, requests[client], rng, stall)

        async def piece(ctx):
            for number, want in enumerate(pieces):
                (got,) = await receive_all(ctx, port.piece, 1, rng, stall)
                assert plain_piece(got, want) == want, f"{client} piece {number}: {got}"

        async def verdict(ctx):
            got = await receive_all(ctx, port.verdict, len(verdicts), rng, stall)
            assert [item.status for item in got] == verdicts

        return [request, piece] + ([verdict] if client == TRANSMIT else [])

    benches = [bench for client in CLIENTS for bench in client_benches(client)]
    simulate(dut, *benches, background=servers(host, dut, rng, latency), seed=rng.seed_value, deadline=deadline)


def random_regions(host, rng, count, physical=False, windows=False):
    """Regions of many page sizes and alignments; some invalid, some with absent pages, some unreadable; with
    ``physical`` some that have no pages.
    """
    keys = []
    for _ in range(count):
        log = rng.choice([12, 12, 12, 13, 16, 21, 29, 30])
        size = 1 << log
        pages = rng.randrange(1, 6)
        length = min(rng.randrange(1, pages * size + 1), (1 << 48) - 1)
        first = rng.choice([rng.randrange(0, 1 << 47), rng.randrange(1 << 63, TOP - 8 * size), TOP - length])
        number = (first + length - 1) // size - first // size + 1
        table = [rng.randrange(0, TOP // size) * size if rng.random() < 0.95 else None for _ in range(number)]
        key = rng.randrange(1 << host.log_size) << 8 | rng.randrange(256)
        grants = rng.choice([31, 31, rng.randrange(32)])
        pd = rng.choice([1, 2, 0xFFFFFF])
        if physical and rng.random() < 0.4:
            bus = (rng.randrange(1 << 52) << 12) + first % 4096
            host.register_physical(key, first, length, bus, pd=pd, access=grants)
            keys.append(key)
            continue
        kind = {"kind": rng.choice([*KeyKind, 0, 0]), "qpn": host.qpns[rng.choice([1, 1, 5])]} if windows else {}
        mtt = host.register(
            key, first, length, table, log_page_size=log, pd=pd, access=grants, valid=rng.random() < 0.95, **kind
        )
        keys.append(key)
        if rng.random() < 0.05:
            host.broken.add(mtt)
        if rng.random() < 0.05:
            host.broken.add(MPT_BASE + 32 * (key >> 8) + 16)
    return keys


def random_access(host, rng, keys, **fields):
    """Mostly a good access; now and then wrong in one respect."""
    key = rng.choice(keys)
    entry = host.entry(key >> 8)
    first, end, size = entry["address"], entry["address"] + entry["length"], 1 << entry["log_page_size"]
    length = rng.choice([1, 8, 64, rng.randrange(1, 4097), 4096])
    if rng.random() < 0.95:
        length = min(length, entry["length"])
    place = rng.choice(
        [
            rng.randrange(first, max(first, end - length) + 1),
            first,
            end - length,
            (rng.randrange(first, end) // size + 1) * size - rng.randrange(length),
        ]
    )
    if rng.random() < 0.95:
        place = min(max(place, first), max(first, end - length))
    else:
        place += rng.choice([0, -1, 1, -(1 << 48), 1 << 48, 1 << 63])
    wanted = entry["access"] & rng.randrange(32)
    request = access(key, place % TOP, length, pd=entry["pd"], access=wanted, **fields)
    if rng.random() < 0.3:  # the first of several packets: all that is left of the region, and sometimes more
        request["span"] = max(length, min(end - place, (1 << 32) - 1) + rng.choice([0, 0, 0, 0, 0, 0, 0, 1]))
    if rng.random() < 0.08:
        request |= rng.choice(
            [
                {"key": key ^ 1 << rng.randrange(8)},
                {"key": rng.randrange(1 << 32)},
                {"pd": request["pd"] ^ 1 << rng.randrange(24)},
                {"access": 1 << rng.randrange(5)},
                {"length": 0, "span": 0},
                {"discard": 1},
            ]
        )
    return request


def random_runs(host, rng, keys, count):
    requests = []
    for _ in range(count):
        qp = rng.randrange(QPS)
        accesses = rng.choice([1, 1, 1, 2, 4])
        tag, quiet = rng.randrange(2), int(rng.random() < 0.2)
        for number in range(accesses):
            more = {"quiet": quiet, "fresh": int(rng.random() < 0.2), "tag": tag}
            requests.append(random_access(host, rng, keys, qp=qp, last=int(number == accesses - 1), **more))
        if rng.random() < 0.2:
            requests.append(access(qp=rng.randrange(QPS), clear=1, tag=rng.randrange(2)))
    return requests


@pytest.mark.parametrize("writes_local", [0, 1])
@pytest.mark.parametrize("data_width", [64, 512])
def test_windows(data_width, writes_local):
    """A window of type 2 is for its QP alone, one of type 1 for all; neither is for local accesses."""
    rng = make_rng()
    host = Host()
    local = Access.LOCAL_WRITE if writes_local else 0
    for key, kind in enumerate(KeyKind):
        grants = 30 if kind in (KeyKind.WINDOW, KeyKind.WINDOW_2) else 31
        region(host, key << 8, kind=kind, qpn=host.qpns[3], access=grants)
    requests, statuses = [], []
    for key, kind in enumerate(KeyKind):
        for qp in range(QPS):
            for right in (local, Access.REMOTE_WRITE, Access.REMOTE_READ, Access.REMOTE_ATOMIC):
                requests.append(access(key << 8, (key << 8 << 24) + 8, 8, access=right, qp=qp, fresh=1))
                status = AccessStatus.RIGHTS if kind.name.startswith("WINDOW") and right == local else AccessStatus.OK
                statuses.append(AccessStatus.PD if kind == KeyKind.WINDOW_2 and qp != 3 else status)
    assert host.answer(TRANSMIT, requests)[1] == statuses
    dut = shared(AccessUnit, data_width, QPS, mpt_sets=16, mtt_sets=16, windows=True)
    check_static(dut, host, dict.fromkeys(CLIENTS, requests), rng, latency=lambda: 5)


def test_each_bit_of_a_windows_queue_pair_counts():
    rng = make_rng()
    host = Host()
    requests = []
    for key, other in enumerate([0, *(1 << bit for bit in range(24))]):
        region(host, key << 8, kind=KeyKind.WINDOW_2, qpn=host.qpns[3] ^ other, access=30)
        requests.append(access(key << 8, (key << 8 << 24) + 8, 8, access=Access.REMOTE_READ, qp=3, fresh=1))
    assert host.answer(TRANSMIT, requests)[1] == [AccessStatus.OK] + 24 * [AccessStatus.PD]
    dut = shared(AccessUnit, 64, QPS, mpt_sets=16, mtt_sets=16, windows=True)
    check_static(dut, host, dict.fromkeys(CLIENTS, requests), rng, latency=lambda: 5)


@pytest.mark.parametrize("count", [25, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("data_width", "sets"), [(64, 4), (128, 2), (256, 8), (512, 4)])
def test_random(data_width, sets, count, monkeypatch):
    monkeypatch.setattr("verbena.hdl.memory.cache.Ram", CollidingRam)
    rng = make_rng()
    host = Host()
    physical = data_width in (64, 512)
    windows = data_width > 128
    keys = random_regions(host, rng, 12, physical, windows)
    requests = {client: random_runs(host, rng, keys, count) for client in CLIENTS}
    dut = AccessUnit(
        data_width, QPS, mpt_sets=sets, mtt_sets=sets, physical=physical, windows=windows, renew=data_width > 128
    )
    check_static(dut, host, requests, rng, latency=lambda: rng.randrange(128))


PAGE = 4096


def region(host, key, *, pages=4, offset=0, bus=0x7000_0000_0000, **fields):
    """A region of ``pages`` pages of 4 KiB, ``offset`` bytes into its first one. Returns its address."""
    address = (key << 24) + offset
    table = [bus + ((key * 64 + number) << 12) for number in range(pages)]
    host.register(key, address, pages * PAGE - offset, table, **fields)
    return address


class Monitor:
    """Samples the unit each cycle, takes pieces and verdicts unless told not to, and keeps what it saw with times. A
    run is over ``linger()`` cycles after its last piece, but not before the one ahead of it.
    """

    def __init__(self, dut, linger=lambda: 1):
        self.dut = dut
        self.linger = linger
        self.over = []  # (lane, pieces of its client up to the run's end), for each run, in the order of their ends
        self.cycle = 0
        self.requests = {client: [] for client in CLIENTS}  # cycles in which a request was taken
        self.first_seen = {client: [] for client in CLIENTS}  # cycles in which it first stood there
        self.pieces = {client: [] for client in CLIENTS}  # (cycle, piece)
        self.verdicts = []
        self.invalidated = []
        self.counts = dict.fromkeys(("mpt_hits", "mpt_misses", "mtt_hits", "mtt_misses", "access_errors"), 0)

    async def watch(self, ctx):
        dut = self.dut
        ctx.set(dut.mpt_base, MPT_BASE)
        ctx.set(dut.mpt_log_size, 12)
        ports = [getattr(dut, client) for client in CLIENTS]
        verdict = dut.transmit.verdict
        signals = [dut.invalidate.valid, dut.invalidate.ready, verdict.valid, Value.cast(verdict.payload)]
        for port in ports:
            signals += [
                port.request.valid,
                port.request.ready,
                port.piece.valid,
                port.piece.ready,
                Value.cast(port.piece.payload),
            ]
        strobes = Cat(getattr(dut, f"count_{name}") for name in self.counts)
        put = changes(ctx)
        waiting = dict.fromkeys(CLIENTS)
        for port in ports:
            ctx.set(port.piece.ready, 1)
        ctx.set(dut.transmit.verdict.ready, 1)
        lanes = [deque() for _ in range(LANES)]  # (cycle in which it is over, pieces up to its end) of each run
        edges = aiter(ctx.tick().sample(*signals, strobes))
        while True:
            ends = [bool(lane) and lane[0][0] <= self.cycle for lane in lanes]
            put(dut.over, sum(end << number for number, end in enumerate(ends)))
            self.over += [(number, lanes[number].popleft()[1]) for number, end in enumerate(ends) if end]
            _, _, *values = await anext(edges)
            if values[0] and values[1]:
                self.invalidated.append(self.cycle)
            if values[2]:
                self.verdicts.append((self.cycle, unpacked(verdict, values[3]).status))
            for number, client in enumerate(CLIENTS):
                valid, ready, piece_valid, piece_ready, piece = values[4 + 5 * number : 9 + 5 * number]
                if valid and waiting[client] is None:
                    waiting[client] = self.cycle
                if valid and ready:
                    self.requests[client].append(self.cycle)
                    self.first_seen[client].append(waiting[client])
                    waiting[client] = None
                if piece_valid and piece_ready:
                    piece = unpacked(ports[number].piece, piece)
                    self.pieces[client].append((self.cycle, piece))
                    if piece.last:
                        lane = 2 if client == RECEIVE else piece.tag
                        lanes[lane].append((self.cycle + self.linger(), len(self.pieces[client])))
            if values[-1]:
                for place, name in enumerate(self.counts):
                    self.counts[name] += values[-1] >> place & 1
            self.cycle += 1

    async def until(self, ctx, condition, limit=5000):
        end = self.cycle + limit
        edges = aiter(ctx.tick())
        while not condition():
            await anext(edges)
            assert self.cycle < end, "what the test waits for never comes"

    def times(self, client):
        return [cycle for cycle, _ in self.pieces[client]]


def run(dut, host, rng, *benches, latency=128, deadline=20_000, **settings):
    """Simulates with a monitor, which is returned, and which each bench gets: ``bench(ctx, monitor)``. ``settings`` are
    the monitor's.
    """
    monitor = Monitor(dut, **settings)

    def bound(bench):
        async def testbench(ctx):
            await bench(ctx, monitor)

        testbench.__name__ = bench.__name__
        return testbench

    background = [monitor.watch, *servers(host, dut, rng, lambda: latency if isinstance(latency, int) else latency())]
    simulate(dut, *map(bound, benches), background=background, seed=rng.seed_value, deadline=deadline)
    return monitor


def small_unit(**parameters):
    return shared(AccessUnit, 64, QPS, **{"mpt_sets": 16, "mtt_sets": 16, **parameters})


def steady_interval(times):
    """Cycles an item, after the first few."""
    times = times[8:]
    return (times[-1] - times[0]) / (len(times) - 1)


@pytest.mark.parametrize("clients", [(TRANSMIT,), (RECEIVE,), CLIENTS])
def test_cycles_on_hits(clients):
    """9 cycles from request to piece, and one more for each cache where the client's last record was in the other way,
    as may be if both clients have read a record at once; an access every 4 cycles a client, whether the other is busy
    or not."""
    rng = make_rng()
    host = Host()
    addresses = {key << 8: region(host, key << 8) for key in range(4)}
    warm = [access(key, address + PAGE * page, 8) for key, address in addresses.items() for page in range(4)]
    inside = [access(key, address + PAGE * page + 100, 64) for key, address in addresses.items() for page in range(4)]
    across = [access(key, address + PAGE * page - 10, 64) for key, address in addresses.items() for page in range(1, 4)]
    nothing = [access() for _ in range(16)]
    marks = {client: [] for client in clients}

    def bench(client):
        async def requests(ctx, monitor):
            port = getattr(dut, client)
            for batch in (warm, inside[:1], inside * 3, across * 3, nothing * 3):
                marks[client].append(len(monitor.pieces[client]))
                await send_all(ctx, port.request, batch)
                total = marks[client][-1] + len(batch) * (2 if batch[0] is across[0] else 1)
                await monitor.until(ctx, lambda: len(monitor.pieces[client]) == total)  # noqa: B023

        return requests

    dut = small_unit()
    monitor = run(dut, host, rng, *map(bench, clients))
    for client in clients:
        start, single, many, crossing, empty = marks[client]
        times = monitor.times(client)
        assert not any(piece.status for _, piece in monitor.pieces[client])
        alone = len(clients) == 1
        latency = times[single] - monitor.first_seen[client][len(warm)]
        assert latency == 9 if alone else 9 <= latency <= 12
        assert steady_interval(times[many:crossing]) == pytest.approx(4, abs=0.1)
        assert 2 * steady_interval(times[crossing:empty]) <= 8.2
        assert steady_interval(times[empty:]) == pytest.approx(4, abs=0.1)
        assert start == 0
    assert monitor.counts["mpt_misses"] == 4 * len(clients) or clients == CLIENTS


@pytest.mark.parametrize(("missing", "hitting"), [CLIENTS, CLIENTS[::-1]])
@pytest.mark.parametrize("table", ["mpt", "mtt"])
def test_hits_pass_misses(missing, hitting, table):
    """One client misses all the time, the other keeps its pace."""
    rng = make_rng()
    host = Host()
    pages = 4
    addresses = {key: region(host, key, pages=pages) for key in range(0, 64 << 8, 256)}
    large = region(host, 99 << 8, pages=256)
    if table == "mpt":
        misses = [access(key, address, 8) for key, address in addresses.items() if key >> 8 & 15]
    else:
        misses = [access(99 << 8, large + PAGE * page, 8) for page in range(256) if page % 16 > 3]
    hits = [access(0, addresses[0] + PAGE * page, 8) for page in range(pages)]
    dut = small_unit() if table == "mtt" else small_unit(mtt_sets=256)
    span = []

    async def disturb(ctx, monitor):
        await monitor.until(ctx, lambda: span)
        await send_all(ctx, getattr(dut, missing).request, misses)
        await monitor.until(ctx, lambda: len(monitor.pieces[missing]) == len(misses))
        span.append(monitor.cycle)

    async def flow(ctx, monitor):
        port = getattr(dut, hitting).request
        await send_all(ctx, port, hits)
        await monitor.until(ctx, lambda: len(monitor.pieces[hitting]) == len(hits))
        span.append(monitor.cycle)
        while len(span) < 2:
            await send_all(ctx, port, hits)

    monitor = run(dut, host, rng, disturb, flow)
    start, end = span
    gaps = [
        after - before
        for before, after in zip(monitor.times(hitting), monitor.times(hitting)[1:], strict=False)
        if start + 10 < before and after < end
    ]
    assert monitor.counts[f"{table}_misses"] >= len(misses)
    assert end - start > 5 * 128
    assert max(gaps) <= 12
    assert sum(gaps) / len(gaps) < 5  # a miss takes two lookups


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("table", "under_way", "pace"), [("mpt", 8, 6), ("mtt", 14, 6)])
def test_misses_overlap(client, table, under_way, pace):
    """As many misses as may wait take one latency together, and a few cycles each; more of them, that many a latency.

    An access that hits and comes behind them leaves behind them, but delays nobody.
    """
    latency = 300
    rng = make_rng()
    host = Host()
    cold = [region(host, key << 8) for key in range(1, 40)]
    large = region(host, 99 << 8, pages=64)
    if table == "mpt":
        misses = [access(key << 8, address, 8) for key, address in enumerate(cold, 1)]
    else:
        misses = [access(99 << 8, large + PAGE * page, 8) for page in range(1, 40)]
    warm = [access(99 << 8, large, 8)]
    marks = []

    async def requests(ctx, monitor):
        port = getattr(dut, client).request
        sent = 0
        for count in (1, under_way, 39):
            batch = misses[sent:count] if marks else warm
            marks.append(monitor.cycle)
            await send_all(ctx, port, [*batch, warm[0]])
            sent = count if len(marks) > 1 else 0
            total = len(marks) + 1 + sent
            await monitor.until(ctx, lambda: len(monitor.pieces[client]) == total)  # noqa: B023
        marks.append(monitor.cycle)

    # The pages of the keys that miss are in no cache either: their reads begin when the keys are there.
    dut = AccessUnit(64, QPS, mpt_sets=64, mtt_sets=64)
    run(dut, host, rng, requests, latency=latency)
    first, second = marks[2] - marks[1], marks[3] - marks[2]
    rounds = 2 if table == "mpt" else 1
    assert latency < first < rounds * latency + under_way * pace + 60
    assert second < ((39 - under_way) / under_way + rounds) * latency + (39 - under_way) * pace + 60


@pytest.mark.parametrize("times", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("client", CLIENTS)
def test_accesses_go_on_while_translations_are_dropped(client, times):
    """All MTT entries are dropped again and again, a line a cycle: an access still comes every 4 cycles, but for its
    misses."""
    rng = make_rng()
    host = Host()
    address = region(host, 0)
    dut = shared(AccessUnit, 64, QPS, mpt_sets=16, mtt_sets=256)
    span = []

    async def drop(ctx, monitor):
        await monitor.until(ctx, lambda: span)
        for _ in range(times):
            await send_all(ctx, dut.invalidate, [{"translations": 1}])
        span.append(monitor.cycle)

    async def flow(ctx, monitor):
        await send_all(ctx, getattr(dut, client).request, [access(0, address, 8)] * 4)
        await monitor.until(ctx, lambda: len(monitor.pieces[client]) == 4)
        span.append(monitor.cycle)
        while len(span) < 2:
            await send_all(ctx, getattr(dut, client).request, [access(0, address, 8)] * 4)
        # The last dropping, too, costs a miss.
        await send_all(ctx, getattr(dut, client).request, [access(0, address, 8)] * 20)
        await monitor.until(ctx, lambda: monitor.counts["mtt_misses"] > times)

    monitor = run(dut, host, rng, drop, flow, latency=20)
    start, end = span
    assert times * 512 <= end - start <= times * 520
    count = sum(start < cycle <= end for cycle in monitor.times(client))
    assert count >= (end - start) // 4 - times * 10


def test_an_invalidation_waits_for_no_one_elses_miss():
    """A key is invalidated while the other client's miss takes very long: done at once, and the miss is read again."""
    rng = make_rng()
    host = Host()
    region(host, 0)
    other = region(host, 1 << 8)
    dut = small_unit()

    async def receive(ctx, monitor):
        await send_all(ctx, dut.receive.request, [access(1 << 8, other, 8)])
        await monitor.until(ctx, lambda: monitor.pieces[RECEIVE])

    async def driver(ctx, monitor):
        await monitor.until(ctx, lambda: host.reads)
        begin = monitor.cycle
        await send_all(ctx, dut.invalidate, [{"index": 0}])
        assert monitor.cycle - begin <= 12

    monitor = run(dut, host, rng, receive, driver, latency=200)
    assert monitor.pieces[RECEIVE][0][1].status == AccessStatus.OK
    assert host.reads.count(MPT_BASE + 32) == 2, "what was on its way may have been older"


@pytest.mark.parametrize("client", [TRANSMIT, RECEIVE])
def test_a_run_of_several_accesses_is_over_once(client):
    """An invalidation that comes after it need not wait for more ends than there are runs."""
    rng = make_rng()
    host = Host()
    address = region(host, 0)
    dut = small_unit()
    port = getattr(dut, client)

    async def bench(ctx, monitor):
        for _ in range(3):
            await send_all(ctx, port.request, [access(0, address, 8, last=int(number == 2)) for number in range(3)])
        await monitor.until(ctx, lambda: len(monitor.over) == 3)
        begin = monitor.cycle
        await send_all(ctx, dut.invalidate, [{"index": 0}])
        assert monitor.cycle - begin <= 12

    run(dut, host, rng, bench, latency=10)


def test_an_entry_that_changes_while_it_is_read():
    """A key is invalidated while its own entry is on its way, old or new: what comes of it is new."""
    rng = make_rng()
    host = Host()
    dut = small_unit()
    count = 6
    addresses = [region(host, index << 8) for index in range(count)]

    async def receive(ctx, monitor):
        for index, address in enumerate(addresses):
            await send_all(ctx, dut.receive.request, [access(index << 8, address, 8)])
            await monitor.until(ctx, lambda: len(monitor.pieces[RECEIVE]) > index)  # noqa: B023

    async def driver(ctx, monitor):
        for index in range(count):
            await monitor.until(ctx, lambda: MPT_BASE + 32 * index in host.reads)  # noqa: B023
            region(host, index << 8, bus=1 << 50)
            await send_all(ctx, dut.invalidate, [{"index": index}])

    monitor = run(dut, host, rng, receive, driver, latency=60)
    assert [piece.address >> 50 for _, piece in monitor.pieces[RECEIVE]] == [1] * count


@pytest.mark.parametrize("client", CLIENTS)
def test_a_registration_meets_an_access_that_has_missed(client):
    """A key is registered at every moment of an access that finds nothing: while its entry is read, when that has come
    back without one, and later. A piece taken when the invalidation is, or later, shows the new entry."""
    rng = make_rng()
    host = Host()
    dut = small_unit()
    latency = 20
    statuses = []

    async def bench(ctx, monitor):
        await ctx.tick().repeat(40)  # all lines are cleared after reset
        for key, delay in enumerate(range(1, latency + 30)):
            await send_all(ctx, getattr(dut, client).request, [access(key << 8, key << 32, 8, fresh=1)])
            await ctx.tick().repeat(delay)
            region(host, key << 8)
            await send_all(ctx, dut.invalidate, [{"index": key}])
            await ctx.tick()  # the monitor hears of a cycle later than this testbench
            await monitor.until(ctx, lambda: len(monitor.pieces[client]) > len(statuses))
            cycle, piece = monitor.pieces[client][-1]
            statuses.append(piece.status)
            if cycle >= monitor.invalidated[-1]:
                assert piece.status == AccessStatus.OK, f"registered {delay} cycles after the access"

    run(dut, host, rng, bench, latency=latency)
    assert set(statuses) == {AccessStatus.OK, AccessStatus.KEY}


async def change(ctx, dut, index, entry, unseen):
    """The cycles after which it is taken; ``entry`` is not in memory yet."""
    item = {"index": index, "entry": entry, "unseen": unseen}
    ctx.set(dut.invalidate.payload, item)
    ctx.set(dut.invalidate.valid, 1)
    cycles = 1
    while not ctx.get(dut.invalidate.ready):
        await ctx.tick()
        cycles += 1
    await ctx.tick()
    ctx.set(dut.invalidate.valid, 0)
    return cycles


def as_it_will_be(host, key, **fields):
    """A region's entry, which is in memory only for as long as this takes."""
    before = host.load(MPT_BASE + 32 * (key >> 8), 32)
    address = region(host, key, **fields)
    entry = host.entry(key >> 8)
    host.store(MPT_BASE + 32 * (key >> 8), before)
    return address, entry


@pytest.mark.parametrize("unseen", [0, 1])
@pytest.mark.parametrize("client", [TRANSMIT, RECEIVE])
def test_an_entry_comes_before_it_is_in_memory(client, unseen):
    """It is found at once, even while memory is not read; what was on its way, older, is not seen. Runs under way are
    waited for unless it is ``unseen``, and others' misses until ``hold`` is over."""
    rng = make_rng()
    host = Host()
    new, old, other = 0x105, 0x104, 0x300
    first = region(host, old)
    region(host, other)
    address, entry = as_it_will_be(host, new, bus=1 << 50)
    dut = small_unit(windows=True)
    port = getattr(dut, client).request

    async def bench(ctx, monitor):
        await ctx.tick().repeat(40)  # all lines are cleared after reset
        if not unseen:
            await send_all(ctx, port, [access(old, first, 8)])
            await monitor.until(ctx, lambda: monitor.pieces[client])
        host.reads.clear()
        await send_all(ctx, port, [access(other, other << 24, 8, last=0)])
        await monitor.until(ctx, lambda: host.reads)  # the miss of a run that is not over
        ctx.set(dut.hold, 1)
        await ctx.tick()
        taken = await change(ctx, dut, new >> 8, entry, unseen)
        assert taken <= 14 if unseen else taken > 200
        reads = len(host.reads)
        ctx.set(dut.hold, 0)
        await monitor.until(ctx, lambda: len(monitor.pieces[client]) == 1 + (not unseen))
        assert len(host.reads) > reads  # what was on its way may have been older
        reads = [address for address in host.reads if address >= MPT_BASE]
        ctx.set(dut.hold, 1)
        await send_all(ctx, port, [access(new, address, 8)])
        await monitor.until(ctx, lambda: len(monitor.pieces[client]) == 2 + (not unseen))
        assert [address for address in host.reads if address >= MPT_BASE] == reads
        await send_all(ctx, port, [access(0x400, 0, 8)])
        await ctx.tick().repeat(300)
        assert [address for address in host.reads if address >= MPT_BASE] == reads
        ctx.set(dut.hold, 0)
        await monitor.until(ctx, lambda: len(monitor.pieces[client]) == 3 + (not unseen))

    monitor = run(dut, host, rng, bench, latency=60, linger=lambda: 300)
    *_, piece, refused = (piece for _, piece in monitor.pieces[client])
    assert (piece.status, piece.address >> 50) == (AccessStatus.OK, 1)
    assert refused.status == AccessStatus.KEY


def test_an_entry_that_comes_replaces_an_older_one():
    """In either way of its set, with others in the set; and an entry that is not valid brings nothing."""
    rng = make_rng()
    host = Host()
    dut = small_unit(windows=True)
    keys = [(16 * number + 1) << 8 for number in range(4)]  # of one set
    addresses = {key: region(host, key) for key in keys}

    async def bench(ctx, monitor):
        shown = 0

        async def show(key):
            nonlocal shown
            await send_all(ctx, dut.receive.request, [access(key, addresses[key], 8, clear=0, fresh=1)])
            shown += 1
            await monitor.until(ctx, lambda: len(monitor.pieces[RECEIVE]) == shown)
            return monitor.pieces[RECEIVE][-1][1]

        for round_ in range(30):
            for key in rng.sample(keys, rng.randrange(3)):
                await show(key)
            key = rng.choice(keys)
            valid = rng.randrange(2)
            _, entry = as_it_will_be(host, key, bus=(round_ + 1) << 50, valid=valid)
            ctx.set(dut.hold, 1)
            await ctx.tick()
            await change(ctx, dut, key >> 8, entry, rng.randrange(2))
            if valid:
                piece = await show(key)
                assert (piece.status, piece.address >> 50) == (AccessStatus.OK, round_ + 1)
            region(host, key, bus=(round_ + 1) << 50, valid=valid)
            ctx.set(dut.hold, 0)
            piece = await show(key)
            assert piece.status == (AccessStatus.OK if valid else AccessStatus.KEY)
            assert not valid or piece.address >> 50 == round_ + 1

    run(dut, host, rng, bench, latency=20)


def test_stalled_client():
    """Pieces or verdicts of one client that nobody takes do not delay the other."""
    rng = make_rng()
    host = Host()
    address = region(host, 0)
    requests = [access(0, address, 8) for _ in range(60)]
    dut = small_unit()

    async def transmit(ctx, monitor):
        await ctx.tick()
        ctx.set(dut.transmit.verdict.ready, 0)
        await send_all(ctx, dut.transmit.request, requests[:16])
        await monitor.until(ctx, lambda: len(monitor.pieces[TRANSMIT]) == 16)
        ctx.set(dut.transmit.request.payload, requests[0])
        ctx.set(dut.transmit.request.valid, 1)

    async def receive(ctx, monitor):
        await monitor.until(ctx, lambda: len(monitor.pieces[TRANSMIT]) == 16)
        await send_all(ctx, dut.receive.request, requests)
        await monitor.until(ctx, lambda: len(monitor.pieces[RECEIVE]) == 60)
        assert steady_interval(monitor.times(RECEIVE)) == 4
        assert len(monitor.pieces[TRANSMIT]) == 16, "16 verdicts wait, so there is no place for a seventeenth"

    run(dut, host, rng, transmit, receive)


def test_verdict_comes_right_after_the_last_piece():
    rng = make_rng()
    host = Host()
    address = region(host, 0)
    good, bad = access(0, address, 8), access(0, address, 8, pd=7)
    requests = [good, good | {"last": 0}, good, access(), bad, access(qp=0), access(clear=1), good]
    dut = small_unit()

    async def transmit(ctx, monitor):
        await send_all(ctx, dut.transmit.request, requests)
        await monitor.until(ctx, lambda: len(monitor.verdicts) == 7)

    monitor = run(dut, host, rng, transmit)
    last = [(cycle + 1, piece.status) for cycle, piece in monitor.pieces[TRANSMIT] if piece.last]
    assert monitor.verdicts == last
    assert [status for _, status in last] == [0, 0, 0, AccessStatus.PD, AccessStatus.POISONED, 0, 0]


def test_what_was_refused_before_may_be_forgotten():
    """An access with ``fresh`` is checked for its own sake: good, it takes the QP's poison away; refused, it poisons.
    In a run that has failed it saves nothing, and with ``quiet`` what was before stays."""
    rng = make_rng()
    host = Host()
    address = region(host, 0)
    good, bad = access(0, address, 8), access(0, address, 8, pd=7)
    pd, poisoned = AccessStatus.PD, AccessStatus.POISONED
    runs = [
        ([bad], pd),
        ([good], poisoned),
        ([good | {"fresh": 1}], 0),
        ([good], 0),
        ([bad | {"fresh": 1}], pd),
        ([bad | {"fresh": 1}], pd),  # for its own sake, again
        ([good], poisoned),
        ([good, good | {"fresh": 1}], poisoned),
        ([access(length=9, discard=1)], poisoned),
        ([good | {"fresh": 1}, bad, good | {"fresh": 1}], pd),
        ([good], poisoned),
        ([access(length=9, discard=1, fresh=1)], 0),
        ([good], 0),
        ([bad], pd),
        ([good | {"fresh": 1, "qp": 1}], 0),  # of another QP
        ([good], poisoned),
        ([bad | {"fresh": 1, "quiet": 1}], poisoned),
        ([good], poisoned),
        ([access(fresh=1)], 0),
        ([bad | {"fresh": 1, "quiet": 1}], poisoned),
        ([good], 0),
    ]
    requests = [item | {"last": int(place == len(run) - 1)} for run, _ in runs for place, item in enumerate(run)]
    for client in CLIENTS:
        assert host.answer(client, requests)[1] == [status for _, status in runs]
    check_static(small_unit(), host, dict.fromkeys(CLIENTS, requests), rng, latency=lambda: rng.randrange(40))


def test_absent_entries_are_not_cached():
    """An entry that becomes valid, a page that becomes present, a bus that recovers: no invalidation is needed."""
    rng = make_rng()
    host = Host()
    address = region(host, 0, valid=0)
    requests = [access(0, address, 8), access(clear=1)]
    dut = small_unit()
    mtt = host.entry(0)["mtt_address"]
    page = host.words[mtt]

    async def receive(ctx, monitor):
        async def status():
            await send_all(ctx, dut.receive.request, requests)
            count = len(monitor.pieces[RECEIVE]) // 2 * 2 + 2
            await monitor.until(ctx, lambda: len(monitor.pieces[RECEIVE]) == count)
            return monitor.pieces[RECEIVE][-2][1].status

        assert await status() == AccessStatus.KEY
        region(host, 0)
        host.words[host.entry(0)["mtt_address"]] = 0
        assert await status() == AccessStatus.PAGE
        host.words[host.entry(0)["mtt_address"]] = page
        host.broken.add(host.entry(0)["mtt_address"])
        assert await status() == AccessStatus.PAGE
        host.broken.clear()
        assert await status() == AccessStatus.OK
        region(host, 1 << 8)
        requests[0] = access(1 << 8, host.entry(1)["address"], 8)
        host.broken.add(MPT_BASE + 32)
        assert await status() == AccessStatus.KEY
        host.broken.clear()
        assert await status() == AccessStatus.OK
        requests[0] = access(1 << 20, 0, 8)
        reads = len(host.reads)
        assert await status() == AccessStatus.KEY
        assert len(host.reads) == reads, "beyond the table nothing is read"

    monitor = run(dut, host, rng, receive, latency=10)
    assert monitor.counts["mpt_misses"] + monitor.counts["mtt_misses"] == len(host.reads)
    assert monitor.counts["access_errors"] == 5


def test_same_miss_twice():
    """Both clients miss one entry together; the duplicate lines do no harm, and an invalidation takes out both."""
    rng = make_rng()
    host = Host()
    address = region(host, 0)
    dut = small_unit()

    def bench(client):
        async def requests(ctx, monitor):
            for round_ in range(3):
                await send_all(ctx, getattr(dut, client).request, [access(0, address, 8)] * 3)
                await monitor.until(ctx, lambda: all(len(monitor.pieces[c]) == 3 * round_ + 3 for c in CLIENTS))  # noqa: B023
                if client == RECEIVE:
                    region(host, 0, bus=(round_ + 1) << 50)
                    await send_all(ctx, dut.invalidate, [{"index": 0}])
                await monitor.until(ctx, lambda: len(monitor.invalidated) == round_ + 1)  # noqa: B023

        return requests

    monitor = run(dut, host, rng, *map(bench, CLIENTS), latency=50)
    assert len(host.reads) == 12
    for client in CLIENTS:
        buses = [piece.address >> 50 for _, piece in monitor.pieces[client]]
        assert buses == [0x7000_0000_0000 >> 50] * 3 + [1] * 3 + [2] * 3
    assert monitor.counts["mpt_hits"] == monitor.counts["mtt_hits"] == 12


@pytest.mark.parametrize("rounds", [16, pytest.param(40, marks=pytest.mark.slow)])
def test_invalidation_under_load(rounds):
    """When an invalidation is taken, all runs are over that show anything older than the change before it, and none
    comes any more. A table's memory is used again after the invalidation of all MTT entries.
    """
    rng = make_rng()
    host = Host()
    keys = [index << 8 for index in (0, 1, 16, 17, 33)]
    versions = {key: [] for key in keys}  # (cycle of the change, what pieces show: a bus address or a status)
    fresh = dict.fromkeys(keys, 0)  # oldest version that may still be seen
    dut = small_unit()
    pages = 3
    bus = iter(range(1 << 40, TOP, 1 << 24))
    finished = []

    def change(key):
        """New pages, in a table whose memory may have been another's; or no region any more."""
        kind = rng.choice(["table", "table", "gone"]) if versions[key] else "table"
        base = next(bus)
        table = [base + PAGE * page for page in range(pages)]
        if versions[key] and versions[key][-1] is not None:
            retired.append(host.entry(key >> 8)["mtt_address"])
        if kind == "gone":
            host.register(key, key << 24, pages * PAGE, [], valid=0)
            base = None
        else:
            fresh = host.next_mtt
            if free:
                host.next_mtt = free.pop(0)
            host.register(key, key << 24, pages * PAGE, table)
            host.next_mtt = max(fresh, host.next_mtt)
        versions[key].append(base)

    async def driver(ctx, monitor):
        for _ in range(rounds):
            for _ in range(rng.choice([0, 10, 150])):
                await ctx.tick()
            key = rng.choice(keys)
            change(key)
            changed.append((key, len(versions[key]) - 1))
            await send_all(ctx, dut.invalidate, [{"index": key >> 8, "translations": 0}])
            if len(retired) == 4:
                changed.append(changed[-1])
                await send_all(ctx, dut.invalidate, [{"translations": 1}])
                free.extend(retired)
                retired.clear()
        finished.append(True)

    def bench(client):
        async def requests(ctx, monitor):
            while not finished:
                key, page = rng.choice(keys), rng.randrange(pages)
                sent[client].append((key, page))
                tag = rng.randrange(2)
                batch = [access(clear=1), access(key, (key << 24) + PAGE * page, 8, tag=tag)]
                await send_all(ctx, getattr(dut, client).request, batch, rng, 0.1)

        return requests

    async def judge(ctx, monitor):
        """Follows the monitor, and checks each piece against what was current when it was taken."""
        seen = dict.fromkeys(CLIENTS, 0)
        done = ended = 0
        shown = {client: {} for client in CLIENTS}  # of runs that are not over: key and what their piece has shown
        while not finished:
            await ctx.tick()
            while len(monitor.invalidated) > done:  # its pieces of the same cycle must be new already
                key, fresh[key] = changed[done]
                done += 1
            for client in CLIENTS:
                for _, piece in monitor.pieces[client][seen[client] :]:
                    number, which = divmod(seen[client], 2)
                    seen[client] += 1
                    if which == 0:
                        continue
                    key, page = sent[client][number]
                    assert piece.status in (AccessStatus.OK, AccessStatus.KEY)
                    shown[client][seen[client]] = key, None if piece.status else piece.address - PAGE * page
            for lane, pieces in monitor.over[ended:]:
                shown[CLIENTS[lane == 2]].pop(pieces, None)
            ended = len(monitor.over)
            for client in CLIENTS:
                for key, base in shown[client].values():
                    assert base in versions[key][fresh[key] :], (client, versions[key], fresh[key])

    sent = {client: [] for client in CLIENTS}
    changed, retired, free = [], [], []
    for key in keys:
        change(key)
    latency, linger = rng.choice([5, 40, 128]), rng.choice([2, 40, 300])
    benches = [judge, driver, *map(bench, CLIENTS)]
    settings = {"latency": lambda: rng.randrange(latency), "linger": lambda: rng.randrange(1, linger)}
    monitor = run(dut, host, rng, *benches, **settings, deadline=60_000)
    assert len(monitor.invalidated) == len(changed) > rounds
    assert all(len(monitor.pieces[client]) > rounds for client in CLIENTS)


@pytest.mark.parametrize("count", [25, pytest.param(60, marks=pytest.mark.slow)])
def test_random_with_default_caches(count):
    rng = make_rng()
    host = Host()
    keys = random_regions(host, rng, 20)
    requests = {client: random_runs(host, rng, keys, count) for client in CLIENTS}
    check_static(AccessUnit(64, 64), host, requests, rng, latency=lambda: 128, stall=0)


def test_physical_regions():
    """Each place of a page, over as many pages as an access has; nothing is read but the entry."""
    rng = make_rng()
    host = Host()
    base, bus = 0x1234_5678_9000, 0xFFF_ABCD_EF01_2000
    host.register_physical(5 << 8, base + 40, 1 << 40, bus + 40)
    places = [40, 4095, 4096, 4097, (1 << 20) - 8, (1 << 32) + 4000, (1 << 40) + 39]
    requests = [access(5 << 8, base + place, 1, access=1) for place in places]
    requests += [access(5 << 8, base + place, 4096, access=1) for place in places[:-1]]
    requests.append(access(5 << 8, base + 39, 8))
    pieces, verdicts = host.answer(TRANSMIT, requests)
    assert verdicts == [AccessStatus.OK] * 13 + [AccessStatus.RANGE]
    assert [piece[0] for piece in pieces[: len(places)]] == [bus + place for place in places]
    dut = small_unit(physical=True)
    check_static(dut, host, {TRANSMIT: requests, RECEIVE: requests[:-1]}, rng, latency=lambda: 30)
    assert set(host.reads) == {MPT_BASE + 32 * 5}


def test_rights_one_by_one():
    """Each right is needed by itself; local read needs none."""
    rng = make_rng()
    host = Host()
    requests = []
    for index, granted in enumerate([0, *Access]):
        address = region(host, index << 8, access=granted)
        for wanted in (0, *Access, 31):
            requests += [access(index << 8, address, 8, access=wanted), access(clear=1)]
    check_static(small_unit(), host, {TRANSMIT: requests, RECEIVE: requests}, rng, latency=lambda: 5)


@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
def test_converts(data_width):
    assert "module" in rtlil.convert(AccessUnit(data_width, 64))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="not 96"):
        AccessUnit(96, 64)
    with pytest.raises(ValueError, match="not 48"):
        AccessUnit(64, 48)
    with pytest.raises(ValueError, match="not 100"):
        AccessUnit(64, 64, mpt_sets=100)
    with pytest.raises(ValueError, match="not 6"):
        AccessUnit(64, 64, mtt_waiting=6)
    with pytest.raises(ValueError, match="not 12"):
        AccessUnit(64, 64, mpt_waiting=12)


@pytest.mark.parametrize("client", CLIENTS)
def test_invalidation_meets_access(client):
    """An access and an invalidation in every position to each other, with everything in the caches: a piece taken
    when the invalidation is, or later, shows the new table."""
    rng = make_rng()
    host = Host()
    dut = small_unit()
    address = region(host, 0)
    shown = []

    async def bench(ctx, monitor):
        port = getattr(dut, client)
        for delay in range(-3, 16):
            await send_all(ctx, port.request, [access(0, address, 8)])
            await monitor.until(ctx, lambda: len(monitor.pieces[client]) == 2 * len(shown) + 1)
            # In a new table: what has found the key already goes to the old one, which stays as it is.
            region(host, 0, bus=(delay + 4) << 40)
            ctx.set(port.request.payload, access(0, address, 8))
            ctx.set(dut.invalidate.payload.index, 0)
            sent = taken = False
            cycle = 0
            while not (sent and taken):
                ctx.set(port.request.valid, not sent and cycle >= max(0, -delay))
                ctx.set(dut.invalidate.valid, not taken and cycle >= max(0, delay))
                _, _, request, invalidate = await ctx.tick().sample(
                    port.request.valid & port.request.ready, dut.invalidate.valid & dut.invalidate.ready
                )
                sent, taken, cycle = sent or request, taken or invalidate, cycle + 1
            ctx.set(port.request.valid, 0)
            ctx.set(dut.invalidate.valid, 0)
            await ctx.tick()  # the monitor hears of a cycle later than this testbench
            await monitor.until(ctx, lambda: len(monitor.pieces[client]) == 2 * len(shown) + 2)
            cycle, piece = monitor.pieces[client][-1]
            shown.append(piece.address >> 40)
            assert piece.status == 0
            assert cycle < monitor.invalidated[-1] or shown[-1] == delay + 4, f"delay {delay}"

    run(dut, host, rng, bench, latency=20)
    assert any(new != number + 1 for number, new in enumerate(shown)), "some accesses come before the invalidation"
