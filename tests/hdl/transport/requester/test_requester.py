"""The requester sends what the send queue says: packets, messages, states, errors; going back is in test_send_state."""

from collections import defaultdict
from itertools import pairwise

import pytest
from conflict_ram import tear
from hypothesis import given, settings
from hypothesis import strategies as st
from requester_world import PSNS, QPS, World
from send_queue import ONE_SIDED, Wqe, datagram_of, packets_of, psns_of
from streams import make_rng
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState, QpType
from verbena.hdl.abi.cqe import Syndrome, WcStatus
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.abi.wqe import SendFlag, SendOpcode
from verbena.hdl.transport.common.layouts import TxDescriptorKind
from verbena.hdl.transport.requester.pending_operations import OPERATIONS
from verbena.hdl.transport.requester.requester import Requester


def check_packets(world, expected):
    """``expected``: for each QP its packets as of :func:`packets_of`, in order."""
    seen = defaultdict(list)
    for header, run, payload in world.packets():
        seen[header["qp"]].append((header, run, payload))
    for qp in set(seen) | set(expected):
        assert [h["transport"]["psn"] for h, _, _ in seen[qp]] == [p["psn"] for p in expected[qp]]
        for (header, run, payload), want in zip(seen[qp], expected[qp]):
            transport = header["transport"]
            for name in set(want) & set(transport):
                assert transport[name] == want[name], (name, header, want)
            assert header["message_last"] == want["message_last"]
            pieces = [(a["key"], a["address"], a["length"]) for a in run if a["length"]]
            assert pieces == [(k, a % (1 << 64), n) for k, a, n in want["pieces"]]
            assert len(run) == max(1, len(pieces))
            assert all(access["pd"] == 0xABC00 + qp for access in run)
            assert payload == (want["data"] or None)
    every = [want | {"qp": qp} for qp in expected for want in expected[qp]]
    last = {(want["qp"], want["psn"]): want["last_psn"] for want in every}
    order = [(h["qp"], last[h["qp"], h["transport"]["psn"]]) for h, _, _ in world.packets()]
    assert world.sent == order


def check_outstanding(world, rings, first_psn, mtu):
    """Each message is told of once, in order, before its last packet comes out."""
    last_psns = {}
    psn = dict(first_psn)
    for qp, wqes in rings.items():
        outs = world.of("outstanding", qp)
        assert [o["wqe_index"] for o in outs] == [i % 65536 for i in range(len(wqes))]
        for out, wqe in zip(outs, wqes):
            count = psns_of(wqe, mtu[qp])
            psn[qp] = (psn[qp] + count) % (1 << 24)
            assert out["last_psn"] == (psn[qp] - 1) % (1 << 24)
            assert out["opcode"] == wqe.opcode
            assert out["signaled"] == bool(wqe.flags & SendFlag.SIGNALED)
            last_psns[qp, out["last_psn"]] = out
        assert [c["index"] for c in world.of("consumed", qp)] == list(range(1, len(wqes) + 1))
    told = set()
    for _, name, item in world.log:
        if name == "outstanding":
            told.add((item["qp"], item["last_psn"]))
        elif name == "packet" and item["message_last"]:
            assert (item["qp"], item["transport"]["psn"]) in told


def random_wqe(rng, stride, mtu):
    entries = (stride - 32) // 16
    wqe = Wqe(
        opcode=rng.choice(list(SendOpcode)[:4]),
        flags=rng.choice([0, SendFlag.SIGNALED, SendFlag.SOLICITED, SendFlag.SIGNALED | SendFlag.SOLICITED]),
        immediate=rng.randrange(1 << 32),
        remote_address=rng.randrange(1 << 64),
        rkey=rng.randrange(1 << 32),
    )
    if rng.random() < 0.3:
        wqe.data = rng.randbytes(rng.choice([0, 1, 7, 8, 9, stride - 32, rng.randrange(stride - 31)]))
        return wqe
    for _ in range(rng.randrange(entries + 1)):
        length = rng.choice([0, 1, 8, mtu - 1, mtu, mtu + 1, 2 * mtu, rng.randrange(3 * mtu)])
        wqe.sges.append((rng.randrange(1 << 64), length, rng.randrange(1 << 32)))
    return wqe


