"""Who hears of which token, in which order, and what RESET waits for."""

import pytest
from streams import make_rng, pause, plain, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.control.tokens import Tokens

MOST = ["requester", "responder", "completer", "sq_fetch", "rq_fetch"]
ALL = ["requester", "responder", "response_receiver", "completer", "sq_fetch", "rq_fetch"]


PASSAGES = [QpAction.RESET, QpAction.SAVE, QpAction.LOAD]


def say(actions, answers=(), sending=True):
    """Says the tokens; ``answers`` are the strobes that come, in their order, when all before them have. The log."""
    rng = make_rng()
    dut = Tokens(4, swaps=True)
    log = []

    def block(name):
        async def take(ctx):
            port = getattr(dut, name)
            edges = aiter(ctx.tick().sample(port.valid, port.ready, port.payload))
            while True:
                ctx.set(port.ready, rng.random() < 0.5)
                _, _, valid, ready, token = await anext(edges)
                if valid and ready:
                    log.append((name, plain(token)["action"]))
                    assert plain(token) == {"qp": 5, "action": plain(token)["action"], "psn": 0xABCDEF}

        return take

    async def host(ctx):
        ctx.set(dut.sending, sending)
        for action in actions:
            ctx.set(dut.request.payload, {"qp": 5, "action": action, "psn": 0xABCDEF})
            ctx.set(dut.request.valid, 1)
            ready = 0
            while not ready:
                _, _, ready = await ctx.tick().sample(dut.request.ready)
            ctx.set(dut.request.valid, 0)
            log.append("over")
            await pause(ctx, rng, 0.5)

    async def ends(ctx):
        for after, name in answers:
            while not {(after, action) for action in PASSAGES} & set(log):
                await ctx.tick()
            for _ in range(30):  # time enough to go on without it
                await ctx.tick()
            log.append(name)
            strobe = getattr(dut, f"{name}_done")
            ctx.set(strobe, 1)
            await ctx.tick()
            ctx.set(strobe, 0)

    simulate(dut, host, ends, background=[block(name) for name in [*ALL, "timers"]], seed=rng.seed_value)
    return log


@pytest.mark.parametrize("last", ["requester", "responder", "read_atomic_responder"])
def test_reset_waits_for_every_end(last):
    ends = [name for name in ("requester", "responder", "read_atomic_responder") if name != last] + [last]
    log = say([QpAction.RESET], [*(("responder", name) for name in ends), ("response_receiver", "response_receiver")])
    tokens = [(name, QpAction.RESET) for name in ALL]
    assert log == [*tokens[:2], *ends, tokens[2], "response_receiver", *tokens[3:], "over"]


@pytest.mark.parametrize("sending", [True, False])
@pytest.mark.parametrize("ends", [("responder", "read_atomic_responder"), ("read_atomic_responder", "responder")])
def test_save_comes_to_the_prefetchers_last_and_to_the_requester_twice(ends, sending):
    """The response receiver waits for the requester's STOP alone, and for nobody if its queue pair has nothing on the
    transmit path: STOP arrives there later."""
    stopped = [("responder", "requester")] if sending else []
    answers = [*stopped, ("response_receiver", "response_receiver"), *(("requester", name) for name in ends)]
    saves = {name: (name, QpAction.SAVE) for name in [*ALL, "timers"]}
    log = say([QpAction.SAVE], answers, sending=sending)
    assert log[:-3] == [
        ("requester", QpAction.STOP),
        saves["responder"],
        *(name for _, name in stopped),
        saves["response_receiver"],
        "response_receiver",
        *(saves[name] for name in ("timers", "completer", "requester")),
        *ends,
    ]
    assert set(log[-3:-1]) == {saves["sq_fetch"], saves["rq_fetch"]}
    assert log[-1] == "over"


@pytest.mark.parametrize("ends", [("responder", "read_atomic_responder"), ("read_atomic_responder", "responder")])
def test_load_comes_last_to_requester_timers_and_who_a_packet_before_it_may_need(ends):
    answers = [*(("responder", name) for name in ends), ("response_receiver", "response_receiver")]
    loads = {name: (name, QpAction.LOAD) for name in [*ALL, "timers"]}
    log = say([QpAction.LOAD, QpAction.ERROR], answers)
    at_once = {loads[name] for name in ("responder", "response_receiver", "completer", "sq_fetch")}
    over = log.index("over")
    assert set(log[over - 3 : over]) == {loads["rq_fetch"], loads["timers"], loads["requester"]}
    assert set(log[: over - 3]) == {*at_once, *ends, "response_receiver"}
    assert log[over + 1 :] == [*((name, QpAction.ERROR) for name in MOST), "over"]


def test_the_others_wait_for_nothing():
    actions = [QpAction.RESUME, QpAction.ERROR, QpAction.START_SEND, QpAction.START_RECEIVE, QpAction.QUERY]
    expected = []
    for action in actions:
        expected += [*((name, action) for name in MOST), "over"]
    assert say(actions) == expected


def test_drain_goes_to_the_requester_alone():
    assert say([QpAction.DRAIN]) == [("requester", QpAction.DRAIN), "over"]


def test_behind_a_reset_of_the_device_nobody_waits():
    """Four tokens are on each path before the first is at its end; they are under way until the last one is."""
    dut = Tokens(4)
    names = ("requester", "responder", "read_atomic_responder", "response_receiver")

    async def testbench(ctx):
        ctx.set(dut.new, 1)
        for name in ALL:
            ctx.set(getattr(dut, name).ready, 1)
        ctx.set(dut.request.payload, {"action": QpAction.RESET})
        ctx.set(dut.request.valid, 1)
        for _ in range(4):
            for cycle in range(20):
                assert ctx.get(dut.under_way) or cycle < 3
                if ctx.get(dut.request.ready):
                    break
                await ctx.tick()
            assert ctx.get(dut.request.ready)
            await ctx.tick()
        ctx.set(dut.request.valid, 0)
        for name in names:
            strobe = getattr(dut, f"{name}_done")
            for _ in range(4):
                await ctx.tick().repeat(3)
                assert ctx.get(dut.under_way)
                ctx.set(strobe, 1)
                await ctx.tick()
                ctx.set(strobe, 0)
        await ctx.tick().repeat(2)
        assert not ctx.get(dut.under_way)

    simulate(dut, testbench)
