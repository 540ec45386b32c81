"""One direction of a connection: posts random operations, and checks what comes of them."""

import mmap
from itertools import pairwise

from verbena.sw import host_memory
from verbena.sw.verbs.libibverbs_enums import ibv_access_flags, ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

from .completions import Completions
from .model import Operation, Peer
from .pace import longest_for
from .refusals import REFUSALS
from .ring import Ring

__all__ = ["ENTRIES", "INLINE", "MESSAGES", "WEIGHTS", "Flow"]

ENTRIES = 4
"""Most scatter/gather entries of a request."""

INLINE = 96
LONGEST = 1 << 20
LONGEST_SEND = 1 << 14
SLICE = LONGEST + (1 << 16)
POOL = 2 * LONGEST
BUFFERS = 1 << 18
REGIONS = 2
"""Regions over the same memory, so that entries and operations differ in their keys."""

WEIGHTS = {
    "SEND": 18,
    "SEND_WITH_IMM": 8,
    "RDMA_WRITE": 22,
    "RDMA_WRITE_WITH_IMM": 8,
    "RDMA_READ": 24,
    "ATOMIC_CMP_AND_SWP": 10,
    "ATOMIC_FETCH_AND_ADD": 10,
}
FLUSHED = "RDMA_WRITE in ERR"

MESSAGES = ("SEND", "SEND_WITH_IMM", "RDMA_WRITE_WITH_IMM")
"""What uses up a receive request."""

A = ibv_access_flags
F = ibv_send_flags
REMOTE = A.IBV_ACCESS_LOCAL_WRITE | A.IBV_ACCESS_REMOTE_WRITE | A.IBV_ACCESS_REMOTE_READ | A.IBV_ACCESS_REMOTE_ATOMIC