@pytest.mark.parametrize(("stall", "data_width"), [(0, 64), (0.3, 512), (0.6, 64)])
def test_random_messages(stall, data_width, monkeypatch):
    """Of RC and UC. While attributes are written once more, as they are: what is read in that cycle is undefined."""
    tear(monkeypatch)
    rng = make_rng()
    world = World(rng, stall=stall, data_width=data_width, alone=True)
    world.renew = 0.2 if stall else 0
    qps = rng.sample(range(QPS), 3)
    types = {qp: (QpType.RC, QpType.UC)[number % 2] for number, qp in enumerate(qps)}
    psn = {qp: rng.choice([0, (1 << 24) - 3, rng.randrange(1 << 24)]) for qp in qps}
    code = {qp: rng.choice([1, 2]) for qp in qps}
    mtu = {qp: 128 << code[qp] for qp in qps}
    stride = {qp: rng.choice([64, 128]) for qp in qps}
    rings = {qp: [random_wqe(rng, stride[qp], mtu[qp]) for _ in range(18)] for qp in qps}
    expected = {}
    for qp in qps:
        expected[qp] = []
        for wqe in rings[qp]:
            next_psn = (psn[qp] + len(expected[qp])) % (1 << 24)
            expected[qp] += packets_of(wqe, mtu[qp], next_psn, unreliable=types[qp] == QpType.UC)

    async def testbench(ctx):
        for qp in qps:
            await world.set_up(ctx, qp, psn=psn[qp], mtu=code[qp], stride=stride[qp], type=types[qp])
        for start in range(0, 18, 6):
            for qp in qps:
                world.post(ctx, qp, *rings[qp][start : start + 6])
            await world.settle(ctx, rng.randrange(100))
        count = sum(map(len, expected.values()))
        await world.until(ctx, lambda: len(world.of("packet")) >= count, 12_000)
        await world.settle(ctx)
        for qp in qps:
            await world.control(ctx, qp, QpAction.QUERY)
            await world.until(ctx, lambda: world.of("reply"))
            assert world.of("reply") == [{"psn": (psn[qp] + len(expected[qp])) % (1 << 24), "index": 18}]
            world.log = [entry for entry in world.log if entry[1] != "reply"]

    world.run(testbench)
    check_packets(world, expected)
    check_outstanding(world, rings, psn, mtu)
    assert world.of("failed") == [] == world.of("flush")


@settings(max_examples=8)
@given(
    code=st.integers(1, 5),
    first_psn=st.integers(0, (1 << 24) - 1),
    opcode=st.sampled_from(list(SendOpcode)[:4]),
    lengths=st.lists(st.integers(0, 10_000) | st.sampled_from([0, 1, 255, 256, 257, 4096, 4097]), max_size=6),
    flags=st.sampled_from([0, SendFlag.SIGNALED, SendFlag.SOLICITED]),
    type_=st.sampled_from([QpType.RC, QpType.UC]),
)
def test_one_message(code, first_psn, opcode, lengths, flags, type_):
    """For any MTU, entries and lengths: the accesses in sum are the gather list, the headers those of the standard."""
    rng = make_rng(1)
    world = World(rng, stall=0)
    sges = [(0x1000_0000 * (k + 1) + 5, length, 0x100 + k) for k, length in enumerate(lengths)]
    wqe = Wqe(opcode, flags, sges, immediate=0x12345678, remote_address=0xFEDC_BA98_7654_3210, rkey=0x0BADCAFE)
    expected = {3: packets_of(wqe, 128 << code, first_psn, unreliable=type_ == QpType.UC)}

    async def testbench(ctx):
        await world.set_up(ctx, 3, psn=first_psn, mtu=code, stride=128, type=type_)
        world.post(ctx, 3, wqe)
        await world.until(ctx, lambda: len(world.of("packet")) == len(expected[3]))
        await world.settle(ctx, 30)

    world.run(testbench)
    check_packets(world, expected)


