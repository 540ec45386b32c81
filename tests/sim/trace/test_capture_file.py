"""Captures read by our reader and by scapy's, and files that are none."""

from pathlib import Path

import pytest
import scapy.layers.inet6  # noqa: F401
from recording import record
from scapy.contrib.roce import AETH, BTH, GRH
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import rdpcap
from verbena.hdl.wire.opcodes import OPCODES
from verbena.sim.trace.capture_file import CaptureError, read_capture
from verbena.sim.trace.hops import hops_of
from verbena.sim.trace.packets import dissect

CAPTURES = sorted((Path(__file__).parents[2] / "captures").glob("*.pcap"))


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_frames_and_times_are_scapys(path):
    frames = read_capture(path).frames
    packets = rdpcap(str(path))
    assert all(Ether in packet for packet in packets)
    assert [frame.data for frame in frames] == [packet.original for packet in packets]
    assert [frame.time / 1e9 for frame in frames] == pytest.approx([float(packet.time) for packet in packets])
    for frame, packet in zip(frames, packets):
        ours = dissect(frame.data)
        assert (ours is not None) == (BTH in packet)
        if ours is not None:
            bth = packet[BTH]
            assert (ours.row, ours.psn, ours.dest_qpn) == (OPCODES[bth.opcode], bth.psn, bth.dqpn)
            if AETH in packet:  # scapy looks for it in acknowledgements only
                assert (packet[AETH].syndrome, packet[AETH].msn) == (ours.syndrome, ours.fields["aeth.msn"])


def test_a_frame_of_rocev1():
    """And what only looks like one: another header behind the GRH, a frame that ends too early."""

    def frame(nexthdr=0x1B, paylen=12 + 8 + 4):
        bth = BTH(opcode=4, dqpn=7, psn=9, icrc=1) / Raw(b"contents")
        return bytes(Ether(type=0x8915) / GRH(paylen=paylen, nexthdr=nexthdr, sgid=1 << 100, dgid=5) / bth)

    found = dissect(frame() + bytes(20))
    assert (found.source, found.destination, found.psn, found.dest_qpn, found.payload) == (1 << 100, 5, 9, 7, 8)
    assert dissect(frame(17)) is dissect(frame(paylen=60)) is None


@pytest.mark.verilator
def test_a_worlds_capture(tmp_path):
    path = tmp_path / "all.pcapng"
    source, target, _ = record(path)
    capture = read_capture(path)
    assert capture.clock_hz == 156.25e6
    dma = [t for t in capture.transactions if not t.register]
    assert [(t.write, t.address, len(t.data), t.end - t.start) for t in dma] == [
        (False, source, 64, 135),
        (True, target, 64, 40),
    ]
    assert dma[0].data == dma[1].data == bytes(range(64))
    hops = hops_of(capture.frames)
    assert [(hop.sender, hop.receiver, hop.size, hop.comment) for hop in hops] == [
        ("adapter0", "adapter1", 100, ""),
        ("adapter0", "", 100, "lost"),
        ("adapter0", "adapter1", 100, ""),
        ("tap0", "adapter1", 60, ""),
    ]
    assert all(hop.arrived > hop.sent for hop in hops if not hop.lost)


def test_a_file_that_its_writer_did_not_end(tmp_path):
    whole = CAPTURES[0].read_bytes()
    (tmp_path / "a.pcap").write_bytes(whole[:-1])
    assert len(read_capture(tmp_path / "a.pcap").frames) == len(read_capture(CAPTURES[0]).frames) - 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no pcap or pcapng file"),
        (b"<!DOCTYPE html>", "is no pcap or pcapng file"),
        (b"\xd4\xc3\xb2\xa1\x02\x00", "ends within its header"),
        (b"\xd4\xc3\xb2\xa1" + bytes(16) + b"\x93\0\0\0", "link type 147"),
        (b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\1\0\0\0" + b"\xff" * 8 + b"\x1c\0\0\0" + bytes(12), "0 bytes at"),
        (
            b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\1\0\0\0" + b"\xff" * 8 + b"\x1c\0\0\0\6\0\0\0\x20\0\0\0"
            b"\7\0\0\0" + bytes(16) + b"\x20\0\0\0",
            "block type 0x6",
        ),
    ],
)
def test_what_is_no_capture(tmp_path, content, message):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(CaptureError, match=message):
        read_capture(tmp_path / "a")
