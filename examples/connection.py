"""How two queue pairs find each other: what every example needs, and only this file explains.

An RC queue pair (QP) talks to exactly one other. Before it can, each side must know three numbers of the other: its
address (GID), its QP number, and the packet sequence number (PSN) with which it begins. RDMA does not say how they
travel; nearly every program sends them over an ordinary TCP socket, and so does `exchange` below. Programs with both
ends in one process just look.

A QP goes through four states, and each step asks for some of these numbers:

    RESET  nothing can be posted
    INIT   receives can be posted
    RTR    "ready to receive": it knows its peer, and answers it
    RTS    "ready to send": it knows, too, how patiently it waits for answers
"""

import json
import os
import random
import select
from typing import NamedTuple

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context, get_device_list
from pyverbs.libibverbs_enums import ibv_access_flags, ibv_mtu, ibv_qp_type, ibv_wc_status
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

PORT = 1  # an adapter's ports are counted from 1
LOCAL = ibv_access_flags.IBV_ACCESS_LOCAL_WRITE
READ = ibv_access_flags.IBV_ACCESS_REMOTE_READ
WRITE = ibv_access_flags.IBV_ACCESS_REMOTE_WRITE
ATOMIC = ibv_access_flags.IBV_ACCESS_REMOTE_ATOMIC


class Address(NamedTuple):
    """What the peer of a queue pair must know."""

    gid: str
    qpn: int
    psn: int


def open_device(index=0):
    """Opens one of the devices that there are."""
    return Context(name=get_device_list()[index].name.decode())


def open_both():
    """Opens both ends of a wire, for programs that are both sides: in simulation, `sim0` and `sim1`.

    A program that is one side takes an adapter of `verbena sim`, if that runs; this one wants a world of its own.
    """
    os.environ["VERBENA_SIM"] = ""
    return open_device(0), open_device(1)


class End:
    """One side: a protection domain, a completion queue, and queue pairs that put their completions there.

    The protection domain (PD) holds together what belongs together: a QP can reach the memory of its own PD only.
    """

    def __init__(self, context, *, qps=1, depth=16, events=False):
        self.context = context
        self.pd = PD(context)
        # Whoever wants to sleep until something completes needs a channel; whoever polls does not.
        self.channel = CompChannel(context) if events else None
        self.cq = CQ(context, 2 * depth * qps, None, self.channel)
        cap = QPCap(max_send_wr=depth, max_recv_wr=depth)
        # sq_sig_all=0: only requests with IBV_SEND_SIGNALED make a completion.
        init = QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=0)
        self.qps = [QP(self.pd, init) for _ in range(qps)]
        self.psns = [random.randrange(1 << 24) for _ in self.qps]
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = READ | WRITE | ATOMIC  # what the peer may ask for; each region says so, too
        for qp in self.qps:
            qp.to_init(attr)

    @property
    def qp(self):
        return self.qps[0]

    def address(self, index=0):
        """What the peer of queue pair `index` must know."""
        return Address(self.context.query_gid(PORT, 0).gid, self.qps[index].qp_num, self.psns[index])

    def connect(self, peer, index=0, mtu=ibv_mtu.IBV_MTU_1024):
        """Brings queue pair `index` to RTS, with the queue pair at `peer` at the other end."""
        attr = QPAttr(port_num=PORT, path_mtu=mtu)
        attr.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=GlobalRoute(dgid=GID(peer.gid), hop_limit=64))
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = peer.qpn, peer.psn, self.psns[index]
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1  # READs and atomics under way, as requester and responder
        attr.timeout, attr.retry_cnt = 12, 7  # without an answer: 4.096 us * 2^12, and seven times again
        attr.min_rnr_timer, attr.rnr_retry = 12, 7  # without a posted receive: 0.64 ms, and 7 means for ever
        self.qps[index].to_rts(attr)

    def poll(self, count=1):
        """Waits for `count` completions, and returns them. They may also tell of failure: `check` raises then."""
        found = []
        while len(found) < count:
            found += self.cq.poll(count - len(found))[1]
        return found

    def wait(self):
        """The same for the next completion, with sleep instead of polling.

        The order matters: whoever asks for an event after a last look at the queue has missed nothing.
        """
        while True:
            if found := self.cq.poll()[1]:
                return found[0]
            self.cq.req_notify()
            if found := self.cq.poll()[1]:
                return found[0]
            self.channel.get_cq_event(self.cq)
            self.cq.ack_events(1)

    def close(self):
        self.context.close()


def connect_all(near, far):
    """Connects the queue pairs of two ends in one process."""
    for index in range(len(near.qps)):
        near.connect(far.address(index), index)
        far.connect(near.address(index), index)


def check(wc):
    """Returns the completion, or raises if it tells of a failure."""
    if wc.status != ibv_wc_status.IBV_WC_SUCCESS:
        raise RuntimeError(f"request {wc.wr_id} failed: {ibv_wc_status(wc.status).name}")
    return wc


def exchange(sock, context, mine):
    """Sends `mine` (anything that JSON can say) over a TCP socket, and returns what the peer sent.

    While it waits it lets the device work, which otherwise, in simulation, would stand still: `Context.advance` is
    Verbena's own, and on other devices not needed.
    """
    sock.sendall(json.dumps(mine).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([sock], [], [], 0.001)[0]:
            context.advance()
        elif data := sock.recv(1):
            line += data
        else:
            raise ConnectionError("the peer has hung up")
    return json.loads(line)