@pytest.mark.parametrize("stall", [0, 0.4])
def test_datagrams(stall):
    """Beside messages of RC and UC, of which fields that lead to the receiver of a datagram mean nothing."""
    rng = make_rng()
    world = World(rng, stall=stall)
    types = dict(zip(rng.sample(range(QPS), 3), (QpType.RC, QpType.UC, QpType.UD)))
    rings = {qp: [] for qp in types}
    psn = {qp: rng.choice([PSNS - 3, rng.randrange(PSNS)]) for qp in types}
    expected = {qp: [] for qp in types}
    for qp, type_ in types.items():
        for _ in range(10):
            wqe = random_wqe(rng, 64, 256)
            if type_ == QpType.UD:
                wqe.opcode = rng.choice([SendOpcode.SEND, SendOpcode.SEND_WITH_IMM])
                wqe.sges = [(a, rng.choice([0, 1, 128, rng.randrange(129)]), key) for a, _, key in wqe.sges]
            wqe.traffic_class, wqe.dest_mac = rng.randrange(256), rng.randrange(1 << 48)
            wqe.source_port = rng.randrange(1 << 16)
            rings[qp].append(wqe)
            here = (psn[qp] + len(expected[qp])) % PSNS
            more = {"unreliable": type_ == QpType.UC}
            datagram = type_ == QpType.UD
            expected[qp] += [datagram_of(wqe, here)] if datagram else packets_of(wqe, 256, here, **more)

    async def testbench(ctx):
        for qp, type_ in types.items():
            await world.set_up(ctx, qp, psn=psn[qp], type=type_)
            if type_ == QpType.UD:
                world.advance(ctx, qp, schedule=False, limited=1, limit=0)
        for qp in types:
            world.post(ctx, qp, *rings[qp])
        count = sum(map(len, expected.values()))
        await world.until(ctx, lambda: len(world.of("packet")) >= count, 6_000)
        await world.settle(ctx)

    world.run(testbench)
    check_packets(world, expected)
    check_outstanding(world, rings, psn, dict.fromkeys(types, 256))
    assert world.of("failed") == [] == world.of("flush")
    for qp, type_ in types.items():
        if type_ == QpType.UD:
            told = [packet["traffic_class"] for packet in world.of("packet", qp)]
            assert told == [wqe.traffic_class for wqe in rings[qp]]


