import pytest
from streams import make_rng, send_all, simulate
from verbena.hdl.dma.arbiter import BurstArbiter, ReadArbiter, WriteArbiter


def test_turns_and_addresses():
    rng = make_rng()
    clients = 5
    dut = BurstArbiter(clients)
    bursts = [[{"address": rng.getrandbits(64), "length": n} for n in range(20)] for _ in range(clients)]
    got, chosen = [], []

    def feed(number):
        async def client(ctx):
            await send_all(ctx, dut.i[number], bursts[number], None)

        return client

    async def take(ctx):
        ctx.set(dut.enable, 1)
        while len(got) < 20 * clients:
            ready = rng.random() < 0.7
            ctx.set(dut.ready, ready)
            _, _, valid, *values, wins = await ctx.tick().sample(
                dut.valid, dut.client, dut.address, dut.length, dut.chosen
            )
            if valid and ready:
                got.append(values)
            if wins:
                chosen.append(wins)

    simulate(dut, *[feed(n) for n in range(clients)], take)
    order = [client for client, _, _ in got]
    assert [1 << client for client in order] == chosen
    assert order == list(range(clients)) * 20, "everyone in turn while all want"
    for client in range(clients):
        assert [(a, n) for c, a, n in got if c == client] == [(b["address"], b["length"]) for b in bursts[client]]


@pytest.mark.parametrize("kind", [ReadArbiter, WriteArbiter])
@pytest.mark.parametrize("clients", [0, 17])
def test_wrong_arguments(kind, clients):
    with pytest.raises(ValueError, match=str(clients)):
        kind(64, clients)
