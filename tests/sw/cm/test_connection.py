"""Connections, message by message: lost, doubled, refused, given up."""

import errno

import pytest
from sides import FAR, FAR6, NEAR, THIRD, Listener, Side, rep, req
from verbena.sw.cm.address_vector import AddressVector
from verbena.sw.cm.connection import State, WrongState
from verbena.sw.cm.messages import Drep, Dreq, Lap, Mra, Rej, Rep, Req, Rtu, unpack
from verbena.sw.cm.reasons import RejReason

S = State


@pytest.fixture
def listener(sides):
    far = sides[1]
    far.manager.listeners[req().service_id] = listener = Listener(far)
    return listener


def losing(count, kind):
    """Loses the first ``count`` messages of a kind."""
    left = [count]

    def lose(message):
        if isinstance(message, kind) and left[0]:
            left[0] -= 1
            return True
        return False

    return lose


def connected(wire, sides, listener):
    """Both ends of a connection, and all that led to it forgotten."""
    near, far = sides
    active = near.connect(FAR, req())
    wire.run()
    passive, _ = listener.requests[-1]
    passive.accept(rep())
    wire.run()
    active.establish()
    wire.run()
    assert (active.state, passive.state) == (S.ESTABLISHED, S.ESTABLISHED)
    assert wire.names()[-3:] == ["near REQ", "far REP", "near RTU"]
    near.events(), far.events()
    return active, passive


def test_from_request_to_timewait(wire, sides, listener):
    near, far = sides
    active = near.connect(FAR, req())
    wire.run()
    (passive, addresses), *_ = listener.requests
    assert (addresses.source, addresses.port, addresses.destination) == (NEAR, 5000, FAR)
    assert far.happenings[0].private_data[36:41] == b"hello"
    passive.accept(rep(private_data=b"welcome"))
    wire.run()
    assert near.happenings[0].private_data[:7] == b"welcome"
    active.establish()
    wire.run()
    assert near.manager.due is far.manager.due is None
    active.disconnect(4711)
    wire.run()
    assert (active.state, passive.state) == (S.DREQ_SENT, S.DREQ_RCVD)
    passive.disconnect(1)
    wire.run()
    assert (active.state, passive.state) == (S.TIMEWAIT, S.TIMEWAIT)
    assert near.events() == ["RESPONSE", "DISCONNECTED"]
    assert far.events() == ["REQUEST", "ESTABLISHED", "DISCONNECTED"]
    assert wire.names() == ["near REQ", "far REP", "near RTU", "near DREQ", "far DREP"]
    start = wire.now
    assert wire.next()
    assert wire.now - start == 2048.0
    assert (near.events(), far.events()) == (["TIMEWAIT_EXIT"], ["TIMEWAIT_EXIT"])
    assert not near.manager.connections
    assert not far.manager.connections
    assert not wire.next()


def test_transaction_ids(wire, sides, listener):
    """REP and RTU have the REQ's, DREP the DREQ's."""
    active, passive = connected(wire, sides, listener)
    assert passive.tid == active.tid
    heard = []
    passive_hear = passive.hear
    passive.hear = lambda message, tid: (heard.append(tid), passive_hear(message, tid))
    active.disconnect(4711)
    wire.run()
    assert heard == [4711]
    active.hear, heard = (lambda message, tid: heard.append(tid)), []
    passive.disconnect(5)
    wire.run()
    assert heard == [4711]


@pytest.mark.parametrize(
    ("kind", "wait", "names"),
    [
        (Req, 6144, ["near REQ", "near REQ", "far REP", "near RTU"]),
        (Rep, 4096, ["near REQ", "far REP", "far REP", "near RTU"]),
        (Rtu, 4096, ["near REQ", "far REP", "near RTU", "far REP", "near RTU"]),
    ],
)
def test_a_message_is_lost(wire, sides, listener, kind, wait, names):
    wire.lose = losing(1, kind)
    near, far = sides
    active = near.connect(FAR, req())
    wire.run()
    while not listener.requests:
        assert wire.next()
    passive, _ = listener.requests[0]
    wire.run()
    passive.accept(rep())
    wire.run()
    if kind is Rep:
        wire.next()
    active.establish()
    wire.run()
    if kind is Rtu:
        wire.next()
    assert wire.now == wait
    assert wire.names() == names
    assert (active.state, passive.state) == (S.ESTABLISHED, S.ESTABLISHED)
    assert (near.events(), far.events()) == (["RESPONSE"], ["REQUEST", "ESTABLISHED"])


