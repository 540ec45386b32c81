"""RoCEv2 over IPv6, beside IPv4: two adapters, and frames that scapy builds."""

import errno
import ipaddress

import pytest
from ends import SEND, SEND_IMM, WRITE, End, completion, connect, fill, quiet, recv, send, settle, sge
from ether_frames import mac_text
from networks import SIZE, V2_IPV6, address, changed_drops, datagram, ends, heard
from scapy.contrib.roce import BTH
from scapy.layers.inet import UDP as Udp
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
    in6_getnsma,
    in6_getnsmac,
)
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from verbena.sim.devices import world
from verbena.sim.pair import QKEY, handle, join, start
from verbena.sw.gids import link_local
from verbena.sw.verbs.addr import AH, GRH, AHAttr, GlobalRoute
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type, ibv_wc_flags
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError

UD = ibv_qp_type.IBV_QPT_UD
MAC = 0x02_00_00_00_00_99
PEER = link_local(MAC)
SEND_ONLY, UD_SEND_ONLY = 0x04, 0x64


@pytest.mark.every_width
def test_datagrams_of_both_networks():
    """One queue pair sends to both addresses of the other; the 40 bytes in front are the header that came."""
    a, b = ends(UD, index=V2_IPV6, sge=5, inline=80)
    with a, b:
        start(a)
        start(b)
        source = fill(a, 3)
        gids = [b.context.query_gid(1, index) for index in range(2)]
        handles = [
            handle(a, gids[index], sgid_index=index, traffic_class=0x50 + index, hop_limit=9 + index, **flow)
            for index, flow in enumerate(({}, {"flow_label": 0xABCDE}))
        ]
        lengths = (0, 1, 3, 8, 23, 24, 25, 64, 65, 1000, 4095, 4096)
        for length in lengths:
            for index in (0, 1):
                before = fill(b, length)
                recv(b, [sge(b, 100, 13), sge(b, 200, 40 + length)])
                datagram(a, handles[index], b.qp.qp_num, [sge(a, 5, length)], SEND_IMM if length % 2 else SEND)
                wc = completion(b.cq)
                assert (wc.status, wc.byte_len, bool(wc.wc_flags & ibv_wc_flags.IBV_WC_GRH)) == (0, 40 + length, True)
                assert wc.src_qp == a.qp.qp_num
                whole = b.mr.read(13, 100) + b.mr.read(27 + length, 200)
                assert whole[40:] == source[5 : 5 + length]
                assert b.mr.read(87, 113) == before[113:200]
                grh = GRH.unpack(whole[:40])
                assert (grh.sgid, grh.dgid) == (a.context.query_gid(1, index).gid, gids[index].gid)
                assert grh.hop_limit == 9 + index
                flow = int.from_bytes(grh.version_tclass_flow.to_bytes(4, "little"), "big")
                assert flow == 6 << 28 | 0x50 + index << 20 | (0xABCDE if index else 0)
                udp = 8 + 12 + 8 + 4 * (length % 2) + (length + 3) // 4 * 4 + 4
                assert int.from_bytes(grh.paylen.to_bytes(2, "little"), "big") == udp
                if index:
                    assert IPv6(whole[:40]).plen == udp
                else:
                    assert whole[:20] == bytes(20)
                completion(a.cq)


def test_answer_to_a_datagram():
    """An AH made of a completion leads back, from the GID that the datagram came to."""
    a, b = ends(UD, index=V2_IPV6)
    with a, b:
        start(a)
        start(b)
        recv(b, [sge(b, 0, 100)])
        datagram(a, handle(a, b.gid), b.qp.qp_num, [sge(a, 0, 8)])
        wc = completion(b.cq)
        back = AH(b.pd, wc=wc, grh=b.mr.buf, port_num=1)
        assert (back._attr.sgid_index, back._attr.dgid) == (1, a.gid.gid)
        recv(a, [sge(a, 0, 100)])
        datagram(b, back, wc.src_qp, [sge(b, 40, 8)])
        assert [each.status for each in completion(a.cq, 2)] == [0, 0]


# -- Frames of a peer that is no adapter.


def frame(end, opcode, psn, body=b"", *, source=PEER, target=None, mac=None, qpn=None, **ip):
    own = end.context._adapter.port.mac
    bth = BTH(opcode=opcode, padcount=-len(body) & 3, dqpn=qpn or end.qp.qp_num, ackreq=1, psn=psn, pkey=0xFFFF)
    there, here = mac_text(own if mac is None else mac), mac_text(MAC)
    target = int(end.gid) if target is None else target
    head = Ether(dst=there, src=here) / IPv6(src=address(source), dst=address(target), **ip)
    return bytes(head / Udp(sport=0xC123, dport=4791, chksum=0) / bth / Raw(body + bytes(-len(body) & 3)))


