"""The transmitter against a list of what must leave it."""

from itertools import pairwise

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from conflict_ram import tear
from streams import collect, make_rng, plain, receive_all, send_all, shared, simulate
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.hdl.abi.cqe import Syndrome, WcStatus
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.abi.wqe import UD_ADDRESS
from verbena.hdl.transport.common.layouts import PayloadSource, TxDescriptorKind
from verbena.hdl.transport.tx import transmitter

QPS = 4
COUNTS = ("tx_packets", "tx_bytes", "tx_messages", "tx_acks", "tx_naks", "read_responses")


class Transmitter(wiring.Component):
    """A transmitter that hears of a packet's QP in the cycle in which the packet comes."""

    def __init__(self, *arguments, **named):
        self.inner = transmitter.Transmitter(*arguments, **named)
        members = self.inner.signature.members.items()
        super().__init__({name: member for name, member in members if name not in ("next", "next_qp")})

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = self.inner
        for name, member in self.signature.members.items():
            mine, its = getattr(self, name), getattr(inner, name)
            if not member.is_port:
                wiring.connect(m, wiring.flipped(mine), its)
            elif member.flow is In:
                m.d.comb += its.eq(mine)
            else:
                m.d.comb += mine.eq(its)
        m.d.comb += [inner.next.eq(self.packet.valid), inner.next_qp.eq(self.packet.payload.qp)]
        return m


def context(qp):
    return {
        "dest_qpn": 0x100 + qp,
        "traffic_class": 0x20 + qp,
        "pkey": 0x8000 + qp,
        "source_port": 0xC000 + qp,
        "dest_mac": 0x020000000000 + qp,
        "hop_limit": 64 + qp,
        "dest_ip": 0x0A000001 + qp,
        "dest_gid_high": 0xFE80_0000_0000_0000 + qp,
        "dest_gid_middle": 0xFEDC_0000 + qp,
        "flow_label": 0xABCD0 + qp,
        "sgid_index": qp % 16,
    }


def route(fields):
    """What a path has with a table of GIDs."""
    high = fields["dest_gid_high"] << 32 | fields["dest_gid_middle"]
    return {"gid_high": high, "flow_label": fields["flow_label"], "sgid_index": fields["sgid_index"]}


NO_ROUTE = {"gid_high": 0, "flow_label": 0, "sgid_index": 0}


def datagram_route(packet):
    """What comes ahead of a datagram: made of its number, so that a mix-up shows."""
    number = packet["wqe_index"]
    return {
        "dest_gid_high": (number * 0x9E3779B97F4A7C15) % (1 << 64),
        "dest_gid_middle": (number * 0x85EBCA6B) % (1 << 32),
        "flow_label": number * 77 % (1 << 20),
        "sgid_index": number % 16,
    }


def path(qp, gids=False):
    c = context(qp)
    return (route(c) if gids else NO_ROUTE) | {
        "mac": c["dest_mac"],
        "ip": c["dest_ip"],
        "source_port": c["source_port"],
        "traffic_class": c["traffic_class"],
        "hop_limit": c["hop_limit"],
    }


def datagram_path(packet, gids=False):
    """Where a request of UD goes: nothing of it stands in the context."""
    transport = packet["transport"]
    word = (transport["syndrome"] << 24 | transport["msn"]) << 32 | transport["dma_length"]
    return (route(datagram_route(packet)) if gids else NO_ROUTE) | {
        "mac": word % (1 << 48),
        "ip": transport["rkey"],
        "source_port": word >> 48,
        "traffic_class": packet["traffic_class"],
        "hop_limit": address_of(transport)["hop_limit"],
    }


def address_of(transport):
    return UD_ADDRESS.unpack(transport["address"].to_bytes(8, "little"))


def deth(qp, qkey):
    """What stands in the address of a datagram of ``qp``: the Q_Key, and who sends it."""
    return qkey << 32 | context(qp)["dest_qpn"]


async def attributes(ctx, dut):
    for qp in range(QPS):
        for word, value in enumerate(QP_CONTEXT.words(**context(qp))):
            ctx.set(dut.attribute, {"index": qp, "word": word, "data": value})
            ctx.set(dut.attribute_en, 1)
            await ctx.tick()
    ctx.set(dut.attribute_en, 0)


def beats(data, width, error=0):
    size = width // 8
    chunks = [data[i : i + size] for i in range(0, len(data), size)] or [b""]
    return [
        {
            "data": int.from_bytes(chunk, "little"),
            "count": len(chunk),
            "first": k == 0,
            "last": k == len(chunks) - 1,
            "error": error if k == len(chunks) - 1 else 0,
        }
        for k, chunk in enumerate(chunks)
    ]


