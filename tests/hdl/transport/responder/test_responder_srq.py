"""The responder with shared receive queues: each rule by hand, and messages at random against rules in Python."""

from itertools import pairwise

import pytest
from receive_world import (
    MASK24,
    SEND_FIRST,
    SEND_LAST,
    SEND_LAST_IMM,
    SEND_MIDDLE,
    SEND_ONLY,
    SEND_ONLY_IMM,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_LAST_IMM,
    WRITE_MIDDLE,
    WRITE_ONLY,
    WRITE_ONLY_IMM,
)
from responder_world import QPS
from shared_world import SRQS, SharedWorld
from streams import send_all
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState, QpType
from verbena.hdl.stream.transfer import Passage

BIG = [(0x1000, 4096, 0xAA01)]
THREE = [(0x1000, 100, 1), (0x2000, 300, 2), (0x3000, 5000, 3)]
ALL_UC = [{"type": QpType.UC}] * QPS


async def says(packet, **wanted):
    job = await packet
    for name, value in wanted.items():
        assert job.get(name, 0) == value, (name, job)


@pytest.mark.parametrize("stall", [0, 0.3])
def test_wqes_are_taken_in_order_whoever_takes_them(stall):
    """With the first packet of a SEND; messages that go on meanwhile have theirs. A WRITE has none."""
    world = SharedWorld((0, 0, 0, 1), stall=stall)

    async def script(ctx):
        for qp in range(QPS):
            await world.connect(ctx, qp, 100)
        first, second, third, fourth = [world.ring.post_shared(0, BIG) for _ in range(4)]
        other = world.ring.post_shared(1, BIG)
        await says(world.packet(ctx, 0, SEND_FIRST, 256), wqe_index=first, complete=0, syndrome=31)
        await says(world.packet(ctx, 1, SEND_FIRST, 256), wqe_index=second, complete=0, syndrome=31)
        await says(world.packet(ctx, 1, SEND_LAST, 8), wqe_index=second, complete=1, byte_length=264)
        await says(world.packet(ctx, 2, WRITE_ONLY, 8, dma_length=8), complete=0, syndrome=31)
        await says(world.packet(ctx, 2, SEND_ONLY, 8), wqe_index=third, complete=1)
        await says(world.packet(ctx, 3, SEND_ONLY, 8), wqe_index=other, complete=1)
        await says(world.packet(ctx, 0, SEND_LAST_IMM, 8, immediate=5), wqe_index=first, complete=1, immediate=5)
        await says(world.packet(ctx, 0, SEND_ONLY_IMM, 0), wqe_index=fourth, complete=1, byte_length=0)

    world.simulate(script)
    assert world.ring.points == []


def test_a_write_takes_one_with_its_last_packet():
    world = SharedWorld()

    async def script(ctx):
        for qp in (0, 1):
            await world.connect(ctx, qp, 100)
        first, second, third = [world.ring.post_shared(0, []) for _ in range(3)]
        write = {"dma_length": 600, "address": 0x7000, "rkey": 9}
        await says(world.packet(ctx, 0, WRITE_FIRST, 256, **write), complete=0)
        await says(world.packet(ctx, 0, WRITE_MIDDLE, 256), complete=0)
        await says(world.packet(ctx, 1, WRITE_ONLY_IMM, 8, dma_length=8), complete=1, wqe_index=first, opcode=129)
        await says(world.packet(ctx, 0, WRITE_LAST_IMM, 88), complete=1, wqe_index=second, byte_length=600, syndrome=31)
        await says(world.packet(ctx, 0, WRITE_FIRST, 256, **write), complete=0)
        await says(world.packet(ctx, 0, WRITE_MIDDLE, 256), complete=0)
        await says(world.packet(ctx, 0, WRITE_LAST, 88), complete=0)
        await says(world.packet(ctx, 0, WRITE_ONLY_IMM), complete=1, wqe_index=third)

    world.simulate(script)