class Peer:
    """Of the queue pair of ``end``, at :data:`PEER`."""

    def __init__(self, end, **route):
        self.end, self.tap = end, world().tap(MAC)
        end.context._adapter.port.add_neighbour(0x0A000063, MAC)
        join(end.qp, end.qp, address(PEER), sgid_index=1, dest_qp_num=77, **route)

    def inject(self, *arguments, **fields):
        world().adapters[1].inject(frame(self.end, *arguments, **fields))


@pytest.fixture
def lone():
    with End("sim1", SIZE, depth=64, gid_index=1) as end:
        yield end


@pytest.mark.every_width
def test_what_stands_on_the_wire(lone):
    """A SEND and an ACK, field by field, and their ICRC."""
    peer = Peer(lone)
    content = fill(lone, 4)
    recv(lone, [sge(lone, 0, 100)])
    peer.inject(SEND_ONLY, 0, b"over IPv6")
    send(lone, SEND, [sge(lone, 500, 13)])
    frames = heard(peer.tap)
    assert completion(lone.cq).byte_len == 9
    assert sorted(each[BTH].opcode for each in frames) == [SEND_ONLY, 0x11]
    for each in frames:
        ip, udp, bth = each[IPv6], each[Udp], each[BTH]
        assert (int(ipaddress.IPv6Address(ip.src)), int(ipaddress.IPv6Address(ip.dst))) == (int(lone.gid), PEER)
        assert (ip.version, ip.tc, ip.fl, ip.nh, ip.hlim) == (6, 0, 0, 17, 64)
        assert ip.plen == udp.len == len(bytes(udp))
        assert (udp.dport, udp.chksum, bth.dqpn) == (4791, 0, 77)
        again = each.copy()
        again[BTH].icrc = None
        assert bytes(again) == bytes(each)
        if bth.opcode == SEND_ONLY:
            assert bytes(bth.payload)[:13] == content[500:513]


def test_route_of_a_connection(lone):
    """Traffic class, flow label and hop limit; the UDP source port follows from the flow label."""
    route = GlobalRoute(address(PEER), flow_label=0x5A5A5, sgid_index=1, hop_limit=3, traffic_class=0xB8)
    peer = Peer(lone, ah_attr=AHAttr(is_global=1, gr=route))
    send(lone, SEND, [sge(lone, 0, 4)])
    (seen,) = heard(peer.tap)[:1]
    assert (seen[IPv6].tc, seen[IPv6].fl, seen[IPv6].hlim) == (0xB8, 0x5A5A5, 3)
    assert seen[Udp].sport == 0xC000 | (0x5A5A5 & 0x3FFF) ^ 0x5A5A5 >> 14


def test_hostile_frames(lone):
    """What is not the peer's, or not for this address, has no effect but a count."""
    peer = Peer(lone)
    recv(lone, [sge(lone, 0, 100)])
    own4 = 0xFFFF << 32 | lone.context._adapter.port.ip
    hostile = [
        ("drop_qp", {"source": PEER ^ 1 << 100}),
        ("drop_qp", {"source": PEER ^ 1}),
        ("drop_qp", {"source": PEER ^ 1 << 40}),
        ("drop_qp", {"target": int(lone.gid) ^ 1 << 127}),
        ("drop_qp", {"target": int(lone.gid) ^ 1}),
        ("drop_qp", {"target": own4}),  # an IPv6 packet to an IPv4-mapped address
        ("drop_qp", {"mac": 0x333300000001}),  # to a group by its MAC address, but not by its address
        ("drop_not_roce", {"mac": 0x333400000001}),
        ("drop_not_roce", {"nh": 0}),
        ("drop_malformed", {"plen": 60}),
    ]
    for counter, fields in hostile:
        assert changed_drops(lone.context, frame(lone, SEND_ONLY, 0, b"nobody's", **fields)) == {counter}, fields
    quiet(lone.cq)
    assert heard(peer.tap) == []
    peer.inject(SEND_ONLY, 0, b"the peer")
    assert completion(lone.cq).byte_len == 8


def test_hostile_datagrams():
    """A datagram to none of the own addresses is dropped, whoever sends it, with whatever payload."""
    with End("sim1", SIZE, qp_type=UD, depth=64, gid_index=1) as end:
        start(end)
        recv(end, [sge(end, 0, 4096)])
        deth = QKEY.to_bytes(4, "big") + (5).to_bytes(4, "big")
        for target in (int(end.gid) ^ 2, 0xFFFF << 32 | end.context._adapter.port.ip):
            for length in (0, 8, 333):
                before = end.context.query_counters("drop_qp")["drop_qp"]
                world().adapters[1].inject(frame(end, UD_SEND_ONLY, 0, deth + bytes(length), target=target))
                settle(1500)
                assert end.context.query_counters("drop_qp")["drop_qp"] == before + 1
        quiet(end.cq)
        world().adapters[1].inject(frame(end, UD_SEND_ONLY, 0, deth + b"here"))
        assert completion(end.cq).byte_len == 44
        assert end.mr.read(4, 40) == b"here"


# -- Neighbours.


def forget(end, *gids):
    """Takes from the port what it knows of these addresses: then the network is asked."""
    for gid in gids:
        end.context._adapter.port._neighbours.pop(int(gid), None)


