"""The access unit against a plain model of the tables: pieces, verdicts, cycles, invalidation."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.abi.tables import MPT, MTT, AccessStatus
from verbena.hdl.memory.access import AccessUnit

QPS = 8
MPT_BASE = 0xFFFF_8000_1234_5000
TRANSMIT, RECEIVE = CLIENTS = ("transmit", "receive")
TOP = 1 << 64


@dataclass
class Host:
    """Host memory in words of 8 bytes, and the registered regions in it."""

    log_size: int = 12
    words: dict = field(default_factory=dict)
    broken: set = field(default_factory=set)  # words whose read fails on the bus
    reads: list = field(default_factory=list)
    next_mtt: int = 0x0000_0ABC_0000_0FF8

    def store(self, address, data):
        for place in range(0, len(data), 8):
            self.words[address + place] = int.from_bytes(data[place : place + 8], "little")

    def load(self, address, length):
        return b"".join(self.words.get(address + place, 0).to_bytes(8, "little") for place in range(0, length, 8))

    def entry(self, index):
        return MPT.unpack(self.load(MPT_BASE + 32 * index, 32))

    def register(self, key, address, length, pages, *, log_page_size=12, pd=1, access=31, valid=1):
        """Enters a region; ``pages`` are bus addresses, None if not present. Returns where its MTT entries stand."""
        mtt = self.next_mtt
        self.next_mtt += 8 * len(pages)
        fields = {"address": address, "length": length, "log_page_size": log_page_size, "valid": valid}
        fields |= {"mtt_address": mtt, "pd": pd, "variant": key & 255, "access": access}
        self.store(MPT_BASE + 32 * (key >> 8), MPT.pack(**fields))
        for number, page in enumerate(pages):
            self.map(mtt + 8 * number, page)
        return mtt

    def map(self, mtt, page):
        self.store(mtt, MTT.pack(present=page is not None, page=(page or 0) >> 12))

    def failing(self, address, length):
        return any(address + place in self.broken for place in range(0, length, 8))

    def check(self, request):
        """(status, [(bus address, length), ...]) of one access, page by page, up to the refused page."""
        index, address, length = request["key"] >> 8, request["address"], request["length"]
        if index >= 1 << self.log_size or self.failing(MPT_BASE + 32 * index, 32):
            return AccessStatus.KEY, []
        entry = self.entry(index)
        if not entry["valid"] or entry["variant"] != request["key"] & 255:
            return AccessStatus.KEY, []
        if entry["pd"] != request["pd"]:
            return AccessStatus.PD, []
        if request["access"] & ~entry["access"]:
            return AccessStatus.RIGHTS, []
        if address < entry["address"] or address + length > min(entry["address"] + entry["length"], TOP):
            return AccessStatus.RANGE, []
        size = 1 << entry["log_page_size"]
        pieces = []
        while length:
            mtt = entry["mtt_address"] + 8 * (address // size - entry["address"] // size)
            page = MTT.unpack(self.load(mtt, 8))
            if not page["present"] or self.failing(mtt, 8):
                return AccessStatus.PAGE, pieces
            part = min(length, size - address % size)
            pieces.append(((page["page"] << 12) + address % size, part))
            address += part
            length -= part
        return AccessStatus.OK, pieces

    def answer(self, client, requests):
        """(pieces, verdicts) of a client's requests; a piece is (address, length, discard, status, last)."""
        poisoned, pieces, verdicts = set(), [], []
        status = AccessStatus.OK
        for request in requests:
            qp, length, last = request["qp"], request["length"], request["last"]
            if request["clear"]:
                poisoned.discard(qp)
            elif not status and qp in poisoned:
                status = AccessStatus.POISONED
            mine = []
            if status:
                pass
            elif length == 0 or request["discard"]:
                mine = [(None, length)]
            else:
                status, mine = self.check(request)
            mine = [(address, part, request["discard"]) for address, part in mine]
            rest = length - sum(part for _, part, _ in mine)
            if status:
                poisoned.add(qp)
                if client == RECEIVE:
                    mine.append((None, rest, 1))
                elif last:
                    mine.append((None, 0, 0))
            ends = [(0, 0)] * (len(mine) - 1) + [(int(status) if last else 0, last)]
            pieces += [(*piece, *end) for piece, end in zip(mine, ends, strict=False)]
            if last:
                verdicts.append(int(status))
                status = AccessStatus.OK
        return pieces, verdicts


