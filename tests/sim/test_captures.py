"""Captures, opened by programs that we did not write."""

import os
import shutil
import subprocess

import pytest
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap
from stand_in import R, stand_in
from test_world import copy, expected, send
from verbena.sim.world import World
from verbena.sw import host_memory

TSHARK = shutil.which("tshark")
# A user may lack it; in CI, where .ci/run installs it, its absence is a failure.
without_tshark = pytest.mark.skipif(
    TSHARK is None and not os.environ.get("CI"), reason="tshark is missing: sudo apt install tshark"
)


def tshark(path, *fields, read_filter=None):
    """One row of fields a packet."""
    command = [TSHARK, "-r", path, "-T", "fields", *(x for field in fields for x in ("-e", field))]
    if read_filter:
        command += ["-Y", read_filter]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


@pytest.fixture
def capture(tmp_path):
    """Three frames between two adapters, the second lost, and a copy; its path and the times of what happened."""
    path = tmp_path / "all.pcapng"
    address = host_memory.alloc(8192, 4096)
    source, target = host_memory.bus_pages(address, 8192)
    host_memory.write(address, bytes(range(64)))
    with World(2, stand_in(), seed=3) as world:
        world.capture(path, bus=True)
        world.adapters[0].fault_at(1, "lose")
        send(world, 100, 3, world.adapters[1].mac)
        world.advance(500, stop=0)
        assert copy(world, source, target, 8) == 0
        tap = world.tap(0x02_00_00_00_00_99)
        tap.send(world.adapters[1].mac.to_bytes(6, "big") + bytes(6) + b"\x88\xb5" + bytes(46))
        world.advance(100)
        world.flush()
        assert len(rdpcap(str(path))) > 10
        cycles = world.cycles
    host_memory.free(address)
    return path, source, target, cycles


def test_scapy_reads_the_frames(capture):
    path, *_ = capture
    frames = [bytes(packet) for packet in rdpcap(str(path)) if isinstance(packet, Ether)]
    assert [len(frame) for frame in frames] == [100] * 5 + [60] * 2
    assert all(frame == expected(100, 0x02_56_42_00_00_02) for frame in frames[:5])


@without_tshark
def test_wireshark_reads_all(capture):
    path, source, target, cycles = capture
    rows = tshark(path, "frame.interface_name", "frame.packet_flags", "frame.comment", "frame.len", "frame.time_epoch")
    assert not any(len(row) != 5 for row in rows)
    frames = [row[:4] for row in rows if not row[0].startswith("bus")]
    inbound, outbound = "0x00000001", "0x00000002"
    assert sorted(frames) == sorted(
        [
            ("adapter0", outbound, "", "100"),
            ("adapter0", outbound, "lost", "100"),
            ("adapter0", outbound, "", "100"),
            ("adapter1", inbound, "", "100"),
            ("adapter1", inbound, "", "100"),
            ("tap0", outbound, "", "60"),
            ("adapter1", inbound, "", "60"),
        ]
    )
    bus = [row for row in rows if row[0] == "bus0" and row[2].startswith("DMA")]
    assert [row[2] for row in bus] == [
        f"DMA read {source:#x}, 64 bytes, id 3, OKAY, 135 cycles",
        f"DMA write {target:#x}, 64 bytes, id 3, OKAY, 40 cycles",
    ]
    assert all(row[3] == str(32 + 64) for row in bus)
    assert any(row[2].startswith(f"register write {R.COPY:#x}, 4 bytes") for row in rows)
    times = [float(row[4]) for row in rows]
    assert times == sorted(times)
    assert 0 < times[-1] <= cycles * 6.4e-9


@without_tshark
def test_the_end_of_a_capture_is_the_end(tmp_path):
    with World(1, stand_in()) as world:
        world.capture(tmp_path / "a.pcapng")
        world.adapters[0].inject(bytes(60))
        world.advance(50)
        world.capture(None)
        world.adapters[0].inject(bytes(60))
        world.advance(50)
        assert tshark(tmp_path / "a.pcapng", "frame.comment") == [("injected",)]
        with pytest.raises(OSError, match="cannot write"):
            world.capture(tmp_path / "missing" / "a.pcapng")
