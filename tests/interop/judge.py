"""Judges captures with programs that others wrote: every RoCE frame's ICRC by scapy, its dissection by tshark."""

import struct
import subprocess

from frames import ADAPTER, GUEST, ROCE_PORT, roce_offset
from scapy.contrib.roce import BTH
from scapy.layers.l2 import Ether
from scapy.packet import Padding
from scapy.utils import RawPcapNgReader

__all__ = ["judge"]

EXPERT_ERROR = 8388608
"""``PI_ERROR`` of Wireshark."""

ZERO_CHECKSUM = "udp.ignore_ipv6_zero_checksum:TRUE"
"""Over IPv6, too, the UDP checksum of RoCEv2 is 0, of Linux' frames as of ours (RFC 6936)."""

ETHERNET_GUESS = "eth_over_ib"
"""Takes one byte with its pad for an EtherType and two reserved bytes; it is no protocol that could be switched off."""


def judge(path):
    """``(frames, complaints)`` of a capture. What was corrupted on purpose, on an interface of its own, is left out."""
    frames, complaints = _icrcs(path)
    dissected, more = _dissect(path)
    if dissected != frames:
        more.append(f"scapy finds {frames} RoCE frames, tshark {dissected}")
    return frames, [f"{path.parent.name}: {complaint}" for complaint in complaints + more]


def _icrcs(path):
    frames, complaints = 0, []
    with RawPcapNgReader(str(path)) as reader:
        for number, (frame, about) in enumerate(reader, 1):
            if about.ifname.decode() not in (ADAPTER, GUEST) or roce_offset(frame) is None:
                continue
            frames += 1
            if complaint := _icrc(frame):
                complaints.append(f"frame {number}: {complaint}")
    return frames, complaints


def _icrc(frame):
    """What scapy has against a frame."""
    try:
        packet = Ether(frame)
        if Padding in packet:
            # scapy looks for the ICRC at the end of the frame, not of the IP packet.
            packet = Ether(frame[: -len(packet[Padding])])
        if BTH not in packet:
            return "scapy finds no BTH"
        if struct.pack("!I", packet[BTH].icrc) != packet[BTH].compute_icrc(b""):
            return "wrong ICRC"
    except Exception as error:
        return f"scapy fails: {error!r}"
    return None


def _guessed():
    """Protocols that tshark guesses in payloads. Ours are random bytes, and not for it to understand."""
    command = ["tshark", "-G", "heuristic-decodes"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.split("\t")[1] for line in out.splitlines() if line.startswith("infiniband.payload\t")}


def _dissect(path):
    fields = ("frame.number", "frame.interface_name", "infiniband.bth.opcode", "_ws.expert.severity")
    command = ["tshark", "-n", "-r", path, "-Y", f"udp.dstport == {ROCE_PORT}", "-T", "fields"]
    command += [word for field in fields for word in ("-e", field)]
    command += [word for protocol in _guessed() for word in ("--disable-protocol", protocol)]
    command += ["--disable-heuristic", ETHERNET_GUESS, "-o", ZERO_CHECKSUM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return 0, [f"tshark: {done.stderr.strip()}"]
    frames, complaints = 0, []
    for line in done.stdout.splitlines():
        number, interface, opcode, severity = line.split("\t")
        if interface not in (ADAPTER, GUEST):
            continue
        frames += 1
        if not opcode:
            complaints.append(f"frame {number}: tshark finds no BTH")
        if any(int(value) >= EXPERT_ERROR for value in severity.split(",") if value):
            complaints.append(f"frame {number}: tshark complains")
    return frames, complaints
