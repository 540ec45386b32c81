"""RoCEv1: two adapters, and frames that scapy builds, with an ICRC by zlib."""

import struct
import zlib

import pytest
from ends import SEND, End, completion, fill, quiet, recv, send, sge
from ether_frames import mac_text
from networks import SIZE, V1_IPV4, V1_IPV6, V2_IPV4, V2_IPV6, address, changed_drops, datagram, ends, heard
from scapy.contrib.roce import BTH
from scapy.contrib.roce import GRH as Grh
from scapy.layers.inet import UDP as Udp
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from verbena.sim.devices import world
from verbena.sim.pair import handle, join, start
from verbena.sw.gids import link_local
from verbena.sw.verbs.addr import AH, GRH, AHAttr, GlobalRoute
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type

UD = ibv_qp_type.IBV_QPT_UD
MAC = 0x02_00_00_00_00_98
PEER = link_local(MAC)
SEND_ONLY = 0x04


@pytest.mark.every_width
def test_datagrams():
    """In front stands the GRH that came; an AH made of the completion leads back by the same row."""
    a, b = ends(UD, index=V1_IPV6)
    with a, b:
        start(a)
        start(b)
        source = fill(a, 3)
        for index in (V1_IPV6, V2_IPV6, V1_IPV4, V2_IPV4):
            gid, own = (end.context.query_gid(1, index) for end in (b, a))
            way = handle(a, gid, sgid_index=index, traffic_class=0x51, hop_limit=9, flow_label=0xABCDE)
            for length in (0, 1, 24, 65, 4096):
                recv(b, [sge(b, 100, 40 + length)])
                datagram(a, way, b.qp.qp_num, [sge(a, 5, length)])
                wc = completion(b.cq)
                assert (wc.status, wc.byte_len, wc.src_qp) == (0, 40 + length, a.qp.qp_num)
                whole = b.mr.read(40 + length, 100)
                assert whole[40:] == source[5 : 5 + length]
                completion(a.cq)
                if index in (V1_IPV6, V1_IPV4):
                    grh = Grh(whole[:40])
                    assert (grh.ipver, grh.tclass, grh.flowlabel, grh.nexthdr, grh.hoplmt) == (6, 0x51, 0xABCDE, 27, 9)
                    assert (grh.sgid, grh.dgid) == (int(own), int(gid))
                    assert grh.paylen == 12 + 8 + (length + 3) // 4 * 4 + 4
                    assert GRH.unpack(whole).next_hdr == 0x1B
            back = AH(b.pd, wc=wc, grh=b.mr.buf + 100, port_num=1)
            assert (back._attr.sgid_index, back._attr.dgid) == (index, own.gid)
            recv(a, [sge(a, 60000, 100)])
            datagram(b, back, wc.src_qp, [sge(b, 140, 8)])
            assert [completion(end.cq).status for end in (a, b)] == [0, 0]


# -- Frames of a peer that is no adapter.


def icrc(frame):
    """Of class, flow label and hop limit of the GRH, and of byte 4 of the BTH, ones count (IBA, annex A16)."""
    masked = bytearray(b"\xff" * 8 + frame[14:-4])
    masked[8] |= 0x0F
    for at in (9, 10, 11, 15, 52):
        masked[at] = 0xFF
    return struct.pack("<I", zlib.crc32(bytes(masked)))


def frame(end, psn, body, *, version=1, source=PEER, target=None, nexthdr=0x1B):
    bth = BTH(opcode=SEND_ONLY, padcount=-len(body) & 3, dqpn=end.qp.qp_num, ackreq=1, psn=psn, pkey=0xFFFF)
    packet = bth / Raw(body + bytes(-len(body) & 3))
    head = Ether(dst=mac_text(end.context._adapter.port.mac), src=mac_text(MAC))
    target = int(end.gid) if target is None else target
    if version == 2:
        return bytes(
            head / IPv6(src=address(source), dst=address(target)) / Udp(sport=0xC123, dport=4791, chksum=0) / packet
        )
    packet.icrc = 0
    grh = Grh(paylen=len(bytes(packet)), nexthdr=nexthdr, hoplmt=64, flowlabel=5, sgid=source, dgid=target)
    whole = bytes(head / grh) + bytes(packet)
    return whole[:-4] + icrc(whole)


