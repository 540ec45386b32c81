"""A traced run: all operations between two adapters of a world of its own."""

from verbena.sim.pair import End, connect
from verbena.sim.world import World
from verbena.sw.verbs import libibverbs_enums as e
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

__all__ = ["OPERATIONS", "run", "send"]

OPERATIONS = [
    (e.IBV_WR_RDMA_WRITE, 12),
    (e.IBV_WR_SEND, 3000),
    (e.IBV_WR_RDMA_READ, 2000),
    (e.IBV_WR_RDMA_WRITE_WITH_IMM, 4096),
    (e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8),
    (e.IBV_WR_RDMA_WRITE, 0),
]


def send(a, b, opcode, size, at=0, rkey=None):
    wr = SendWR(opcode=opcode, num_sge=1, sg=[SGE(a.mr.buf + at, size, a.mr.lkey)], send_flags=e.IBV_SEND_SIGNALED)
    if opcode == e.IBV_WR_ATOMIC_FETCH_AND_ADD:
        wr.set_wr_atomic(rkey or b.mr.rkey, b.mr.buf + at, 1)
    else:
        wr.set_wr_rdma(rkey or b.mr.rkey, b.mr.buf + at)
    a.qp.post_send(wr)


def run(path, operations=OPERATIONS, prepare=None, mtu=1024, rkey=None):
    """Runs ``operations`` one behind the other, all posted at once, and captures the run; returns the counters of both
    ports and the completions.

    ``prepare(world)`` is called when the connection stands.
    """
    with World(2, seed=1) as world:
        world.capture(path, bus=True, frames="both")
        a, b = (End(f"sim{i}", 1 << 16, world=world) for i in range(2))
        connect(a, b, mtu=mtu, psn=0xFFFFFE, timeout=8)
        for opcode, _ in operations:
            if opcode in (e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE_WITH_IMM):
                b.qp.post_recv(RecvWR(sg=[SGE(b.mr.buf, 4096, b.mr.lkey)], num_sge=1))
        if prepare:
            prepare(world)
        for number, (opcode, size) in enumerate(operations):
            send(a, b, opcode, size, at=4096 * (number % 16), rkey=rkey)
        done = []
        while len(done) < len(operations):
            done += a.cq.poll(16)[1]
        world.advance(2000, stop=0)
        counters = [adapter.counters for adapter in world.adapters]
        world.capture(None)
    return counters, done
