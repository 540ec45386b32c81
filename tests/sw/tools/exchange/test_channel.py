"""Bytes to and from a peer, while a device works."""

import socket
import struct

import pytest
from verbena.sw.tools.exchange.channel import QUANTUM, Channel, Listener, connect
from verbena.sw.tools.session import WORKED, ToolError, run


class Device:
    """Something that works, and counts how long."""

    def __init__(self, busy=True):
        self.cycles = []
        self.busy = busy

    def work(self, cycles):
        self.cycles.append(cycles)
        return self.busy


@pytest.fixture
def device():
    return Device()


@pytest.fixture
def pair(device):
    """A channel and the socket at its other end."""
    here, there = socket.socketpair()
    with Channel(here, device.work, patience=10) as channel, there:
        yield channel, there


def later(turns, call, *arguments):
    """A session that calls something after some turns."""
    for _ in range(turns):
        yield
    call(*arguments)


def test_what_comes_in_pieces_is_put_together(pair, device):
    channel, there = pair
    got, *_ = run(channel.receive(6, "six bytes"), later(2, there.send, b"abc"), later(5, there.send, b"defgh"))
    assert got == b"abcdef"
    assert device.cycles
    assert set(device.cycles) == {QUANTUM}
    assert run(channel.receive(2, "two bytes")) == [b"gh"]


def test_what_is_here_unread_speaks_and_is_not_lost(pair):
    channel, there = pair
    assert not channel.speaks()
    there.send(b"ab")
    assert channel.speaks()
    assert run(channel.receive(1, "a byte")) == [b"a"]
    assert channel.speaks()
    assert run(channel.receive(1, "a byte")) == [b"b"]
    assert not channel.speaks()
    there.close()
    assert not channel.speaks()


def test_who_waits_leaves_time_to_who_works(pair, device):
    channel, there = pair

    def working():
        for _ in range(5):
            yield WORKED
        there.send(b"x")
        yield WORKED

    run(working(), channel.receive(1, "a byte"))
    assert device.cycles == []


@pytest.mark.parametrize(("took", "wait"), [(0, 0.001), (0.25, 2)])
def test_a_device_without_work_is_given_a_rest(monkeypatch, took, wait):
    """The longer, the longer it takes it to find that it has none."""
    here, there = socket.socketpair()
    waited, now = [], [0.0]

    def work(cycles):
        now[0] += took
        return False

    def rest(reading, writing, _, seconds):
        waited.append((reading, writing, seconds))
        there.send(b"x")

    monkeypatch.setattr("select.select", rest)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with Channel(here, work) as channel, there:
        run(channel.receive(1, "a byte"))
    assert waited == [([here], [], wait)]


def test_much_is_sent_in_pieces(pair):
    channel, there = pair
    data = bytes(range(256)) * 8192
    got = bytearray()

    def reader():
        while len(got) < len(data):
            got.extend(there.recv(1 << 16))
            yield

    run(channel.send(data), reader())
    assert got == data


def test_a_peer_that_closes_early(pair):
    channel, there = pair
    there.send(b"abc")
    there.close()
    with pytest.raises(ToolError, match="closed the connection after 3 of 16 bytes of the version"):
        run(channel.receive(16, "the version"))


def test_a_connection_that_is_reset(device):
    with Listener(0, "127.0.0.1") as listener:
        there = socket.create_connection(("127.0.0.1", listener.port))
        (channel,) = run(listener.accept(device.work))
    there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    there.close()
    with channel:
        with pytest.raises(ToolError, match="closed the connection after 0 of 1 bytes"):
            run(channel.receive(1, "a byte"))
        with pytest.raises(ToolError, match="does not take what is sent"):
            run(channel.send(b"x"))


def test_a_silent_peer(pair, monkeypatch):
    channel, _ = pair
    now = iter(range(100))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    with pytest.raises(ToolError, match="waited 10 s in vain for the MTU"):
        run(channel.receive(2, "the MTU"))


def test_check_tells_of_a_peer_that_is_gone(pair):
    channel, there = pair
    channel.check()
    there.send(b"x")
    channel.check()
    there.close()
    channel.check()  # what it has said before must be read first
    assert run(channel.receive(1, "a byte")) == [b"x"]
    with pytest.raises(ToolError, match="in the midst of the test"):
        channel.check()


def test_finish_waits_for_the_peer(pair):
    channel, there = pair
    run(channel.finish(), later(3, there.close))
    assert there.fileno() == -1


def test_finish_tells_the_peer_and_does_not_wait_for_ever(pair, monkeypatch):
    channel, there = pair
    now = iter(range(100))
    monkeypatch.setattr("time.monotonic", lambda: next(now) / 4)
    run(channel.finish(seconds=2))
    assert there.recv(1) == b""


def test_finish_waits_as_long_as_it_takes(pair, monkeypatch):
    """Simulated time may be slow: a peer's timeout of milliseconds takes minutes."""
    channel, there = pair
    now = iter(range(0, 100_000, 10))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    run(channel.finish(seconds=None), later(50, there.close))
    assert there.fileno() == -1


def test_server_and_client(device):
    with Listener(0, "127.0.0.1") as listener:
        near, far = run(listener.accept(device.work), connect("127.0.0.1", listener.port, device.work))
    with near, far:
        run(near.send(b"hello"))
        assert run(far.receive(5, "a greeting")) == [b"hello"]


def test_no_client_comes(device):
    with Listener(0, "127.0.0.1") as listener, pytest.raises(ToolError, match="in vain for a client"):
        run(listener.accept(device.work, patience=0.01))


def test_nobody_listens(device):
    with Listener(0, "127.0.0.1") as listener:
        port = listener.port
    with pytest.raises(ToolError, match=f"cannot connect to 127.0.0.1 port {port}: ECONNREFUSED"):
        run(connect("127.0.0.1", port, device.work))


def test_a_host_that_is_none(device):
    with pytest.raises(ToolError, match=r"no address of 'no\.such\.host\.invalid'"):
        run(connect("no.such.host.invalid", 1, device.work))
