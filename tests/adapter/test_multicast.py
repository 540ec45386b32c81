"""Multicast: queue pairs of two adapters in groups, and frames that scapy builds."""

import errno
import ipaddress
import random

import pytest
from ends import SEND, SEND_IMM, SIGNALED, End, completion, completions, fill, quiet, recv, settle, sge
from ether_frames import mac_text
from scapy.contrib.roce import BTH
from scapy.contrib.roce import GRH as Grh
from scapy.layers.inet import IP
from scapy.layers.inet import UDP as Udp
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from verbena.hdl.abi.gids import GROUP_MEMBERS
from verbena.sim.devices import world
from verbena.sim.pair import QKEY, handle, start
from verbena.sw.gids import link_local
from verbena.sw.verbs.addr import AH, GID, GRH, AHAttr, GlobalRoute
from verbena.sw.verbs.libibverbs_enums import ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QPAttr
from verbena.sw.verbs.wr import SendWR

UD, RC = ibv_qp_type.IBV_QPT_UD, ibv_qp_type.IBV_QPT_RC
SIZE = 1 << 16
EVERYBODY = 0xFFFFFF
FOUR, SIX, OTHER = "::ffff:239.1.2.3", "ff0e::1:2:3", "ff0e::1:2:4"
GROUPS = {0: FOUR, 1: SIX, 2: "ff0e::ffff:239.1.2.3", 3: SIX}
"""For each row of the table of GIDs a group; 2 and 3 are of RoCEv1."""

MAC = 0x02_00_00_00_00_96


def ends(qps=(1, 3), **options):
    return (End(f"sim{n}", SIZE, qp_type=UD, depth=64, qps=count, **options) for n, count in enumerate(qps))


@pytest.fixture
def pair():
    """A sender, and an adapter with three queue pairs in no group yet."""
    a, b = ends()
    with a, b:
        start(a)
        for qp in b.qps:
            start_one(qp)
        yield a, b
        leave(*a.qps, *b.qps)


def start_one(qp, qkey=QKEY):
    attr = QPAttr()
    attr.qkey = qkey
    qp.to_rts(attr)


def leave(*qps):
    for qp in qps:
        for group in qp._adapter.groups.of(qp.qp_num):
            qp.detach_mcast(GID.of(group), 0)


def to_group(end, group, sges, *, index=None, qkey=QKEY, opcode=SEND, qpn=EVERYBODY, **route):
    route |= {} if index is None else {"sgid_index": index}
    wr = SendWR(0, opcode, num_sge=len(sges), sg=sges, send_flags=SIGNALED, imm_data=9)
    wr.set_wr_ud(handle(end, group, **route), qpn, qkey)
    end.qp.post_send(wr)
    assert completion(end.cq).status == 0


def place(number):
    return 8192 * number


@pytest.mark.every_width
@pytest.mark.parametrize("index", list(GROUPS))
def test_each_member_gets_it(pair, index):
    """Each queue pair in the group, and no other, gets the datagram, with the header in front."""
    a, b = pair
    source, group = fill(a, index), GROUPS[index]
    for qp in b.qps[:2]:
        qp.attach_mcast(group, 0)
    b.qps[2].attach_mcast(OTHER, 0)
    for length in (0, 1, 8, 24, 65, 4096):
        for number, qp in enumerate(b.qps):
            recv(b, [sge(b, place(number), 44 + length)], qp=qp, wr_id=number)
        to_group(a, group, [sge(a, 7, length)], index=index, hop_limit=9, opcode=SEND_IMM if length % 2 else SEND)
        found = completions(b.cq, 2)
        assert [(wc.status, wc.wr_id, wc.qp_num) for wc in found] == [(0, n, b.qps[n].qp_num) for n in (0, 1)]
        for wc in found:
            assert (wc.byte_len, wc.src_qp) == (40 + length, a.qp.qp_num)
            whole = b.mr.read(40 + length, place(wc.wr_id))
            grh = GRH.unpack(whole)
            own = a.context.query_gid(1, index).gid
            assert (grh.sgid, grh.dgid, grh.hop_limit) == (own, GID(group).gid, 9)
            assert whole[40:] == source[7 : 7 + length]
        quiet(b.cq, 1000)
        # The queue pair that is not in the group still has its receive WQE.
        to_group(a, OTHER, [sge(a, 0, 4)], index=1)
        assert completion(b.cq).wr_id == 2