@pytest.mark.parametrize(
    ("wqe", "status", "syndrome"),
    [
        (Wqe(sges=[(0, 257, 1)]), WcStatus.LOC_LEN_ERR, Syndrome.LENGTH),
        (Wqe(sges=[(0, 200, 1)], length=201), WcStatus.LOC_QP_OP_ERR, Syndrome.LENGTH),
        *(
            (Wqe(opcode, sges=[(0, 8, 1)]), WcStatus.LOC_QP_OP_ERR, Syndrome.OPCODE)
            for opcode in (SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_WITH_IMM, *ONE_SIDED)
        ),
    ],
)
def test_no_datagram(wqe, status, syndrome):
    """What UD has not, or a message that is longer than a packet, fails; what is before it leaves."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 1, type=QpType.UD, max_rd_atomic=16)
        world.post(ctx, 1, Wqe(sges=[(0, 256, 1)]), wqe, Wqe())
        await world.until(ctx, lambda: world.of("failed"))
        await world.settle(ctx)

    world.run(testbench)
    assert world.of("failed") == [{"qp": 1, "wqe_index": 1, "status": status, "syndrome": syndrome}]
    assert [packet["transport"]["opcode"] for packet in world.of("packet")] == [0x64]
    assert world.of("reads") == []


def small_write(flags=0):
    return Wqe(SendOpcode.RDMA_WRITE, flags, [(0x1000, 8, 0x55)], remote_address=0x2000, rkey=0x77)


def intervals(cycles):
    return [b - a for a, b in pairwise(cycles)]


@pytest.mark.parametrize("qps", [2, 3])
def test_who_was_put_off_first_is_first(qps):
    """However long ``hold`` stays, it stops nobody for ever: who is put off sends before another does so again."""
    world = World(make_rng(), stall=0)
    wqe = Wqe(SendOpcode.RDMA_WRITE, 0, [(0x1000, 100 * 4096, 1)])

    async def testbench(ctx):
        for qp in range(qps):
            await world.set_up(ctx, qp, mtu=5)
            world.post(ctx, qp, wqe)
        for pause in range(20, 60, 3):
            before = len(world.of("packet"))
            while len(world.of("packet")) < before + 2 * qps:
                sent = len(world.of("packet"))
                ctx.set(world.dut.hold, 0)
                await world.until(ctx, lambda sent=sent: len(world.of("packet")) > sent, 200)
                ctx.set(world.dut.hold, 1)
                await world.settle(ctx, pause)
            turns = [packet["qp"] for packet in world.of("packet")[before:]]
            assert [turns.count(qp) for qp in range(qps)] == [2] * qps, (pause, turns)

    world.run(testbench, deadline=60_000)


def test_who_is_put_off_and_ends_stops_nobody():
    """Its turn comes all the same, is good for nothing, and the others send."""
    world = World(make_rng(), stall=0)
    wqe = Wqe(SendOpcode.RDMA_WRITE, 0, [(0x1000, 4 * 4096, 1)])

    async def testbench(ctx):
        ctx.set(world.dut.hold, 1)
        for qp in range(3):
            await world.set_up(ctx, qp, mtu=5)
        world.post(ctx, 0, wqe)
        await world.settle(ctx, 60)  # put off, before the others come
        await world.attributes(ctx, 0, state=QpState.ERR, **world.context)
        await world.control(ctx, 0, QpAction.ERROR)
        for qp in (1, 2):
            world.post(ctx, qp, wqe)
        await world.settle(ctx)
        ctx.set(world.dut.hold, 0)
        await world.until(ctx, lambda: len(world.of("packet")) == 8, 500)
        assert {packet["qp"] for packet in world.of("packet")} == {1, 2}

    world.flushing = True
    world.run(testbench)


@pytest.mark.parametrize("qps", [1, 3])
def test_large_packets_one_by_one(qps):
    """If ``hold`` comes 4 cycles behind each packet, there is no other one until it is released."""
    rng = make_rng(1)
    world = World(rng, stall=0)
    late = 4
    released = []

    async def testbench(ctx):
        for qp in range(qps):
            await world.set_up(ctx, qp, mtu=5)
        for qp in range(qps):
            world.post(ctx, qp, Wqe(SendOpcode.RDMA_WRITE, 0, [(0x1000, 20_000, 0x55)], remote_address=0x2000))
        for number in range(5 * qps):
            await world.until(ctx, lambda n=number: len(world.of("packet")) > n)
            for _ in range(late - 1):
                await world.tick(ctx)
            ctx.set(world.dut.hold, 1)
            await world.settle(ctx, rng.randrange(10, 60))
            ctx.set(world.dut.hold, 0)
            released.append(world.cycle)

    world.run(testbench)
    packets = [(cycle, item["qp"]) for cycle, name, item in world.log if name == "packet"]
    assert len(packets) == 5 * qps
    assert all(before <= packet for before, (packet, _) in zip(released, packets[1:]))
    assert {qp for _, qp in packets[: 4 * qps]} == set(range(qps)), "somebody's turn never came"


def test_cycles():
    """10 cycles a small message, whether several QPs are ready or one; 11 from turn to access, 13 to packet."""
    for qps in (range(4), range(1)):
        world = World(make_rng(1), stall=0)

        async def testbench(ctx, world=world, qps=qps):
            for qp in qps:
                await world.set_up(ctx, qp)
            await world.settle(ctx)
            for qp in qps:
                world.post(ctx, qp, *[small_write()] * 12)
            await world.until(ctx, lambda: len(world.of("packet")) == 12 * len(qps))
            await world.settle(ctx)

        world.run(testbench)
        packets = [cycle for cycle, name, _ in world.log if name == "packet"]
        accesses = [cycle for cycle, name, _ in world.log if name == "access"]
        assert max(intervals(packets)[3:-2]) == 10
        assert packets[0] - world.turns[0][0] == 13
        assert accesses[0] - world.turns[0][0] == 11


def test_cycles_inline():
    world = World(make_rng(1), stall=0)

    async def testbench(ctx):
        for qp in range(4):
            await world.set_up(ctx, qp)
        await world.settle(ctx)
        for qp in range(4):
            world.post(ctx, qp, *[Wqe(data=b"12345678")] * 8)
        await world.until(ctx, lambda: len(world.of("packet")) == 32)
        await world.settle(ctx)

    world.run(testbench)
    packets = [cycle for cycle, name, _ in world.log if name == "packet"]
    assert max(intervals(packets)[3:-2]) == 10
    assert packets[0] - world.turns[0][0] == 13


def test_fairness():
    """A long message takes turns with short ones of other QPs."""
    rng = make_rng()
    world = World(rng, stall=0.1)

    async def testbench(ctx):
        for qp in (0, 5, 6):
            await world.set_up(ctx, qp)
        world.post(ctx, 5, Wqe(sges=[(0, 1 << 31, 9)]))
        await world.settle(ctx, 100)
        world.post(ctx, 0, *[small_write()] * 10)
        world.post(ctx, 6, *[small_write()] * 10)
        await world.until(ctx, lambda: len(world.of("packet", 0)) == 10 == len(world.of("packet", 6)))
        assert len(world.of("packet", 5)) < 40

    world.run(testbench)
    order = [item["qp"] for item in world.of("packet")]
    start = order.index(0)
    busy = order[start : start + 24]
    assert all(set(busy[k : k + 3]) == {0, 5, 6} for k in range(0, 21, 3))
    first = world.of("packet", 5)[0]["transport"]
    assert (first["opcode"], first["length"]) == (0, 256)


def test_longest():
    """2^31 bytes: the header says so; one byte more is refused."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 1, mtu=5)
        await world.set_up(ctx, 2, mtu=5)
        sges = [(0x10, 1 << 30, 9), (0x20, 1 << 30, 8)]
        world.post(ctx, 1, Wqe(SendOpcode.RDMA_WRITE, 0, sges))
        world.post(ctx, 2, Wqe(SendOpcode.RDMA_WRITE, 0, [*sges[:1], (0x20, (1 << 30) + 1, 8)]))
        await world.until(ctx, lambda: len(world.of("packet")) >= 4)

    world.run(testbench)
    assert {item["qp"] for item in world.of("packet")} == {1}
    assert world.of("packet")[0]["transport"]["dma_length"] == 1 << 31
    assert [p["transport"]["opcode"] for p in world.of("packet")[:3]] == [6, 7, 7]
    assert [(f["qp"], f["syndrome"]) for f in world.of("failed")] == [(2, Syndrome.LENGTH)]


