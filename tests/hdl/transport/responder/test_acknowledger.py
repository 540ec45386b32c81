"""The acknowledger: who is told what, once it is known how the payload fared."""

from itertools import pairwise

import pytest
from amaranth.back import rtlil
from streams import collect, make_rng, receive_all, send_all, shared, simulate
from verbena.hdl.stream.transfer import Passage
from verbena.hdl.transport.responder.acknowledger import Acknowledger

QPS = 4
ACK = 0x05
OK, KEY, PD, RANGE, RIGHTS, PAGE, POISONED, BUS = range(8)


def of_qp(job):
    """The job, with what the QP's context says."""
    return job | {"cq": 10 + job["qp"], "qpn": 0xABCDE0 + job["qp"], "source_qpn": 0x111111 * (1 + job["qp"])}


class World:
    """An acknowledger; ``say`` gives it a job with its verdict, and says what came of it."""

    def __init__(self, *, stall=0.0, acks=True, swaps=False, keys=False):
        self.rng = make_rng()
        self.stall = stall
        self.dut = shared(Acknowledger, QPS, swaps=swaps, keys=keys)
        self.acks = []
        self.completions = []
        self.errors = []
        self.releases = []
        self.tokens = 0
        self.drops = 0
        self.cycles = []
        self.take_acks = acks
        self.swaps = swaps
        self.words, self.hold_words = [], False
        self.offered = []  # a job that is shown while the script goes on

    def simulate(self, script, *background_too):
        dut = self.dut

        async def run(ctx):
            await script(ctx)
            for _ in range(40):
                await ctx.tick()

        async def count(ctx):
            cycle = 0
            async for _, _, token, drop, valid, ready in ctx.tick().sample(
                dut.token_done, dut.count_drop_error, dut.job.valid, dut.job.ready
            ):
                self.tokens += token
                self.drops += drop
                if valid and ready:
                    self.cycles.append(cycle)
                cycle += 1

        def collector(port, items):
            async def testbench(ctx):
                await collect(ctx, port, items, self.rng, self.stall)

            return testbench

        background = [
            count,
            collector(dut.completion, self.completions),
            collector(dut.error, self.errors),
        ]

        async def offer(ctx):
            while True:
                await ctx.tick()
                if self.offered:
                    await self.send(ctx, [(self.offered[0], OK)])
                    self.offered.pop()

        async def saved(ctx):
            while True:
                if self.hold_words:
                    await ctx.tick()
                else:
                    self.words += await receive_all(ctx, dut.saved, 1, self.rng, self.stall)

        if self.swaps:
            background += [saved, offer]
        background += background_too
        background.append(collector(dut.release, self.releases))
        if self.take_acks:
            background.append(collector(dut.ack, self.acks))
        simulate(dut, run, background=background, seed=self.rng.seed_value)

    async def send(self, ctx, jobs):
        """Gives ``(job, status)`` pairs, as fast as they are taken."""
        ctx.set(self.dut.done.valid, 1)
        for job, status in jobs:
            ctx.set(self.dut.done.payload, {"status": status})
            await send_all(ctx, self.dut.job, [of_qp(job)])
        ctx.set(self.dut.done.valid, 0)

    async def say(self, ctx, job, status=OK):
        """(acks, completions, errors) that one job brings."""
        for items in (self.acks, self.completions, self.errors):
            items.clear()
        await self.send(ctx, [(job, status)])
        for _ in range(20):
            await ctx.tick()
        return list(self.acks), list(self.completions), list(self.errors)


def simulate_alone(world, script, watch):
    """Runs a script beside nothing but what watches, and takes ACKs."""

    async def acks(ctx):
        ctx.set(world.dut.ack.ready, 1)
        async for _ in ctx.tick():
            pass

    simulate(world.dut, script, background=[watch, acks], seed=world.rng.seed_value)


def write(psn, **more):
    return {"qp": 1, "acknowledge": 1, "syndrome": ACK, "psn": psn, "msn": psn, "remote": 1, "event": 255} | more


def send(psn, index, **more):
    """The last packet of a SEND."""
    fields = {"receive": 1, "complete": 1, "wqe_index": index, "opcode": 128, "byte_length": 77, "remote": 0}
    return write(psn, **fields) | more


def flush(index):
    return {"qp": 1, "complete": 1, "status": 5, "cause": 20, "wqe_index": index, "event": 255}


TOKEN = {"qp": 1, "token": 1}


def told(acks):
    return [(ack.qp, ack.psn, ack.msn, ack.syndrome) for ack in acks]


def completed(completions):
    return [(c.wqe_index, c.status, c.syndrome) for c in completions]


def reported(errors):
    return [(e.qp, e.event) for e in errors]


def test_success():
    world = World()

    async def script(ctx):
        acks, completions, errors = await world.say(ctx, write(7))
        assert (told(acks), completions, errors) == ([(1, 7, 7, ACK)], [], [])
        acks, completions, errors = await world.say(ctx, write(7, acknowledge=0))
        assert (acks, completions, errors) == ([], [], [])
        source = {"ip": 0x0A0B0C0D, "traffic_class": 0xE1, "hop_limit": 0x3F}
        job = send(8, 3, flags=2, immediate=0x01020304, solicited=1, opcode=129, source=source)
        acks, (completion,), errors = await world.say(ctx, job)
        assert (told(acks), errors) == ([(1, 8, 8, ACK)], [])
        assert completion == {
            "cq": 11,
            "qp": 1,
            "qpn": 0xABCDE1,
            "source_qpn": 0x222222,
            "source": source,
            "wqe_index": 3,
            "opcode": 129,
            "status": 0,
            "syndrome": 0,
            "flags": 2,
            "immediate": 0x01020304,
            "byte_length": 77,
            "solicited": 1,
        }
        _, (completion,), _ = await world.say(ctx, send(9, 4, acknowledge=0))
        assert completion.solicited == 0
        assert await world.say(ctx, write(9, silent=1)) == ([], [], [])
        # NAKs that are not fatal; a duplicate.
        for syndrome in (0x60, 0x2C):
            acks, *rest = await world.say(ctx, write(9, syndrome=syndrome))
            assert (told(acks), rest) == ([(1, 9, 9, syndrome)], [[], []])
        acks, *rest = await world.say(ctx, write(8))
        assert (told(acks), rest) == ([(1, 8, 8, ACK)], [[], []])

    world.simulate(script)
    assert world.drops == 1  # the RNR NAK; sequence errors are counted elsewhere


