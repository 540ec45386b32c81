"""Host memory with MPT and MTT, the access check in plain Python, and the bus behind the fill ports."""

from collections import deque
from dataclasses import dataclass, field

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from streams import changes, unpacked
from verbena.hdl.abi.tables import MPT, MTT, AccessStatus, KeyKind
from verbena.hdl.stream.ram import Ram

__all__ = [
    "CLIENTS",
    "MPT_BASE",
    "QPS",
    "RECEIVE",
    "TOP",
    "TRANSMIT",
    "CollidingRam",
    "Host",
    "access",
    "server",
    "servers",
]

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
    qpns: tuple = tuple((0x10 * qp) << 16 | 0x11 for qp in range(QPS))  # of the slots
    reads: list = field(default_factory=list)
    next_mtt: int = 0x0000_0ABC_0000_0FF8

    def store(self, address, data):
        for place in range(0, len(data), 8):
            self.words[address + place] = int.from_bytes(data[place : place + 8], "little")

    def load(self, address, length):
        return b"".join(self.words.get(address + place, 0).to_bytes(8, "little") for place in range(0, length, 8))

    def entry(self, index):
        return MPT.unpack(self.load(MPT_BASE + 32 * index, 32))

    def register(self, key, address, length, pages, *, log_page_size=12, pd=1, access=31, valid=1, kind=0, qpn=0):
        """Enters a region; ``pages`` are bus addresses, None if not present. Returns where its MTT entries stand."""
        mtt = self.next_mtt
        self.next_mtt += 8 * len(pages)
        fields = {"address": address, "length": length, "log_page_size": log_page_size, "valid": valid}
        fields |= {"mtt_address": mtt, "pd": pd, "variant": key & 255, "access": access}
        fields |= {"kind": kind, "pages_or_qpn": qpn}
        self.store(MPT_BASE + 32 * (key >> 8), MPT.pack(**fields))
        for number, page in enumerate(pages):
            self.map(mtt + 8 * number, page)
        return mtt

    def register_physical(self, key, address, length, bus, *, pd=1, access=31):
        """Enters a region that is contiguous on the bus, from ``bus`` on."""
        fields = {"address": address, "length": length, "log_page_size": 12, "physical": 1, "valid": 1}
        fields |= {"mtt_address": bus >> 12 << 3, "pd": pd, "variant": key & 255, "access": access}
        self.store(MPT_BASE + 32 * (key >> 8), MPT.pack(**fields))

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
        if entry["kind"] == KeyKind.WINDOW_2 and entry["pages_or_qpn"] != self.qpns[request["qp"]]:
            return AccessStatus.PD, []
        if entry["kind"] in (KeyKind.WINDOW, KeyKind.WINDOW_2) and not request["access"]:
            return AccessStatus.RIGHTS, []
        if request["access"] & ~entry["access"]:
            return AccessStatus.RIGHTS, []
        if address < entry["address"] or address + request["span"] > entry["address"] + entry["length"]:
            return AccessStatus.RANGE, []
        if address + length > TOP:
            return AccessStatus.RANGE, []
        size = 1 << entry["log_page_size"]
        pieces = []
        while length:
            part = min(length, size - address % size)
            mtt = entry["mtt_address"] + 8 * (address // size - entry["address"] // size)
            if entry["physical"]:
                pieces.append(((mtt // 8 << 12) % TOP + address % size, part))
            else:
                page = MTT.unpack(self.load(mtt, 8))
                if not page["present"] or self.failing(mtt, 8):
                    return AccessStatus.PAGE, pieces
                pieces.append(((page["page"] << 12) + address % size, part))
            address += part
            length -= part
        return AccessStatus.OK, pieces

    def parts(self, request):
        """Lengths of the two parts of an access across a page boundary whose key is good, else its length."""
        address, length = request["address"], request["length"]
        if length and not request["discard"] and self.check(request)[0] in (AccessStatus.OK, AccessStatus.PAGE):
            size = 1 << self.entry(request["key"] >> 8)["log_page_size"]
            first = size - address % size
            if first < length:
                return [first, length - first]
        return [length]

    def answer(self, client, requests):
        """(pieces, verdicts) of a client's requests; a piece is (address, length, discard, status, tag, last)."""
        poisoned, pieces, verdicts = set(), [], []
        status = AccessStatus.OK
        for request in requests:
            qp, length, last = request["qp"], request["length"], request["last"]
            if request["clear"]:
                poisoned.discard(qp)
            elif not status and qp in poisoned and not request["fresh"]:
                status = AccessStatus.POISONED
            mine = []
            if status:
                pass
            elif length == 0 or request["discard"]:
                mine = [(None, length)]
            else:
                status, mine = self.check(request)
            mine = [(address, part, request["discard"]) for address, part in mine]
            if status:
                if request["quiet"]:
                    status = AccessStatus.POISONED
                else:
                    poisoned.add(qp)
                if client == RECEIVE:
                    mine += [(None, part, 1) for part in self.parts(request)[len(mine) :]]
                elif last:
                    mine.append((None, 0, 0))
            elif request["fresh"]:
                poisoned.discard(qp)
            tag = request["tag"]
            ends = [(0, tag, 0)] * (len(mine) - 1) + [(int(status) if last else 0, tag, last)]
            pieces += [(*piece, *end) for piece, end in zip(mine, ends, strict=False)]
            if last:
                verdicts.append(int(status))
                status = AccessStatus.OK
        return pieces, verdicts


def server(host, read, data, rng, latency, early=0.5, lengths=(8, 32)):
    """Background testbench: answers reads in order, each at the soonest ``latency()`` cycles after its request. The
    bytes are taken from memory at once with probability ``early``, else when they are sent."""

    async def serve(ctx):
        width = data.payload.data.shape().width
        pending, beats = deque(), deque()
        cycle = ready = 0
        put = changes(ctx)
        edges = aiter(ctx.tick().sample(read.valid, Value.cast(read.payload), data.ready))
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
            put(data.valid, sending)
            if sending:
                ctx.set(data.payload, beats.popleft())
            _, _, asked, request, taken = await anext(edges)
            assert taken, "a fill port is always ready"
            cycle += 1
            if asked and ready:
                request = unpacked(read, request)
                content = host.load(request.address, request.length) if rng.random() < early else None
                pending.append((cycle + latency(), request.address, request.length, content))
                host.reads.append(request.address)
            ready = rng.random() < 0.7
            put(read.ready, ready)

    return serve


def servers(host, dut, rng, latency):
    return [
        server(host, dut.mpt_read, dut.mpt_data, rng, latency),
        server(host, dut.mtt_read, dut.mtt_data, rng, latency),
    ]


def access(
    key=0, address=0, length=0, *, span=None, pd=1, access=0, qp=0, quiet=0, discard=0, clear=0, fresh=0, tag=0, last=1
):
    """An access request; ``span`` is ``length`` if not given."""
    return {
        "key": key, "address": address, "length": length, "span": length if span is None else span, "pd": pd,
        "access": access, "qp": qp, "quiet": quiet, "discard": discard, "clear": clear,
        "fresh": fresh, "tag": tag, "last": last,
    }  # fmt: skip


class CollidingRam(Ram):
    """A ``Ram`` that gives the worst when a row is read while it is written: half of the new row, half nonsense."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(self.shape, self.depth, granularity=self.granularity)
        row, new = Value.cast(ram.r_data), Value.cast(self.w_data)
        collided = Signal(2)
        worst = [Signal(len(row), name=f"worst{stage}") for stage in range(2)]
        m.d.sync += [
            collided.eq(collided << 1 | ((self.w_addr == self.r_addr) & self.w_en.any())),
            worst[0].eq(Cat(new[: len(row) // 2], ~new[len(row) // 2 :])),
            worst[1].eq(worst[0]),
        ]
        m.d.comb += [ram.w_en.eq(self.w_en), ram.w_addr.eq(self.w_addr), ram.r_addr.eq(self.r_addr)]
        m.d.comb += [Value.cast(ram.w_data).eq(new), Value.cast(self.r_data).eq(Mux(collided[1], worst[1], row))]
        return m
