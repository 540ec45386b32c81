"""SlotKeeper: who gets a slot, who gives his up, and what becomes of those on their way."""

import pytest
from keeper_world import World
from streams import make_rng, simulate
from verbena.hdl.abi.commands import CommandStatus
from verbena.hdl.control.next_job import PACKETS

OK, BAD_NUMBER, BUS_ERROR = CommandStatus.OK, CommandStatus.BAD_NUMBER, CommandStatus.BUS_ERROR


def play(scenario, **options):
    """``scenario(ctx, world)``, between a reset and the end of all that it sets off."""
    rng = make_rng()
    world = World(rng, **options)

    async def testbench(ctx):
        await world.start(ctx)
        await scenario(ctx, world)
        await world.settle(ctx)

    simulate(world.dut, testbench, seed=rng.seed_value, deadline=60_000)
    return world


async def fill(ctx, world, qps):
    for qp in qps:
        await world.create(ctx, qp)


async def send_away(ctx, world, qp):
    """Other QPs come until this one is away, and its record is written."""
    for other in range(world.qps - 1, 0, -1):
        if world.slot_of(qp) is None:
            break
        if other != qp and world.slot_of(other) is None:
            await world.execute(ctx, other, 1)
    assert world.rows[qp][0] == "away"
    await world.settle(ctx)


def test_a_command_and_a_qp_that_does_not_exist():
    """Only CREATE_QP makes one; who is here stays where he is."""

    async def scenario(ctx, world):
        assert (await world.execute(ctx, 3))[0] == BAD_NUMBER
        slot = await world.create(ctx, 3)
        for create in (0, 1):
            assert await world.execute(ctx, 3, create) == (OK, slot)
        assert (await world.execute(ctx, 4))[0] == BAD_NUMBER

    world = play(scenario)
    assert list(world.rows) == [3]
    assert not world.fetches
    assert not world.fatal


def test_a_command_brings_a_qp_that_is_away():
    async def scenario(ctx, world):
        await fill(ctx, world, range(5))
        away = [qp for qp in range(5) if world.slot_of(qp) is None]
        assert len(away) == 1
        status, slot = await world.execute(ctx, away[0])
        assert (status, world.slot_of(away[0])) == (OK, slot)

    world = play(scenario)
    assert world.fetches == 1
    steps = [entry[0] for entry in world.log]
    assert (steps.count("write"), steps.count("read")) == (2, 1)
    assert ("again",) in world.log  # what was reported meanwhile goes first


def test_who_leaves_was_not_used_of_late():
    """Neither does one whose READs are being answered."""

    async def scenario(ctx, world):
        await fill(ctx, world, range(5))
        for qp in range(5, 12):
            here = {row[1]: other for other, row in world.rows.items() if row[0] == "here"}
            lazy = world.rng.choice(sorted(here))
            world.serving = {slot for slot in here if slot != lazy and world.rng.random() < 0.5}
            await world.create(ctx, qp)
            assert world.slot_of(qp) is not None
            for slot in world.serving:
                assert world.slot_of(here[slot]) == slot

    play(scenario)


def test_who_was_used_is_passed_once_more():
    """The hand has come round, and one QP was used since: the others leave before it."""

    async def scenario(ctx, world):
        world.works = set()
        await fill(ctx, world, range(5))  # the last one came to the slot of the first that the hand found
        last = world.slot_of(4)
        busy = world.rng.choice([slot for slot in world.content if slot != last])
        world.works = {busy}
        age = world.content[busy][1]
        await world.until(ctx, lambda: world.content[busy][1] > age)
        qp = world.content[busy][0]
        for other in (5, 6):
            await world.create(ctx, other)
        assert world.slot_of(qp) == busy
        assert world.slot_of(4) == last

    play(scenario)


def test_a_wanted_qp_comes_and_its_doorbells_ring():
    """Whether it is away or has its slot; nobody rings for one that does not exist."""

    async def scenario(ctx, world):
        await fill(ctx, world, range(5))
        for qp in (0, 1, 2, 3, 4, 0):
            world.want(qp)
            del world.rings[:]
            await world.until(ctx, lambda: not world.owed)
            await world.settle(ctx)
            assert world.slot_of(qp) is not None
            assert {(name, index) for name, _, index in world.rings} == {
                (name, world.driver[qp]) for name in ("sq_ring", "rq_ring")
            }
            assert {other for _, other, _ in world.rings} == {qp}
        del world.rings[:]
        world.wanted.append(9)
        await world.settle(ctx)
        assert not world.rings
        assert 9 not in world.rows

    world = play(scenario)
    assert any(entry[0] == "peek" for entry in world.log)


