"""The states of one side of a connection (IBA 12.9), as Linux has them: what is answered by what, and how long."""

import enum
import errno

from ..errors import AdapterError
from .events import Happened, Happening
from .exchange import Exchange
from .messages import LAP_UNSUPPORTED, Apr, Drep, Dreq, Mra, Rej, Rtu
from .reasons import RejReason, What
from .timers import MRA_TIMEOUT, REQ_RETRIES, REQ_WAIT, code_ms

__all__ = ["Connection", "State", "WrongState"]


class State(enum.Enum):
    """Of one side."""

    IDLE = 0
    REQ_SENT = 1
    REQ_RCVD = 2
    REP_SENT = 3
    REP_RCVD = 4
    ESTABLISHED = 5
    DREQ_SENT = 6
    DREQ_RCVD = 7
    TIMEWAIT = 8


S = State
GUID_BYTES = 8


class WrongState(AdapterError):
    """EINVAL: the connection is in a state in which this cannot be done."""

    def __init__(self, text):
        super().__init__(errno.EINVAL, text)


class Connection(Exchange):
    """One side of a connection. It is active if it sends the REQ, and passive if it has received it.

    Parameters
    ----------
    wire, vector, tell
        As of :class:`.exchange.Exchange`; ``wire.guid`` is the own CA GUID.
    local_id : int
        Own communication ID.
    tid : int
        Of the REQ.
    """

    def __init__(self, wire, vector, tell, local_id, tid):
        super().__init__(wire, vector, tell)
        self.state = S.IDLE
        self.local_id, self.tid = local_id, tid
        self.remote_id = self.remote_guid = self.local_qpn = self.remote_qpn = 0
        self.active = False
        self.req = self.rep = self._rtu = None
        self._patience = REQ_WAIT, REQ_RETRIES
        self._drep_tid = 0

    @property
    def _ids(self):
        return {"local_id": self.local_id, "remote_id": self.remote_id}

    def _must_be(self, *states):
        if self.state not in states:
            raise WrongState(f"the connection is in state {self.state.name}")

    # What the program does

    def connect(self, req):
        """The active side asks for the connection."""
        self._must_be(S.IDLE)
        self.active, self.req, self.state = True, req, S.REQ_SENT
        self.local_qpn = req.qpn
        self._ask(req, self.tid, *self._patience)

    def asked(self, req):
        """The passive side has received this REQ."""
        self.req, self.state = req, S.REQ_RCVD
        self.remote_id, self.remote_guid, self.remote_qpn = req.local_id, req.ca_guid, req.qpn
        self._patience = code_ms(req.local_response_timeout), req.max_cm_retries
        self._happens(Happening(Happened.REQUEST, 0, req))

    def must_be_undecided(self):
        """:class:`WrongState` if the program has no request to decide about, or not any more."""
        self._must_be(S.REQ_RCVD)

    def accept(self, rep):
        """The passive side says yes; ``rep`` has all but the communication IDs."""
        self.must_be_undecided()
        rep.local_id, rep.remote_id = self.local_id, self.remote_id
        self.rep, self.local_qpn, self.state = rep, rep.qpn, S.REP_SENT
        self._ask(rep, self.tid, *self._patience)

    def establish(self, private_data=b""):
        """The active side is ready for data."""
        self._must_be(S.REP_RCVD)
        self.state = S.ESTABLISHED
        self._rtu = Rtu(private_data=private_data, **self._ids)
        self._say(self._rtu, self.tid)

    def reject(self, reason=RejReason.CONSUMER_DEFINED, private_data=b"", ari=b""):
        """Either side says no to what the other one has sent last."""
        self._must_be(S.REQ_RCVD, S.REP_SENT, S.REP_RCVD)
        what = What.REP if self.state == S.REP_RCVD else What.REQ
        self._leave(what, reason, private_data, ari)

    def _leave(self, what, reason, private_data=b"", ari=b"", ids=None):
        number = int.from_bytes(ari.ljust(72, b"\0"), "big")
        fields = {"what": what, "reason": reason, "ari": number, "ari_length": len(ari), "private_data": private_data}
        self._heard()
        self.state = S.IDLE
        self._say(Rej(**(ids or self._ids), **fields), self.tid)

    def communicates(self):
        """A packet has come on the passive side's QP: that counts as the RTU (IBA 12.9.7.2)."""
        if self.state == S.REP_SENT:
            self._heard()
            self.state = S.ESTABLISHED
            self._happens(Happening(Happened.ESTABLISHED))

    def disconnect(self, tid, private_data=b""):
        """Ends the connection, or agrees that the peer does; ``tid`` is that of a DREQ. If it is over, nothing."""
        if self.state == S.IDLE and self.req is not None:
            return
        self._must_be(S.ESTABLISHED, S.DREQ_SENT, S.DREQ_RCVD, S.TIMEWAIT)
        if self.state == S.DREQ_RCVD:
            self._agree(private_data)
        elif self.state == S.ESTABLISHED:
            self.state = S.DREQ_SENT
            message = Dreq(qpn=self.remote_qpn, private_data=private_data, **self._ids)
            self._ask(message, tid, *self._patience)

    def _agree(self, private_data=b""):
        self._say(Drep(private_data=private_data, **self._ids), self._drep_tid)
        self._wait_in_time()

    def close(self, tid):
        """Nobody listens any more. The peer is told once, if it does not know; ``tid`` is that of a DREQ."""
        self.tell = None
        if self.state == S.REQ_SENT:
            # The peer has no other name for this side yet than its GUID.
            guid = self.wire.guid.to_bytes(GUID_BYTES, "big")
            self._leave(What.OTHER, RejReason.TIMEOUT, ari=guid, ids={"local_id": self.local_id, "remote_id": 0})
        elif self.state in (S.REQ_RCVD, S.REP_SENT, S.REP_RCVD):
            self.reject()
        elif self.state == S.ESTABLISHED:
            self.disconnect(tid)
        if self.state == S.DREQ_RCVD:
            self._agree()
        elif self.state == S.DREQ_SENT:
            self._wait_in_time()

    # What the peer says

    def hear(self, message, tid):
        """A message with this side's communication ID has come; a REQ comes to :meth:`asked` or :meth:`asked_again`."""
        getattr(self, f"_hear_{type(message).__name__.lower()}")(message, tid)

    def asked_again(self):
        """The REQ has come once more."""
        if self.state == S.REQ_RCVD:
            self._say(Mra(what=What.REQ, service_timeout=MRA_TIMEOUT, **self._ids), self.tid)
        elif self.state == S.TIMEWAIT:
            self._say(Rej(what=What.REQ, reason=RejReason.STALE_CONN, **self._ids), self.tid)

    def _hear_rep(self, rep, tid):
        if self.state == S.REQ_SENT:
            self._heard()
            self.rep, self.state = rep, S.REP_RCVD
            self.remote_id, self.remote_guid, self.remote_qpn = rep.local_id, rep.ca_guid, rep.qpn
            self._happens(Happening(Happened.RESPONSE, 0, rep))
        elif self.active and rep.local_id == self.remote_id:
            if self.state == S.REP_RCVD:
                self._say(Mra(what=What.REP, service_timeout=MRA_TIMEOUT, **self._ids), self.tid)
            elif self.state == S.ESTABLISHED:
                self._say(self._rtu, self.tid)

    def _hear_rtu(self, rtu, tid):
        if self.state == S.REP_SENT and rtu.local_id == self.remote_id:
            self._heard()
            self.state = S.ESTABLISHED
            self._happens(Happening(Happened.ESTABLISHED, 0, rtu))

    def _hear_rej(self, rej, tid):
        if (rej.local_id and self.remote_id and rej.local_id != self.remote_id) or self.state in (S.IDLE, S.TIMEWAIT):
            return
        self._heard()
        known = self.state in (S.REP_RCVD, S.ESTABLISHED, S.DREQ_SENT, S.DREQ_RCVD)
        if known or rej.reason == RejReason.STALE_CONN:
            self._wait_in_time()
        else:
            self.state = S.IDLE
        self._happens(Happening(Happened.REJECTED, rej.reason, rej))

    def _hear_mra(self, mra, tid):
        what = {S.REQ_SENT: What.REQ, S.REP_SENT: What.REP}.get(self.state)
        if self.deadline is not None and mra.what == what:
            self.deadline = self.wire.now + code_ms(mra.service_timeout) + code_ms(self.req.ack_timeout)

    def _hear_dreq(self, dreq, tid):
        if dreq.local_id != self.remote_id or dreq.qpn != self.local_qpn:
            return
        if self.state == S.TIMEWAIT:
            self._say(Drep(**self._ids), tid)
        elif self.state in (S.REP_SENT, S.ESTABLISHED, S.DREQ_SENT):
            crossed = self.state == S.DREQ_SENT
            self._heard()
            self.state, self._drep_tid = S.DREQ_RCVD, tid
            if crossed:
                # The program has said already that it does not want the connection.
                self._agree()
            self._happens(Happening(Happened.DISCONNECTED, 0, dreq))

    def _hear_drep(self, drep, tid):
        if self.state == S.DREQ_SENT and drep.local_id == self.remote_id:
            self._wait_in_time()
            self._happens(Happening(Happened.DISCONNECTED, 0, drep))

    def _hear_lap(self, lap, tid):
        if self.state == S.ESTABLISHED and lap.local_id == self.remote_id:
            self._say(Apr(status=LAP_UNSUPPORTED, **self._ids), tid)

    # What time brings

    def _wait_in_time(self):
        """Packets of the connection may still be on their way."""
        self._heard()
        self.state = S.TIMEWAIT
        self.deadline = self.wire.now + code_ms(self.req.ack_timeout)

    def _give_up(self):
        if self.state == S.TIMEWAIT:
            self.state = S.IDLE
            self._happens(Happening(Happened.TIMEWAIT_EXIT))
        elif self.state == S.DREQ_SENT:
            self._wait_in_time()
            self._happens(Happening(Happened.DISCONNECTED, -errno.ETIMEDOUT))
        else:
            self.state = S.IDLE
            self._happens(Happening(Happened.UNREACHABLE, -errno.ETIMEDOUT))
