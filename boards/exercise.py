"""What a node can do, in one short run: WRITE, READ and fetch-and-add, and the share of the line that WRITEs fill."""

import random
import struct
from itertools import pairwise

from verbena.hdl.abi.wqe import SendOpcode
from verbena.sim.pair import End, connect
from verbena.sim.wire_limit import wire_cycles
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags
from verbena.sw.verbs.wr import SGE, SendWR

__all__ = ["exercise"]

SIZE = 4096
GIGABIT_BYTES_A_NS = 0.125
POLLS = 100_000


def _request(end, opcode, at, length, target, offset=0, *, last=True, operand=0):
    flags = ibv_send_flags.IBV_SEND_SIGNALED if last else 0
    wr = SendWR(0, opcode, num_sge=1, sg=[SGE(end.mr.buf + at, length, end.mr.lkey)], send_flags=flags)
    wr.set_wr_atomic(target.rkey, target.buf + offset, operand)  # the operand counts for atomics only
    return wr


def _finish(end, *requests):
    """Posts the requests as a list, and waits for the last one's completion."""
    for request, following in pairwise(requests):
        request.next_wr = following
    end.qp.post_send(requests[0])
    for _ in range(POLLS):
        count, found = end.cq.poll(1)
        if count:
            if found[0].status:
                raise RuntimeError(f"completion with status {found[0].status}, vendor error {found[0].vendor_err}")
            return
    raise RuntimeError("no completion")


def exercise(device, peer, *, messages=32, seed=1):
    """Device ``peer`` writes, reads and adds in the memory of ``device``, and writes ``messages`` of 4096 bytes.

    Returns the share that these WRITEs have of what 1 Gb/s could carry of them at most. ``RuntimeError`` if anything is
    not as it should be.
    """
    rng = random.Random(seed)
    with End(device, 3 * SIZE, depth=16, cqe=32) as node, End(peer, 3 * SIZE, depth=2 * messages, cqe=32) as far:
        connect(far, node, mtu=SIZE)
        data = rng.randbytes(SIZE)
        far.mr.write(data, SIZE)
        _finish(far, _request(far, SendOpcode.RDMA_WRITE, 0, SIZE, node.mr))
        _expect("WRITE", node.mr.read(SIZE, 0), data)
        _finish(far, _request(far, SendOpcode.RDMA_READ, SIZE, SIZE - 3, node.mr, 3))
        _expect("READ", far.mr.read(SIZE - 3, SIZE), data[3:])
        (before,) = struct.unpack_from("<Q", data)
        _finish(far, _request(far, SendOpcode.ATOMIC_FETCH_AND_ADD, 2 * SIZE, 8, node.mr, operand=5))
        _expect("the value before", far.mr.read(8, 2 * SIZE), data[:8])
        _expect("the sum", node.mr.read(8, 0), struct.pack("<Q", before + 5 & (1 << 64) - 1))

        writes = [
            _request(far, SendOpcode.RDMA_WRITE, 0, SIZE, node.mr, n % 2 * SIZE, last=n == messages - 1)
            for n in range(messages)
        ]
        start = far.context.time_ns()
        _finish(far, *writes)
        took = far.context.time_ns() - start
        _expect("the last WRITE", node.mr.read(SIZE, (messages - 1) % 2 * SIZE), data)
        return messages * wire_cycles(SendOpcode.RDMA_WRITE, SIZE, SIZE, 8) / GIGABIT_BYTES_A_NS / took


def _expect(what, found, wanted):
    if found != wanted:
        raise RuntimeError(f"{what} is wrong")
