"""Programs that each have an adapter, as processes, over `verbena sim`."""

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from network_programs import await_listener, free_port, network, programs
from stand_in import R, stand_in
from verbena.sim.attach import Plug
from verbena.sim.world import World

__all__ = ["network", "programs"]  # fixtures

pytestmark = pytest.mark.verilator

PINGPONG = ("-m", "verbena.sw.tools.pingpong", "-n", "10", "-s", "2000", "-c")


HOLD = """
import sys, time
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
try:
    context = Context(name=sys.argv[1])
except PyverbsRDMAError as error:
    sys.exit(str(error))
print("here", flush=True)
time.sleep(600)
"""


def call(programs, port, *options, **environment):
    """Starts a client when the server listens; what it prints."""
    await_listener(port)
    client = programs.start(*PINGPONG, "-p", port, *options, "127.0.0.1", **environment)
    out, errors = client.communicate(timeout=100)
    assert client.returncode == 0, errors
    return out


def pingpong(programs, *options, **environment):
    """What server and client print; the server is first."""
    port = free_port()
    server = programs.start(*PINGPONG, *options, "-p", port, **environment)
    server.stderr.readline()  # of the seed: it has its adapter
    client = call(programs, port, *options, **environment)
    out, errors = server.communicate(timeout=100)
    assert server.returncode == 0, errors
    return out, client


def test_pingpong_in_two_terminals(network, programs):
    network()
    server, client = pingpong(programs)
    assert "GID 0000:0000:0000:0000:0000:ffff:0a00:0001" in server.splitlines()[0]
    assert "GID 0000:0000:0000:0000:0000:ffff:0a00:0002" in client.splitlines()[0]
    for out in (server, client):
        assert re.search(r"^40000 bytes in 0\.\d+ seconds = \d+\.\d+ Mbit/sec$", out, re.MULTILINE)


def test_two_programs_without_a_switch(programs, tmp_path):
    server = programs.start("-c", HOLD, "sim0", VERBENA_SIM=f"listen:{tmp_path / 'wire'}")
    client = programs.start("-c", HOLD, "sim1", VERBENA_SIM=f"connect:{tmp_path / 'wire'}")
    assert [process.stdout.readline() for process in (server, client)] == ["here\n"] * 2


@pytest.mark.parametrize("how", ["killed", "at its end"])
def test_the_end_of_the_cable_is_an_event(how, programs, tmp_path):
    """`ibv_asyncwatch` waits for it while the other program lives, and ends when nothing more can come."""
    watch = programs.start(
        "-m", "verbena.sw.cli", "ibv_asyncwatch", "-d", "sim0", VERBENA_SIM=f"listen:{tmp_path / 'wire'}"
    )
    stay = HOLD.replace("time.sleep(600)", "sys.stdin.readline()\ncontext.advance(20000)\ncontext.close()")
    other = programs.start("-c", stay, "sim1", VERBENA_SIM=f"connect:{tmp_path / 'wire'}")
    assert other.stdout.readline() == "here\n"
    assert watch.stdout.readline().startswith("sim0: async event FD ")
    assert watch.poll() is None
    if how == "killed":
        other.kill()
    else:
        other.communicate("\n", timeout=60)
    out, errors = watch.communicate(timeout=60)
    assert out == "  event_type IBV_EVENT_PORT_ERR (10), port 1\n"
    assert errors.endswith("no event can come any more\n")
    assert watch.returncode == 0


def test_a_program_may_connect_straight_to_a_socket_of_the_switch(network, programs, tmp_path):
    """As a proxy does, behind which it is on another machine: `sim1` is the switch's."""
    network()
    port = free_port()
    server = programs.start(*PINGPONG, "-p", port, "-d", "sim0")
    server.stderr.readline()  # of the seed: it has its adapter
    out = call(programs, port, VERBENA_SIM=f"connect:{tmp_path / 'net' / 'sim1'}")
    assert "GID 0000:0000:0000:0000:0000:ffff:0a00:0002" in out.splitlines()[0]
    assert server.communicate(timeout=100)[0].count("usec/iter") == 1


