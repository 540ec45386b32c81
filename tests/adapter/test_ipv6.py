"""RoCEv2 over IPv6, beside IPv4: two adapters, and frames that scapy builds."""

import errno
import ipaddress
import random

import pytest
from ends import (
    CMP_SWP,
    FETCH_ADD,
    READ,
    SEND,
    SEND_IMM,
    SIGNALED,
    WRITE,
    WRITE_IMM,
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
from verbena.sw.verbs.wr import SendWR

RC, UC, UD = ibv_qp_type.IBV_QPT_RC, ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_UD
SIZE = 1 << 16
MAC = 0x02_00_00_00_00_99
PEER = link_local(MAC)
SEND_ONLY, UD_SEND_ONLY = 0x04, 0x64


def ends(qp_type=RC, *, indices=(1, 1), **options):
    near = End("sim0", SIZE, qp_type=qp_type, depth=64, gid_index=indices[0], **options)
    return near, End("sim1", SIZE, qp_type=qp_type, depth=64, gid_index=indices[1], **options)


@pytest.fixture
def pair():
    a, b = ends()
    with a, b:
        connect(a, b, mtu=1024, psn=0xFFFFF0)
        yield a, b


@pytest.mark.every_width
@pytest.mark.parametrize("length", [0, 1, 37, 1024, 5000])
def test_all_operations(pair, length):
    a, b = pair
    source, target = fill(a, 1), fill(b, 2)
    part = [sge(a, 3, length)]
    send(a, WRITE, part, remote=(b, 4096))
    recv(b, [sge(b, 16384, 8192)])
    send(a, SEND_IMM, part, imm=0x11223344)
    recv(b, [])
    send(a, WRITE_IMM, part, remote=(b, 32768), imm=7)
    assert [wc.byte_len for wc in completion(b.cq, 2)] == [length, length]
    send(a, READ, [sge(a, 40000, length)], remote=(b, 50000))
    assert [wc.status for wc in completion(a.cq, 4)] == [0] * 4
    for at in (4096, 16384, 32768):
        assert b.mr.read(length, at) == source[3 : 3 + length]
    assert a.mr.read(length, 40000) == target[50000 : 50000 + length]


@pytest.mark.every_width
def test_atomics(pair):
    a, b = pair
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


def datagram(end, ah, qpn, sges, opcode=SEND, qkey=QKEY):
    wr = SendWR(0, opcode, num_sge=len(sges), sg=sges, send_flags=SIGNALED, imm_data=9)
    wr.set_wr_ud(ah, qpn, qkey)
    end.qp.post_send(wr)


@pytest.mark.every_width
def test_datagrams_of_both_networks():
    """One queue pair sends to both addresses of the other; the 40 bytes in front are the header that came."""
    a, b = ends(UD, sge=5, inline=80)
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
    a, b = ends(UD)
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


def test_queue_pairs_of_both_networks():
    """Connections over IPv4 and IPv6 side by side, with traffic of both in flight at once."""
    rng = random.Random(8)
    a, b = ends(RC, qps=4)
    with a, b:
        for number, (here, there) in enumerate(zip(a.qps, b.qps)):
            index = number % 2
            gids = [end.context.query_gid(1, index) for end in (a, b)]
            join(here, there, gids[1], sgid_index=index)
            join(there, here, gids[0], sgid_index=index)
        source = fill(a, 9)
        places = []
        for number in range(40):
            length, at = rng.randrange(1500), 1500 * number
            send(a, WRITE, [sge(a, at, length)], remote=(b, at), qp=a.qps[number % 4])
            places.append((at, length))
        assert {wc.status for wc in completions(a.cq, 40)} == {0}
        for at, length in places:
            assert b.mr.read(length, at) == source[at : at + length]


# -- Frames of a peer that is no adapter.


def text(gid):
    return str(ipaddress.IPv6Address(gid))


def frame(end, opcode, psn, body=b"", *, source=PEER, target=None, mac=None, qpn=None, **ip):
    own = end.context._adapter.port.mac
    bth = BTH(opcode=opcode, padcount=-len(body) & 3, dqpn=qpn or end.qp.qp_num, ackreq=1, psn=psn, pkey=0xFFFF)
    macs = [":".join(f"{each:012x}"[i : i + 2] for i in range(0, 12, 2)) for each in (own if mac is None else mac, MAC)]
    target = int(end.gid) if target is None else target
    head = Ether(dst=macs[0], src=macs[1]) / IPv6(src=text(source), dst=text(target), **ip)
    return bytes(head / Udp(sport=0xC123, dport=4791, chksum=0) / bth / Raw(body + bytes(-len(body) & 3)))


class Peer:
    """Of the queue pair of ``end``, at :data:`PEER`."""

    def __init__(self, end, **route):
        self.end, self.tap = end, world().tap(MAC)
        end.context._adapter.port.add_neighbour(0x0A000063, MAC)
        join(end.qp, end.qp, text(PEER), sgid_index=1, dest_qp_num=77, **route)

    def inject(self, *arguments, **fields):
        world().adapters[1].inject(frame(self.end, *arguments, **fields))

    def heard(self):
        settle(3000)
        found = []
        while (raw := self.tap.receive()) is not None:
            found.append(Ether(bytes(raw)))
        return found


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
    heard = peer.heard()
    assert completion(lone.cq).byte_len == 9
    assert sorted(each[BTH].opcode for each in heard) == [SEND_ONLY, 0x11]
    for each in heard:
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
    route = GlobalRoute(text(PEER), flow_label=0x5A5A5, sgid_index=1, hop_limit=3, traffic_class=0xB8)
    peer = Peer(lone, ah_attr=AHAttr(is_global=1, gr=route))
    send(lone, SEND, [sge(lone, 0, 4)])
    (heard,) = peer.heard()[:1]
    assert (heard[IPv6].tc, heard[IPv6].fl, heard[IPv6].hlim) == (0xB8, 0x5A5A5, 3)
    assert heard[Udp].sport == 0xC000 | (0x5A5A5 & 0x3FFF) ^ 0x5A5A5 >> 14


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
        before = lone.context.query_counters()
        peer.inject(SEND_ONLY, 0, b"nobody's", **fields)
        settle(500)
        after = lone.context.query_counters()
        changed = {name for name in after if name.startswith("drop_") and after[name] != before[name]}
        assert changed == {counter}, fields
    quiet(lone.cq)
    assert peer.heard() == []
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
    a, b = ends()
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
    ours, theirs = (
        ":".join(f"{mac:012x}"[i : i + 2] for i in range(0, 12, 2)) for mac in (world().adapters[1].mac, MAC)
    )
    group = in6_getnsma(ipaddress.IPv6Address(own).packed)
    head = Ether(dst=in6_getnsmac(group), src=theirs) / IPv6(
        src=text(PEER), dst=str(ipaddress.IPv6Address(group)), hlim=255
    )
    tap.send(bytes(head / ICMPv6ND_NS(tgt=own) / ICMPv6NDOptSrcLLAddr(lladdr=theirs)))
    settle(3000)
    answer = Ether(bytes(tap.receive()))
    assert (answer.src, answer.dst, answer[IPv6].src, answer[IPv6].dst) == (ours, theirs, own, text(PEER))
    assert (answer[ICMPv6ND_NA].tgt, answer[ICMPv6NDOptDstLLAddr].lladdr) == (own, ours)
    tap.send(bytes(Ether(dst=ours, src=theirs) / IPv6(src=text(PEER), dst=own) / ICMPv6EchoRequest(id=7, data=b"ping")))
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
