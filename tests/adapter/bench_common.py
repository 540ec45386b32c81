"""What the test benches with whole adapters share."""

from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from verbena.sim.cocotb_world import attach
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

PATIENCE = 200_000
SIZE = 3000
WRITE_AT = 8192


async def start(dut):
    """Clock, reset, and the world around ``dut``."""
    Clock(dut.clk, 6400, "ps").start()
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 4)
    return attach(dut)


def completion(world, cq):
    """The next completion, or an ``AssertionError`` if it does not come."""
    limit = world.cycles + PATIENCE
    while world.cycles < limit:
        if found := cq.poll(1)[1]:
            return found[0]
    raise AssertionError("a completion did not come")


def exchange(world, near, far, rng):
    """A SEND and a WRITE of several packets from ``near`` to ``far``, with all bytes and completions checked."""
    content, before = rng.randbytes(near.mr.length), rng.randbytes(far.mr.length)
    near.mr.write(content, len(content))
    far.mr.write(before, len(before))
    size, at = SIZE + rng.randrange(8), rng.randrange(64)
    far.qp.post_recv(RecvWR(7, 1, [SGE(far.mr.buf, SIZE + 8, far.mr.lkey)]))
    for wr_id, opcode, first in ((1, ibv_wr_opcode.IBV_WR_SEND, 0), (2, ibv_wr_opcode.IBV_WR_RDMA_WRITE, at)):
        sge = SGE(near.mr.buf + first, size, near.mr.lkey)
        wr = SendWR(wr_id, opcode, num_sge=1, sg=[sge], send_flags=ibv_send_flags.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(far.mr.rkey, far.mr.buf + WRITE_AT + first)
        near.qp.post_send(wr)
    done = [completion(world, near.cq) for _ in range(2)]
    assert [(c.wr_id, c.status, c.qp_num) for c in done] == [(1, 0, near.qp.qp_num), (2, 0, near.qp.qp_num)]
    received = completion(world, far.cq)
    assert (received.wr_id, received.status, received.byte_len) == (7, 0, size)
    expected = bytearray(before)
    expected[:size] = content[:size]
    expected[WRITE_AT + at : WRITE_AT + at + size] = content[at : at + size]
    assert far.mr.read(len(expected), 0) == expected, "wrong bytes"
    assert near.mr.read(len(content), 0) == content, "the sender's own bytes changed"
    assert far.cq.poll(1) == (0, []) == near.cq.poll(1)
