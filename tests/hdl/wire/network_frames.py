"""Frames of both networks, and a table of GIDs, for the tests of this folder; scapy builds what it checks."""

import ipaddress

from roce_frames import ADDRESS, MAC, frame_of
from scapy.contrib.roce import BTH
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from verbena.hdl.abi.gids import GID_ROW, GID_WORDS, GidType

__all__ = ["MAPPED", "PEER", "TABLE", "TAGS", "address6", "both_frame", "frame6_of", "gid_words", "is_mapped"]

MAPPED = 0xFFFF << 32
PEER = int(ipaddress.IPv6Address("fe80::5054:ff:fe12:3456"))
TABLE = {
    0: (MAPPED | ADDRESS, GidType.ROCE_V2_IPV4),
    1: (int(ipaddress.IPv6Address("fe80::200:ff:fe00:1")), GidType.ROCE_V2_IPV6),
    5: (int(ipaddress.IPv6Address("fd00::1")), GidType.ROCE_V2_IPV6),
    6: (MAPPED | 0xC0A80001, GidType.ROCE_V2_IPV4),
    9: (int(ipaddress.IPv6Address("fd00:100::1")), GidType.ROCE_V2_IPV6),
    10: (MAPPED | 0x0A010001, GidType.ROCE_V2_IPV4),
    15: (int(ipaddress.IPv6Address("2001:db8:ffff:eeee:dddd:cccc:bbbb:aaaa")), GidType.ROCE_V2_IPV6),
}
"""Rows: GID and type."""

TAGS = {9: (100, 5), 10: (0xABC, 2)}
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


def both_frame(header, payload, *, source, destination, flow_label=0, **fields):
    """The frame over the network of the GID ``source``."""
    if is_mapped(source):
        ends = {"source_ip": source & 0xFFFFFFFF, "destination_ip": destination & 0xFFFFFFFF}
        return frame_of(header, payload, **ends, **fields)
    return frame6_of(header, payload, source=source, destination=destination, flow_label=flow_label, **fields)
