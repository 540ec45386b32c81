"""RoCEv1: two adapters, and frames that scapy builds, with an ICRC by zlib."""

import ipaddress
import struct
import zlib

import pytest
from ends import (
    CMP_SWP,
    FETCH_ADD,
    READ,
    SEND,
    SEND_IMM,
    SIGNALED,
    WRITE,
    End,
    atomic,
    completion,
    completions,
    connect,
    fill,
    quiet,
    recv,
    send,
    settle,
    sge,
    word,
)
from scapy.contrib.roce import BTH
from scapy.contrib.roce import GRH as Grh
from scapy.layers.inet import UDP as Udp
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from verbena.sim.devices import world
from verbena.sim.pair import QKEY, handle, join, start
from verbena.sw.gids import link_local
from verbena.sw.verbs.addr import AH, GRH, AHAttr, GlobalRoute
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.wr import SendWR

RC, UC, UD = ibv_qp_type.IBV_QPT_RC, ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_UD
SIZE = 1 << 16
MAC = 0x02_00_00_00_00_98
PEER = link_local(MAC)
SEND_ONLY = 0x04
V2_LINK_LOCAL, IPV4, LINK_LOCAL = 1, 2, 3
"""Rows of the tables; the last two are of RoCEv1."""


def ends(qp_type=RC, *, index=LINK_LOCAL, **options):
    return (End(f"sim{n}", SIZE, qp_type=qp_type, depth=64, gid_index=index, **options) for n in range(2))


@pytest.mark.every_width
@pytest.mark.parametrize("index", [LINK_LOCAL, IPV4])
def test_connection(index):
    a, b = ends(index=index)
    with a, b:
        connect(a, b, mtu=1024, psn=0xFFFFF0)
        source, target = fill(a, 1), fill(b, 2)
        for length in (0, 1, 37, 1024, 5000):
            recv(b, [sge(b, 16384, 8192)])
            send(a, WRITE, [sge(a, 3, length)], remote=(b, 4096))
            send(a, SEND_IMM, [sge(a, 3, length)], imm=0x11223344)
            send(a, READ, [sge(a, 40000, length)], remote=(b, 50000))
            assert completion(b.cq).byte_len == length
            assert [wc.status for wc in completion(a.cq, 3)] == [0] * 3
            for at in (4096, 16384):
                assert b.mr.read(length, at) == source[3 : 3 + length]
            assert a.mr.read(length, 40000) == target[50000 : 50000 + length]
        b.mr.write((41).to_bytes(8, "little"), 8, 64)
        atomic(a, FETCH_ADD, [sge(a, 0, 8)], (b, 64), 1)
        atomic(a, CMP_SWP, [sge(a, 8, 8)], (b, 64), 42, 1 << 40)
        assert [wc.status for wc in completion(a.cq, 2)] == [0, 0]
        assert (word(a, 0), word(a, 8), word(b, 64)) == (41, 42, 1 << 40)


def test_unreliable_connection():
    a, b = ends(UC)
    with a, b:
        connect(a, b)
        source = fill(a, 5)
        for number, length in enumerate((1, 1024, 3000)):
            recv(b, [sge(b, 4096 * number, 4096)])
            send(a, SEND, [sge(a, 7, length)])
        assert [wc.byte_len for wc in completion(b.cq, 3)] == [1, 1024, 3000]
        assert b.mr.read(3000, 8192) == source[7:3007]


def test_connections_of_all_networks():
    """The same addresses by RoCEv2 and RoCEv1, with traffic of all in flight at once."""
    a, b = ends(RC, qps=4)
    with a, b:
        for index, (here, there) in enumerate(zip(a.qps, b.qps)):
            gids = [end.context.query_gid(1, index) for end in (a, b)]
            join(here, there, gids[1], sgid_index=index)
            join(there, here, gids[0], sgid_index=index)
        source = fill(a, 9)
        for number in range(32):
            place = 1500 * number
            send(a, WRITE, [sge(a, place, 1 + 40 * number)], remote=(b, place), qp=a.qps[number % 4])
        assert {wc.status for wc in completions(a.cq, 32)} == {0}
        for number in range(32):
            place = 1500 * number
            assert b.mr.read(1 + 40 * number, place) == source[place : place + 1 + 40 * number]


def datagram(end, ah, qpn, sges):
    wr = SendWR(0, SEND, num_sge=len(sges), sg=sges, send_flags=SIGNALED)
    wr.set_wr_ud(ah, qpn, QKEY)
    end.qp.post_send(wr)


@pytest.mark.every_width
def test_datagrams():
    """In front stands the GRH that came; an AH made of the completion leads back by the same row."""
    a, b = ends(UD)
    with a, b:
        start(a)
        start(b)
        source = fill(a, 3)
        for index in (LINK_LOCAL, V2_LINK_LOCAL, IPV4, 0):
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
                if index in (LINK_LOCAL, IPV4):
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


