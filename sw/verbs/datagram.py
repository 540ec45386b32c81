"""What UD needs besides: where a datagram goes, and the IPv4 header in front of what has come."""

import errno
import struct

from verbena.hdl.abi.wqe import GRH_BYTES, UD_ADDRESS, UD_ROUTE

from .addr import AH
from .base import refuse
from .qp_context import FIRST_UDP_PORT, source_port

__all__ = ["GRH_BYTES", "grh_of", "way_of", "with_route"]

OTHER_BYTES = 20 + 8 + 12 + 8 + 4
"""Of a datagram's packet: IPv4, UDP, BTH, DETH, ICRC."""

CONTROLLED = 1 << 31
"""Bit of a Q_Key in a request that stands for the QP's own."""


def _datagram_port(flow_label, qpn):
    """UDP source port, as Linux' Soft-RoCE chooses it: of the flow label, or of the QP's number."""
    if flow_label:
        return source_port(flow_label, 0, 0)
    return FIRST_UDP_PORT | (qpn * 0x61C88647 & 0xFFFFFFFF) >> 18


def way_of(qp, wr, failed):
    """Fields of the send WQE of a UD QP that lead to the receiver; EINVAL if the request has none, or one of another
    PD."""
    ah = wr.ah
    if not isinstance(ah, AH):
        refuse(f"{failed}: a datagram needs an AH", errno.EINVAL)
    ah._check_open()
    if ah.pd.handle != qp.pd.handle or ah.pd.context is not qp.pd.context:
        refuse(f"{failed}: {ah} is of another PD", errno.EINVAL)
    route = ah._attr.gr
    qkey = qp._attr.qkey if wr.remote_qkey & CONTROLLED else wr.remote_qkey
    address = UD_ADDRESS.pack(dest_qpn=wr.remote_qpn, hop_limit=route.hop_limit, qkey=qkey)
    return {
        "traffic_class": route.traffic_class,
        "remote_address": int.from_bytes(address, "little"),
        "rkey": int(route._dgid) & 0xFFFFFFFF,
        "dest_mac": ah._mac,
        "source_port": _datagram_port(route.flow_label, qp.qp_num),
    }


def with_route(wqe, log_stride, ah):
    """A send WQE of a UD QP with the route at its end."""
    route = ah._attr.gr
    end = UD_ROUTE.pack(
        dest_gid_high=int(route._dgid) >> 64,
        dest_gid_middle=int(route._dgid) >> 32 & 0xFFFFFFFF,
        flow_label=route.flow_label,
        sgid_index=route.sgid_index,
    )
    return wqe.ljust((1 << log_stride) - len(end), b"\0") + end


def grh_of(entry, own_ip):
    """The 40 bytes in front of a datagram that an engine without a table of GIDs leaves free: 20 of nothing, and the
    IPv4 header of its packet as the completion ``entry`` tells of it. Its identification is not told, and is 0.
    """
    length = OTHER_BYTES + 4 * bool(entry["flags"] & 2) + (entry["byte_length"] - GRH_BYTES + 3) // 4 * 4
    words = (0x4500 | entry["traffic_class"], length, 0, 0x4000, entry["hop_limit"] << 8 | 17, 0)
    header = struct.pack("!6HII", *words, entry["source_ip"], own_ip)
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return bytes(20) + header[:10] + struct.pack("!H", checksum) + header[12:]
