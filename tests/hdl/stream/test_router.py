"""Items go where their tag says, in order, whoever stalls."""

import pytest
from amaranth.lib import data
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.router import TagRouter

SHAPE = data.StructLayout({"number": 16, "tag": 1})


@pytest.mark.parametrize("stalls", [(0, 0, 0), (0.3, 0.3, 0.3), (0, 0.6, 0), (0, 0, 0.6)])
def test_each_goes_where_its_tag_says(stalls):
    rng = make_rng()
    dut = TagRouter(SHAPE)
    sent = [{"number": number, "tag": rng.randrange(2)} for number in range(300)]

    async def producer(ctx):
        await send_all(ctx, dut.i, sent, rng, stalls[0])

    def consumer(tag):
        async def run(ctx):
            mine = [item for item in sent if item["tag"] == tag]
            assert await receive_all(ctx, dut.o[tag], len(mine), rng, stalls[1 + tag]) == mine

        return run

    simulate(dut, producer, consumer(0), consumer(1), seed=rng.seed_value)
