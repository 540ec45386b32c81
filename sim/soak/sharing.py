"""Queue pairs that share a receive queue: which receive a message gets is chance; none is lost, doubled or mixed up.

Messages go one way. Their queue pairs end in the midst of them, by ERR or by RESET; the receives that were theirs come
back, and those of the others stay.
"""

import random
from collections import deque

from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.datagram import GRH_BYTES
from verbena.sw.verbs.libibverbs_enums import (
    ibv_access_flags,
    ibv_event_type,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_send_flags,
    ibv_srq_attr_mask,
    ibv_wc_opcode,
    ibv_wc_status,
    ibv_wr_opcode,
)
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from verbena.sw.verbs.srq import SRQ, SrqAttr, SrqInitAttr
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

from ..pair import QKEY, handle, join
from .model import Difference

__all__ = ["Sharing"]

RC, UC, UD = ibv_qp_type.IBV_QPT_RC, ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_UD
KINDS = (RC, RC, RC, UC, UD)
"""Of the queue pairs, in turns."""
RECEIVES = 16
BUSY = 0.1
"""Probability, a step, that a queue pair sends: all have one wire, and what is not acknowledged would fill it."""
DEPTH = 8
"""Messages that may be open on a queue pair."""
SLOT = 8192
"""Bytes of a receive and of the longest message, without what stands between and in front of them."""
APART = 8
"""Bytes between two entries."""
PACKET = 4096
SOURCE = 1 << 16
MTUS = (256, 1024, 4096)
NUMBERS = 1 << 32

ENDS, LIMITS = 0.03, 0.02
"""Probability, a step, that a queue pair is ended, and that a limit is set."""

E, R, W = ibv_event_type, ibv_wr_opcode, ibv_wc_status
S = ibv_qp_state
F_SIGNALED = ibv_send_flags.IBV_SEND_SIGNALED


def _to(qp, state):
    qp.modify(QPAttr(qp_state=state), ibv_qp_attr_mask.IBV_QP_STATE)


