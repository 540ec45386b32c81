"""Answers to a query, in any order."""

import itertools

import pytest
from streams import make_rng, pause, send_all, simulate
from verbena.hdl.abi.contexts import QP_DYNAMIC
from verbena.hdl.control.replies import Replies


@pytest.mark.parametrize("order", list(itertools.permutations(("requester", "responder", "completer"))))
def test_any_order_gives_the_record(order):
    rng = make_rng()
    dut = Replies()
    values = [
        {
            "sq_psn": rng.getrandbits(24), "rq_psn": rng.getrandbits(24), "sq_index": rng.getrandbits(16),
            "rq_index": rng.getrandbits(16), "sq_completed": rng.getrandbits(16),
        }
        for _ in range(3)
    ]  # fmt: skip
    turn = [None]

    def owner(name):
        async def answer(ctx):
            for number, fields in enumerate(values):
                while turn[0] != (number, name):
                    await ctx.tick()
                await pause(ctx, rng, 0.5)
                reply = {
                    "requester": {"psn": fields["sq_psn"], "index": fields["sq_index"]},
                    "responder": {"psn": fields["rq_psn"], "index": fields["rq_index"]},
                    "completer": {"index": fields["sq_completed"]},
                }[name]
                place = order.index(name)
                turn[0] = (number, order[place + 1]) if place < 2 else None
                await send_all(ctx, getattr(dut, name), [reply])

        return answer

    async def host(ctx):
        for number, fields in enumerate(values):
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            turn[0] = (number, order[0])
            words = {}
            while not ctx.get(dut.done):
                _, _, write, word, data = await ctx.tick().sample(dut.write, dut.word, dut.data)
                if write:
                    assert word not in words
                    words[word] = data
            assert [words[i] for i in range(4)] == QP_DYNAMIC.words(**fields)

    simulate(dut, host, *map(owner, order), seed=rng.seed_value)
