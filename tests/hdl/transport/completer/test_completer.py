"""The completer against a model, under whatever a peer, a host and the engine itself may say."""

from itertools import pairwise

import pytest
from completer_events import happen
from completer_world import FATAL, OUTPUTS, PSNS, QPS, WINDOW, Kind, World
from conflict_ram import tear
from streams import make_rng
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState
from verbena.hdl.abi.cqe import Syndrome, WcOpcode, WcStatus
from verbena.hdl.abi.wqe import SendOpcode
from verbena.hdl.transport.completer.completer import Completer


@pytest.mark.parametrize(("stall", "renew"), [(0, 0), (0.5, 0), (0.3, 0.2)])
def test_random(stall, renew, monkeypatch):
    """Some QPs are UC."""
    tear(monkeypatch)
    rng = make_rng()
    world = World(rng, stall, renew=renew, alone=True)
    model = world.model

    async def testbench(ctx):
        for qp in range(QPS):
            await world.start(ctx, qp, rng.choice([0, 5, PSNS - 3, rng.randrange(PSNS)]), unreliable=qp % 2 == 1)
        for _ in range(40):
            qp = rng.randrange(QPS)
            queue = model.queues[qp]
            if queue.dead or queue.state == QpState.ERR:
                if rng.random() < 0.8:
                    start = rng.choice([0, PSNS - 2, rng.randrange(PSNS)])
                    retries = {"retry_count": rng.randrange(8), "rnr_retry": rng.randrange(8)}
                    await world.start(ctx, qp, start, unreliable=rng.random() < 0.4, **retries)
            elif queue.begun < queue.oldest + WINDOW and rng.random() < 0.8:
                only_sends = queue.unreliable or queue.psn != queue.ended
                opcode = rng.choice(range(4) if only_sends else [*range(7), 4, 4])
                await world.send(ctx, qp, rng.choice([1, 1, 2, 5]) if opcode < 5 else 1, opcode, rng.randrange(2))
            elif rng.random() < 0.3:
                await world.sent(ctx, qp)  # of a message whose end is not sent yet
            for _ in range(rng.choice([0, 1, 2, 4])):
                await happen(world, ctx, rng.randrange(QPS))
                if rng.random() < 0.7:  # else the next one is made with a stale view of the queue
                    while any(world.pending.values()):
                        await world.tick(ctx)
            while any(world.pending.values()):
                await world.tick(ctx)
            for _ in range(8):  # a message must not be sent while an ACK for it is dealt with
                await world.tick(ctx)
            await world.settle(ctx)

    world.run(testbench, 300_000)
    assert world.out["completion"]
    assert "departed" in {name for _, name in world.taken}


def run(script, **arguments):
    """A world in which ``script(world, ctx)`` has run."""
    world = World(make_rng(), **arguments)

    async def testbench(ctx):
        await script(world, ctx)
        await world.settle(ctx)

    world.run(testbench)
    return world


NAKS = {**FATAL, 0x60: WcStatus.RETRY_EXC_ERR, 0x3F: WcStatus.RNR_RETRY_EXC_ERR}


@pytest.mark.parametrize(("syndrome", "status"), NAKS.items())
def test_nak(syndrome, status):
    """What precedes a NAK's PSN succeeds; then the message that holds it fails, also if its end is not yet sent."""

    async def script(world, ctx):
        await world.start(ctx, 2, 0xFFFFFE, retry_count=0, rnr_retry=0)
        await world.send(ctx, 2, 3, SendOpcode.RDMA_WRITE)
        if syndrome % 2:
            await world.sent(ctx, 2)
        else:
            await world.send(ctx, 2, 2)
            await world.send(ctx, 2)
        world.ack(2, 1, syndrome)
        world.ack(2, 2)

    world = run(script)
    assert world.statuses(2) == [(0, WcStatus.SUCCESS, 0), (1, status, Syndrome.REMOTE_NAK)]
    assert world.out["completion"][0]["opcode"] == WcOpcode.RDMA_WRITE
    assert world.out["error"] == [{"qp": 2, "event": 254}]
    assert world.counts["rx_acks"] == world.counts["rx_naks"] == 1


def test_unknown_nak():
    """Reserved codes do nothing."""

    async def script(world, ctx):
        await world.start(ctx, 1)
        await world.send(ctx, 1)
        for syndrome in (0x65, 0x7F, 0x40, 0x9F, 0xFF):
            world.ack(1, 0, syndrome)

    world = run(script)
    assert world.out["completion"] == world.out["retry"] == []
    assert world.counts["rx_naks"] == 2
    assert world.counts["drop_response"] == 5