GOOD_SGE = (0x1000, 300, 5)


@pytest.mark.parametrize(
    ("wqe", "syndrome", "packets"),
    [
        (Wqe(SendOpcode.LOCAL_INV, sges=[GOOD_SGE]), Syndrome.OPCODE, 0),
        (Wqe(200, sges=[GOOD_SGE]), Syndrome.OPCODE, 0),
        (Wqe(SendOpcode.BIND_MW), Syndrome.OPCODE, 0),
        (Wqe(sges=[GOOD_SGE], sge_count=3), Syndrome.SGE_COUNT, 0),
        (Wqe(sges=[GOOD_SGE], sge_count=255), Syndrome.SGE_COUNT, 0),
        (Wqe(sges=[GOOD_SGE], length=301), Syndrome.LENGTH, 1),
        (Wqe(sges=[GOOD_SGE, GOOD_SGE], length=601), Syndrome.LENGTH, 2),
        (Wqe(sges=[(0, 100, 1), (0, 100, 1)], length=201), Syndrome.LENGTH, 0),
        (Wqe(sges=[], length=1), Syndrome.LENGTH, 0),
        (Wqe(sges=[], length=(1 << 31) + 1), Syndrome.LENGTH, 0),
        (Wqe(data=b"x", length=33), Syndrome.LENGTH, 0),
        (Wqe(data=b"x", length=300), Syndrome.LENGTH, 0),
    ],
)
def test_malformed(wqe, syndrome, packets):
    """The WQE fails, nothing of its packet comes out, and the QP is quiet until RESET; others go on."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 1, psn=7)
        await world.set_up(ctx, 2)
        world.post(ctx, 1, small_write(), wqe, small_write())
        world.post(ctx, 2, small_write(), small_write())
        await world.until(ctx, lambda: world.of("failed"))
        await world.settle(ctx)
        world.to_schedule.append(1)
        await world.settle(ctx)
        await world.control(ctx, 1, QpAction.RESET)
        world.rings[1], world.fetched[1], world.consumed[1] = [], 0, 0
        await world.control(ctx, 1, QpAction.START_SEND, 99)
        world.post(ctx, 1, small_write())
        await world.until(ctx, lambda: len(world.of("packet", 1)) == packets + 3)
        await world.settle(ctx)

    world.run(testbench)
    assert world.of("failed") == [
        {"qp": 1, "wqe_index": 1, "status": WcStatus.LOC_QP_OP_ERR, "syndrome": syndrome},
    ]
    mine = world.of("packet", 1)
    assert [p["kind"] for p in mine] == [TxDescriptorKind.REQUEST] * (1 + packets) + [
        TxDescriptorKind.REQUEST_TOKEN,
        TxDescriptorKind.REQUEST,
    ]
    assert mine[-1]["transport"]["psn"] == 99
    assert len(world.of("packet", 2)) == 2
    assert [len(run) for header, run, _ in world.packets() if header["kind"] != TxDescriptorKind.REQUEST] == [1]
    clear = [a for a in world.of("access") if a["clear"]]
    assert [(a["qp"], a["length"], a["last"]) for a in clear] == [(1, 0, 1)]


@pytest.mark.parametrize(("type_", "uc"), [(QpType.UD, True), (QpType.UC, False)])
def test_other_type(type_, uc):
    """Nothing is sent of UD or UC if it is not there; RC goes on."""
    world = World(make_rng(), uc=uc, ud=not uc)

    async def testbench(ctx):
        await world.set_up(ctx, 1, type=type_)
        await world.set_up(ctx, 2)
        for qp in (1, 2):
            world.post(ctx, qp, small_write())
        await world.until(ctx, lambda: world.of("failed") and world.of("packet"))
        await world.settle(ctx)

    world.run(testbench)
    assert world.of("failed") == [
        {"qp": 1, "wqe_index": 0, "status": WcStatus.LOC_QP_OP_ERR, "syndrome": Syndrome.OPCODE}
    ]
    assert [packet["qp"] for packet in world.of("packet")] == [2]


@pytest.mark.parametrize("opcode", ONE_SIDED)
def test_unreliable_has_no_reads(opcode):
    """However many the QP's context allows: they are malformed, and what is before them leaves."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 1, type=QpType.UC, max_rd_atomic=16)
        world.post(ctx, 1, small_write(), Wqe(opcode, 0, [(0x1000, 8, 5)]), small_write())
        await world.until(ctx, lambda: world.of("failed"))
        await world.settle(ctx)

    world.run(testbench)
    assert [(f["wqe_index"], f["syndrome"]) for f in world.of("failed")] == [(1, Syndrome.OPCODE)]
    assert [packet["transport"]["opcode"] for packet in world.of("packet")] == [0x2A]
    assert world.of("reads") == []


