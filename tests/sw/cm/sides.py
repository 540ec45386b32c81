"""Two connection managers on a wire that does what a test wants, with a clock that only a test moves."""

import random

from verbena.hdl.abi.gids import GidType
from verbena.sw.cm.address_vector import AddressVector
from verbena.sw.cm.ip_header import PORT_SPACE_TCP, PORT_SPACE_UDP, IpAddresses, service_id
from verbena.sw.cm.manager import Manager
from verbena.sw.cm.messages import Rep, Req, unpack
from verbena.sw.gids import OwnGid, ipv4_of, mapped

__all__ = ["FAR", "FAR6", "NEAR", "NEAR6", "TCP", "THIRD", "UDP", "Listener", "Side", "Wire", "rep", "req"]

NEAR, FAR, THIRD = (mapped(0x0A000000 + number) for number in (1, 2, 3))
NEAR6, FAR6 = (0xFD00 << 112 | number for number in (1, 2))
"""Each side has addresses of both kinds."""
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

    def __init__(self, wire, name, gids):
        self._wire, self._name, self._gids = wire, name, gids
        self.inbox = []

    def send(self, mad, vector):
        message = unpack(mad)[1]
        self._wire.sent.append((self._name, message))
        peer = next((side for side in self._wire.sides.values() if vector.dgid in side.gids), None)
        if peer is not None and not self._wire.lose(message):
            back = AddressVector(peer.gids.index(vector.dgid), self._gids[vector.sgid_index])
            peer.mads.inbox.extend([(mad, back)] * (1 + self._wire.double(message)))
        return True

    def receive(self):
        found, self.inbox = self.inbox, []
        return found


class Frames:
    """A side's raw packet queue: ``sent`` are (packet, group, row)."""

    def __init__(self):
        self.sent = []

    def send(self, *frame):
        self.sent.append(frame)
        return True


class Side:
    """A manager on the wire, and what has happened at it: ``events`` are kinds, ``happenings`` all of it."""

    def __init__(self, wire, name, gid):
        self.gids = [gid, 0xFD00 << 112 | gid & 255]
        self.mads = Mads(wire, name, self.gids)
        self.guid = 0x5054_00FF_FE00_0000 | gid & 255
        kinds = (GidType.ROCE_V2_IPV6 if ipv4_of(each) is None else GidType.ROCE_V2_IPV4 for each in self.gids)
        rows = [OwnGid(*row) for row in zip(self.gids, kinds)]
        self.frames = Frames()
        self.manager = Manager(self.mads, self.frames, wire, [*rows, None], self.guid, random.Random(name))
        self.happenings = []
        wire.sides[gid] = self

    def tell(self, happening):
        self.happenings.append(happening)

    def events(self):
        """Names of what has happened since the last call."""
        names = [each.kind.name for each in self.happenings]
        self.happenings.clear()
        return names

    def connect(self, peer, request):
        connection = self.manager.connection(self.manager.vector(peer), self.tell)
        request.local_id, request.ca_guid = connection.local_id, self.guid
        connection.connect(request)
        return connection


class Listener:
    """Takes what is asked for, or nothing."""

    def __init__(self, side, takes=True):
        self.side, self.takes = side, takes
        self.requests = []

    def hears(self, gid):
        return True

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
        "local_gid": NEAR,
        "remote_gid": FAR,
        "hop_limit": 64,
        "ack_timeout": 19,
        "private_data": IpAddresses(NEAR, 5000, FAR).pack() + b"hello",
    }
    return Req(**fields | changes)


def rep(**changes):
    return Rep(**{"qpn": 0x222, "starting_psn": 88, "responder_resources": 1, "initiator_depth": 1} | changes)