@pytest.mark.parametrize(("kind", "resent"), [(Dreq, 1), (Drep, 1)])
@pytest.mark.parametrize("role", ["active", "passive"])
def test_the_end_is_lost(wire, sides, listener, kind, resent, role):
    """Who ends it repeats the DREQ, after its own time; the answer is repeated in timewait."""
    active, passive = connected(wire, sides, listener)
    ends, other = (active, passive) if role == "active" else (passive, active)
    wire.lose = losing(1, kind)
    ends.disconnect(9)
    wire.run()
    if kind is Dreq:
        assert other.state == S.ESTABLISHED
        assert wire.next()
    other.disconnect(8)
    wire.run()
    if kind is Drep:
        # Nobody repeats a DREP; the other side's timewait is shorter than the wait for it, and then it knows no more.
        assert (ends.state, other.state) == (S.DREQ_SENT, S.TIMEWAIT)
        wire.next()
        assert other.state == S.IDLE
        wire.next()
    assert ends.state == S.TIMEWAIT
    assert wire.now == (6144 if role == "active" else 4096)
    kinds = [name.split()[1] for name in wire.names()]
    assert kinds == (["DREQ", "DREQ", "DREP"] if kind is Dreq else ["DREQ", "DREP", "DREQ", "DREP"])


def test_a_doubled_dreq_is_answered_in_timewait(wire, sides, listener):
    active, passive = connected(wire, sides, listener)
    active.disconnect(9)
    wire.run()
    wrong = Dreq(local_id=active.local_id, remote_id=passive.local_id, qpn=passive.local_qpn + 1)
    passive.hear(wrong, 9)
    passive.hear(Dreq(local_id=active.local_id, remote_id=passive.local_id, qpn=passive.local_qpn), 9)
    wire.run()
    assert wire.names() == ["near DREQ"]  # nothing before the program agrees
    passive.disconnect(1)
    passive.hear(wrong, 9)
    passive.hear(Dreq(local_id=active.local_id, remote_id=passive.local_id, qpn=passive.local_qpn), 10)
    wire.run()
    assert wire.names() == ["far DREP", "far DREP"]
    assert sides[0].events() == ["DISCONNECTED"]  # once


def test_both_end_it(wire, sides, listener):
    active, passive = connected(wire, sides, listener)
    active.disconnect(1)
    passive.disconnect(2)
    wire.run()
    assert (active.state, passive.state) == (S.TIMEWAIT, S.TIMEWAIT)
    assert sides[0].events() == sides[1].events() == ["DISCONNECTED"]
    assert sorted(wire.names()) == ["far DREP", "far DREQ", "near DREP", "near DREQ"]


def test_what_is_over_ends_once(wire, sides, listener):
    """Whether timewait is over depends on the time; what a program may call does not."""
    ends = connected(wire, sides, listener)
    for end in ends:
        end.disconnect(1)
    wire.run()
    wire.names()
    for state in (S.TIMEWAIT, S.IDLE):
        for end in ends:
            assert end.state == state
            end.disconnect(2)
        wire.next()
    assert wire.names() == []


def test_another_path_is_refused(wire, sides, listener, monkeypatch):
    """By an APR, which nobody here waits for; the connection stays as it is."""
    heard = []
    active, passive = connected(wire, sides, listener)
    monkeypatch.setattr(sides[0].mads, "send", lambda mad, vector: heard.append(mad))
    lap = Lap(local_id=passive.local_id, remote_id=active.local_id, qpn=active.local_qpn, remote_gid=NEAR)
    sides[0].mads.inbox = [(lap.pack(99), AddressVector(0, FAR))]
    wire.run()
    (apr,) = heard
    assert (apr[8:18].hex(), apr[24:36].hex()) == (
        f"{99:016x}001a",
        f"{active.local_id:08x}{passive.local_id:08x}00020000",
    )
    for wrong in (Lap(local_id=5, remote_id=active.local_id), Lap(local_id=passive.local_id, remote_id=77)):
        sides[0].mads.inbox = [(wrong.pack(99), AddressVector(0, FAR))]
        wire.run()
    active.disconnect(1)
    wire.run()
    sides[0].mads.inbox = [(lap.pack(99), AddressVector(0, FAR))]
    wire.run()
    assert len(heard) == 2  # and a DREQ
    assert unpack(heard[1])[1].qpn == active.remote_qpn