class Flow(Completions):
    """Requests of ``qp`` at ``here`` to its peer at ``there``, whose receive queue belongs to this flow, too.

    Parameters
    ----------
    connection : .connection.Connection
    here, there : .host.Host
    """

    def __init__(self, connection, here, there):
        self.connection = connection
        self.here, self.there = here, there
        self.mtu, self.depth, self.random = connection.mtu, connection.depth, connection.soak.random
        self.longest = longest_for(connection.soak.loss, self.mtu, LONGEST)
        # One in the arena, two elsewhere in the process, where each page can get lost.
        self.memory = [
            MR(there.pd, SLICE, REMOTE),
            MR(here.pd, POOL, 1, mmap.mmap(-1, POOL)),
            MR(there.pd, BUFFERS, 1, mmap.mmap(-1, BUFFERS)),
        ]
        self.slice, self.pool, self.buffers = (mr.buf for mr in self.memory)
        self.slice_mrs, self.pool_mrs, self.buffer_mrs = [], [], []
        self.read_only = MR(there.pd, SLICE, A.IBV_ACCESS_REMOTE_READ, self.slice)
        self.register()
        self.model = Peer(SLICE)
        self.done = 0
        self.counts = dict.fromkeys(WEIGHTS, 0)
        self.refusals = 0

    def register(self):
        """Regions over slice, pool and buffers, where there are none."""
        for mrs, pd, address, size, access in (
            (self.slice_mrs, self.there.pd, self.slice, SLICE, REMOTE),
            (self.pool_mrs, self.here.pd, self.pool, POOL, 1),
            (self.buffer_mrs, self.there.pd, self.buffers, BUFFERS, 1),
        ):
            while len(mrs) < REGIONS:
                mrs.append(MR(pd, size, access, address))

    def begin(self, qp, peer):
        """A life begins: queues are empty, both queue pairs come from RESET."""
        self.qp, self.peer = qp, peer
        self.next = 0
        self.psns = 0  # that its requests have
        self.space, self.receive_space = Ring(POOL), Ring(BUFFERS)
        self.marks = {}  # number: what of the pool is free once it is complete
        self.receives = {}  # number: (entries, mark)
        self.received = self.posted = 0
        self.dead = self.killed = self.flushing = self.stopped = False
        self.flushed = self.unsignaled = 0

    @property
    def name(self):
        return f"QP {self.qp.qp_num:#x} of sim{self.here.index}"

    # Posting

    def _length(self):
        random = self.random
        mtu = self.mtu
        kind = random.random()
        if kind < 0.5:
            return random.randrange(0, 65)
        if kind < 0.8:
            return max(0, random.choice((1, 2, 3, 4)) * mtu + random.randrange(-3, 4))
        if kind < 0.97:
            return random.randrange(0, 9000)
        if kind < 0.999:
            return random.randrange(1 << 16)
        return random.choice((self.longest, random.randrange(self.longest)))

    def _pieces(self, at, length):
        """Cuts ``length`` bytes at address ``at`` into entries, of which some may be empty."""
        cuts = sorted(self.random.randrange(length + 1) for _ in range(self.random.randrange(ENTRIES)))
        edges = [0, *cuts, length]
        return [(at + a, b - a) for a, b in pairwise(edges)]

    def _entries(self, pieces, mrs):
        return [SGE(at, length, self.random.choice(mrs).lkey) for at, length in pieces]

    def post_receives(self, most):
        """Tops the receive queue up, with buffers that hold any message; at most ``most``."""
        if self.killed or not self.buffer_mrs:
            return
        first = last = None
        for _ in range(most):
            if self.posted - self.received >= self.depth:
                break
            at = self.receive_space.take(LONGEST_SEND)
            if at is None:
                break
            pieces = self._pieces(self.buffers + at, LONGEST_SEND)
            self.receives[self.posted] = (pieces, self.receive_space.tail)
            wr = RecvWR(self.posted, len(pieces), self._entries(pieces, self.buffer_mrs))
            self.posted += 1
            if first is None:
                first = wr
            else:
                last.next_wr = wr
            last = wr
        if first is not None:
            self.peer.post_recv(first)

    @property
    def room(self):
        """Whether another request may be posted."""
        return len(self.model.open) < self.depth and not (self.dead or self.killed or self.stopped)

    def post(self):
        """Posts one random operation, if there is room. Returns whether it did."""
        random = self.random
        if not self.room:
            return False
        name = random.choices(list(WEIGHTS), WEIGHTS.values())[0]
        atomic = name.startswith("ATOMIC")
        length = 8 if atomic else min(self._length(), LONGEST_SEND if name.startswith("SEND") else self.longest)
        inline = not atomic and name != "RDMA_READ" and length <= INLINE and random.random() < 0.3
        start = self.space.take(length + 16)
        if start is None:
            return False
        local = self.pool + start + (0 if atomic else random.randrange(16))
        pieces = [(local, length)] if atomic else self._pieces(local, length)
        self.unsignaled = (
            0 if self.unsignaled >= min(7, self.depth - 1) or random.random() < 0.6 else self.unsignaled + 1
        )
        op = Operation(self.next, name, not self.unsignaled, pieces=pieces)
        wr = SendWR(
            op.number,
            ibv_wr_opcode[f"IBV_WR_{name}"],
            len(pieces),
            sg=self._entries(pieces, self.pool_mrs),
            send_flags=F.IBV_SEND_SIGNALED * op.signaled
            | F.IBV_SEND_INLINE * inline
            | F.IBV_SEND_SOLICITED * (random.random() < 0.2),
        )
        self._fill(op, wr, length, local)
        self._post(op, wr)
        self.counts[name] += 1
        return True

    def refuse(self):
        """Posts an operation that must be refused, by here or by there; it has no effect, and the connection breaks.
        Returns whether it did.
        """
        if not self.room or (start := self.space.take(4096)) is None:
            return False
        refusal = self.random.choice(REFUSALS)
        wr = refusal.request(self, self.next, self.pool + start, self.random)
        fates = frozenset([refusal.status])
        self.connection.fails(refusal.events)
        self._post(Operation(self.next, refusal.name, True, fates=fates), wr)
        self.unsignaled = 0
        self.refusals += 1
        return True

    def end(self):
        """Posts a signaled WRITE of nothing, if what was posted last is not signaled: it tells of all before it.
        Returns False if it has to be tried again.
        """
        if self.dead or self.killed or not self.unsignaled:
            return True
        if not self.room:
            return False
        wr = SendWR(self.next, ibv_wr_opcode.IBV_WR_RDMA_WRITE, 1, sg=[SGE(0, 0, 0)], send_flags=F.IBV_SEND_SIGNALED)
        self._post(Operation(self.next, "RDMA_WRITE", True), wr)
        self.unsignaled = 0
        return True

    def flush(self):
        """The queue pairs are in ERR. What was complete and not signaled shows when a signaled request is flushed."""
        if self.dead:
            return
        if not self.model.open:
            self.dead, self.flushed = True, self.next
        elif len(self.model.open) < self.depth and self.model.open[-1].name != FLUSHED:
            wr = SendWR(self.next, ibv_wr_opcode.IBV_WR_RDMA_WRITE, 1, sg=[SGE(0, 0, 0)])
            self._post(Operation(self.next, FLUSHED, True), wr)

    def _post(self, op, wr):
        self.qp.post_send(wr)
        self.psns += max(1, -(-sum(entry.length for entry in wr.sg_list) // self.mtu))
        self.marks[op.number] = self.space.tail
        self.next += 1
        self.model.open.append(op)

    def _fill(self, op, wr, length, local):
        """Chooses operands, and lets the operation act on the model."""
        random, model, name = self.random, self.model, op.name
        at = random.randrange(SLICE - length + 1)
        rkey = random.choice(self.slice_mrs).rkey
        changes = name != "RDMA_READ" and not name.startswith("SEND")
        if name.startswith("ATOMIC"):
            at &= ~7
            before = model.read(at, 8)
            if name == "ATOMIC_FETCH_AND_ADD":
                addend = random.getrandbits(64)
                wr.set_wr_atomic(rkey, self.slice + at, addend)
            else:
                compare = int.from_bytes(before, "little") if random.random() < 0.7 else random.getrandbits(64)
                swap = random.getrandbits(64)
                wr.set_wr_atomic(rkey, self.slice + at, compare, swap)
        else:
            wr.set_wr_rdma(rkey, self.slice + at)
        if random.random() < 0.05 or (changes and model.fence(at, length)):
            wr.send_flags |= F.IBV_SEND_FENCE
        if not name.startswith("SEND"):
            op.remote = (at, length)
        if name == "ATOMIC_FETCH_AND_ADD":
            op.result = op.before = model.fetch_add(at, addend)
            op.data = model.read(at, 8)
        elif name == "ATOMIC_CMP_AND_SWP":
            op.result = op.before = model.compare_swap(at, compare, swap)
            op.data = model.read(at, 8)
        elif name == "RDMA_READ":
            op.result = model.read(at, length)
            host_memory.write(local, bytes(length))
        else:
            data = random.randbytes(length)
            host_memory.write(local, data)
            if changes:
                op.before, op.data = model.write(at, data), data
            if name in MESSAGES:
                immediate = random.getrandbits(32) if name.endswith("IMM") else None
                wr.imm_data = immediate or 0
                model.messages.append((data, immediate, name))
