"""What it costs to make a key valid, use it, and make it invalid: alone, with warm caches."""

from itertools import pairwise

from verbena.sim.devices import world
from verbena.sim.pair import ALL_ACCESS, End, connect
from verbena.sw.verbs.fast_region import FastMR
from verbena.sw.verbs.libibverbs_enums import ibv_access_flags, ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.mr import MW, MWBind, MWBindInfo
from verbena.sw.verbs.wr import IBV_WR_REG_MR, SGE, SendWR

from .batch import MTU, REGION, cycle_of, figures

__all__ = ["KEYS", "key_life"]

KEYS = ("fast region", "window")
"""What has the key. A fast region is registered, read by a WRITE of its own side, and invalidated, all posted at once.
A window is bound, written to by the peer, and bound to nothing, each when the one before is complete."""

SIGNALED = ibv_send_flags.IBV_SEND_SIGNALED
ROUNDS = 6


def key_life(what, size=8, mtu=MTU):
    """One row: ``cycles`` from the first register write to the last completion; ``valid_cycles``, ``use_cycles`` and
    ``invalid_cycles`` add up to it.
    """
    access = ALL_ACCESS | ibv_access_flags.IBV_ACCESS_MW_BIND
    with End("sim0", REGION, access=access) as a, End("sim1", REGION, access=access) as b:
        connect(a, b, mtu=mtu)
        life = {"fast region": _region, "window": _window}[what](a, b, size)
        for _ in range(ROUNDS):
            while world().advance(5000) < 5000:
                pass
            steps = next(life)
    names = ("valid_cycles", "use_cycles", "invalid_cycles")
    more = {"key": what} | dict(zip(names, steps, strict=True))
    return figures("WRITE", size, mtu, 1, sum(steps), direction="there and back", **more)


def _write(lkey, rkey, here, there, size):
    wr = SendWR(1, ibv_wr_opcode.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(here, size, lkey)], send_flags=SIGNALED)
    wr.set_wr_rdma(rkey, there)
    return wr


def _region(a, b, size):
    region, number = FastMR(a.pd, 1), 0
    while True:
        region.map(a.mr.buf, 4096)
        valid = SendWR(0, IBV_WR_REG_MR, send_flags=SIGNALED)
        valid.set_reg_wr(region, ibv_access_flags.IBV_ACCESS_LOCAL_WRITE)
        valid.next_wr = use = _write(valid.rkey, b.mr.rkey, region.buf, b.mr.buf, size)
        use.next_wr = SendWR(2, ibv_wr_opcode.IBV_WR_LOCAL_INV, imm_data=valid.rkey, send_flags=SIGNALED)
        start = world().cycles
        a.qp.post_send(valid)
        times = [0] + [cycle_of(a.cq, number + step, start, 8) for step in range(3)]
        number += 3
        a.cq.poll(16)
        yield [after - before for before, after in pairwise(times)]


def _window(a, b, size):
    window, number = MW(b.pd, 1), 0
    while True:
        steps = []
        for length in (4096, 0):
            start = world().cycles
            b.qp.bind_mw(window, MWBind(MWBindInfo(b.mr, b.mr.buf, length, ALL_ACCESS & ~1), SIGNALED))
            steps.append(cycle_of(b.cq, 2 * number + (not length), start, 8))
            b.cq.poll(16)
            if length:
                start = world().cycles
                a.qp.post_send(_write(a.mr.lkey, window.rkey, a.mr.buf, b.mr.buf, size))
                steps.append(cycle_of(a.cq, number, start, 8))
                a.cq.poll(16)
        number += 1
        yield steps