def test_an_empty_queue():
    """RNR NAK; nothing is taken, and what comes again finds what was posted meanwhile."""
    world = SharedWorld()

    async def script(ctx):
        for qp in (0, 1):
            await world.connect(ctx, qp, 100)
        for opcode in (SEND_ONLY, SEND_FIRST, WRITE_ONLY_IMM):
            await says(world.packet(ctx, 0, opcode, 256, dma_length=256), syndrome=0x20 | 12, fatal=0, complete=0)
            await says(world.packet(ctx, 0, WRITE_ONLY, psn=101), silent=1)
        await says(world.packet(ctx, 1, WRITE_FIRST, 256, dma_length=300), syndrome=31)
        await says(world.packet(ctx, 1, WRITE_LAST_IMM, 44), syndrome=0x20 | 12, complete=0)
        first, second = [world.ring.post_shared(0, BIG) for _ in range(2)]
        await says(world.packet(ctx, 1, WRITE_LAST_IMM, 44), complete=1, wqe_index=first)
        await says(world.packet(ctx, 0, SEND_ONLY, 8), complete=1, wqe_index=second)
        await says(world.packet(ctx, 0, SEND_ONLY, 8), syndrome=0x20 | 12)

    world.simulate(script)


@pytest.mark.parametrize("stall", [0, 0.3])
def test_a_message_that_goes_on_in_further_entries(stall):
    """The QP's own ring is set to its WQE once, with the first packet that the entry does not hold."""
    world = SharedWorld(shared_strides=(7, 6), stall=stall)

    async def script(ctx):
        for qp in (0, 1):
            await world.connect(ctx, qp, 100)
        # The first packet takes two entries of the three, of the WQE in the shared ring.
        first = world.ring.post_shared(0, THREE)
        second = world.ring.post_shared(0, [(0x7000, 0, 9), (0x8000, 256, 8), (0, 0, 0), (0x9000, 20, 7), (0, 600, 6)])
        await says(world.packet(ctx, 0, SEND_FIRST, 256), wqe_index=first)
        await says(world.packet(ctx, 1, SEND_FIRST, 256), wqe_index=second)
        assert world.ring.points == []
        await says(world.packet(ctx, 0, SEND_MIDDLE, 256), wqe_index=first)
        assert world.ring.points == [(0, first)]
        await says(world.packet(ctx, 1, SEND_MIDDLE, 256), wqe_index=second)
        assert world.ring.points == [(0, first), (1, second)]
        for _ in range(3):
            await says(world.packet(ctx, 0, SEND_MIDDLE, 256), wqe_index=first)
        await says(world.packet(ctx, 1, SEND_LAST, 256), wqe_index=second, complete=1, byte_length=768)
        await says(world.packet(ctx, 0, SEND_LAST, 9), wqe_index=first, complete=1, byte_length=256 * 5 + 9)
        assert world.ring.at[:2] == [None, None]
        # One that its first entry holds needs it no more.
        third = world.ring.post_shared(0, THREE[::-1])
        await says(world.packet(ctx, 1, SEND_FIRST, 256), wqe_index=third)
        await says(world.packet(ctx, 1, SEND_MIDDLE, 256), wqe_index=third)
        await says(world.packet(ctx, 1, SEND_LAST, 256), wqe_index=third, complete=1)

    world.simulate(script)
    assert len(world.ring.points) == 2


def test_a_wqe_of_the_table_was_forgotten():
    """It is set there, and what was read of it has made room: it is asked for, by the QP's number."""
    world = SharedWorld()

    async def script(ctx):
        await world.connect(ctx, 1, 100)
        number = world.ring.post_shared(0, THREE)
        await world.packet(ctx, 1, SEND_FIRST, 256)
        await world.packet(ctx, 1, SEND_MIDDLE, 256)
        await world.packet(ctx, 1, SEND_MIDDLE, 256)
        assert world.ring.points == [(1, number)]
        # The third entry still has room; then the WQE is read again, for one that does not fit.
        world.ring.forget(1)
        for _ in range(18):
            await world.packet(ctx, 1, SEND_MIDDLE, 256)
        await says(world.packet(ctx, 1, SEND_LAST, 256), complete=1, wqe_index=number, status=1)

    world.simulate(script)
    assert len(world.ring.points) == 1


