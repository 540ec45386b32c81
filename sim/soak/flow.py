"""One direction of a connection: posts random operations, and checks what comes of them."""

from itertools import pairwise

from verbena.sw import host_memory
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wc_flags, ibv_wc_status, ibv_wr_opcode
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

from .model import Difference, Operation, Peer, first_difference

__all__ = ["DEPTH", "ENTRIES", "INLINE", "Flow"]

DEPTH = 32
"""Work requests that may be open in a queue."""

ENTRIES = 4
"""Most scatter/gather entries of a request."""

INLINE = 96
SLICE = 1 << 17
POOL = 1 << 18
LONGEST = 1 << 16
LONGEST_SEND = 1 << 14

WEIGHTS = {
    "SEND": 18,
    "SEND_WITH_IMM": 8,
    "RDMA_WRITE": 22,
    "RDMA_WRITE_WITH_IMM": 8,
    "RDMA_READ": 24,
    "ATOMIC_CMP_AND_SWP": 10,
    "ATOMIC_FETCH_AND_ADD": 10,
}
MESSAGES = ("SEND", "SEND_WITH_IMM", "RDMA_WRITE_WITH_IMM")
"""What uses up a receive request."""

F = ibv_send_flags
S = ibv_wc_status


class Ring:
    """Hands out space of a region in order, and takes it back in order."""

    def __init__(self, size):
        self.size = size
        self.head = self.tail = 0

    def take(self, length):
        """Offset of ``length`` contiguous bytes, or None."""
        start = self.tail % self.size
        skip = self.size - start if start + length > self.size else 0
        if self.tail + skip + length - self.head > self.size:
            return None
        self.tail += skip + length
        return (self.tail - length) % self.size


