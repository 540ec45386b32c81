"""Identifiers: ports, listeners, and what both sides agree on, without an adapter."""

import errno

import pytest
from sides import FAR, FAR6, NEAR, NEAR6, THIRD
from verbena.sw.cm.connection import WrongState
from verbena.sw.cm.identifier import ANY, ANY_IPV4, EPHEMERAL, MAX_BACKLOG, Identifier
from verbena.sw.cm.ip_header import PORT_SPACE_TCP, PORT_SPACE_UDP
from verbena.sw.cm.membership_report import report
from verbena.sw.cm.messages import SidrReq
from verbena.sw.cm.parameters import Parameters
from verbena.sw.errors import AdapterError
from verbena.sw.gids import mapped

MTU = 3
PORT = 7471


class Owner:
    """Keeps the notes of identifiers."""

    def __init__(self, port_space=PORT_SPACE_TCP):
        self.notes = []
        self.identifier = Identifier(port_space, self.notes.append)

    def take(self):
        return self.notes.pop(0)


def active(side, port_space=PORT_SPACE_TCP, port=PORT, peer=FAR):
    owner = Owner(port_space)
    owner.identifier.bind(side.manager)
    owner.identifier.vector, owner.identifier.peer_port = side.manager.vector(peer), port
    return owner


def listening(side, port_space=PORT_SPACE_TCP, **more):
    owner = Owner(port_space)
    owner.identifier.bind(side.manager, PORT)
    owner.identifier.listen(**more)
    return owner


def refused(code, call, *arguments):
    with pytest.raises(AdapterError) as caught:
        call(*arguments)
    assert caught.value.errno == code
    return caught.value.strerror


@pytest.mark.parametrize(
    ("near", "far", "agreed"),
    [
        # (READs that it serves, READs that it issues) of the active and of the passive side; what both then have.
        ((1, 1), (1, 1), ((1, 1), (1, 1))),
        ((4, 2), (16, 16), ((4, 2), (2, 4))),
        ((16, 16), (3, 5), ((5, 3), (3, 5))),
        ((0, 7), (7, 7), ((0, 7), (7, 0))),
        ((255, 255), (255, 255), ((16, 16), (16, 16))),
        ((2, 2), None, ((2, 2), (2, 2))),
    ],
)
def test_each_side_issues_what_the_other_serves(wire, sides, near, far, agreed):
    listener, asks = listening(sides[1]), active(sides[0])
    asks.identifier.connect(Parameters(*near, qp_num=5), MTU)
    wire.run()
    passive = listener.take().identifier
    passive.accept(None if far is None else Parameters(*far, qp_num=6))
    wire.run()
    ends = asks.identifier.path(), passive.path()
    assert tuple((end.responder_resources, end.initiator_depth) for end in ends) == agreed


def test_what_a_queue_pair_is_told(wire, sides):
    listener, asks = listening(sides[1]), active(sides[0])
    asks.identifier.connect(Parameters(1, 1, 0, 6, 3, qp_num=0x111, private_data=b"hi"), MTU)
    assert not asks.identifier.answered
    with pytest.raises(WrongState, match="the peer has not answered"):
        asks.identifier.path()
    wire.run()
    note = listener.take()
    assert (note.private_data[:2], note.listener) == (b"hi", listener.identifier)
    assert len(note.private_data) == 56
    assert (note.parameters.retry_count, note.parameters.rnr_retry_count, note.parameters.qp_num) == (6, 3, 0x111)
    note.identifier.accept(Parameters(rnr_retry_count=2, qp_num=0x222))
    wire.run()
    near, far = asks.identifier.path(), note.identifier.path()
    assert (near.vector, near.dest_qpn, far.vector, far.dest_qpn) == ((0, FAR), 0x222, (0, NEAR), 0x111)
    assert (near.rq_psn, near.sq_psn) == (far.sq_psn, far.rq_psn)
    assert near.rq_psn != near.sq_psn
    # The REQ's for both; RNR retries are the peer's wish.
    for name in ("mtu", "flow_label", "traffic_class", "ack_timeout", "retry_count"):
        assert getattr(near, name) == getattr(far, name)
    assert (near.mtu, near.retry_count, near.rnr_retry, far.rnr_retry) == (MTU, 6, 2, 3)
    asks.identifier.establish()
    wire.run()
    assert [note.happening.kind.name for note in (*asks.notes, *listener.notes)] == ["RESPONSE", "ESTABLISHED"]
    assert str(asks.identifier) == f"RC port {asks.identifier.port} to 10.0.0.2:{PORT}"


