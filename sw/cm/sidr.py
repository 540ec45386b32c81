"""Finding the QP of a service that works by datagrams (IBA 12.11): one question, one answer."""

import errno

from .connection import WrongState
from .events import Happened, Happening
from .exchange import Exchange
from .messages import SidrRep
from .reasons import SidrStatus
from .timers import REQ_RETRIES, SIDR_WAIT

__all__ = ["Inquiry", "Question"]


class Inquiry(Exchange):
    """The side that asks."""

    open = False
    """Whether the answer is still awaited."""

    def ask(self, req, tid):
        """Sends a SIDR_REQ, and again until it is answered."""
        self.open = True
        self._ask(req, tid, SIDR_WAIT, REQ_RETRIES)

    def hear(self, rep):
        """The answer has come."""
        self._heard()
        self.open = False
        if rep.status == SidrStatus.SUCCESS:
            self._happens(Happening(Happened.ESTABLISHED, 0, rep))
        else:
            self._happens(Happening(Happened.UNREACHABLE, rep.status, rep))

    def close(self):
        """Nobody waits for the answer any more."""
        self.tell = None
        self._heard()
        self.open = False

    def _give_up(self):
        self.open = False
        self._happens(Happening(Happened.UNREACHABLE, -errno.ETIMEDOUT))


class Question(Exchange):
    """The side that is asked. The answer is sent once, and not kept: a question that comes again is a new one."""

    def __init__(self, wire, vector, tell, req, tid):
        super().__init__(wire, vector, tell)
        self.req, self.tid = req, tid
        self.open = True
        """Whether nothing has been answered yet."""

    def begin(self):
        """Tells of the question."""
        self._happens(Happening(Happened.REQUEST, 0, self.req))

    def must_be_undecided(self):
        """:class:`.connection.WrongState` if it has been answered."""
        if not self.open:
            raise WrongState("the question is answered already")

    def answer(self, status=SidrStatus.SUCCESS, qpn=0, qkey=0, private_data=b""):
        """Sends a SIDR_REP. :class:`.connection.WrongState` if it has been done."""
        self.must_be_undecided()
        reply = SidrRep(
            request_id=self.req.request_id,
            service_id=self.req.service_id,
            status=status,
            qpn=qpn,
            qkey=qkey,
            private_data=private_data,
        )
        self.open = False
        self._say(reply, self.tid)

    def close(self):
        """Nobody will answer any more: that is told, if it has not been answered."""
        self.tell = None
        if self.open:
            self.answer(SidrStatus.REJECTED)
