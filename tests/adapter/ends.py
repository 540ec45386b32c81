"""What the whole-adapter tests share: connected ends with random content, and completions within a bound of cycles."""

import random

from verbena.sim.devices import world
from verbena.sim.pair import End, connect
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

__all__ = [
    "End",
    "atomic",
    "completion",
    "completions",
    "connect",
    "data_width",
    "fill",
    "quiet",
    "recv",
    "send",
    "settle",
    "sge",
    "word",
    "world",
]

PATIENCE = 1_000_000
SIGNALED = ibv_send_flags.IBV_SEND_SIGNALED


def data_width():
    """Bits of the engines' buses."""
    return world().model.design.data_width


def settle(cycles=3000):
    """Lets ``cycles`` pass, whatever happens in them."""
    end = world().cycles + cycles
    while world().cycles < end:
        world().advance(end - world().cycles)


def completions(cq, count):
    """A list of the next ``count`` completions; an ``AssertionError`` if they do not come."""
    found = []
    limit = world().cycles + PATIENCE
    while len(found) < count:
        found += cq.poll(count - len(found))[1]
        assert world().cycles < limit, f"{count} completions wanted, {len(found)} came: {found}"
    return found


def completion(cq, count=1):
    """The next completion, or a list if more than one is wanted; as of :func:`completions`."""
    found = completions(cq, count)
    return found[0] if count == 1 else found


def quiet(cq, cycles=5000):
    """Nothing completes within ``cycles``."""
    settle(cycles)
    assert cq.poll(1) == (0, [])


def sge(end, offset, length):
    return SGE(end.mr.buf + offset, length, end.mr.lkey)


def send(end, opcode, sges, *, wr_id=0, remote=None, rkey=None, flags=SIGNALED, imm=0, qp=None):
    """Posts one send; ``remote`` is ``(end, offset)``."""
    wr = SendWR(wr_id, opcode, num_sge=len(sges), sg=sges, send_flags=flags, imm_data=imm)
    if remote is not None:
        there, offset = remote
        wr.set_wr_rdma(there.mr.rkey if rkey is None else rkey, there.mr.buf + offset)
    (qp or end.qp).post_send(wr)


def atomic(end, opcode, sges, remote, *operands, wr_id=0, flags=SIGNALED, rkey=None, qp=None):
    """Posts one atomic on the 8 bytes at ``remote = (end, offset)``."""
    there, offset = remote
    wr = SendWR(wr_id, opcode, num_sge=len(sges), sg=sges, send_flags=flags)
    wr.set_wr_atomic(there.mr.rkey if rkey is None else rkey, there.mr.buf + offset, *operands)
    (qp or end.qp).post_send(wr)


def word(end, offset):
    """The 64-bit number at ``offset`` of the region."""
    return int.from_bytes(end.mr.read(8, offset), "little")


def recv(end, sges, *, wr_id=0, qp=None):
    (qp or end.qp).post_recv(RecvWR(wr_id, len(sges), sges))


def fill(end, seed):
    """Fills the region of ``end`` with random bytes and returns them."""
    content = random.Random(seed).randbytes(end.mr.length)
    end.mr.write(content, len(content))
    return content


WRITE, WRITE_IMM = ibv_wr_opcode.IBV_WR_RDMA_WRITE, ibv_wr_opcode.IBV_WR_RDMA_WRITE_WITH_IMM
SEND, SEND_IMM = ibv_wr_opcode.IBV_WR_SEND, ibv_wr_opcode.IBV_WR_SEND_WITH_IMM
READ = ibv_wr_opcode.IBV_WR_RDMA_READ
CMP_SWP, FETCH_ADD = ibv_wr_opcode.IBV_WR_ATOMIC_CMP_AND_SWP, ibv_wr_opcode.IBV_WR_ATOMIC_FETCH_AND_ADD
__all__ += ["CMP_SWP", "FETCH_ADD", "READ", "SEND", "SEND_IMM", "SIGNALED", "WRITE", "WRITE_IMM"]