def test_devices_are_listed_without_a_peer(programs, tmp_path):
    """Nobody need be at the other end, and nothing is opened."""
    for role, number in (("listen", 0), ("connect", 1)):
        where = f"{role}:{tmp_path / 'wire'}"
        lister = programs.start("-m", "verbena.sw.cli", "ibv_devices", VERBENA_SIM=where)
        out, errors = lister.communicate(timeout=60)
        assert (lister.returncode, errors) == (0, "")
        assert out.splitlines()[2:] == [f"    sim{number}            \t005642fffe00000{number + 1}"]


@pytest.mark.parametrize(("role", "other", "name"), [("listen", "connect", "sim0"), ("connect", "listen", "sim1")])
def test_who_waits_for_the_other_end_says_so(programs, tmp_path, role, other, name):
    wire = tmp_path / "wire"
    program = programs.start("-c", HOLD, name, VERBENA_SIM=f"{role}:{wire}")
    assert program.stderr.readline() == (
        f"verbena: {name} waits for the program at the other end: start it with VERBENA_SIM={other}:{wire}\n"
    )


WAIT = """
import sys
from verbena.sim.pair import End, join
from verbena.sw.verbs.addr import GID
from verbena.sw.verbs.cq import CQ, CompChannel
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.qp import QP, QPCap, QPInitAttr
from verbena.sw.verbs.wr import SGE, RecvWR

end = End("sim1", 4096)
channel = CompChannel(end.context)
cq = CQ(end.context, 64, channel=channel)
cap = QPCap(max_send_wr=4, max_recv_wr=64, max_send_sge=1, max_recv_sge=1)
qp = QP(end.pd, QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap))
print(qp.qp_num, flush=True)
class Far: qp_num = int(sys.stdin.readline())
join(qp, Far, GID("::ffff:10.0.0.1"), timeout=6, retry_cnt=3)
for i in range(64):
    qp.post_recv(RecvWR(i, 1, [SGE(end.mr.buf, 256, end.mr.lkey)]))
cq.req_notify()
print("ready", flush=True)
sys.stdin.readline()
channel.get_cq_event(cq)
cq.ack_events(1)
print("woken", len(cq.poll(64)[1]) > 0, flush=True)
"""


def test_who_waits_for_an_event_waits_for_the_peer(network, talking):
    """An adapter that has nothing to do may yet get a message from the other process."""
    network()
    a, b = talking(3, None, WAIT)
    out, errors = b.communicate(timeout=100)
    assert out == "woken True\n", errors
    a.kill()


@pytest.mark.slow
def test_a_bad_wire(network, programs):
    """Who has all that it waits for stays until the other has, too: an acknowledgement may be lost."""
    network("--lose", "0.05", "--seed", "5")
    pingpong(programs, "-n", "4")


def test_two_programs_that_want_one_adapter(network, programs):
    network("-n", "3")
    first = programs.start("-c", HOLD, "sim1")
    assert first.stdout.readline() == "here\n"
    second = programs.start("-c", HOLD, "sim1")
    _, errors = second.communicate(timeout=30)
    assert second.returncode == 1
    assert re.search(r"^Failed to open device sim1: another program has sim1 of .*; free are: sim0, sim2", errors, re.M)
    first.kill()
    first.communicate()
    for _ in range(50):  # it is free once the switch has seen it
        third = programs.start("-c", HOLD, "sim1")
        if third.stdout.readline() == "here\n":
            break
    else:
        pytest.fail("sim1 stays in use")


def test_no_switch_where_one_should_be(programs, tmp_path):
    program = programs.start("-c", HOLD, "sim0")
    _, errors = program.communicate(timeout=30)
    assert f"Failed to open device sim0: no switch runs at {tmp_path / 'net'}: type `verbena sim" in errors