def test_ghosts():
    """An ACK for what was never sent or is acknowledged completes nothing; one in the middle, what is before it."""

    async def script(world, ctx):
        await world.start(ctx, 0, 100)
        for psn in (99, 100, 101, 100 + PSNS // 2 - 1, 100 + PSNS // 2):
            world.ack(0, psn)
        await world.settle(ctx)
        await world.send(ctx, 0, 2)
        await world.send(ctx, 0, 3)
        for psn in (99, 105, 106, 100 + PSNS // 2):
            world.ack(0, psn)
        world.ack(0, 100)
        world.ack(0, 100)
        await world.settle(ctx)
        assert world.statuses(0) == []
        assert world.counts["drop_response"] == 10
        world.ack(0, 103)
        await world.settle(ctx)
        assert world.statuses(0) == [(0, 0, 0)]
        await world.sent(ctx, 0)
        world.ack(0, 105)
        await world.settle(ctx)
        assert world.statuses(0) == [(0, 0, 0), (1, 0, 0)]

    run(script)


def test_read():
    """Data completes a READ and what is before it; an ACK does not, and what is behind waits."""

    async def script(world, ctx):
        await world.start(ctx, 1, PSNS - 2)
        await world.send(ctx, 1)
        await world.send(ctx, 1, 3, SendOpcode.RDMA_READ)
        await world.send(ctx, 1, 1, SendOpcode.ATOMIC_FETCH_AND_ADD)
        await world.send(ctx, 1)
        world.respond(1, Kind.DATA, PSNS - 1, wqe_index=1)
        await world.settle(ctx)
        assert world.statuses(1) == [(0, 0, 0)]
        world.respond(1, Kind.DATA, 0, wqe_index=1)
        world.respond(1, Kind.DATA, 1, wqe_index=1)
        await world.settle(ctx)
        assert world.statuses(1) == [(0, 0, 0), (1, 0, 0)]
        world.ack(1, 3)
        await world.settle(ctx)
        assert world.counts["implied_naks"] == world.counts["retries"] == 1
        assert world.model.queues[1].acked == PSNS + 2
        world.respond(1, Kind.DATA, 2, wqe_index=2)
        world.ack(1, 3)

    world = run(script)
    assert [c["opcode"] for c in world.out["completion"]] == [0, 2, 4, 0]
    assert [c["byte_length"] for c in world.out["completion"]] == [0, 0, 8, 0]
    assert world.out["retry"] == [1]


def test_long_read():
    """A READ of 2**23 packets, and whatever may be behind it."""
    long = 1 << 23

    async def script(world, ctx):
        await world.start(ctx, 0, 1000)
        await world.send(ctx, 0, 2)
        await world.send(ctx, 0, long, SendOpcode.RDMA_READ)
        await world.send(ctx, 0, 1)
        world.ack(0, 1001)
        world.ack(0, 1002 + long)  # too far ahead to believe
        await world.settle(ctx)
        assert world.counts["drop_response"] == 1
        world.respond(0, Kind.DATA, 1002, wqe_index=1)
        await world.settle(ctx)
        assert world.statuses(0) == [(0, 0, 0)]
        for step in (1 << 21, 1 << 22, 3 << 21, long - 2, long - 1):
            queue = world.model.queues[0]
            queue.messages[1].missing = 1002 + step  # as if those before had come
            world.respond(0, Kind.DATA, 1002 + step, wqe_index=1)
            await world.settle(ctx)
        world.ack(0, 1002 + long)

    world = run(script)
    assert world.statuses(0) == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]


def test_skipped():
    """Only the first of the responses behind a gap makes the queue go back, until there is progress or a timeout."""

    async def script(world, ctx):
        await world.start(ctx, 3)
        await world.send(ctx, 3)
        await world.send(ctx, 3, 8, SendOpcode.RDMA_READ)
        world.respond(3, Kind.DATA, 1, wqe_index=1)
        world.respond(3, Kind.SKIPPED, 3)
        world.respond(3, Kind.SKIPPED, 4)
        await world.settle(ctx)
        assert world.counts["retries"] == 1
        world.fire(3)
        await world.settle(ctx)
        world.respond(3, Kind.SKIPPED, 5)
        world.respond(3, Kind.SKIPPED, 6)
        await world.settle(ctx)
        assert world.counts["retries"] == 3
        world.respond(3, Kind.DATA, 2, wqe_index=1)
        world.respond(3, Kind.SKIPPED, 4)

    world = run(script)
    assert world.counts["retries"] == 4
    assert world.counts["implied_naks"] == 5
    assert world.statuses(3) == [(0, 0, 0)]


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_retries(limit):
    """Retries are counted as long as nothing is acknowledged."""

    async def script(world, ctx):
        await world.start(ctx, 0, 7, retry_count=limit)
        await world.send(ctx, 0)
        for _ in range(3):
            for number in range(limit):
                if number % 2:
                    world.ack(0, world.model.queues[0].acked, 0x60)
                else:
                    world.fire(0)
                await world.settle(ctx)
            await world.send(ctx, 0)
            world.ack(0, world.model.queues[0].acked)
            await world.settle(ctx)
        assert world.counts["retries"] == 3 * limit
        assert world.out["error"] == []
        for _ in range(limit + 1):
            world.fire(0)
            await world.settle(ctx)

    world = run(script)
    assert world.statuses(0)[-1] == (3, WcStatus.RETRY_EXC_ERR, Syndrome.NONE)
    assert world.counts["retries"] == 4 * limit


def test_not_ready():
    """Waiting: a timer of before does not end it, nor do NAKs; its own does; for ever, if that is wanted."""

    async def script(world, ctx):
        await world.start(ctx, 0, rnr_retry=7, retry_count=0)
        await world.send(ctx, 0, 2)
        await world.send(ctx, 0)
        for _ in range(9):
            world.ack(0, 1, 0x25)
            await world.settle(ctx)
            world.fire(0, late=1)
            for syndrome in (0x60, 0x26, 0x60):
                world.ack(0, 1, syndrome)
            await world.settle(ctx)
            assert world.model.queues[0].waiting == 5
            world.fire(0)
            await world.settle(ctx)
            assert world.model.queues[0].waiting is None
        world.ack(0, 1)
        world.ack(0, 2, 0x3F)
        await world.settle(ctx)
        assert world.model.queues[0].waiting == 31
        world.ack(0, 2)  # it had arrived: the NAK was of a copy

    world = run(script)
    assert world.counts["retries"] == 9
    assert world.model.queues[0].waiting is None
    assert world.statuses(0) == [(0, 0, 0), (1, 0, 0)]


def test_timer_races():
    """A timer that fires with an old generation, or when all is acknowledged, does nothing."""

    async def script(world, ctx):
        await world.start(ctx, 2)
        world.fire(2)
        await world.settle(ctx)
        await world.send(ctx, 2)
        await world.send(ctx, 2)
        generation = world.model.queues[2].generation
        world.ack(2, 0)
        await world.settle(ctx)
        world.pending["fired"].append({"qp": 2, "generation": generation})
        await world.settle(ctx)
        assert world.counts["retries"] == 0
        world.ack(2, 1, 0x60)
        await world.settle(ctx)
        world.fire(2, late=1)
        await world.settle(ctx)
        assert world.counts["retries"] == 1
        world.ack(2, 1)
        await world.settle(ctx)
        world.fire(2)

    assert run(script).counts["retries"] == 1


@pytest.mark.parametrize("verdict", [1, 7])
def test_refused_data(verdict):
    """The READ fails whose data found no place, and what is before it succeeds."""

    async def script(world, ctx):
        await world.start(ctx, 1)
        await world.send(ctx, 1, signaled=0)
        await world.send(ctx, 1, signaled=1)
        await world.send(ctx, 1, 4, SendOpcode.RDMA_READ, signaled=0)
        world.respond(1, Kind.DATA, 2, wqe_index=2)
        world.respond(1, Kind.DATA, 3, wqe_index=2, verdict=verdict)
        world.respond(1, Kind.DATA, 4, wqe_index=2, verdict=6)

    status = WcStatus.GENERAL_ERR if verdict == 7 else WcStatus.LOC_PROT_ERR
    world = run(script)
    assert world.statuses(1) == [(1, 0, 0), (2, status, verdict)]


def test_wrong_response():
    async def script(world, ctx):
        await world.start(ctx, 1)
        await world.send(ctx, 1)
        await world.send(ctx, 1, 4, SendOpcode.RDMA_READ)
        world.respond(1, Kind.FAILED, 1, 17, status=WcStatus.BAD_RESP_ERR, wqe_index=1)

    assert run(script).statuses(1) == [(0, 0, 0), (1, WcStatus.BAD_RESP_ERR, 17)]


def test_local_failures():
    """A failure waits for its turn; the earliest counts; the flush covers the rest, each with its own fate."""

    async def script(world, ctx):
        await world.start(ctx, 3)
        for _ in range(3):
            await world.send(ctx, 3, signaled=0)
        refused = {"qp": 3, "wqe_index": 5, "status": WcStatus.LOC_PROT_ERR, "syndrome": Syndrome.KEY}
        world.pending["failed_transmitter"] = [refused]
        await world.settle(ctx)
        malformed = {"qp": 3, "wqe_index": 2, "status": WcStatus.LOC_QP_OP_ERR, "syndrome": Syndrome.LENGTH}
        world.pending["failed_requester"] = [malformed]
        world.pending["failed_transmitter"] = [refused]
        await world.settle(ctx)
        assert world.out["completion"] == []
        world.ack(3, 2)
        await world.settle(ctx)
        assert world.statuses(3) == [(2, WcStatus.LOC_QP_OP_ERR, Syndrome.LENGTH)]
        await world.state(ctx, 3, QpState.ERR)
        world.pending["flush"] = [{"qp": 3, "index": 5, "drain": 0}]
        await world.settle(ctx)
        world.pending["flush"] = [{"qp": 3, "index": 4, "drain": 0}, {"qp": 3, "index": 6, "drain": 0}]

    world = run(script)
    assert world.statuses(3)[1:] == [(k, WcStatus.WR_FLUSH_ERR, Syndrome.FLUSHED) for k in (3, 4, 5)]
    assert world.out["error"] == [{"qp": 3, "event": 254}]


def test_failure_of_complete():
    """What is complete cannot fail any more: the queue goes back, and that is not counted."""

    async def script(world, ctx):
        await world.start(ctx, 0, retry_count=0)
        for _ in range(3):
            await world.send(ctx, 0)
        world.ack(0, 0)
        world.ack(0, 1)
        await world.settle(ctx)
        for index in (0, 1, 0, 1):
            world.pending["failed_transmitter"].append({"qp": 0, "wqe_index": index, "status": 4, "syndrome": 1})
        await world.settle(ctx)
        assert world.counts["retries"] == 4
        world.ack(0, 2)

    world = run(script)
    assert world.statuses(0) == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert world.out["error"] == []


def test_failure_kept_for_flush():
    async def script(world, ctx):
        await world.start(ctx, 3)
        await world.send(ctx, 3)
        await world.state(ctx, 3, QpState.ERR)
        world.pending["failed_transmitter"] = [{"qp": 3, "wqe_index": 1, "status": 4, "syndrome": 3}]
        await world.settle(ctx)
        world.pending["flush"] = [{"qp": 3, "index": 3, "drain": 0}]

    world = run(script)
    flushed = (WcStatus.WR_FLUSH_ERR, Syndrome.FLUSHED)
    assert world.statuses(3) == [(0, *flushed), (1, 4, 3), (2, *flushed)]
    assert world.out["error"] == []


def test_departed():
    """What has departed is complete, with all before it; it is no ACK, and credits stay as they are."""

    async def script(world, ctx):
        await world.start(ctx, 2, PSNS - 2)
        for packets, signaled in (1, 1), (3, 0), (2, 1), (1, 1):
            await world.send(ctx, 2, packets, signaled=signaled)
        world.ack(2, PSNS - 2, 5, 77)  # the credits of an earlier life
        await world.settle(ctx)
        before = dict(world.progress[2])
        assert before["limited"]
        world.depart(2, 1)
        world.depart(2, 3)
        await world.settle(ctx)
        assert world.statuses(2) == [(0, 0, 0), (2, 0, 0)]
        assert world.progress[2] == before | {"oldest": 3, "unacked": 4, "first": 4}
        world.depart(2, 4)
        await world.settle(ctx)
        assert world.statuses(2) == [(0, 0, 0), (2, 0, 0), (3, 0, 0)]

    world = run(script)
    assert world.counts == dict.fromkeys(world.counts, 0) | {"rx_acks": 1}
    assert world.out["error"] == []


def test_departed_of_nobody():
    """Outside what is outstanding, in ERR, or when the QP is dead, it does nothing; and no response was dropped."""

    async def script(world, ctx):
        for qp in (0, 1, 3):
            await world.start(ctx, qp, 100)
        world.depart(0, 100)  # nothing was sent
        await world.send(ctx, 0, 2)
        for psn in (99, 102, 100 + PSNS // 2):
            world.depart(0, psn)
        await world.send(ctx, 1)
        await world.state(ctx, 1, QpState.ERR)
        world.depart(1, 100)
        for _ in range(2):
            await world.send(ctx, 3)
        world.pending["failed_transmitter"] = [{"qp": 3, "wqe_index": 0, "status": 4, "syndrome": 1}]
        await world.settle(ctx)
        world.depart(3, 101)
        await world.settle(ctx)
        assert [world.statuses(qp) for qp in (0, 1, 3)] == [[], [], [(0, 4, 1)]]
        world.depart(0, 101)

    world = run(script)
    assert world.statuses(0) == [(0, 0, 0)]
    assert world.counts == dict.fromkeys(world.counts, 0)


@pytest.mark.parametrize("early", [False, True])
def test_failure_before_departed(early):
    """What is before the WQE that has failed succeeds when it departs, or has; what is behind it does not, though it
    has departed, too."""

    async def script(world, ctx):
        await world.start(ctx, 1, 10)
        for _ in range(4):
            await world.send(ctx, 1)
        if not early:
            world.depart(1, 10)
            world.depart(1, 11)
            await world.settle(ctx)
        world.pending["failed_transmitter"] = [{"qp": 1, "wqe_index": 2, "status": 4, "syndrome": 1}]
        await world.settle(ctx)
        assert len(world.statuses(1)) == (0 if early else 3)
        world.depart(1, 13)

    world = run(script)
    assert world.statuses(1) == [(0, 0, 0), (1, 0, 0), (2, 4, 1)]
    assert world.out["error"] == [{"qp": 1, "event": 254}]


@pytest.mark.parametrize("delay", range(0, 40, 3))
def test_error_once_more(delay, monkeypatch):
    """A host moves a QP to ERR that has gone there by itself: its WQEs are being flushed while its attributes are
    written, and each completion goes to the CQ of its queue all the same."""
    tear(monkeypatch)

    async def script(world, ctx):
        await world.start(ctx, 3)
        await world.send(ctx, 3)
        world.ack(3, 0, 0x62)
        await world.settle(ctx)
        await world.state(ctx, 3, QpState.ERR)
        world.pending["flush"] = [{"qp": 3, "index": 20, "drain": 0}]
        for _ in range(delay):
            await world.tick(ctx)
        await world.state(ctx, 3, QpState.ERR)

    world = run(script, stall=0.2, alone=True)
    flushed = [(k, WcStatus.WR_FLUSH_ERR, Syndrome.FLUSHED) for k in range(1, 20)]
    assert world.statuses(3) == [(0, WcStatus.REM_ACCESS_ERR, Syndrome.REMOTE_NAK), *flushed]
    assert {item["cq"] for item in world.out["completion"]} == {103}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
def test_drain(late, resumed):
    """Drained is said once: now, or when the last message that was begun is complete; not if the queue goes on."""

    async def script(world, ctx):
        await world.start(ctx, 1)
        await world.send(ctx, 1)
        await world.state(ctx, 1, QpState.SQD)
        if not late:
            world.ack(1, 0)
        await world.settle(ctx)
        world.pending["flush"].append({"qp": 1, "index": 1, "drain": 1})
        await world.settle(ctx)
        if resumed:
            world.control(1, QpAction.RESUME)
            await world.settle(ctx)
        if late:
            world.ack(1, 0)
            await world.settle(ctx)
        world.control(1, QpAction.RESUME)
        await world.state(ctx, 1, QpState.RTS)
        await world.send(ctx, 1)
        world.ack(1, 1)

    world = run(script)
    assert world.out["error"] == ([] if resumed and late else [{"qp": 1, "event": 5}])
    assert world.statuses(1) == [(0, 0, 0), (1, 0, 0)]


def test_reset():
    """A new life begins at 0, whatever the old one waited for, and hears nothing of it."""

    async def script(world, ctx):
        for number in range(4):
            await world.start(ctx, 1, 50)
            await world.send(ctx, 1)
            await world.send(ctx, 1, 2, SendOpcode.RDMA_READ)
            if number == 0:
                world.ack(1, 51, 0x20)  # waits
            elif number == 1:
                world.pending["failed_requester"].append({"qp": 1, "wqe_index": 1, "status": 2, "syndrome": 2})
            elif number == 2:
                world.ack(1, 51, 0x62)
            else:
                await world.state(ctx, 1, QpState.SQD)
                world.pending["flush"].append({"qp": 1, "index": 2, "drain": 1})
            await world.settle(ctx)
            generation = world.model.queues[1].generation
            await world.state(ctx, 1, QpState.RESET)
            world.control(1, QpAction.RESET)
            world.respond(1, Kind.DATA, 51, wqe_index=1)
            world.respond(1, Kind.TOKEN)
            await world.settle(ctx)
            await world.start(ctx, 1, 50)
            world.control(1, QpAction.QUERY)
            await world.send(ctx, 1)
            world.pending["fired"].append({"qp": 1, "generation": generation % 16})
            await world.settle(ctx)
            world.ack(1, 50)
            await world.settle(ctx)

    world = run(script)
    assert world.tokens == 4
    assert world.out["reply"] == [{"index": 0}] * 4
    assert world.counts["retries"] == 0


def test_query_does_not_block():
    """While a reply is not taken, a further QUERY waits, and all else goes on."""
    world = World(make_rng())
    dut = world.dut

    async def testbench(ctx):
        await world.start(ctx, 0)
        await world.send(ctx, 0)
        for name in OUTPUTS:
            ctx.set(getattr(dut, name).ready, 0)
        for taken in (True, False):
            ctx.set(dut.control.payload, {"qp": 0, "action": QpAction.QUERY})
            ctx.set(dut.control.valid, 1)
            readies = [(await ctx.tick().sample(dut.control.ready))[2] for _ in range(10)]
            assert any(readies) == taken
            if taken:
                ctx.set(dut.control.valid, 0)
        assert ctx.get(dut.reply.valid)
        ctx.set(dut.job.payload, {"qp": 0, "kind": Kind.ACK, "psn": 0, "syndrome": 0x1F})
        ctx.set(dut.job.valid, 1)
        ctx.set(dut.done.valid, 1)
        for _ in range(12):
            await ctx.tick()
        assert ctx.get(dut.completion.valid)

    world.run(testbench)


def test_cycles():
    """An ACK takes 5 cycles and 3 for each message; a completion comes 8 cycles after the job was taken."""
    counts = [0, 1, 2, 5, 8]
    world = World(make_rng(1), stall=0, window=16)

    async def testbench(ctx):
        await world.start(ctx, 0)
        await world.start(ctx, 1)
        for count in counts:
            for _ in range(count + 1):
                await world.send(ctx, 0)
            queue = world.model.queues[0]
            world.ack(0, queue.acked + count - 1 if count else PSNS - 1)
            world.ack(1, 0)
            world.ack(1, 0)
            world.respond(1, Kind.NOTHING)
            world.respond(1, Kind.TOKEN)
            world.respond(1, Kind.NOTHING)
            await world.settle(ctx)
            world.ack(0, queue.psn - 1)
            await world.settle(ctx)
        await world.send(ctx, 1, opcode=SendOpcode.ATOMIC_FETCH_AND_ADD)
        world.respond(1, Kind.DATA, 0)
        await world.settle(ctx)

    world.run(testbench)
    cycles = [cycle for cycle, name in world.taken if name == "job"]
    for number, count in enumerate(counts):
        first, second, third, *fleeting, _ = cycles[7 * number : 7 * number + 7]
        assert second - first == 4  # it is fetched while the first one is dealt with
        assert third - second == 5 + 3 * count
        assert fleeting == [third + 2, third + 5, third + 7]  # the second one is an event, and waits for the third ACK
    last = max(cycle for cycle, name in world.given if name == "completion")
    assert last - cycles[-1] == 8


def test_cycles_of_departed():
    """As many as an ACK of one message takes: 8, and the next one is fetched meanwhile."""
    world = World(make_rng(1), stall=0)

    async def testbench(ctx):
        await world.start(ctx, 0)
        for _ in range(5):
            await world.send(ctx, 0)
        for psn in range(5):
            world.depart(0, psn)
        await world.settle(ctx)

    world.run(testbench)
    cycles = [cycle for cycle, name in world.taken if name == "departed"]
    assert [b - a for a, b in pairwise(cycles)] == [4, 8, 8, 8]
    completions = [cycle for cycle, name in world.given if name == "completion"]
    assert [b - a for a, b in pairwise(completions)] == [8] * 4
    assert completions[0] - cycles[0] == 8


@pytest.mark.parametrize("arguments", [{"qps": 3}, {"qps": 4, "window": 12}, {"qps": 4, "window": 1 << 15}])
def test_arguments(arguments):
    with pytest.raises(ValueError, match="not "):
        Completer(**arguments)