@pytest.mark.parametrize("where", ["shared", "own"])
def test_waits_for_a_fetch(where):
    """What is posted, or was set, and has not come is asked for: by the number of its ring."""
    world = SharedWorld((1,) * QPS)
    wanted = []

    async def script(ctx):
        await world.connect(ctx, 2, 7)
        world.ring.post_shared(1, THREE)
        if where == "own":
            await world.packet(ctx, 2, SEND_FIRST, 256)
        world.ring.frozen = True
        if where == "shared":
            world.ring.forget(QPS + 1)
        opcode = SEND_MIDDLE if where == "own" else SEND_FIRST
        packet = {"opcode": opcode, "psn": world.rules[2].epsn, "length": 256, "ack_request": 1}
        await send_all(ctx, world.dut.request, [{"transport": packet, "qp": 2, "accept": 1}])
        await world.settle(ctx, 0)
        for _ in range(40):
            _, _, valid, ring = await ctx.tick().sample(world.dut.wanted.valid, world.dut.wanted.payload)
            if valid:
                wanted.append(ring)
        world.ring.frozen = False
        world.expected.append((2, *world.rules[2].packet(packet | {"solicited": 0})))
        world.sent += 1
        await world.settle(ctx)
        await says(world.packet(ctx, 2, SEND_LAST, 256), complete=1)

    world.simulate(script)
    assert set(wanted) == {2 if where == "own" else QPS + 1}
    assert 10 < len(wanted) <= 20


@pytest.mark.parametrize("first", [SEND_ONLY, SEND_FIRST])
def test_a_message_that_is_too_long(first):
    """Its WQE completes with LOC_LEN_ERR, and is consumed, whether it was taken now or before, and found."""
    world = SharedWorld()

    async def script(ctx):
        await world.connect(ctx, 0, 100)
        entries = [(0x1000, 200, 1), (0x2000, 55, 2), (0x3000, 100, 3)]
        number = world.ring.post_shared(0, entries[:2] if first == SEND_ONLY else entries)
        if first == SEND_FIRST:
            await says(world.packet(ctx, 0, SEND_FIRST, 256), wqe_index=number)
        end = SEND_ONLY if first == SEND_ONLY else SEND_LAST
        blamed = {"complete": 1, "status": 1, "cause": 21, "wqe_index": number}
        await says(world.packet(ctx, 0, end, 256), syndrome=0x61, fatal=1, event=255, **blamed)
        await says(world.packet(ctx, 0, SEND_ONLY, 8), silent=1, cause=20)
        # It has nothing more.
        await world.fail(ctx, 0)
        await world.connect(ctx, 0, 5)
        assert world.ring.at[0] is None

    world.simulate(script)
    assert len(world.ring.points) == (first == SEND_FIRST)


@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize("end", ["ERR", "RESET"])
def test_a_qp_ends_with_a_wqe(end, found):
    """It completes with WR_FLUSH_ERR, by its number; what is posted stays for others."""
    world = SharedWorld()

    async def script(ctx):
        for qp in (0, 1):
            await world.connect(ctx, qp, 100)
        number = world.ring.post_shared(0, THREE)
        for _ in range(3):
            world.ring.post_shared(0, BIG)
        await world.packet(ctx, 0, SEND_FIRST, 256)
        if found:
            await world.packet(ctx, 0, SEND_MIDDLE, 256)
            # It is in ERR because a length was wrong; that tells of no WQE.
            await says(world.packet(ctx, 0, SEND_MIDDLE, 8), fatal=1, syndrome=0x61, complete=0, event=2)
        assert world.rules[0].held == number
        if end == "ERR":
            await world.fail(ctx, 0)
            await says(world.packet(ctx, 0, SEND_ONLY, 8), silent=1)
        await world.connect(ctx, 0, 7)
        await world.settle(ctx)
        assert world.ring.consumed[QPS] == 1
        for qp in (0, 1):
            await says(world.packet(ctx, qp, SEND_ONLY, 8), complete=1)

    world.simulate(script)
    token = [job for job in world.jobs if job.token][-1]
    assert (token.complete, token.complete and token.status) == ((0, 0) if end == "ERR" else (1, 5))
    assert len(world.ring.points) == found


