"""Captures, opened by a program that we did not write; ``tests/tshark`` has another one."""

import pytest
from recording import record
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap
from stand_in import stand_in
from test_world import expected, send
from verbena.sim.world import World

pytestmark = pytest.mark.verilator


def test_scapy_reads_the_frames(tmp_path):
    record(tmp_path / "all.pcapng")
    frames = [bytes(packet) for packet in rdpcap(str(tmp_path / "all.pcapng")) if isinstance(packet, Ether)]
    assert [len(frame) for frame in frames] == [100] * 5 + [60] * 2
    assert all(frame == expected(100, 0x02_56_42_00_00_02) for frame in frames[:5])


@pytest.mark.parametrize(
    ("frames", "places"),
    [
        ("sent", [("adapter0", ""), ("adapter0", "lost"), ("adapter0", "duplicated"), ("adapter1", "injected")]),
        ("received", [("adapter1", ""), ("adapter1", ""), ("adapter1", "duplicate"), ("adapter1", "injected")]),
    ],
)
def test_each_frame_once(tmp_path, frames, places):
    with World(2, stand_in()) as world:
        world.capture(tmp_path / "a.pcapng", frames=frames)
        world.adapters[0].fault_at(1, "lose")
        world.adapters[0].fault_at(2, "duplicate")
        send(world, 100, 3, world.adapters[1].mac)
        world.advance(500, stop=0)
        world.adapters[1].inject(bytes(60))
        world.advance(50)
        world.flush()
        found = [(p.sniffed_on, (p.comment or b"").decode()) for p in rdpcap(str(tmp_path / "a.pcapng"))]
        assert found == places


def test_frames_are_taken_at_known_places(tmp_path):
    with World(1, stand_in()) as world:
        with pytest.raises(ValueError, match="one of sent, received, both, not 'send'"):
            world.capture(tmp_path / "a.pcapng", frames="send")


def test_the_end_of_a_capture_is_the_end(tmp_path):
    with World(1, stand_in()) as world:
        world.capture(tmp_path / "a.pcapng")
        world.adapters[0].inject(bytes(60))
        world.advance(50)
        world.capture(None)
        world.adapters[0].inject(bytes(60))
        world.advance(50)
        assert [packet.comments for packet in rdpcap(str(tmp_path / "a.pcapng"))] == [[b"injected"]]
        with pytest.raises(OSError, match="cannot write"):
            world.capture(tmp_path / "missing" / "a.pcapng")
