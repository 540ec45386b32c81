"""Keys that come and go: parts of memory are granted to the peer, used by it, and taken away, under loss.

One side binds windows of both types and registers fast regions; the other writes and reads by their keys. They are
taken away by either side, at times behind WRITEs that are still under way. What is granted is used with success, what
is not ends the queue pairs; and nothing is written that was not granted.
"""

import random
from collections import deque

from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.fast_region import FastMR
from verbena.sw.verbs.libibverbs_enums import (
    ibv_access_flags,
    ibv_event_type,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_send_flags,
    ibv_wc_opcode,
    ibv_wc_status,
    ibv_wr_opcode,
)
from verbena.sw.verbs.mr import MR, MW, MWBind, MWBindInfo
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from verbena.sw.verbs.wr import IBV_WR_REG_MR, SGE, RecvWR, SendWR

from ..pair import join
from .model import Difference, Operation, Peer

__all__ = ["Granting"]

WINDOW, WINDOW_2, FAST = KINDS = ("window", "window of type 2", "fast region")
SLOT = 16384
"""Bytes of which a part is granted by one key."""
DEPTH = 16
USES = 6
"""Most WRITEs and READs at once."""
LONGEST = 5000
MTUS = (256, 1024, 4096)
PROBES, ENDS = 0.01, 0.005
"""Probability, a step, that a queue pair tries what is not granted, and that it is ended."""

A, F, R, W = ibv_access_flags, ibv_send_flags, ibv_wr_opcode, ibv_wc_status
RIGHTS = A.IBV_ACCESS_REMOTE_WRITE | A.IBV_ACCESS_REMOTE_READ
FREE, VALID, CHANGING = range(3)