def test_a_qp_in_err_says_once_that_it_takes_no_more():
    """Also if it has nothing, and whatever arrives for it afterwards; in its next life again."""
    world = SharedWorld((0, 0, 1, 1))

    async def script(ctx):
        for qp in (0, 2):
            await world.connect(ctx, qp, 100)
        for _ in range(3):
            world.ring.post_shared(0, BIG)
        for life in range(2):
            await world.fail(ctx, 0)
            for _ in range(3):
                world.ring.arrivals += [0, QPS, QPS + 1]
                await world.settle(ctx)
            await world.control(ctx, 0, QpAction.ERROR)
            await world.settle(ctx)
            await world.connect(ctx, 0, 5 + life)
            await world.packet(ctx, 0, SEND_ONLY, 8)
        await world.fail(ctx, 2)

    world.simulate(script)
    assert [job.qp for job in world.jobs if job["last"]] == [0, 0, 2]


def test_an_srq_in_error():
    """A QP that needs a WQE dies, without a completion; the event tells of the SRQ. Who has one goes on."""
    world = SharedWorld((0, 0, 0, 1))

    async def script(ctx):
        for qp in range(QPS):
            await world.connect(ctx, qp, 100)
        number = world.ring.post_shared(0, BIG)
        await world.packet(ctx, 0, SEND_FIRST, 256)
        world.ring.frozen = True
        world.ring.post_shared(0, BIG)
        world.ring.errors[QPS] = 1
        fatal = {"fatal": 1, "syndrome": 0x63, "event": 1, "complete": 0}
        await says(world.packet(ctx, 1, WRITE_ONLY, 8, dma_length=8), fatal=0)
        await says(world.packet(ctx, 1, SEND_ONLY, 8), **fatal)
        await says(world.packet(ctx, 2, WRITE_ONLY_IMM, 8, dma_length=8), **fatal)
        world.ring.frozen = False
        await says(world.packet(ctx, 0, SEND_LAST, 256), complete=1, wqe_index=number)
        world.ring.post_shared(1, BIG)
        await says(world.packet(ctx, 3, SEND_ONLY, 8), complete=1)
        await world.fail(ctx, 1)
        await world.settle(ctx)

    world.simulate(script)
    assert [event.number for event in world.events] == [0, 0]
    assert world.ring.consumed[QPS] == 1


def test_an_srq_in_error_with_wqes_on_chip():
    """They are taken and consumed as ever. If they have to make room, those that are left do not come again."""
    world = SharedWorld()

    async def script(ctx):
        for qp in (0, 1, 2):
            await world.connect(ctx, qp, 100)
        numbers = [world.ring.post_shared(0, BIG) for _ in range(3)]
        while world.ring.fetched[QPS] < 2:
            await ctx.tick()
        world.ring.errors[QPS] = 1
        for qp in (0, 1):
            await says(world.packet(ctx, qp, SEND_ONLY, 8), complete=1, wqe_index=numbers[qp])
        world.ring.forget(QPS)
        await says(world.packet(ctx, 2, SEND_ONLY, 8), fatal=1, syndrome=0x63, complete=0)

    world.simulate(script)


def test_a_table_that_cannot_be_read():
    """The WQE that the QP has completes with an error; the SRQ is whole, and has no event."""
    world = SharedWorld()

    async def script(ctx):
        for qp in (0, 1):
            await world.connect(ctx, qp, 100)
        number = world.ring.post_shared(0, THREE)
        world.ring.post_shared(0, THREE)
        await world.packet(ctx, 0, SEND_FIRST, 256)
        world.ring.unreadable = 1
        blamed = {"complete": 1, "status": 2, "cause": 22, "wqe_index": number}
        await says(world.packet(ctx, 0, SEND_MIDDLE, 256), fatal=1, syndrome=0x63, event=1, **blamed)
        world.ring.unreadable = 0
        await says(world.packet(ctx, 1, SEND_ONLY, 256), complete=1)
        await world.fail(ctx, 0)
        await world.connect(ctx, 0, 5)
        assert world.ring.at[0] is None

    world.simulate(script)
    assert world.events == []