# status of the run, job, NAK, completion (status, syndrome), event
REFUSALS = [
    *[(status, write(6), 0x62, None, 3) for status in (KEY, PD, RANGE, RIGHTS, PAGE)],
    (BUS, write(6), 0x63, None, 1),
    *[(status, send(6, 2), 0x63, (4, status), 255) for status in (KEY, PD, RANGE, RIGHTS, PAGE)],
    (BUS, send(6, 2), 0x63, (4, BUS), 1),
    (RIGHTS, send(6, 2, complete=0, acknowledge=0), 0x63, (4, RIGHTS), 255),  # its first packet
    (KEY, send(6, 2, remote=1, opcode=129), 0x62, (8, KEY), 3),  # WRITE with immediate
]


@pytest.mark.parametrize(("status", "job", "syndrome", "completion", "event"), REFUSALS)
def test_refused(status, job, syndrome, completion, event):
    """The error is said once; afterwards everything is flushed, each WQE once; a token ends it."""
    world = World()

    async def script(ctx):
        await world.say(ctx, write(5))
        acks, completions, errors = await world.say(ctx, job, status)
        assert told(acks) == [(1, 6, 5, syndrome)]
        assert completed(completions) == ([(2, *completion)] if completion else [])
        assert reported(errors) == [(1, event)]
        assert all(c.solicited for c in completions)
        # The rest of its message, or the next one, poisoned; a later message without payload; more refusals.
        index = 3 if completion and job["complete"] else 2
        acks, completions, errors = await world.say(ctx, send(7, index), POISONED)
        assert (acks, errors) == ([], [])
        assert completed(completions) == ([] if completion and index == 2 else [(index, 5, 20)])
        assert [completed(c) for c in (await world.say(ctx, send(8, 4)))] == [[], [(4, 5, 20)], []]
        assert await world.say(ctx, write(8), KEY) == ([], [], [])
        # What the responder finds wrong now comes too late.
        late = write(9, syndrome=0x61, fatal=1, event=2)
        assert await world.say(ctx, late) == ([], [], [])
        # The flush of what was not used.
        _, completions, _ = await world.say(ctx, flush(5))
        assert completed(completions) == [(5, 5, 20)]
        # Long after, the index of the WQE to blame comes round.
        _, completions, _ = await world.say(ctx, flush(2))
        assert completed(completions) == [(2, 5, 20)]
        # Other QPs live.
        acks, completions, errors = await world.say(ctx, write(100, qp=2))
        assert (told(acks), completions, errors) == ([(2, 100, 100, ACK)], [], [])
        assert world.tokens == 0
        assert await world.say(ctx, TOKEN) == ([], [], [])
        assert world.tokens == 1
        acks, completions, _ = await world.say(ctx, send(1, 2))
        assert (told(acks), completed(completions)) == ([(1, 1, 1, ACK)], [(2, 0, 0)])

    world.simulate(script)
    assert world.drops == 5


UC = {"unreliable": 1, "acknowledge": 0}
WITH_IMMEDIATE = {"remote": 1, "opcode": 129, "flags": 2}


@pytest.mark.parametrize("status", [KEY, PD, RANGE, RIGHTS, PAGE, POISONED])
def test_refused_of_uc(status):
    """Of the peer's key: the message is gone, the QP lives, and nobody is told but who waits for an immediate."""
    world = World()

    async def script(ctx):
        async def nothing(job, status=OK):
            assert await world.say(ctx, job | UC, status) == ([], [], [])

        await nothing(write(5))
        await nothing(write(6), status)
        await nothing(write(7), POISONED)
        acks, completions, errors = await world.say(ctx, send(8, 2, **WITH_IMMEDIATE) | UC, status)
        assert (acks, completed(completions), errors) == ([], [(2, 8, status)], [])
        assert completions[0].solicited
        # What follows is served, also what was taken for dropped.
        for job in (send(9, 3), send(10, 4, **WITH_IMMEDIATE)):
            acks, completions, errors = await world.say(ctx, job | UC)
            assert (acks, completed(completions), errors) == ([], [(job["wqe_index"], 0, 0)], [])
            assert not completions[0].solicited
        await nothing(write(11))
        # What the responder has dropped, it counts; but not what was lost before.
        await nothing(write(12, silent=1, cause=20))
        await nothing(write(12, silent=1), POISONED)
        # The host may flush it: nothing has failed.
        _, completions, errors = await world.say(ctx, flush(5))
        assert (completed(completions), errors) == ([(5, 5, 20)], [])

    world.simulate(script)
    assert world.drops == 4


# status of the run, job, completion (status, syndrome), event
REFUSALS_OF_UC = [
    *[(status, send(6, 2), (4, status), 255) for status in (KEY, PD, RANGE, RIGHTS, PAGE)],
    (RIGHTS, send(6, 2, complete=0), (4, RIGHTS), 255),  # its first packet
    (BUS, send(6, 2), (4, BUS), 1),
    (BUS, send(6, 2, **WITH_IMMEDIATE), (8, BUS), 1),
    (BUS, write(6), None, 1),
    (OK, send(6, 2, fatal=1, status=2, cause=22, event=1), (2, 22), 1),
    (OK, send(6, 2, fatal=1, status=2, cause=22, event=1, **WITH_IMMEDIATE), (2, 22), 1),
    (OK, write(6, fatal=1, event=1), None, 1),
]


@pytest.mark.parametrize(("status", "job", "completion", "event"), REFUSALS_OF_UC)
def test_what_kills_a_qp_of_uc(status, job, completion, event):
    """The host's own fault is told as of RC, but to the host alone."""
    world = World()

    async def script(ctx):
        await world.say(ctx, write(5) | UC)
        acks, completions, errors = await world.say(ctx, job | UC, status)
        assert (acks, reported(errors)) == ([], [(1, event)])
        assert completed(completions) == ([(2, *completion)] if completion else [])
        # Everything is flushed, whatever becomes of its run.
        for index, (late, fared) in enumerate([(send(7, 3), POISONED), (send(8, 4, **WITH_IMMEDIATE), KEY)], 3):
            acks, completions, errors = await world.say(ctx, late | UC, fared)
            assert (acks, completed(completions), errors) == ([], [(index, 5, 20)], [])
        assert await world.say(ctx, write(9) | UC, KEY) == ([], [], [])
        assert await world.say(ctx, TOKEN) == ([], [], [])
        acks, completions, errors = await world.say(ctx, send(1, 2) | UC)
        assert (acks, completed(completions), errors) == ([], [(2, 0, 0)], [])

    world.simulate(script)
    assert world.drops == 4


def test_poisoned_before_refused():
    """A refusal that was reported elsewhere: silence, but the QP has failed."""
    world = World()

    async def script(ctx):
        acks, completions, errors = await world.say(ctx, send(7, 2), POISONED)
        assert (acks, completed(completions), errors) == ([], [(2, 5, 20)], [])
        assert await world.say(ctx, write(8)) == ([], [], [])

    world.simulate(script)


