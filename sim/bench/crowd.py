"""Many queue pairs, of which few have a slot: each message is of one that is drawn at random."""

import random
import sys
from types import SimpleNamespace

from verbena.hdl.config import Config
from verbena.sim.devices import world
from verbena.sim.pair import End, connect, join
from verbena.sim.wire_limit import both_ways_cycles

from .batch import MTU, OPERATIONS, PATIENCE, REGION, data_width, figures, sends

__all__ = ["SIZES", "crowd"]

SIZES = (8, 4096)

AHEAD = 32
"""Messages that are posted and not complete."""

SILENT_TIMEOUT = 19
"""Of queue pairs that wait for an answer. At the usual tick of a simulated adapter (:data:`verbena.sim.ticks.TICK`)
these are 8.4 million cycles, 67 ms at 125 MHz, which is what the usual 14 takes there. With 14 here the timers of 5,000
queue pairs would ask for one of them each 52 cycles.
"""

NOBODY = 0xFFFFF0
"""Number of a queue pair that no adapter has."""

TROUBLES = ("qp_fetches", "retries", "timeouts", "drop_overflow")


def _paced(ways, size, draw, among, count):
    """Cycles a message of each way, of those that send side by side: pairs of sender and receiver. Each message is of
    one of the first ``among`` queue pairs; ``count`` a way are timed, behind a quarter as many that warm up, until the
    first way has done all.
    """
    warm = count // 4
    posted, done = [0] * len(ways), [0] * len(ways)
    begun = ended = None
    last = world().cycles
    while min(done) < warm + count:
        moved = False
        for way, (near, far) in enumerate(ways):
            while posted[way] < warm + count and posted[way] - done[way] < AHEAD:
                qp = near.qps[draw.randrange(among)]
                qp.post_send(sends(near, far, OPERATIONS["WRITE"], size, 1, posted[way]))
                posted[way] += 1
            came = near.cq.poll(AHEAD)[1]
            for wc in came:
                if wc.status:
                    raise RuntimeError(f"message {wc.wr_id} failed: {wc.status!r}")
            done[way] += len(came)
            moved |= bool(came)
        if moved:
            last = world().cycles
        if begun is None and min(done) >= warm:
            begun, first = world().cycles, sum(done)
        elif begun is not None and ended is None and max(done) == warm + count:
            ended, reached = world().cycles, sum(done)
        if world().cycles - last > PATIENCE:
            raise RuntimeError(f"nothing completed for {PATIENCE} cycles")
        if not moved:
            world().advance(256)
    return (ended - begun) * len(ways) / (reached - first)


def _wait_for_nobody(a, b, silent, timeout):
    """Further queue pairs of ``a``, which have something to send, to a peer that is not there. They begin evenly over
    one timeout, as do their retries, the first of which has come.
    """

    def retried():
        return a.context.query_counters("timeouts")["timeouts"]

    peer = SimpleNamespace(qp_num=NOBODY)
    period = world().ports["sim0"].tick << timeout
    qps = a.more(silent)
    for qp in qps:
        join(qp, peer, b.gid, mtu=MTU, timeout=timeout)
    begun, before = world().cycles, retried()
    for number, qp in enumerate(qps, 1):
        qp.post_send(sends(a, b, OPERATIONS["WRITE"], 8, 1))
        while (ahead := begun + period * number // silent - world().cycles) > 0:
            world().advance(ahead)
    # Timers of queue pairs that are away may run out up to four times as late.
    while retried() == before:
        if world().cycles - begun > 8 * period:
            raise RuntimeError(f"none of {silent} queue pairs has asked a peer that is not there again")
        world().advance(period // silent)
    return qps


def crowd(qps, count, silent=None, sizes=SIZES, seed=1, timeout=SILENT_TIMEOUT):
    """Rows of WRITEs, each of a queue pair drawn at random from ``qps`` that are connected: one for each of ``sizes``,
    one way and both ways at once, and then those of one way again beside ``silent`` more queue pairs, half as many if
    None, whose peers are silent.

    Both adapters have ``qps`` queue pairs, so that the sender as well as the receiver has most of them away.
    ``ratio_to_one_slot`` compares with one queue pair alone, ``ratio_to_answering`` with the row without silent ones.
    """
    draw = random.Random(seed)
    rows, alone, answering, waiting = [], {}, {}, []
    silent = qps // 2 if silent is None else silent
    ends = {"qps": qps, "depth": AHEAD}
    with End("sim0", REGION, **ends) as a, End("sim1", REGION, **ends) as b:
        print(f"verbena: connect {qps} queue pairs", file=sys.stderr, flush=True)
        connect(a, b, mtu=MTU)
        directions = {"one way": [(a, b)], "both ways": [(a, b), (b, a)]}
        for direction, ways in directions.items():
            for size in sizes:
                alone[direction, size] = _paced(ways, size, draw, 1, count)

        def troubles():
            counters = [end.context.query_counters(*TROUBLES) for end in (a, b)]
            return {name: sum(one[name] for one in counters) for name in TROUBLES}

        def measure(direction, size, beside):
            before = troubles()
            cycles = _paced(directions[direction], size, draw, qps, count)
            one = alone[direction, size]
            more = {name: value - before[name] for name, value in troubles().items()}
            more |= {"direction": direction, "silent": beside, "slots": Config().slots, "seed": seed}
            more |= {"one_slot_cycles": round(one, 2), "ratio_to_one_slot": round(cycles / one, 3)}
            if beside:
                more["ratio_to_answering"] = round(cycles / answering[size], 3)
            elif direction == "one way":
                answering[size] = cycles
            both = direction == "both ways"  # a message has its ACK: two of the same queue pair seldom come together
            limit = both_ways_cycles(OPERATIONS["WRITE"], size, MTU, data_width(), 1) if both else None
            rows.append(figures("WRITE", size, MTU, qps, cycles, limit=limit, **more))

        for direction in directions:
            for size in sizes:
                measure(direction, size, 0)
        if silent:
            print(f"verbena: {silent} more, whose peers are silent", file=sys.stderr, flush=True)
            waiting.extend(_wait_for_nobody(a, b, silent, timeout))
            for size in sizes:
                measure("one way", size, silent)
    return rows
