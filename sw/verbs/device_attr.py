"""What a device, its port and its GID table tell about themselves; :mod:`.device` hands these out."""

from verbena.hdl.abi.contexts import QpType
from verbena.hdl.abi.gids import GROUP_MEMBERS

from ..gids import eui64 as guid_of
from ..pkeys import PKEY_COUNT
from .base import PyverbsObject
from .libibverbs_enums import (
    IBV_LINK_LAYER_ETHERNET,
    ibv_atomic_cap,
    ibv_device_cap_flags,
    ibv_event_type,
    ibv_gid_type,
    ibv_mtu,
    ibv_node_type,
    ibv_port_cap_flags,
    ibv_port_cap_flags2,
    ibv_port_state,
    ibv_transport_type,
)
from .limits import (
    MAX_AH,
    MAX_CQE,
    MAX_MR,
    MAX_MR_SIZE,
    MAX_MSG_SZ,
    MAX_PD,
    MAX_QP_WR,
    MAX_RD_ATOMIC,
    MAX_SRQ_WR,
    max_sge,
    max_srq_sge,
)
from .naming import name_of, names_of
from .utils import gid_str

__all__ = [
    "DeviceAttr",
    "GIDEntry",
    "PortAttr",
    "guid_format",
    "guid_of",
    "guid_to_hex",
    "phys_state_to_str",
    "port_state_to_str",
    "speed_to_str",
    "translate_device_caps",
    "translate_event_type",
    "translate_gid_type",
    "translate_link_layer",
    "translate_mtu",
    "translate_node_type",
    "translate_port_cap_flags",
    "translate_port_cap_flags2",
    "translate_transport_type",
    "width_to_str",
]

D = ibv_device_cap_flags
CAP_FLAGS = (
    D.IBV_DEVICE_CURR_QP_STATE_MOD
    | D.IBV_DEVICE_PORT_ACTIVE_EVENT
    | D.IBV_DEVICE_SYS_IMAGE_GUID
    | D.IBV_DEVICE_RC_RNR_NAK_GEN
)
"""What every engine can do: IBV_QP_CUR_STATE is taken, the port's events are told, there is a system image GUID, and a
request that finds no receive is answered with an RNR NAK."""

KEY_FLAGS = D.IBV_DEVICE_MEM_WINDOW | D.IBV_DEVICE_MEM_WINDOW_TYPE_2B | D.IBV_DEVICE_MEM_MGT_EXTENSIONS
"""Where work requests change keys: memory windows of types 1 and 2B, fast registration, local invalidate, SEND with
invalidate."""

_ABSENT = "max_ee_rd_atom max_ee_init_rd_atom max_ee max_rdd max_raw_ipv6_qps max_fmr max_map_per_fmr"
"""Attributes of what the engine does not have."""


def _swap(value):
    """Eight bytes in network order as a little-endian host reads them, and back: so the C structures have GUIDs."""
    return int.from_bytes(value.to_bytes(8, "big"), "little")


def guid_format(num):
    """Text of a GUID as :class:`DeviceAttr` has it."""
    text = f"{_swap(num):016x}"
    return ":".join(text[i : i + 4] for i in range(0, 16, 4))


