"""What the rows of the benchmark have in common: lists of work requests, the cycle of a completion, a row's figures."""

from itertools import pairwise

from verbena.hdl.abi.cqe import CQE
from verbena.hdl.abi.wqe import SendOpcode
from verbena.sim.devices import world
from verbena.sim.wire_limit import DETH, wire_cycles
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

__all__ = [
    "BUFFER",
    "MTU",
    "OPERATIONS",
    "REGION",
    "cqe_written",
    "cycle_of",
    "data_width",
    "drain",
    "figures",
    "receives",
    "sends",
]

MTU = 4096
OPERATIONS = {
    "WRITE": SendOpcode.RDMA_WRITE,
    "SEND": SendOpcode.SEND,
    "READ": SendOpcode.RDMA_READ,
    "FETCH_ADD": SendOpcode.ATOMIC_FETCH_AND_ADD,
    "WRITE_WITH_IMM": SendOpcode.RDMA_WRITE_WITH_IMM,
}

PATIENCE = 2_000_000
REGION = 1 << 20
BUFFER = 1 << 17
"""Messages go round in that much memory, as perftest's do in less: the caches are warm after the first round."""


def data_width():
    """Bits of the engines' buses."""
    return world().model.design.data_width


def cqe_written(cq, number):
    """Whether completion ``number`` (from 0, since the CQ was made) stands in the ring."""
    slot = number & (1 << cq._log_size) - 1
    entry = CQE.unpack(cq._adapter.memory.read(cq._ring + CQE.size * slot, CQE.size))
    if entry["phase"] == number >> cq._log_size & 1:
        return False
    if entry["status"]:
        raise RuntimeError(f"completion {number} failed: status {entry['status']}, vendor error {entry['syndrome']}")
    return True


def cycle_of(cq, number, start, step=4096):
    """The cycle, counted from ``start``, in which completion ``number`` of ``cq`` came into memory; up to ``step`` too
    late if the world does not stop at it.
    """
    here = world()
    while not cqe_written(cq, number):
        if here.cycles - start > PATIENCE:
            raise RuntimeError(f"completion {number} did not come within {PATIENCE} cycles")
        here.advance(step)
    return here.cycles - start


def drain(*ends):
    """Takes the completions that are there already, so that there is room for more."""
    for end in ends:
        while end.cq.poll(1024)[0]:
            pass


def _around(number, size):
    """Messages go round in the buffer, none in the same cache line as the one before."""
    return number * max(size, 64) % BUFFER


def _link(requests):
    for one, following in pairwise(requests):
        one.next_wr = following
    return requests[0]


def _entries(mr, at, size, count):
    """``count`` scatter/gather entries, of the same length as far as ``size`` can be divided."""
    lengths = [size // count] * (count - 1)
    lengths.append(size - sum(lengths))
    places = [at + sum(lengths[:i]) for i in range(count)]
    return [SGE(mr.buf + place, length, mr.lkey) for place, length in zip(places, lengths)]


def sends(
    end, other, opcode, size, count, number=0, *, inline=False, entries=1, place=None, target=None, receiver=None
):
    """A list of ``count`` sends from ``end``, of messages ``number`` and on; buffers alternate within the region as
    perftest's do. ``place(n)`` tells the remote offset of message ``n`` in the region ``target``, by default those of
    ``other`` and of the local buffer; ``receiver`` is AH, number and Q_Key of datagrams.
    """
    flags = ibv_send_flags.IBV_SEND_SIGNALED | (ibv_send_flags.IBV_SEND_INLINE if inline else 0)
    target = target or other.mr
    requests = []
    for i in range(count):
        at = _around(number + i, size)
        sg = _entries(end.mr, at, size, entries)
        wr = SendWR(i, opcode, num_sge=entries, sg=sg, send_flags=flags)
        if opcode != SendOpcode.SEND:
            far = at if place is None else place(number + i)
            wr.set_wr_atomic(target.rkey, target.buf + far, 1)  # the operand counts for atomics only
        if receiver is not None:
            wr.set_wr_ud(*receiver)
        requests.append(wr)
    return _link(requests)


def receives(end, size, count):
    """A list of ``count`` receives of ``size`` bytes."""
    return _link([RecvWR(i, 1, [SGE(end.mr.buf + _around(i, size), size, end.mr.lkey)]) for i in range(count)])


def figures(name, size, mtu, qps, cycles, *, direction="one way", transport="RC", limit=None, **more):
    """A row: what was sent, and what one message took. ``limit``: cycles of it on an ideal wire, those of one way if
    None.
    """
    if limit is None:
        extra = DETH if transport == "UD" else 0
        limit = wire_cycles(OPERATIONS[name], size + extra, mtu + extra, data_width())
    return {
        "op": name,
        "opcode": int(OPERATIONS[name]),
        "direction": direction,
        "transport": transport,
        "size": size,
        "mtu": mtu,
        "qps": qps,
        **more,
        "cycles_per_message": round(cycles, 2),
        "payload_bytes_per_cycle": round(size / cycles, 3),
        "wire_cycles": round(limit, 2),
        "wire_fraction": round(limit / cycles, 4),
    }
