"""The rows of the table of GIDs that an adapter has from the start, and two adapters that speak by one of them."""

import ipaddress

from ends import SEND, SIGNALED, End, settle
from scapy.layers.l2 import Ether
from verbena.sim.devices import world
from verbena.sim.pair import QKEY
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.wr import SendWR

__all__ = [
    "ALL",
    "SIZE",
    "V1_IPV4",
    "V1_IPV6",
    "V2_IPV4",
    "V2_IPV6",
    "address",
    "changed_drops",
    "datagram",
    "ends",
    "heard",
]

V2_IPV4, V2_IPV6, V1_IPV4, V1_IPV6 = ALL = range(4)
"""RoCEv2 and RoCEv1, from the adapter's IPv4 address and from its link-local one."""

SIZE = 1 << 16


def ends(qp_type=ibv_qp_type.IBV_QPT_RC, *, index, **options):
    """Two ends whose queue pairs use row ``index``."""
    return [End(f"sim{n}", SIZE, qp_type=qp_type, depth=64, gid_index=index, **options) for n in range(2)]


def datagram(end, ah, qpn, sges, opcode=SEND):
    """Posts a datagram; its immediate data, if it has any, is 9."""
    wr = SendWR(0, opcode, num_sge=len(sges), sg=sges, send_flags=SIGNALED, imm_data=9)
    wr.set_wr_ud(ah, qpn, QKEY)
    end.qp.post_send(wr)


def address(gid):
    """A GID as scapy wants it."""
    return str(ipaddress.IPv6Address(int(gid)))


def heard(tap):
    """The frames that have come to ``tap``, once all is over."""
    settle(3000)
    found = []
    while (raw := tap.receive()) is not None:
        found.append(Ether(bytes(raw)))
    return found


def changed_drops(context, frame):
    """Names of the adapter's counters of drops that change when ``frame`` comes to ``sim1``."""
    before = context.query_counters()
    world().adapters[1].inject(frame)
    settle(500)
    after = context.query_counters()
    return {name for name in after if name.startswith("drop_") and after[name] != before[name]}