def test_fatal_job():
    world = World()

    async def script(ctx):
        for job, syndrome, completions, event in (
            (write(6, syndrome=0x61, fatal=1, event=2), 0x61, [], 2),
            (write(6, syndrome=0x62, fatal=1, event=3), 0x62, [], 3),
            (send(6, 2, syndrome=0x61, fatal=1, status=1, cause=21), 0x61, [(2, 1, 21)], 255),
            (send(6, 2, syndrome=0x63, fatal=1, status=2, cause=22, event=1), 0x63, [(2, 2, 22)], 1),
        ):
            acks, got, errors = await world.say(ctx, job)
            assert told(acks) == [(1, 6, 6, syndrome)]
            assert completed(got) == completions
            assert reported(errors) == [(1, event)]
            assert await world.say(ctx, write(7)) == ([], [], [])
            assert [completed(c) for c in await world.say(ctx, flush(3))] == [[], [(3, 5, 20)], []]
            assert await world.say(ctx, write(7, silent=1, cause=20)) == ([], [], [])
            await world.say(ctx, TOKEN)

    world.simulate(script)
    assert world.drops == 4 * 3
    assert world.tokens == 4


def test_flush_of_a_healthy_qp():
    """MODIFY_QP to ERR: nothing is reported."""
    world = World()

    async def script(ctx):
        acks, completions, errors = await world.say(ctx, flush(9))
        assert (acks, completed(completions), errors) == ([], [(9, 5, 20)], [])
        assert completions[0].solicited

    world.simulate(script)
    assert world.drops == 0


def test_nothing_of_the_past_follows_a_token():
    """An ACK that waits goes; one that is at the output already holds the token back."""
    world = World(acks=False)

    async def script(ctx):
        await world.send(ctx, [(write(5), OK)])
        for _ in range(20):
            await ctx.tick()
        await world.send(ctx, [(write(6), OK)])
        ctx.set(world.dut.done.valid, 1)
        ctx.set(world.dut.job.payload, TOKEN)
        ctx.set(world.dut.job.valid, 1)
        for _ in range(30):
            await ctx.tick()
        assert world.tokens == 0
        assert told(await receive_all(ctx, world.dut.ack, 1)) == [(1, 5, 5, ACK)]
        while not world.tokens:
            await ctx.tick()
        ctx.set(world.dut.job.valid, 0)
        ctx.set(world.dut.ack.ready, 1)
        for _ in range(20):
            await ctx.tick()
            assert not ctx.get(world.dut.ack.valid)

    world.simulate(script)


def read(psn, **more):
    return {"qp": 1, "release": 1, "psn": psn, "msn": psn, "event": 255} | more


def response(psn, status=OK, *, qp=1, last=1):
    return {"qp": qp, "status": status, "psn": psn, "msn": psn ^ 0xABC, "last": last}


async def answer(ctx, world, *responses):
    """As :meth:`World.say`, of responses that have left."""
    for items in (world.acks, world.completions, world.errors):
        items.clear()
    await send_all(ctx, world.dut.answered, responses)
    for _ in range(20):
        await ctx.tick()
    return list(world.acks), list(world.completions), list(world.errors)


def released(world):
    found = [(r.qp, r.token) for r in world.releases]
    world.releases.clear()
    return found


def test_a_response_is_released_and_later_answers_wait_for_it():
    world = World(stall=0.3)

    async def script(ctx):
        assert await world.say(ctx, read(7)) == ([], [], [])
        assert released(world) == [(1, 0)]
        # Its QP waits, completions do not; other QPs do neither.
        acks, completions, _ = await world.say(ctx, send(8, 0))
        assert (acks, completed(completions)) == ([], [(0, 0, 0)])
        acks, _, _ = await world.say(ctx, write(50, qp=2))
        assert told(acks) == [(2, 50, 50, ACK)]
        acks, *rest = await answer(ctx, world, response(7))
        assert (told(acks), rest) == ([(1, 8, 8, ACK)], [[], []])
        # The second response answers for the ACK behind the first.
        await world.say(ctx, read(9))
        await world.say(ctx, write(10))
        await world.say(ctx, read(11))
        assert await answer(ctx, world, response(9)) == ([], [], [])
        acks, *rest = await world.say(ctx, write(12))
        assert (acks, rest) == ([], [[], []])
        acks, _, _ = await answer(ctx, world, response(11))
        assert told(acks) == [(1, 12, 12, ACK)]
        assert released(world) == [(1, 0), (1, 0)]
        # 16 of them.
        for psn in range(13, 29):
            await world.say(ctx, read(psn))
        await world.say(ctx, write(29))
        assert await answer(ctx, world, *[response(psn) for psn in range(13, 28)]) == ([], [], [])
        acks, _, _ = await answer(ctx, world, response(28))
        assert told(acks) == [(1, 29, 29, ACK)]

    world.simulate(script)
    assert world.drops == 0


@pytest.mark.parametrize(
    ("status", "syndrome", "event"), [*[(status, 0x62, 3) for status in (KEY, PD, RANGE, RIGHTS, PAGE)], (BUS, 0x63, 1)]
)
def test_refused_response(status, syndrome, event):
    """The QP is dead, with the response's PSN. No other response is waited for; those that come are poisoned."""
    world = World()

    async def script(ctx):
        for psn in (7, 9, 12):
            await world.say(ctx, read(psn))
        assert await answer(ctx, world, response(7)) == ([], [], [])
        await world.say(ctx, write(13))
        acks, completions, errors = await answer(ctx, world, response(10, status, last=0))
        assert (told(acks), completions) == ([(1, 10, (10 ^ 0xABC) - 1, syndrome)], [])
        assert reported(errors) == [(1, event)]
        assert await answer(ctx, world, response(11, POISONED)) == ([], [], [])
        assert [completed(c) for c in await world.say(ctx, send(14, 3))] == [[], [(3, 5, 20)], []]
        more = response(12, POISONED, last=0), response(13, POISONED)
        assert await answer(ctx, world, *more) == ([], [], [])
        # Dead is dead.
        assert released(world) == [(1, 0)] * 3
        assert await world.say(ctx, read(15)) == ([], [], [])
        assert await answer(ctx, world, response(15, status)) == ([], [], [])
        assert released(world) == []
        await world.say(ctx, TOKEN)
        assert released(world) == [(1, 1)]
        # Answers of the past do not count in the new life; nor does what is withdrawn.
        assert await answer(ctx, world, response(15), response(16)) == ([], [], [])
        await world.say(ctx, read(1))
        await world.say(ctx, write(2))
        for cycles in range(1, 4):
            ctx.set(world.dut.answered.payload, response(1, KEY))
            ctx.set(world.dut.answered.valid, 1)
            for _ in range(cycles):
                assert not ctx.get(world.dut.answered.ready)
                await ctx.tick()
            ctx.set(world.dut.answered.valid, 0)
            for _ in range(10):
                await ctx.tick()
        acks, _, _ = await answer(ctx, world, response(1))
        assert told(acks) == [(1, 2, 2, ACK)]

    world.simulate(script)
    assert world.drops == 3  # the refused response, and two jobs of a dead QP


