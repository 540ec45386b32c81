from streams import make_rng, plain, simulate
from verbena.hdl.control.doorbell_hold import DoorbellHold
from verbena.hdl.queue.ring import PushDoorbell


def test_of_a_qp_that_is_away_the_last_doorbell_comes_when_it_is_back():
    rng = make_rng()
    dut = DoorbellHold(PushDoorbell)
    sent, out = {}, {}  # of each QP its last index

    async def testbench(ctx):
        away, left = None, 0
        item = None
        for _ in range(6000):
            if left == 0:
                away = rng.choice([None, None, *range(4)])
                left = rng.randrange(1, 40)
                ctx.set(dut.closed, away is not None)
                ctx.set(dut.closed_qp, away or 0)
            left -= 1
            if item is None and rng.random() < 0.5:
                qp = rng.randrange(4)
                item = {"qp": qp, "index": (sent.get(qp, 0) + 1) & 0xFFFF, "push": rng.randrange(2)}
                ctx.set(dut.i.payload, item)
            ctx.set(dut.i.valid, item is not None)
            ctx.set(dut.o.ready, rng.random() < 0.6)
            _, _, taken, valid, ready, payload = await ctx.tick().sample(
                dut.i.ready, dut.o.valid, dut.o.ready, dut.o.payload
            )
            if valid and ready:
                payload = plain(payload)
                assert payload["qp"] != away
                assert payload["index"] > out.get(payload["qp"], 0)
                out[payload["qp"]] = payload["index"]
            if item is not None and taken:
                sent[item["qp"]] = item["index"]
                item = None
            elif item is not None:
                assert item["qp"] != away or not taken
        ctx.set(dut.closed, 0)
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.o.ready, 1)
        for _ in range(10):
            _, _, valid, payload = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            if valid:
                out[plain(payload)["qp"]] = plain(payload)["index"]
        assert out == sent

    simulate(dut, testbench, seed=rng.seed_value)
    assert min(sent.values()) > 100