def test_doorbells_that_the_bus_does_not_give():
    """The QP has its slot: it stays, and is wanted once more."""

    async def scenario(ctx, world):
        await world.create(ctx, 2)
        fails = [True, True, False]
        world.read_fails = lambda qp: fails.pop(0)
        world.want(2)
        await world.until(ctx, lambda: not world.owed)
        assert not fails

    world = play(scenario)
    assert not world.fatal
    assert world.slot_of(2) is not None


def test_a_packet_waits_until_its_qp_is_here():
    async def scenario(ctx, world):
        await fill(ctx, world, range(8))
        for _ in range(8):
            world.packet = qp = world.rng.randrange(8)
            await world.until(ctx, lambda: world.packet is None)
            assert world.slot_of(qp) is not None
            await world.settle(ctx)

    play(scenario)


def test_packets_go_first_but_not_for_ever():
    """As long as both are there one of those that are wanted comes after 7 packets. It is taken while the packet before
    it has its turn."""
    left = []

    async def scenario(ctx, world):
        await fill(ctx, world, range(10))
        away = [qp for qp, row in world.rows.items() if row[0] == "away"]
        for qp in away[:2]:
            world.want(qp)
        wanted = list(world.wanted)
        for _ in range(2 * PACKETS + 2):
            away = [qp for qp, row in world.rows.items() if row[0] == "away" and qp not in (*wanted, world.packet)]
            if world.packet is None:
                world.packet = away.pop(0)
            world.next_packet, before = away[0], world.packet
            await world.until(ctx, lambda: world.packet != before)  # noqa: B023
            left.append(len(world.wanted))

    play(scenario)
    assert left == [2] * (PACKETS - 1) + [1] * PACKETS + [0] * 3


def test_the_record_of_the_next_qp_is_read_while_the_present_one_comes():
    """That of the packet behind, or of one that is wanted; and not twice."""

    async def scenario(ctx, world):
        world.stall = 0
        await fill(ctx, world, range(8))
        await world.settle(ctx)
        for packets in (True, False):
            away = [qp for qp, row in world.rows.items() if row[0] == "away"]
            del world.log[:]
            if packets:
                world.packet, world.next_packet = away[:2]
            else:
                for qp in away[:2]:
                    world.want(qp)
            await world.until(ctx, lambda: [entry[0] for entry in world.log].count("load") == 2)
            await world.settle(ctx)
            events = [entry[:1] + entry[-1:] if entry[0] == "read" else entry[:1] + entry[2:3] for entry in world.log]
            events = [event for event in events if event[0] in ("read", "save", "load")]
            reads = [qp for name, qp in events if name == "read"]
            assert reads == away[:2]
            saves = [place for place, (name, _) in enumerate(events) if name == "save"]
            assert events.index(("read", away[1])) < saves[1]

    play(scenario)


@pytest.mark.parametrize("kind", ["command", "want", "packet"])
def test_a_record_that_is_bad(kind):
    """Its QP is forgotten, and the command that wanted it fails; all else goes on, and the number is free."""

    async def scenario(ctx, world):
        await fill(ctx, world, range(4))
        world.timer_of = lambda qp: 7
        await send_away(ctx, world, 2)
        assert world.timers
        world.read_fails = lambda qp: qp == 2
        if kind == "command":
            assert (await world.execute(ctx, 2))[0] == BUS_ERROR
        elif kind == "want":
            world.want(2)
        else:
            world.packet = 2
        await world.until(ctx, lambda: 2 not in world.rows)
        await world.settle(ctx)
        assert (await world.execute(ctx, 2))[0] == BAD_NUMBER
        world.read_fails = lambda qp: False
        await world.create(ctx, 2)

    world = play(scenario)
    assert world.fatal == [2]