class _Way:
    """A queue pair that sends, and its peer, which has the shared receives."""

    def __init__(self, sharing, qp_type):
        self.sharing, self.qp_type = sharing, qp_type
        here, there = sharing.hosts
        self.header = GRH_BYTES if qp_type == UD else 0
        self.handle = handle(here, there.gid) if qp_type == UD else None
        self.mtu = sharing.random.choice(MTUS)
        cap = QPCap(DEPTH, 1, 1, 1, 0)
        self.near = QP(here.pd, QPInitAttr(qp_type, scq=sharing.send_cq, rcq=sharing.send_cq, cap=cap, sq_sig_all=1))
        self.far = QP(
            there.pd,
            QPInitAttr(qp_type, scq=sharing.recv_cq, rcq=sharing.recv_cq, srq=sharing.srq, cap=cap),
        )
        self.open = deque()  # numbers of messages whose sender has not heard of them
        self.expected = deque()  # of RC: of messages that have not arrived; else of the newest messages
        self.content = {}
        self.begin()

    def begin(self):
        """A life begins; both queue pairs come from RESET. Of UC and UD messages of the one before may still arrive."""
        self.open.clear()
        if self.qp_type == RC:
            self.expected.clear()
            self.content.clear()
        self.killed = self.told = False
        rng = self.sharing.random
        here, there = self.sharing.hosts
        psns = [rng.getrandbits(24) for _ in (0, 1)]
        way = {"mtu": self.mtu, "timeout": self.sharing.timeout, "min_rnr_timer": rng.choice((1, 5)), "qkey": QKEY}
        join(self.near, self.far, there.gid, sq_psn=psns[0], rq_psn=psns[1], **way)
        join(self.far, self.near, here.gid, sq_psn=psns[1], rq_psn=psns[0], **way)

    def post(self):
        """Sends a message, with its number as immediate."""
        if self.killed or len(self.open) == DEPTH:
            return
        rng, number = self.sharing.random, self.sharing.number()
        longest = PACKET if self.qp_type == UD else SLOT
        length = rng.choice((rng.randrange(64), rng.randrange(1024), rng.randrange(longest + 1)))
        opcode = R.IBV_WR_SEND_WITH_IMM
        if self.qp_type != UD and rng.random() < 0.25:
            opcode = R.IBV_WR_RDMA_WRITE_WITH_IMM
        at = rng.randrange(SOURCE - length)
        source, sink = self.sharing.source, self.sharing.sink
        wr = SendWR(number, opcode, 1, number, [SGE(source.buf + at, length, source.lkey)], F_SIGNALED)
        wr.set_wr_rdma(sink.rkey, sink.buf)
        if self.qp_type == UD:
            wr.set_wr_ud(self.handle, self.far.qp_num, QKEY)
        self.near.post_send(wr)
        self.open.append(number)
        self.expected.append(number)
        self.content[number] = opcode, at, length
        if self.qp_type != RC and len(self.expected) > 256:
            self.content.pop(self.expected.popleft(), None)

    def sent(self, wc):
        if not self.open or wc.wr_id != self.open[0]:
            raise Difference(f"SRQ: {wc} at the sender, of {list(self.open)}")
        self.open.popleft()
        if wc.status == W.IBV_WC_SUCCESS or self.killed:
            return
        if self.qp_type != RC or wc.status != W.IBV_WC_RETRY_EXC_ERR:
            raise Difference(f"SRQ: {wc} at the sender, and nothing was done to it")
        # On a wire that loses much a packet or its answer may be lost as often as it is sent.
        self.sharing.counts["out of retries"] += 1
        self.kill()

    def received(self, wc, lengths, at):
        """A message has come, into entries of these lengths from ``at`` of the buffers on."""
        opcode, source, length = self.content.get(wc.imm_data, (None, 0, 0))
        if self.qp_type == RC:
            if not self.expected or wc.imm_data != self.expected.popleft():
                raise Difference(f"SRQ: {wc} at the receiver, out of turn")
            del self.content[wc.imm_data]
        written = wc.opcode == ibv_wc_opcode.IBV_WC_RECV_RDMA_WITH_IMM
        if opcode is None or written != (opcode == R.IBV_WR_RDMA_WRITE_WITH_IMM):
            raise Difference(f"SRQ: {wc} at the receiver, which was sent as {opcode}")
        if wc.byte_len != length + (0 if written else self.header):
            raise Difference(f"SRQ: {wc} at the receiver, of a message of {length} bytes")
        if written:
            return
        found = b""
        for room in lengths:
            taken = min(room, wc.byte_len - len(found))
            found += self.sharing.buffers.read(taken, at) if taken else b""
            at += room + APART
        if found[self.header :] != self.sharing.random_bytes[source : source + length]:
            raise Difference(f"SRQ: message {wc.imm_data} of {length} bytes arrived with others")

    def kill(self):
        """Both go to ERR: what is open is flushed, and the event comes."""
        self.killed = True
        for qp in (self.far, self.near):
            _to(qp, S.IBV_QPS_ERR)

    def reset(self):
        for qp in (self.far, self.near):
            _to(qp, S.IBV_QPS_RESET)

    @property
    def over(self):
        """Whether it was killed, and all that was to come has come."""
        return self.killed and self.told and not self.open