TRAFFIC = """
import sys
from verbena.sim.pair import End, join
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

end = End(sys.argv[1], 4096)
print(end.qp.qp_num, flush=True)
peer = "10.0.0." + sys.argv[2]
class Far: qp_num = int(sys.stdin.readline())
from verbena.sw.verbs.addr import GID
gid = GID("::ffff:" + peer)
join(end.qp, Far, gid, timeout=6, retry_cnt=3)
sge = [SGE(end.mr.buf, 256, end.mr.lkey)]
if sys.argv[3] == "receive":
    for i in range(64):
        end.qp.post_recv(RecvWR(i, 1, sge))
print("ready", flush=True)
sys.stdin.readline()
count = 0
while count < int(sys.argv[4]):
    if sys.argv[3] == "send":
        end.qp.post_send(SendWR(count, ibv_wr_opcode.IBV_WR_SEND, num_sge=1, sg=sge,
                                send_flags=ibv_send_flags.IBV_SEND_SIGNALED))
    found = []
    while not found:
        found = end.cq.poll()[1]
    if found[0].status:
        print("status", int(found[0].status), flush=True)
        break
    count += 1
    print("done", count, flush=True)
"""


@pytest.fixture
def talking(programs):
    """:class:`Programs` whose processes have an input."""

    def start(*arguments, **environment):
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env=programs.environment | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        programs.running.append(process)
        return process

    def say(process, text):
        process.stdin.write(f"{text}\n")
        process.stdin.flush()

    def both(sent, received, receiver=TRAFFIC):
        a = start("-c", TRAFFIC, "sim0", "2", "send", sent)
        b = start("-c", receiver, "sim1", "1", "receive", received)
        numbers = [process.stdout.readline().strip() for process in (a, b)]
        say(a, numbers[1])
        say(b, numbers[0])
        for process in (a, b):
            assert process.stdout.readline() == "ready\n"
        say(b, "")
        say(a, "")
        return a, b

    return both


def test_a_killed_peer_is_a_completion_with_an_error(network, talking):
    network()
    a, b = talking(60, 60)
    assert a.stdout.readline() == "done 1\n"
    b.send_signal(signal.SIGKILL)
    out, errors = a.communicate(timeout=100)
    # IBV_WC_RETRY_EXC_ERR
    assert out.splitlines()[-1] == "status 12", errors


def test_who_ends_lets_its_acknowledgements_go(network, talking):
    """The receiver leaves as soon as it has all; the sender's last one is complete all the same."""
    network()
    a, b = talking(5, 5)
    out, errors = b.communicate(timeout=100)
    assert out.splitlines()[-1] == "done 5", errors
    out, errors = a.communicate(timeout=100)
    assert out.splitlines()[-1] == "done 5", errors


SLEEP = """
import select, sys
from verbena.sim.pair import End, join
from verbena.sw.verbs.addr import GID
from verbena.sw.verbs.cq import CQ, CompChannel
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.qp import QP, QPCap, QPInitAttr
from verbena.sw.verbs.wr import SGE, RecvWR

end = End("sim1", 4096)
channel = CompChannel(end.context)
cq = CQ(end.context, 64, channel=channel)
cap = QPCap(max_send_wr=4, max_recv_wr=64, max_send_sge=1, max_recv_sge=1)
qp = QP(end.pd, QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap))
fd = channel.fd
print(qp.qp_num, flush=True)
class Far: qp_num = int(sys.stdin.readline())
join(qp, Far, GID("::ffff:10.0.0.1"), timeout=6, retry_cnt=3)
for i in range(64):
    qp.post_recv(RecvWR(i, 1, [SGE(end.mr.buf, 256, end.mr.lkey)]))
cq.req_notify()
print("ready", flush=True)
sys.stdin.readline()
for count in range(3):
    assert select.select([fd], [], [], 60)[0] == [fd], "nothing came"
    channel.get_cq_event(cq)
    cq.ack_events(1)
    cq.req_notify()
    print("woken", len(cq.poll(64)[1]) > 0, flush=True)
"""


def test_a_program_that_sleeps_in_select_is_woken(network, talking):
    """Nothing but the thread moves its time."""
    network()
    a, b = talking(60, None, SLEEP)
    out, errors = b.communicate(timeout=100)
    assert out.splitlines() == ["woken True"] * 3, errors
    a.kill()


