"""Reports wait as long as they have to, and none is lost."""

from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.control.reports import Reports


def test_both_sources_keep_their_order():
    rng = make_rng()
    dut = Reports(8)
    sent = {source: [{"qp": n % 8, "event": 2 * n + source} for n in range(40)] for source in range(2)}
    got = []

    def sender(port, items):
        async def send(ctx):
            await send_all(ctx, port, items, rng)

        return send

    async def take(ctx):
        got.extend(await receive_all(ctx, dut.o, 80, rng))
        await ctx.tick()
        assert ctx.get(dut.empty)

    simulate(dut, sender(dut.responder, sent[0]), sender(dut.completer, sent[1]), take, seed=rng.seed_value)
    for source, items in sent.items():
        assert [item for item in got if item["event"] % 2 == source] == items


def test_takes_a_report_of_each_qp_while_nobody_reads_and_is_not_empty_meanwhile():
    dut = Reports(8)

    async def send(ctx):
        assert ctx.get(dut.empty)
        for port in (dut.responder, dut.completer):
            for qp in range(8):
                await send_all(ctx, port, [{"qp": qp, "event": 3}])
                assert not ctx.get(dut.empty)
        for left in reversed(range(16)):
            await receive_all(ctx, dut.o, 1)
            await ctx.tick()
            assert ctx.get(dut.empty) == (left == 0)

    simulate(dut, send)


def test_a_qp_that_loses_many_completions_is_told_once_until_it_is_taken():
    rng = make_rng()
    dut = Reports(8)
    lost = [rng.randrange(8) for _ in range(60)]

    async def send(ctx):
        for _ in range(2):
            await send_all(ctx, dut.completions, [{"qp": qp, "event": EventType.QP_FATAL} for qp in lost])
            for _ in range(10):
                await ctx.tick()
            assert not ctx.get(dut.empty)
            got = []
            while not ctx.get(dut.empty):
                got += await receive_all(ctx, dut.o, 1, rng)
                await ctx.tick()
            assert {item["event"] for item in got} == {EventType.QP_FATAL}
            assert {item["qp"] for item in got} == set(lost)
            assert len(got) <= len(set(lost)) + 2  # one that stands at the output may be there once more

    simulate(dut, send, seed=rng.seed_value)