def test_what_a_lap_says():
    values = {"qpn": 0x123456, "local_gid": NEAR, "remote_gid": FAR, "flow_label": 0xABCDE, "hop_limit": 64}
    mad = Lap(local_id=1, remote_id=2, sl=3, ack_timeout=19, **values).pack(7)
    body = mad[24:]
    assert (body[12:15].hex(), body[56:59].hex()[:5], body[60], body[62] >> 4, body[63] >> 3) == (
        "123456",
        "abcde",
        64,
        3,
        19,
    )
    assert (body[24:40], body[40:56]) == (NEAR.to_bytes(16, "big"), FAR.to_bytes(16, "big"))
    tid, lap = unpack(mad)
    assert (tid, lap.qpn, lap.sl) == (7, 0x123456, 3)


def test_nobody_answers(wire, sides):
    near, _ = sides
    wire.lose = losing(99, Req)
    near.connect(FAR, req())
    while wire.next():
        pass
    assert wire.names() == ["near REQ"] * 16
    assert wire.now == 16 * 6144
    (happening,) = near.happenings
    assert (happening.kind.name, happening.status) == ("UNREACHABLE", -errno.ETIMEDOUT)
    assert not near.manager.connections


def test_nobody_is_ready(wire, sides, listener):
    """The passive side repeats its REP as often as the REQ has said, and as late."""
    near, far = sides
    wire.lose = losing(99, Rep)
    near.connect(FAR, req(max_cm_retries=3, local_response_timeout=18))
    wire.run()
    listener.requests[0][0].accept(rep())
    start = wire.now
    while far.manager.connections:
        assert wire.next()
    assert [name for name in wire.names() if name.startswith("far")] == ["far REP"] * 4
    assert wire.now - start == 4 * 1024
    assert far.events() == ["REQUEST", "UNREACHABLE"]


def test_the_end_is_never_answered(wire, sides, listener):
    active, passive = connected(wire, sides, listener)
    wire.lose = lambda message: True
    passive.disconnect(1)
    while passive.state != S.TIMEWAIT:
        wire.next()
    assert wire.names() == ["far DREQ"] * 16
    assert wire.now == 16 * 4096
    assert sides[1].happenings[0].status == -errno.ETIMEDOUT
    assert active.state == S.ESTABLISHED


def test_a_doubled_req(wire, sides, listener):
    """While the program decides it brings a MRA; then nothing, and in timewait a REJ."""
    near, far = sides
    active = near.connect(FAR, req())
    wire.run()
    passive, _ = listener.requests[0]
    again = active.req.pack(active.tid)
    far.mads.inbox.append((again, AddressVector(0, NEAR)))
    wire.run()
    (_, mra) = wire.sent[-1]
    assert isinstance(mra, Mra)
    assert (mra.what, mra.service_timeout, mra.local_id) == (0, 24, passive.local_id)
    assert near.manager.due == wire.now + 65536 + 2048
    passive.accept(rep())
    wire.run()
    wire.names()
    far.mads.inbox.append((again, AddressVector(0, NEAR)))
    active.establish()
    far.mads.inbox.append((again, AddressVector(0, NEAR)))
    wire.run()
    assert wire.names() == ["near RTU"]
    active.disconnect(1)
    wire.run()
    passive.disconnect(1)
    wire.run()
    wire.names()
    far.mads.inbox.append((again, AddressVector(0, NEAR)))
    wire.run()
    (_, rej) = wire.sent[-1]
    assert (rej.reason, rej.remote_id) == (RejReason.STALE_CONN, active.local_id)
    assert len(listener.requests) == 1


def test_everything_comes_twice(wire, sides, listener):
    wire.double = lambda message: True
    active, passive = connected_twice = connected_doubled(wire, sides, listener)
    assert (active.state, passive.state) == (S.ESTABLISHED, S.ESTABLISHED)
    active.disconnect(1)
    wire.run()
    passive.disconnect(2)
    wire.run()
    assert {each.state for each in connected_twice} == {S.TIMEWAIT}
    near, far = sides
    assert near.events() == ["RESPONSE", "DISCONNECTED"]
    assert far.events() == ["REQUEST", "ESTABLISHED", "DISCONNECTED"]


def connected_doubled(wire, sides, listener):
    active = sides[0].connect(FAR, req())
    wire.run()
    passive, _ = listener.requests[0]
    passive.accept(rep())
    wire.run()
    active.establish()
    wire.run()
    return active, passive