def test_ports(sides):
    near, _ = sides
    one, two, datagrams = Owner(), Owner(), Owner(PORT_SPACE_UDP)
    one.identifier.bind(near.manager)
    assert one.identifier.port in EPHEMERAL
    assert refused(errno.EADDRINUSE, two.identifier.bind, near.manager, one.identifier.port)
    datagrams.identifier.bind(near.manager, one.identifier.port)  # another port space
    assert "bound to port" in refused(errno.EINVAL, one.identifier.bind, near.manager)
    port = one.identifier.port
    one.identifier.close()
    two.identifier.bind(near.manager, port)
    near.manager.bound.update({(PORT_SPACE_TCP, each): [ANY] for each in EPHEMERAL})
    assert refused(errno.EADDRNOTAVAIL, Owner().identifier.bind, near.manager) == "all ports are in use"
    assert "port space 319" in refused(errno.EOPNOTSUPP, Identifier, 0x013F, print)


@pytest.mark.parametrize(
    ("first", "second", "free"),
    [
        (FAR, FAR, False),
        (FAR, FAR6, True),
        (FAR6, FAR, True),
        (ANY, FAR, False),
        (FAR6, ANY, False),
        (ANY_IPV4, FAR, False),
        (ANY_IPV4, FAR6, True),
        (FAR6, ANY_IPV4, True),
        (ANY, ANY_IPV4, False),
    ],
)
def test_a_port_of_two_addresses(wire, sides, first, second, free):
    """Each of two listeners hears what is asked at its own (Linux, cma_check_port)."""
    near, far = sides
    owners = [Owner(), Owner()]
    owners[0].identifier.bind(far.manager, PORT, first)
    if not free:
        refused(errno.EADDRINUSE, owners[1].identifier.bind, far.manager, PORT, second)
        owners[0].identifier.close()
        owners[1].identifier.bind(far.manager, PORT, second)
        return
    owners[1].identifier.bind(far.manager, PORT, second)
    for owner in owners:
        owner.identifier.listen()
    for peer, own in ((FAR, NEAR), (FAR6, NEAR6)):
        asks = active(near, peer=peer)
        asks.identifier.connect(Parameters(qp_num=5), MTU)
        wire.run()
        heard = next(owner for owner in owners if owner.identifier.hears(peer))
        assert heard.take().identifier.vector.dgid == own
        assert not owners[0].notes + owners[1].notes
    owners[0].identifier.close()
    asks = [active(near, peer=peer) for peer in (FAR, FAR6)]
    for each in asks:
        each.identifier.connect(Parameters(qp_num=6), MTU)
    wire.run()
    assert len(owners[1].notes) == 1
    owners[1].identifier.close()
    assert (far.manager.listeners, far.manager.bound) == ({}, {})


def test_calls_at_the_wrong_time(wire, sides):
    near, _ = sides
    fresh = Owner().identifier
    assert "no address" in refused(errno.EINVAL, fresh.listen)
    fresh.bind(near.manager)
    assert "is not resolved" in refused(errno.EINVAL, fresh.connect, Parameters(), MTU)
    for call in (fresh.disconnect, fresh.reject, fresh.establish, fresh.path):
        assert "there is no connection" in refused(errno.EINVAL, call)
    assert "nobody has asked" in refused(errno.EINVAL, fresh.accept)
    fresh.listen()
    assert "already" in refused(errno.EINVAL, fresh.listen)
    assert "nobody has asked" in refused(errno.EINVAL, active(near, PORT_SPACE_UDP).identifier.reject)