def test_limits():
    """At each take, if fewer are left; once, until it is set again."""
    world = SharedWorld((0, 0, 1, 1))

    async def script(ctx):
        for qp in range(QPS):
            await world.connect(ctx, qp, 100)
        for _ in range(8):
            world.ring.post_shared(0, BIG)
            world.ring.post_shared(1, BIG)
        await world.limit(ctx, 0, 6)
        counts = []
        for number in range(4):
            await world.packet(
                ctx,
                number % 2,
                (SEND_ONLY, SEND_FIRST, WRITE_ONLY_IMM, SEND_LAST)[number],
                [8, 256, 8, 8][number],
                dma_length=8,
            )
            await world.packet(ctx, 2, SEND_ONLY, 8)
            await world.settle(ctx)
            counts.append(len(world.events))
        assert counts == [0, 0, 1, 1]  # 7, 6, 5 are left; one was taken by nobody
        await world.limit(ctx, 0, 5)
        await world.packet(ctx, 0, SEND_ONLY, 8)
        await world.settle(ctx)
        assert len(world.events) == 2
        await world.limit(ctx, 0, 4)
        await says(world.packet(ctx, 0, SEND_ONLY, 257), fatal=1)  # lengths are wrong: it takes none
        await world.settle(ctx)
        assert len(world.events) == 2

    world.simulate(script)


def test_messages_of_uc():
    """What was taken for a message that is dropped serves the next one; nothing is taken for one that is dropped at
    once."""
    world = SharedWorld(values=ALL_UC)

    async def script(ctx):
        lost, unserved = {"silent": 1, "cause": 0}, {"silent": 1, "cause": 20}
        for qp in (0, 1):
            await world.connect(ctx, qp, 100)
        await says(world.packet(ctx, 0, SEND_ONLY, 8), **unserved)
        await says(world.packet(ctx, 0, WRITE_ONLY_IMM, 8, dma_length=8), **unserved)
        first = world.ring.post_shared(0, [(0x1000, 300, 1)])
        second = world.ring.post_shared(0, THREE)
        # Too long, or of a wrong length: it stays.
        await says(world.packet(ctx, 0, SEND_FIRST, 255), **unserved)
        await says(world.packet(ctx, 0, WRITE_ONLY_IMM, 8, dma_length=9), **unserved)
        await says(world.packet(ctx, 1, SEND_FIRST, 256), wqe_index=first)
        await says(world.packet(ctx, 1, SEND_LAST, 256), **unserved)
        await says(world.packet(ctx, 1, SEND_LAST, 256), **lost)
        await says(world.packet(ctx, 0, SEND_ONLY, 8), wqe_index=second, complete=1)
        # It serves a message from its beginning on, read from the table.
        await says(world.packet(ctx, 1, SEND_FIRST, 256), wqe_index=first, complete=0)
        assert world.ring.points == [(1, first)]
        await says(world.packet(ctx, 1, SEND_LAST, 44, psn=500), **lost)
        await says(world.packet(ctx, 1, SEND_ONLY, 256), wqe_index=first, complete=1)
        assert world.ring.points == [(1, first)]
        # A WRITE gets it without being read.
        third = world.ring.post_shared(0, THREE)
        await says(world.packet(ctx, 0, SEND_FIRST, 256), wqe_index=third)
        await says(world.packet(ctx, 0, WRITE_FIRST, 256, dma_length=300, psn=900))
        await says(world.packet(ctx, 0, WRITE_LAST_IMM, 44), complete=1, wqe_index=third, opcode=129, byte_length=300)
        assert world.ring.points == [(1, first)]
        # The queue is empty, but this QP has one; then it goes away with it.
        fourth = world.ring.post_shared(0, THREE)
        await says(world.packet(ctx, 1, SEND_FIRST, 256), wqe_index=fourth)
        await says(world.packet(ctx, 0, SEND_ONLY, 8), **unserved)
        await says(world.packet(ctx, 1, WRITE_ONLY, 8, dma_length=8), complete=0)
        await says(world.packet(ctx, 1, SEND_ONLY, 200), complete=1, wqe_index=fourth)
        fifth = world.ring.post_shared(0, THREE)
        await says(world.packet(ctx, 1, SEND_FIRST, 256), wqe_index=fifth)
        await says(world.packet(ctx, 1, SEND_MIDDLE, 255), **unserved)
        await world.fail(ctx, 1)
        await world.connect(ctx, 1, 9)

    world.simulate(script)
    assert [job.qp for job in world.jobs if job.complete and job.status] == [1]