def test_ring_error():
    """WQEs fetched before the error are sent; then the next one fails, and a flush gives up all that are posted."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 4)
        world.post(ctx, 4, small_write(), small_write())
        world.rings[4] += [small_write()] * 5
        world.errors[4] = 1
        world.status(ctx, 4)
        world.fetched[4] = 2
        world.fetch = lambda ctx, qp: None
        world.to_schedule.append(4)
        await world.until(ctx, lambda: world.of("failed"))
        await world.attributes(ctx, 4, state=QpState.ERR, **world.context)
        world.flushing = True
        await world.control(ctx, 4, QpAction.ERROR)
        await world.until(ctx, lambda: world.of("flush"))
        await world.settle(ctx)

    world.run(testbench)
    assert len(world.of("packet")) == 2
    assert world.of("failed") == [
        {"qp": 4, "wqe_index": 2, "status": WcStatus.LOC_QP_OP_ERR, "syndrome": Syndrome.RING_BUS}
    ]
    assert world.of("flush") == [{"qp": 4, "index": 7, "drain": 0}]


def test_window():
    """A closed window ends the turn; when the completer moves, the QP goes on."""
    world = World(make_rng(), window=4)

    async def testbench(ctx):
        await world.set_up(ctx, 2)
        world.post(ctx, 2, *[small_write()] * 9)
        await world.settle(ctx, 300)
        assert len(world.of("packet")) == 4
        assert world.stalls == 1
        world.ack(ctx, 2, 1)
        await world.settle(ctx, 200)
        assert len(world.of("packet")) == 6
        world.ack(ctx, 2, 5)
        await world.settle(ctx, 200)
        assert len(world.of("packet")) == 9

    world.run(testbench)


def test_states():
    """Nothing before RTS; in SQD a message goes on to its end; in ERR all that is fetched is given up."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 3, state=QpState.RTR)
        world.post(ctx, 3, Wqe(sges=[(0, 5000, 1)]), small_write(), small_write())
        await world.settle(ctx)
        assert world.log == []
        await world.attributes(ctx, 3, state=QpState.RTS, **world.context)
        world.to_schedule.append(3)
        await world.until(ctx, lambda: len(world.of("packet")) == 3)
        await world.attributes(ctx, 3, state=QpState.SQD, **world.context)
        await world.settle(ctx, 1000)
        assert len(world.of("packet")) == 20
        assert world.of("packet")[-1]["message_last"]
        await world.attributes(ctx, 3, state=QpState.ERR, **world.context)
        world.flushing = True
        await world.control(ctx, 3, QpAction.ERROR)
        await world.settle(ctx)
        assert world.of("flush") == [{"qp": 3, "index": 3, "drain": 0}]
        assert world.of("consumed")[-1] == {"qp": 3, "index": 3}
        world.post(ctx, 3, small_write())
        await world.settle(ctx)
        assert world.of("flush")[1:] == [{"qp": 3, "index": 4, "drain": 0}]
        assert len(world.of("packet")) == 20

    world.run(testbench)


