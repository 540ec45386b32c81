"""Rows of the table of GIDs in VLANs: connections of two adapters, and frames that scapy builds."""

import errno
import ipaddress

import pytest
from ends import READ, SEND, WRITE, End, completion, connect, fill, quiet, recv, send, settle, sge
from ether_frames import mac_text
from scapy.contrib.roce import BTH
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw
from verbena.hdl.abi.gids import GidType
from verbena.sim.devices import world
from verbena.sim.pair import join
from verbena.sw.adapter import AdapterError
from verbena.sw.cm.ip_header import address_text
from verbena.sw.gids import OwnGid, mapped
from verbena.sw.verbs import cm_enums as ce
from verbena.sw.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.qp import QPCap, QPInitAttr

SIZE = 1 << 14
MAC = 0x02_00_00_00_00_97
PEER = int(ipaddress.IPv6Address("fd00:100::97"))
SIX, FOUR, ONE = 4, 5, 6
"""Rows: of IPv6, of IPv4, and of RoCEv1."""


def own_rows(number):
    six, four = int(ipaddress.IPv6Address(f"fd00:100::{number}")), mapped(0x0A010000 + number)
    return {
        SIX: OwnGid(six, GidType.ROCE_V2_IPV6, 100, 5),
        FOUR: OwnGid(four, GidType.ROCE_V2_IPV4, 0xABC, 1),
        ONE: OwnGid(six, GidType.ROCE_V1, 100, 6),
    }


def address_of(gid):
    return ipaddress.ip_address(address_text(gid))


@pytest.fixture
def in_vlans():
    """Adapters whose tables have these rows for a while."""
    ends = [End(f"sim{n}", SIZE, depth=64) for n in range(2)]
    adapters = [end.context._adapter for end in ends]
    for number, adapter in enumerate(adapters, 1):
        for index, row in own_rows(number).items():
            adapter.gids[index] = row
        adapter.control.write_gids(adapter.gids)
        for other, end in enumerate(ends, 1):
            for row in own_rows(other).values():
                adapter.port._neighbours[int(address_of(row.gid))] = end.context._adapter.port.mac
    yield ends
    for end, adapter in zip(ends, adapters):
        end.close()
        adapter.gids[SIX : ONE + 1] = [None] * 3
        adapter.control.write_gids(adapter.gids)


@pytest.mark.every_width
@pytest.mark.parametrize("index", [SIX, FOUR, ONE])
def test_connection(in_vlans, index):
    a, b = in_vlans
    a.gid_index = b.gid_index = index
    connect(a, b, mtu=1024)
    source, target = fill(a, 1), fill(b, 2)
    for length in (0, 1, 8, 63, 1024, 3001):
        recv(b, [sge(b, 0, 4096)])
        send(a, SEND, [sge(a, 3, length)])
        assert completion(b.cq).byte_len == length
        assert b.mr.read(length, 0) == source[3 : 3 + length]
        send(a, READ, [sge(a, 8192, length)], remote=(b, 5000))
        assert [wc.status for wc in completion(a.cq, 2)] == [0, 0]
        assert a.mr.read(length, 8192) == target[5000 : 5000 + length]


@pytest.mark.every_width
def test_neighbours_are_found(in_vlans, impatient):
    """By ARP and neighbour discovery in the VLAN of the address that is asked from; in another one nobody answers."""
    for near, far in ((0, 1), (1, 0)):
        mine, others = (in_vlans[n].context._adapter for n in (near, far))
        for row in own_rows(far + 1).values():
            mine.port._neighbours.pop(int(address_of(row.gid)), None)
        for index, row in own_rows(far + 1).items():
            before = others.control.counters("arp_replies")["arp_replies"]
            assert mine.control.resolve_gid(row.gid, index) == others.port.mac
            assert others.control.counters("arp_replies")["arp_replies"] == before + 1
        for index, other in ((SIX, FOUR), (FOUR, SIX), (0, FOUR), (1, SIX)):
            with pytest.raises(AdapterError) as caught:
                mine.control.resolve_gid(own_rows(far + 1)[other].gid, index)
            assert caught.value.errno == errno.EHOSTUNREACH


