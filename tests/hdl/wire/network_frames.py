"""Frames of all networks, and a table of GIDs, for the tests of this folder; scapy builds what it checks."""

import ipaddress
import struct
import zlib

from ether_frames import IP_ADDRESS, MAC
from roce_frames import frame_of
from scapy.contrib.roce import BTH, GRH
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from verbena.hdl.abi.gids import GID_ROW, GROUP_MEMBER, GROUP_MEMBERS, GidType
from verbena.hdl.wire.gid_row import GID_WORDS

__all__ = [
    "MAPPED",
    "PEER",
    "TABLE",
    "TAGS",
    "address6",
    "frame1_of",
    "frame6_of",
    "frame_over",
    "gid_words",
    "icrc1",
    "is_mapped",
    "member_words",
]

MAPPED = 0xFFFF << 32
PEER = int(ipaddress.IPv6Address("fe80::5054:ff:fe12:3456"))
TABLE = {
    0: (MAPPED | IP_ADDRESS, GidType.ROCE_V2_IPV4),
    1: (int(ipaddress.IPv6Address("fe80::200:ff:fe00:1")), GidType.ROCE_V2_IPV6),
    2: (int(ipaddress.IPv6Address("fe80::200:ff:fe00:1")), GidType.ROCE_V1),
    4: (MAPPED | IP_ADDRESS, GidType.ROCE_V1),
    5: (int(ipaddress.IPv6Address("fd00::1")), GidType.ROCE_V2_IPV6),
    6: (MAPPED | 0xC0A80001, GidType.ROCE_V2_IPV4),
    9: (int(ipaddress.IPv6Address("fd00:100::1")), GidType.ROCE_V2_IPV6),
    10: (MAPPED | 0x0A010001, GidType.ROCE_V2_IPV4),
    11: (int(ipaddress.IPv6Address("fd00:100::1")), GidType.ROCE_V1),
    15: (int(ipaddress.IPv6Address("2001:db8:ffff:eeee:dddd:cccc:bbbb:aaaa")), GidType.ROCE_V2_IPV6),
}
"""Rows: GID and type."""

TAGS = {9: (100, 5), 10: (0xABC, 2), 11: (100, 7)}
"""Of these rows VLAN and priority."""


def is_mapped(gid):
    return gid >> 32 == 0xFFFF


def address6(gid):
    return str(ipaddress.IPv6Address(gid))


def gid_words():
    """``GidWrite`` dictionaries that write the whole table."""
    for index in range(16):
        gid, kind = TABLE.get(index, (0, 0))
        vlan, priority = TAGS.get(index, (0, 0))
        tag = {"tagged": vlan != 0, "vlan": vlan, "priority": priority}
        row = GID_ROW.pack(gid_low=gid & (1 << 64) - 1, gid_high=gid >> 64, type=kind, valid=index in TABLE, **tag)
        for word in range(GID_WORDS):
            yield {"index": index, "word": word, "data": int.from_bytes(row[word * 4 : word * 4 + 4], "little")}


def member_words(rows):
    """``GidWrite`` dictionaries that write the whole table of group members: ``rows`` are groups and numbers of QPs."""
    for index in range(GROUP_MEMBERS):
        gid, qpn = rows.get(index, (0, 0))
        fields = {"gid_low": gid & (1 << 64) - 1, "gid_high": gid >> 64, "qpn": qpn}
        words = GROUP_MEMBER.words(**fields, row=index, valid=index in rows)
        for word, data in enumerate(words[:5]):
            yield {"index": 0, "word": word, "data": data}


def frame6_of(header, payload, *, source, destination, flow_label=0, checksum=0, next_header=17, **fields):
    """scapy's packet over IPv6: the headers from the BTH on are those of the same packet over IPv4."""
    fields = {"source_mac": MAC, "destination_mac": MAC} | fields
    v4 = Ether(frame_of(header, payload, source_ip=0, destination_ip=0, **fields))
    bth = v4[BTH].copy()
    bth.icrc = None
    ip = IPv6(
        src=address6(source),
        dst=address6(destination),
        fl=flow_label,
        tc=fields.get("traffic_class", 0),
        hlim=fields.get("hop_limit", 64),
        nh=next_header,
    )
    udp = UDP(sport=fields.get("source_port", 0xC000), dport=4791, chksum=checksum)
    return bytes(Ether(dst=v4.dst, src=v4.src) / ip / udp / bth)


def icrc1(frame):
    """ICRC of a frame of RoCEv1, whose last four bytes are not looked at: class, flow label and hop limit of the GRH
    and byte 4 of the BTH count as ones (IBA, annex A16).
    """
    masked = bytearray(b"\xff" * 8 + frame[14:-4])
    masked[8] |= 0x0F
    for at in (9, 10, 11, 15, 8 + 40 + 4):
        masked[at] = 0xFF
    return struct.pack("<I", zlib.crc32(bytes(masked)))


def frame1_of(header, payload, *, source, destination, flow_label=0, next_header=0x1B, **fields):
    """scapy's packet of RoCEv1, with an ICRC by zlib: of scapy it would be 0."""
    fields = {"source_mac": MAC, "destination_mac": MAC} | fields
    v4 = Ether(frame_of(header, payload, source_ip=0, destination_ip=0, **fields))
    bth = bytes(v4[BTH])
    grh = GRH(
        tclass=fields.get("traffic_class", 0),
        flowlabel=flow_label,
        paylen=len(bth),
        nexthdr=next_header,
        hoplmt=fields.get("hop_limit", 64),
        sgid=source,
        dgid=destination,
    )
    frame = bytes(Ether(dst=v4.dst, src=v4.src, type=0x8915) / grh) + bth
    return frame[:-4] + icrc1(frame)


def frame_over(kind, header, payload, *, source, destination, flow_label=0, **fields):
    """The frame over the network of a ``GidType``."""
    if kind == GidType.ROCE_V2_IPV4:
        ends = {"source_ip": source & 0xFFFFFFFF, "destination_ip": destination & 0xFFFFFFFF}
        return frame_of(header, payload, **ends, **fields)
    build = frame6_of if kind == GidType.ROCE_V2_IPV6 else frame1_of
    return build(header, payload, source=source, destination=destination, flow_label=flow_label, **fields)