def test_error_in_the_middle():
    """ERR and RESET stop a message under way; what follows starts afresh."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 3)
        world.post(ctx, 3, Wqe(sges=[(0, 1 << 20, 1)]))
        await world.until(ctx, lambda: len(world.of("packet")) >= 5)
        await world.attributes(ctx, 3, state=QpState.ERR, **world.context)
        world.flushing = True
        await world.control(ctx, 3, QpAction.ERROR)
        await world.until(ctx, lambda: world.of("flush"))
        await world.settle(ctx)
        assert world.of("flush")[0] == {"qp": 3, "index": 1, "drain": 0}
        count = len(world.of("packet"))
        await world.settle(ctx)
        assert len(world.of("packet")) == count
        await world.attributes(ctx, 3, state=QpState.RESET)
        await world.control(ctx, 3, QpAction.RESET)
        world.rings[3], world.fetched[3], world.consumed[3] = [], 0, 0
        await world.settle(ctx)
        assert len(world.of("packet")) > count
        assert world.of("packet")[-1]["kind"] == TxDescriptorKind.REQUEST_TOKEN
        await world.set_up(ctx, 3, psn=1000)
        world.post(ctx, 3, small_write())
        await world.settle(ctx)
        assert world.of("packet")[-1]["transport"]["psn"] == 1000
        assert world.of("packet")[-1]["transport"]["opcode"] == 0x0A

    world.run(testbench)


def test_reply_does_not_block():
    """QUERY's answer may stay while everything else goes on, other tokens too."""
    world = World(make_rng(), stall=0)

    async def testbench(ctx):
        await world.set_up(ctx, 3, psn=5)
        await world.control(ctx, 3, QpAction.QUERY)
        world.post(ctx, 3, small_write())
        for _ in range(60):
            world.stall = 0
            tick = world.tick(ctx)
            await tick
        assert world.of("reply") == [{"psn": 5, "index": 0}]

    world.run(testbench)
    assert len(world.of("packet")) == 1


@pytest.mark.parametrize("arguments", [{"qps": 3}, {"qps": 1}, {"qps": 4, "window": 3}, {"qps": 4, "blocks": 100}])
def test_arguments(arguments):
    with pytest.raises(ValueError, match="not "):
        Requester(**arguments)


def operating(ctx, world):
    """QPs that have operations under way."""
    places = zip(world.dut.operating, world.dut.operating_qp, strict=True)
    return {ctx.get(qp) for busy, qp in places if ctx.get(busy)}


async def result_of(ctx, world, status):
    """The oldest operation under way has this result."""
    port, before = world.dut.operated, len(operating(ctx, world))
    ctx.set(port.payload.status, status)
    ctx.set(port.valid, 1)
    while len(operating(ctx, world)) == before:
        await world.tick(ctx)
    ctx.set(port.valid, 0)


