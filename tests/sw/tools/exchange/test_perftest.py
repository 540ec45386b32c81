"""The conversation of perftest's programs, against what they say themselves."""

import socket
import struct

import pytest
from conversations import CONVERSATIONS
from verbena.sw.tools.exchange.channel import Channel
from verbena.sw.tools.exchange.perftest import DONE, KEY_SIZE, Exchange, Key, Report
from verbena.sw.tools.session import ToolError, run

GID = bytes.fromhex("00000000000000000000ffff0a0000f0")
KEY = Key(0x14, 0xABCDEF, GID, 16, 0x1234, 0x7F00_0000_1000)
TALK = CONVERSATIONS["write_bw"]


@pytest.fixture
def pair():
    here, there = socket.socketpair()
    with Channel(here, lambda cycles: True) as channel, there:
        yield channel, there


def client(channel):
    return Exchange(channel, server=False)


def server(channel):
    return Exchange(channel, server=True)


def test_a_key_has_the_form_that_the_facts_tell():
    text = (
        "0000:0010:000014:abcdef:00001234:00007f0000001000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:f0:00000000:\0"
    )
    assert KEY.pack() == text.encode()
    assert len(text) == KEY_SIZE


@pytest.mark.parametrize("label", [label for label in CONVERSATIONS if label != "rc_pingpong"])
def test_keys_of_the_programs_are_read_and_written(label):
    keys = [side for exchange in CONVERSATIONS[label] for side in exchange if len(side) == KEY_SIZE]
    assert len(keys) >= 6
    for text in keys:
        key = Key.unpack(text)
        assert key.gid == GID
        assert key.pack() == text
    assert {Key.unpack(text).out_reads for text in keys} == {128 if label.startswith(("read", "atomic")) else 1}


def course(exchange, *, mine, reported):
    """All steps of write_bw, the same as in the recorded conversation; returns what the peer said."""
    heard = [(yield from exchange.version())]
    heard += [(yield from exchange.layout(4096, 64)), (yield from exchange.mtu(5))]
    for _ in range(4):
        heard.append((yield from exchange.key(mine)))
    heard.append((yield from exchange.report(reported)))
    yield from exchange.close(mine)
    return heard


def report(side):
    """What a side reported, as numbers."""
    size, iterations = (int.from_bytes(TALK[i][side], "big") for i in (8, 9))
    return Report(size, iterations, *(struct.unpack(">d", TALK[i][side])[0] for i in (10, 11, 12)))


@pytest.mark.parametrize("side", [0, 1], ids=["client", "server"])
def test_a_whole_conversation_is_said_as_the_program_says_it(pair, side):
    channel, there = pair
    there.send(b"".join(exchange[1 - side] for exchange in TALK))
    there.shutdown(socket.SHUT_WR)
    exchange = Exchange(channel, server=side == 1)
    mine, theirs = Key.unpack(TALK[4][side]), Key.unpack(TALK[4][1 - side])
    (heard,) = run(course(exchange, mine=mine, reported=report(side)))
    assert heard == ["6.06", (4096, 64), 5, theirs, theirs, theirs, theirs, report(1 - side)]
    assert there.recv(10_000) == b"".join(exchange[side] for exchange in TALK)


def test_a_server_speaks_second(pair):
    channel, there = pair
    session = server(channel).version()
    next(session)
    there.setblocking(False)
    with pytest.raises(BlockingIOError):
        there.recv(1)
    there.send(b"6.06".ljust(16, b"\0"))
    assert run(session) == ["6.06"]
    assert there.recv(100) == b"6.06".ljust(16, b"\0")


@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        ("5.60", "the peer's perftest 5.60 is older than 5.70"),
        ("", "the peer is no perftest: its version is ''"),
        ("HTTP/1.1 400", "the peer is no perftest: its version is 'HTTP/1.1 400'"),
    ],
)
def test_versions_that_do_not_fit(pair, version, complaint):
    channel, there = pair
    there.send(version.encode().ljust(16, b"\0"))
    with pytest.raises(ToolError) as caught:
        run(client(channel).version())
    assert str(caught.value) == complaint


@pytest.mark.parametrize("version", ["5.70", "6.27", "10.1", "6.06-rc1"])
def test_versions_that_fit(pair, version):
    channel, there = pair
    there.send(version.encode().ljust(16, b"\0"))
    assert run(client(channel).version()) == [version]


def test_the_larger_buffer_and_line_count(pair):
    channel, there = pair
    there.send(bytes.fromhex("00010000 00000040"))
    assert run(client(channel).layout(4096, 128)) == [(65536, 128)]


@pytest.mark.parametrize(("theirs", "agreed"), [(b"3\0", 3), (b"5\0", 4), (b"4\0", 4)])
def test_the_smaller_mtu_counts(pair, theirs, agreed):
    channel, there = pair
    there.send(theirs)
    assert run(client(channel).mtu(4)) == [agreed]
    assert there.recv(10) == b"4\0"


def test_an_mtu_that_is_none(pair):
    channel, there = pair
    there.send(b"9\0")
    with pytest.raises(ToolError, match=r"the peer's MTU is b'9\\x00', not 1 to 5"):
        run(client(channel).mtu(4))


@pytest.mark.parametrize(
    "wrong",
    [
        KEY.pack().replace(b":", b";"),
        b"x" * KEY_SIZE,
        bytes(KEY_SIZE),
        KEY.pack().replace(b"ff:ff", b"gg:gg"),
    ],
)
def test_a_key_in_another_language(pair, wrong):
    channel, there = pair
    there.send(wrong)
    with pytest.raises(ToolError, match="does not speak the language of perftest"):
        run(client(channel).key(KEY))


def test_a_peer_that_goes_too_early(pair):
    channel, there = pair
    there.send(KEY.pack()[:50])
    there.close()
    with pytest.raises(ToolError, match="after 50 of 108 bytes of a key message"):
        run(server(channel).key(KEY))


def test_the_end(pair):
    channel, there = pair
    there.send(KEY.pack() + DONE)
    there.shutdown(socket.SHUT_WR)
    run(client(channel).close(KEY))
    assert there.recv(1000) == KEY.pack() + DONE
    assert there.recv(1) == b""