def test_members_do_not_hurt_each_other(pair):
    """Without a receive WQE, with another Q_Key, too small a one, or in a wrong state: the others get the datagram."""
    a, b = pair
    fill(a, 1)
    first, second, third = b.qps
    for qp in b.qps:
        qp.attach_mcast(SIX, 0)
    names = ("drop_qp", "drop_error")

    def lost():
        return sum(b.context.query_counters(*names).values())

    # The first has no WQE; the second has one.
    recv(b, [sge(b, place(1), 100)], qp=second, wr_id=1)
    before = lost()
    to_group(a, SIX, [sge(a, 0, 8)], index=1)
    assert (completion(b.cq).wr_id, lost() - before) == (1, 2)
    # Another Q_Key is of nobody.
    recv(b, [sge(b, place(1), 100)], qp=second, wr_id=2)
    to_group(a, SIX, [sge(a, 0, 8)], index=1, qkey=QKEY + 1)
    quiet(b.cq)
    # One receive WQE is too small.
    recv(b, [sge(b, place(0), 41)], qp=first, wr_id=3)
    recv(b, [sge(b, place(2), 100)], qp=third, wr_id=4)
    to_group(a, SIX, [sge(a, 0, 8)], index=1)
    assert {wc.wr_id for wc in completions(b.cq, 2)} == {2, 4}
    # The third leaves its state; its receive WQEs are flushed.
    third.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_ERR), ibv_qp_attr_mask.IBV_QP_STATE)
    recv(b, [sge(b, place(1), 100)], qp=second, wr_id=5)
    to_group(a, SIX, [sge(a, 0, 1)], index=1)
    assert [(wc.wr_id, wc.status) for wc in completions(b.cq, 2)] == [(3, 0), (5, 0)]
    quiet(b.cq)


@pytest.mark.every_width
def test_among_other_traffic(pair):
    """Datagrams to two groups and to single queue pairs, in a mixture, each with all that it had."""
    a, b = pair
    rng = random.Random(5)
    source = fill(a, 8)
    b.qps[0].attach_mcast(SIX, 0)
    b.qps[1].attach_mcast(SIX, 0)
    b.qps[1].attach_mcast(FOUR, 0)
    b.qps[2].attach_mcast(FOUR, 0)
    members = {SIX: (0, 1), FOUR: (1, 2)}
    wanted, sizes = {0: [], 1: [], 2: []}, 1100
    ways = {"six": handle(a, SIX, sgid_index=1), "four": handle(a, FOUR, sgid_index=0), "one": handle(a, b.gid)}
    plan = []
    for _ in range(30):
        kind, length, at = rng.choice(list(ways)), rng.choice([0, 5, 64, 1000]), rng.randrange(1000)
        target = rng.randrange(3)
        for number in (target,) if kind == "one" else members[SIX if kind == "six" else FOUR]:
            wanted[number].append(source[at : at + length])
        plan.append((kind, length, at, b.qps[target].qp_num if kind == "one" else EVERYBODY))
    slots = []
    for number, qp in enumerate(b.qps):
        for which in range(len(wanted[number])):
            slots.append((number, which))
            recv(b, [sge(b, sizes * (len(slots) - 1), sizes)], qp=qp, wr_id=len(slots) - 1)
    assert sizes * len(slots) < SIZE
    for kind, length, at, qpn in plan:
        wr = SendWR(0, SEND, num_sge=1, sg=[sge(a, at, length)], send_flags=SIGNALED)
        wr.set_wr_ud(ways[kind], qpn, QKEY)
        a.qp.post_send(wr)
    assert {wc.status for wc in completions(a.cq, len(plan))} == {0}
    for wc in completions(b.cq, len(slots)):
        number, which = slots[wc.wr_id]
        assert b.mr.read(wc.byte_len, sizes * wc.wr_id)[40:] == wanted[number][which]
    quiet(b.cq)