@pytest.mark.parametrize("kind", ["alone", "command", "want", "packet", "other"])
def test_a_record_that_cannot_be_written(kind):
    """It is told once, and the QP is forgotten, whoever comes meanwhile; its old record is no good."""

    async def scenario(ctx, world):
        await fill(ctx, world, range(4))
        await send_away(ctx, world, 2)
        assert (await world.execute(ctx, 2))[0] == OK  # its record is there, and old
        await world.settle(ctx)
        world.write_fails = lambda qp: qp == 2
        while world.slot_of(2) is not None:
            away = [qp for qp, row in world.rows.items() if row[0] == "away"]
            world.packet = world.rng.choice(away)
            await world.until(ctx, lambda: world.packet is None or world.slot_of(2) is None)
        if kind == "command":
            assert (await world.execute(ctx, 2))[0] in (BUS_ERROR, BAD_NUMBER)
        elif kind == "want":
            world.want(2)
        elif kind == "other":
            other = world.rng.choice([qp for qp, row in world.rows.items() if row[0] == "away" and qp != 2])
            assert (await world.execute(ctx, other))[0] == OK
        await world.until(ctx, lambda: 2 not in world.rows)
        await world.settle(ctx)
        assert (await world.execute(ctx, 2))[0] == BAD_NUMBER

    world = play(scenario)
    assert world.fatal == [2]


@pytest.mark.parametrize("delay", range(0, 14, 2))
def test_a_write_that_fails_while_somebody_looks_where_another_is(delay):
    """However late it fails: it is told."""

    async def scenario(ctx, world):
        world.stall = 0
        await fill(ctx, world, range(5))
        await world.settle(ctx)
        world.write_fails = lambda qp: True
        victim = None

        def leaving():
            nonlocal victim
            if world.writing:
                victim = world.written
            return world.writing

        world.packet = next(qp for qp, row in world.rows.items() if row[0] == "away")
        await world.until(ctx, leaving)
        world.writing = 200
        await world.until(ctx, lambda: world.packet is None)
        await world.until(ctx, lambda: world.turn == "idle" and not world.closed)
        world.writing = delay + 1
        world.want(next(qp for qp, row in world.rows.items() if row[0] == "here"))
        await world.until(ctx, lambda: not world.owed)
        await world.settle(ctx)
        assert world.fatal == [victim]
        assert victim not in world.rows

    play(scenario)


@pytest.mark.parametrize("fails", [False, True])
def test_a_bad_record_while_another_one_is_written(fails):
    """What is written is looked after all the same: it is not read before it is there, and if it fails it is told."""

    async def scenario(ctx, world):
        await fill(ctx, world, range(4))
        await send_away(ctx, world, 1)
        await world.execute(ctx, 1)  # it has an old record
        await world.settle(ctx)
        bad = next(qp for qp, row in world.rows.items() if row[0] == "away")
        world.read_fails = lambda qp: qp == bad
        world.write_fails = lambda qp: fails
        world.packet = bad
        await world.until(ctx, lambda: world.writing)
        leaver = world.written
        world.writing = 60
        await world.until(ctx, lambda: world.fatal == [bad])
        world.want(leaver)
        await world.settle(ctx)
        assert not world.owed
        assert world.fatal == ([bad, leaver] if fails else [bad])
        assert (leaver in world.rows) != fails

    play(scenario)


def reported(world, phase):
    """Whether the present job is that far."""
    return {
        "save": lambda: world.log[-1][0] == "save",
        "full": lambda: world.log[-1][0] == "save" and world.full,
    }[phase]