def test_refused_response_of_a_qp_that_a_later_request_has_killed():
    """The NAK is for the response, which is the first that failed; it is reported once. Found against Linux."""
    world = World()

    async def script(ctx):
        for psn in (7, 9):
            await world.say(ctx, read(psn))
        assert await answer(ctx, world, response(7)) == ([], [], [])
        acks, completions, errors = await world.say(ctx, write(12), KEY)
        assert (acks, completions, reported(errors)) == ([], [], [(1, 3)])
        acks, completions, errors = await answer(ctx, world, response(10, RIGHTS, last=0))
        assert (told(acks), completions, errors) == ([(1, 10, (10 ^ 0xABC) - 1, 0x62)], [], [])
        assert await answer(ctx, world, response(11, POISONED)) == ([], [], [])

    world.simulate(script)
    assert world.drops == 2


def test_a_response_is_counted_while_a_job_waits_for_its_run():
    world = World()

    async def script(ctx):
        await world.say(ctx, read(7))
        await world.say(ctx, write(8))
        ctx.set(world.dut.job.payload, write(60, qp=2))
        ctx.set(world.dut.job.valid, 1)
        for _ in range(10):
            await ctx.tick()
        assert told((await answer(ctx, world, response(7)))[0]) == [(1, 8, 8, ACK)]
        await world.send(ctx, [(write(60, qp=2), OK)])
        for _ in range(10):
            await ctx.tick()
        assert told(world.acks) == [(1, 8, 8, ACK), (2, 60, 60, ACK)]

    world.simulate(script)


@pytest.mark.parametrize(("status", "late"), [(OK, 0), (KEY, 2)])
def test_latency(status, late):
    """A completion comes with `done`, or 2 cycles later if that is not OK; an ACK after 2, or a NAK after 3."""
    world = World(acks=False)
    dut = world.dut

    async def script(ctx):
        ctx.set(dut.job.payload, send(5, 3))
        ctx.set(dut.job.valid, 1)
        for _ in range(10):
            await ctx.tick()
        ctx.set(dut.done.payload.status, status)
        ctx.set(dut.done.valid, 1)
        for cycle in range(max(2, late + 1)):
            assert ctx.get(dut.completion.valid) == (cycle == late)
            await ctx.tick()
        assert ctx.get(dut.ack.valid)
        if status != OK:
            await ctx.tick()
        ctx.set(dut.done.valid, 0)
        ctx.set(dut.job.valid, 0)

    world.simulate(script)
    assert len(world.completions) == 1


