"""The steps of a command for a queue pair, in their order."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.abi.commands import CommandStatus, QpAction
from verbena.hdl.abi.contexts import QP_CONTEXT_WORDS, QpState
from verbena.hdl.control.decoder import Plan
from verbena.hdl.control.qp_command import QpCommand
from verbena.hdl.control.qp_look import QPN_WORD

LAST = QP_CONTEXT_WORDS - 1
QPN, PSN = 0x123456, 0xABCDEF
WRITE, TOKEN = ("write", LAST, 0, 0), ("token", PSN)


class World:
    """Those around it, each of whom takes some time. ``log`` holds what they were asked for, in order."""

    def __init__(self, *, owner=QPN, state=QpState.RTS):
        self.rng = make_rng()
        self.dut = QpCommand()
        self.owner, self.state = owner, state
        self.log = []

    async def wait(self, ctx):
        await ctx.tick().repeat(self.rng.randrange(1, 9))

    async def around(self, ctx):
        dut = self.dut
        while True:
            if ctx.get(dut.look):
                self.log.append("look")
                await self.wait(ctx)
                ctx.set(dut.owner, self.owner)
                await ctx.tick()
                ctx.set(dut.state, self.state)
                ctx.set(dut.shown, PSN)
                ctx.set(dut.looked, 1)
                await ctx.tick()
                ctx.set(dut.looked, 0)
                ctx.set(dut.shown, 0)
            elif ctx.get(dut.write) or ctx.get(dut.read):
                if ctx.get(dut.read):
                    assert ctx.get(dut.ask)
                    self.log.append("read")
                else:
                    self.log.append(("write", ctx.get(dut.first), ctx.get(dut.single), ctx.get(dut.zero)))
                    if ctx.get(dut.freed):
                        self.log.append("freed")
                ctx.set(dut.moving, 1)
                await self.wait(ctx)
                ctx.set(dut.moving, 0)
            elif ctx.get(dut.token):
                self.log.append(("token", ctx.get(dut.psn)))
                await self.wait(ctx)
                ctx.set(dut.taken, 1)
                assert ctx.get(dut.settle)
                await ctx.tick()
                ctx.set(dut.taken, 0)
            else:
                await ctx.tick()

    async def command(self, ctx, plan, action, *, destroy=0, create=0, new=0, word=LAST):
        """Returns the status."""
        dut = self.dut
        for name, value in {
            "plan": plan, "action": action, "destroy": destroy, "create": create, "new": new, "word": word, "qpn": QPN,
        }.items():  # fmt: skip
            ctx.set(getattr(dut, name), value)
        ctx.set(dut.go, 1)
        await ctx.tick()
        ctx.set(dut.go, 0)
        while not ctx.get(dut.done):
            await ctx.tick()
        status = CommandStatus(ctx.get(dut.status))
        await ctx.tick()
        assert not ctx.get(dut.done)
        return status

    def run(self, host, *more):
        simulate(self.dut, host, *more, background=[self.around], seed=self.rng.seed_value)


def modify(action, state):
    world = World(state=state)

    async def host(ctx):
        world.status = await world.command(ctx, Plan.MODIFY_QP, action)

    world.run(host)
    return world


ALLOWED = {
    QpAction.RESET: set(QpState),
    QpAction.ERROR: set(QpState),
    QpAction.NONE: set(QpState) - {QpState.ERR},
    QpAction.START_RECEIVE: set(QpState) - {QpState.ERR},
    QpAction.START_SEND: set(QpState) - {QpState.ERR},
    QpAction.DRAIN: {QpState.RTS},
    QpAction.RESUME: {QpState.SQD},
    QpAction.RESTART_SEND: {QpState.SQE},
}
"""The states in which an action of MODIFY_QP is done, written down once more."""


@pytest.mark.parametrize("action", [action for action in ALLOWED if action != QpAction.RESET])
def test_what_a_state_allows(action):
    for state in QpState:
        world = modify(action, state)
        if state in ALLOWED[action]:
            assert world.status == CommandStatus.OK
            starts = (QpAction.START_SEND, QpAction.START_RECEIVE, QpAction.RESTART_SEND)
            then = [TOKEN, WRITE] if action in starts else [WRITE, TOKEN]
            assert world.log == ["look", *(then[:1] if action == QpAction.NONE else then)]
        else:
            assert (world.status, world.log) == (CommandStatus.BAD_STATE, ["look"])


@pytest.mark.parametrize("owner", [QPN, 0, QPN ^ 1, QPN ^ 1 << 23])
@pytest.mark.parametrize("plan", [Plan.WRITE_QP, Plan.MODIFY_QP, Plan.READ_QP])
@pytest.mark.parametrize("create", [0, 1])
def test_whose_the_slot_must_be(owner, plan, create):
    world = World(owner=owner)

    async def host(ctx):
        ctx.set(world.dut.answered, 1)
        status = await world.command(ctx, plan, QpAction.NONE, create=create)
        mine = owner == QPN or (create and owner == 0)
        assert status == (CommandStatus.OK if mine else CommandStatus.BAD_NUMBER)
        assert (world.log == ["look"]) == (not mine)

    world.run(host)


def test_a_query_waits_for_the_answers():
    world = World()

    async def host(ctx):
        assert await world.command(ctx, Plan.READ_QP, QpAction.QUERY) == CommandStatus.OK
        assert world.log == ["look", "read", ("token", 0), "answered"]

    async def answers(ctx):
        while ("token", 0) not in world.log:
            await ctx.tick()
        await ctx.tick().repeat(30)
        world.log.append("answered")
        ctx.set(world.dut.answered, 1)

    world.run(host, answers)


@pytest.mark.parametrize("destroy", [0, 1])
@pytest.mark.parametrize("last", ["settled", "reports"])
def test_reset_waits_until_all_is_over(destroy, last):
    world = World()
    dut = world.dut
    word = 0 if destroy else LAST
    written = [("write", word, 0, destroy), ("token", 0)]

    async def host(ctx):
        ctx.set(dut.reports, 1)
        assert await world.command(ctx, Plan.WRITE_QP, QpAction.RESET, destroy=destroy, word=word) == CommandStatus.OK
        free = [("write", QPN_WORD, 1, 1), "freed"] if destroy else []
        over = ["settled", "reports"] if last == "reports" else ["reports", "settled"]
        assert world.log == ["look", *written, *over, *free]

    async def end(ctx):
        while not ctx.get(dut.waits):
            await ctx.tick()
        for name in ("settled", "reports") if last == "reports" else ("reports", "settled"):
            await ctx.tick().repeat(20)
            assert ctx.get(dut.waits)
            world.log.append(name)
            ctx.set(getattr(dut, name), name == "settled")

    world.run(host, end)


def test_as_after_a_reset_nothing_is_looked_at_or_waited_for():
    world = World(owner=QPN ^ 1)

    async def host(ctx):
        ctx.set(world.dut.reports, 1)
        await world.command(ctx, Plan.WRITE_QP, QpAction.RESET, destroy=1, new=1)
        assert world.log == [("write", LAST, 0, 1), ("token", 0)]

    world.run(host)
