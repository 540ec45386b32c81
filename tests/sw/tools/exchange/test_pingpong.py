"""The addresses of ibv_rc_pingpong, against what the program itself says."""

import socket

import pytest
from conversations import CONVERSATIONS
from verbena.sw.tools.exchange.channel import Channel
from verbena.sw.tools.exchange.pingpong import DONE, MOST, SIZE, Address, answer, ask
from verbena.sw.tools.session import ToolError, run

(CLIENT, SERVER), (LEAVE, _) = CONVERSATIONS["rc_pingpong"]
GID = bytes.fromhex("00000000000000000000ffff0a0000f0")


@pytest.fixture
def pair():
    here, there = socket.socketpair()
    with Channel(here, lambda cycles: True) as channel, there:
        yield channel, there


def test_the_form_is_that_of_the_program():
    assert Address(0, 0x12, 0xEF91BC, GID).pack() == CLIENT
    assert Address.unpack(SERVER) == Address(0, 0x11, 0x5B7F8A, GID)
    assert (len(CLIENT), LEAVE) == (SIZE, DONE)


def test_who_stays_says_so_in_capitals():
    stays = Address(0, 0x12, 0xEF91BC, GID, stays=True)
    assert stays.pack() == CLIENT.replace(b"ffff0a0000f0", b"FFFF0A0000F0")
    assert Address.unpack(stays.pack()) == stays
    assert not Address.unpack(CLIENT).stays


def test_client(pair):
    channel, there = pair
    there.send(SERVER)
    assert run(ask(channel, [Address.unpack(CLIENT)])) == [[Address.unpack(SERVER)]]
    assert there.recv(100) == CLIENT + LEAVE


def test_server_is_ready_before_it_answers(pair):
    channel, there = pair
    there.send(CLIENT + LEAVE)
    said = []

    def prepare(theirs):
        there.setblocking(False)
        with pytest.raises(BlockingIOError):
            there.recv(1)
        said.append(theirs)

    assert run(answer(channel, [Address.unpack(SERVER)], prepare)) == [[Address.unpack(CLIENT)]]
    assert said == [[Address.unpack(CLIENT)]]
    assert there.recv(100) == SERVER


@pytest.mark.parametrize(
    "wrong", [CLIENT.replace(b":", b" "), CLIENT[:-1] + b"x", b"0" * SIZE, CONVERSATIONS["write_bw"][4][0][:SIZE]]
)
def test_another_language(pair, wrong):
    channel, there = pair
    there.send(wrong)
    with pytest.raises(ToolError, match=r"does not speak the language of the ibv_\*_pingpong programs"):
        run(ask(channel, [Address.unpack(CLIENT)]))


def test_a_client_that_does_not_leave_as_it_should(pair):
    channel, there = pair
    there.send(CLIENT + b"gone\0")
    with pytest.raises(ToolError, match="the client should be done, but says b'gone"):
        run(answer(channel, [Address.unpack(SERVER)], lambda theirs: None))


def test_a_client_that_goes_too_early(pair):
    channel, there = pair
    there.send(CLIENT[:30])
    there.close()
    with pytest.raises(ToolError, match="after 30 of 52 bytes of the client's address"):
        run(answer(channel, [Address.unpack(SERVER)], lambda theirs: None))


# ibv_srq_pingpong

EMPTY = b"0000:000000:000000:00000000000000000000000000000000\0"


def several(count, first):
    return [Address(0, first + n, 0x1000 * n, GID) for n in range(count)]


def test_as_many_messages_as_there_may_be_queue_pairs(pair):
    """Whatever there are; the rest are zeros."""
    channel, there = pair
    mine, theirs = several(3, 0x100), several(3, 0x200)
    there.send(b"".join(address.pack() for address in theirs) + EMPTY * 253)
    assert run(ask(channel, mine, MOST)) == [theirs]
    said = there.recv(1 << 16)
    assert len(said) == 256 * SIZE + len(LEAVE)
    assert said == b"".join(address.pack() for address in mine) + EMPTY * 253 + LEAVE


def test_a_server_of_several(pair):
    channel, there = pair
    mine, theirs, said = several(256, 0x100), several(256, 0x200), []
    there.send(b"".join(address.pack() for address in theirs) + LEAVE)
    assert run(answer(channel, mine, said.append, MOST)) == [theirs]
    assert said == [theirs]
    assert there.recv(1 << 16) == b"".join(address.pack() for address in mine)


def test_a_peer_with_fewer_queue_pairs(pair):
    channel, there = pair
    there.send(b"".join(address.pack() for address in several(2, 0x200)) + EMPTY * 254)
    with pytest.raises(ToolError, match="the peer has 2 queue pairs, not 3: -q must be the same"):
        run(ask(channel, several(3, 0x100), MOST))