@pytest.mark.parametrize("phase", ["save", "full"])
@pytest.mark.parametrize("kind", ["command", "want", "packet"])
def test_something_is_reported_while_a_qp_leaves(kind, phase):
    """It comes back to its slot, and stays closed until what was reported is done; then the job begins anew."""
    told = []

    async def scenario(ctx, world):
        await fill(ctx, world, range(5))
        await world.settle(ctx)
        qp = next(qp for qp, row in world.rows.items() if row[0] == "away")
        del world.log[:]
        if kind == "command":
            world.command, world.result = (qp, 0), None
        elif kind == "want":
            world.want(qp)
        else:
            world.packet = qp
        await world.until(ctx, lambda: world.log and reported(world, phase)())
        slot, leaver = world.log[-1][1:3]
        world.reported = 3
        await world.until(ctx, lambda: world.log[-1][0] == "load")
        assert world.log[-1][1:3] == (slot, leaver)
        assert world.slot_of(leaver) == slot
        while world.reported:
            assert world.closed
            assert ctx.get(world.dut.closed_qp) == slot
            await world.step(ctx)
        told.append([entry[0] for entry in world.log])
        await world.until(ctx, lambda: not world.closed)
        await world.until(ctx, lambda: world.slot_of(qp) is not None and (kind != "command" or world.result))
        await world.settle(ctx)
        assert not world.owed

    play(scenario)
    assert "gone" not in told[0]


@pytest.mark.parametrize("rate", [0, 0.5])
@pytest.mark.parametrize("fails", [False, True])
def test_a_qp_leaves_when_its_completions_are_in_memory(fails, rate):
    """One that could not be written is told of while its slot is still its own, and it comes back to fail. So it is
    when others complete all the time, and when none does."""
    worlds = []

    async def scenario(ctx, world):
        worlds.append(world)
        world.completions.rate = rate
        await fill(ctx, world, range(5))
        await world.settle(ctx)
        qp = next(qp for qp, row in world.rows.items() if row[0] == "away")
        del world.log[:]
        world.completions.fails = fails
        world.want(qp)
        await world.until(ctx, lambda: world.log and world.log[-1][0] == "save")
        leaver = world.log[-1][2]
        await world.until(ctx, lambda: world.log[-1][0] in ("gone", "load"))
        assert world.log[-1][0] == ("load" if fails else "gone")
        assert (world.slot_of(leaver) is None) != fails
        world.completions.fails = False
        await world.until(ctx, lambda: not world.owed)
        await world.settle(ctx)

    play(scenario)
    assert worlds[0].completions.marks or not rate


@pytest.mark.parametrize("fails", ["write", "read"])
def test_a_qp_that_cannot_come_back(fails):
    """Something was reported, and its record gets lost: it is forgotten, and its slot is free."""

    async def scenario(ctx, world):
        await fill(ctx, world, range(5))
        await world.settle(ctx)
        qp = next(qp for qp, row in world.rows.items() if row[0] == "away")
        del world.log[:]
        world.want(qp)
        await world.until(ctx, lambda: world.log and world.log[-1][0] == "save")
        leaver = world.log[-1][2]
        setattr(world, f"{fails}_fails", lambda other: other == leaver)
        world.reported = 2
        await world.until(ctx, lambda: world.fatal)
        await world.settle(ctx)
        assert world.fatal == [leaver]
        assert leaver not in world.rows
        assert world.slot_of(qp) is not None
        assert not world.owed

    play(scenario)


def test_a_qp_that_wakes_is_wanted_at_once():
    async def scenario(ctx, world):
        await fill(ctx, world, range(4))
        woken = []
        world.wakes = lambda qp: qp not in woken and not woken.append(qp)
        await world.create(ctx, 9)
        await world.settle(ctx)
        assert woken
        for qp in woken:
            assert ("want", qp) in world.log
            assert ("load", qp) in [(name, *more[1:2]) for name, *more in world.log]

    play(scenario)


def test_timers_go_along():
    """Class and phase stand in the directory, and the timer runs there as long as the QP is away."""
    timers = {}

    async def scenario(ctx, world):
        await fill(ctx, world, range(4))

        def timer_of(qp):
            timers[qp] = world.rng.choice([0, 1, 17, 31])
            return timers[qp]

        world.timer_of = timer_of
        for _ in range(16):
            await world.execute(ctx, world.rng.randrange(10), 1)
            await world.settle(ctx)
            for qp, row in world.rows.items():
                assert row[0] == "here" or row[1] == timers[qp]

    world = play(scenario)
    assert len(set(timers.values())) > 2
    assert world.fetches


