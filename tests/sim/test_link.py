"""Links to other simulators, against an independent end in Python, with the stand-in as the engine."""

import contextlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import simbricks_end as oracle
from stand_in import R, stand_in
from verbena.sim.link import BELLS, LinkError, Listener, connect, listen
from verbena.sim.world import LINK, ProtocolError, World

pytestmark = pytest.mark.verilator

P = 6400
"""Picoseconds of a cycle."""
L = 500_000
START = 10
"""Cycles of the reset before a world takes part in time."""

PEER = 0x02_00_00_00_00_77
OWN = 0x02_56_42_00_00_01


@pytest.fixture
def path(tmp_path):
    return tmp_path / "link"


@contextlib.contextmanager
def threads(*calls):
    """Runs calls beside the test; their results come when the block ends."""
    results = [None] * len(calls)

    def work(i):
        try:
            results[i] = calls[i]()
        except BaseException as error:
            results[i] = error

    running = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(calls))]
    for thread in running:
        thread.start()
    yield results
    for thread in running:
        thread.join(30)
        assert not thread.is_alive()


def meet_as_listener(path, **options):
    """This end's link, and the oracle that listens."""
    session = oracle.listen(path, **options)
    next(session)
    ends = []

    def serve():
        try:
            next(session)
        except StopIteration as stop:
            ends.append(stop.value)

    with threads(serve):
        link = connect(path, patience=10)
    return link, ends[0]


def meet_as_connector(path, *, options=None, **intro):
    """This end's link, that listens, and the oracle."""
    with threads(lambda: oracle.connect(path, **intro)) as ends:
        link = listen(path, patience=10, **(options or {}))
    return link, ends[0]


@pytest.fixture(params=[meet_as_listener, meet_as_connector])
def both(request, path):
    """A world with the stand-in, and the oracle, which has promised nothing yet."""
    link, end = request.param(path)
    with World(design=stand_in(), link=link) as world:
        yield world, end
    end.close()


def frame(to, size=100):
    return to.to_bytes(6, "big") + bytes(i & 255 for i in range(6, size))


def send(world, size, count=1, to=PEER):
    a = world.adapters[0]
    mac = int.from_bytes(to.to_bytes(6, "big"), "little")
    a.write32(R.MAC, mac & 0xFFFFFFFF)
    a.write32(R.MAC + 4, mac >> 32)
    a.write32(R.SEND, size | count << 16)


@pytest.fixture(autouse=True)
def _ends():
    yield
    oracle.close_all()


class Stopped:
    """A thread in which a world advances."""

    def __init__(self, world, cycles):
        self._thread = threading.Thread(target=world.advance, args=(cycles, 0), daemon=True)
        self._thread.start()

    def processor_time(self):
        """Seconds that this thread, and no other of the process, was on a core."""
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def settle(self, world):
        """The cycle at which the world stands once it goes no further."""
        last = -1
        while (now := world.cycles) != last:
            last = now
            time.sleep(0.2)
        return now

    def join(self):
        self._thread.join(30)
        assert not self._thread.is_alive()


def test_the_listeners_introduction(path):
    link, end = meet_as_connector(path)
    assert len(end.intro) == 84
    fields = struct.unpack("<10QI", end.intro)
    assert fields[0] == 1
    assert fields[1] == 3
    assert fields[2:5] == (0, 4288, 1024)
    assert fields[5:8] == (4288 * 1024, 4288, 1024)
    assert fields[8:] == (1, 80, BELLS ^ os.getpid())
    assert not path.exists()
    link.close()
    end.close()


def test_the_connectors_introduction(path):
    link, end = meet_as_listener(path)
    head = bytes.fromhex("01" + 7 * "00" + "03" + 7 * "00" + "01" + 7 * "00" + "20" + 7 * "00")
    assert end.intro == head + (BELLS ^ os.getpid()).to_bytes(4, "little")
    link.close()
    end.close()


@pytest.mark.parametrize("role", [meet_as_listener, meet_as_connector])
@pytest.mark.parametrize("flags", [1, 3])
def test_peers_that_synchronize_are_taken(role, flags, path):
    link, end = role(path, flags=flags)
    link.close()
    end.close()


