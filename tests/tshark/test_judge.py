"""The judge: frames that Linux sent pass, and what is wrong with others is found."""

from pathlib import Path

import pytest
from frames import ADAPTER, CORRUPTED, Capture
from judge import judge
from rocegram import with_icrc
from scapy.utils import PcapReader

CAPTURES = Path(__file__).parent.parent / "captures"
BTH = 14 + 20 + 8
SEND_ONLY, WRITE_ONLY, ACKNOWLEDGE = 0x04, 0x0A, 0x11


@pytest.fixture
def frames():
    with PcapReader(str(CAPTURES / "rc_write_5000.pcap")) as reader:
        return [bytes(packet) for packet in reader]


def judged(folder, *sent):
    capture = Capture(folder / "cable.pcapng")
    for name, frame in sent:
        capture.frame(name, frame, "a comment")
    capture.close()
    return judge(folder / "cable.pcapng")


def test_frames_of_linux_pass(tmp_path, frames):
    padded = [frame.ljust(70, b"\0") for frame in frames]
    assert judged(tmp_path, *[(ADAPTER, frame) for frame in frames + padded]) == (2 * len(frames), [])


def test_a_wrong_icrc_is_found(tmp_path, frames):
    wrong = bytearray(frames[0])
    wrong[100] ^= 4
    count, complaints = judged(tmp_path, (ADAPTER, frames[1]), (ADAPTER, bytes(wrong)), (CORRUPTED, bytes(wrong)))
    assert count == 2
    assert complaints == [f"{tmp_path.name}: frame 2: wrong ICRC"]


def test_what_cannot_be_dissected_is_found(tmp_path, frames):
    # A WRITE as short as an acknowledgement: its RETH is not all there.
    short = bytearray(next(frame for frame in frames if frame[BTH] == ACKNOWLEDGE))
    short[BTH] = WRITE_ONLY
    _, complaints = judged(tmp_path, (ADAPTER, with_icrc(bytes(short))))
    assert [complaint.split(": ")[1:] for complaint in complaints] == [["frame 1", "tshark complains"]]


def test_nothing_is_guessed_of_a_payload(tmp_path):
    """One byte, and three of its pad, could be the beginning of anything."""
    with PcapReader(str(CAPTURES / "rc_send_1.pcap")) as reader:
        frame = next(bytes(packet) for packet in reader if bytes(packet)[BTH] == SEND_ONLY)
    sent = [(ADAPTER, with_icrc(frame[: BTH + 12] + bytes([n]) + frame[BTH + 13 :])) for n in range(256)]
    assert judged(tmp_path, *sent) == (256, [])
