"""What the tests of shared receive queues share: ends with one, receives of several entries, and events."""

import errno
from contextlib import contextmanager

import pytest
from ends import End, recv, sge
from raw_peer import RawPeer
from verbena.sim.pair import join
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.srq import SrqAttr

__all__ = ["SIZE", "SLOT", "Lone", "ends_with", "events", "post", "received", "spread"]

SIZE = 1 << 18
SLOT = 4096
"""Bytes of the region that receive ``wr_id`` has, from the beginning of the region on."""


@contextmanager
def ends_with(qp_type, *, qps=4, max_wr=64, max_sge=3, **options):
    """An end on sim0 with queue pairs of the usual kind, and one on sim1 whose queue pairs share a receive queue."""
    options = {"qp_type": qp_type, "qps": qps, "sge": 4, "depth": 64} | options
    with End("sim0", SIZE, **options) as a, End("sim1", SIZE, srq=SrqAttr(max_wr, max_sge), **options) as b:
        yield a, b


class Lone:
    """An end on sim1 with a shared receive queue. Its first queue pair has a peer that the test plays; the others are
    connected with those of an end on sim0.
    """

    def __init__(self, qp_type=ibv_qp_type.IBV_QPT_RC, *, max_wr=8, max_sge=3, qps=3, psn=0, **attributes):
        self.end = End("sim1", SIZE, qps=qps, depth=64, srq=SrqAttr(max_wr, max_sge), qp_type=qp_type)
        self.other = End("sim0", SIZE, qps=qps - 1, depth=64, qp_type=qp_type)
        self.peer = RawPeer(self.end, psn)
        for near, far in zip(self.other.qps, self.end.qps[1:], strict=True):
            join(near, far, self.end.gid, mtu=256, **attributes)
            join(far, near, self.other.gid, mtu=256, **attributes)

    def send(self, opcode, psn, body=b"", *, ack=0):
        """A packet of the peer's, which asks for no acknowledgement."""
        self.peer.send(opcode, psn, body, ack=ack)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.other.close()
        self.end.close()


def spread(end, wr_id, lengths):
    """Entries of receive ``wr_id``, of these lengths, in its slot, with a byte between them."""
    at = SLOT * wr_id
    for length in lengths:
        yield sge(end, at, length)
        at += length + 1


def post(end, wr_id, lengths=(SLOT,)):
    """Posts receive ``wr_id`` to the shared receive queue."""
    recv(end, list(spread(end, wr_id, lengths)), wr_id=wr_id, qp=end.srq)


def received(end, wc, lengths=(SLOT,)):
    """What has come into receive ``wc.wr_id``, which has entries of these lengths."""
    content, at, left = b"", SLOT * wc.wr_id, wc.byte_len
    for length in lengths:
        taken = min(length, left)
        content += end.mr.read(taken, at) if taken else b""
        left -= taken
        at += length + 1
    assert left == 0
    return content


def events(end):
    """``(type, element)`` of all asynchronous events until none can come; acknowledged."""
    found = []
    while True:
        try:
            event = end.context.get_async_event()
        except PyverbsRDMAError as error:
            if error.error_code != errno.EDEADLK:
                pytest.fail(str(error))
            return found
        found.append((event.event_type, event.element))
        event.ack()