class Flow:
    """Requests of ``qp`` at ``here`` to its peer at ``there``, whose receive queue belongs to this flow, too.

    Parameters
    ----------
    here, there : verbena.sim.pair.End
        With regions of at least ``base + span`` bytes.
    qp, peer : QP
    base : int
        Where the flow's parts of both regions begin: slice, pool and receive buffers.
    mtu : int
        Of the connection, in bytes: sizes near its multiples are tried.
    random : random.Random
    """

    span = SLICE + 2 * POOL

    def __init__(self, here, there, qp, peer, base, mtu, random):
        self.here, self.there, self.qp, self.peer = here, there, qp, peer
        self.mtu = mtu
        self.random = random
        self.slice = there.mr.buf + base
        self.pool = here.mr.buf + base + SLICE
        self.buffers = there.mr.buf + base + SLICE + POOL
        self.model = Peer(SLICE)
        self.done = 0
        self.counts = dict.fromkeys(WEIGHTS, 0)
        self.reset()

    def reset(self):
        """Queues are empty: both queue pairs come from RESET."""
        self.next = 0
        self.space, self.receive_space = Ring(POOL), Ring(POOL)
        self.marks = {}  # number: what of the pool is free once it is complete
        self.receives = {}  # number: (entries, mark)
        self.received = self.posted = 0
        self.dead = self.killed = self.flushing = False
        self.flushed = self.unsignaled = 0

    @property
    def name(self):
        return f"QP {self.qp.qp_num:#x} of {self.here.context.name}"

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
        return random.randrange(LONGEST + 1)

    def _pieces(self, at, length):
        """Cuts ``length`` bytes at address ``at`` into entries, of which some may be empty."""
        cuts = sorted(self.random.randrange(length + 1) for _ in range(self.random.randrange(ENTRIES)))
        edges = [0, *cuts, length]
        return [(at + a, b - a) for a, b in pairwise(edges)]

    def post_receives(self, most):
        """Tops the receive queue up, with buffers that hold any message; at most ``most``."""
        first = last = None
        for _ in range(most):
            if self.posted - self.received >= DEPTH:
                break
            at = self.receive_space.take(LONGEST_SEND)
            if at is None:
                break
            pieces = self._pieces(self.buffers + at, LONGEST_SEND)
            self.receives[self.posted] = (pieces, self.receive_space.tail)
            wr = RecvWR(self.posted, len(pieces), [SGE(a, n, self.there.mr.lkey) for a, n in pieces])
            self.posted += 1
            if first is None:
                first = wr
            else:
                last.next_wr = wr
            last = wr
        if first is not None:
            self.peer.post_recv(first)

    def post(self):
        """Posts one random operation, if there is room. Returns whether it did."""
        random, model = self.random, self.model
        if len(model.open) >= DEPTH or self.dead or self.killed:
            return False
        name = random.choices(list(WEIGHTS), WEIGHTS.values())[0]
        atomic = name.startswith("ATOMIC")
        length = 8 if atomic else min(self._length(), LONGEST_SEND if name.startswith("SEND") else LONGEST)
        inline = not atomic and name != "RDMA_READ" and length <= INLINE and random.random() < 0.3
        start = self.space.take(length + 16)
        if start is None:
            return False
        local = self.pool + start + (0 if atomic else random.randrange(16))
        pieces = [(local, length)] if atomic else self._pieces(local, length)
        self.unsignaled = 0 if self.unsignaled == 7 or random.random() < 0.6 else self.unsignaled + 1
        op = Operation(self.next, name, not self.unsignaled, pieces=pieces)
        wr = SendWR(
            op.number,
            ibv_wr_opcode[f"IBV_WR_{name}"],
            len(pieces),
            sg=[SGE(a, n, self.here.mr.lkey) for a, n in pieces],
            send_flags=F.IBV_SEND_SIGNALED * op.signaled
            | F.IBV_SEND_INLINE * inline
            | F.IBV_SEND_SOLICITED * (random.random() < 0.2),
        )
        self._fill(op, wr, length, local)
        self.qp.post_send(wr)
        self.marks[op.number] = self.space.tail
        self.next += 1
        model.open.append(op)
        self.counts[name] += 1
        return True

    def end(self):
        """Posts a signaled WRITE of nothing, if what was posted last is not signaled: it tells of all before it.
        Returns False if it has to be tried again.
        """
        if self.dead or self.killed or not self.unsignaled:
            return True
        if len(self.model.open) >= DEPTH:
            return False
        wr = SendWR(self.next, ibv_wr_opcode.IBV_WR_RDMA_WRITE, 1, sg=[SGE(0, 0, 0)], send_flags=F.IBV_SEND_SIGNALED)
        self.qp.post_send(wr)
        self.model.open.append(Operation(self.next, "RDMA_WRITE", True))
        self.marks[self.next] = self.space.tail
        self.next += 1
        self.unsignaled = 0
        return True

    def _fill(self, op, wr, length, local):
        """Chooses operands, and lets the operation act on the model."""
        random, model, name = self.random, self.model, op.name
        at = random.randrange(SLICE - length + 1)
        changes = name != "RDMA_READ" and not name.startswith("SEND")
        if name.startswith("ATOMIC"):
            at &= ~7
            before = model.read(at, 8)
            if name == "ATOMIC_FETCH_AND_ADD":
                addend = random.getrandbits(64)
                wr.set_wr_atomic(self.there.mr.rkey, self.slice + at, addend)
            else:
                compare = int.from_bytes(before, "little") if random.random() < 0.7 else random.getrandbits(64)
                swap = random.getrandbits(64)
                wr.set_wr_atomic(self.there.mr.rkey, self.slice + at, compare, swap)
        else:
            wr.set_wr_rdma(self.there.mr.rkey, self.slice + at)
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

    # Completions

    def sent(self, wc):
        """A completion of the send queue: in order, and after the first failure every request is flushed."""
        open_ = self.model.open
        if self.dead:
            if (wc.wr_id, wc.status) != (self.flushed, S.IBV_WC_WR_FLUSH_ERR):
                raise Difference(f"{self.name}: {wc} where the flush of {self.flushed} should be")
            self.flushed += 1
            return
        while open_ and open_[0].number != wc.wr_id:
            if open_[0].signaled:
                raise Difference(f"{self.name}: {wc} came before {open_[0].name} {open_[0].number} was complete")
            self._finish(open_.popleft())
        if not open_:
            raise Difference(f"{self.name}: {wc} is of no operation that is open")
        if wc.status == S.IBV_WC_SUCCESS:
            self._finish(open_.popleft())
            return
        if wc.status != S.IBV_WC_RETRY_EXC_ERR and not (self.killed and wc.status == S.IBV_WC_WR_FLUSH_ERR):
            raise Difference(f"{self.name}: {wc} where success or RETRY_EXC_ERR could be")
        self.dead, self.flushed = True, wc.wr_id + 1

    def _finish(self, op):
        self.space.head = self.marks.pop(op.number)
        self.done += 1
        if op.reads:
            found = b"".join(host_memory.read(a, n) for a, n in op.pieces)
            at = first_difference(op.result, found)
            if at is not None:
                raise Difference(
                    f"{self.name}: {op.name} {op.number} of {len(found)} bytes at {op.remote[0]:#x}: "
                    f"byte {at} is {found[at]:#04x}, not {op.result[at]:#04x}"
                )

    def arrived(self, wc):
        """A completion of the peer's receive queue."""
        what = f"receive {self.received} of {self.name}"
        if wc.wr_id != self.received:
            raise Difference(f"{what}: {wc} came")
        pieces, self.receive_space.head = self.receives.pop(self.received)
        self.received += 1
        if wc.status == S.IBV_WC_WR_FLUSH_ERR:
            self.flushing = True
            return
        if wc.status or self.flushing or not self.model.messages:
            raise Difference(f"{what}: {wc}, with {len(self.model.messages)} messages under way")
        data, immediate, name = self.model.messages.popleft()
        flag = wc.wc_flags & ibv_wc_flags.IBV_WC_WITH_IMM
        if wc.byte_len != len(data) or bool(flag) != (immediate is not None) or (flag and wc.imm_data != immediate):
            raise Difference(f"{what}: {wc} for a {name} of {len(data)} bytes, immediate {immediate}")
        if name == "RDMA_WRITE_WITH_IMM":
            return
        found = b"".join(host_memory.read(a, n) for a, n in pieces)[: len(data)]
        at = first_difference(data, found)
        if at is not None:
            raise Difference(f"{what}: {name} of {len(data)} bytes: byte {at} is {found[at]:#04x}, not {data[at]:#04x}")

    @property
    def quiet(self):
        return not self.model.open

    @property
    def flushed_all(self):
        """After a failure: every completion that must come has come."""
        return self.dead and self.flushed == self.next and self.received == self.posted

    def check(self):
        """Nothing is under way: the slice is the model's."""
        self.model.check(host_memory.read(self.slice, SLICE), f"slice of {self.name}")

    def settle(self):
        """The connection broke, and both queue pairs are in RESET."""
        self.model.settle(host_memory.read(self.slice, SLICE), f"slice of {self.name}")
        self.reset()