def joined(items, width):
    """(bytes, error) of each packet in a list of beats."""
    packets, data = [], b""
    for beat in items:
        assert beat["first"] == (data == b"")
        data += beat["data"].to_bytes(width // 8, "little")[: beat["count"]]
        if beat["last"]:
            packets.append((data, beat["error"]))
            data = b""
    assert data == b""
    return packets


def background(function, *arguments):
    async def testbench(ctx):
        await function(ctx, *arguments)

    return testbench


RC_REQUESTS = [*range(13), 0x13, 0x14]
UC_REQUESTS = [*range(0x20, 0x2C)]
UD_REQUESTS = [0x64, 0x65]
KINDS = ["payload"] * 4 + ["inline"] * 2 + ["empty", "token", "void", "refused", "refused", "bus"]
RESPONSES = ["payload"] * 4 + ["atomic", "atomic", "replay", "empty", "token", "refused", "refused", "bus"]


class Plan:
    """Random TX descriptors: what goes in, and what must come out. Most requests are of UC and UD."""

    def __init__(self, rng, count, width, gids=False):
        self.width = width
        self.gids = gids
        self.packets, self.verdicts = [], []
        self.beats = {"payload": [], "inline": [], "atomic": [], "replay": []}
        self.headers, self.out, self.failed, self.answered, self.departed = [], [], [], [], []
        self.counts = dict.fromkeys([*COUNTS, "token"], 0)
        for number in range(count):
            response = rng.random() < 0.5
            self.add(rng, number, response, rng.choice(RESPONSES if response else KINDS))

    def add(self, rng, number, response, kind):
        qp, last = rng.randrange(QPS), rng.randrange(2)
        source = {"inline": "inline", "replay": "replay", "atomic": "atomic"}.get(kind, "payload")
        if kind in ("refused", "bus"):
            source = rng.choice(["payload", "payload", "atomic", "replay"] if response else ["payload", "inline"])
        size = 8 if source in ("atomic", "replay") else rng.choice([1, 8, 9, 64, rng.randrange(1, 300)])
        length = 0 if kind in ("empty", "token", "void") else size
        if kind == "refused" and source == "payload" and rng.random() < 0.2:
            length = 0  # the QP is poisoned
        transport = {
            "opcode": rng.choice(
                [0x0D, 0x0E, 0x0F, 0x10, 0x12] if response else rng.choice([RC_REQUESTS, UC_REQUESTS, UD_REQUESTS])
            ),
            "psn": number,
            "length": length,
            "address": rng.randrange(1 << 64),
            "rkey": rng.randrange(1 << 32),
            "dma_length": rng.randrange(1 << 32),
            "immediate": rng.randrange(1 << 32),
            "syndrome": rng.randrange(256),
            "msn": rng.randrange(1 << 24),
            "solicited": rng.randrange(2),
            "ack_request": rng.randrange(2),
        }
        descriptor = TxDescriptorKind.RESPONSE if response else TxDescriptorKind.REQUEST
        if kind == "token":
            descriptor = TxDescriptorKind.RESPONSE_TOKEN if response else TxDescriptorKind.REQUEST_TOKEN
        elif kind == "void":
            descriptor = TxDescriptorKind.VOID
        self.packets.append(
            {
                "transport": transport,
                "qp": qp,
                "wqe_index": number,
                "kind": descriptor,
                "source": PayloadSource[{"payload": "MEMORY", "replay": "INLINE"}.get(source, source.upper())],
                "message_last": last,
                "traffic_class": rng.randrange(256),
            }
        )
        data = rng.randbytes(length)
        # Tokens and void TX descriptors clear the poison; but should one meet it, it must still vanish properly.
        refused = kind == "refused" or (kind in ("token", "void") and rng.random() < 0.2)
        status = rng.randrange(1, 8) if refused else 0
        self.verdicts.append({"status": status})
        mark = (transport["psn"], transport["msn"])
        if refused:
            garbage = rng.randbytes(0 if source == "atomic" else rng.choice([0, 8, 30]))
            self.beats["atomic" if source == "atomic" else "payload"] += beats(garbage, self.width, error=1)
            if source in ("inline", "replay"):
                self.beats[source] += beats(data, self.width)
        elif length:
            self.beats[source] += beats(data, self.width, error=kind == "bus")
        if kind in ("token", "void"):
            if response:
                self.answered.append((qp, 0, *mark, 0))
            self.counts["token"] += kind == "token" and not response
        elif refused and response:
            self.answered.append((qp, status, *mark, last))
        elif refused:
            if status != AccessStatus.POISONED:
                self.failed.append((qp, number, WcStatus.LOC_PROT_ERR, status))
        else:
            if kind == "bus" and not response:
                self.failed.append((qp, number, WcStatus.GENERAL_ERR, Syndrome.BUS))
            elif kind == "bus":
                self.answered.append((qp, AccessStatus.BUS, *mark, last))
            elif response and last:
                self.answered.append((qp, 0, *mark, 1))
            elif last and transport["opcode"] in UC_REQUESTS + UD_REQUESTS:
                self.departed.append((qp, number))
            if length:
                self.out.append((data, kind == "bus"))
            self.headers.append(self.header(transport, qp))
            self.counts["tx_packets"] += 1
            self.counts["tx_bytes"] += length
            self.counts["tx_messages"] += last and not response
            self.counts["read_responses"] += response and source == "payload"

    def header(self, transport, qp):
        """Of the packet that was added last."""
        want = transport | {"qp": qp, "dest_qpn": context(qp)["dest_qpn"], "path": path(qp, self.gids)}
        if transport["opcode"] in UD_REQUESTS:
            address = address_of(transport)
            want |= {"dest_qpn": address["dest_qpn"], "address": deth(qp, address["qkey"])}
            want["path"] = datagram_path(self.packets[-1], self.gids)
        return want

    @property
    def routes(self):
        """One for each datagram, also of those that are refused."""
        requests = [packet for packet in self.packets if packet["kind"] == TxDescriptorKind.REQUEST]
        return [datagram_route(packet) for packet in requests if packet["transport"]["opcode"] in UD_REQUESTS]


@pytest.mark.parametrize("count", [60, pytest.param(160, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stall", [0, 0.3, 0.7])
@pytest.mark.parametrize(("width", "gids"), [(64, False), (64, True), (512, False)])
def test_random(width, gids, stall, count, monkeypatch):
    """While attributes are written once more, as they are: what is read in that cycle is undefined."""
    tear(monkeypatch)
    rng = make_rng()
    dut = Transmitter(QPS, width, gids)
    plan = Plan(rng, count, width, gids)
    acks = [
        {"qp": rng.randrange(QPS), "psn": n, "msn": rng.randrange(1 << 24), "syndrome": rng.choice([0x1F, 0x60, 0x2C])}
        for n in range(count // 4)
    ]
    headers, out, failed, answered, counts = [], [], [], [], dict.fromkeys([*COUNTS, "token"], 0)
    started, departed = [], []

    async def producer(ctx):
        await attributes(ctx, dut)
        started.append(1)

    async def renew(ctx):
        async for _ in ctx.tick():
            qp = rng.randrange(QPS)
            if started:
                word, value = rng.choice(list(enumerate(QP_CONTEXT.words(**context(qp)))))
                ctx.set(dut.attribute, {"index": qp, "word": word, "data": value})
                ctx.set(dut.attribute_en, rng.random() < 0.3)

    def feeder(port, items, slow=stall):
        async def feed(ctx):
            while not started:
                await ctx.tick()
            await send_all(ctx, port, items, rng, slow)

        return feed

    async def sink(ctx):
        headers.extend(await receive_all(ctx, dut.header, len(plan.headers) + len(acks), rng, stall))
        # What is refused behind the last header has no header.
        told = (failed, plan.failed), (answered, plan.answered), (departed, plan.departed)
        while any(len(seen) < len(wanted) for seen, wanted in told):
            await ctx.tick()
        for _ in range(100):
            await ctx.tick()

    async def counter(ctx):
        signals = [getattr(dut, f"count_{name}") for name in COUNTS]
        async for _, _, *values in ctx.tick().sample(*signals, dut.token_done):
            for name, value in zip(counts, values, strict=True):
                counts[name] += value

    async def observer(ctx):
        """What has departed is the packet that left last, with its payload; the next one waits until that is taken."""
        header, o, said = dut.header, dut.o, dut.departed
        flags = [header.valid & header.ready, o.valid & o.ready & o.payload.last, said.valid]
        latest = moving = None
        transport = header.payload.transport
        numbers = [transport.opcode, transport.psn, transport.length != 0, said.payload.psn]
        async for _, _, goes, ends, waits, opcode, psn, has_payload, number in ctx.tick().sample(*flags, *numbers):
            if waits:
                assert (number, moving) == (latest, 0)
                assert not goes or opcode == 0x11
                assert not ctx.get(dut.failed.valid)
            if goes and opcode != 0x11:
                latest, moving = psn, has_payload
            elif ends:
                moving = 0

    simulate(
        dut,
        producer,
        feeder(dut.packet, plan.packets),
        feeder(dut.verdict, plan.verdicts),
        *(feeder(getattr(dut, name), items) for name, items in plan.beats.items()),
        feeder(dut.ack, acks, 0.9),
        *([feeder(dut.route, plan.routes, 0.9)] if gids else []),
        sink,
        background=[
            background(collect, dut.o, out, rng, stall),
            background(collect, dut.failed, failed, rng, stall),
            background(collect, dut.answered, answered, rng, stall),
            background(collect, dut.departed, departed, rng, stall),
            counter,
            observer,
            renew,
        ],
        seed=rng.seed_value,
        deadline=30_000,
    )
    assert joined(out, width) == plan.out
    assert [(f["qp"], f["wqe_index"], f["status"], f["syndrome"]) for f in failed] == plan.failed
    assert [(a["qp"], a["status"], a["psn"], a["msn"], a["last"]) for a in answered] == plan.answered
    assert [(d["qp"], d["psn"]) for d in departed] == plan.departed
    sent_acks = iter(acks)
    sent_requests = iter(plan.headers)
    for header in headers:
        transport = header["transport"]
        is_ack = transport["opcode"] == 0x11
        want = next(sent_acks if is_ack else sent_requests)
        qp = want["qp"]
        for name in set(want) & set(transport):
            assert transport[name] == want[name], name
        assert transport["becn"] == 0
        assert transport["pkey"] == 0x8000 + qp
        assert header["path"] == want.get("path", path(qp, gids))
        if is_ack:
            assert transport["dest_qpn"] == 0x100 + qp
            assert (transport["length"], transport["solicited"], transport["ack_request"]) == (0, 0, 0)
    assert (list(sent_acks), list(sent_requests)) == ([], [])
    naks = sum(ack["syndrome"] != 0x1F for ack in acks)
    plan.counts["tx_packets"] += len(acks)
    assert counts == plan.counts | {"tx_acks": len(acks) - naks, "tx_naks": naks}


def request(psn, length=8, **fields):
    return {"transport": {"opcode": 10, "psn": psn, "length": length}, "qp": 1, "wqe_index": psn} | fields


async def headers_with_cycles(ctx, dut, seen):
    """Appends (cycle, opcode, psn) of each header, for ever."""
    port = dut.header
    ctx.set(port.ready, 1)
    cycle = 0
    async for _, _, valid, payload in ctx.tick().sample(port.valid, port.payload):
        if valid:
            seen.append((cycle, payload.transport.opcode, payload.transport.psn))
        cycle += 1


@pytest.mark.parametrize(("opcode", "size"), [(0x2A, 0), (0x2A, 8), (0x2A, 64), (0x64, 0), (0x65, 64)])
def test_what_has_departed_waits_to_be_taken(opcode, size):
    """It says so once, behind its payload, and stands still; ACKs pass meanwhile, and no packet."""
    dut = shared(Transmitter, QPS)
    seen, said = [], dut.departed

    def feeder(port, items):
        async def feed(ctx):
            await send_all(ctx, port, items)

        return feed

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        for n in range(2):
            while not ctx.get(said.valid):
                await ctx.tick()
            for k in range(20):
                assert ctx.get(said.valid)
                assert (ctx.get(said.payload.qp), ctx.get(said.payload.psn)) == (1, 2 * n + 1)
                ctx.set(dut.ack.payload, {"qp": 2, "psn": 100 + n})
                ctx.set(dut.ack.valid, k < 8)
                await ctx.tick()
            assert [psn for _, _, psn in seen if psn < 100] == list(range(2 * n + 2))
            ctx.set(said.ready, 1)
            await ctx.tick()
            ctx.set(said.ready, 0)
        await ctx.tick().repeat(20)
        assert not ctx.get(said.valid)

    packets = [request(n, size, message_last=n % 2) for n in range(4)]
    for packet in packets:
        packet["transport"]["opcode"] = opcode
    simulate(
        dut,
        testbench,
        feeder(dut.packet, packets),
        feeder(dut.verdict, [{"status": 0}] * 4),
        feeder(dut.payload, [b for _ in range(4) for b in beats(bytes(size), 64)] if size else []),
        background=[background(headers_with_cycles, dut, seen)],
    )
    assert {psn for _, _, psn in seen if psn >= 100} == {100, 101}


def test_acks_overtake():
    """A request that waits for its verdict or payload lets ACKs pass; a ready one comes after a ready ACK."""
    dut = shared(Transmitter, QPS)
    seen = []

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.packet.payload, request(1))
        ctx.set(dut.packet.valid, 1)
        for _ in range(10):
            await ctx.tick()
        await send_all(ctx, dut.ack, [{"qp": 2, "psn": 100}])
        ctx.set(dut.verdict.valid, 1)
        for _ in range(5):
            await ctx.tick()
        await send_all(ctx, dut.ack, [{"qp": 2, "psn": 101}])
        await ctx.tick()
        assert [psn for _, _, psn in seen] == [100, 101]
        await send_all(ctx, dut.payload, [beats(b"12345678", 64)[0]])
        ctx.set(dut.packet.valid, 0)
        for _ in range(5):
            await ctx.tick()

    simulate(dut, testbench, background=[background(headers_with_cycles, dut, seen)])
    assert [psn for _, _, psn in seen] == [100, 101, 1]


@pytest.mark.parametrize("datagrams_first", [False, True])
def test_acks_beside_datagrams(datagrams_first):
    """Each packet goes its own way: an ACK that overtakes a datagram of the same QP, a request of RC, and a response,
    whatever its opcode, go that of the context."""
    dut = shared(Transmitter, QPS)
    qp, seen = 1, []
    address = UD_ADDRESS.pack(dest_qpn=0xABCDEF, hop_limit=9, qkey=0x87654321)
    fields = {"address": int.from_bytes(address, "little"), "rkey": 0xC0A80001, "dma_length": 0x33445566}
    fields |= {"msn": 0x001122, "syndrome": 0xD1}
    packets = [request(n, 8, traffic_class=0x77, message_last=1) for n in range(4)]
    if not datagrams_first:
        packets[1], packets[2] = packets[2], packets[1]
    opcodes = {0: 0x64, 1: 0x65, 2: 0x0A, 3: 0x64}
    for packet in packets:
        packet["transport"] |= fields | {"opcode": opcodes[packet["wqe_index"]]}
    packets[3]["kind"] = TxDescriptorKind.RESPONSE

    async def headers(ctx):
        ctx.set(dut.header.ready, 1)
        async for _, _, valid, payload in ctx.tick().sample(dut.header.valid, dut.header.payload):
            if valid:
                seen.append(plain(payload))

    async def testbench(ctx):
        await attributes(ctx, dut)
        for port in (dut.o, dut.departed, dut.answered):
            ctx.set(port.ready, 1)
        for n in range(4):
            ctx.set(dut.packet.payload, packets[n])
            ctx.set(dut.packet.valid, 1)
            ctx.set(dut.verdict.valid, 1)
            await ctx.tick().repeat(10)
            await send_all(ctx, dut.ack, [{"qp": qp, "psn": 100 + n, "msn": n, "syndrome": 0x1F}])
            ctx.set(dut.payload.payload, beats(bytes(8), 64)[0])
            ctx.set(dut.payload.valid, 1)
            while not ctx.get(dut.packet.ready):
                await ctx.tick()
            await ctx.tick()
            ctx.set(dut.packet.valid, 0)
            ctx.set(dut.verdict.valid, 0)
            while not ctx.get(dut.payload.ready):
                await ctx.tick()
            await ctx.tick()
            ctx.set(dut.payload.valid, 0)
            await ctx.tick().repeat(6)

    simulate(dut, testbench, background=[headers])
    own = ((context(qp)["dest_qpn"], path(qp)), fields["address"])
    way = {"mac": 0x112233445566, "ip": 0xC0A80001, "source_port": 0xD100, "traffic_class": 0x77, "hop_limit": 9}
    way |= NO_ROUTE
    datagram = ((0xABCDEF, way), deth(qp, 0x87654321))
    wanted = []
    for n, packet in enumerate(packets):
        wanted += [(100 + n, own[0]), (packet["wqe_index"], (datagram if packet["wqe_index"] < 2 else own)[0])]
    assert [(h["transport"]["psn"], (h["transport"]["dest_qpn"], h["path"])) for h in seen] == wanted
    for header in seen:
        psn = header["transport"]["psn"]
        if psn < 100:
            assert header["transport"]["address"] == (datagram if psn < 2 else own)[1]
        else:
            assert (header["transport"]["msn"], header["transport"]["syndrome"]) == (psn - 100, 0x1F)
    assert {header["transport"]["pkey"] for header in seen} == {context(qp)["pkey"]}


@pytest.mark.parametrize(
    ("kind", "opcode", "size", "period"),
    [
        ("REQUEST", 0x0A, 8, 8),
        ("REQUEST", 0x0A, 1024, 129),
        ("RESPONSE", 0x10, 8, 8),
        ("REQUEST", 0x2A, 8, 8),
        ("REQUEST", 0x2A, 1024, 131),
        ("REQUEST", 0x64, 8, 8),
        ("REQUEST", 0x64, 1024, 131),
    ],
)
def test_cycles(kind, opcode, size, period):
    """7 cycles from all there to the header, 8 a packet, and no more than 1 beyond the payload of a large one, and 2
    until it is taken that it has departed."""
    dut = shared(Transmitter, QPS)
    seen, count = [], 6
    packets = [request(n, size, kind=TxDescriptorKind[kind], message_last=1) for n in range(count)]
    for packet in packets:
        packet["transport"]["opcode"] = opcode

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        await send_all(ctx, dut.payload, [b for _ in range(count) for b in beats(bytes(size), 64)])
        for _ in range(5):
            await ctx.tick()

    async def listener(ctx):
        """Takes what is answered, or has departed, in its second cycle."""
        ports = (dut.answered, dut.departed)
        async for _, _, *values in ctx.tick().sample(*(x for port in ports for x in (port.valid, port.ready))):
            for port, valid, ready in zip(ports, values[::2], values[1::2]):
                ctx.set(port.ready, valid & ~ready)

    def feeder(port, items):
        async def feed(ctx):
            await send_all(ctx, port, items)

        return feed

    simulate(
        dut,
        testbench,
        feeder(dut.packet, packets),
        feeder(dut.verdict, [{"status": 0}] * count),
        background=[background(headers_with_cycles, dut, seen), listener],
    )
    cycles = [cycle for cycle, _, _ in seen]
    assert cycles[0] == 7
    assert [b - a for a, b in pairwise(cycles)] == [period] * (count - 1)


@pytest.mark.parametrize(
    ("kind", "stalls"), [("REQUEST", True), ("RESPONSE", True), ("REQUEST_TOKEN", False), ("VOID", False)]
)
def test_who_waits_for_payload(kind, stalls):
    """The cycles of a packet that waits are counted; a token is none, and waits for what is before it."""
    dut = shared(Transmitter, QPS)

    async def testbench(ctx):
        descriptor = request(1, 8 if stalls else 0, kind=TxDescriptorKind[kind])
        ctx.set(dut.packet.valid, 1)
        ctx.set(dut.packet.payload, ctx.get(dut.packet.payload).shape().const(descriptor))
        for _ in range(8):
            await ctx.tick()
        for _ in range(20):
            *_, stalled = await ctx.tick().sample(dut.count_stall_tx_payload)
            assert stalled == stalls

    simulate(dut, testbench)


@pytest.mark.parametrize(("ahead", "cycles"), [(0, 7), (3, 4), (6, 1), (20, 1)])
def test_path_is_read_ahead(ahead, cycles):
    """The QP of the next packet is known ``ahead`` cycles before the packet itself: what that is takes a cycle more."""
    dut = transmitter.Transmitter(QPS)
    seen = []

    async def testbench(ctx):
        ctx.set(dut.verdict.valid, 1)
        await attributes(ctx, dut)
        ctx.set(dut.next_qp, 2)
        ctx.set(dut.next, 1)
        for _ in range(ahead):
            await ctx.tick()
        ctx.set(dut.packet.payload, {"qp": 2, "transport": {"opcode": 4, "psn": 5}})
        ctx.set(dut.packet.valid, 1)
        ctx.set(dut.header.ready, 1)
        waited = 0
        while not ctx.get(dut.header.valid):
            waited += 1
            await ctx.tick()
        assert waited == cycles
        assert ctx.get(dut.packet.ready)
        seen.append(plain(ctx.get(dut.header.payload)))
        await ctx.tick()
        ctx.set(dut.next, 0)
        ctx.set(dut.packet.valid, 0)

    simulate(dut, testbench)
    assert (seen[0].transport.psn, seen[0].path) == (5, path(2))


@pytest.mark.parametrize("arguments", [{"qps": 3}, {"qps": 4, "data_width": 32}])
def test_arguments(arguments):
    with pytest.raises(ValueError, match="not "):
        Transmitter(**arguments)