class DeviceAttr(PyverbsObject):
    """``struct ibv_device_attr``."""

    def __init__(self, adapter):
        self.__dict__.update(dict.fromkeys(_ABSENT.split(), 0))
        self.fw_version = "0.1.0"
        self.node_guid = self.sys_image_guid = _swap(guid_of(adapter.port.mac))
        self.max_mr_size = MAX_MR_SIZE
        self.page_size_cap = sum(1 << i for i in range(12, 31))
        self.vendor_id = 0x5652
        self.vendor_part_id = 1
        self.hw_ver = 1
        self.max_qp = adapter.control.max_qp
        self.max_raw_ethy_qp = adapter.control.max_qp if QpType.RAW_PACKET in adapter.control.qp_types else 0
        self.max_qp_wr = MAX_QP_WR
        self.max_sge = self.max_sge_rd = max_sge(adapter.control.wqe_bytes)
        self.max_qp_rd_atom = self.max_qp_init_rd_atom = MAX_RD_ATOMIC
        self.max_res_rd_atom = min(adapter.control.max_responses, MAX_RD_ATOMIC * adapter.control.max_qp)
        self.max_cq = adapter.max_cq
        self.max_cqe = MAX_CQE
        self.max_mr = MAX_MR
        self.max_pd = MAX_PD
        self.max_ah = MAX_AH
        self.max_srq = adapter.control.max_srq
        self.max_srq_wr, self.max_srq_sge = (
            (MAX_SRQ_WR, max_srq_sge(adapter.control.wqe_bytes)) if self.max_srq else (0, 0)
        )
        able = adapter.control.key_operations
        self.max_mw = MAX_MR if able else 0
        self.device_cap_flags = CAP_FLAGS | (KEY_FLAGS if able else 0)
        self.atomic_caps = ibv_atomic_cap.IBV_ATOMIC_HCA if adapter.control.atomics else ibv_atomic_cap.IBV_ATOMIC_NONE
        groups = GROUP_MEMBERS if adapter.control.has_multicast else 0
        self.max_mcast_grp = self.max_mcast_qp_attach = self.max_total_mcast_qp_attach = groups
        self.max_pkeys = PKEY_COUNT
        self.local_ca_ack_delay = 15
        self.phys_port_cnt = 1

    def __str__(self):
        return _lines(self, node_guid=guid_format, sys_image_guid=guid_format, device_cap_flags=translate_device_caps)


