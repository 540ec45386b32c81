"""Going back and going on: what the requester sends after losses, when it must wait, and what it never does twice."""

import pytest
from requester_checker import Checker, random_wqe
from requester_world import PSNS, World
from send_queue import Wqe
from streams import make_rng
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState, QpType
from verbena.hdl.abi.cqe import Syndrome
from verbena.hdl.abi.wqe import SendFlag, SendOpcode
from verbena.hdl.transport.common.layouts import TxDescriptorKind


@pytest.mark.parametrize(
    ("stall", "window", "count"),
    [
        (0, 64, 6),
        pytest.param(0, 64, 14, marks=pytest.mark.slow),
        pytest.param(0.3, 4, 14, marks=pytest.mark.slow),
        pytest.param(0.6, 8, 14, marks=pytest.mark.slow),
    ],
)
def test_losses(stall, window, count):
    """Three QPs of which some PSN is acknowledged now and then, and some retry comes: all WQEs are sent in the end.
    One of them is UC: what has left counts there as acknowledged, and a retry comes of a failure that is late."""
    rng = make_rng()
    world = World(rng, stall=stall, window=window)
    qps = rng.sample(range(8), 3)
    psn = {qp: rng.choice([0, PSNS - 3, rng.randrange(PSNS)]) for qp in qps}
    code = {qp: rng.choice([1, 1, 2]) for qp in qps}
    mtu = {qp: 128 << code[qp] for qp in qps}
    stride = {qp: rng.choice([64, 128]) for qp in qps}
    depth = {qp: rng.choice([1, 2, 16]) for qp in qps}
    rings = {qp: [random_wqe(rng, stride[qp], mtu[qp], qp == qps[0]) for _ in range(count)] for qp in qps}
    checker = Checker(world, rings, mtu, psn, stride, depth, qps[:1])
    retries = dict.fromkeys(qps, 0)

    def sent(qp):
        return [number for who, number in world.sent if who == qp] or [(psn[qp] - 1) % PSNS]

    def acknowledge(ctx, qp, all_):
        # What stands before a packet that has left may have arrived, too.
        unacked, latest = world.progress[qp]["unacked"], checker.latest[qp]
        there = (latest - unacked + 1) % PSNS
        if there:
            world.ack(ctx, qp, (unacked + (there if all_ else rng.randrange(1, there + 1)) - 1) % PSNS)

    async def testbench(ctx):
        for qp in qps:
            more = {"type": QpType.UC if qp == qps[0] else QpType.RC, "max_rd_atomic": depth[qp]}
            await world.set_up(ctx, qp, psn=psn[qp], mtu=code[qp], stride=stride[qp], **more)
            world.post(ctx, qp, *rings[qp])
        for _ in range(9_000):
            await world.tick(ctx)
            checker.check()
            for qp in qps:
                if rng.random() < 0.008:
                    acknowledge(ctx, qp, rng.random() < 0.3)
                if rng.random() < 0.005 and checker.latest[qp] != (world.progress[qp]["unacked"] - 1) % PSNS:
                    world.retries.append(qp)
                    retries[qp] += 1
            if all(world.progress[qp]["oldest"] == count for qp in qps):
                break
        await world.settle(ctx, 200)
        checker.check()

    world.run(testbench, 25_000)
    checker.payloads()
    for qp in qps:
        assert (world.progress[qp]["oldest"], checker.began[qp]) == (count, count)
        numbers = [(number - psn[qp]) % PSNS for number in sent(qp)]
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == (checker.last_psns[qp, count - 1] - psn[qp]) % PSNS
        voids = [p for p in world.of("packet", qp) if p["kind"] == TxDescriptorKind.VOID]
        assert len(voids) == len(world.of("rewind", qp)) <= retries[qp]
    assert world.of("failed") == [] == world.of("flush")
    assert sum(retries.values()) > 0


def write(length=8, flags=0):
    return Wqe(SendOpcode.RDMA_WRITE, flags, [(0x1000, length, 0x55)], remote_address=0x2000, rkey=0x77)


def read(length=8, flags=0):
    return Wqe(SendOpcode.RDMA_READ, flags, [(0x3000, length, 0x55)], remote_address=0x2000, rkey=0x77)


def psns(world, qp):
    return [p["transport"]["psn"] for p in world.of("packet", qp) if p["kind"] == TxDescriptorKind.REQUEST]


def test_retry():
    """The ring is rewound and the poison cleared; then all from the first PSN not acknowledged on comes again. A second
    retry meanwhile is the same."""
    world = World(make_rng())
    world.rewind_cycles = range(40, 60)

    async def testbench(ctx):
        await world.set_up(ctx, 2, psn=PSNS - 2)
        world.post(ctx, 2, write(), write(1000), write())
        await world.until(ctx, lambda: len(world.of("packet")) == 6)
        world.ack(ctx, 2, 0)
        world.retries.append(2)
        world.retries.append(2)
        await world.until(ctx, lambda: len(world.of("packet")) == 10)
        await world.settle(ctx)

    world.run(testbench)
    assert world.of("rewind") == [{"qp": 2, "index": 1}]
    assert psns(world, 2) == [PSNS - 2, PSNS - 1, 0, 1, 2, 3, 1, 2, 3]
    assert world.of("packet")[6]["kind"] == TxDescriptorKind.VOID
    clear = [a for a in world.of("access") if a["clear"]]
    assert [(a["qp"], a["length"], a["last"]) for a in clear] == [(2, 0, 1)]
    assert [p["transport"]["opcode"] for p in world.of("packet")[7:]] == [7, 8, 10]
    assert [item["wqe_index"] for item in world.of("outstanding")] == [0, 1, 2]
    assert [psn for _, psn in world.sent] == [PSNS - 2, PSNS - 1, 0, 1, 2, 3]