class _Grant:
    """A part of the slot at ``place`` of the memory, as long as ``state`` is VALID; ``region`` has the key."""

    def __init__(self, kind, pd, place):
        self.kind, self.place = kind, place
        self.region = FastMR(pd, SLOT // 4096) if kind == FAST else MW(pd, 1 + (kind == WINDOW_2))
        self.state = FREE
        self.key, self.at, self.length = 0, place, 0
        self.pending = None
        self.users = 0  # WRITEs and READs that are not complete

    def change(self, pending):
        self.state, self.pending = CHANGING, pending

    def changed(self):
        if self.pending is None:
            self.state = FREE
        else:
            self.state = VALID
            self.key, self.at, self.length = self.pending


class _Pair:
    """Queue pair ``near`` uses what ``far`` grants."""

    def __init__(self, granting):
        self.granting, rng = granting, granting.random
        here, there = granting.hosts
        self.mtu = rng.choice(MTUS)
        self.cqs = CQ(here.context, 4 * DEPTH), CQ(there.context, 8 * DEPTH)
        cap = QPCap(DEPTH, DEPTH, 1, 1, 0)
        self.near, self.far = (
            QP(host.pd, QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=1))
            for host, cq in zip(granting.hosts, self.cqs, strict=True)
        )
        access = A.IBV_ACCESS_LOCAL_WRITE | A.IBV_ACCESS_MW_BIND
        self.memory = MR(there.pd, len(KINDS) * SLOT + 64, access)
        self.pool = MR(here.pd, DEPTH * LONGEST, A.IBV_ACCESS_LOCAL_WRITE)
        self.grants = [_Grant(kind, there.pd, SLOT * number) for number, kind in enumerate(KINDS)]
        self.model = Peer(self.memory.length)
        self.used = deque()  # (number, grant, operation): requests of `near` that are not complete
        self.asked = deque()  # (number, grant): those of `far`
        self.numbers = self.requests = 0
        self.begin()

    def begin(self):
        """A life begins; both queue pairs come from RESET."""
        rng = self.granting.random
        here, there = self.granting.hosts
        self.killed = self.doomed = self.failed = False
        psns = [rng.getrandbits(24) for _ in (0, 1)]
        way = {"mtu": self.mtu, "timeout": self.granting.timeout, "min_rnr_timer": 1}
        join(self.near, self.far, there.gid, sq_psn=psns[0], rq_psn=psns[1], **way)
        join(self.far, self.near, here.gid, sq_psn=psns[1], rq_psn=psns[0], **way)
        for _ in range(DEPTH):
            self.far.post_recv(RecvWR(0, 0, []))

    def number(self):
        """Of the next request of ``near``."""
        self.numbers += 1
        return self.numbers

    def request(self):
        """Of the next request of ``far``."""
        self.requests += 1
        return self.requests

    # What `far` does.

    def grant(self, grant):
        """A part of the slot, by a new key."""
        rng, number, flags = self.granting.random, self.request(), F.IBV_SEND_SIGNALED
        if grant.kind == FAST:
            at, length = 0, SLOT
            grant.region.map(self.memory.buf + grant.place, SLOT)
            wr = SendWR(number, IBV_WR_REG_MR, send_flags=flags)
            wr.set_reg_wr(grant.region, RIGHTS | A.IBV_ACCESS_LOCAL_WRITE)
        else:
            at = rng.randrange(SLOT)
            length = rng.randrange(1, SLOT - at + 1)
            info = MWBindInfo(self.memory, self.memory.buf + grant.place + at, length, RIGHTS)
            wr = SendWR(number, R.IBV_WR_BIND_MW, send_flags=flags)
            if grant.kind == WINDOW_2:
                wr.set_bind_wr(grant.region, info)
        if grant.kind == WINDOW:
            self.far.bind_mw(grant.region, MWBind(info, flags, number))
        else:
            self.far.post_send(wr)
        grant.change((grant.region.rkey, grant.place + at, length))
        self.asked.append((number, grant))

    def take(self, grant):
        """It is taken away by its own side. Nobody uses it."""
        number, flags = self.request(), F.IBV_SEND_SIGNALED
        if grant.kind == WINDOW:
            self.far.bind_mw(grant.region, MWBind(MWBindInfo(self.memory, 0, 0, 0), flags, number))
        else:
            self.far.post_send(SendWR(number, R.IBV_WR_LOCAL_INV, imm_data=grant.key, send_flags=flags))
        grant.change(None)
        self.asked.append((number, grant))

    # What `near` does.

    def use(self, grant):
        """A WRITE or READ of what is granted."""
        rng, number = self.granting.random, self.number()
        length = rng.randrange(1, min(grant.length, rng.choice((64, LONGEST))) + 1)
        at = grant.at + rng.choice((0, grant.length - length, rng.randrange(grant.length - length + 1)))
        place = number % DEPTH * LONGEST
        if rng.random() < 0.3:
            operation = Operation(number, "READ", True, (at, length), result=self.model.read(at, length))
            opcode, flags = R.IBV_WR_RDMA_READ, F.IBV_SEND_FENCE
        else:
            data = rng.randbytes(length)
            fence = F.IBV_SEND_FENCE if self.model.fence(at, length) else 0
            operation = Operation(number, "WRITE", True, (at, length), before=self.model.write(at, data), data=data)
            opcode, flags = R.IBV_WR_RDMA_WRITE, fence
            self.pool.write(data, length, place)
        self._post(number, opcode, grant.key, self.memory.buf + at, length, place, flags)
        self.model.open.append(operation)
        self.used.append((number, grant, operation))
        grant.users += 1

    def send_inv(self, grant):
        """It is taken away by the peer, behind all that uses it: READs must be complete, for one whose response is lost
        is executed once more.
        """
        number, flags = self.number(), F.IBV_SEND_SIGNALED | F.IBV_SEND_FENCE
        wr = SendWR(number, R.IBV_WR_SEND_WITH_INV, imm_data=grant.key, send_flags=flags)
        self.near.post_send(wr)
        grant.change(None)
        self.used.append((number, None, None))

    def probe(self, key, address):
        """A WRITE by a key that is not, or not for this queue pair."""
        number = self.number()
        self._post(number, R.IBV_WR_RDMA_WRITE, key, address, 8, number % DEPTH * LONGEST, 0)
        self.used.append((number, None, None))
        self.doomed = number

    def _post(self, number, opcode, key, address, length, place, flags):
        entry = SGE(self.pool.buf + place, length, self.pool.lkey)
        wr = SendWR(number, opcode, 1, sg=[entry], send_flags=flags | F.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(key, address)
        self.near.post_send(wr)

    # What comes of it.

    def poll(self):
        moved = 0
        for cq, heard in zip(self.cqs, (self._heard_near, self._heard_far), strict=True):
            for wc in cq.poll(64)[1]:
                heard(wc)
                moved += 1
        return moved

    def _heard_near(self, wc):
        if not self.used or wc.wr_id != self.used[0][0]:
            raise Difference(f"keys: {wc} of who uses them, of {[number for number, *_ in self.used]}")
        number, grant, operation = self.used.popleft()
        if grant is not None:
            grant.users -= 1
        reads = operation is not None and operation.reads
        if wc.status == W.IBV_WC_SUCCESS and number != self.doomed:
            self.granting.counts["used"] += operation is not None
            if operation is not None:
                self.model.open.popleft()
                length = operation.remote[1]
                if reads and self.pool.read(length, number % DEPTH * LONGEST) != operation.result:
                    raise Difference(f"keys: a READ of {operation.remote} brought something else")
        elif wc.status == W.IBV_WC_REM_ACCESS_ERR and (number == self.doomed or (self.doomed and reads)):
            # The refusal may come for a READ in front of it whose responses were lost: nobody answers it any more.
            self.granting.counts["refused"] += 1
            self._fail()
        elif wc.status == W.IBV_WC_RETRY_EXC_ERR and not self.failed:
            # Perhaps while it was killed: its peer is in ERR a command earlier.
            self.granting.counts["out of retries"] += 1
            self._fail()
        elif wc.status != W.IBV_WC_WR_FLUSH_ERR or not self.killed:
            raise Difference(f"keys: {wc} of who uses them, and nothing was done to it")

    def _heard_far(self, wc):
        if wc.status == W.IBV_WC_WR_FLUSH_ERR and (self.killed or self.doomed):
            if self.asked and wc.wr_id == self.asked[0][0]:
                self.asked.popleft()
            return
        if wc.status != W.IBV_WC_SUCCESS:
            raise Difference(f"keys: {wc} of who grants them")
        if wc.opcode == ibv_wc_opcode.IBV_WC_RECV:
            grant = next((grant for grant in self.grants if grant.key == wc.imm_data), None)
            if grant is None or grant.state != CHANGING:
                raise Difference(f"keys: {wc} of who grants them, for {wc.imm_data:#x}")
            if not self.killed and not self.doomed:
                self.far.post_recv(RecvWR(0, 0, []))
            self._gone(grant)
            self.granting.counts["taken by the peer"] += 1
            return
        if not self.asked or wc.wr_id != self.asked[0][0]:
            raise Difference(f"keys: {wc} of who grants them, of {[number for number, _ in self.asked]}")
        grant = self.asked.popleft()[1]
        if grant.pending is None:
            self._gone(grant)
            self.granting.counts["taken"] += 1
            return
        grant.changed()
        self.granting.counts[grant.kind] += 1
        if self._valid_key(grant) != grant.key:
            raise Difference(f"keys: a {grant.kind} was granted by {grant.key:#x}, and that is not its key")

    def _gone(self, grant):
        grant.changed()
        if self._valid_key(grant) is not None:
            raise Difference(f"keys: a {grant.kind} was taken away, and is there")

    def _valid_key(self, grant):
        return self.far.context._adapter.valid_key(grant.region._region)

    def _fail(self):
        """The only error of ``near``: behind it all is flushed."""
        self.failed = True
        if not self.killed:
            self.kill()

    def kill(self):
        self.killed = True
        for qp in (self.far, self.near):
            qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_ERR), ibv_qp_attr_mask.IBV_QP_STATE)

    def reset(self):
        """Both begin anew, at any moment: what was under way has had its effect or not."""
        for qp in (self.far, self.near):
            qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
        for cq in self.cqs:
            while cq.poll(64)[0]:
                pass
        self.used.clear()
        self.asked.clear()
        self.model.settle(self.memory.read(self.memory.length, 0), "keys")
        for grant in self.grants:
            grant.users = 0
            key = self._valid_key(grant)
            if grant.state == CHANGING and grant.pending is not None and key == grant.pending[0]:
                grant.changed()
            elif key is None:
                grant.state = FREE
            elif key == grant.key:
                grant.state = VALID
                if grant.kind == WINDOW:
                    grant.region.rkey = key  # what was to change it was flushed
            else:
                raise Difference(f"keys: a {grant.kind} has key {key:#x}, which it was not given")
        self.begin()

    @property
    def over(self):
        return self.killed and not self.used and not self.asked

    @property
    def idle(self):
        changing = any(grant.state == CHANGING for grant in self.grants)
        return not (self.killed or self.doomed or self.used or self.asked or changing)