def text(gid):
    return str(ipaddress.IPv6Address(gid))


def frame(group, mac, *, qpn=EVERYBODY, opcode=0x64, own=None):
    deth = QKEY.to_bytes(4, "big") + (5).to_bytes(4, "big")
    four = GID(group).ipv4
    if four is None:
        ip = IPv6(src=text(link_local(MAC)), dst=text(int(GID(group))))
    else:
        ip = IP(src="10.0.0.96", dst=str(ipaddress.IPv4Address(four)), flags="DF", ttl=64)
    packet = Udp(sport=0xC123, dport=4791, chksum=0) / BTH(opcode=opcode, dqpn=qpn, psn=0, pkey=0xFFFF)
    return bytes(Ether(dst=mac_text(mac), src=mac_text(MAC)) / ip / packet / Raw(deth + b"here"))


def test_foreign_frames(pair):
    """Of a foreign host: the right one comes; what is not for a group as it says has no effect but a count."""
    _, b = pair
    qp = b.qps[0]
    qp.attach_mcast(SIX, 0)
    qp.attach_mcast(FOUR, 0)
    own = text(int(b.context.query_gid(1, 1)))
    port = b.context._adapter.port
    for number, (group, mac) in enumerate(((SIX, 0x333300020003), (FOUR, 0x01005E010203))):
        recv(b, [sge(b, 0, 100)], qp=qp, wr_id=number)
        world().adapters[1].inject(frame(group, mac))
        assert completion(b.cq).wr_id == number
        assert b.mr.read(4, 40) == b"here"
    recv(b, [sge(b, 0, 100)], qp=qp)
    hostile = [
        ("drop_qp", frame(OTHER, 0x333300020004)),  # nobody is in this group
        ("drop_qp", frame(SIX, 0x333300020003, qpn=qp.qp_num)),
        ("drop_qp", frame(SIX, 0x333300020003, opcode=0x04)),
        ("drop_qp", frame(SIX, port.mac)),  # the group's address, but not its MAC address
        ("drop_qp", frame(own, 0x333300020003, qpn=qp.qp_num)),  # and the other way
        ("drop_qp", frame(own, port.mac)),
        ("drop_not_roce", frame(FOUR, 0x01005E810203)),  # bit 23 is none of IPv4's
        ("drop_not_roce", frame(SIX, 0xFFFFFFFFFFFF)),
        ("drop_not_roce", frame(SIX, 0x333400020003)),
    ]
    for counter, bad in hostile:
        before = b.context.query_counters()
        world().adapters[1].inject(bad)
        settle(700)
        after = b.context.query_counters()
        changed = {name: after[name] - before[name] for name in after if name.startswith("drop_")}
        assert {name: count for name, count in changed.items() if count} == {counter: 1}, (counter, bad)
    quiet(b.cq)
    world().adapters[1].inject(frame(SIX, 0x333300020003))
    assert completion(b.cq).byte_len == 44


def test_what_stands_on_the_wire(pair):
    """MAC address, group, and the queue pair's number 0xffffff, of each network."""
    a, b = pair
    tap = world().tap(MAC)
    for index, mac in enumerate(("01:00:5e:01:02:03", "33:33:00:02:00:03", "33:33:ef:01:02:03", "33:33:00:02:00:03")):
        to_group(a, GROUPS[index], [sge(a, 0, 4)], index=index)
        settle(1000)
        sent = Ether(bytes(tap.receive()))
        assert (sent.dst, sent[BTH].dqpn) == (mac, EVERYBODY)
        group = int(GID(GROUPS[index]))
        if index == 0:
            assert sent[IP].dst == "239.1.2.3"
        else:
            assert (sent[Grh].dgid if index > 1 else int(ipaddress.IPv6Address(sent[IPv6].dst))) == group
    quiet(b.cq, 1000)