def test_overtaken():
    """Acknowledged while the ring is being rewound: WQEs that are complete are passed over, and nothing is sent."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 2, psn=10)
        world.post(ctx, 2, *[write()] * 5)
        await world.until(ctx, lambda: len(world.of("packet")) == 5)
        world.retries.append(2)
        await world.until(ctx, lambda: world.of("rewind"))
        world.ack(ctx, 2, 14)
        await world.settle(ctx, 300)
        assert psns(world, 2) == [10, 11, 12, 13, 14]
        world.post(ctx, 2, write())
        await world.settle(ctx, 100)
        assert psns(world, 2) == [10, 11, 12, 13, 14, 15]

    world.run(testbench)
    assert [c["index"] for c in world.of("consumed")] == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6]


def test_waiting():
    """After an RNR NAK nothing leaves."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 2)
        world.advance(ctx, 2, waiting=1)
        world.post(ctx, 2, write())
        await world.settle(ctx, 100)
        assert world.log == []
        world.advance(ctx, 2, waiting=0)
        await world.until(ctx, lambda: world.of("packet"))

    world.run(testbench)


def test_depth():
    """No more READs than max_rd_atomic; with FENCE none; a WRITE without it passes."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 2, max_rd_atomic=2)
        world.post(ctx, 2, read(), write(), read(600), write(), read(), write(8, SendFlag.FENCE), write())
        await world.settle(ctx, 200)
        assert psns(world, 2) == [0, 1, 2, 5]
        world.ack(ctx, 2, 1)
        await world.settle(ctx, 100)
        assert psns(world, 2) == [0, 1, 2, 5, 6]
        world.ack(ctx, 2, 5)
        await world.settle(ctx, 100)
        assert len(psns(world, 2)) == 5
        world.ack(ctx, 2, 6)
        await world.settle(ctx, 100)
        assert psns(world, 2) == [0, 1, 2, 5, 6, 7, 8]

    world.run(testbench)


def test_credits():
    """Without credit only a message that needs no receive WQE starts, or one when nothing is outstanding."""
    world = World(make_rng())
    send = Wqe(SendOpcode.SEND, 0, [(0, 8, 1)])

    async def testbench(ctx):
        await world.set_up(ctx, 2)
        world.advance(ctx, 2, limited=1, limit=0)
        world.post(ctx, 2, send, write(), send, write())
        await world.settle(ctx, 200)
        assert psns(world, 2) == [0, 1]
        world.advance(ctx, 2, limit=2)
        await world.settle(ctx, 100)
        assert psns(world, 2) == [0, 1]
        world.advance(ctx, 2, limit=3)
        await world.settle(ctx, 100)
        assert psns(world, 2) == [0, 1, 2, 3]

    world.run(testbench)


def test_credits_of_unreliable():
    """They do not count there."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 2, type=QpType.UC)
        world.advance(ctx, 2, limited=1, limit=0)
        world.post(ctx, 2, *[Wqe(sges=[(0, 8, 1)])] * 4)
        await world.until(ctx, lambda: len(world.of("packet")) == 4)

    world.run(testbench)