@pytest.mark.parametrize("role", [meet_as_listener, meet_as_connector])
@pytest.mark.parametrize(
    ("intro", "why"),
    [
        ({"flags": 0}, "the peer does not synchronize, and this end must: start it with sync=true"),
        ({"version": 2}, "the peer speaks version 2 of SimBricks' interface, this end version 1: take a SimBricks of"),
        ({"protocol": 2}, "the peer's end is of the protocol PCIe, not network: give it another socket"),
        ({"protocol": 77}, "the peer's end is of the protocol 77, not network"),
    ],
)
def test_refusals(role, intro, why, path):
    with pytest.raises(LinkError) as caught:
        role(path, **intro)
    assert str(caught.value).count("\n") == 0
    assert why in str(caught.value)
    assert not path.exists()


@pytest.mark.parametrize("role", [meet_as_listener, meet_as_connector])
def test_an_introduction_without_an_upper_part(role, path):
    link, end = role(path, upper=False)
    link.close()
    end.close()


def test_slots_that_are_too_small(path):
    with pytest.raises(LinkError, match=r"slots of 1600 bytes are too small for MTU 4096: have the listener make them "
                       r"4238 bytes or longer, or use an MTU of 1024"):  # fmt: skip
        meet_as_listener(path, slot_bytes=1600)


def test_slots_that_do_for_a_smaller_mtu(path):
    session = oracle.listen(path, slot_bytes=1600)
    next(session)
    with threads(lambda: list(session)):
        connect(path, mtu=1024, patience=10).close()


def test_rings_beyond_the_memory(path):
    session = oracle.listen(path)
    next(session)

    def shrink():
        with contextlib.suppress(OSError):
            list(session)

    original = os.ftruncate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "ftruncate", lambda fd, size: original(fd, size - 4096))
        with threads(shrink), pytest.raises(LinkError, match="are not in the memory of"):
            connect(path, patience=10)


def test_nobody_comes(path):
    with pytest.raises(LinkError, match=r"nobody connected to .*link for 0\.2 s"):
        listen(path, patience=0.2)
    assert not path.exists()
    with pytest.raises(LinkError, match=r"nobody answered at .*link for 0\.2 s"):
        connect(path, patience=0.2)


def test_the_connector_may_be_first(path):
    with threads(lambda: connect(path, patience=10)) as links:
        time.sleep(0.2)
        listen(path, patience=10).close()
    links[0].close()


