"""What it costs to make a key valid, use it, and make it invalid, with warm caches: alone, and on many queue pairs."""

from itertools import pairwise

from verbena.sim.devices import world
from verbena.sim.pair import ALL_ACCESS, End, connect
from verbena.sw.verbs.fast_region import FastMR
from verbena.sw.verbs.libibverbs_enums import ibv_access_flags, ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.mr import MW, MWBind, MWBindInfo
from verbena.sw.verbs.wr import IBV_WR_REG_MR, SGE, SendWR

from .batch import MTU, REGION, cycle_of, drain, figures

__all__ = ["KEYS", "key_life"]

KEYS = ("fast region", "window")
"""What has the key. A fast region is registered, read by a WRITE of its own side, and invalidated, all posted at once.
A window is bound, written to by the peer, and bound to nothing, each when the one before is complete. On several queue
pairs each has a key of its own, and all of them do the same at once."""

SIGNALED = ibv_send_flags.IBV_SEND_SIGNALED
ROUNDS = 6


def key_life(what, qps=1, size=8, mtu=MTU):
    """One row: ``cycles_per_message`` from the first register write to the last completion, divided by the queue pairs;
    ``valid_cycles``, ``use_cycles`` and ``invalid_cycles`` add up to it, if they can be told apart.
    """
    access = ALL_ACCESS | ibv_access_flags.IBV_ACCESS_MW_BIND
    with End("sim0", REGION, qps=qps, access=access) as a, End("sim1", REGION, qps=qps, access=access) as b:
        connect(a, b, mtu=mtu)
        life = {"fast region": _region, "window": _window}[what](a, b, size)
        for _ in range(ROUNDS):
            while world().advance(5000) < 5000:
                pass
            steps = [cycles / qps for cycles in next(life)]
    more = {"key": what}
    if what == "window" or qps == 1:
        names = ("valid_cycles", "use_cycles", "invalid_cycles")
        more |= {name: round(cycles, 2) for name, cycles in zip(names, steps, strict=True)}
    return figures("WRITE", size, mtu, qps, sum(steps), direction="there and back", **more)


def _write(lkey, rkey, here, there, size):
    wr = SendWR(1, ibv_wr_opcode.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(here, size, lkey)], send_flags=SIGNALED)
    wr.set_wr_rdma(rkey, there)
    return wr


def _region(a, b, size):
    regions, number = [FastMR(a.pd, 1) for _ in a.qps], 0
    while True:
        chains = []
        for region in regions:
            region.map(a.mr.buf, 4096)
            valid = SendWR(0, IBV_WR_REG_MR, send_flags=SIGNALED)
            valid.set_reg_wr(region, ibv_access_flags.IBV_ACCESS_LOCAL_WRITE)
            valid.next_wr = use = _write(valid.rkey, b.mr.rkey, region.buf, b.mr.buf, size)
            use.next_wr = SendWR(2, ibv_wr_opcode.IBV_WR_LOCAL_INV, imm_data=valid.rkey, send_flags=SIGNALED)
            chains.append(valid)
        start = world().cycles
        for qp, chain in zip(a.qps, chains):
            qp.post_send(chain)
        # Of several queue pairs some are ahead of others: then these are no steps.
        times = [0] + [cycle_of(a.cq, number + len(chains) * step - 1, start, 8) for step in (1, 2, 3)]
        number += 3 * len(chains)
        drain(a)
        yield [after - before for before, after in pairwise(times)]


def _window(a, b, size):
    windows, number = [MW(b.pd, 1) for _ in b.qps], 0

    def bind(length):
        for qp, window in zip(b.qps, windows):
            qp.bind_mw(window, MWBind(MWBindInfo(b.mr, b.mr.buf, length, ALL_ACCESS & ~1), SIGNALED))

    def use():
        for qp, window in zip(a.qps, windows):
            qp.post_send(_write(a.mr.lkey, window.rkey, a.mr.buf, b.mr.buf, size))

    while True:
        cycles = []
        steps = (lambda: bind(4096), b, 2 * number + 1), (use, a, number + 1), (lambda: bind(0), b, 2 * number + 2)
        for step, end, count in steps:
            start = world().cycles
            step()
            cycles.append(cycle_of(end.cq, count * len(windows) - 1, start, 8))
            drain(end)
        number += 1
        yield cycles