class Sharing:
    """``count`` queue pairs of one adapter send messages to as many of another, which share a receive queue.

    Parameters
    ----------
    seed, count : int
    hosts : pair of .host.Host
    timeout : int
        Of RC: as in QPAttr.
    """

    def __init__(self, seed, hosts, timeout, count=6):
        self.random = random.Random(seed)
        self.hosts = here, there = hosts
        self.timeout = timeout
        self.random_bytes = self.random.randbytes(SOURCE)
        self.source = MR(here.pd, SOURCE, ibv_access_flags.IBV_ACCESS_LOCAL_WRITE)
        self.source.write(self.random_bytes, SOURCE)
        self.stride = SLOT + GRH_BYTES + 4 * APART
        self.buffers = MR(there.pd, RECEIVES * self.stride, ibv_access_flags.IBV_ACCESS_LOCAL_WRITE)
        access = ibv_access_flags.IBV_ACCESS_LOCAL_WRITE | ibv_access_flags.IBV_ACCESS_REMOTE_WRITE
        self.sink = MR(there.pd, SLOT, access)
        self.send_cq = CQ(here.context, 2 * count * DEPTH)
        self.recv_cq = CQ(there.context, 8 * RECEIVES)
        self.srq = SRQ(there.pd, SrqInitAttr(SrqAttr(RECEIVES, 3)))
        self.posted = {}  # wr_id: (lengths of entries, place)
        self.places = deque(range(RECEIVES))
        self._next = self._receives = 0
        self.armed = 0  # how often there was a limit, each of which brings one event at most
        self.counts = dict.fromkeys(
            ("sent", "arrived", "flushed", "lost with a queue pair", "ends", "limits", "out of retries"), 0
        )
        self.ways = [_Way(self, KINDS[number % len(KINDS)]) for number in range(count)]
        self._by_number = {qp.qp_num: way for way in self.ways for qp in (way.near, way.far)}

    def number(self):
        """Of the next message."""
        self._next = (self._next + 1) % NUMBERS
        self.counts["sent"] += 1
        return self._next

    def step(self, posting=True):
        """Posts here and there, ends queue pairs, and checks what has come. Returns how much that was."""
        rng = self.random
        if posting:
            if rng.random() < ENDS:
                self._end_one(rng.choice(self.ways))
            if rng.random() < LIMITS:
                limit = rng.randrange(RECEIVES + 1)
                self.armed += limit > 0
                self.srq.modify(SrqAttr(srq_limit=limit), ibv_srq_attr_mask.IBV_SRQ_LIMIT)
        for way in self.ways:
            if posting and rng.random() < BUSY:
                for _ in range(rng.randrange(1, 5)):
                    way.post()
            if way.over:
                way.reset()
                self._forget_lost()
                way.begin()
        if rng.random() < 0.7:  # often later than the message
            for _ in range(rng.randrange(1, RECEIVES)):
                self._post_receive()
        return self._poll()

    def _end_one(self, way):
        if way.killed:
            return
        self.counts["ends"] += 1
        if self.random.random() < 0.5:
            way.kill()
            return
        way.reset()
        self._forget_lost()
        way.begin()

    def _post_receive(self):
        if not self.places:
            return
        rng, place = self.random, self.places.popleft()
        cuts = sorted(rng.randrange(SLOT + GRH_BYTES + 1) for _ in range(rng.randrange(3)))
        lengths = [b - a for a, b in zip([0, *cuts], [*cuts, SLOT + GRH_BYTES], strict=True)]
        at, entries = self.buffers.buf + place * self.stride, []
        for length in lengths:
            entries.append(SGE(at, length, self.buffers.lkey))
            at += length + APART
        self.srq.post_recv(RecvWR(self._receives, len(entries), entries))
        self.posted[self._receives] = lengths, place
        self._receives += 1

    def _poll(self):
        """Takes all completions. Returns how many there were."""
        moved = 0
        for wc in self.send_cq.poll(64)[1]:
            self._by_number[wc.qp_num].sent(wc)
            moved += 1
        for wc in self.recv_cq.poll(64)[1]:
            self._received(wc)
            moved += 1
        return moved

    def _received(self, wc):
        if wc.wr_id not in self.posted:
            raise Difference(f"SRQ: {wc} at the receiver, of a request that is not outstanding")
        lengths, place = self.posted.pop(wc.wr_id)
        way = self._by_number[wc.qp_num]
        if wc.status == W.IBV_WC_SUCCESS:
            way.received(wc, lengths, place * self.stride)
            self.counts["arrived"] += 1
        elif wc.status == W.IBV_WC_WR_FLUSH_ERR and way.killed:
            self.counts["flushed"] += 1
        else:
            raise Difference(f"SRQ: {wc} at the receiver, and nothing was done to it")
        self.places.append(place)

    def _forget_lost(self):
        """A queue pair was reset: requests whose completions nobody gets any more are not outstanding."""
        while self._poll():
            pass
        queue = self.srq._queue
        outstanding = {queue.wr_ids[place] for place in set(range(queue.size)) - set(queue._ids)}
        if outstanding - self.posted.keys():
            raise Difference(f"SRQ: {outstanding - self.posted.keys()} are outstanding and complete")
        for wr_id in self.posted.keys() - outstanding:
            self.places.append(self.posted.pop(wr_id)[1])
            self.counts["lost with a queue pair"] += 1

    def event(self, event):
        """An asynchronous event; whether it was of the shared queue, or of one of its queue pairs."""
        if event.element is self.srq:
            if event.event_type != E.IBV_EVENT_SRQ_LIMIT_REACHED or self.counts["limits"] == self.armed:
                raise Difference(f"{event}, which nothing has caused")
            self.counts["limits"] += 1
            return True
        for way in self.ways:
            if event.element is way.far:
                if event.event_type != E.IBV_EVENT_QP_LAST_WQE_REACHED or not way.killed or way.told:
                    raise Difference(f"{event} of a queue pair with an SRQ, which nothing has caused")
                way.told = True
                return True
        return False

    def end(self):
        """Whether all that was sent is complete, and no queue pair waits for its next life."""
        return not any(way.open or way.killed or (way.qp_type == RC and way.expected) for way in self.ways)

    def check(self):
        """What is outstanding is what was posted and has not come."""
        self._forget_lost()
        if len(self.posted) + len(self.places) != RECEIVES:
            raise Difference(f"SRQ: {len(self.posted)} receives are outstanding, {len(self.places)} places are free")