def test_without_room_more_qps_leave():
    async def scenario(ctx, world):
        await fill(ctx, world, range(5))
        await world.settle(ctx)
        qp = next(qp for qp, row in world.rows.items() if row[0] == "away")
        world.room = 0
        del world.log[:]
        world.want(qp)
        await world.until(ctx, lambda: [entry[0] for entry in world.log].count("gone") == 3)
        assert world.slot_of(qp) is None
        world.room = 1
        await world.until(ctx, lambda: not world.owed)
        assert world.slot_of(qp) is not None

    play(scenario)


def test_a_qp_that_is_destroyed():
    """Its slot is free, its number too."""

    async def scenario(ctx, world):
        await fill(ctx, world, range(4))
        world.forget = slot = world.slot_of(2)
        await world.until(ctx, lambda: world.forget is None)
        assert (await world.execute(ctx, 2))[0] == BAD_NUMBER
        assert await world.create(ctx, 5) == slot
        assert not any(entry[0] == "gone" for entry in world.log)

    play(scenario)


def test_forced_evictions():
    """The QP in that slot leaves; it is passed over if nobody is there, if it serves, and if something is reported."""

    async def scenario(ctx, world):
        await fill(ctx, world, range(3))
        empty = ({0, 1, 2, 3} - set(world.content)).pop()
        slots = {qp: world.slot_of(qp) for qp in range(3)}

        async def evict(slot):
            world.evict = slot
            await world.until(ctx, lambda: world.evict is None)
            return world.evicted[-1]

        assert await evict(empty) == (empty, True)
        world.serving = {slots[1]}
        assert await evict(slots[1]) == (slots[1], True)
        assert await evict(slots[0]) == (slots[0], False)
        assert world.rows[0][0] == "away"
        await world.settle(ctx)
        del world.log[:]
        world.evict = slots[2]
        await world.until(ctx, lambda: world.log and world.log[-1][0] == "save")
        world.reported = 2
        await world.until(ctx, lambda: world.evict is None)
        assert world.evicted[-1] == (slots[2], True)
        assert world.slot_of(2) == slots[2]
        assert not world.fatal

    play(scenario, forced=True)


@pytest.mark.parametrize("cycles", [500, pytest.param(1200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("slots", [2, 4])
def test_many_at_once(slots, forced, cycles):
    """Wants, packets, commands, reports, failures: no slot has two QPs, nobody runs on old state, and every want is
    answered."""

    async def scenario(ctx, world):
        rng = world.rng
        failing = [0.02]
        world.write_fails = world.read_fails = lambda qp: rng.random() < failing[0]
        world.wakes = lambda qp: rng.random() < 0.1
        world.timer_of = lambda qp: rng.choice([0, 0, 3, 12])
        await fill(ctx, world, range(slots + 2))
        expected = None
        for cycle in range(cycles):
            there = set(world.rows)
            if cycle % 200 == 0:
                world.stall = rng.choice([0, 0.2, 0.6])
            if rng.random() < 0.02:
                world.want(rng.choice(sorted(there)))
            if rng.random() < 0.04 and world.packet is None:
                qp = rng.choice(sorted(there))
                world.packet = qp if world.slot_of(qp) is None else None
            if rng.random() < 0.03 and world.command is None:
                expected = (rng.randrange(slots + 4), int(rng.random() < 0.5))
                world.command, world.result = expected, None
            if rng.random() < 0.005:
                world.reported += 1
            if rng.random() < 0.01:
                world.serving = {slot for slot in range(slots) if rng.random() < 0.3}
                world.serving.discard(rng.randrange(slots))
            if rng.random() < 0.01:
                world.room = int(rng.random() < 0.8)
            if forced and world.evict is None and rng.random() < 0.01:
                world.evict = rng.randrange(slots)
            await world.step(ctx)
            if world.result and expected:
                status, slot = world.result
                if status == OK:
                    assert world.slot_of(expected[0]) == slot
                    if rng.random() < 0.2 and len(there) > slots:
                        world.forget = slot  # it was DESTROY_QP
                elif status == BAD_NUMBER:
                    assert not expected[1]
                    assert expected[0] not in there
                else:
                    assert world.fatal[-1] == expected[0]
                expected = None
        failing[0] = 0
        world.serving, world.room = set(), 1
        world.wakes = lambda qp: False
        await world.settle(ctx)
        assert not world.owed
        assert not world.wanted

    world = play(scenario, slots=slots, forced=forced)
    assert world.fetches > 3
