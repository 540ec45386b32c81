"""A connection: two queue pairs, a flow in each direction, and its lives."""

from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.libibverbs_enums import ibv_event_type, ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type, ibv_wc_status
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr

from ..pair import join
from .flow import ENTRIES, INLINE, MESSAGES, Flow
from .model import Difference

__all__ = ["Connection"]

MTUS = (256, 512, 1024, 2048, 4096)
DEPTHS = (4, 8, 32, 32)
"""Work requests that may be open in a queue: rings of these sizes."""

LONG = 32

E = ibv_event_type
S = ibv_wc_status
Q = ibv_qp_state


class Connection:
    """Queue pairs of two adapters, or of one to itself; each life ends when something fails, or is made to.

    Parameters
    ----------
    soak : .run.Soak
    hosts : pair of .host.Host
    """

    def __init__(self, soak, hosts):
        self.soak, self.hosts = soak, hosts
        random = soak.random
        self.mtu = random.choice(MTUS)
        self.depth = random.choice(DEPTHS)
        self.own = random.random() < 0.3  # the first queue pair has a send CQ of its own, which may overflow
        self.flows = [Flow(self, hosts[i], hosts[1 - i]) for i in (0, 1)]
        self.qps = []
        self.own_cq = None
        self.ends = {}  # status: lives that ended with it
        self._make()
        self._begin()

    # Lives

    def _make(self):
        """New queue pairs, in RESET."""
        if self.own:
            self.own_cq = CQ(self.hosts[0].context, 4 * self.depth)
        for i, host in enumerate(self.hosts):
            send_cq = self.own_cq if self.own and i == 0 else host.send_cq
            cap = QPCap(self.depth, self.depth, ENTRIES, ENTRIES, INLINE)
            init = QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=send_cq, rcq=host.recv_cq, cap=cap, sq_sig_all=0)
            self.qps.append(QP(host.pd, init))
        for i, flow in enumerate(self.flows):
            self.soak.senders[self.hosts[i], self.qps[i].qp_num] = flow
            self.soak.receivers[self.hosts[1 - i], self.qps[1 - i].qp_num] = flow

    @property
    def _keys(self):
        return [(host.index, qp.qp_num) for host, qp in zip(self.hosts, self.qps)]

    def _begin(self):
        """Connects queue pairs that are in RESET."""
        random = self.soak.random
        self.failing = False  # something was done on which it must break
        self.events = set()  # that it may cause
        self.extra = frozenset()  # statuses with which any operation may fail
        self.receive_statuses = frozenset()
        self.draining = None  # the queue pair that is in SQD
        self.muted = self.overrun = False  # its own CQ is not polled; it has overflowed
        self.rnr_retry = random.choice((7, 7, 7, random.randrange(1, 7)))
        self.psns = [self.soak.lives.choose(*self._keys) for _ in (0, 1)]
        for flow in self.flows:
            flow.register()
        for i, qp in enumerate(self.qps):
            join(
                qp,
                self.qps[1 - i],
                self.hosts[1 - i].gid,
                mtu=self.mtu,
                sq_psn=self.psns[i],
                rq_psn=self.psns[1 - i],
                timeout=self.soak.timeout,
                rnr_retry=self.rnr_retry,
                min_rnr_timer=random.choice((1, 5, 12)),
            )
        for i, flow in enumerate(self.flows):
            flow.begin(self.qps[i], self.qps[1 - i])
            flow.post_receives(self.depth)

    def end(self, why, *, anew=False):
        """The life is over: what is open is forgotten, and the next one begins, ``anew`` with other queue pairs."""
        for psn, flow in zip(self.psns, self.flows):
            self.soak.lives.ended(psn, flow.psns, *self._keys)
        self.soak.take_events()  # that were for this life
        if anew:
            for host, qp in zip(self.hosts, self.qps):
                del self.soak.senders[host, qp.qp_num], self.soak.receivers[host, qp.qp_num]
                qp.close()
            self.qps = []
            if self.own_cq is not None:
                self.own_cq.close()
                self.own_cq = None
        else:
            for qp in self.qps:
                qp.modify(QPAttr(qp_state=Q.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
        self.soak.take_events()
        for flow in self.flows:
            flow.settle()
            flow.model.open.clear()
        self.broke(why)
        if anew:
            self._make()
        self._begin()

    def tend(self):
        """Mends a connection that broke: everything flushes, then it begins anew. Returns whether it is up."""
        if self.overrun:
            self.end("CQ overrun", anew=True)
            return True
        if not any(flow.dead or flow.killed for flow in self.flows):
            for flow in self.flows:
                if flow.flushing and not self.failing:
                    raise Difference(f"{flow.name}: the peer's receive queue is flushed, and nothing has failed")
            return True
        if not all(flow.killed for flow in self.flows):
            self.kill()
        for flow in self.flows:
            flow.flush()
        if self.muted or not all(flow.flushed_all for flow in self.flows):
            return False
        self.end("begun anew", anew=self.soak.random.random() < 0.2)
        return True

    def kill(self):
        """Both queue pairs go to ERR: everything flushes."""
        for flow, qp in zip(self.flows, self.qps):
            flow.killed = True
            qp.modify(QPAttr(qp_state=Q.IBV_QPS_ERR), ibv_qp_attr_mask.IBV_QP_STATE)
        self.draining = None

    # What may come

    def fails(self, events=(), statuses=(), receive_statuses=()):
        """Something was done on which the connection breaks sooner or later; then queues are flushed."""
        self.failing = True
        self.events |= set(events)
        self.extra |= frozenset(statuses)
        self.receive_statuses |= frozenset(receive_statuses)

    def broke(self, why):
        self.ends[why] = self.ends.get(why, 0) + 1

    def statuses(self, op, behind):
        """With what an operation may fail, if those ``behind`` it are open, too.

        A NAK fails the oldest request that is not complete. That is the one refused, or a READ or atomic before it
        whose answer was lost.
        """
        blamed = [op, *behind] if op.reads else [op]
        allowed = {S.IBV_WC_RETRY_EXC_ERR}.union(self.extra, *(each.fates for each in blamed))
        if self.rnr_retry < 7 and any(each.name in MESSAGES for each in blamed):
            allowed.add(S.IBV_WC_RNR_RETRY_EXC_ERR)
        if self.failing or any(flow.killed for flow in self.flows):
            allowed.add(S.IBV_WC_WR_FLUSH_ERR)
        return allowed

    def event(self, event):
        """An asynchronous event of one of its queue pairs, or of its own CQ."""
        if event.event_type == E.IBV_EVENT_CQ_ERR:
            self.overrun = True
        if event.event_type not in self.events and event.event_type != E.IBV_EVENT_SQ_DRAINED:
            raise Difference(f"{event} of a connection with {self.mtu} bytes MTU, which nothing has caused")

    # What may be done to it

    def drain(self, index):
        """A queue pair goes to SQD; :meth:`resume` brings it back. What is posted meanwhile waits."""
        if self._modify(index, Q.IBV_QPS_SQD):
            self.draining = index

    def resume(self):
        index, self.draining = self.draining, None
        self._modify(index, Q.IBV_QPS_RTS)

    def mute(self):
        """Its own CQ shrinks to one entry, and is not polled any more, so it will overflow. False if it has none, if
        completions wait in it, or if its send queue is too short to be sure to complete two requests.
        """
        if self.own_cq is None or self.depth < LONG:
            return False
        try:
            self.own_cq.resize(1)
        except PyverbsRDMAError:
            return False
        self.muted = True
        self.fails((E.IBV_EVENT_CQ_ERR, E.IBV_EVENT_QP_FATAL))
        return True

    def _modify(self, index, state):
        """Whether the queue pair takes it; it may have gone to ERR."""
        try:
            self.qps[index].modify(QPAttr(qp_state=state), ibv_qp_attr_mask.IBV_QP_STATE)
        except PyverbsRDMAError:
            if self.qps[index].qp_state != Q.IBV_QPS_ERR:
                raise
            return False
        return True
