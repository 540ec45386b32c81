"""Two connection managers on a wire that does what a test wants, with a clock that only a test moves."""

import random

from verbena.sw.cm.ip_header import PORT_SPACE_TCP, PORT_SPACE_UDP, IpAddresses, mapped, service_id
from verbena.sw.cm.manager import Manager
from verbena.sw.cm.messages import Rep, Req, unpack

__all__ = ["FAR", "NEAR", "TCP", "UDP", "Listener", "Side", "Wire", "rep", "req"]

NEAR, FAR = 0x0A000001, 0x0A000002
TCP, UDP = service_id(PORT_SPACE_TCP, 7174), service_id(PORT_SPACE_UDP, 7174)


class Wire:
    """What is sent is heard at once. ``sent`` is all that was, as (sender, message); ``lose`` decides of each whether
    it is lost, ``double`` whether it comes twice.
    """

    def __init__(self):
        self.now = 0.0
        self.sides = {}
        self.sent = []
        self.lose = self.double = lambda message: False

    def run(self):
        """Until nobody has anything to say."""
        busy = True
        while busy:
            worked = [side.manager.work() for side in self.sides.values()]
            busy = any(worked)

    def next(self):
        """To the next deadline of all; whether there was one."""
        self.run()
        due = [each.manager.due for each in self.sides.values() if each.manager.due is not None]
        if due:
            self.now = max(self.now, min(due))
            self.run()
        return bool(due)

    def names(self):
        """What was sent since the last call, as names of senders and messages."""
        names = [f"{sender} {type(message).__name__.upper()}" for sender, message in self.sent]
        self.sent.clear()
        return names


class Mads:
    """A side's QP1."""

    open = True

    def __init__(self, wire, name, ip):
        self._wire, self._name, self.ip = wire, name, ip
        self.inbox = []

    def send(self, mad, ip):
        message = unpack(mad)[1]
        self._wire.sent.append((self._name, message))
        if ip in self._wire.sides and not self._wire.lose(message):
            self._wire.sides[ip].mads.inbox.extend([(mad, self.ip)] * (1 + self._wire.double(message)))
        return True

    def receive(self):
        found, self.inbox = self.inbox, []
        return found


class Side:
    """A manager on the wire, and what has happened at it: ``events`` are kinds, ``happenings`` all of it."""

    def __init__(self, wire, name, ip):
        self.mads = Mads(wire, name, ip)
        self.guid = 0x5054_00FF_FE00_0000 | ip & 255
        self.manager = Manager(self.mads, wire, ip, self.guid, random.Random(name))
        self.ip = ip
        self.happenings = []
        wire.sides[ip] = self

    def tell(self, happening):
        self.happenings.append(happening)

    def events(self):
        """Names of what has happened since the last call."""
        names = [each.kind.name for each in self.happenings]
        self.happenings.clear()
        return names

    def connect(self, peer, request):
        connection = self.manager.connection(peer, self.tell)
        request.local_id, request.ca_guid = connection.local_id, self.guid
        connection.connect(request)
        return connection


class Listener:
    """Takes what is asked for, or nothing."""

    ip = 0

    def __init__(self, side, takes=True):
        self.side, self.takes = side, takes
        self.requests = []

    def requested(self, exchange, addresses):
        if self.takes:
            exchange.tell = self.side.tell
            self.requests.append((exchange, addresses))
        return self.takes


def req(**changes):
    """A REQ as rdma_cm sends it from NEAR to FAR."""
    fields = {
        "service_id": TCP,
        "qpn": 0x111,
        "responder_resources": 1,
        "initiator_depth": 1,
        "remote_response_timeout": 20,
        "local_response_timeout": 20,
        "starting_psn": 77,
        "retry_count": 7,
        "pkey": 0xFFFF,
        "path_mtu": 3,
        "rnr_retry": 7,
        "max_cm_retries": 15,
        "local_lid": 0xFFFF,
        "remote_lid": 0xFFFF,
        "local_gid": mapped(NEAR),
        "remote_gid": mapped(FAR),
        "hop_limit": 64,
        "ack_timeout": 19,
        "private_data": IpAddresses(NEAR, 5000, FAR).pack() + b"hello",
    }
    return Req(**fields | changes)


def rep(**changes):
    return Rep(**{"qpn": 0x222, "starting_psn": 88, "responder_resources": 1, "initiator_depth": 1} | changes)
