"""Frames and headers for the tests of this folder; scapy builds what it checks."""

from pathlib import Path

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
    "address",
    "beats",
    "captured_frames",
    "carried",
    "frame_of",
    "frames_of",
    "number",
    "random_header",
    "transport_of",
]

CAPTURES = Path(__file__).parents[2] / "captures"

MAC, PEER_MAC = 0x02_00_00_00_00_01, 0x02_00_00_A5_5A_FE
ADDRESS, PEER_ADDRESS = 0x0A_00_00_01, 0xC0_A8_FE_63


def number(text):
    """MAC or IPv4 address in text form to a number."""
    if ":" in text:
        return int(text.replace(":", ""), 16)
    return int.from_bytes(bytes(map(int, text.split("."))), "big")


def address(value, size):
    """Number to MAC (``size`` 6) or IPv4 address (4) in text form."""
    parts = value.to_bytes(size, "big")
    return ":".join(f"{part:02x}" for part in parts) if size == 6 else ".".join(map(str, parts))


def beats(packet, width, *, error=False, rng=None):
    """``PacketBeat`` dictionaries of ``packet`` (bytes); bytes behind the end are random if ``rng`` is given."""
    size = width // 8
    result = []
    for start in range(0, max(1, len(packet)), size):
        part = packet[start : start + size]
        last = start + size >= len(packet)
        filler = rng.randbytes(size - len(part)) if rng else bytes(size - len(part))
        result.append(
            {
                "data": int.from_bytes(part + filler, "little"),
                "count": len(part),
                "first": start == 0,
                "last": last,
                "error": error and last,
            }
        )
    return result


def frames_of(items, width):
    """The other way: list of (bytes, error) from ``PacketBeat`` items, which must be well-formed."""
    frames, now = [], None
    for item in items:
        assert item.first == (now is None)
        now = now or b""
        assert item.count == width // 8 or item.last, item
        now += item.data.to_bytes(width // 8, "little")[: item.count]
        if item.last:
            frames.append((now, item.error))
            now = None
    assert now is None, "the last frame has no end"
    return frames


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
        Ether(dst=address(destination_mac, 6), src=address(source_mac, 6))
        / IP(
            src=address(source_ip, 4),
            dst=address(destination_ip, 4),
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