@pytest.mark.parametrize("count", [120, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("stall", "swaps"), [(0.0, False), (0.5, False), (0.0, True), (0.5, True)])
def test_random_jobs(stall, swaps, count):
    """Completions come in order and once, errors once a life, ACKs grow; with stalls on all sides, and with QPs that
    are away now and then."""
    world = World(stall=stall, swaps=swaps)
    rng = world.rng
    completions, errors, last = [], [], {}
    jobs = []
    state = [{"psn": 0, "index": 0, "dead": False, "blamed": None} for _ in range(QPS)]
    unreliable = {1}
    away, stored, words = set(), {}, []
    for _ in range(count):
        qp = rng.randrange(QPS)
        mine = state[qp]
        if swaps and (qp in away or rng.random() < 0.2):
            passage = Passage.LOAD if qp in away else Passage.SAVE
            away ^= {qp}
            jobs.append(({"qp": qp, "token": 1, "passage": passage}, OK))
            if passage is Passage.SAVE and rng.random() < 0.3:  # another QP has its place meanwhile
                jobs.append((send(55, 3, qp=qp), KEY))
                completions.append((qp, 3, 4))
                errors.append((qp, 255))
                last[qp] = 55, 0x63
                jobs.append(({"qp": qp, "token": 1}, OK))
            continue
        if mine["dead"] and rng.random() < 0.2:
            jobs.append(({"qp": qp, "token": 1}, OK))
            state[qp] = {"psn": 0, "index": 0, "dead": False, "blamed": None}
            last.pop(qp, None)
            continue
        mine["psn"] += 1
        is_send = rng.random() < 0.5
        ends = rng.random() < 0.6
        status = KEY if rng.random() < 0.05 else OK
        if mine["dead"] and is_send:
            status = POISONED
        job = send(mine["psn"], mine["index"], complete=int(ends)) if is_send else write(mine["psn"])
        if qp in unreliable:
            job |= UC
            if rng.random() < 0.3 and not mine["dead"]:  # a message that is dropped, perhaps with a receive WQE
                job |= WITH_IMMEDIATE
                jobs.append((job | {"qp": qp}, rng.choice([KEY, POISONED])))
                if is_send and ends:
                    completions.append((qp, mine["index"], 8))
                    mine["index"] += 1
                continue
        jobs.append((job | {"qp": qp}, status))
        if is_send and not (mine["dead"] and mine["blamed"] == mine["index"]):
            if mine["dead"] and ends:
                completions.append((qp, mine["index"], 5))
            elif not mine["dead"] and (ends or status):
                completions.append((qp, mine["index"], 4 if status else 0))
        if not mine["dead"]:
            last[qp] = (mine["psn"], (0x63 if is_send else 0x62) if status else ACK)
            if status and (is_send or qp not in unreliable):
                errors.append((qp, 255 if is_send else 3))
                mine["dead"] = True
                if is_send:
                    mine["blamed"] = mine["index"]
        mine["index"] += is_send and ends

    async def give_back(ctx):
        """What was saved, when the QP is loaded."""
        while True:
            await ctx.tick()
            for word in world.words:
                assert word.last
                words.append(word.data)
            world.words.clear()
            if ctx.get(world.dut.job.valid) and ctx.get(world.dut.job.payload.passage) == Passage.LOAD:
                qp = ctx.get(world.dut.job.payload.qp)
                if qp in stored:
                    await send_all(ctx, world.dut.loaded, [stored.pop(qp)], rng, stall)

    async def script(ctx):
        for job, status in jobs:
            if stall:
                for _ in range(rng.choice([0, 1, 9])):
                    await ctx.tick()
            await world.send(ctx, [(job, status)])
            if job.get("passage") is Passage.SAVE:
                while not words:
                    await ctx.tick()
                stored[job["qp"]] = words.pop()
        for _ in range(200):
            await ctx.tick()

    world.simulate(script, *[give_back] * swaps)
    assert not words
    assert len(stored) == len(away)
    assert [(c.qp, c.wqe_index, c.status) for c in world.completions] == completions
    assert reported(world.errors) == errors
    for qp in unreliable:
        assert all(ack.syndrome == 0x63 and ack.psn == 55 for ack in world.acks if ack.qp == qp), "of another QP there"
        last.pop(qp, None)
    for qp, (psn, syndrome) in last.items():
        ack = [ack for ack in world.acks if ack.qp == qp][-1]
        assert (ack.psn, ack.syndrome) == (psn, syndrome)


LAST = {"qp": 1, "last": 1, "event": 16}
LAPSE = TOKEN | {"complete": 1, "status": 5, "wqe_index": 2, "opcode": 128}
"""A token that gives up what the QP has of its shared receive queue."""


def test_a_qp_that_takes_no_more_shared_receives():
    """Whatever it died of, and if it did not: reported as the job says, with no answer and no completion."""
    world = World()

    async def script(ctx):
        fatal = send(9, 2, fatal=1, syndrome=0x61, status=1)
        for job, status in ((write(6), OK), (write(7), POISONED), (write(8), KEY), (fatal, OK)):
            await world.say(ctx, job, status)
            for fared in (OK, POISONED):
                acks, completions, errors = await world.say(ctx, LAST, fared)
                assert (acks, completions, reported(errors)) == ([], [], [(1, 16)])
            await world.say(ctx, TOKEN)

    world.simulate(script)


def test_the_last_receive_completes_before_it_is_told():
    """However long its completion waits; the report waits likewise, and nothing of it is lost."""
    world = World()
    dut = world.dut
    got = []

    async def script(ctx):
        await world.send(ctx, [(flush(2), OK), (LAST, OK), (LAST | {"qp": 2}, OK), (write(5, qp=2), OK)])
        while len(got) < 4:
            await ctx.tick()

    async def watch(ctx):
        cycle = 0
        while True:
            ctx.set(dut.completion.ready, cycle == 50)
            ctx.set(dut.error.ready, cycle in (100, 150))
            _, _, completes, tells, error, acks = await ctx.tick().sample(
                dut.completion.valid, dut.error.valid, dut.error.payload, dut.ack.valid
            )
            got.extend([("completion", cycle)] * (completes and cycle == 50))
            got.extend([("error", cycle, error.qp, error.event)] * (tells and cycle in (100, 150)))
            got.extend([("ack",)] * acks)
            cycle += 1

    simulate_alone(world, script, watch)
    assert got == [("completion", 50), ("error", 100, 1, 16), ("error", 150, 2, 16), ("ack",)]


@pytest.mark.parametrize("first", ["completion", "release", "both"])
def test_a_token_that_completes_a_receive(first):
    """The completion goes first, whoever is ready; nothing of it comes after the token's end, or twice."""
    world = World()
    dut = world.dut
    got = []

    async def script(ctx):
        for job in (LAPSE, LAPSE | {"wqe_index": 9}, TOKEN, write(3)):
            await world.send(ctx, [(job, OK)])
        for _ in range(20):
            await ctx.tick()

    async def watch(ctx):
        ports = {"completion": dut.completion, "release": dut.release}
        waits = {name: 0 if first in (name, "both") else 30 for name in ports}
        seen = dict.fromkeys(ports, 0)
        while True:
            ready = {name: seen[name] >= waits[name] for name in ports}
            for name, port in ports.items():
                ctx.set(port.ready, ready[name])
            _, _, token, index, status, *valid = await ctx.tick().sample(
                dut.token_done,
                dut.completion.payload.wqe_index,
                dut.completion.payload.status,
                *(port.valid for port in ports.values()),
            )
            for name, comes in zip(ports, valid, strict=True):
                if comes and ready[name]:
                    got.append((name, index, status) if name == "completion" else (name,))
                seen[name] = seen[name] + 1 if comes and not ready[name] else 0
            got.extend([("done",)] * token)

    simulate_alone(world, script, watch)
    ends = [("release",), ("done",)]
    assert got == [("completion", 2, 5), *ends, ("completion", 9, 5), *ends, *ends]


def test_a_token_completes_no_receive_that_has_completed():
    """Of a QP that died of it; one that died of something else completes what it has."""
    world = World()

    async def script(ctx):
        for job, fared, more in (
            (send(6, 2, complete=0), KEY, []),
            (write(6), KEY, [(2, 5, 20)]),
            (send(6, 3, complete=0), KEY, [(2, 5, 20)]),
            (write(6, fatal=1, syndrome=0x61), OK, [(2, 5, 20)]),
        ):
            await world.say(ctx, job, fared)
            acks, completions, errors = await world.say(ctx, LAPSE)
            assert (acks, completed(completions), errors) == ([], more, [])
        # In its next life the same one is another one.
        acks, completions, _ = await world.say(ctx, send(1, 2))
        assert (told(acks), completed(completions)) == ([(1, 1, 1, ACK)], [(2, 0, 0)])

    world.simulate(script)
    assert world.tokens == 4


@pytest.mark.parametrize("first", [send(6, 2), send(6, 2, complete=0)])
def test_a_shared_receive_comes_again(first):
    """It has completed with an error, the host posts it again, and the QP, which has failed, takes it once more before
    the responder hears of that: it completes, as it is another one."""
    world = World()

    async def script(ctx):
        _, completions, _ = await world.say(ctx, first, KEY)
        assert completed(completions) == [(2, 4, KEY)]
        if not first["complete"]:
            assert await world.say(ctx, send(7, 2), POISONED) == ([], [], [])
        _, completions, _ = await world.say(ctx, send(8, 2), POISONED)
        assert completed(completions) == [(2, 5, 20)]

    world.simulate(script)


def test_who_takes_no_more_drops_nothing():
    """It is no request, also of a QP that has failed."""
    world = World()

    async def script(ctx):
        await world.say(ctx, write(8), KEY)
        assert world.drops == 1
        await world.say(ctx, LAST)
        assert world.drops == 1

    world.simulate(script)


def test_cycles():
    world = World()

    async def script(ctx):
        jobs = [write(1), write(2), send(3, 1), send(4, 2), write(5, silent=1), write(6, silent=1), write(7), write(8)]
        await world.send(ctx, [(job, OK) for job in jobs])

    world.simulate(script)
    assert [b - a for a, b in pairwise(world.cycles)] == [4, 4, 4, 1, 1, 4, 4]


def test_a_release_does_not_wait_for_its_done():
    """Its ``done`` comes later, and belongs to nobody else; what came before it is waited for."""
    world = World()
    dut = world.dut

    async def script(ctx):
        ctx.set(dut.job.payload, write(1))
        ctx.set(dut.job.valid, 1)
        for _ in range(20):
            _, _, taken = await ctx.tick().sample(dut.job.ready)
            assert not taken
        await send_all(ctx, dut.done, [{"status": OK}])
        jobs = [read(2), read(3), write(4), read(5)]
        taken = 0
        for _ in range(60):
            ctx.set(dut.job.payload, jobs[min(taken, 2)])
            _, _, ready = await ctx.tick().sample(dut.job.ready)
            taken += ready
        assert taken == 2
        assert released(world) == [(1, 0)] * 2
        await send_all(ctx, dut.done, [{"status": OK}] * 2)
        for _ in range(20):
            _, _, ready = await ctx.tick().sample(dut.job.ready)
            assert not ready, "the write took what is not its own"
        await send_all(ctx, dut.done, [{"status": KEY}])
        ctx.set(dut.job.payload, jobs[3])
        for _ in range(20):
            await ctx.tick()
        ctx.set(dut.job.valid, 0)
        await send_all(ctx, dut.done, [{"status": POISONED}])

    world.simulate(script)
    assert released(world) == [], "the QP is dead"
    assert len(world.errors) == 1


SAVE, LOAD = ({"qp": 1, "token": 1, "passage": passage} for passage in (Passage.SAVE, Passage.LOAD))


async def begin(ctx, world, job):
    """Shows a job, whose run is done, and does not wait for it to be taken."""
    world.offered.append(job)
    for _ in range(60):
        await ctx.tick()
    assert world.offered, "it did not wait"


async def end(ctx, world, cycles=100):
    """Waits until it is taken; returns for how long."""
    for cycle in range(cycles):
        if not world.offered:
            for _ in range(5):
                await ctx.tick()
            return cycle
        await ctx.tick()
    raise AssertionError("not taken")


def passed_on(world):
    found = [(r.qp, r.token, r.passage) for r in world.releases if r.token]
    world.releases.clear()
    return found


async def load(ctx, world, word):
    """LOAD waits for its word; answers are heard meanwhile."""
    await begin(ctx, world, LOAD)
    await send_all(ctx, world.dut.answered, [response(3, qp=2)])
    assert passed_on(world) == []
    await send_all(ctx, world.dut.loaded, [word])
    await end(ctx, world)
    assert passed_on(world) == [(1, 1, Passage.LOAD)]


def test_save_waits_for_what_is_not_answered():
    """For READs that are released, and for an ACK until it has left; meanwhile other QPs' responses are heard."""
    world = World(acks=False, swaps=True)
    dut = world.dut

    async def script(ctx):
        for psn in (7, 8):
            await world.send(ctx, [(read(psn), OK)])
        await world.send(ctx, [(read(3, qp=2), OK), (write(4, qp=2), OK), (write(9), OK)])
        await begin(ctx, world, SAVE)
        await send_all(ctx, dut.answered, [response(7), response(3, qp=2)])
        assert told(await receive_all(ctx, dut.ack, 1)) == [(2, 4, 4, ACK)]
        for _ in range(60):
            await ctx.tick()
        assert (passed_on(world), world.words) == ([], [])
        await send_all(ctx, dut.answered, [response(8)])
        for _ in range(60):
            await ctx.tick()
        assert (passed_on(world), world.tokens, world.words) == ([], 0, [])
        assert told(await receive_all(ctx, dut.ack, 1)) == [(1, 9, 9, ACK)]
        assert await end(ctx, world) <= 8
        for _ in range(20):
            await ctx.tick()
        assert passed_on(world) == [(1, 1, Passage.SAVE)]
        assert world.tokens == 1
        assert [word.last for word in world.words] == [1]
        # Nothing is left, and all comes back: what is refused now has the MSN of what was executed before.
        await world.send(ctx, [({"qp": 1, "token": 1}, OK)])
        assert passed_on(world) == [(1, 1, Passage.RESET)]
        await load(ctx, world, world.words.pop().data)
        await world.send(ctx, [(write(10), KEY)])
        assert told(await receive_all(ctx, dut.ack, 1)) == [(1, 10, 9, 0x62)]

    world.simulate(script)
    assert world.tokens == 3


def test_save_hurries_what_waits():
    """Behind a backlog, answers of all QPs leave before it, 4 cycles each; and as many as are void."""
    world = World(acks=False, swaps=True)
    dut = world.dut

    async def script(ctx):
        ctx.set(dut.backlog, 1)
        for _ in range(20):
            await ctx.tick()
        for qp in (0, 3, 2, 1):
            await world.send(ctx, [(write(5, qp=qp), OK)])
        await world.send(ctx, [({"qp": 3, "token": 1}, OK)])
        ctx.set(dut.ack.ready, 1)
        world.offered.append(SAVE)
        assert 12 <= await end(ctx, world) <= 32

    world.simulate(script)
    assert len(world.words) == 1


async def shown(ctx, world, job):
    """Shows a job whose run is not done, and looks at it for a while."""
    ctx.set(world.dut.job.payload, of_qp(job))
    ctx.set(world.dut.job.valid, 1)
    await ctx.tick().repeat(40)


async def done(ctx, world):
    """The run of the job that is shown is done; returns the cycles until it is taken, and those in which it counted."""
    dut, counted = world.dut, 0
    ctx.set(dut.done.valid, 1)
    for cycle in range(40):
        _, _, ready, count = await ctx.tick().sample(dut.job.ready, dut.job_done)
        counted += count
        if ready:
            ctx.set(dut.done.valid, 0)
            ctx.set(dut.job.valid, 0)
            return cycle, counted
    raise AssertionError("not taken")


FATAL = {"fatal": 1, "event": 3, "syndrome": 0x62}


@pytest.mark.parametrize(
    "job", [write(5), send(5, 3), write(5, **FATAL), LAST, read(5), {"qp": 1, "silent": 1}], ids=str
)
def test_a_token_passes_jobs_of_others(job):
    """SAVE gives the row away, and LOAD puts another one there, while a job waits for its run; it is done as ever."""
    world = World(swaps=True)
    dut = world.dut

    async def script(ctx):
        for qp in (1, 2):
            await world.say(ctx, write(7, qp=qp))
        world.acks.clear()
        ctx.set(dut.done.payload, {"status": KEY})  # and not valid
        early = "release" in job
        if not early:
            await shown(ctx, world, job)
        await send_all(ctx, dut.passing, [{"qp": 2, "passage": Passage.SAVE}])
        await ctx.tick().repeat(10)
        assert passed_on(world) == [(2, 1, Passage.SAVE)]
        assert [word.data for word in world.words] == [7 << 18]
        assert world.tokens == 1
        ctx.set(dut.passing.payload, {"qp": 2, "passage": Passage.LOAD})
        ctx.set(dut.passing.valid, 1)
        await ctx.tick().repeat(30)
        assert world.tokens == 1
        await send_all(ctx, dut.loaded, [99 << 18])
        await ctx.tick().until(dut.passing.ready)
        ctx.set(dut.passing.valid, 0)
        await ctx.tick().repeat(10)
        assert world.tokens == 2
        assert (world.acks, world.completions, world.errors) == ([], [], [])
        ctx.set(dut.done.payload, {"status": OK})
        if early:
            ctx.set(dut.passing.payload, {"qp": 3, "passage": Passage.SAVE})
            ctx.set(dut.passing.valid, 1)
            ctx.set(dut.job.payload, of_qp(job))
            ctx.set(dut.job.valid, 1)
            await ctx.tick().until(dut.passing.ready)
            ctx.set(dut.passing.valid, 0)
            await ctx.tick().until(dut.job.ready)
            ctx.set(dut.job.valid, 0)
            await ctx.tick().repeat(10)
            assert [(r.qp, r.token) for r in world.releases][-1] == (1, 0)
            await send_all(ctx, dut.answered, [response(5)])
            await send_all(ctx, dut.done, [{}])
        else:
            _, counted = await done(ctx, world)
            assert counted == 1
        await ctx.tick().repeat(20)
        assert told(world.acks) == ([(1, 5, 5, job["syndrome"])] if job.get("acknowledge") else [])
        assert reported(world.errors) == ([(1, job["event"])] if job.get("fatal") or job.get("last") else [])
        assert len(world.completions) == bool(job.get("complete"))
        # What the token leaves behind takes its run's `done`, and does not count.
        await shown(ctx, world, {"qp": 2, "token": 1, "silent": 1, "passage": Passage.SAVE})
        assert world.tokens == 2 + early
        assert await done(ctx, world) == (0, 0)
        acks, *_ = await world.say(ctx, write(100, qp=2), KEY)
        assert told(acks) == [(2, 100, 99, 0x62)]

    world.simulate(script)


def test_a_token_that_passes_waits_for_its_own():
    """For the answer of its QP that has not left; responses are heard meanwhile, and then it is its turn again."""
    world = World(acks=False, swaps=True)
    dut = world.dut

    async def script(ctx):
        await world.send(ctx, [(read(3, qp=1), OK), (write(9, qp=2), OK)])
        await shown(ctx, world, write(4))
        ctx.set(dut.passing.payload, {"qp": 2, "passage": Passage.SAVE})
        ctx.set(dut.passing.valid, 1)
        await ctx.tick().repeat(30)
        ctx.set(dut.answered.payload, response(3))
        ctx.set(dut.answered.valid, 1)
        for _ in range(40):
            _, _, taken, ready = await ctx.tick().sample(dut.passing.ready, dut.answered.ready)
            assert not taken
            if ready:
                ctx.set(dut.answered.valid, 0)
        assert (passed_on(world), world.tokens, world.words) == ([], 0, [])
        assert told(await receive_all(ctx, dut.ack, 1)) == [(2, 9, 9, ACK)]
        await ctx.tick().until(dut.passing.ready)
        ctx.set(dut.passing.valid, 0)
        await ctx.tick().repeat(10)
        assert passed_on(world) == [(2, 1, Passage.SAVE)]
        await done(ctx, world)
        assert told(await receive_all(ctx, dut.ack, 1)) == [(1, 4, 4, ACK)]

    world.simulate(script)


@pytest.mark.parametrize("cycles", range(12))
def test_a_token_comes_as_a_job_is_put_aside(cycles):
    """``cycles`` after the job of a SEND with invalidate: both have their effect, and nothing is said twice."""
    world = World(swaps=True, keys=True)
    dut = world.dut

    async def script(ctx):
        await world.say(ctx, write(7, qp=2))
        passed_on(world)
        ctx.set(dut.job.payload, of_qp(invalidating(1, 0, 0x1234)))
        ctx.set(dut.job.valid, 1)
        ctx.set(dut.done.valid, 1)
        taken = 0
        for cycle in range(40):
            ctx.set(dut.passing.payload, {"qp": 2, "passage": Passage.SAVE})
            if cycle == cycles:
                ctx.set(dut.passing.valid, 1)
            _, _, ready, passed = await ctx.tick().sample(dut.job.ready, dut.passing.ready)
            if ready:
                taken += 1
                ctx.set(dut.job.valid, 0)
                ctx.set(dut.done.valid, 0)
            if passed:
                ctx.set(dut.passing.valid, 0)
        assert (taken, world.tokens) == (1, 1)
        assert (ctx.get(dut.held), ctx.get(dut.held_qp)) == (1, 1)
        await take_operation(ctx, dut)
        await result_of(ctx, dut, OK)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.held) == 0

    world.acks.clear()
    world.simulate(script)
    assert [word.data for word in world.words] == [7 << 18]
    assert [ack.qp for ack in world.acks][-1] == 1
    assert len(world.completions) == 1
    assert passed_on(world) == [(2, 1, Passage.SAVE)]


