"""Questions for the QP of a service, and their answers."""

import errno

import pytest
from sides import FAR, FAR6, NEAR, NEAR6, THIRD, UDP, Listener, Side
from verbena.sw.cm.connection import WrongState
from verbena.sw.cm.ip_header import IpAddresses
from verbena.sw.cm.messages import SidrRep, SidrReq
from verbena.sw.cm.reasons import SidrStatus

HEADER = IpAddresses(NEAR, 5000, FAR).pack()


@pytest.fixture
def listener(sides):
    far = sides[1]
    far.manager.listeners[UDP] = listener = Listener(far)
    return listener


def ask(side, data=HEADER):
    return side.manager.inquire(side.manager.vector(FAR), side.tell, UDP, data)


def test_a_question_is_answered(wire, sides, listener):
    near, far = sides
    ask(near, HEADER + b"who is there")
    wire.run()
    ((question, addresses),) = listener.requests
    assert addresses == (NEAR, 5000, FAR)
    assert far.happenings[0].private_data[36:48] == b"who is there"
    question.answer(qpn=0x123, qkey=0x01234567, private_data=b"me")
    wire.run()
    (happening,) = near.happenings
    assert happening.kind.name == "ESTABLISHED"
    reply = happening.message
    assert (reply.qpn, reply.qkey, reply.service_id, reply.private_data[:2]) == (0x123, 0x01234567, UDP, b"me")
    assert wire.names() == ["near SIDRREQ", "far SIDRREP"]
    assert not wire.next()
    with pytest.raises(WrongState, match="answered already"):
        question.answer()


@pytest.mark.parametrize(("kind", "questions"), [(SidrReq, 1), (SidrRep, 2)])
def test_one_is_lost(wire, sides, listener, kind, questions):
    """The answer is not kept: the question that comes again is a new one."""
    lost = []
    wire.lose = lambda message: isinstance(message, kind) and not lost and not lost.append(message)
    near, _ = sides
    ask(near)
    while not near.happenings:
        wire.run()
        for question, _ in listener.requests:
            if question.open:
                question.answer(qpn=5)
        wire.run()
        assert near.happenings or wire.next()
    assert wire.now == 4096
    assert len(listener.requests) == questions
    assert near.events() == ["ESTABLISHED"]


def test_a_question_again_while_the_program_decides(wire, sides, listener):
    near, _ = sides
    ask(near)
    wire.run()
    wire.next()
    assert wire.names() == ["near SIDRREQ"] * 2
    assert len(listener.requests) == 1


def test_two_ask_with_the_same_number(wire, sides, listener):
    """Each is answered; also one who asks by another address."""
    near, _ = sides
    other = Side(wire, "other", THIRD)
    for side, own, peer in ((near, NEAR, FAR), (near, NEAR6, FAR6), (other, THIRD, FAR)):
        data = IpAddresses(own, 5000, peer).pack()
        request = SidrReq(request_id=7, service_id=UDP, private_data=data)
        side.manager.send(request.pack(1), side.manager.vector(peer))
    wire.run()
    assert [addresses.source for _, addresses in listener.requests] == [NEAR, NEAR6, THIRD]


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("no service", SidrStatus.UNSUPPORTED),
        ("not taken", SidrStatus.REJECTED),
        ("rejected", SidrStatus.REJECTED),
        ("closed", SidrStatus.REJECTED),
        ("another header", SidrStatus.REJECTED),
    ],
)
def test_refused(wire, sides, how, status):
    near, far = sides
    listener = Listener(far, takes=how != "not taken")
    if how != "no service":
        far.manager.listeners[UDP] = listener
    ask(near, HEADER if how != "another header" else bytes(36))
    wire.run()
    if how in ("rejected", "closed"):
        question, _ = listener.requests[0]
        question.answer(SidrStatus.REJECTED) if how == "rejected" else question.close()
        question.close()  # says no more
        wire.run()
    (happening,) = near.happenings
    assert (happening.kind.name, happening.status) == ("UNREACHABLE", status)
    assert wire.names() == ["near SIDRREQ", "far SIDRREP"]


def test_nobody_answers(wire, sides):
    wire.lose = lambda message: True
    near, _ = sides
    ask(near)
    while wire.next():
        pass
    assert wire.names() == ["near SIDRREQ"] * 16
    assert wire.now == 16 * 4096
    assert near.happenings[0].status == -errno.ETIMEDOUT


def test_who_asks_gives_up(wire, sides, listener):
    near, _ = sides
    inquiry = ask(near)
    wire.run()
    inquiry.close()
    listener.requests[0][0].answer(qpn=5)
    wire.run()
    assert near.happenings == []
    assert not wire.next()
