"""The cable itself, between a tap and a socket that nobody is behind."""

import contextlib
import socket
import time
from collections import deque

import pytest
from cable import Cable, Faults
from frames import ADAPTER, GUEST, Capture
from rocegram import rc_frame

HERE, THERE = (0x025642000001, 0x0A000001), (0x0256420000F0, 0x0A0000F0)
WRITE_ONLY, READ_REQUEST, ACKNOWLEDGE = 0x0A, 0x0C, 0x11
ARP = bytes(6) + bytes(6) + b"\x08\x06" + bytes(28)


def request(psn, opcode=WRITE_ONLY, length=64):
    return rc_frame(HERE, THERE, 17, psn, opcode, bytes(12) + length.to_bytes(4, "big"))


class Ends:
    """A cable, what its tap is to send and has got, and the guest's end of its socket."""

    def __init__(self, folder):
        self.sent, self.got = deque(), []
        self.socket, self.near = socket.socketpair()
        self.capture = Capture(folder / "cable.pcapng")
        self.cable = Cable(self, self.near, self.capture)

    def close(self):
        for end in (self.socket, self.near, self.capture):
            end.close()

    def receive(self):
        return self.sent.popleft() if self.sent else None

    def send(self, frame):
        self.got.append(frame)

    def across(self, *frames):
        """What the guest gets of frames that the adapter sends."""
        self.sent += frames
        self.cable.exchange()
        return self.delivered()

    def delivered(self):
        data = b""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                data += self.socket.recv(1 << 16)
        found = []
        while data:
            length = int.from_bytes(data[:4], "big")
            found.append(data[4 : 4 + length])
            data = data[4 + length :]
        return found


@pytest.fixture
def ends(tmp_path):
    with contextlib.closing(Ends(tmp_path)) as both:
        yield both


def test_frames_pass_in_order_and_short_ones_are_padded(ends):
    frames = [request(psn) for psn in range(3)]
    assert ends.across(*frames, ARP) == [*frames, ARP.ljust(60, b"\0")]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in (*frames, ARP))
    for byte in (stream[:5], stream[5:200], stream[200:]):
        ends.socket.sendall(byte)
        ends.cable.exchange()
    assert ends.got == [*frames, ARP.ljust(60, b"\0")]
    assert ends.cable.frames == 6


def test_faults_hit_the_frames_they_are_aimed_at(ends):
    a, b, c, d, e, f = (request(psn) for psn in range(6))
    ends.cable.harm(
        aimed=[(ADAPTER, "lose", 1), (ADAPTER, "duplicate", 2), (ADAPTER, "corrupt", 3), (GUEST, "lose", 0)]
    )
    *others, last = ends.across(ARP, a, b, c, d)
    assert others == [ARP.ljust(60, b"\0"), a, c, c]
    assert last != d
    assert (len(last), last[:14]) == (len(d), d[:14])
    ends.cable.harm(aimed=[(ADAPTER, "reorder", 0)])
    got = ends.across(e, a, b, f)
    assert sorted(got) == sorted([e, a, b, f])
    assert got[0] == a
    assert ends.cable.harmed == {"lose": 1, "duplicate": 1, "corrupt": 1, "reorder": 1}


def test_who_is_not_overtaken_goes_on_alone(ends):
    ends.cable.harm(aimed=[(ADAPTER, "reorder", 0)])
    assert ends.across(request(0)) == []
    time.sleep(0.05)
    assert ends.across() == [request(0)]


def test_delays(ends):
    ends.cable.harm(delays={ADAPTER: 0.02})
    assert ends.across(request(0), request(1)) == []
    time.sleep(0.04)
    assert ends.across() == [request(0), request(1)]


def test_a_seed_repeats_what_chance_does(ends):
    frames = [request(psn) for psn in range(200)]
    chances = {ADAPTER: Faults(lose=0.1, duplicate=0.1, corrupt=0.1)}
    runs = []
    for seed in (1, 1, 2):
        ends.cable.harm(seed, faults=chances)
        runs.append(ends.across(*frames))
    assert runs[0] == runs[1] != runs[2]
    assert 150 < len(runs[0]) < 250


def test_what_is_requested_again_counts(ends):
    ends.cable.begin(mtu=256)
    ends.across(request(0xFFFFFE), request(0xFFFFFF), request(0), rc_frame(HERE, THERE, 17, 0, ACKNOWLEDGE, bytes(4)))
    assert (ends.cable.frames, ends.cable.retries) == (4, 0)
    ends.across(request(1, READ_REQUEST, 1000), request(5))
    assert ends.cable.retries == 0
    ends.across(request(3, READ_REQUEST, 488), request(5))
    assert ends.cable.retries == 2
    ends.cable.begin()
    ends.across(request(0))
    assert (ends.cable.frames, ends.cable.retries) == (1, 0)