def test_datagrams():
    """40 bytes of the WQE stay free and count; without one, or too long, a datagram is dropped and takes none."""
    qkey = 0x1111_0001
    world = SharedWorld(values=[{"type": QpType.UD, "qkey": qkey}] * QPS)
    world.dropped["sequence"] = 0

    async def script(ctx):
        async def datagram(qp, length, opcode=SEND_ONLY):
            transport = {"opcode": 0x60 | opcode, "psn": 1, "length": length, "address": qkey << 32 | 0x4321}
            await send_all(ctx, world.dut.request, [{"transport": transport, "qp": qp, "accept": 1}])
            world.sent += 1
            while len(world.cycles) < world.sent:
                await ctx.tick()
            return world.jobs[-1]

        for qp in (0, 1):
            await world.connect(ctx, qp, 100)
        await world.settle(ctx, 0)
        job = await datagram(0, 8)
        assert (job.silent, job.complete) == (1, 0)
        numbers = [world.ring.post_shared(0, entries) for entries in ([(0x1000, 40, 1), (0x2000, 60, 2)], THREE)]
        job = await datagram(0, 61)
        assert (job.silent, job.complete, job.cause) == (1, 0, 20)
        job = await datagram(1, 60)
        assert (job.silent, job.complete, job.wqe_index, job.byte_length) == (0, 1, numbers[0], 100)
        assert (job.flags, job.source_qpn) == (1, 0x4321)
        job = await datagram(0, 200, SEND_ONLY_IMM)
        assert (job.complete, job.wqe_index, job.byte_length, job.flags) == (1, numbers[1], 240, 3)
        assert (await datagram(0, 8)).silent
        world.heads[0] = 2
        runs.append(world.accesses[-5:])

    runs = []
    world.check = lambda: None
    world.simulate(script)
    moves = [(a.key, a.address, a.length) for a in world.accesses if a.length and not a.discard]
    # Of the first datagram a part went where it belongs before the rest did not fit.
    assert moves == [(2, 0x2000, 60), (2, 0x2000, 60), (1, 0x1028, 60), (2, 0x2000, 140)]


@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize("unreliable", [False, True])
def test_a_qp_with_a_wqe_is_away(unreliable, found):
    """Between the packets of its message, or after one that was dropped; others take theirs meanwhile."""
    world = SharedWorld(swaps=True, values=ALL_UC if unreliable else None)

    async def away(ctx):
        words = await world.save(ctx, 0)
        world.ring.post_shared(0, BIG)
        await says(world.packet(ctx, 1, SEND_ONLY, 8), complete=1)
        await world.load(ctx, 0, words)

    async def script(ctx):
        for qp in (0, 1):
            await world.connect(ctx, qp, 100)
        number = world.ring.post_shared(0, THREE)
        await world.packet(ctx, 0, SEND_FIRST, 256)
        await away(ctx)
        if found:
            await world.packet(ctx, 0, SEND_MIDDLE, 256)
            await away(ctx)
        if unreliable:
            await world.packet(ctx, 0, SEND_MIDDLE, 255)
            await away(ctx)
            await world.packet(ctx, 0, SEND_FIRST, 256)
            await away(ctx)
        await world.packet(ctx, 0, SEND_MIDDLE, 256)
        await away(ctx)
        await says(world.packet(ctx, 0, SEND_LAST, 100), complete=1, wqe_index=number)
        await away(ctx)
        await world.fail(ctx, 0)

    world.simulate(script)
    assert world.ring.points == [(0, world.ring.points[0][1])]


@pytest.mark.parametrize("found", [False, True])
def test_a_qp_in_err_is_away_before_it_has_flushed(found):
    """SAVE overtakes its flush: it wakes its keeper, until it has said that it takes no more."""
    world = SharedWorld(swaps=True)
    wakes = []

    async def save(ctx):
        await world.control(ctx, 0, QpAction.SAVE)
        world.expected.append((0, None, {"token": 1, "passage": Passage.SAVE}))
        while not (world.words and world.words[-1].last):
            await ctx.tick()
        wakes.append(world.words[-1].wake)
        words = [word.data for word in world.words]
        world.words.clear()
        return words

    async def script(ctx):
        await world.connect(ctx, 0, 100)
        world.ring.post_shared(0, THREE)
        await world.packet(ctx, 0, SEND_FIRST, 256)
        if found:
            await world.packet(ctx, 0, SEND_MIDDLE, 256)
        await save_and_load(ctx)
        await world.attribute(ctx, 0, whole=False, state=QpState.ERR)
        await world.control(ctx, 0, QpAction.ERROR)
        words = await save(ctx)
        await world.settle(ctx)
        await world.load(ctx, 0, words)
        world.expected.append((0, None, world.rules[0].flush() | {"cause": 20}))
        world.expected.append((0, None, {"last": 1, "event": 16}))
        await world.settle(ctx)
        await save_and_load(ctx)
        await world.settle(ctx)

    async def save_and_load(ctx):
        await world.load(ctx, 0, await save(ctx))

    world.simulate(script)
    assert wakes == [0, 1, 0]