@pytest.fixture
def lone():
    with End("sim1", SIZE, depth=64, gid_index=V1_IPV6) as end:
        end.context._adapter.port.add_neighbour(0x0A000062, MAC)
        yield end


@pytest.mark.every_width
def test_what_stands_on_the_wire(lone):
    """A SEND and an ACK, field by field, and their ICRC."""
    tap = world().tap(MAC)
    route = GlobalRoute(address(PEER), flow_label=0x5A5A5, sgid_index=V1_IPV6, hop_limit=3, traffic_class=0xB8)
    join(lone.qp, lone.qp, address(PEER), dest_qp_num=77, ah_attr=AHAttr(is_global=1, gr=route))
    content = fill(lone, 4)
    recv(lone, [sge(lone, 0, 100)])
    world().adapters[1].inject(frame(lone, 0, b"RoCEv1"))
    send(lone, SEND, [sge(lone, 500, 13)])
    frames = heard(tap)
    assert completion(lone.cq).byte_len == 6
    assert lone.mr.read(6, 0) == b"RoCEv1"
    assert sorted(each[BTH].opcode for each in frames) == [SEND_ONLY, 0x11]
    for each in frames:
        grh, bth, raw = each[Grh], each[BTH], each.original
        assert (each.type, grh.ipver, grh.nexthdr) == (0x8915, 6, 0x1B)
        assert (grh.sgid, grh.dgid, grh.paylen) == (int(lone.gid), PEER, len(raw) - 54)
        assert (grh.tclass, grh.flowlabel, grh.hoplmt) == (0xB8, 0x5A5A5, 3)
        assert (bth.dqpn, bth.version, bth.pkey) == (77, 0, 0xFFFF)
        assert raw[-4:] == icrc(raw)
        if bth.opcode == SEND_ONLY:
            assert raw[66:79] == content[500:513]


@pytest.mark.parametrize("index", [V1_IPV6, V2_IPV6])
def test_a_connection_is_of_one_version(lone, index):
    """What comes for the same address by the other version, or is not the peer's, has no effect but a count."""
    tap = world().tap(MAC)
    own = 2 if index == V2_IPV6 else 1
    join(lone.qp, lone.qp, address(PEER), sgid_index=index, dest_qp_num=77)
    recv(lone, [sge(lone, 0, 100)])
    hostile = [
        ("drop_qp", {"version": 3 - own}),
        ("drop_qp", {"version": own, "source": PEER ^ 1}),
        ("drop_qp", {"version": own, "target": int(lone.gid) ^ 1 << 90}),
        ("drop_qp", {"version": own, "target": 0xFFFF << 32 | lone.context._adapter.port.ip}),
        ("drop_not_roce", {"version": 1, "nexthdr": 17}),
    ]
    for counter, fields in hostile:
        assert changed_drops(lone.context, frame(lone, 0, b"nobody's", **fields)) == {counter}, fields
    quiet(lone.cq)
    assert heard(tap) == []
    world().adapters[1].inject(frame(lone, 0, b"the peer", version=own))
    assert completion(lone.cq).byte_len == 8


def test_an_address_is_resolved_as_that_of_rocev2():
    """By neighbour discovery, from a row of RoCEv1."""
    a, b = ends(index=V1_IPV6)
    with a, b:
        known = a.context._adapter.port._neighbours
        mac = known.pop(int(b.gid))
        try:
            before = b.context.query_counters("arp_replies")["arp_replies"]
            assert handle(a, b.gid)._mac == mac
            assert b.context.query_counters("arp_replies")["arp_replies"] == before + 1
        finally:
            known[int(b.gid)] = mac