BOTH_ENDS = """
import asyncio, select, sys
from verbena.sim.pair import End, connect
from verbena.sw.verbs.cq import CQ, CompChannel
from verbena.sw.verbs.libibverbs_enums import IBV_QPT_RC
from verbena.sw.verbs.qp import QP, QPCap, QPInitAttr
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

a, b = End("sim0", 4096), End("sim1", 4096)
channel = CompChannel(b.context)
cq = CQ(b.context, 64, channel=channel)
b.qps = [QP(b.pd, QPInitAttr(IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(4, 4, 1, 1)))]
connect(a, b)
fd = channel.fd

def send():
    cq.req_notify()
    b.qp.post_recv(RecvWR(3, 1, [SGE(b.mr.buf, 64, b.mr.lkey)]))
    a.qp.post_send(SendWR(4, num_sge=1, sg=[SGE(a.mr.buf, 64, a.mr.lkey)]))

def take():
    channel.get_cq_event(cq)
    cq.ack_events(1)
    print([wc.wr_id for wc in cq.poll(4)[1]], flush=True)

send()
if select.select([fd], [], [], float(sys.argv[1]))[0] != [fd]:
    sys.exit("nothing came")
take()

async def main():
    send()
    came = asyncio.Event()
    asyncio.get_running_loop().add_reader(fd, came.set)
    await asyncio.wait_for(came.wait(), float(sys.argv[1]))
    take()

asyncio.run(main())
"""


def test_a_program_with_both_ends_sleeps_in_select_or_asyncio(programs):
    """A thread moves the time of its own world, too, once it has a file that tells of events."""
    out, errors = programs.start("-c", BOTH_ENDS, 60, VERBENA_SIM="").communicate(timeout=200)
    assert out.splitlines() == ["[3]", "[3]"], errors
    out, errors = programs.start("-c", BOTH_ENDS, 0.5, VERBENA_SIM="", VERBENA_EXACT="1").communicate(timeout=200)
    assert (out, errors.splitlines()[-1]) == ("", "nothing came")


def test_a_program_that_is_alone_says_so(programs):
    port = free_port()
    server = programs.start(*PINGPONG, "-p", port, VERBENA_SIM="", VERBENA_SEED="3")
    await_listener(port)
    client = programs.start(*PINGPONG, "-p", port, "127.0.0.1", VERBENA_SIM="", VERBENA_SEED="4")
    assert "local address" in client.stdout.readline()
    assert server.stderr.readline() == (
        "verbena: this program is alone: its peer is in another process, and no switch runs. Type `verbena sim` in "
        "another terminal, and start both programs again\n"
    )


PEER_CLOSED = """
from verbena.sim.pair import End, connect

with End("sim0", 4096) as a, End("sim1", 4096) as b:
    connect(a, b)
    b.qp.close()
    for _ in range(20):
        a.cq.poll()
"""


def test_a_program_that_closes_its_own_peer_is_not_alone(programs):
    out, errors = programs.start("-c", PEER_CLOSED, VERBENA_SIM="", VERBENA_SEED="3").communicate(timeout=200)
    assert (out, errors) == ("", "")


@pytest.mark.slow
def test_eight_programs(network, programs):
    """Six of them sleep, which does not stop the two others."""
    network()
    holders = []
    for i in range(6):
        holders.append(programs.start("-c", HOLD, f"sim{i}"))
    for holder in holders:
        assert holder.stdout.readline() == "here\n"
    server, client = pingpong(programs)
    assert all(holder.poll() is None for holder in holders)
    assert "0a00:0007" in server.splitlines()[0]
    assert "0a00:0008" in client.splitlines()[0]


def test_two_adapters_in_one_program(network, programs):
    network()
    script = """
from verbena.sim.pair import End, connect
a, b = End("sim0", 4096), End("sim1", 4096)
connect(a, b)
print(a.qp.qp_state, b.qp.qp_state)
"""
    program = programs.start("-c", script)
    out, errors = program.communicate(timeout=100)
    assert program.returncode == 0, errors
    assert out == "3 3\n" or "RTS" in out


