"""Multicast groups by the connection manager: who joins, what programs see of it, and what the network hears."""

import errno
import gc

import pytest
from ends import quiet, settle
from scapy.layers.igmp import IGMPv3_MR
from scapy.layers.inet6 import ICMPv6MLReport2
from scapy.layers.l2 import Dot1Q, Ether
from verbena.hdl.abi.gids import GROUP_MEMBERS, GidType
from verbena.sim.devices import world
from verbena.sw.cm.clock import skip
from verbena.sw.cm.membership_report import ROUTERS, report
from verbena.sw.gids import OwnGid, mapped
from verbena.sw.verbs import cm_enums as ce
from verbena.sw.verbs.addr import AH, GID
from verbena.sw.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, JoinMCAttrEx, UDParam
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QPCap, QPInitAttr

NEAR, FAR = "10.0.0.1", "10.0.0.2"
FOUR, SIX = "239.1.2.3", "ff0e::1:2:3"
NETWORKS = {FOUR: (NEAR, FAR), SIX: ("fe80::56:42ff:fe00:1", "fe80::56:42ff:fe00:2")}
EVERYBODY, QKEY = 0xFFFFFF, 0x01234567
ROUTER = 0x02_00_00_00_00_94
ALL = ce.RDMA_CM_JOIN_MC_ATTR_ADDRESS | ce.RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS
FULL, SEND_ONLY = ce.RDMA_MC_JOIN_FLAG_FULLMEMBER, ce.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER
J, E = ce.RDMA_CM_EVENT_MULTICAST_JOIN, ce.RDMA_CM_EVENT_MULTICAST_ERROR


def init(kind=ibv_qp_type.IBV_QPT_UD):
    return QPInitAttr(kind, cap=QPCap(4, 4), sq_sig_all=1)


def at(own):
    return AddrInfo(src=own, port_space=ce.RDMA_PS_UDP, flags=ce.RAI_PASSIVE)


def to(group):
    return AddrInfo(src=group, port_space=ce.RDMA_PS_UDP)


@pytest.fixture
def channel():
    channel = CMEventChannel()
    yield channel
    channel.close()


def member(channel, own, qp=True):
    cmid = CMID(channel, port_space=ce.RDMA_PS_UDP)
    cmid.bind_addr(at(own))
    if qp:
        cmid.create_qp(init())
    return cmid


def joined(channel, cmid, kind=J, status=0):
    event = CMEvent(channel)
    assert (event.event_str(), event.status, event.id) == (kind.name, status, cmid)
    event.ack_cm_event()
    return event


def reports(tap, layer):
    """Types of the records that routers have heard, and their groups."""
    settle(3000)
    while skip(world().ports["sim1"]._driver):
        settle(3000)
    found = []
    while (raw := tap.receive()) is not None:
        frame = Ether(bytes(raw))
        if layer in frame:
            name = "maddr" if layer is IGMPv3_MR else "dst"
            found += [(record.rtype, record.getfieldval(name)) for record in frame[layer].records]
    return found


@pytest.mark.parametrize(("group", "layer"), [(FOUR, IGMPv3_MR), (SIX, ICMPv6MLReport2)])
def test_a_group(channel, group, layer):
    """Who sends to it, who gets it, and what routers hear."""
    tap = world().tap(ROUTER)
    near, far = NETWORKS[group]
    with member(channel, near) as sender, member(channel, far) as receiver:
        sender.join_multicast(mc_attr=JoinMCAttrEx(to(group), ALL, SEND_ONLY))
        peer = UDParam(joined(channel, sender))
        assert (peer.qp_num, peer.qkey) == (EVERYBODY, QKEY)
        index = int(group == SIX)
        gid = GID(group if group == SIX else f"::ffff:{group}").gid
        assert (peer.ah_attr.dgid, peer.ah_attr.sgid_index, peer.ah_attr.hop_limit) == (gid, index, 64)
        assert reports(tap, layer) == []
        receiver.join_multicast(mc_attr=JoinMCAttrEx(to(group), ALL, FULL))
        assert UDParam(joined(channel, receiver)).qp_num == EVERYBODY
        assert reports(tap, layer) == [(4, group)] * 2
        here, there = sender.reg_msgs(8), receiver.reg_msgs(48)
        way = AH(sender.pd, attr=peer.ah_attr)

        def say(words):
            here.write(words, 8)
            sender.post_ud_send(here, way, EVERYBODY)
            assert sender.get_send_comp().status == 0

        receiver.post_recv(there)
        say("to all..")
        wc = receiver.get_recv_comp()
        assert (wc.status, wc.byte_len, wc.src_qp) == (0, 48, sender.qpn)
        assert there.read(8, 40) == b"to all.."
        receiver.post_recv(there)
        receiver.leave_multicast(to(group))
        assert reports(tap, layer) == [(3, group)] * 2
        say("too late")
        quiet(receiver._recv_cq)
        with pytest.raises(PyverbsRDMAError) as caught:
            receiver.leave_multicast(to(group))
        assert caught.value.error_code == errno.EADDRNOTAVAIL


def test_synchronous():
    with CMID(at(FAR), qp_init_attr=init()) as cmid:
        cmid.create_qp(init())
        cmid.join_multicast(to(FOUR))
        groups = cmid.context._adapter.groups
        assert groups.of(cmid.qpn) == [int(GID(f"::ffff:{FOUR}"))]
        cmid.leave_multicast(to(FOUR))
        assert groups.of(cmid.qpn) == []


