"""Whatever host memory does, all bytes arrive: cold caches, long latencies, jitter, back pressure, both directions."""

import pytest
from ends import READ, SEND, SIGNALED, WRITE, End, completions, connect, fill, recv, send, sge, world
from streams import make_rng

SIZE = 1 << 18
USUAL = {"read_latency": 128, "write_latency": 32, "stall": 0, "shuffle": False}
SLOW = {"read_latency": 1000, "write_latency": 1000}
JITTER = {"stall": 0.1, "shuffle": True}
MIX = (0, 1, 8, 8, 8, 63, 64, 65, 256, 1000, 1024, 4096, 5000, 20000)
"""Bytes of the messages of a mixture."""


@pytest.fixture
def memory():
    """Sets the memory of both adapters; as it was afterwards."""

    def change(settings):
        for adapter in world().adapters:
            adapter.set_memory(**settings)

    yield change
    change(USUAL)


@pytest.mark.every_width
@pytest.mark.parametrize("size", [8, 64, 1000])
@pytest.mark.parametrize("opcode", [WRITE, SEND])
def test_burst_into_cold_caches(opcode, size):
    """Headers wait while the first key is looked up."""
    count = 60
    with End("sim0", SIZE, depth=64) as a, End("sim1", SIZE, depth=64) as b:
        connect(a, b)
        source = fill(a, 1)
        expected = bytearray(fill(b, 2))
        for i in range(count):
            if opcode == SEND:
                recv(b, [sge(b, 2048 * i, size)])
        for i in range(count):
            send(a, opcode, [sge(a, 1024 * i, size)], wr_id=i, remote=(b, 2048 * i))
            expected[2048 * i : 2048 * i + size] = source[1024 * i : 1024 * i + size]
        assert [(wc.wr_id, wc.status) for wc in completions(a.cq, count)] == [(i, 0) for i in range(count)]
        assert b.mr.read(SIZE, 0) == expected


@pytest.mark.every_width
@pytest.mark.parametrize("settings", [{}, SLOW, JITTER, SLOW | JITTER], ids=["usual", "slow", "jitter", "both"])
def test_mixture_both_ways_into_cold_caches(settings, memory):
    """WRITEs, SENDs and READs of all sizes, four queue pairs, both directions at once, nothing looked up before. A
    region's lower half is what the owner sends and lends, its upper half what comes.
    """
    rng = make_rng()
    half, count = SIZE // 2, 12
    memory(settings)
    with End("sim0", SIZE, qps=4, depth=16) as a, End("sim1", SIZE, qps=4, depth=16) as b:
        connect(a, b, mtu=rng.choice((256, 1024, 4096)))
        sources = {a: fill(a, 1), b: fill(b, 2)}
        expected = {end: bytearray(source) for end, source in sources.items()}
        places = {a: half, b: half}

        def place(end, size):
            """Room for what comes to ``end``."""
            at = places[end]
            places[end] += size + rng.randrange(1, 60)
            return at

        received = {a: 0, b: 0}
        for number in range(count):
            for near, far in ((a, b), (b, a)):
                for near_qp, far_qp in zip(near.qps, far.qps):
                    size = min(rng.choice(MIX), 2000 if rng.random() < 0.7 else 20000)
                    opcode = rng.choice((WRITE, SEND, READ))
                    goal, origin = (near, far) if opcode == READ else (far, near)
                    if places[goal] + size + 60 > SIZE:
                        size = 0
                    there, here = place(goal, size), rng.randrange(half - size)
                    expected[goal][there : there + size] = sources[origin][here : here + size]
                    if opcode == SEND:
                        recv(far, [sge(far, there, size)], qp=far_qp)
                        received[far] += 1
                    local, remote = (there, here) if opcode == READ else (here, there)
                    send(near, opcode, [sge(near, local, size)], wr_id=number, remote=(far, remote), qp=near_qp)
        for end in (a, b):
            wcs = completions(end.cq, 4 * count + received[end])
            assert {wc.status for wc in wcs} == {0}
        for end in (a, b):
            assert end.mr.read(SIZE, 0) == expected[end]


@pytest.mark.parametrize("settings", [{}, SLOW, SLOW | JITTER], ids=["usual", "slow", "both"])
def test_long_messages_both_ways(settings, memory):
    """Almost 64 KiB, twice, in both directions at once; what comes stands behind what is sent."""
    size = SIZE // 4 - 32
    memory(settings)
    with End("sim0", SIZE) as a, End("sim1", SIZE) as b:
        connect(a, b, mtu=4096)
        sources = {a: fill(a, 3), b: fill(b, 4)}
        for near, far in ((a, b), (b, a)):
            for i in range(2):
                send(
                    near,
                    WRITE,
                    [sge(near, i * size + 5, size)],
                    wr_id=i,
                    remote=(far, (2 + i) * size + 50),
                    flags=SIGNALED,
                )
        for end in (a, b):
            assert [(wc.wr_id, wc.status) for wc in completions(end.cq, 2)] == [(0, 0), (1, 0)]
        for near, far in ((a, b), (b, a)):
            assert far.mr.read(2 * size, 2 * size + 50) == sources[near][5 : 5 + 2 * size]