class Granting:
    """``count`` queue pairs of one adapter use memory of another, by keys that come and go.

    Parameters
    ----------
    seed, count : int
    hosts : pair of .host.Host
    timeout : int
        As in QPAttr.
    """

    def __init__(self, seed, hosts, timeout, count=2):
        self.random = random.Random(seed)
        self.hosts = hosts
        self.timeout = timeout
        names = (*KINDS, "used", "taken", "taken by the peer", "refused", "ends", "out of retries")
        self.counts = dict.fromkeys(names, 0)
        self._probes = self._events = 0
        self.pairs = [_Pair(self) for _ in range(count)]

    def step(self, posting=True):
        """Posts here and there, ends queue pairs, and checks what has come. Returns how much that was."""
        moved = 0
        for pair in self.pairs:
            if posting and not (pair.killed or pair.doomed):
                self._act(pair)
            moved += pair.poll()
            if pair.over:
                pair.reset()
        return moved

    def _act(self, pair):
        rng = self.random
        if rng.random() < ENDS:
            self.counts["ends"] += 1
            pair.kill() if rng.random() < 0.5 else pair.reset()
            return
        if rng.random() < PROBES and len(pair.used) < DEPTH:
            self._probe(pair)
            return
        grant = rng.choice(pair.grants)
        room = DEPTH - len(pair.used)
        if grant.state == FREE:
            if len(pair.asked) < DEPTH:
                pair.grant(grant)
        elif grant.state == VALID:
            for _ in range(min(room - 1, rng.randrange(USES))):
                pair.use(grant)
            if grant.kind != WINDOW and rng.random() < 0.2 and len(pair.used) < DEPTH:
                pair.send_inv(grant)
            elif not grant.users and len(pair.asked) < DEPTH:
                pair.take(grant) if grant.kind != WINDOW or rng.random() < 0.5 else pair.grant(grant)

    def _probe(self, pair):
        """By a key that was taken away; or by that of a window of type 2 that is another queue pair's."""
        rng = self.random
        dead = [(grant.key, pair.memory.buf + grant.at) for grant in pair.grants if grant.state == FREE and grant.key]
        others = [
            (grant.key, other.memory.buf + grant.at)
            for other in self.pairs
            for grant in other.grants
            if other is not pair and grant.kind == WINDOW_2 and grant.state == VALID and grant.length >= 8
        ]
        if dead + others:
            key, address = rng.choice(dead + others)
            self._probes += 1
            pair.probe(key, address)

    def event(self, event):
        """An asynchronous event; whether it was of one of the queue pairs here."""
        if not any(event.element is pair.far for pair in self.pairs):
            return False
        self._events += 1
        if event.event_type != ibv_event_type.IBV_EVENT_QP_ACCESS_ERR or self._events > self._probes:
            raise Difference(f"{event} of who grants keys, which nothing has caused")
        return True

    def end(self):
        """Whether all that was posted is complete, and no queue pair waits for its next life."""
        return all(pair.idle for pair in self.pairs)

    def check(self):
        """Memory is what was written by keys that were granted."""
        for pair in self.pairs:
            if pair.idle:
                pair.model.check(pair.memory.read(pair.memory.length, 0), "keys")
