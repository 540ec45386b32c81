"""One end of a tool's connections: what it holds of a device."""

import contextlib
import errno
import random
import time

from verbena.hdl.abi.cqe import Syndrome

from ..verbs.addr import AH, GID, AHAttr, GlobalRoute
from ..verbs.cq import CQ, CompChannel
from ..verbs.datagram import GRH_BYTES
from ..verbs.device import Context, get_device_list
from ..verbs.libibverbs_enums import ibv_access_flags, ibv_mtu, ibv_qp_type, ibv_wc_status
from ..verbs.limits import MAX_RD_ATOMIC
from ..verbs.mr import MR
from ..verbs.pd import PD
from ..verbs.pyverbs_error import PyverbsRDMAError
from ..verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from ..verbs.srq import SRQ, SrqAttr, SrqInitAttr
from ..verbs.wr import SGE
from .session import WORKED, Patience, ToolError

__all__ = ["Endpoint", "chain", "clock_hz", "clock_text", "is_cut", "mtu_of", "open_device"]

PORT = 1
SETTLE = 8
"""Quanta of time in which what a test leaves over, such as the last ACK, goes out."""


QKEY = 0x11111111
"""Of all tools."""

LAST_WORDS = 120
"""Seconds of the wall's clock in which requests to a peer that is gone have their completions."""


def open_device(name=None):
    """A :class:`.Context` of the device of that name, or of the first one."""
    if name is None:
        names = [device.name.decode() for device in get_device_list()]
        if not names:
            raise ToolError("there is no device")
        for name in names[:-1]:
            try:
                return Context(name=name)
            except PyverbsRDMAError as error:
                # Another program that started at the same moment has taken it.
                if error.error_code != errno.EBUSY:
                    raise
        name = names[-1]
    return Context(name=name)


def is_cut(context):
    """Whether nobody will ever come over the device's network, as that has ended."""
    return getattr(context._adapter.port, "cut", False)


def clock_text(context):
    """What the device's times are, in words, if they are not true ones: in simulation; None otherwise."""
    return getattr(context._adapter.port, "clock_text", None)


def clock_hz(context):
    """The device's cycles in a second. :class:`.ToolError` if it does not tell."""
    hz = getattr(context._adapter.port, "clock_hz", None)
    if hz is None:
        raise ToolError(f"{context.name} does not tell how long its cycles are")
    return hz


def mtu_of(size):
    """``enum ibv_mtu`` of an MTU in bytes. :class:`.ToolError` if there is no such MTU."""
    try:
        return ibv_mtu[f"IBV_MTU_{size}"]
    except KeyError:
        raise ToolError(f"the MTU must be 256, 512, 1024, 2048 or 4096, not {size}") from None


def _name(kind, value):
    return kind(value).name if value in set(kind) else str(value)


def chain(requests):
    """Work requests as one list, for a single post: the first of them, or None."""
    first = last = None
    for wr in requests:
        if last is None:
            first = wr
        else:
            last.next_wr = wr
        last = wr
    return first


