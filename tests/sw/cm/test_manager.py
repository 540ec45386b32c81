"""The manager: whatever comes, and whoever calls."""

import threading

from sides import FAR, NEAR, TCP, THIRD, UDP, Listener, Side, rep, req
from streams import make_rng
from verbena.sw.cm.address_vector import AddressVector
from verbena.sw.cm.connection import Connection, State, WrongState
from verbena.sw.cm.messages import MESSAGES, Drep, Rej, Rep, Req, SidrRep, SidrReq
from verbena.sw.cm.sidr import Question

MADS = 3000


def any_message(rng, known):
    """A message of any kind with any fields, some of which name what the other side has."""
    kind = rng.choice(list(MESSAGES.values()))
    values = {name: rng.randrange(1 << width) for name, (_, width) in kind.layout.fields.items()}
    values["private_data"] = rng.randbytes(rng.randrange(kind.layout.tail + 1))
    for name, some in known.items():
        if name in values and some and rng.random() < 0.8:
            values[name] = rng.choice(some)
    if kind in (Req, SidrReq) and rng.random() < 0.9:
        values["service_id"] = rng.choice((TCP, UDP))
        values["private_data"] = req().private_data
    if kind is Req and rng.random() < 0.9:
        values |= {"pkey": 0xFFFF, "transport": 0, "local_gid": req().local_gid, "remote_gid": req().remote_gid}
    return kind(**values)


def decide(rng, exchange):
    """A program that does something with a request, or nothing."""
    choice = rng.randrange(4)
    if isinstance(exchange, Question):
        if exchange.open and choice < 2:
            exchange.answer(qpn=5)
        return
    try:
        if choice == 0:
            exchange.accept(rep())
        elif choice == 1:
            exchange.reject()
        elif choice == 2:
            exchange.disconnect(1)
    except WrongState:
        pass


def test_any_mads(wire):
    """None is an error here, and all that they begin comes to an end."""
    rng = make_rng()
    near, far = Side(wire, "near", NEAR), Side(wire, "far", FAR)
    listeners = [Listener(far), Listener(far)]
    far.manager.listeners.update(zip((TCP, UDP), listeners))
    known = {"local_id": [1, 2, 3], "request_id": [1, 2], "qpn": [0x111, 0x222], "ca_guid": [near.guid]}
    for _ in range(MADS):
        if rng.random() < 0.1:
            mad = rng.randbytes(256)
        else:
            known["remote_id"] = list(far.manager.connections)
            mad = any_message(rng, known).pack(rng.randrange(1 << 64))
        far.mads.inbox.append((mad, AddressVector(0, rng.choice((NEAR, NEAR, NEAR, THIRD)))))
        far.manager.work()
        near.mads.inbox.clear()
        for listener in listeners:
            for exchange, _ in listener.requests[-5:]:
                decide(rng, exchange)
        wire.now += rng.choice((0, 0, 100, 3000))
    for listener in listeners:
        for exchange, _ in listener.requests:
            exchange.close(1) if isinstance(exchange, Connection) else exchange.close()
    while wire.next():
        pass
    assert not far.manager.connections
    assert {name for name, _ in wire.sent} == {"far"}
    assert {type(message) for _, message in wire.sent} >= {Rep, Rej, Drep, SidrRep}


def test_two_threads_do_not_work_at_once(wire):
    near, far = Side(wire, "near", NEAR), Side(wire, "far", FAR)
    near.connect(FAR, req())
    with far.manager.lock:
        worked = []
        thread = threading.Thread(target=lambda: worked.append(far.manager.work()))
        thread.start()
        thread.join()
    assert worked == [False]
    assert far.mads.inbox
    assert far.manager.work()
    assert not far.mads.inbox


def test_without_its_qp1_it_does_nothing(wire):
    near, far = Side(wire, "near", NEAR), Side(wire, "far", FAR)
    connection = near.connect(FAR, req())
    near.mads.open = False
    wire.names()
    assert not near.manager.open
    assert not near.manager.work()
    connection.close(1)
    assert wire.names() == []
    assert connection.state == State.IDLE
    assert not far.manager.connections
