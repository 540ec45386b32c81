"""What the ends of a tool tell each other over a connection of the connection manager: each message is one SEND."""

import contextlib

from ...verbs import cm_enums as ce
from ...verbs.cmid import CMEvent
from ...verbs.cq import CQ
from ...verbs.libibverbs_enums import IBV_WC_RECV, ibv_qp_type, ibv_wc_status
from ...verbs.pyverbs_error import PyverbsRDMAError
from ...verbs.qp import QPCap, QPInitAttr
from ..session import WORKED, Patience, ToolError

__all__ = ["CmChannel"]

SIZE = 4096
"""Bytes of the longest message."""


class CmChannel:
    """Messages to and from a peer, as :class:`.channel.Channel` has them, each of them received as it was sent.

    A receive is posted from the beginning, one at a time: the peer must not send two messages without an answer.

    Parameters
    ----------
    manner : Manner
        Of the connection, and of others whose end counts as this one's; closed with the channel.
    cmid : CMID
        Has a device, and no connection yet; closed with the channel.
    patience : float, optional
        Seconds of silence after which the peer counts as lost.
    """

    def __init__(self, manner, cmid, patience=None):
        self.manner, self.cmid = manner, cmid
        self._patience = Patience(patience)
        self._message = None  # that has come, and that nobody has received yet
        self._ended = set()  # CMIDs whose connection has ended
        self._cq = CQ(cmid.context, 4)
        init = QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=self._cq, rcq=self._cq, cap=QPCap(1, 1), sq_sig_all=1)
        cmid.create_qp(init)
        self._sent, self._room = cmid.reg_msgs(SIZE), cmid.reg_msgs(SIZE)
        self._under_way = False
        cmid.post_recv(self._room)

    def send(self, data):
        """A session that sends ``data``, and ends when the peer has them."""
        self._sent.write(data, len(data))
        self._under_way = True
        self.cmid.post_send(self._sent, length=len(data))
        while self._under_way:
            yield from self._wait()

    def receive(self, count, what):
        """A session that returns the next message, which must have ``count`` bytes, and is ``what`` in words."""
        self._patience.renew()
        while self._message is None:
            yield from self._wait(what)
        data, self._message = self._message, None
        if len(data) != count:
            raise ToolError(f"the peer has sent {len(data)} bytes, not {what} of {count}")
        return data

    def check(self):
        """Raises :class:`.ToolError` if the peer has ended the connection though more is to come."""
        self._hear()
        if self._ended and not self.speaks():
            raise ToolError("the peer closed the connection in the midst of the test")

    def speaks(self):
        """Whether a message of the peer's is here that nobody has received yet. No time passes."""
        self._look(self._cq._take(1))
        return self._message is not None

    def finish(self, seconds=2.0):
        """A session that ends the connection, and ends when the peer knows, or after ``seconds``; None: as long as that
        takes.
        """
        yield from self.end([self.cmid], seconds)

    def end(self, cmids, seconds):
        """As :meth:`finish`, of these connections."""
        for cmid in cmids:
            with contextlib.suppress(PyverbsRDMAError):  # the peer may have ended it
                cmid.disconnect()
        patience = Patience(seconds)
        while not self._ended.issuperset(cmids) and not patience.over:
            self.cmid.context.advance()
            self._hear()
            yield WORKED

    def close(self):
        self.cmid.close()
        self._cq.close()
        self.manner.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def _wait(self, what="an acknowledgement"):
        """A session of one turn."""
        if found := self._cq._take(1):
            self._look(found)
            return
        self._hear()
        if self._ended:
            raise ToolError(f"the peer closed the connection instead of {what}")
        self._patience.check(what)
        if not (yield):
            self.cmid.context.advance()

    def _look(self, found):
        for wc in found:
            if wc.status:
                raise ToolError(f"the peer is gone: {ibv_wc_status(wc.status).name}")
            self._patience.renew()
            if wc.opcode == IBV_WC_RECV:
                self._message = self._room.read(wc.byte_len, 0)
                self.cmid.post_recv(self._room)
            else:
                self._under_way = False

    def _hear(self):
        """Takes the events that wait. A connection that the peer ends ends here, too: requests under way fail."""
        while self.manner.channel.pending:
            event = CMEvent(self.manner.channel)
            if event.event_type == ce.RDMA_CM_EVENT_DISCONNECTED:
                self._ended.add(event.id)
                with contextlib.suppress(PyverbsRDMAError):  # it may have ended
                    event.id.disconnect()
            event.ack_cm_event()
