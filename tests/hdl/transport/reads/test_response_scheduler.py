"""The scheduler's corners; :mod:`test_read_atomic_responder` plays everything around it at random."""

from streams import send_all, simulate
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.stream.transfer import Passage
from verbena.hdl.transport.reads.response_scheduler import ResponseScheduler

QPS = 4


class User:
    """The cutter: takes turns, and says how they end."""

    def __init__(self, dut):
        self.dut = dut

    async def turn(self, ctx, cycles=30):
        """(qp, token, open, flying) of the next turn, None if there is none in time; and the cycles it took."""
        dut = self.dut
        ctx.set(dut.free, 1)
        for cycle in range(cycles):
            if ctx.get(dut.begun):
                ctx.set(dut.free, 0)
                await ctx.tick()
                return tuple(ctx.get(getattr(dut, n)) for n in ("qp", "token", "open", "flying")), cycle
            await ctx.tick()
        ctx.set(dut.free, 0)
        return None, cycles

    async def rest(self, ctx):
        """Turns until there are no more, of which no use is made: a QP may have one too many."""
        turns = []
        while (turn := (await self.turn(ctx))[0]) is not None:
            turns.append(turn)
            assert len(turns) < 8
        return turns

    async def end(self, ctx, complete=1, skip=0):
        dut = self.dut
        for name, value in (("end", 1), ("complete", complete), ("skip", skip)):
            ctx.set(getattr(dut, name), value)
        ended = 0
        edges = aiter(ctx.tick().sample(dut.ended))
        while not ended:
            _, _, ended = await anext(edges)
        ctx.set(dut.end, 0)


async def served(ctx, dut, qp):
    ctx.set(dut.served_qp, qp)
    await ctx.tick()
    return ctx.get(dut.served)


def run(test, swaps=False):
    dut = ResponseScheduler(QPS, swaps=swaps)

    async def testbench(ctx):
        ctx.set(dut.answered_o.ready, 1)
        await test(ctx, dut, User(dut))

    simulate(dut, testbench)


def test_counts():
    """Entries are cut in order, counted when answered, and a QP that is waited for gets a turn then."""

    async def test(ctx, dut, user):
        await send_all(ctx, dut.release, [{"qp": 2}, {"qp": 2}])
        assert (await user.turn(ctx))[0] == (2, 0, 1, 0)
        await user.end(ctx, complete=0)
        assert (await user.turn(ctx))[0] == (2, 0, 1, 0)
        await user.end(ctx)
        assert set(await user.rest(ctx)) == {(2, 0, 1, 1)}  # and waits for the first one's answer
        await send_all(ctx, dut.answered_i, [{"qp": 2, "status": AccessStatus.POISONED}])
        assert await user.rest(ctx) == []
        await send_all(ctx, dut.answered_i, [{"qp": 2, "last": 1}])
        assert (await user.turn(ctx))[0] == (2, 0, 1, 0)
        await user.end(ctx, skip=1)
        assert await user.rest(ctx) == []
        assert await served(ctx, dut, 2) == 2
        assert await served(ctx, dut, 1) == 0

    run(test)


def test_cycles():
    async def test(ctx, dut, user):
        ctx.set(dut.release.payload, {"qp": 1})
        ctx.set(dut.release.valid, 1)
        assert (await user.turn(ctx))[1] == 5

    run(test)


async def last_answer(ctx, dut, user, **fields):
    """QP 1 has a release, which has its turn; then its last answer is there."""
    await send_all(ctx, dut.release, [{"qp": 1}])
    await user.turn(ctx)
    await user.end(ctx)
    ctx.set(dut.answered_i.payload, {"qp": 1, "last": 1} | fields)
    ctx.set(dut.answered_i.valid, 1)