def test_a_stale_socket_is_taken_away(path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    with threads(lambda: connect(path, patience=10)) as links:
        listen(path, patience=10).close()
    links[0].close()


def test_a_living_listener_stays_and_is_not_disturbed(path):
    with Listener(path) as first:
        with pytest.raises(LinkError, match=r"another program listens at .*: end it, or choose another path"):
            Listener(path)
        with threads(lambda: connect(path, patience=10)) as links:
            first.accept(10).close()
        links[0].close()


def test_a_path_that_is_too_long(tmp_path):
    with pytest.raises(LinkError, match="longer than 107 bytes"):
        Listener(tmp_path / ("x" * 108))


@pytest.mark.parametrize("options", [{"latency_ns": 0}, {"interval_ns": 0}, {"interval_ns": 501}])
def test_times_that_make_no_sense(options, path):
    with pytest.raises(ValueError, match="_ns must be more than 0"):
        Listener(path, **options)


@pytest.mark.parametrize("horizon", [100 * P, 100 * P - 1, 100 * P + 1])
def test_a_world_stands_where_its_peers_promise_ends(both, horizon):
    """Before the cycle of the promise: what arrives then is put before the engine in the cycle ahead."""
    world, end = both
    assert world.cycles == START
    run = Stopped(world, 300)
    assert run.settle(world) == START
    end.sync(horizon - L)
    assert run.settle(world) == -(-horizon // P) - 1
    end.sync(10_000 * P)
    run.join()
    assert world.cycles == START + 300


def test_what_a_world_promises(both):
    """A SYNC at once, then each half latency at the latest, each a latency ahead, never back."""
    world, end = both
    end.sync(10_000 * P)
    world.advance(2000, stop=0)
    messages = end.drain()
    assert {kind for kind, _, _ in messages} == {oracle.SYNC}
    times = [at for _, at, _ in messages]
    assert times[0] == START * P + L
    assert all(0 < b - a <= L // 2 + P for a, b in itertools.pairwise(times))
    assert times[-1] > (START + 2000) * P + L - L // 2 - P


def test_a_frame_appears_in_its_cycle_and_the_answer_a_latency_later(both):
    world, end = both
    a = world.adapters[0]
    end.sync(200 * P)  # for the setup
    a.write32(R.MAC, int.from_bytes(PEER.to_bytes(6, "big"), "little") & 0xFFFFFFFF)
    a.write32(R.MAC + 4, int.from_bytes(PEER.to_bytes(6, "big"), "little") >> 32)
    a.write32(R.ECHO, 1)
    assert world.cycles < 200
    answers = []
    for at in (1000 * P - L, 2000 * P - L + 1, 3000 * P - L - 1):  # due in 1000, 2001 and 3000
        end.send(at, frame(OWN))
        end.sync(at + 900 * P)
        world.advance(-(-at // P) + 700 - world.cycles, stop=0)
        answers += [(t, f) for kind, t, f in end.drain() if kind == oracle.PACKET]
    (first, data), (second, _), (third, _) = answers
    assert data[12:] == frame(OWN)[12:]
    assert (first - L) % P == 0
    delay = (first - L) // P - 1000
    # The last of 13 beats in, at least.
    assert 12 <= delay < 40
    assert [(t - L) // P for t in (second, third)] == [2001 + delay, 3000 + delay]


def test_many_frames_through_a_ring_that_is_often_full(path):
    """With a ring of 8 slots, read slowly; nothing is lost and the order stays."""
    link, end = meet_as_listener(path, slots=64, back=(4352, 8), gap=96)
    with World(design=stand_in(), link=link) as world:
        end.sync(200_000 * P)
        send(world, 200, 100)
        run = Stopped(world, 10_000)
        frames, times = [], []
        limit = time.monotonic() + 30
        while len(frames) < 100 and time.monotonic() < limit:
            time.sleep(0.001)
            if (message := end.take()) is not None:
                kind, at, data = message
                times.append(at)
                frames += [data] if kind == oracle.PACKET else []
        assert frames == [frame(PEER, 200)] * 100
        assert times == sorted(times)
        with threads(lambda: [end.drain() or time.sleep(0.001) for _ in range(500)]):
            run.join()
    end.close()


def test_the_incoming_ring_goes_round(both):
    world, end = both
    a = world.adapters[0]
    sent, at = 0, 1000 * P
    end.sync(0)
    count = 3 * end.out[2]
    run = Stopped(world, 200 * count)
    while sent < count:
        if end.send(at, frame(OWN, 64)):
            sent, at = sent + 1, at + 100 * P
        end.drain()
    while not end.sync(at + 1_000_000 * P):
        end.drain()
    over = threading.Event()

    def drain():
        while not over.wait(0.001):
            end.drain()

    with threads(drain):
        try:
            run.join()
            assert a.read32(R.RECEIVED) == count
        finally:
            over.set()


def test_a_frame_that_does_not_fit_is_loud(path):
    session = oracle.listen(path, slot_bytes=1600)
    next(session)
    ends = []

    def serve():
        try:
            next(session)
        except StopIteration as stop:
            ends.append(stop.value)

    with threads(serve):
        link = connect(path, mtu=1024, patience=10)
    with World(design=stand_in(), link=link) as world:
        ends[0].sync(100_000 * P)
        send(world, 1536)
        world.advance(1000, stop=0)
        assert [f for kind, _, f in ends[0].drain() if kind == oracle.PACKET] == [frame(PEER, 1536)]
        send(world, 1537)
        with pytest.raises(ProtocolError, match="a frame of 1537 bytes does not fit the link, whose slots hold 1536"):
            world.advance(1000, stop=0)
    ends[0].close()


def test_terminate_is_taken_in_order_and_frees_time(both):
    """Its time wraps; the frame ahead of it still counts."""
    world, end = both
    a = world.adapters[0]
    end.send(200 * P - L, frame(OWN, 64))
    end.put(oracle.TERMINATE, (1 << 64) - 1)
    assert world.link == "up"
    world.advance(5000, stop=0)
    # It came to the end of the peer's time, and stopped there to tell.
    assert world.link == "ended"
    assert world.events & LINK
    assert world.advance(5000, stop=0) == 5000
    assert a.read32(R.RECEIVED) == 1


def test_a_peer_that_goes_without_a_word(both):
    world, end = both
    end.send(300 * P - L, frame(OWN, 64))
    end.sock.close()
    world.advance(5000, stop=0)
    assert world.link == "gone"
    world.advance(5000, stop=0)
    assert world.adapters[0].read32(R.RECEIVED) == 1


def test_a_world_that_ends_says_so(both):
    world, end = both
    world.close()
    assert end.drain()[-1][:2] == (oracle.TERMINATE, L - 1)
    end.sock.settimeout(5)
    assert end.sock.recv(1) == b""


KILLED = """
import sys, threading
from verbena.sim.link import connect
from verbena.sim.world import World
from stand_in import stand_in
world = World(design=stand_in(), link=connect(sys.argv[1], patience=10))
print("here", flush=True)
world.advance(1 << 40, stop=0)
"""


@contextlib.contextmanager
def started(script, *arguments):
    """A process, which is killed at the end."""
    folder = str(Path(__file__).parent)
    environment = os.environ | {"PYTHONPATH": folder}
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_is_killed(how, path):
    with started(KILLED, path) as peer, World(design=stand_in(), link=listen(path, patience=30)) as world:
        assert peer.stdout.readline() == "here\n"
        world.advance(2000, stop=0)
        assert world.link == "up"
        peer.send_signal(how)
        while world.link == "up":
            world.advance(1000, stop=0)
        assert world.link == ("gone" if how == signal.SIGKILL else "ended")
        _, errors = peer.communicate(timeout=20)
    assert ("KeyboardInterrupt" in errors) == (how == signal.SIGINT)


def test_ctrl_c_ends_a_wait(path):
    """The peer says nothing: the wait is left all the same."""
    session = oracle.listen(path)
    next(session)
    with started(KILLED, path) as waiting:
        with threads(lambda: list(session)):
            pass
        assert waiting.stdout.readline() == "here\n"
        time.sleep(0.3)
        waiting.send_signal(signal.SIGINT)
        _, errors = waiting.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors


def holds_no_core(world, end):
    run = Stopped(world, 100)
    time.sleep(0.3)
    before, start = run.processor_time(), time.monotonic()
    time.sleep(0.5)
    assert (run.processor_time() - before) / (time.monotonic() - start) < 0.2
    end.sync(10_000 * P)
    run.join()


def test_who_waits_holds_no_core(both):
    holds_no_core(*both)


def test_nor_does_who_sleeps_until_it_is_woken(path):
    link, end = meet_as_listener(path, bells=os.getpid())
    with World(design=stand_in(), link=link) as world:
        holds_no_core(world, end)


@pytest.mark.parametrize("role", [meet_as_listener, meet_as_connector])
def test_an_end_that_sleeps_is_woken(role, path):
    """Each says that it sleeps, and the other one sends it a byte with its next message, once."""
    link, end = role(path, bells=os.getpid())
    with World(design=stand_in(), link=link) as world:
        run = Stopped(world, 200)
        limit = time.monotonic() + 30
        while not end.memory[end.peers_bell]:
            assert time.monotonic() < limit
        end.sock.setblocking(False)
        with pytest.raises(BlockingIOError):  # this end did not say that it sleeps
            end.sock.recv(1)
        end.memory[end.bell] = 1
        end.sync(START * P)
        end.sock.sendall(b"\0")
        end.sock.settimeout(30)
        assert len(end.sock.recv(100)) == 1
        assert end.memory[end.bell] == 0
        end.sync(10_000 * P)
        end.sock.sendall(b"\0")
        run.join()
        assert end.memory[end.peers_bell] == 0
        assert world.link == "up"


@pytest.mark.parametrize("role", [meet_as_listener, meet_as_connector])
def test_a_proxy_hears_no_bell(role, path):
    """An introduction that tells of another process than the one at the socket has been handed on."""
    link, end = role(path, bells=os.getpid() + 1)
    with World(design=stand_in(), link=link) as world:
        end.memory[end.bell : end.bell + 1] = b"\1"
        end.sync(1000 * P)
        world.advance(500, stop=0)
        end.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            end.sock.recv(1)


def traffic(path, latencies):
    """Two linked worlds whose stand-ins send to each other; what each received, by cycle, as its capture tells."""
    results = {}

    def play(name, link, to):
        with World(design=stand_in(), link=link) as world:
            file = path.with_name(f"{path.name}-{name}.pcapng")
            world.capture(file)
            world.advance(1000 - world.cycles, stop=0)
            send(world, 200 if name == "a" else 90, 50, to)
            world.advance(6000 - world.cycles, stop=0)
            world.capture(None)
            results[name] = file.read_bytes()

    with threads(
        lambda: play("a", listen(path, patience=10, latency_ns=latencies[0]), 2),
        lambda: play("b", connect(path, patience=10, latency_ns=latencies[1], interval_ns=latencies[1]), 1),
    ) as ended:
        pass
    assert ended == [None, None]
    return results


@pytest.mark.parametrize("latencies", [(512, 512), (20, 900)])
def test_runs_are_equal(latencies, tmp_path):
    assert traffic(tmp_path / "one", latencies) == traffic(tmp_path / "two", latencies)
