"""Frames and headers for the tests of this folder; scapy builds what it checks."""

from pathlib import Path

from ether_frames import ip_text, mac_text
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import rdpcap
from verbena.hdl.wire.headers import HEADERS
from verbena.hdl.wire.opcodes import OPCODES
from verbena.hdl.wire.packet_header import TransportHeader

__all__ = [
    "CAPTURES",
    "captured_frames",
    "carried",
    "frame_of",
    "random_header",
    "random_path",
    "transport_of",
]

CAPTURES = Path(__file__).parents[2] / "captures"


def random_header(rng, code, length):
    """Fields of a ``TransportHeader``, and an atomic's values; those without a place on the wire are 0."""
    header = {
        "opcode": code,
        "solicited": rng.randrange(2),
        "ack_request": rng.randrange(2),
        "becn": rng.randrange(2),
        "pkey": rng.getrandbits(16),
        "dest_qpn": rng.getrandbits(24),
        "psn": rng.getrandbits(24),
        "length": length,
    }
    for name, width in [
        ("address", 64),
        ("rkey", 32),
        ("dma_length", 32),
        ("syndrome", 8),
        ("msn", 24),
        ("immediate", 32),
        ("swap_add", 64),
        ("compare", 64),
        ("original", 64),
        ("qkey", 32),
        ("source_qpn", 24),
    ]:
        header[name] = 0
        if any(name in HEADERS[extended].fields for extended in OPCODES[code].headers):
            header[name] = rng.getrandbits(width)
    return header


def carried(header):
    """What the transport gives as payload of an atomic: the operands, or the original value, as on the wire."""
    parts = [extended for extended in OPCODES[header["opcode"]].headers if extended.startswith("atomic")]
    names = [name for name in ("swap_add", "compare", "original") if any(name in HEADERS[p].fields for p in parts)]
    return b"".join(header[name].to_bytes(8, "big") for name in names)


def transport_of(header):
    """The members of the ``TransportHeader``; of UD, DETH's fields stand in ``address``."""
    transport = {name: header[name] for name in TransportHeader.members}
    if "deth" in OPCODES[header["opcode"]].headers:
        transport["address"] = header["qkey"] << 32 | header["source_qpn"]
    return transport


def random_path(rng):
    return {
        "mac": rng.getrandbits(48),
        "ip": rng.getrandbits(32),
        "source_port": rng.getrandbits(16),
        "traffic_class": rng.getrandbits(8),
        "hop_limit": rng.getrandbits(8),
    }


def frame_of(header, payload, *, source_mac, source_ip, destination_mac, destination_ip, **fields):
    """scapy's packet. ``fields``: source_port, traffic_class, hop_limit, and ``ip`` for more of the IP header's."""
    pad = -len(payload) % 4
    extended = b""
    for name in OPCODES[header["opcode"]].headers:
        if name == "aeth":
            extended += bytes(AETH(syndrome=header["syndrome"], msn=header["msn"]))
        elif name == "reth":
            extended += header["address"].to_bytes(8, "big")
            extended += header["rkey"].to_bytes(4, "big") + header["dma_length"].to_bytes(4, "big")
        elif name == "atomiceth":
            extended += header["address"].to_bytes(8, "big") + header["rkey"].to_bytes(4, "big")
            extended += header["swap_add"].to_bytes(8, "big") + header["compare"].to_bytes(8, "big")
        elif name == "deth":
            extended += header["qkey"].to_bytes(4, "big") + bytes(1) + header["source_qpn"].to_bytes(3, "big")
        elif name == "atomicacketh":
            extended += header["original"].to_bytes(8, "big")
        else:
            extended += header["immediate"].to_bytes(4, "little")
    return bytes(
        Ether(dst=mac_text(destination_mac), src=mac_text(source_mac))
        / IP(
            src=ip_text(source_ip),
            dst=ip_text(destination_ip),
            **{
                "id": 0,
                "flags": "DF",
                "tos": fields.get("traffic_class", 0),
                "ttl": fields.get("hop_limit", 64),
                **fields.get("ip", {}),
            },
        )
        / UDP(sport=fields.get("source_port", 0xC000), dport=4791, chksum=0)
        / BTH(
            opcode=header["opcode"],
            solicited=header["solicited"],
            padcount=pad,
            pkey=header["pkey"],
            becn=header["becn"],
            dqpn=header["dest_qpn"],
            ackreq=header["ack_request"],
            psn=header["psn"],
        )
        / Raw(extended + payload + bytes(pad))
    )


def captured_frames(pattern="*.pcap"):
    """(file's name, number, scapy's packet) of all captured frames with IPv4 and a BTH."""
    for file in sorted(CAPTURES.glob(pattern)):
        for index, packet in enumerate(rdpcap(str(file))):
            if IP in packet and BTH in packet:
                yield file.name, index, packet