def test_who_has_sent_gets_nothing(pair):
    """What an adapter sends to a group does not come back to its own queue pairs."""
    a, b = pair
    a.qp.attach_mcast(SIX, 0)
    b.qp.attach_mcast(SIX, 0)
    recv(a, [sge(a, 0, 100)])
    recv(b, [sge(b, 0, 100)])
    to_group(a, SIX, [sge(a, 200, 4)], index=1)
    assert completion(b.cq).byte_len == 44
    quiet(a.cq)


def refused(code, call, *arguments, **more):
    with pytest.raises(PyverbsRDMAError) as caught:
        call(*arguments, **more)
    assert caught.value.error_code == code


def test_calls(pair):
    """Twice is once; what is wrong is refused; and the table is finite."""
    a, b = pair
    attr = b.context.query_device()
    limits = (attr.max_mcast_grp, attr.max_mcast_qp_attach, attr.max_total_mcast_qp_attach)
    assert limits == (GROUP_MEMBERS,) * 3
    qp = b.qps[0]
    for gid in ("fe80::1", "::ffff:10.0.0.1", "::"):
        refused(errno.EINVAL, qp.attach_mcast, gid, 0)
        refused(errno.EINVAL, qp.detach_mcast, gid, 0)
    refused(errno.EINVAL, qp.detach_mcast, SIX, 0)
    qp.attach_mcast(SIX, 0)
    qp.attach_mcast(GID(SIX), 0)
    recv(b, [sge(b, 0, 100)], qp=qp, wr_id=1)
    recv(b, [sge(b, 0, 100)], qp=qp, wr_id=2)
    to_group(a, SIX, [sge(a, 0, 4)], index=1)
    assert completion(b.cq).wr_id == 1
    refused(errno.EBUSY, qp.close)
    qp.detach_mcast(SIX, 0)
    to_group(a, SIX, [sge(a, 0, 4)], index=1)
    quiet(b.cq)
    for number in range(GROUP_MEMBERS):
        qp.attach_mcast(f"ff0e::{number:x}", 0)
    refused(errno.ENOMEM, b.qps[1].attach_mcast, SIX, 0)
    qp.attach_mcast("ff0e::3", 0)
    qp.detach_mcast("ff0e::1f", 0)
    b.qps[1].attach_mcast(SIX, 0)


def test_connected_queue_pairs_are_in_no_group():
    with End("sim0", 4096, qp_type=RC) as end:
        refused(errno.EINVAL, end.qp.attach_mcast, SIX, 0)


def test_a_context_takes_its_members_with_it(pair):
    """A queue pair that goes with its context leaves its groups."""
    a, b = pair
    adapter = b.context._adapter
    with End("sim1", 4096, qp_type=UD, qps=2) as other:
        for qp in other.qps:
            qp.attach_mcast(SIX, 0)
        assert len(adapter.groups.of(other.qp.qp_num)) == 1
        numbers = [qp.qp_num for qp in other.qps]
    assert not any(adapter.groups.of(number) for number in numbers)
    before = b.context.query_counters("drop_qp")["drop_qp"]
    to_group(a, SIX, [sge(a, 0, 4)], index=1)
    settle(1000)
    assert b.context.query_counters("drop_qp")["drop_qp"] == before + 1


def test_ways_to_groups(pair):
    """A group of IPv4 is reached from IPv4, one of IPv6 from IPv6; by RoCEv1 any is."""
    a, _ = pair
    for group, row in ((FOUR, 1), (SIX, 0), (SIX, 4)):
        refused(errno.EINVAL, AH, a.pd, attr=AHAttr(is_global=1, gr=GlobalRoute(group, sgid_index=row)))
    for group, row in ((FOUR, 2), (FOUR, 3), (SIX, 2), (SIX, 3)):
        AH(a.pd, attr=AHAttr(is_global=1, gr=GlobalRoute(group, sgid_index=row))).close()