CYCLES = {
    "WRITE": (WRITE_ONLY, 8, 6),
    "WRITE with immediate": (WRITE_ONLY_IMM, 8, 7),
    "SEND": (SEND_ONLY, 8, 10),
    "SEND of nothing": (SEND_ONLY, 0, 7),
    "SEND into 2 entries": (SEND_ONLY, 200, 16),
}


@pytest.mark.parametrize("name", CYCLES)
def test_cycles(name):
    """A cycle more for who takes a WQE, and one for the number in front of it."""
    opcode, length, cycles = CYCLES[name]
    world = SharedWorld()

    async def script(ctx):
        await world.connect(ctx, 0, 10)
        for _ in range(8):
            world.ring.post_shared(0, [(0, 100, 1), (0, 100, 1)])
        for _ in range(30):
            await ctx.tick()
        for _ in range(6):
            await world.packet(ctx, 0, opcode, length, wait=False, dma_length=length)

    world.simulate(script)
    assert {b - a for a, b in pairwise(world.cycles)} == {cycles}


def random_entries(rng, stride, sizes):
    """They fit most messages, and seldom do not."""
    count = rng.randint(1, (1 << (stride - 4)) - 1)
    entries = [(rng.getrandbits(64), rng.choice(sizes), rng.getrandbits(32)) for _ in range(count)]
    if rng.random() < 0.9:
        entries[-1] = (entries[-1][0], rng.choice([1 << 31, 50_000]), entries[-1][2])
    return entries


def random_message(rng, mtu):
    """(opcode, length, more) of its packets."""
    write, immediate = rng.random() < 0.35, rng.random() < 0.4
    count = rng.choice([1, 1, 2, 3, 5])
    tail = rng.choice([0, 1, mtu, rng.randint(1, mtu)]) if count == 1 else rng.randint(1, mtu)
    base = WRITE_FIRST if write else SEND_FIRST
    total = (count - 1) * mtu + tail + (rng.random() < 0.03)
    more = {"address": rng.getrandbits(64), "rkey": rng.getrandbits(32), "dma_length": total} if write else {}
    if count == 1:
        return [(base + 4 + immediate, tail, more)]
    return [(base, mtu, more)] + [(base + 1, mtu, {})] * (count - 2) + [(base + 2 + immediate, tail, {})]


WORLDS = [
    ((0, 0, 0, 0), ("RC", "RC", "RC", "RC"), False),
    ((0, 1, 0, 1), ("RC", "UC", "UC", "RC"), False),
    ((0, 1, None, 1), ("RC", "RC", "UC", "UC"), True),
    ((1, 1, 1, 0), ("UC", "UC", "RC", "RC"), True),
]