def test_a_rep_again_while_the_program_decides(wire, sides, listener):
    near, _ = sides
    active = near.connect(FAR, req())
    wire.run()
    passive, _ = listener.requests[0]
    passive.accept(rep())
    wire.run()
    assert wire.next()
    assert wire.names()[-2:] == ["far REP", "near MRA"]
    assert passive.deadline == wire.now + 65536 + 2048
    active.hear(rep(local_id=passive.local_id + 1, remote_id=active.local_id), active.tid)
    assert wire.names() == []
    active.establish()
    wire.run()
    assert passive.state == S.ESTABLISHED


def test_a_mra_counts_once(wire, sides, listener):
    near, _ = sides
    active = near.connect(FAR, req())
    wire.run()
    active.hear(Mra(remote_id=active.local_id, what=1, service_timeout=30), 0)  # of a REP, which was never sent
    assert active.deadline == 6144
    active.hear(Mra(remote_id=active.local_id, what=0, service_timeout=20), 0)
    assert active.deadline == 4096 + 2048
    wire.lose = lambda message: True
    wire.next()
    assert active.deadline == 4096 + 2048 + 6144


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"service_id": 5}, RejReason.INVALID_SERVICE_ID),
        ({"pkey": 0x1234}, RejReason.INVALID_GID),
        ({"remote_gid": THIRD}, RejReason.INVALID_GID),
        ({"remote_gid": FAR6}, RejReason.INVALID_GID),  # its own, but not the packet's
        ({"transport": 1}, RejReason.CONSUMER_DEFINED),
        ({"private_data": b"\x10" + bytes(60)}, RejReason.CONSUMER_DEFINED),
        ({"private_data": b"\0\x50" + bytes(60)}, RejReason.CONSUMER_DEFINED),
        ({"private_data": b"\0\x40" + bytes(60)}, RejReason.CONSUMER_DEFINED),  # another destination
    ],
)
def test_what_a_listener_never_hears_of(wire, sides, listener, changes, reason):
    near, far = sides
    near.connect(FAR, req(**changes))
    wire.run()
    assert (listener.requests, far.manager.connections) == ([], {})
    (_, (_, rej)) = wire.sent
    assert (rej.local_id, rej.what, rej.reason) == (0, 0, reason)
    if reason == RejReason.INVALID_GID:
        assert (rej.ari_length, rej.ari >> 8 * 56) == (16, FAR)
    (happening,) = near.happenings
    assert (happening.kind.name, happening.status) == ("REJECTED", reason)
    assert not near.manager.connections


def test_what_does_not_matter(wire, sides, listener):
    near, _ = sides
    near.connect(FAR, req(local_lid=1, remote_lid=2, path_mtu=0, pkey=0x7FFF))
    wire.run()
    assert len(listener.requests) == 1


def test_a_request_in_the_name_of_another(wire, sides, listener):
    near, _ = sides
    near.connect(FAR, req(local_gid=THIRD))
    wire.run()
    assert wire.names() == ["near REQ"]
    assert not listener.requests


def test_refused_by_the_program(wire, sides, listener):
    near, far = sides
    near.connect(FAR, req())
    wire.run()
    passive, _ = listener.requests[0]
    passive.reject(private_data=b"no room today")
    wire.run()
    (happening,) = near.happenings
    assert (happening.kind.name, happening.status) == ("REJECTED", RejReason.CONSUMER_DEFINED)
    assert happening.private_data[:13] == b"no room today"
    assert (near.manager.connections, far.manager.connections) == ({}, {})
    with pytest.raises(WrongState, match="in state IDLE"):
        passive.accept(rep())


def test_refused_by_the_active_side(wire, sides, listener):
    near, far = sides
    active = near.connect(FAR, req())
    wire.run()
    listener.requests[0][0].accept(rep())
    wire.run()
    active.reject()
    wire.run()
    (_, rej) = wire.sent[-1]
    assert (rej.what, rej.reason) == (1, RejReason.CONSUMER_DEFINED)
    assert far.events() == ["REQUEST", "REJECTED"]


def test_a_listener_that_takes_nothing(wire, sides):
    near, far = sides
    far.manager.listeners[req().service_id] = Listener(far, takes=False)
    near.connect(FAR, req())
    wire.run()
    assert wire.sent[-1][1].reason == RejReason.CONSUMER_DEFINED
    assert not far.manager.connections