class Endpoint:
    """A PD, a region of ``size`` bytes, a CQ, and ``qps`` queue pairs in INIT; closed as a context manager.

    Attributes
    ----------
    qps : list of QP
        In INIT, or none before :meth:`adopt`.
    init : QPInitAttr
        What they are made of.
    receives : list
        Where receives are posted: the shared queue alone, or the queue pairs.
    pd, mr, srq
        Its PD, its region, and its shared receive queue or None.

    Parameters
    ----------
    context : Context
    size, qps : int
    qp_type : ibv_qp_type
        RC, UC, or UD: then the region has ``header`` bytes more, which stand in front of each message.
    send_depth, recv_depth : int
        Requests that can be posted on each queue pair.
    shared : bool
        The queue pairs have their receives in one queue, ``srq``, of ``recv_depth`` requests.
    inline : int
        Largest message that goes inside of its request.
    access : int
        What the peer may do, besides LOCAL_WRITE.
    gid_index : int
    channel : Channel, optional
        Where the peer must not hang up while something of it is awaited. If it does, requests under way end with
        their completion's status.
    patience : float, optional
        Seconds without a completion after which the wait ends.
    silence : float, optional
        The same, if the device has nothing left to do either: for who has no ``channel`` to a peer that may be gone.
    rng : random.Random, optional
        Where the first PSNs come from; kept for who needs more.
    events : bool
        The CQ is looked at only when an event has told of a completion.
    managed : bool
        The connection manager makes the queue pairs, of ``init``; they come by :meth:`adopt`.
    """

    def __init__(
        self,
        context,
        size,
        *,
        qps=1,
        qp_type=ibv_qp_type.IBV_QPT_RC,
        send_depth=1,
        recv_depth=1,
        shared=False,
        inline=0,
        access=0,
        gid_index=0,
        channel=None,
        patience=None,
        silence=None,
        rng=None,
        events=False,
        managed=False,
    ):
        self.context = context
        self.gid_index = gid_index
        self.gid = int(context.query_gid(PORT, gid_index)).to_bytes(16, "big")
        if not any(self.gid):
            raise ToolError(f"Failed to query gid {gid_index}: this row of the table is empty")
        self.inline = inline
        self._datagrams = qp_type == ibv_qp_type.IBV_QPT_UD
        self.header = GRH_BYTES if self._datagrams else 0
        self._peers = {}  # of UD: index of a queue pair: AH, number and Q_Key of its peer
        self.channel = channel
        self._patience = Patience(patience)
        self._silence = Patience(silence)
        access |= ibv_access_flags.IBV_ACCESS_LOCAL_WRITE
        with contextlib.ExitStack() as stack:
            self._events = stack.enter_context(CompChannel(context)) if events else None
            if events:
                self._events.blocking = False
            completions = qps * send_depth + (1 if shared else qps) * recv_depth
            self._cq = stack.enter_context(CQ(context, completions, channel=self._events))
            pd = stack.enter_context(PD(context))
            self.mr = MR(pd, size + self.header, access)
            self.pd = pd
            cap = QPCap(send_depth, recv_depth, 1, 1, inline)
            self.srq = SRQ(pd, SrqInitAttr(SrqAttr(recv_depth, 1))) if shared else None
            self.init = QPInitAttr(qp_type, scq=self._cq, rcq=self._cq, srq=self.srq, cap=cap, sq_sig_all=0)
            self.qps, self.index = [], {}
            if not managed:
                self._make(qps, access)
            self._resources = stack.pop_all()
        self._armed = False
        self._idle = False  # the peer is gone, and the device had nothing left to do
        self._end = None  # of the wait for requests to a peer that is gone
        self.rng = rng or random.Random()
        self.psns = [self.rng.randrange(1 << 24) for _ in range(qps)]

    def _make(self, qps, access):
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = access
        attr.qkey = QKEY
        for _ in range(qps):
            self.adopt(QP(self.pd, self.init)).to_init(attr)

    def adopt(self, qp):
        """The next queue pair, which has been made of ``init``; returns it."""
        self.index[qp.qp_num] = len(self.qps)
        self.qps.append(qp)
        return qp

    @property
    def receives(self):
        return self.qps if self.srq is None else [self.srq]

    def connect(
        self, index, *, gid, qpn, psn, mtu, timeout=14, initiator=1, responder=1, service_level=0, traffic_class=0
    ):
        """Brings queue pair ``index`` to RTS: its peer is ``qpn`` at the address ``gid`` (16 bytes), which starts at
        ``psn``. ``initiator`` and ``responder`` are the READs and atomics under way in either direction.
        """
        attr = QPAttr(path_mtu=mtu)
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = qpn, psn, self.psns[index]
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = timeout, 7, 7, 12
        attr.max_rd_atomic = min(initiator, MAX_RD_ATOMIC)
        attr.max_dest_rd_atomic = min(responder, MAX_RD_ATOMIC)
        text = gid.hex(":", 2)
        kinds = ["IPv6" if GID(each.hex(":", 2)).ipv4 is None else "IPv4" for each in (gid, self.gid)]
        if kinds[0] != kinds[1]:
            raise ToolError(f"the peer's address {text} is not an {kinds[1]} one, as this side's is")
        route = GlobalRoute(text, sgid_index=self.gid_index, hop_limit=64, traffic_class=traffic_class)
        attr.ah_attr = AHAttr(sl=service_level, is_global=1, port_num=PORT, gr=route)
        self.qps[index].to_rts(attr)
        if self._datagrams:
            self.reach(index, AH(self.pd, attr=attr.ah_attr), qpn)

    def reach(self, index, handle, qpn, qkey=QKEY):
        """Datagrams of queue pair ``index`` go to queue pair ``qpn`` on the way of ``handle``."""
        self._peers[index] = handle, qpn, qkey

    def addressed(self, wr, index=0):
        """The request ``wr`` of queue pair ``index``, with its receiver if it is a datagram."""
        if self._datagrams:
            wr.set_wr_ud(*self._peers[index])
        return wr

    def sge(self, offset, length):
        """A part of the region."""
        return SGE(self.mr.buf + offset, length, self.mr.lkey)

    def poll(self, count=64):
        """Up to ``count`` completions, or an empty list once the device has worked a little in vain.

        :class:`.ToolError` if one has failed, if patience is at its end, or if the peer is gone.
        """
        found = self._poll(count)
        for wc in found:
            if wc.status:
                status, syndrome = _name(ibv_wc_status, wc.status), _name(Syndrome, wc.vendor_err)
                raise ToolError(
                    f"QP {wc.qp_num:#x}, request {wc.wr_id}: {status} ({wc.status}), vendor error {syndrome}"
                )
        if found:
            self._patience.renew()
            self._silence.renew()
            self._idle = False
        else:
            self.check()
        return found

    def _poll(self, count):
        """Completions, without a look at them."""
        if self._events is None:
            return self._cq.poll(count)[1]
        if not self._armed:
            self._cq.req_notify()
            self._armed = True
            # What was complete before is told by no event.
            if found := self._cq.poll(count)[1]:
                return found
        try:
            self._events.get_cq_event(self._cq)
        except PyverbsRDMAError as error:
            if error.error_code != errno.EAGAIN:
                raise
            return []
        self._cq.ack_events(1)
        self._armed = False
        return self._cq.poll(count)[1]

    def check(self):
        """Raises what a wait in vain must raise: patience is at its end, or the peer is gone, and the device has
        nothing left to do that might tell more.
        """
        self._patience.check("a completion")
        if self.channel is None:
            if self._silence.over and self.context.advance():
                self._silence.renew()
            self._silence.check("a completion; the peer may be gone")
            return
        try:
            self.channel.check()
        except ToolError:
            self._end = time.monotonic() + LAST_WORDS if self._end is None else self._end
            if not self.context.advance() or time.monotonic() > self._end:
                # What has come in that time is looked at before.
                if self._idle:
                    raise
                self._idle = True

    def settle(self):
        """A session in which the device sends what it still has to, such as the ACK of the last message."""
        for _ in range(SETTLE):
            if not self.context.advance():
                break
            yield WORKED

    def close(self):
        self._resources.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