@pytest.mark.parametrize("count", [120, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stall", [0, 0.3])
@pytest.mark.parametrize("number", range(len(WORLDS)))
def test_random_messages(number, stall, count):
    """Of QPs that take turns, with all faults of a peer; WQEs that are forgotten, SRQs in error, limits, QPs in ERR, or
    away for a while."""
    srqn, types, swaps = WORLDS[number]
    values = [
        {"path_mtu": 1 + qp % 3, "pd": 77 + qp, "access": 2, "type": QpType[types[qp]], "min_rnr_timer": 3 + qp}
        for qp in range(QPS)
    ]
    strides = ((6, 7), (5, 6), (7, 7), (6, 5))[number]
    world = SharedWorld(srqn, shared_strides=strides, values=values, stall=stall, swaps=swaps)
    rng, ring, plans = world.rng, world.ring, [[] for _ in range(QPS)]
    seen = dict.fromkeys(("done", "held", "found", "flushed", "lapsed", "too long", "not ready", "error"), 0)
    wanted = set(seen) - {"flushed", "error"}

    def post():
        for qp, which in enumerate(srqn):
            if which is None:
                if rng.random() < 0.5 and len(ring.posted[qp]) - world.rules[qp].index < 8:
                    ring.post(qp, random_entries(rng, ring.strides[qp], [0, 1, 7, 512, 1024]))
            elif rng.random() < 0.3 and ring.free(which) < 8:
                ring.post_shared(which, random_entries(rng, ring.strides[QPS + which], [0, 1, 7, 256, 512, 1024]))

    async def connect(ctx, qp):
        seen["lapsed"] += getattr(world.rules[qp], "held", None) is not None
        await world.connect(ctx, qp, rng.choice([0, MASK24 - 3, rng.getrandbits(24)]))
        plans[qp] = []

    async def disturb(ctx, qp):
        which = srqn[qp]
        what = rng.random()
        if swaps and what < 0.2:
            await world.load(ctx, qp, await world.save(ctx, qp))
        elif what < 0.4:
            ring.forget(rng.randrange(QPS + SRQS))
        elif what < 0.45:
            await connect(ctx, qp)
        elif which is None:
            pass
        elif what < 0.5:
            seen["flushed"] += world.rules[qp].held is not None
            await world.fail(ctx, qp)
            await connect(ctx, qp)
        elif what < 0.7:
            await world.limit(ctx, which, rng.choice([0, 2, 5]))
        elif what < 0.8:
            if rng.random() < 0.5:
                ring.forget(QPS + which)
            ring.errors[QPS + which] = 1

    async def repair(ctx, which):
        """Nobody uses the SRQ while it is made anew."""
        for qp in range(QPS):
            if srqn[qp] == which:
                await connect(ctx, qp)
        await world.create(ctx, which, rng.choice([0, 3]))

    async def script(ctx):
        for qp in range(QPS):
            await connect(ctx, qp)
        steps = 0
        while steps < count or (count == 600 and not all(seen[name] for name in wanted) and steps < 4 * count):
            steps += 1
            qp = rng.randrange(QPS)
            rules = world.rules[qp]
            post()
            if rng.random() < 0.25:
                await disturb(ctx, qp)
            if srqn[qp] is not None and ring.errors[QPS + srqn[qp]] and rng.random() < 0.2:
                await repair(ctx, srqn[qp])
            if rules.dead and rng.random() < 0.5:
                await connect(ctx, qp)
            if not plans[qp]:
                plans[qp] = random_message(rng, rules.mtu)
            opcode, length, fields = plans[qp].pop(0)
            more = {name: rng.randrange(2) for name in ("ack_request", "solicited")}
            more |= {"immediate": rng.getrandbits(32)} | fields
            again = [(opcode, length, fields), *plans[qp]]
            fault = rng.random()
            if fault < 0.06:
                more["psn"] = rules.epsn + rng.choice([1, 2, 5, 1 << 22])
                plans[qp] = again if not rules.unreliable else plans[qp]
            elif fault < 0.12:
                more["psn"] = rules.epsn - rng.choice([1, 2, 5])
                plans[qp] = again if not rules.unreliable else plans[qp]
            elif fault < 0.14:
                opcode = rng.randrange(12)
            elif fault < 0.16:
                length = max(0, length + rng.choice([-1, 1, 500]))
            elif fault < 0.19:
                more["accept"] = 0
                plans[qp] = again
            elif fault < 0.22 and rules.unreliable:  # the rest of the message does not come
                plans[qp] = []
            ring.unreadable = int(rng.random() < 0.05)
            job = await world.packet(ctx, qp, opcode, length, **more)
            if job.get("syndrome", 0) & 0xE0 == 0x20:
                plans[qp] = again
                seen["not ready"] += 1
            seen["done"] += bool(job.get("complete"))
            seen["too long"] += job.get("status") == 1
            seen["error"] += job.get("syndrome") == 0x63
            seen["held"] += getattr(rules, "held", None) is not None
            seen["found"] += getattr(rules, "found", False)

    world.simulate(script, deadline=50_000 + 1200 * count)
    print(seen, len(world.events))
    assert seen["done"] > count // 10
    if count == 600:
        assert all(seen[name] for name in wanted), seen