def test_far():
    """A READ of half of all PSNs, and then nothing more until it has come far enough; then it is asked for the rest."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 2, psn=PSNS - 10)
        world.post(ctx, 2, read(1 << 31), write())
        await world.settle(ctx, 200)
        assert psns(world, 2) == [PSNS - 10]
        world.ack(ctx, 2, (PSNS - 10 + (1 << 22) - 1) % PSNS)
        await world.settle(ctx, 100)
        assert psns(world, 2) == [PSNS - 10]
        world.ack(ctx, 2, (PSNS - 10 + (1 << 22)) % PSNS)
        await world.settle(ctx, 100)
        assert psns(world, 2) == [PSNS - 10, (1 << 23) - 10]
        world.retries.append(2)
        await world.settle(ctx, 300)
        assert psns(world, 2)[2:] == [(1 << 22) - 9, (1 << 23) - 10]
        request = world.of("packet")[3]["transport"]
        assert (request["dma_length"], request["address"]) == ((1 << 31) - (1 << 30) - 256, 0x2000 + (1 << 30) + 256)

    world.run(testbench)
    told = [(item["again"], item["target"]["psn"]) for item in world.of("reads")]
    assert told == [(0, PSNS - 10), (1, (1 << 22) - 9)]


def test_drain():
    """SQD: the message under way goes on to its end, also after a retry, and then it is said once."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 3)
        world.post(ctx, 3, write(5000), write(), write())
        await world.until(ctx, lambda: len(world.of("packet")) == 3)
        await world.attributes(ctx, 3, state=QpState.SQD, **world.context)
        await world.control(ctx, 3, QpAction.DRAIN)
        await world.until(ctx, lambda: len(world.of("packet")) == 12)
        world.ack(ctx, 3, 5)
        world.retries.append(3)
        await world.settle(ctx, 1200)
        numbers = psns(world, 3)
        assert numbers[-14:] == list(range(6, 20))
        assert world.of("flush") == [{"qp": 3, "index": 1, "drain": 1}]
        world.retries.append(3)
        await world.settle(ctx, 1200)
        assert psns(world, 3) == numbers + list(range(6, 20))
        assert len(world.of("flush")) == 1
        await world.control(ctx, 3, QpAction.DRAIN)
        await world.until(ctx, lambda: len(world.of("flush")) == 2)
        await world.attributes(ctx, 3, state=QpState.RTS, **world.context)
        await world.control(ctx, 3, QpAction.RESUME)
        await world.until(ctx, lambda: psns(world, 3)[-1] == 21)
        await world.settle(ctx)
        assert len(world.of("flush")) == 2

    world.run(testbench)


def test_resume_ends_drain():
    """RESUME before the message ends: no flush, and the next message starts."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 3)
        world.post(ctx, 3, write(5000), write())
        await world.until(ctx, lambda: len(world.of("packet")) == 3)
        await world.control(ctx, 3, QpAction.DRAIN)
        await world.control(ctx, 3, QpAction.RESUME)
        await world.until(ctx, lambda: len(world.of("packet")) == 21)
        await world.settle(ctx)

    world.run(testbench)
    assert world.of("flush") == []


def test_malformed_behind_losses():
    """What was sent before a malformed WQE comes again, and so does the failure."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 1)
        world.post(ctx, 1, write(), write(), Wqe(200))
        await world.until(ctx, lambda: world.of("failed"))
        world.ack(ctx, 1, 0)
        world.retries.append(1)
        await world.until(ctx, lambda: len(world.of("failed")) == 2)
        await world.settle(ctx)

    world.run(testbench)
    assert psns(world, 1) == [0, 1, 1]
    assert [(f["wqe_index"], f["syndrome"]) for f in world.of("failed")] == [(2, Syndrome.OPCODE)] * 2


def test_ring_error_while_going_back():
    """The ring cannot be read any more: the oldest WQE that is not complete fails."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 1)
        world.post(ctx, 1, write(), write(), write())
        await world.until(ctx, lambda: len(world.of("packet")) == 3)
        world.fetch = lambda ctx, qp: None
        world.retries.append(1)
        await world.until(ctx, lambda: world.of("rewind"))
        world.ack(ctx, 1, 0)
        await world.settle(ctx)
        world.errors[1] = 1
        world.status(ctx, 1)
        world.to_schedule.append(1)
        await world.until(ctx, lambda: world.of("failed"))

    world.run(testbench)
    assert [(f["wqe_index"], f["syndrome"]) for f in world.of("failed")] == [(1, Syndrome.RING_BUS)]


@pytest.mark.parametrize("state", [QpState.ERR, QpState.RESET, QpState.RTR])
def test_retry_in_other_states(state):
    """Nothing happens: nobody waits for an answer."""
    world = World(make_rng())

    async def testbench(ctx):
        await world.set_up(ctx, 1)
        world.post(ctx, 1, write())
        await world.until(ctx, lambda: world.of("packet"))
        await world.attributes(ctx, 1, state=state, **world.context)
        world.retries.append(1)
        await world.settle(ctx)

    world.run(testbench)
    assert len(world.of("packet")) == 1
    assert world.of("rewind") == []


def test_error_and_reset_while_going_back():
    """In ERR what has been fetched by then is given up; a ring that is rewound after RESET changes nothing."""
    world = World(make_rng(), stall=0)

    async def testbench(ctx):
        await world.set_up(ctx, 1)
        world.post(ctx, 1, *[write()] * 4)
        await world.until(ctx, lambda: len(world.of("packet")) == 4)
        world.retries.append(1)
        await world.until(ctx, lambda: world.of("rewind"))
        world.flushing = True
        await world.attributes(ctx, 1, state=QpState.ERR, **world.context)
        await world.control(ctx, 1, QpAction.ERROR)
        await world.settle(ctx, 200)
        assert world.of("flush")[-1] == {"qp": 1, "index": 4, "drain": 0}
        await world.control(ctx, 1, QpAction.RESET)
        world.rings[1], world.fetched[1], world.consumed[1] = [], 0, 0
        world.status(ctx, 1)
        world.rewinds.append((0, 1, 0))
        await world.settle(ctx)
        await world.set_up(ctx, 1, psn=70)
        world.post(ctx, 1, write())
        await world.settle(ctx)

    world.run(testbench)
    assert psns(world, 1) == [0, 1, 2, 3, 70]