def test_a_response_is_refused_while_save_waits():
    """It has its effect, with NAK and error, and the QP is dead when it is back, as when it goes dead before; and what
    has completed because of that does not complete again."""
    world = World(swaps=True)

    async def script(ctx):
        await world.send(ctx, [(read(7), OK), (read(8), OK)])
        await begin(ctx, world, SAVE)
        assert passed_on(world) == []
        acks, _, errors = await answer(ctx, world, response(7, RIGHTS, last=0))
        assert told(acks) == [(1, 7, (7 ^ 0xABC) - 1, 0x62)]
        assert reported(errors) == [(1, 3)]
        await end(ctx, world)
        assert passed_on(world) == [(1, 1, Passage.SAVE)]
        await load(ctx, world, world.words.pop().data)
        assert await world.say(ctx, write(9)) == ([], [], [])
        assert [completed(c) for c in await world.say(ctx, send(14, 3))] == [[], [(3, 5, 20)], []]
        await world.say(ctx, TOKEN)

        acks, completions, _ = await world.say(ctx, send(1, 2, complete=0), KEY)
        assert (told(acks), completed(completions)) == ([(1, 1, 0, 0x63)], [(2, 4, KEY)])
        await world.send(ctx, [(SAVE, OK)])
        while not world.words:
            await ctx.tick()
        await world.say(ctx, send(77, 9), KEY)  # of another QP
        await world.say(ctx, TOKEN)
        passed_on(world)
        await load(ctx, world, world.words.pop().data)
        assert await world.say(ctx, flush(2)) == ([], [], [])
        _, completions, _ = await world.say(ctx, flush(3))
        assert completed(completions) == [(3, 5, 20)]
        acks, *rest = await world.say(ctx, write(100, qp=2))
        assert (told(acks), rest) == ([(2, 100, 100, ACK)], [[], []])

    world.simulate(script)