def test_a_queue_pair_asks_once_more(wire, sides, listener):
    """The old connection is stale: its peer has begun anew."""
    near, far = sides
    active, passive = connected(wire, sides, listener)
    near.connect(FAR, req())
    wire.run()
    assert wire.names() == ["near REQ", "far REJ", "far DREQ"]
    assert passive.state == S.DREQ_SENT
    assert near.events() == ["REJECTED", "DISCONNECTED"]
    active.disconnect(1)
    wire.run()
    assert (active.state, passive.state) == (S.TIMEWAIT, S.TIMEWAIT)
    assert far.events() == ["DISCONNECTED"]
    near.connect(FAR, req())
    wire.run()
    assert wire.sent[-1][1].reason == RejReason.STALE_CONN  # in timewait, too
    while wire.next():
        pass
    near.connect(FAR, req())
    wire.run()
    assert len(listener.requests) == 2


def test_unknown_connections(wire, sides):
    near, far = sides
    for message in (Dreq(local_id=1, remote_id=2, qpn=3), Rtu(local_id=1, remote_id=2), Drep(local_id=1, remote_id=2)):
        near.manager.send(message.pack(5), AddressVector(0, FAR))
        wire.run()
    assert wire.names() == ["near DREQ", "far DREP", "near RTU", "near DREP"]
    near.manager.send(Rej(local_id=1, reason=4).pack(5), AddressVector(0, FAR))
    wire.run()
    assert wire.names() == ["near REJ"]
    assert not far.happenings


def test_another_host_has_no_say(wire, sides, listener):
    active, passive = connected(wire, sides, listener)
    other = Side(wire, "other", THIRD)
    dreq = Dreq(local_id=active.local_id, remote_id=passive.local_id, qpn=passive.local_qpn)
    other.manager.send(dreq.pack(1), AddressVector(0, FAR))
    wire.run()
    assert passive.state == S.ESTABLISHED


@pytest.mark.parametrize(
    ("until", "names"),
    [
        ("REQ_SENT", ["near REJ"]),
        ("REP_RCVD", ["near REJ"]),
        ("ESTABLISHED", ["near DREQ"]),
        ("DREQ_SENT", []),
        ("DREQ_RCVD", ["near DREP"]),
        ("TIMEWAIT", []),
    ],
)
def test_the_active_side_closes(wire, sides, listener, until, names):
    near, far = sides
    active = near.connect(FAR, req())
    wire.run()
    passive, _ = listener.requests[0]
    if until != "REQ_SENT":
        passive.accept(rep())
        wire.run()
    if until not in ("REQ_SENT", "REP_RCVD"):
        active.establish()
        wire.run()
    if until in ("DREQ_SENT", "TIMEWAIT"):
        active.disconnect(1)
        wire.run()
    if until == "DREQ_RCVD":
        passive.disconnect(1)
        wire.run()
    if until == "TIMEWAIT":
        passive.disconnect(1)
        wire.run()
    assert active.state == S[until]
    wire.names(), near.events(), far.events()
    active.close(9)
    wire.run()
    assert wire.names() == names
    assert active.state in (S.IDLE, S.TIMEWAIT)
    if until in ("REQ_SENT", "REP_RCVD"):
        (happening,) = far.happenings
        reason = RejReason.TIMEOUT if until == "REQ_SENT" else RejReason.CONSUMER_DEFINED
        assert (happening.kind.name, happening.status) == ("REJECTED", reason)
    while wire.next():
        pass
    assert near.events() == []
    assert not near.manager.connections


@pytest.mark.parametrize("accepted", [False, True])
def test_the_passive_side_closes(wire, sides, listener, accepted):
    near, far = sides
    near.connect(FAR, req())
    wire.run()
    passive, _ = listener.requests[0]
    if accepted:
        passive.accept(rep())
        wire.run()
    passive.close(9)
    wire.run()
    assert wire.names()[-1] == "far REJ"
    assert near.events()[-1] == "REJECTED"
    assert not far.manager.connections


def test_a_packet_counts_as_rtu(wire, sides, listener):
    near, far = sides
    active = near.connect(FAR, req())
    wire.run()
    passive, _ = listener.requests[0]
    passive.accept(rep())
    wire.run()
    passive.communicates()
    passive.communicates()
    active.establish()
    wire.run()
    assert far.events() == ["REQUEST", "ESTABLISHED"]
    assert far.manager.due is None


def test_calls_in_a_wrong_state(wire, sides, listener):
    active, passive = connected(wire, sides, listener)
    for call in (lambda: active.connect(req()), lambda: passive.accept(rep()), active.establish, active.reject):
        with pytest.raises(WrongState, match="in state ESTABLISHED"):
            call()
    fresh = sides[0].manager.connection(AddressVector(0, FAR), sides[0].tell)
    with pytest.raises(WrongState, match="in state IDLE"):
        fresh.disconnect(1)
