"""Many queue pairs, of which few have a slot: each message is of one that is drawn at random."""

import random
import sys

from verbena.sim.devices import world
from verbena.sim.pair import End, connect

from .batch import MTU, OPERATIONS, PATIENCE, REGION, figures, sends

__all__ = ["crowd"]

AHEAD = 32
"""Messages that are posted and not complete."""


def _paced(a, b, size, drawn, count):
    """Cycles a message: ``count`` are timed, behind a quarter as many that warm up."""
    begun, done, posted = None, 0, 0
    warm, last = count // 4, world().cycles
    while done < warm + count:
        while posted < warm + count and posted - done < AHEAD:
            a.qps[drawn()].post_send(sends(a, b, OPERATIONS["WRITE"], size, 1, posted))
            posted += 1
        came = a.cq.poll(AHEAD)[1]
        for wc in came:
            if wc.status:
                raise RuntimeError(f"message {wc.wr_id} failed: {wc.status!r}")
        if came:
            last = world().cycles
        done += len(came)
        if begun is None and done >= warm:
            begun, first = world().cycles, done
        if world().cycles - last > PATIENCE:
            raise RuntimeError(f"nothing completed for {PATIENCE} cycles")
        if not came:
            world().advance(256)
    return (world().cycles - begun) / (done - first)


def crowd(size, qps, count, seed=1):
    """One row: WRITEs, each of a queue pair drawn at random from ``qps`` that are connected, and the same of one alone.
    Both adapters have as many queue pairs as the other.
    """
    names = ("qp_fetches", "retries", "timeouts", "drop_overflow")
    draw = random.Random(seed)
    sizes = {"qps": qps, "depth": AHEAD}
    with End("sim0", REGION, **sizes) as a, End("sim1", REGION, **sizes) as b:
        print(f"verbena: connect {qps} queue pairs", file=sys.stderr, flush=True)
        connect(a, b, mtu=MTU)
        ends = (a, b)
        before = [end.context.query_counters(*names) for end in ends]
        cycles = _paced(a, b, size, lambda: draw.randrange(qps), count)
        after = [end.context.query_counters(*names) for end in ends]
        alone = _paced(a, b, size, lambda: 0, count)
    more = {name: sum(late[name] - early[name] for early, late in zip(before, after)) for name in names}
    more |= {
        "slots": 64,
        "seed": seed,
        "one_slot_cycles": round(alone, 2),
        "ratio_to_one_slot": round(cycles / alone, 3),
    }
    return figures("WRITE", size, MTU, qps, cycles, **more)