@pytest.fixture
def strangers():
    """Two adapters whose ports know nothing of each other's IPv6 addresses."""
    a, b = ends(index=V2_IPV6)
    with a, b:
        known = [dict(end.context._adapter.port._neighbours) for end in (a, b)]
        forget(a, b.gid)
        forget(b, a.gid)
        yield a, b
        for end, neighbours in zip((a, b), known):
            end.context._adapter.port._neighbours.update(neighbours)


@pytest.mark.every_width
def test_neighbours_find_each_other(strangers):
    a, b = strangers
    before = b.context.query_counters("arp_replies")["arp_replies"]
    connect(a, b)
    assert b.context.query_counters("arp_replies")["arp_replies"] == before + 1
    source = fill(a, 7)
    send(a, WRITE, [sge(a, 0, 2000)], remote=(b, 0))
    assert completion(a.cq).status == 0
    assert b.mr.read(2000, 0) == source[:2000]


def test_nobody_has_the_address(strangers, impatient):
    a, _ = strangers
    with pytest.raises(PyverbsRDMAError, match="nobody has the address fe80::1234") as caught:
        handle(a, "fe80::1234")
    assert caught.value.error_code == errno.EHOSTUNREACH


def test_a_foreign_host_asks_and_pings(lone):
    """Neighbour solicitation and ping of a host, by scapy."""
    tap, own = world().tap(MAC), str(ipaddress.IPv6Address(int(lone.gid)))
    ours, theirs = mac_text(world().adapters[1].mac), mac_text(MAC)
    group = in6_getnsma(ipaddress.IPv6Address(own).packed)
    head = Ether(dst=in6_getnsmac(group), src=theirs) / IPv6(
        src=address(PEER), dst=str(ipaddress.IPv6Address(group)), hlim=255
    )
    tap.send(bytes(head / ICMPv6ND_NS(tgt=own) / ICMPv6NDOptSrcLLAddr(lladdr=theirs)))
    settle(3000)
    answer = Ether(bytes(tap.receive()))
    assert (answer.src, answer.dst, answer[IPv6].src, answer[IPv6].dst) == (ours, theirs, own, address(PEER))
    assert (answer[ICMPv6ND_NA].tgt, answer[ICMPv6NDOptDstLLAddr].lladdr) == (own, ours)
    tap.send(
        bytes(Ether(dst=ours, src=theirs) / IPv6(src=address(PEER), dst=own) / ICMPv6EchoRequest(id=7, data=b"ping"))
    )
    settle(3000)
    answer = Ether(bytes(tap.receive()))
    assert (answer[ICMPv6EchoReply].id, answer[ICMPv6EchoReply].data) == (7, b"ping")
    again = answer.copy()
    del again[ICMPv6EchoReply].cksum
    assert bytes(again) == bytes(answer)


# -- Calls.


def test_table_of_gids(lone):
    context, port = lone.context, lone.context._adapter.port
    assert context.query_port(1).gid_tbl_len == 16
    assert int(context.query_gid(1, 0)) == 0xFFFF << 32 | port.ip
    assert int(context.query_gid(1, 1)) == link_local(port.mac)
    assert [context.query_gid(1, index) for index in (2, 3)] == [context.query_gid(1, index) for index in (0, 1)]
    assert int(context.query_gid(1, 15)) == 0
    rows = context.query_gid_table(16)
    assert [(row.gid_index, row.gid_type) for row in rows] == [(0, 2), (1, 2), (2, 1), (3, 1)]
    assert context.query_gid_ex(1, 1).gid_str() == rows[1].gid_str()
    assert [context.query_gid_type(1, index) for index in range(5)] == [1, 1, 0, 0, 0]
    for call in (context.query_gid, context.query_gid_type, context.query_gid_ex):
        with pytest.raises(PyverbsRDMAError, match="Invalid argument"):
            call(1, 16)
    with pytest.raises(PyverbsRDMAError, match="No data"):
        context.query_gid_ex(1, 4)
    with pytest.raises(PyverbsRDMAError):
        context.query_gid_table(3)


@pytest.mark.parametrize(
    ("gid", "index"),
    [
        ("fe80::1", 0),
        ("::ffff:10.0.0.1", 1),
        ("fe80::1", 2),
        ("::ffff:10.0.0.1", 3),
        ("fe80::1", 4),
        ("fe80::1", 16),
        ("fe80::1", -1),
        ("::", 1),
        ("ff02::1", 0),
        ("::ffff:224.0.0.1", 1),
    ],
)
def test_no_such_way(lone, gid, index):
    attr = AHAttr(is_global=1, gr=GlobalRoute(gid, sgid_index=index))
    with pytest.raises(PyverbsRDMAError, match="Invalid argument"):
        AH(lone.pd, attr=attr)
    with pytest.raises(PyverbsRDMAError, match="Invalid argument"):
        join(lone.qp, lone.qp, gid, sgid_index=index)