def test_a_word_may_wait():
    """Jobs go on, but not another SAVE."""
    world = World(swaps=True)

    async def script(ctx):
        world.hold_words = True
        await world.send(ctx, [(write(5), OK), (SAVE, OK)])
        acks, *_ = await world.say(ctx, write(6, qp=2))
        assert told(acks) == [(2, 6, 6, ACK)]
        await begin(ctx, world, SAVE | {"qp": 2})
        assert passed_on(world) == [(1, 1, Passage.SAVE)]
        assert world.words == []
        world.hold_words = False
        await end(ctx, world)
        for _ in range(20):
            await ctx.tick()
        assert [word.data for word in world.words] == [5 << 18, 6 << 18]  # MSN

    world.simulate(script)


def test_cycles_of_responses():
    world = World()
    times = []

    async def script(ctx):
        for psn in range(4):
            await world.say(ctx, read(psn))
        await send_all(ctx, world.dut.answered, [response(psn) for psn in range(4)])

    async def watch(ctx):
        cycle = 0
        async for _, _, valid, ready in ctx.tick().sample(world.dut.answered.valid, world.dut.answered.ready):
            if valid and ready:
                times.append(cycle)
            cycle += 1

    world.simulate(script, watch)
    assert [b - a for a, b in pairwise(times)] == [5, 5, 5]