def text(gid):
    return str(ipaddress.IPv6Address(gid))


def mac_text(mac):
    return ":".join(f"{mac:012x}"[i : i + 2] for i in range(0, 12, 2))


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
        return bytes(head / IPv6(src=text(source), dst=text(target)) / Udp(sport=0xC123, dport=4791, chksum=0) / packet)
    packet.icrc = 0
    grh = Grh(paylen=len(bytes(packet)), nexthdr=nexthdr, hoplmt=64, flowlabel=5, sgid=source, dgid=target)
    whole = bytes(head / grh) + bytes(packet)
    return whole[:-4] + icrc(whole)


@pytest.fixture
def lone():
    with End("sim1", SIZE, depth=64, gid_index=LINK_LOCAL) as end:
        end.context._adapter.port.add_neighbour(0x0A000062, MAC)
        yield end


def heard(tap):
    settle(3000)
    found = []
    while (raw := tap.receive()) is not None:
        found.append(bytes(raw))
    return found


@pytest.mark.every_width
def test_what_stands_on_the_wire(lone):
    """A SEND and an ACK, field by field, and their ICRC."""
    tap = world().tap(MAC)
    route = GlobalRoute(text(PEER), flow_label=0x5A5A5, sgid_index=LINK_LOCAL, hop_limit=3, traffic_class=0xB8)
    join(lone.qp, lone.qp, text(PEER), dest_qp_num=77, ah_attr=AHAttr(is_global=1, gr=route))
    content = fill(lone, 4)
    recv(lone, [sge(lone, 0, 100)])
    world().adapters[1].inject(frame(lone, 0, b"RoCEv1"))
    send(lone, SEND, [sge(lone, 500, 13)])
    frames = heard(tap)
    assert completion(lone.cq).byte_len == 6
    assert lone.mr.read(6, 0) == b"RoCEv1"
    assert sorted(Ether(each)[BTH].opcode for each in frames) == [SEND_ONLY, 0x11]
    for each in frames:
        grh, bth = Ether(each)[Grh], Ether(each)[BTH]
        assert (Ether(each).type, grh.ipver, grh.nexthdr) == (0x8915, 6, 0x1B)
        assert (grh.sgid, grh.dgid, grh.paylen) == (int(lone.gid), PEER, len(each) - 54)
        assert (grh.tclass, grh.flowlabel, grh.hoplmt) == (0xB8, 0x5A5A5, 3)
        assert (bth.dqpn, bth.version, bth.pkey) == (77, 0, 0xFFFF)
        assert each[-4:] == icrc(each)
        if bth.opcode == SEND_ONLY:
            assert each[66:79] == content[500:513]


@pytest.mark.parametrize("index", [LINK_LOCAL, V2_LINK_LOCAL])
def test_a_connection_is_of_one_version(lone, index):
    """What comes for the same address by the other version, or is not the peer's, has no effect but a count."""
    tap = world().tap(MAC)
    own = 2 if index == V2_LINK_LOCAL else 1
    join(lone.qp, lone.qp, text(PEER), sgid_index=index, dest_qp_num=77)
    recv(lone, [sge(lone, 0, 100)])
    hostile = [
        ("drop_qp", {"version": 3 - own}),
        ("drop_qp", {"version": own, "source": PEER ^ 1}),
        ("drop_qp", {"version": own, "target": int(lone.gid) ^ 1 << 90}),
        ("drop_qp", {"version": own, "target": 0xFFFF << 32 | lone.context._adapter.port.ip}),
        ("drop_not_roce", {"version": 1, "nexthdr": 17}),
    ]
    for counter, fields in hostile:
        before = lone.context.query_counters()
        world().adapters[1].inject(frame(lone, 0, b"nobody's", **fields))
        settle(500)
        after = lone.context.query_counters()
        changed = {name for name in after if name.startswith("drop_") and after[name] != before[name]}
        assert changed == {counter}, fields
    quiet(lone.cq)
    assert heard(tap) == []
    world().adapters[1].inject(frame(lone, 0, b"the peer", version=own))
    assert completion(lone.cq).byte_len == 8


def test_an_address_is_resolved_as_that_of_rocev2():
    """By neighbour discovery, from a row of RoCEv1."""
    a, b = ends()
    with a, b:
        known = a.context._adapter.port._neighbours
        mac = known.pop(int(b.gid))
        try:
            before = b.context.query_counters("arp_replies")["arp_replies"]
            assert handle(a, b.gid)._mac == mac
            assert b.context.query_counters("arp_replies")["arp_replies"] == before + 1
        finally:
            known[int(b.gid)] = mac