@pytest.mark.every_width
def test_what_stands_on_the_wire(in_vlans):
    """The tag of what is sent; and what comes with another tag, or without, is dropped and counted."""
    _, end = in_vlans
    end.context._adapter.port._neighbours[PEER] = MAC
    tap, own = world().tap(MAC), str(ipaddress.IPv6Address(own_rows(2)[SIX].gid))
    peer = str(ipaddress.IPv6Address(PEER))
    join(end.qp, end.qp, peer, sgid_index=SIX, dest_qp_num=77)
    ours, theirs = mac_text(world().adapters[1].mac), mac_text(MAC)
    packet = IPv6(src=peer, dst=own) / UDP(sport=0xC123, dport=4791, chksum=0)
    packet /= BTH(opcode=4, dqpn=end.qp.qp_num, ackreq=1, psn=0, pkey=0xFFFF) / Raw(b"tags")
    recv(end, [sge(end, 0, 100)])
    for tag in (None, Dot1Q(vlan=101), Dot1Q(vlan=0), Dot1Q(vlan=0xABC)):
        before = end.context.query_counters("drop_qp")["drop_qp"]
        head = Ether(dst=ours, src=theirs)
        world().adapters[1].inject(bytes(head / packet if tag is None else head / tag / packet))
        settle(1500)
        assert end.context.query_counters("drop_qp")["drop_qp"] == before + 1, tag
    quiet(end.cq)
    assert tap.receive() is None
    # Whatever the priority.
    world().adapters[1].inject(bytes(Ether(dst=ours, src=theirs) / Dot1Q(vlan=100, prio=3) / packet))
    assert completion(end.cq).byte_len == 4
    send(end, WRITE, [sge(end, 0, 13)], remote=(end, 0))
    settle(3000)
    heard = []
    while (raw := tap.receive()) is not None:
        heard.append(Ether(bytes(raw)))
    assert sorted(each[BTH].opcode for each in heard) == [0x0A, 0x11]
    for each in heard:
        assert (each[Dot1Q].vlan, each[Dot1Q].prio, each[Dot1Q].type) == (100, 5, 0x86DD)
        again = each.copy()
        again[BTH].icrc = None
        assert bytes(again) == bytes(each)


@pytest.mark.parametrize("index", [SIX, FOUR])
def test_the_connection_manager(in_vlans, index):
    """By an address of a VLAN it asks, answers and connects there; without one of its own by the nearest."""
    near, far = (end.context for end in in_vlans)
    own, peer = (address_text(own_rows(number)[index].gid) for number in (1, 2))
    channel = CMEventChannel()
    init = QPInitAttr(ibv_qp_type.IBV_QPT_RC, cap=QPCap(4, 4), sq_sig_all=1)
    with CMID(channel, context=far) as listener, CMID(channel, context=near) as active:
        listener.bind_addr(AddrInfo(src=peer, src_service="7471", flags=ce.RAI_PASSIVE))
        listener.listen()
        active.resolve_addr(AddrInfo(dst=peer, dst_service="7471"))
        assert CMEvent(channel).event_type == ce.RDMA_CM_EVENT_ADDR_RESOLVED
        active.create_qp(init)
        active.connect()
        request = CMEvent(channel)
        with CMID(request, listen_id=listener) as child:
            child.create_qp(init)
            child.accept()
            kinds = {CMEvent(channel).event_type for _ in range(2)}
            assert kinds == {ce.RDMA_CM_EVENT_ESTABLISHED}
            for cmid, gid in ((active, peer), (child, own)):
                route = cmid.query_qp(0x1FFFFFF)[0].ah_attr.gr
                assert route.sgid_index == index
                assert address_text(int(route._dgid)) == gid
    channel.close()