def test_a_release_goes_before_an_answer():
    """The acknowledger waits for its release, and can take no answer meanwhile."""

    async def test(ctx, dut, user):
        await last_answer(ctx, dut, user)
        await ctx.tick()  # from the next cycle on both want to be applied
        ctx.set(dut.release.payload, {"qp": 3})
        ctx.set(dut.release.valid, 1)
        await ctx.tick()
        assert ctx.get(dut.release.ready)

    run(test)


def test_answers_do_not_wait():
    """An answer that the acknowledger does not take holds up no release, and is counted at once."""

    async def test(ctx, dut, user):
        ctx.set(dut.answered_o.ready, 0)
        await last_answer(ctx, dut, user, psn=77)
        await send_all(ctx, dut.release, [{"qp": 3}])
        assert (await user.turn(ctx))[0] == (3, 0, 1, 0)
        assert await served(ctx, dut, 1) == 1
        assert ctx.get(dut.answered_o.valid)
        assert not ctx.get(dut.answered_i.ready)
        ctx.set(dut.answered_o.ready, 1)
        taken = 0
        while not taken:
            _, _, taken = await ctx.tick().sample(dut.answered_i.ready)
        ctx.set(dut.answered_i.valid, 0)
        assert await served(ctx, dut, 1) == 1

    run(test)


def test_save_waits_until_the_last_answer_is_counted():
    """The acknowledger has it already, but releases and a turn go before it here."""

    async def test(ctx, dut, user):
        await last_answer(ctx, dut, user)
        await send_all(ctx, dut.release, [{"qp": 3}, {"qp": 3}, {"qp": 3}])
        ctx.set(dut.free, 1)
        await send_all(ctx, dut.release, [{"qp": 1, "token": 1, "passage": Passage.SAVE}])
        assert await served(ctx, dut, 1) == 1

    run(test, swaps=True)


def test_token_withdraws_answer():
    """A token forgets the QP's entries; an answer of its past that is being shown is withdrawn, those behind it are
    swallowed, others pass; and another token waits until the first one has arrived."""

    async def test(ctx, dut, user):
        await send_all(ctx, dut.release, [{"qp": 1}, {"qp": 1}, {"qp": 2}])
        ctx.set(dut.answered_o.ready, 0)
        ctx.set(dut.answered_i.payload, {"qp": 1, "last": 1})
        ctx.set(dut.answered_i.valid, 1)
        for _ in range(4):
            await ctx.tick()
        assert ctx.get(dut.answered_o.valid)
        await send_all(ctx, dut.release, [{"qp": 1, "token": 1}])
        await ctx.tick()
        assert not ctx.get(dut.answered_o.valid)
        ctx.set(dut.answered_i.valid, 0)
        assert (await user.turn(ctx))[0][:2] == (1, 1)
        await user.end(ctx)
        assert await served(ctx, dut, 1) == 0

        ctx.set(dut.release.payload, {"qp": 2, "token": 1})
        ctx.set(dut.release.valid, 1)
        shown = []
        ctx.set(dut.answered_o.ready, 1)
        for answer in (
            {"qp": 1, "status": AccessStatus.BUS},
            {"qp": 2, "status": AccessStatus.BUS, "last": 1},
            {"qp": 1},
        ):
            ctx.set(dut.answered_i.payload, answer)
            ctx.set(dut.answered_i.valid, 1)
            taken = 0
            while not taken:
                sampled = (dut.answered_o.valid, dut.answered_o.payload.qp, dut.answered_i.ready, dut.release.ready)
                _, _, valid, qp, taken, other = await ctx.tick().sample(*sampled)
                assert not other
                if valid:
                    shown.append(qp)
            ctx.set(dut.answered_i.valid, 0)
        ctx.set(dut.free, 0)
        assert shown == [2]
        assert not ctx.get(dut.release.ready)
        turns = await user.rest(ctx)
        assert (2, 1) in [turn[:2] for turn in turns]
        # What is left of the first QP's turns finds nothing, and the second one's answer was fatal.
        assert not any(is_open for _, token, is_open, _ in turns if not token)

    run(test)
