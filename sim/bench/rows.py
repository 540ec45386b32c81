"""Throughput: messages that are all posted at once, timed exactly in cycles.

A short and a long batch are timed from the first doorbell to the last completion, after one that warms the caches; the
difference is free of latencies at both ends.
"""

from verbena.hdl.abi.wqe import SendOpcode
from verbena.sim.devices import world
from verbena.sim.pair import QKEY, End, connect, handle, start
from verbena.sim.wire_limit import both_ways_cycles
from verbena.sw.verbs.datagram import GRH_BYTES
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.srq import SrqAttr

from .batch import BUFFER, MTU, OPERATIONS, REGION, cycle_of, data_width, drain, figures, receives, sends

__all__ = ["both_ways", "pace", "scattered", "shared_receives", "throughput", "wide_wqe", "words_apart"]

WIDE_SGE = 3
"""Scatter/gather entries that a queue must have room for, so that its WQEs are of 128 bytes."""


def _troubles(*ends):
    """Counters of both adapters, summed, that a wire without faults should leave alone."""
    counters = [end.context.query_counters() for end in ends]
    return {name: sum(one[name] for one in counters) for name in ("retries", "timeouts", "drop_overflow")}


def pace(name, size, qps, mtu=MTU, *, share=None, entries=1, sge=1, place=None, target=None, transport="RC", srq=False):
    """Cycles a message of ``size`` bytes on ``qps`` queue pairs, one doorbell each, and more of the row: how many were
    timed, and what went wrong on a wire that loses nothing, warming included: messages sent again, timeouts, and frames
    that either adapter had no room for.

    Parameters
    ----------
    share : int, optional
        Messages a QP of the long batch.
    entries, sge : int
        Scatter/gather entries of a message, and those that the queues have room for.
    place : callable, optional
        ``place(qp, n)`` is the remote offset of message ``n`` of a batch.
    target : callable, optional
        Makes the region that is written or read, of the responder's PD.
    transport : str
        Type of the queue pairs.
    srq : bool
        The receivers share one receive queue.
    """
    opcode = OPERATIONS[name]
    share = share or max(4, min(1024, 60_000 * 8 // max(size, 400)) // qps)
    short = max(1, share // 4)
    sizes = {"qps": qps, "depth": share, "cqe": share * qps + 8, "qp_type": ibv_qp_type[f"IBV_QPT_{transport}"]}
    shared = SrqAttr(share * qps) if srq else None
    with End("sim0", REGION, sge=sge, **sizes) as a, End("sim1", REGION, **sizes, srq=shared) as b:
        receivers = None
        if transport == "UD":
            start(a)
            start(b)
            way = handle(a, b.gid)
            receivers = [(way, qp.qp_num, QKEY) for qp in b.qps]
        else:
            connect(a, b, mtu=mtu)
        region = target(b.pd) if target else None
        completed, troubles = 0, _troubles(a, b)

        def batch(each):
            nonlocal completed
            if opcode == SendOpcode.SEND:
                for queue in [b.srq] * qps if srq else b.qps:
                    queue.post_recv(receives(b, size + (GRH_BYTES if receivers else 0), each))
                world().advance(2000)
            lists = []
            for i in range(qps):
                options = {"entries": entries, "target": region}
                if place is not None:
                    options["place"] = lambda n, i=i, first=i * each: place(i, n - first)
                if receivers:
                    options["receiver"] = receivers[i]
                lists.append(sends(a, b, opcode, size, each, i * each, **options))
            start = world().cycles
            for qp, requests in zip(a.qps, lists):
                qp.post_send(requests)
            completed += each * qps
            cycles = cycle_of(a.cq, completed - 1, start)
            drain(a, b)  # with what completes later, at the receiver
            return cycles

        batch(max(short, min(share, BUFFER // size)))  # the whole buffer
        before, after = batch(short), batch(share)
        more = {"messages": (share - short) * qps}
        more |= {name: value - troubles[name] for name, value in _troubles(a, b).items()}
    return (after - before) / more["messages"], more


def throughput(name, size, qps, mtu=MTU, transport="RC"):
    """One row: messages of ``size`` bytes on ``qps`` queue pairs."""
    cycles, more = pace(name, size, qps, mtu, transport=transport)
    return figures(name, size, mtu, qps, cycles, transport=transport, **more)


def shared_receives(size, qps, mtu=MTU):
    """One row: SENDs to queue pairs that share a receive queue, and what that costs against queues of their own."""
    own, _ = pace("SEND", size, qps, mtu)
    cycles, more = pace("SEND", size, qps, mtu, srq=True)
    cost = {"own_queue_cycles": round(own, 2), "cost_cycles": round(cycles - own, 2) + 0.0}
    return figures("SEND", size, mtu, qps, cycles, receive_queue="shared", **cost, **more)


def words_apart(name, qps):
    """One row: atomics, or accesses of 8 bytes, of which no two that are under way go to the same word."""
    cycles, more = pace(name, 8, qps, place=lambda qp, n: (n * qps + qp) * 8)
    return figures(name, 8, MTU, qps, cycles, **more, words="different")


def scattered(size, qps, entries=2):
    """One row: READs whose data goes to ``entries`` entries, against the same with one."""
    one, _ = pace("READ", size, qps, sge=2)
    cycles, more = pace("READ", size, qps, sge=2, entries=entries)
    ratio = {"one_entry_cycles": round(one, 2), "ratio_to_one_entry": round(cycles / one, 3)}
    return figures("READ", size, MTU, qps, cycles, entries=entries, **ratio, **more)


def wide_wqe(size, qps):
    """One row: WRITEs with one entry, whose WQEs are of 128 bytes since the queue has room for more entries."""
    cycles, more = pace("WRITE", size, qps, sge=WIDE_SGE)
    return figures("WRITE", size, MTU, qps, cycles, wqe=128, entries=1, **more)


def both_ways(name, size, qps, apart, mtu=MTU):
    """One row: as :func:`throughput`, with the same on the way back at the same time. A message is one of either
    direction, each of which has a wire of its own; the ACKs of one direction share the wire with the messages of the
    other. Some ACKs fall behind the last completion, so the share may pass 1 by a little. ``apart``: each direction has
    ``qps`` queue pairs of its own, rather than both the same.
    """
    opcode = OPERATIONS[name]
    share, short = 64, 16
    number = 2 * qps if apart else qps
    sizes = {"qps": number, "depth": share, "cqe": share * qps + 8}
    with End("sim0", REGION, **sizes) as a, End("sim1", REGION, **sizes) as b:
        connect(a, b, mtu=mtu)
        ends, completed = ((a, b, 0), (b, a, qps if apart else 0)), 0

        def batch(each):
            nonlocal completed
            start = world().cycles
            for i in range(qps):
                for here, there, first in ends:
                    here.qps[first + i].post_send(sends(here, there, opcode, size, each, i * each))
            completed += each * qps
            cycles = max(cycle_of(here.cq, completed - 1, start) for here, *_ in ends)
            drain(a, b)
            return cycles, sum(end.context.query_counters("tx_acks")["tx_acks"] for end in (a, b))

        (_, first), (before, second), (after, third) = batch(share), batch(short), batch(share)
    messages = (share - short) * qps
    cycles = (after - before) / messages
    per_ack = 2 * messages / max(1, third - second - (second - first))
    limit = both_ways_cycles(opcode, size, mtu, data_width(), per_ack)
    more = {"messages": messages, "messages_per_ack": round(per_ack, 2), "own_qps": apart}
    return figures(name, size, mtu, qps, cycles, direction="both ways", limit=limit, **more)