@pytest.mark.parametrize(
    ("settings", "stands"),
    [
        ({"VERBENA_EXACT": "1"}, True),
        ({"VERBENA_GRACE_MS": "1000000"}, True),
        ({"VERBENA_GRACE_MS": "1"}, False),
        ({}, False),
    ],
)
def test_who_moves_the_time_of_a_program_that_is_elsewhere(settings, stands, network, programs, tmp_path):
    """A world beside it goes on without end, or only as far as the wires' delay, 157 cycles, lets it."""
    network()
    with World(design=stand_in(), first=1, link=Plug(tmp_path / "net").link("sim1")) as world:
        program = programs.start("-c", HOLD, "sim0", **settings)
        opening = threading.Thread(target=program.stdout.readline)
        opening.start()
        while opening.is_alive():  # it needs this world's time
            world.move(1000, 20)
        if stands:
            assert sum(world.move(1000, 100) for _ in range(5)) <= 200
            return
        passed, limit = 0, time.monotonic() + 60
        while passed < 5000:
            passed += world.move(1000, 20)
            assert time.monotonic() < limit


def test_adapters_of_different_clocks(network, tmp_path):
    """Frames cross, and the times of both stay together."""
    network()
    plug = Plug(tmp_path / "net")
    fast = World(design=stand_in(), link=plug.link("sim0"), clock_hz=156.25e6)
    slow = World(design=stand_in(), first=1, link=plug.link("sim1"), clock_hz=100e6)
    with fast, slow:
        starts = fast.time_ns, slow.time_ns

        def play():
            mac = int.from_bytes(slow.adapters[0].mac.to_bytes(6, "big"), "little")
            fast.adapters[0].write32(R.MAC, mac & 0xFFFFFFFF)
            fast.adapters[0].write32(R.MAC + 4, mac >> 32)
            fast.adapters[0].write32(R.SEND, 200 | 20 << 16)
            fast.advance(50_000, stop=0)

        playing = threading.Thread(target=play)
        playing.start()
        while playing.is_alive():
            slow.move(1000, 20)
        passed = fast.time_ns - starts[0], slow.time_ns - starts[1]
        assert passed[0] >= 320_000
        # Two cables of 500 ns, and what joining takes: neither side knows when the other one joins.
        assert abs(passed[0] - passed[1]) < 3000

        received = []
        reading = threading.Thread(target=lambda: received.append(slow.adapters[0].read32(R.RECEIVED)))
        reading.start()
        while reading.is_alive():
            fast.move(100, 20)
        assert received == [20]


def test_the_mtu_of_a_network(network, programs):
    """A port tells it, a QP with a larger one is refused, and a tool takes it."""
    network("--mtu", "1024")
    script = """
from verbena.sim.pair import End, connect
a, b = End("sim0", 4096), End("sim1", 4096)
print(a.context.query_port(1).active_mtu, flush=True)
connect(a, b, mtu=2048)
"""
    program = programs.start("-c", script)
    out, errors = program.communicate(timeout=100)
    assert out == "3\n"
    assert program.returncode == 1
    assert "the network carries an MTU of 1024, not 2048" in errors.splitlines()[-1]
    tool = programs.start("-m", "verbena.sw.cli", "ib_write_bw", "--peer", "sim1", "-n", "5", "-s", "4096")
    out, errors = tool.communicate(timeout=100)
    assert tool.returncode == 0, errors
    assert " Mtu             : 1024[B]" in out


def test_the_switch_goes(network, programs):
    switch = network()
    program = programs.start("-c", HOLD, "sim0")
    assert program.stdout.readline() == "here\n"
    switch.send_signal(signal.SIGINT)
    switch.communicate(timeout=20)
    assert switch.returncode == 0
    with contextlib.suppress(subprocess.TimeoutExpired):
        program.wait(0.3)
    assert program.poll() is None
