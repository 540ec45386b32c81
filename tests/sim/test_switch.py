"""The switch, with independent ends in Python around it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from ipaddress import IPv4Address
from types import SimpleNamespace

import pytest
import simbricks_end as oracle
from verbena.sim import switch_cli
from verbena.sim.attach import find
from verbena.sim.link import LinkError
from verbena.sim.model import build_switch
from verbena.sim.ports import Faults
from verbena.sim.switch import AdapterOptions, Network, alive
from verbena.sim.trace.capture_file import read_capture

L = 500_000
NETWORK = ("mtu", "seed", "capture", "capture_frames")
US = 1_000_000


def mac(i):
    return bytes([2, 0, 0, 0, 0, i])


def frame(to, source, size=100, kind=b"\x88\xb5"):
    head = to + source + kind
    return head + bytes(i & 255 for i in range(len(head), size))


class Wires:
    """A network with an oracle at some of its ports, in one thread: :meth:`run` lets the switch take its turns."""

    def __init__(self, folder, ports, **options):
        common = {name: options.pop(name) for name in list(options) if name not in NETWORK}
        adapters = [AdapterOptions(f"10.0.0.{i + 1}", **common) for i in range(ports)]
        self.said = []
        self.network = Network(folder, adapters, tell=self.said.append, **options)
        self.folder = folder
        self.ends = {}

    def join(self, i):
        done = []
        thread = threading.Thread(target=lambda: done.append(oracle.connect(self.folder / f"sim{i}")), daemon=True)
        thread.start()
        while thread.is_alive():
            self.network.step()
        self.ends[i] = done[0]

    def promise(self, at):
        """All ends say that they have nothing more to send before ``at``; what arrived until then, by port."""
        for end in self.ends.values():
            while not end.sync(at):
                self.network.step()
        self.network.step()
        return {i: [(t, f) for kind, t, f in end.drain() if kind == oracle.PACKET] for i, end in self.ends.items()}


@pytest.fixture
def wires(tmp_path):
    made = []

    def make(ports=3, joined=3, **options):
        made.append(Wires(tmp_path / "net", ports, **options))
        for i in range(joined):
            made[-1].join(i)
        return made[-1]

    yield make
    for each in made:
        each.network.close()
        assert not each.folder.exists()
    oracle.close_all()


def test_an_unknown_address_goes_to_all_others_and_is_learned(wires):
    w = wires()
    w.ends[0].send(1 * US, frame(mac(1), mac(0)))
    got = w.promise(2 * US)
    # A latency to the switch, and one from it.
    assert got == {0: [], 1: [(US + 2 * L, frame(mac(1), mac(0)))], 2: [(US + 2 * L, frame(mac(1), mac(0)))]}
    w.ends[1].send(3 * US, frame(mac(0), mac(1)))
    assert {i: len(f) for i, f in w.promise(4 * US).items()} == {0: 1, 1: 0, 2: 0}
    w.ends[2].send(5 * US, frame(mac(1), mac(2)))
    assert {i: len(f) for i, f in w.promise(6 * US).items()} == {0: 0, 1: 1, 2: 0}


def test_addresses_are_learned_by_value(wires):
    """Two stations behind one port."""
    w = wires()
    w.ends[0].send(1 * US, frame(mac(9), mac(0)))
    w.ends[0].send(1 * US, frame(mac(9), mac(7)))
    w.promise(2 * US)
    for i, to in enumerate((0, 7)):
        w.ends[1].send((3 + i) * US, frame(mac(to), mac(1)))
    assert {i: len(f) for i, f in w.promise(6 * US).items()} == {0: 2, 1: 0, 2: 0}


def test_broadcasts_go_to_all_others(wires):
    w = wires()
    w.ends[1].send(1 * US, frame(b"\xff" * 6, mac(1)))
    assert {i: len(f) for i, f in w.promise(2 * US).items()} == {0: 1, 1: 0, 2: 1}


def test_time_waits_for_the_last(wires):
    w = wires()
    w.ends[0].send(1 * US, frame(mac(1), mac(0)))
    w.ends[0].sync(10 * US)
    w.ends[1].sync(10 * US)
    for _ in range(5):
        w.network.step()
    assert w.network.switch.time_ns <= 500
    assert not [m for m in w.ends[1].drain() if m[0] == oracle.PACKET]
    w.ends[2].sync(10 * US)
    w.network.step()
    assert [m for m in w.ends[1].drain() if m[0] == oracle.PACKET]


def test_frames_of_one_time_go_by_their_ports(wires):
    for order in ((0, 1), (1, 0)):
        w = wires(rate_gbps=10)
        for i in order:
            w.ends[i].send(1 * US, frame(mac(2), mac(i)))
        got = w.promise(3 * US)[2]
        assert [f[6:12] for _, f in got] == [mac(0), mac(1)]
        w.network.close()


def test_a_line_has_a_rate(wires):
    """100 bytes take 124 byte times of 10 Gb/s: 99.2 ns."""
    w = wires(rate_gbps=10)
    for _ in range(4):
        w.ends[0].send(1 * US, frame(mac(1), mac(0)))
    times = [t for t, _ in w.promise(3 * US)[1]]
    assert times == [US + 2 * L + i * 99_200 for i in range(4)]


def test_a_full_queue_drops_the_last(wires):
    w = wires(rate_gbps=10, queue_bytes=250)
    for i in range(6):
        w.ends[0].send(1 * US, frame(mac(1), mac(0), 100 + i))
    # The first is on the line at once, two wait.
    assert [len(f) for _, f in w.promise(3 * US)[1]] == [100, 101, 102]
    assert w.network.switch.counters(1)["dropped"] == 3
    w.ends[0].send(4 * US, frame(mac(1), mac(0), 90))
    assert [len(f) for _, f in w.promise(6 * US)[1]] == [90]


def test_frames_are_marked_from_a_threshold_on(wires):
    """Only what is capable of it; the checksum of IPv4 stays right."""
    scapy = pytest.importorskip("scapy.all")
    w = wires(rate_gbps=1, ecn_bytes=200)

    def packet(tos, layer=scapy.IP):
        ip = scapy.IP(dst="10.0.0.2", src="10.0.0.1", tos=tos) if layer is scapy.IP else scapy.IPv6(tc=tos)
        return bytes(scapy.Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:00") / ip / (b"x" * 100))

    sent = [packet(0), packet(0), packet(0), packet(0x62), packet(0x61), packet(0x63), packet(0x60)]
    sent += [packet(0x62, scapy.IPv6), packet(0x60, scapy.IPv6)]
    for data in sent:
        w.ends[0].send(1 * US, data)
    got = [data for _, data in w.promise(30 * US)[1]]
    expected = [packet(0), packet(0), packet(0), *[packet(0x63)] * 3, packet(0x60), packet(0x63, scapy.IPv6)]
    assert got == [*expected, packet(0x60, scapy.IPv6)]
    assert w.network.switch.counters(1)["marked"] == 4


@pytest.mark.parametrize("fault", ["lose", "duplicate", "corrupt", "delay", "damage"])
def test_faults(wires, fault):
    w = wires(faults=Faults(**{fault: 1.0}))
    w.ends[0].send(1 * US, frame(mac(1), mac(0)))
    got = w.promise(9 * US)[1]
    data = [f for _, f in got]
    if fault in ("lose", "damage"):
        assert got == []
    elif fault == "duplicate":
        assert data == [frame(mac(1), mac(0))] * 2
    elif fault == "corrupt":
        different = int.from_bytes(data[0], "big") ^ int.from_bytes(frame(mac(1), mac(0)), "big")
        assert 1 <= different.bit_count() <= 3
    else:
        assert data == [frame(mac(1), mac(0))]
        assert US + 2 * L < got[0][0] <= US + 2 * L + 2 * US


def test_the_same_seed_gives_the_same_faults(wires):
    runs = []
    for seed in (1, 1, 2):
        w = wires(faults=Faults(lose=0.3, reorder=0.3), seed=seed)
        for i in range(30):
            w.ends[0].send((1 + i) * US // 2, frame(mac(1), mac(0), 64 + i))
        runs.append(w.promise(40 * US)[1])
        w.network.close()
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("how", ["terminate", "hang up"])
def test_a_port_that_goes_away_leaves_the_others(wires, how):
    w = wires()
    w.ends[2].send(1 * US, frame(mac(0), mac(2)))
    w.promise(2 * US)
    gone = w.ends.pop(2)
    if how == "terminate":
        gone.put(oracle.TERMINATE, (1 << 64) - 1)
    gone.sock.close()
    while w.network.switch.up(2):
        w.network.step()
    assert w.said[-1] == "sim2 is free again"
    w.ends[0].send(3 * US, frame(mac(1), mac(0)))
    w.ends[0].send(3 * US, frame(mac(2), mac(0)))  # forgotten: to all
    assert {i: len(f) for i, f in w.promise(5 * US).items()} == {0: 0, 1: 2}
    w.join(2)
    # Its clock starts at 0: what is 1 us for it is later for the others.
    now = round(w.network.switch.time_ns * 1000)
    w.ends[2].send(US, frame(mac(1), mac(2)))
    w.ends[2].sync(20 * US)
    arrived = w.promise(20 * US)[1][0][0]
    assert now - 160_000 + US + 2 * L <= arrived <= now + US + 2 * L


def test_eight(wires):
    w = wires(8, 8)
    for i in range(8):
        w.ends[i].send(1 * US, frame(mac((i + 1) % 8), mac(i)))
    w.promise(2 * US)
    for i in range(8):
        w.ends[i].send(3 * US, frame(mac((i + 1) % 8), mac(i)))
    got = w.promise(5 * US)
    assert {i: [f for _, f in frames] for i, frames in got.items()} == {
        i: [frame(mac(i), mac((i - 1) % 8))] for i in range(8)
    }


@pytest.mark.parametrize(
    ("options", "lost", "flooded"),
    [({}, 1, 1), ({"capture_frames": "received"}, 0, 2), ({"capture_frames": "both"}, 1, 3)],
)
def test_a_capture_holds_what_came_or_what_went(options, lost, flooded, wires, tmp_path):
    """Each frame stands once as it was sent, what is lost too, or as often as it arrives."""
    w = wires(3, 3, capture=tmp_path / "switch.pcapng", **options)
    w.network.switch.set_faults(1, Faults(lose=1.0))
    frames = [frame(mac(4), mac(0)), frame(mac(0), mac(1))]
    for i, each in enumerate(frames):
        w.ends[i].send(1 * US, each)
    w.promise(2 * US)
    w.network.switch.flush()
    found = (tmp_path / "switch.pcapng").read_bytes()
    assert [found.count(each) for each in frames] == [flooded, lost]
    capture = read_capture(tmp_path / "switch.pcapng")
    assert capture.clock_hz is None  # the switch has no cycles
    assert capture.frames[0].time == 1500  # ns


def test_what_a_folder_tells(wires):
    w = wires(2, 1, mtu=1024)
    told = json.loads((w.folder / "network.json").read_text())
    assert told["mtu"] == 1024
    assert told["adapters"]["sim1"] == {"address": "10.0.0.2", "delay_ns": 500.0}
    assert not (w.folder / "sim0").exists()
    assert (w.folder / "sim1").exists()
    assert alive(w.folder)


def test_one_switch_a_folder(wires):
    w = wires(1, 0)
    with pytest.raises(LinkError, match=r"a switch runs at .* already: end it, or choose another folder"):
        Network(w.folder, [AdapterOptions("10.0.0.1")])
    assert alive(w.folder)


def test_what_a_killed_switch_has_left_is_taken_away(tmp_path):
    folder = tmp_path / "net"
    folder.mkdir()
    for name in ("sim0", "sim9"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(folder / name))
    (folder / "lock").touch()
    assert not alive(folder)
    with Network(folder, [AdapterOptions("10.0.0.1")], tell=lambda line: None):
        assert alive(folder)
        assert not (folder / "sim9").exists()
    assert not folder.exists()


def test_who_comes_while_a_switch_starts_waits_for_it(tmp_path, monkeypatch):
    """It may have to be compiled; and what a killed one has told of its network counts no more."""
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "network.json").write_text("{}")
    monkeypatch.setenv("VERBENA_SIM", str(folder))
    compiling, compiled = threading.Event(), threading.Event()

    def compile():
        compiling.set()
        assert compiled.wait(60)
        return build_switch()

    monkeypatch.setattr("verbena.sim.switch.build_switch", compile)
    with ThreadPoolExecutor(2) as threads:
        starting = threads.submit(Network, folder, [AdapterOptions("10.0.0.9")])
        assert compiling.wait(60)
        finding = threads.submit(find)
        early = wait([finding], timeout=0.3).done
        compiled.set()
        with starting.result():
            assert not early
            assert str(IPv4Address(finding.result().adapters["sim0"].ip)) == "10.0.0.9"


# The program


def planned(tmp_path, *arguments, text=None):
    if text is not None:
        (tmp_path / "net.toml").write_text(text)
        arguments = ("-c", str(tmp_path / "net.toml"), *arguments)
    return SimpleNamespace(**switch_cli.plan(switch_cli._parser().parse_args(arguments)))


def test_defaults(tmp_path):
    plan = planned(tmp_path)
    assert [a.address for a in plan.adapters] == [f"10.0.0.{i}" for i in range(1, 9)]
    assert (plan.mtu, plan.seed, plan.capture, plan.capture_frames) == (4096, 1, None, "sent")
    assert plan.adapters[0] == AdapterOptions("10.0.0.1")


TEXT = """
adapters = 3
mtu = 1024
delay_ns = 100
rate_gbps = 10
queue_bytes = 9000
faults = {lose = 0.1, reorder_cycles = 77}
[[adapter]]
address = "192.168.0.1"
ecn_bytes = 4000
[[adapter]]
delay_ns = 2000.5
faults = {lose = 0.0, delay = 0.5}
"""


def test_a_file_and_options(tmp_path):
    plan = planned(tmp_path, "--queue-bytes", "8000", "--corrupt", "0.2", text=TEXT)
    common = {"rate_gbps": 10, "queue_bytes": 8000}
    own = [
        AdapterOptions(
            "192.168.0.1", 100, ecn_bytes=4000, faults=Faults(0.1, corrupt=0.2, reorder_cycles=77), **common
        ),
        AdapterOptions("10.0.0.2", 2000.5, faults=Faults(delay=0.5, corrupt=0.2, reorder_cycles=77), **common),
        AdapterOptions("10.0.0.3", 100, faults=Faults(0.1, corrupt=0.2, reorder_cycles=77), **common),
    ]
    assert plan.adapters == own
    assert plan.mtu == 1024


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("delay = 3", "there is no option 'delay'; there are: adapters, "),
        ("delay_ns = 1", "delay_ns must be 20.0 or more, not 1"),
        ("capture_frames = 'all'", "capture_frames must be sent, received, both, not 'all'"),
        ("mtu = 1500", "mtu must be 256, 512, 1024, 2048 or 4096, not 1500"),
        ("adapters = 0", "adapters must be 1 to 250, not 0"),
        ("queue_bytes = 1000", "queue_bytes and ecn_bytes need a rate_gbps: without a rate nothing waits"),
        ("faults = {loose = 0.1}", "faults: there is no option 'loose'"),
        ("faults = {lose = 2}", "lose must be a probability, not 2"),
        ("[[adapter]]\naddress = '10.0.0.2'", "two adapters have the address 10.0.0.2"),
        ("[[adapter]]\naddress = 'x'", "'x'"),
        ("adapters = 1\n[[adapter]]\n[[adapter]]", "adapters is 1, but there are 2 tables"),
        ("mtu = ", "net.toml: "),
        ("[adapter]", "each adapter is a table of its own, [[adapter]], not {}"),
        ("adapter = [1, 2]", "adapter 0 must be a table of options, not 1"),
        ("faults = 0.01", "faults must be a table of options, not 0.01"),
        ("[[adapter]]\nfaults = 1", "faults of adapter 0 must be a table of options, not 1"),
        ("faults = {lose = '0.01'}", "lose must be 0 or more, not '0.01'"),
        ("seed = 'x'", "seed must be 0 to 9223372036854775807, not 'x'"),
        ("capture = 5", "capture must be the name of a file, not 5"),
        ("delay_ns = inf", "delay_ns must be "),
    ],
)
def test_a_file_that_is_wrong(text, why, tmp_path, capsys):
    (tmp_path / "net.toml").write_text(("adapters = 2\n" if "adapter" not in text.partition("[[")[0] else "") + text)
    assert switch_cli.main([str(tmp_path / "net"), "-c", str(tmp_path / "net.toml")]) == 1
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
    assert not (tmp_path / "net").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_nothing_behind(how, tmp_path):
    folder = tmp_path / "net"
    command = [sys.executable, "-m", "verbena.sw.cli", "sim", str(folder), "-n", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as switch:
        assert switch.stdout.readline().startswith(f"2 adapters, sim0 to sim1, at {folder}")
        end = oracle.connect(folder / "sim1")
        with contextlib.closing(end):
            assert switch.stdout.readline() == f"programs find it with VERBENA_SIM={folder}\n"
            assert switch.stdout.readline() == "sim1 is in use\n"
            switch.send_signal(how)
            assert switch.wait(10) == 0
            time.sleep(0.1)
            assert end.drain()[-1][0] == oracle.TERMINATE
    assert not folder.exists()
    oracle.close_all()


@pytest.mark.parametrize("capture", [None, "/nonexistent/frames.pcapng"])
def test_what_else_stands_in_the_folder_stays(tmp_path, capture):
    """Also if the start fails: files, folders, and names that look like the switch's."""
    others = {"keep.txt": "1", "simulation.csv": "2", "sim0": "3", "sim1.counters": "4", "deep/sim0": "5"}
    (tmp_path / "deep").mkdir()
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    with contextlib.suppress(OSError), Network(tmp_path, [], tell=lambda line: None, capture=capture):
        assert alive(tmp_path)
    assert {
        str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    } == others


@pytest.mark.parametrize(("name", "text"), [("lock", "mine"), ("network.json", "[]"), ("network.json", "no JSON")])
def test_files_of_its_names_that_are_not_its_own(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(LinkError, match=r"lock or network\.json in .* is not a switch's: choose another folder"):
        Network(tmp_path, [])
    assert (tmp_path / name).read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == [name]
