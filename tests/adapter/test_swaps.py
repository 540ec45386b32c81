"""Queue pairs that give their state away and get it back, in the midst of their work."""

import pytest
from ends import FETCH_ADD, PATIENCE, READ, SEND, WRITE, End, atomic, connect, fill, recv, send, sge
from verbena.sim.model import rnic
from verbena.sim.world import World

SIZE = 1 << 16

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def restless():
    with World(2, rnic(swap_every=1024), seed=5) as world:
        yield world


def completions(world, end, count=1):
    """The next ``count`` of an end."""
    found, limit = [], world.cycles + PATIENCE
    while len(found) < count:
        found += end.cq.poll(count - len(found))[1]
        assert world.cycles < limit, found
    return found


def test_what_is_away_waits_and_goes_on(restless):
    """Every operation in turn: nothing is lost or changed. Those that meet a swap take longer, the others do not."""
    world, cycles = restless, []
    with End("sim0", SIZE, world=world) as a, End("sim1", SIZE, world=world) as b:
        connect(a, b)
        source, expected = fill(a, 1), bytearray(fill(b, 2))
        for number in range(60):
            offset = 64 * number
            start = world.cycles
            if number % 3 == 0:
                recv(b, [sge(b, offset, 64)], wr_id=number)
            opcode = (SEND, WRITE, WRITE)[number % 3]
            send(a, opcode, [sge(a, offset, 64)], wr_id=number, remote=None if opcode == SEND else (b, offset))
            (wc,) = completions(world, a)
            assert (wc.wr_id, wc.status) == (number, 0)
            cycles.append(world.cycles - start)
            expected[offset : offset + 64] = source[offset : offset + 64]
        assert b.mr.read(SIZE, 0) == bytes(expected)
        assert min(cycles) + 200 < max(cycles)
        for number in range(16):
            atomic(a, FETCH_ADD, [sge(a, 8 * number, 8)], (b, SIZE - 8), 1, wr_id=number)
            send(a, READ, [sge(a, SIZE // 2, 4096)], remote=(b, 0))
            assert [wc.status for wc in completions(world, a, 2)] == [0, 0]
            assert a.mr.read(4096, SIZE // 2) == bytes(expected[:4096])
        old = int.from_bytes(expected[-8:], "little")
        assert int.from_bytes(b.mr.read(8, SIZE - 8), "little") == (old + 16) % (1 << 64)


def test_long_messages_are_cut_on_where_they_were(restless):
    """Both ways at once, with many swaps in the midst of a message."""
    world = restless
    with End("sim0", SIZE, world=world) as a, End("sim1", SIZE, world=world) as b:
        connect(a, b, mtu=256)
        half = SIZE // 2
        sources = [fill(a, 3)[:half], fill(b, 4)[:half]]
        start = world.cycles
        for _ in range(4):
            send(a, WRITE, [sge(a, 0, half)], remote=(b, half))
            send(b, READ, [sge(b, half, 8)], remote=(a, 0))
            send(b, WRITE, [sge(b, 0, half)], remote=(a, half))
            assert [wc.status for wc in completions(world, a) + completions(world, b, 2)] == [0, 0, 0]
        assert world.cycles - start > 16 * 1024
        assert a.mr.read(half, half) == sources[1]
        assert b.mr.read(half, half) == sources[0]
