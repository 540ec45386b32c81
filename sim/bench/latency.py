"""Latency: one small message at a time, from the first register write of posting to the completion in memory, with warm
caches; alone, or while long messages are under way.
"""

from verbena.sim.devices import world
from verbena.sim.pair import End, connect

from .batch import MTU, OPERATIONS, REGION, cqe_written, cycle_of, data_width, figures, receives, sends

__all__ = ["BESIDE", "RETURNING", "latency", "mixed"]

RETURNING = ("READ", "FETCH_ADD")
"""Operations that are over when their data is back at the requester."""

BESIDE = (("READ", "peer"), ("READ", "own"), ("WRITE", "own"), ("WRITE", "peer"))
"""Long messages beside a small one, and which side asks for them: that of the small one, or its peer."""

LONG, OUTSTANDING, SAMPLES = 65536, 16, 16


def latency(name, size, inline, push, mtu=MTU):
    """One row: one message at a time, caches warm: one way, or there and back. Its WQE is pushed, as the driver does by
    default, or read by the engine. ``post_cycles``, a part of the latency: what the register writes take.
    """
    opcode = OPERATIONS[name]
    samples, posts = [], []
    with End("sim0", REGION, depth=16, inline=32, push=push) as a, End("sim1", REGION, depth=16) as b:
        connect(a, b, mtu=mtu)
        a.mr.write(b"\xa5" * size, size)  # of inline data that is zero nothing would be written
        for number in range(6):
            if name not in RETURNING:
                b.qp.post_recv(receives(b, size, 1))
            while world().advance(5000) < 5000:
                pass
            start = world().cycles
            a.qp.post_send(sends(a, b, opcode, size, 1, inline=inline))
            posts.append(world().cycles - start)
            samples.append(cycle_of((a if name in RETURNING else b).cq, number, start))
            cycle_of(a.cq, number, start)
            for end in (a, b):
                end.cq.poll(16)
    cycles = sorted(samples[2:])[len(samples[2:]) // 2]
    direction = "there and back" if name in RETURNING else "one way"
    more = {"inline": inline, "push": push, "post_cycles": posts[-1], "latency_cycles": cycles}
    return figures(name, size, mtu, 1, cycles, direction=direction, **more)


def mixed(name, side, mtu=MTU):
    """One row: an 8-byte SEND while messages of 64 KiB are outstanding, READs or WRITEs of its own ``side`` or of its
    peer's; the worst of 16, at different moments. Its WQE is pushed: one that is read waits behind payload, too.
    """
    samples, posted = [], OUTSTANDING * data_width() // 64  # as long as the SENDs take, whatever the width
    near, far = ("sim0", "sim1") if side == "own" else ("sim1", "sim0")
    with End(near, REGION) as a, End(far, REGION) as b, End("sim0", REGION) as c, End("sim1", REGION) as d:
        connect(a, b, mtu=mtu)
        connect(c, d, mtu=mtu)
        d.qp.post_recv(receives(d, 8, SAMPLES + 1))
        a.qp.post_send(sends(a, b, OPERATIONS[name], LONG, posted))
        cycle_of(a.cq, 1, world().cycles)
        for number in range(SAMPLES + 1):  # the first with cold caches
            start = world().cycles
            c.qp.post_send(sends(c, d, OPERATIONS["SEND"], 8, 1))
            samples.append(cycle_of(d.cq, number, start, 8))
            cycle_of(c.cq, number, start)
            c.cq.poll(1)  # what is posted alone, and with all completions seen, is pushed
            end = world().cycles + 600 + 37 * number
            while world().cycles < end:
                world().advance(end - world().cycles)
        if cqe_written(a.cq, posted - 1):
            raise RuntimeError(f"the {name}s were over before the SENDs")
    cycles = max(samples[1:])
    more = {"push": True, "inline": False, "beside": f"{name}s of {LONG} bytes, {side}", "latency_cycles": cycles}
    return figures("SEND", 8, mtu, 1, cycles, **more)
