"""MADs out of captures of Linux' Soft-RoCE."""

from pathlib import Path

from verbena.sim.trace.capture_file import read_capture

__all__ = ["CAPTURES", "captured_mads"]

CAPTURES = Path(__file__).parents[2] / "captures"
VLAN, IPV4, IPV6 = 0x8100, 0x0800, 0x86DD
ROCE_PORT, SEND_ONLY, BTH_AND_DETH, ICRC = 4791, 0x64, 12 + 8, 4


def captured_mads(name):
    """The MADs of a capture, in order: what its UD SENDs to QP1 carry."""
    found = []
    for frame in read_capture(CAPTURES / f"{name}.pcap").frames:
        data, at = frame.data, 12
        if int.from_bytes(data[at : at + 2], "big") == VLAN:
            at += 4
        kind = int.from_bytes(data[at : at + 2], "big")
        at += 2
        if kind not in (IPV4, IPV6):
            continue
        at += 20 if kind == IPV4 else 40
        bth = at + 8
        if int.from_bytes(data[at + 2 : at + 4], "big") != ROCE_PORT or data[bth] != SEND_ONLY:
            continue
        if int.from_bytes(data[bth + 5 : bth + 8], "big") == 1:
            found.append(bytes(data[bth + BTH_AND_DETH : -ICRC]))
    return found