def test_arguments():
    with pytest.raises(ValueError, match="qps must be a power of two from 2 to 4096, not 0"):
        Acknowledger(0)


@pytest.mark.slow
def test_converts():
    for swaps in (False, True):
        rtlil.convert(Acknowledger(64, swaps=swaps))


# -- SENDs with invalidate.


def invalidating(psn, index, key, **more):
    return send(psn, index, invalidate=1, immediate=int.from_bytes(key.to_bytes(4, "little"), "big"), pd=7, **more)


async def take_operation(ctx, dut):
    return await receive_all(ctx, dut.operation, 1)


async def result_of(ctx, dut, status):
    await send_all(ctx, dut.operated, [{"status": status}])


@pytest.mark.parametrize("stall", [0, 0.5])
@pytest.mark.parametrize("status", [OK, KEY, BUS])
def test_others_pass_a_send_with_invalidate(status, stall):
    """Until its key is invalid nothing is said of it, nor of what is behind it in its queue pair; others are answered,
    but for those that have a key."""
    world = World(stall=stall, keys=True)
    dut = world.dut
    asked = []

    async def operations(ctx):
        await collect(ctx, dut.operation, asked, world.rng, stall)

    async def script(ctx):
        await world.send(ctx, [(invalidating(1, 0, 0x1234_56), OK), (write(10, qp=2), OK), (send(11, 0, qp=2), OK)])
        await world.send(ctx, [(write(20, qp=3), OK)])
        await ctx.tick().repeat(60)
        assert [(item.key, item.pd, item.qp) for item in asked] == [(0x1234_56, 7, 1)]
        assert [ack.psn for ack in world.acks] == [10, 11, 20]
        assert [completion.qp for completion in world.completions] == [2]

        world.offered = [(write(2), OK)]  # behind it
        await ctx.tick().repeat(60)
        assert world.offered
        assert len(world.acks) == 3
        await result_of(ctx, dut, status)
        while world.offered:
            await ctx.tick()
        await ctx.tick().repeat(60)

        await world.send(ctx, [(invalidating(21, 0, 0x999, qp=3), OK)])
        world.offered = [(invalidating(12, 1, 0x888, qp=2), OK)]
        await ctx.tick().repeat(60)
        assert [item.key for item in asked] == [0x1234_56, 0x999]
        await result_of(ctx, dut, OK)
        while world.offered:
            await ctx.tick()
        await ctx.tick().repeat(60)
        assert [item.key for item in asked] == [0x1234_56, 0x999, 0x888]
        await result_of(ctx, dut, OK)
        await ctx.tick().repeat(60)

    async def offer(ctx):
        while True:
            await ctx.tick()
            if world.offered:
                await world.send(ctx, world.offered)
                world.offered = []

    world.simulate(script, operations, offer)
    own = [(ack.psn, ack.syndrome) for ack in world.acks if ack.qp == 1]
    statuses = [c.status for c in world.completions if c.qp == 1]
    if status == OK:
        assert own[-1] == (2, ACK)
        assert statuses == [0]
        assert not world.errors
    else:
        assert [syndrome for _, syndrome in own] == [0x63 if status == BUS else 0x62]
        assert own[0][0] == 1
        assert statuses == [8]
        assert [error.qp for error in world.errors] == [1]
    assert [ack.psn for ack in world.acks if ack.qp != 1] == [10, 11, 20, 21, 12]
    assert [completion.qp for completion in world.completions if completion.qp != 1] == [2, 3, 2]


@pytest.mark.parametrize("status", [OK, KEY])
def test_a_queue_pair_is_saved_behind_its_send_with_invalidate(status):
    """Its word is given once, and tells what came of the SEND."""
    world = World(swaps=True, keys=True)

    async def script(ctx):
        await world.send(ctx, [(invalidating(1, 0, 0x1234), OK)])
        await begin(ctx, world, SAVE)
        assert not world.words
        await take_operation(ctx, world.dut)
        await result_of(ctx, world.dut, status)
        await end(ctx, world)
        await ctx.tick().repeat(60)
        assert len(world.words) == 1
        assert len(world.acks) == len(world.completions) == 1
        assert passed_on(world) == [(1, 1, Passage.SAVE)]
        # In a slot of its own again the QP is as dead as it was.
        await load(ctx, world, world.words[0].data)
        acks, _, _ = await world.say(ctx, write(2))
        assert bool(acks) == (status == OK)

    world.simulate(script)


@pytest.mark.parametrize("cycles", range(1, 11))
def test_another_queue_pair_comes_as_a_send_with_invalidate_goes_on(cycles):
    """A LOAD is behind the SEND, ``cycles`` after its result: the SEND writes its own row."""
    world = World(swaps=True, keys=True)

    async def script(ctx):
        await world.send(ctx, [(invalidating(1, 0, 0x1234), OK)])
        await ctx.tick().repeat(20)
        await take_operation(ctx, world.dut)
        await result_of(ctx, world.dut, KEY)
        await ctx.tick().repeat(cycles)
        world.offered.append(LOAD | {"qp": 2})
        await ctx.tick().repeat(40)
        await send_all(ctx, world.dut.loaded, [0])
        await end(ctx, world)
        assert [(c.qp, c.status) for c in world.completions] == [(1, 8)]
        for qp, lives in ((1, False), (2, True)):
            acks, _, _ = await world.say(ctx, write(2, qp=qp))
            assert bool(acks) == lives

    world.simulate(script)