def test_a_qp_follows_when_the_event_is_taken(channel):
    """Not if it has left before; and not one that is made later, or that only sends."""
    with member(channel, FAR, qp=False) as early, member(channel, FAR) as cmid:
        groups = cmid.context._adapter.groups
        early.join_multicast(to(FOUR))
        joined(channel, early)
        early.create_qp(init())
        cmid.join_multicast(to(FOUR))
        assert groups.of(cmid.qpn) == []
        cmid.leave_multicast(to(FOUR))
        joined(channel, cmid)
        cmid.join_multicast(mc_attr=JoinMCAttrEx(to(FOUR), ALL, SEND_ONLY))
        joined(channel, cmid)
        assert groups.of(cmid.qpn) == groups.of(early.qpn) == []
        cmid.leave_multicast(to(FOUR))
        cmid.join_multicast(to(FOUR))
        joined(channel, cmid)
        assert groups.of(cmid.qpn) == [int(GID(f"::ffff:{FOUR}"))]


def test_who_is_closed_or_forgotten_leaves(channel):
    tap = world().tap(ROUTER)
    for close in (CMID.close, None):
        cmid = member(channel, FAR)
        cmid.join_multicast(to(FOUR))
        joined(channel, cmid)
        groups, number = cmid.context._adapter.groups, cmid.qpn
        reports(tap, IGMPv3_MR)
        if close is not None:
            close(cmid)
        del cmid
        gc.collect()
        CMID(at(FAR)).close()  # what was forgotten is buried
        assert groups.of(number) == []
        assert reports(tap, IGMPv3_MR) == [(3, FOUR)] * 2


def test_no_room(channel):
    """The table of the adapter is full."""
    with member(channel, FAR) as cmid:
        qp = cmid.qp
        others = [f"ff0e::{number + 1:x}" for number in range(GROUP_MEMBERS)]
        for other in others:
            qp.attach_mcast(other, 0)
        cmid.join_multicast(to(FOUR))
        event = joined(channel, cmid, E, -errno.ENOMEM)
        assert event._ud is None
        with pytest.raises(PyverbsRDMAError) as caught:
            cmid.leave_multicast(to(FOUR))
        assert caught.value.error_code == errno.EADDRNOTAVAIL
        for other in others:
            qp.detach_mcast(other, 0)
        cmid.join_multicast(to(FOUR))
        joined(channel, cmid)
    with CMID(at(FAR), qp_init_attr=init()) as cmid:
        cmid.create_qp(init())
        for other in others:
            cmid.qp.attach_mcast(other, 0)
        with pytest.raises(PyverbsRDMAError, match="MULTICAST_ERROR") as caught:
            cmid.join_multicast(to(FOUR))
        assert caught.value.error_code == errno.ENOMEM
        for other in others:
            cmid.qp.detach_mcast(other, 0)


def test_the_address_of_a_group_is_resolved_by_nobody(channel):
    """As mckey does it."""
    with CMID(channel, port_space=ce.RDMA_PS_UDP) as cmid:
        cmid.resolve_addr(AddrInfo(src=NEAR, dst=FOUR, port_space=ce.RDMA_PS_UDP))
        joined(channel, cmid, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        cmid.create_qp(init())
        cmid.join_multicast(to(FOUR))
        joined(channel, cmid)


@pytest.mark.parametrize(
    ("join", "code"),
    [
        (lambda cmid: cmid.join_multicast(to(FAR)), errno.EINVAL),
        (lambda cmid: cmid.join_multicast(to(SIX)), errno.ENETUNREACH),
        (lambda cmid: [cmid.join_multicast(to(FOUR)) for _ in range(2)], errno.EADDRINUSE),
        (lambda cmid: cmid.join_multicast(), errno.EINVAL),
        (lambda cmid: cmid.join_multicast(FOUR), errno.EINVAL),
        (lambda cmid: cmid.join_multicast(mc_attr=JoinMCAttrEx(to(FOUR))), errno.EINVAL),
        (lambda cmid: cmid.join_multicast(mc_attr=JoinMCAttrEx(to(FOUR), 1)), errno.EINVAL),
        (lambda cmid: cmid.join_multicast(mc_attr=JoinMCAttrEx(to(FOUR), ALL, 2)), errno.EINVAL),
        (lambda cmid: cmid.leave_multicast(to(FOUR)), errno.EADDRNOTAVAIL),
        (lambda cmid: CMID(CMEventChannel(), port_space=ce.RDMA_PS_UDP).join_multicast(to(FOUR)), errno.EINVAL),
        (lambda cmid: CMID(AddrInfo(src=NEAR, flags=ce.RAI_PASSIVE)).join_multicast(to(FOUR)), errno.EINVAL),
    ],
)
def test_errors_at_the_call(channel, join, code):
    with member(channel, NEAR) as cmid:
        with pytest.raises(PyverbsRDMAError) as caught:
            join(cmid)
        assert caught.value.error_code == code


def test_a_report_in_a_vlan(channel):
    """It has the tag of the address that it comes from; more than there is room for are lost."""
    tap = world().tap(ROUTER)
    with member(channel, FAR) as cmid:
        manager = cmid._identifier.manager
        row = OwnGid(mapped(0x0A010002), GidType.ROCE_V2_IPV4, 100, 5)
        packet = report(row.gid, mapped(0xEF010203), True)
        for _ in range(20):
            manager.send_frame(packet, ROUTERS, row)
        settle(20000)
        frames = []
        while (raw := tap.receive()) is not None:
            frames.append(Ether(bytes(raw)))
        assert 8 <= len(frames) < 20
        for frame in frames:
            assert (frame[Dot1Q].vlan, frame[Dot1Q].prio, frame.dst) == (100, 5, "01:00:5e:00:00:16")
            assert bytes(frame[Dot1Q].payload)[: len(packet)] == packet
        manager.send_frame(packet, ROUTERS, row)
        settle(3000)
        assert tap.receive() is not None