@pytest.mark.parametrize("backlog", [1, 2])
def test_a_listener_takes_as_many_as_it_wants(wire, sides, backlog):
    listener = listening(sides[1], backlog=backlog)
    owners = [active(sides[0]) for _ in range(3)]
    for number, owner in enumerate(owners):
        owner.identifier.connect(Parameters(qp_num=number + 2), MTU)
        wire.run()
    assert len(listener.notes) == backlog
    assert [len(owner.notes) for owner in owners] == [0] * backlog + [1] * (3 - backlog)
    listener.take().identifier.accept(Parameters(qp_num=9))
    late = active(sides[0])
    late.identifier.connect(Parameters(qp_num=7), MTU)
    wire.run()
    assert late.notes == []
    assert listening(sides[0], backlog=0).identifier._backlog == MAX_BACKLOG


def test_a_listener_that_closes_refuses_who_waits(wire, sides):
    listener, asks = listening(sides[1]), active(sides[0])
    asks.identifier.connect(Parameters(qp_num=5), MTU)
    wire.run()
    listener.identifier.close()
    listener.identifier.close()
    wire.run()
    (note,) = asks.notes
    assert (note.happening.kind.name, note.happening.status) == ("REJECTED", 28)
    assert not sides[1].manager.listeners


def test_only_where_it_listens(wire, sides):
    listener = Owner()
    listener.identifier.bind(sides[1].manager, PORT, THIRD)
    listener.identifier.listen()
    asks = active(sides[0])
    asks.identifier.connect(Parameters(qp_num=5), MTU)
    wire.run()
    assert asks.take().happening.status == 28
    assert listener.notes == []


@pytest.mark.parametrize(
    ("own", "near", "hears"),
    [
        (ANY, NEAR, True),
        (ANY, NEAR6, True),
        (ANY_IPV4, NEAR, True),
        (ANY_IPV4, NEAR6, False),
        (FAR6, NEAR6, True),
        (FAR6, NEAR, False),
        (FAR, NEAR, True),
        (FAR, NEAR6, False),
    ],
)
@pytest.mark.parametrize("port_space", [PORT_SPACE_TCP, PORT_SPACE_UDP])
def test_where_a_listener_is_asked(wire, sides, port_space, own, near, hears):
    """At all addresses, at those of IPv4, or at one; the request's addresses are those of its packet."""
    listener = Owner(port_space)
    listener.identifier.bind(sides[1].manager, PORT, own)
    listener.identifier.listen()
    peer = FAR if near == NEAR else FAR6
    asks = active(sides[0], port_space, peer=peer)
    asks.identifier.connect(Parameters(qp_num=5), MTU)
    wire.run()
    assert len(listener.notes) == hears
    if not hears:
        assert asks.take().happening.status in (28, 2)
        return
    child = listener.take().identifier
    assert (child.gid, child.vector, child.port) == (peer, (int(near == NEAR6), near), PORT)
    assert child.peer_port == asks.identifier.port
    request = wire.sent[0][1]
    assert request.private_data[1] == (0x40 if near == NEAR else 0x60)
    if port_space == PORT_SPACE_TCP:
        assert (request.local_gid, request.remote_gid) == (near, peer)
        assert child.path().vector == (int(near == NEAR6), near)
        assert str(child).endswith(
            f"to 10.0.0.1:{child.peer_port}" if near == NEAR else f"to [fd00::1]:{child.peer_port}"
        )


def test_a_service_of_datagrams(wire, sides):
    listener, asks = listening(sides[1], PORT_SPACE_UDP), active(sides[0], PORT_SPACE_UDP)
    asks.identifier.connect(Parameters(private_data=b"where"), MTU)
    wire.run()
    note = listener.take()
    assert (note.private_data[:5], len(note.private_data), note.parameters) == (b"where", 180, None)
    note.identifier.accept(Parameters(qp_num=0x333, private_data=b"here"))
    wire.run()
    told = asks.take()
    assert (told.happening.message.qpn, told.happening.message.qkey) == (0x333, 0x01234567)
    assert told.private_data[:4] == b"here"
    assert "answered already" in refused(errno.EINVAL, note.identifier.accept)