@pytest.mark.parametrize("stall", [0, 0.4])
def test_others_go_on_beside_operations(stall):
    """Their own queue pairs wait until they are complete, one that has another operation until the oldest is over, and
    all others for nothing."""
    rng = make_rng()
    world = World(rng, stall=stall, keys=True, alone=True)
    *firsts, late, other = rng.sample(range(QPS), OPERATIONS + 2)
    first, second = firsts[:2]
    send = Wqe(SendOpcode.SEND, SendFlag.SIGNALED, [(0x1000, 8, 0x55)])
    invalidates = {qp: Wqe(SendOpcode.LOCAL_INV, SendFlag.SIGNALED, rkey=0x100 + qp) for qp in range(QPS)}

    async def testbench(ctx):
        for qp in (*firsts, late, other):
            await world.set_up(ctx, qp, psn=100)
        for qp in firsts:
            world.post(ctx, qp, invalidates[qp], send)
            await world.until(ctx, lambda qp=qp: world.of("operation", qp))
        world.post(ctx, late, invalidates[late], send)
        world.post(ctx, other, *[send] * 5)
        await world.until(ctx, lambda: len(world.of("packet", other)) == 5)
        await world.settle(ctx, 200)
        assert [item["key"] for item in world.of("operation")] == [0x100 + qp for qp in firsts]
        assert not [item for qp in (*firsts, late) for item in world.of("packet", qp)] + world.of("local")
        assert operating(ctx, world) == set(firsts)
        world.turns.clear()
        await world.settle(ctx, 100)
        assert not world.turns  # nobody asks again and again

        await result_of(ctx, world, AccessStatus.OK)
        assert [dict(item) for item in world.of("local")] == [{"qp": first, "psn": 99}]
        await world.until(ctx, lambda: world.of("operation", late))
        await world.settle(ctx, 100)
        assert operating(ctx, world) == {*firsts[1:], late}
        assert not world.of("packet", first)
        world.advance(ctx, first, oldest=1)
        await world.until(ctx, lambda: world.of("packet", first))

        await result_of(ctx, world, AccessStatus.PD)
        (failed,) = world.of("failed")
        assert (failed["qp"], failed["wqe_index"], failed["syndrome"]) == (second, 0, AccessStatus.PD)
        assert failed["status"] == WcStatus.LOC_QP_OP_ERR
        world.advance(ctx, second, oldest=1, waiting=1)
        await world.settle(ctx, 100)
        assert not world.of("packet", second)
        assert len(world.of("operation")) == OPERATIONS + 1

    world.run(testbench)
    for qp in (*firsts, late):
        assert [item["wqe_index"] for item in world.of("outstanding", qp)][:1] == [0]


@pytest.mark.parametrize("place", range(OPERATIONS))
def test_a_token_waits_for_the_operation_of_its_queue_pair(place):
    """RESET of another one does not, whatever operations there are before; a second operation is begun by the next life
    alone."""
    rng = make_rng()
    world = World(rng, keys=True, alone=True)
    first, other, *before = rng.sample(range(QPS), 2 + place)
    invalidate = Wqe(SendOpcode.LOCAL_INV, SendFlag.SIGNALED, rkey=0x777)

    async def testbench(ctx):
        for qp in (first, other, *before):
            await world.set_up(ctx, qp)
        for qp in (*before, first):
            world.post(ctx, qp, invalidate)
            await world.until(ctx, lambda qp=qp: world.of("operation", qp))
        await world.control(ctx, other, QpAction.RESET)
        await world.until(ctx, lambda: world.of("packet", other))
        await world.control(ctx, first, QpAction.RESET)
        for _ in before:
            await result_of(ctx, world, AccessStatus.OK)
        await world.settle(ctx, 100)
        assert not world.of("packet", first)
        await result_of(ctx, world, AccessStatus.OK)
        await world.until(ctx, lambda: world.of("packet", first))
        (token,) = world.of("packet", first)
        assert token["kind"] == TxDescriptorKind.REQUEST_TOKEN
        names = [name for _, name, item in world.log if name in ("local", "packet") and item["qp"] == first]
        assert names == ["local", "packet"]
        await world.settle(ctx, 100)
        assert len(world.of("operation")) == 1 + place

    world.run(testbench)