class PortAttr(PyverbsObject):
    """``struct ibv_port_attr``; ``mtu`` in bytes is what the network carries, if that is less than the port does."""

    def __init__(self, link=True, mtu=None, gids=1):
        self.state = ibv_port_state.IBV_PORT_ACTIVE if link else ibv_port_state.IBV_PORT_DOWN
        self.max_mtu = ibv_mtu.IBV_MTU_4096
        self.active_mtu = ibv_mtu.IBV_MTU_4096 if mtu is None else ibv_mtu((mtu // 128).bit_length() - 1)
        self.gid_tbl_len = gids
        self.port_cap_flags = ibv_port_cap_flags.IBV_PORT_IP_BASED_GIDS
        self.max_msg_sz = MAX_MSG_SZ
        self.pkey_tbl_len = PKEY_COUNT
        self.lid = self.sm_lid = self.lmc = self.sm_sl = self.bad_pkey_cntr = self.qkey_viol_cntr = 0
        self.subnet_timeout = self.init_type_reply = self.flags = self.port_cap_flags2 = 0
        self.max_vl_num = 1
        self.active_width = 1
        self.active_speed = self.active_speed_ex = 4  # 10 Gb/s
        self.phys_state = 5 if link else 3  # LinkUp, Disabled
        self.link_layer = IBV_LINK_LAYER_ETHERNET

    def __str__(self):
        return _lines(
            self,
            state=port_state_to_str,
            max_mtu=translate_mtu,
            active_mtu=translate_mtu,
            link_layer=translate_link_layer,
            phys_state=phys_state_to_str,
            active_width=width_to_str,
            active_speed=speed_to_str,
            port_cap_flags=translate_port_cap_flags,
            port_cap_flags2=translate_port_cap_flags2,
        )


class GIDEntry(PyverbsObject):
    """One row of the GID table; prefix and interface id are in network order, as in C."""

    def __init__(
        self,
        subnet_prefix=0,
        interface_id=0,
        gid_index=0,
        port_num=0,
        gid_type=ibv_gid_type.IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex=0,
    ):
        self.gid_subnet_prefix = subnet_prefix
        self.gid_interface_id = interface_id
        self.gid_index = gid_index
        self.port_num = port_num
        self.gid_type = gid_type
        self.ndev_ifindex = ndev_ifindex

    @classmethod
    def of(cls, gid, gid_index, port_num, gid_type):
        """The row of a :class:`.GID`."""
        return cls(_swap(int(gid) >> 64), _swap(int(gid) & (1 << 64) - 1), gid_index, port_num, gid_type)

    def gid_str(self):
        """Text of the GID, in eight groups."""
        return gid_str(self.gid_subnet_prefix, self.gid_interface_id)

    def __str__(self):
        kind = translate_gid_type(self.gid_type)
        return f"GID {self.gid_index} of port {self.port_num}: {self.gid_str()}, {kind}"


def _lines(attributes, **formats):
    names = sorted(vars(attributes))
    return "\n".join(f"{name:<26}: {formats.get(name, str)(getattr(attributes, name))}" for name in names)


def _named(names, wrong):
    """A function from a number to what ``names`` calls it, or to ``wrong``."""

    def translate(value):
        """Text of the number, and the number."""
        return f"{names[value]} ({int(value)})" if value in names else f"{wrong} ({int(value)})"

    return translate


translate_mtu = _named({1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}, "Invalid MTU")
port_state_to_str = _named(
    {0: "NOP", 1: "Down", 2: "Init", 3: "Armed", 4: "Active", 5: "Active defer"}, "Invalid state"
)
phys_state_to_str = _named(
    {
        1: "Sleep",
        2: "Polling",
        3: "Disabled",
        4: "Port configuration training",
        5: "Link up",
        6: "Link error recovery",
        7: "Phy test",
    },
    "Invalid physical state",
)
width_to_str = _named({1: "1X", 2: "4X", 4: "8X", 8: "12X", 16: "2X"}, "Invalid width")
speed_to_str = _named(
    {
        0: "0.0 Gbps",
        1: "2.5 Gbps",
        2: "5.0 Gbps",
        4: "10.0 Gbps",
        8: "10.0 Gbps",
        16: "14.0 Gbps",
        32: "25.0 Gbps",
        64: "50.0 Gbps",
        128: "100.0 Gbps",
        256: "200.0 Gbps",
    },
    "Invalid speed",
)


def translate_link_layer(ll):
    """Name of a link layer."""
    return {0: "Unspecified", 1: "InfiniBand", 2: "Ethernet"}.get(ll, f"Invalid link layer ({ll})")


def translate_event_type(event_type):
    """Name of an asynchronous event."""
    return ibv_event_type(event_type).name if event_type in set(ibv_event_type) else f"Unknown event ({event_type})"


def translate_gid_type(gid_type):
    """Name of a GID's type."""
    return {0: "IB", 1: "RoCEv1", 2: "RoCEv2"}.get(gid_type, f"Unknown gid_type ({gid_type})")


def _short(kind, prefix):
    """A function from a number of ``kind`` to its name without ``prefix``, or to ``Unknown``."""

    def translate(value):
        """Name of the number."""
        known = value in set(kind) and value >= 0
        return name_of(kind, value).removeprefix(prefix).replace("_", " ") if known else "Unknown"

    return translate


translate_node_type = _short(ibv_node_type, "IBV_NODE_")
translate_transport_type = _short(ibv_transport_type, "IBV_TRANSPORT_")


def _listed(kind):
    """A function from flags of ``kind`` to their names, one a line."""

    def translate(flags):
        """Names of flags, one a line."""
        return "".join(f"\n  {name}" for name in names_of(kind, flags)) or "0"

    return translate


translate_device_caps = _listed(ibv_device_cap_flags)
translate_port_cap_flags = _listed(ibv_port_cap_flags)
translate_port_cap_flags2 = _listed(ibv_port_cap_flags2)


def guid_to_hex(node_guid):
    """Hexadecimal digits of a number."""
    return f"{node_guid:x}"