def test_no_datagrams_at_a_port_of_connections(wire, sides):
    """A REQ for a listener of UD, and a SIDR_REQ for one of RC: the service is another one, or it is refused."""
    listener = listening(sides[1])
    asks = active(sides[0], PORT_SPACE_UDP)
    asks.identifier.connect(Parameters(), MTU)
    wire.run()
    assert asks.take().happening.status == 1
    key = next(iter(sides[1].manager.listeners))
    request = SidrReq(request_id=5, service_id=key, private_data=wire.sent[0][1].private_data)
    sides[0].manager.send(request.pack(1), asks.identifier.vector)
    wire.run()
    assert wire.sent[-1][1].status == 2
    assert listener.notes == []


@pytest.mark.parametrize(
    ("port_space", "most"),
    [
        (PORT_SPACE_TCP, {"connect": 56, "accept": 196, "reject": 148}),
        (PORT_SPACE_UDP, {"connect": 180, "accept": 136, "reject": 136}),
    ],
)
def test_room_for_private_data(wire, sides, port_space, most):
    asks, listener = active(sides[0], port_space), listening(sides[1], port_space)

    def connect(data):
        asks.identifier.connect(Parameters(qp_num=5, private_data=data), MTU)

    assert "bytes of private data" in refused(errno.EINVAL, connect, bytes(most["connect"] + 1))
    connect(b"a" * most["connect"])
    wire.run()
    note = listener.take()
    assert note.private_data == b"a" * most["connect"]

    def accept(data):
        note.identifier.accept(Parameters(qp_num=6, private_data=data))

    assert "bytes of private data" in refused(errno.EINVAL, note.identifier.reject, bytes(most["reject"] + 1))
    assert "bytes of private data" in refused(errno.EINVAL, accept, bytes(most["accept"] + 1))
    accept(b"b" * most["accept"])
    wire.run()
    assert asks.take().private_data == b"b" * most["accept"]


def test_closed_while_it_asks(wire, sides):
    """What comes later is told to nobody."""
    listener, asks = listening(sides[1]), active(sides[0])
    asks.identifier.connect(Parameters(qp_num=5), MTU)
    wire.run()
    asks.identifier.close()
    wire.run()
    assert [note.happening.kind.name for note in listener.notes] == ["REQUEST", "REJECTED"]
    assert asks.notes == []
    assert not sides[0].manager.bound


@pytest.mark.parametrize(("group", "index"), [(mapped(0xEF010203), 0), (0xFF0E << 112 | 7, 1)])
def test_multicast_groups(wire, sides, group, index):
    near, _ = sides
    owner = Owner(PORT_SPACE_UDP)
    owner.identifier.bind(near.manager)
    assert owner.identifier.join(group) == (index, group)
    assert near.frames.sent[-1][0] == report(near.gids[0] if not index else 0, group, True)
    assert "already" in refused(errno.EADDRINUSE, owner.identifier.join, group)
    owner.identifier.leave(group)
    assert near.frames.sent[-1][0] == report(near.gids[0] if not index else 0, group, False)
    assert "no member" in refused(errno.EADDRNOTAVAIL, owner.identifier.leave, group)
    count = len(near.frames.sent)
    owner.identifier.join(group, send_only=True)
    owner.identifier.leave(group)
    assert len(near.frames.sent) == count
    owner.identifier.join(group)
    owner.identifier.close()
    while wire.next():
        pass
    assert not near.manager._memberships


def test_who_cannot_join(sides):
    near, _ = sides
    group = mapped(0xEF010203)
    datagrams, connections = Owner(PORT_SPACE_UDP).identifier, Owner().identifier
    assert "no address" in refused(errno.EINVAL, datagrams.join, group)
    datagrams.bind(near.manager, gid=NEAR6)
    connections.bind(near.manager)
    assert "none of UD" in refused(errno.EINVAL, connections.join, group)
    assert "no multicast" in refused(errno.EINVAL, datagrams.join, FAR6)
    assert "IPv4" in refused(errno.ENETUNREACH, datagrams.join, group)
    assert near.frames.sent == []
