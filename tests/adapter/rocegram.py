"""RoCEv2 frames made by scapy, and quick changes to them with the ICRC made right by zlib."""

import struct
import zlib

from ether_frames import mac_text
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

__all__ = ["icrc", "rc_frame", "with_icrc"]

L2 = 14


def icrc(frame):
    """ICRC of an Ethernet frame with IPv4, whose last four bytes are not looked at (InfiniBand A17.3.3)."""
    masked = bytearray(b"\xff" * 8 + frame[L2:-4])
    for at in (8 + 1, 8 + 8, 8 + 10, 8 + 11, 8 + 20 + 6, 8 + 20 + 7, 8 + 28 + 4):
        if at < len(masked):
            masked[at] = 0xFF
    return zlib.crc32(bytes(masked))


def with_icrc(frame):
    """``frame`` with its last four bytes made its ICRC."""
    return frame[:-4] + struct.pack("<I", icrc(frame))


def rc_frame(source, target, qpn, psn, opcode, body=b"", *, ack=1, solicited=0, pad=None, pkey=0xFFFF, **ip):
    """One RC packet from ``source`` to ``target``, both ``(mac, ip)`` as numbers; ``body`` is what follows the BTH."""
    pad = -len(body) & 3 if pad is None else pad
    bth = BTH(opcode=opcode, padcount=pad, dqpn=qpn, ackreq=ack, psn=psn & 0xFFFFFF, solicited=solicited, pkey=pkey)
    addresses = [".".join(str(a >> s & 255) for s in (24, 16, 8, 0)) for _, a in (source, target)]
    frame = (
        Ether(src=mac_text(source[0]), dst=mac_text(target[0]))
        / IP(src=addresses[0], dst=addresses[1], flags="DF", ttl=64, **ip)
        / UDP(sport=0xC123, dport=4791, chksum=0)
        / bth
        / Raw(body + bytes(pad))
    )
    return bytes(frame)
