"""Paths of packets and acknowledgements, which come and leave at random while attributes are written."""

import pytest
from conflict_ram import tear
from streams import make_rng, plain, simulate
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.hdl.transport.tx.path_fetch import PATH, PathFetch

QPS = 4


def draw(rng):
    return {name: rng.getrandbits(QP_CONTEXT.fields[name].width) for name in PATH}


async def write(ctx, dut, qp, path):
    """All words of a QP."""
    for word, value in enumerate(QP_CONTEXT.words(**path)):
        ctx.set(dut.attribute, {"index": qp, "word": word, "data": value})
        ctx.set(dut.attribute_en, 1)
        await ctx.tick()
    ctx.set(dut.attribute_en, 0)


@pytest.mark.parametrize("cycles", [2000, pytest.param(6000, marks=pytest.mark.slow)])
def test_the_path_is_that_of_what_leaves(cycles, monkeypatch):
    """Packets leave with their path or, as tokens do, without; what is shown is never a path that is not there now."""
    tear(monkeypatch)
    rng = make_rng()
    dut = PathFetch(QPS)
    left = {"packet": 0, "ack": 0, "token": 0}

    async def testbench(ctx):
        paths = [draw(rng) for _ in range(QPS)]
        for qp in range(QPS):
            await write(ctx, dut, qp, paths[qp])
        users = {"packet": dut.packet, "ack": dut.ack}
        qps = dict.fromkeys(users)
        partly = None  # the words of a QP are being written: (QP, those that are left)
        for _ in range(cycles):
            for name, user in users.items():
                if qps[name] is None and rng.random() < 0.4:
                    qps[name] = rng.randrange(QPS)
                    ctx.set(user.qp, qps[name])
                ctx.set(user.valid, qps[name] is not None)
                here = bool(ctx.get(user.here))
                token = name == "packet" and rng.random() < 0.05
                leaves = qps[name] is not None and (token or (here and rng.random() < 0.5))
                assert not here or qps[name] is not None
                if here and (partly is None or partly[0] != qps[name]):
                    assert plain(ctx.get(user.path)) == paths[qps[name]]
                ctx.set(user.taken, leaves)
                if leaves:
                    left[name if here else "token"] += 1
                    qps[name] = None
            if partly is None and rng.random() < 0.03:
                qp = rng.randrange(QPS)
                paths[qp] = draw(rng)
                partly = qp, list(enumerate(QP_CONTEXT.words(**paths[qp])))
            ctx.set(dut.attribute_en, partly is not None)
            if partly is not None:
                qp, words = partly
                word, value = words.pop()
                ctx.set(dut.attribute, {"index": qp, "word": word, "data": value})
                partly = (qp, words) if words else None
            await ctx.tick()

    simulate(dut, testbench, seed=rng.seed_value)
    assert min(left.values()) > cycles // 120


def test_cycles():
    """7 from when a QP is seen until its path is there; a waiting packet keeps its path beside an acknowledgement."""
    dut = PathFetch(QPS)

    async def until(ctx, user):
        for cycle in range(40):
            if ctx.get(user.here):
                return cycle
            await ctx.tick()
        return None

    async def testbench(ctx):
        for qp in range(QPS):
            await write(ctx, dut, qp, {"dest_qpn": qp})
        await ctx.tick().repeat(3)
        ctx.set(dut.packet.qp, 2)
        ctx.set(dut.packet.valid, 1)
        assert await until(ctx, dut.packet) == 7
        ctx.set(dut.ack.qp, 3)
        ctx.set(dut.ack.valid, 1)
        assert await until(ctx, dut.ack) == 7
        assert ctx.get(dut.packet.here) == 1
        assert (ctx.get(dut.packet.path.dest_qpn), ctx.get(dut.ack.path.dest_qpn)) == (2, 3)

    simulate(dut, testbench)
