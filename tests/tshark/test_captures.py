"""Captures of a simulated world, opened by Wireshark's tshark."""

import subprocess

from recording import record
from stand_in import R


def tshark(path, *fields, read_filter=None):
    """One row of fields a packet."""
    command = ["tshark", "-r", path, "-T", "fields", *(x for field in fields for x in ("-e", field))]
    if read_filter:
        command += ["-Y", read_filter]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


def test_wireshark_reads_all(tmp_path):
    path = tmp_path / "all.pcapng"
    source, target, cycles = record(path)
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