def server(host, read, data, rng, latency, early=0.5):
    """Background testbench: answers reads in order, each at the soonest ``latency()`` cycles after its request. The
    bytes are taken from memory at once with probability ``early``, else when they are sent."""

    async def serve(ctx):
        width = data.payload.data.shape().width
        pending, beats = deque(), deque()
        cycle = ready = 0
        while True:
            if not beats and pending and pending[0][0] <= cycle:
                _, address, length, content = pending.popleft()
                content = host.load(address, length) if content is None else content
                error = host.failing(address, length)
                for place in range(0, length, width // 8):
                    part = content[place : place + width // 8]
                    beat = {"data": int.from_bytes(part, "little"), "count": len(part), "first": place == 0}
                    beats.append(beat | {"last": place + width // 8 >= length, "error": error})
            sending = bool(beats) and rng.random() < 0.8
            ctx.set(data.valid, sending)
            if sending:
                ctx.set(data.payload, beats.popleft())
            _, _, asked, request, taken = await ctx.tick().sample(read.valid, read.payload, data.ready)
            assert taken, "a fill port is always ready"
            cycle += 1
            if asked and ready:
                content = host.load(request.address, request.length) if rng.random() < early else None
                pending.append((cycle + latency(), request.address, request.length, content))
                host.reads.append(request.address)
            ready = rng.random() < 0.7
            ctx.set(read.ready, ready)

    return serve


def servers(host, dut, rng, latency):
    return [
        server(host, dut.mpt_read, dut.mpt_data, rng, latency),
        server(host, dut.mtt_read, dut.mtt_data, rng, latency),
    ]


def access(key=0, address=0, length=0, *, pd=1, access=0, qp=0, discard=0, clear=0, last=1):
    return {
        "key": key, "address": address, "length": length, "pd": pd, "access": access,
        "qp": qp, "discard": discard, "clear": clear, "last": last,
    }  # fmt: skip


def plain_piece(piece, expected):
    """A received piece as the model says it: no address where the model has none."""
    address = None if expected[0] is None else piece.address
    return address, piece.length, piece.discard, piece.status, piece.last


def check_static(dut, host, requests, rng, *, latency, stall=0.3, deadline=60_000):
    """Runs ``requests`` (a list a client) on tables that do not change, and compares all pieces and verdicts."""
    expected = {client: host.answer(client, requests[client]) for client in CLIENTS}

    def configure(ctx):
        ctx.set(dut.mpt_base, MPT_BASE)
        ctx.set(dut.mpt_log_size, host.log_size)

    def client_benches(client):
        port = getattr(dut, client)
        pieces, verdicts = expected[client]

        async def request(ctx):
            configure(ctx)
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


def random_regions(host, rng, count):
    """Regions of many page sizes and alignments; some invalid, some with absent pages, some unreadable."""
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
        mtt = host.register(
            key, first, length, table, log_page_size=log, pd=pd, access=grants, valid=rng.random() < 0.95
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
    if rng.random() < 0.08:
        request |= rng.choice(
            [
                {"key": key ^ 1 << rng.randrange(8)},
                {"key": rng.randrange(1 << 32)},
                {"pd": request["pd"] ^ 1 << rng.randrange(24)},
                {"access": 1 << rng.randrange(5)},
                {"length": 0},
                {"discard": 1},
            ]
        )
    return request


def random_runs(host, rng, keys, count):
    requests = []
    for _ in range(count):
        qp = rng.randrange(QPS)
        accesses = rng.choice([1, 1, 1, 2, 4])
        for number in range(accesses):
            requests.append(random_access(host, rng, keys, qp=qp, last=int(number == accesses - 1)))
        if rng.random() < 0.2:
            requests.append(access(qp=rng.randrange(QPS), clear=1))
    return requests


@pytest.mark.parametrize(("data_width", "sets"), [(64, 4), (128, 2), (256, 8), (512, 4)])
def test_random(data_width, sets):
    rng = make_rng()
    host = Host()
    keys = random_regions(host, rng, 12)
    requests = {client: random_runs(host, rng, keys, 120) for client in CLIENTS}
    dut = AccessUnit(data_width, QPS, mpt_sets=sets, mtt_sets=sets, mtt_ways=rng.choice([1, 2, 4]))
    check_static(dut, host, requests, rng, latency=lambda: rng.randrange(128))
