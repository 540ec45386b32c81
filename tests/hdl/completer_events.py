"""What may happen to a send queue, at random."""

from completer_world import FATAL, PSNS, Kind
from verbena.hdl.abi.contexts import QpState

__all__ = ["happen"]

EVENTS = {
    "ack": 30,
    "data": 30,
    "nothing": 3,
    "token": 1,
    "stray ack": 6,
    "lost": 4,
    "not ready": 4,
    "skipped": 6,
    "timeout": 3,
    "late timer": 3,
    "fatal": 1,
    "odd nak": 2,
    "refused": 1,
    "wrong": 1,
    "failure": 1,
    "flush": 1,
    "drain": 3,
    "query": 2,
    "state": 1,
}
UNRELIABLE = {
    "departed": 50,
    "stray departed": 6,
    "nothing": 2,
    "token": 1,
    "late timer": 2,
    "failure": 2,
    "flush": 1,
    "drain": 3,
    "query": 2,
    "state": 1,
}
"""Of UC."""


async def happen(world, ctx, qp):
    """Something that concerns this QP is offered to the completer, or nothing, if it does not fit."""
    rng, queue = world.rng, world.model.queues[qp]
    events = UNRELIABLE if queue.unreliable else EVENTS
    what = rng.choices(list(events), list(events.values()))[0]
    near = queue.acked - 2 + rng.randrange(queue.psn - queue.acked + 4)
    waiting = [k for k in range(queue.oldest, queue.begun) if queue.messages[k].lacking]
    psn = queue.messages[waiting[0]].missing if waiting else None
    if what == "ack":
        reach = rng.randrange(queue.acked, queue.psn) if queue.psn > queue.acked else queue.acked
        world.ack(qp, min(reach, psn - 1) if psn and rng.random() < 0.8 else reach, rng.randrange(32), 77)
    elif what == "departed" and queue.begun > queue.oldest:
        world.depart(qp, queue.messages[rng.choice([queue.oldest, rng.randrange(queue.oldest, queue.begun)])].last)
    elif what == "stray departed":
        world.depart(qp, rng.choice([near, rng.randrange(PSNS)]))
    elif what == "stray ack":
        world.ack(qp, rng.choice([near, rng.randrange(PSNS)]))
    elif what == "lost":
        world.ack(qp, near, 0x60)
    elif what == "not ready":
        world.ack(qp, near, 0x20 + rng.randrange(32))
    elif what == "fatal":
        world.ack(qp, near, rng.choice(list(FATAL)))
    elif what == "odd nak":
        world.ack(qp, near, rng.choice([0x65, 0x7F, 0x40, 0x5F, 0x80, 0xE0]))
    elif what == "data" and waiting:
        world.respond(qp, Kind.DATA, psn, rng.randrange(256), wqe_index=waiting[0])
    elif what == "refused" and waiting:
        world.respond(qp, Kind.DATA, psn, verdict=rng.randrange(1, 8), wqe_index=waiting[0])
    elif what == "wrong" and waiting:
        world.respond(qp, Kind.FAILED, psn, rng.randrange(1, 30), status=rng.choice([1, 7]), wqe_index=waiting[0])
    elif what == "skipped" and waiting:
        world.respond(qp, Kind.SKIPPED, psn + rng.choice([1, 2, 5, rng.randrange(1, PSNS)]))
    elif what == "nothing":
        world.respond(qp, Kind.NOTHING, near)
    elif what == "token":
        world.respond(qp, Kind.TOKEN)
    elif what == "timeout":
        world.fire(qp)
    elif what == "late timer":
        world.fire(qp, rng.randrange(1, 3))
    elif what == "failure":
        index = rng.choice([queue.begun, queue.oldest, queue.oldest + rng.randrange(-4, 5)])
        world.pending[rng.choice(["failed_requester", "failed_transmitter"])].append(
            {"qp": qp, "wqe_index": index % 65536, "status": rng.randrange(1, 20), "syndrome": rng.randrange(20)}
        )
    elif what == "flush":
        index = queue.oldest + rng.randrange(-3, 30)
        world.pending["flush"].append({"qp": qp, "index": index % 65536, "drain": 0})
    elif what == "drain":
        world.pending["flush"].append({"qp": qp, "index": queue.begun % 65536, "drain": 1})
    elif what == "query":
        world.control(qp, rng.choice([0, 2, 4, 5, 5, 6, 7]), 7)
    elif what == "state" and queue.state != QpState.ERR:
        await world.settle(ctx)  # or it would be open which state an event meets
        await world.state(ctx, qp, rng.choice([QpState.ERR, QpState.SQD, QpState.SQD, QpState.RTS]))
