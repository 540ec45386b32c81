"""Devices and contexts."""

import errno
from collections import deque

from ..adapter import Adapter, AdapterError
from ..port import open_port, port_names
from .addr import GID
from .base import PyverbsCM, PyverbsObject, refuse
from .libibverbs_enums import (
    IBV_GID_TYPE_ROCE_V2,
    IBV_GID_TYPE_SYSFS_ROCE_V2,
    IBV_LINK_LAYER_ETHERNET,
    IBV_NODE_CA,
    ibv_atomic_cap,
    ibv_event_type,
    ibv_mtu,
    ibv_port_state,
)
from .pyverbs_error import PyverbsRDMAError, PyverbsUserError

__all__ = ["AsyncEvent", "Context", "Device", "DeviceAttr", "GIDEntry", "PortAttr", "get_device_list", "open_adapter"]

MAX_QP_WR = 16384
MAX_CQE = 32767
MAX_SGE = 6
MAX_INLINE = 96
MAX_MSG_SZ = 1 << 31
EVENT_QUANTUM = 4096

_adapters = {}


def open_adapter(name):
    """The adapter behind device ``name``, brought up once and shared by all Contexts. ``OSError`` if it cannot be."""
    if name not in _adapters:
        _adapters[name] = Adapter(open_port(name))
    return _adapters[name]


class Device(PyverbsObject):
    """One entry of the device list."""

    def __init__(self, name, index):
        self._name = name
        self.index = index
        self.node_type = IBV_NODE_CA
        self.transport_type = 0

    @property
    def name(self):
        return self._name.encode()

    @property
    def guid(self):
        return _guid(open_adapter(self._name).port.mac)

    def __str__(self):
        return f"Device {self.index}: {self._name}"


def get_device_list():
    """All devices."""
    return [Device(name, i) for i, name in enumerate(port_names())]


def _guid(mac):
    return mac >> 24 << 40 | 0xFFFE << 24 | mac & 0xFFFFFF


class DeviceAttr(PyverbsObject):
    """``struct ibv_device_attr``."""

    def __init__(self, adapter):
        guid = _guid(adapter.port.mac)
        values = dict.fromkeys(
            [
                "device_cap_flags",
                "max_ee_rd_atom",
                "max_ee_init_rd_atom",
                "max_ee",
                "max_rdd",
                "max_mw",
                "max_raw_ipv6_qps",
                "max_raw_ethy_qp",
                "max_mcast_grp",
                "max_mcast_qp_attach",
                "max_total_mcast_qp_attach",
                "max_ah",
                "max_fmr",
                "max_map_per_fmr",
                "max_srq",
                "max_srq_wr",
                "max_srq_sge",
                "max_qp_rd_atom",
                "max_res_rd_atom",
                "max_qp_init_rd_atom",
                "max_sge_rd",
            ],
            0,
        )
        values.update(
            fw_version="0.1.0",
            node_guid=guid,
            sys_image_guid=guid,
            max_mr_size=1 << 40,
            page_size_cap=sum(1 << i for i in range(12, 31)),
            vendor_id=0x5652,
            vendor_part_id=1,
            hw_ver=1,
            max_qp=adapter.max_qp,
            max_qp_wr=MAX_QP_WR,
            max_sge=MAX_SGE,
            max_cq=adapter.max_cq,
            max_cqe=MAX_CQE,
            max_mr=1 << 14,
            max_pd=1 << 16,
            atomic_caps=ibv_atomic_cap.IBV_ATOMIC_NONE,
            max_pkeys=1,
            local_ca_ack_delay=15,
            phys_port_cnt=1,
        )
        self.__dict__.update(values)


class PortAttr(PyverbsObject):
    """``struct ibv_port_attr``."""

    def __init__(self):
        self.state = ibv_port_state.IBV_PORT_ACTIVE
        self.max_mtu = ibv_mtu.IBV_MTU_4096
        self.active_mtu = ibv_mtu.IBV_MTU_4096
        self.gid_tbl_len = 1
        self.port_cap_flags = 1 << 26  # IP-based GIDs
        self.max_msg_sz = MAX_MSG_SZ
        self.pkey_tbl_len = 1
        self.lid = self.sm_lid = self.lmc = self.sm_sl = self.bad_pkey_cntr = self.qkey_viol_cntr = (
            self.subnet_timeout
        ) = self.init_type_reply = 0
        self.max_vl_num = 1
        self.active_width = 1
        self.active_speed = 4  # 10 Gb/s
        self.phys_state = 5
        self.link_layer = IBV_LINK_LAYER_ETHERNET
        self.flags = self.port_cap_flags2 = 0


class GIDEntry(PyverbsObject):
    """One row of the GID table."""

    def __init__(self, gid, gid_index, port_num):
        self._gid = gid
        self.gid_index = gid_index
        self.port_num = port_num
        self.gid_type = IBV_GID_TYPE_ROCE_V2
        self.ndev_ifindex = 0
        self.gid_subnet_prefix = int(gid) >> 64
        self.gid_interface_id = int(gid) & (1 << 64) - 1

    def gid_str(self):
        return self._gid.gid


class AsyncEvent(PyverbsObject):
    """An asynchronous event about ``element``, a QP or CQ."""

    def __init__(self, event_type, element):
        self.event_type = ibv_event_type(event_type)
        self.element = element

    def ack(self):
        """Tells that the event has been dealt with; its object can be destroyed only after that."""
        if self.element is not None:
            self.element._unacked_events -= 1
            self.element = None


class Context(PyverbsCM):
    """An open device, ``Context(name="sim0")``. Several Contexts on one device share its adapter."""

    _rank = 9

    def __init__(self, **kwargs):
        name = kwargs.pop("name", None)
        if kwargs:
            refuse(f"Context takes only a name, not {', '.join(sorted(kwargs))}", errno.EOPNOTSUPP)
        if name is None:
            raise PyverbsUserError("Device name must be provided")
        name = name.decode() if isinstance(name, bytes) else name
        try:
            self._adapter = open_adapter(name)
        except AdapterError as error:
            raise PyverbsRDMAError(f"Failed to open device {name}: {error.strerror}", error.errno) from error
        except OSError as error:
            raise PyverbsRDMAError(f"Failed to find device {name}") from error
        super().__init__()
        self.name = name
        self.num_comp_vectors = 1
        self._events = deque()

    def _destroy(self):
        self._events.clear()

    def query_device(self):
        return DeviceAttr(self._adapter)

    def query_port(self, port_num):
        self._check_port(f"Failed to query port {port_num}", port_num)
        return PortAttr()

    def query_gid(self, port_num, index):
        self._check_port(f"Failed to query GID {index} of port {port_num}", port_num)
        if index != 0:
            refuse(f"Failed to query GID {index} of port {port_num}", errno.EINVAL)
        return GID.from_ipv4(self._adapter.port.ip)

    def query_gid_type(self, port_num, index):
        self.query_gid(port_num, index)
        return IBV_GID_TYPE_SYSFS_ROCE_V2

    def query_gid_ex(self, port_num, gid_index):
        return GIDEntry(self.query_gid(port_num, gid_index), gid_index, port_num)

    def query_gid_table(self, max_entries):
        if max_entries < 1:
            refuse("Failed to query gid table", -errno.EINVAL)
        return [self.query_gid_ex(1, 0)]

    def query_pkey(self, port_num, index):
        self._check_port(f"Failed to query pkey of port {port_num}", port_num)
        if index != 0:
            refuse(f"Failed to query pkey {index} of port {port_num}", errno.EINVAL)
        return 0xFFFF

    def get_pkey_index(self, port_num, pkey):
        if self.query_pkey(port_num, 0) != pkey:
            refuse(f"Failed to get the index of pkey {pkey:#x}", errno.EINVAL)
        return 0

    def get_async_event(self):
        """Waits for an asynchronous event. EDEADLK if none can come any more: nothing is under way."""
        while not self._events:
            if not self._adapter.advance(EVENT_QUANTUM) and not self._events:
                refuse("Failed to get an async event: the device is idle", errno.EDEADLK)
        return self._events.popleft()

    def query_counters(self):
        """Verbena's own: all counters of the engine by name (:mod:`verbena.hdl.abi.counters`)."""
        return self._adapter.counters()

    def _check_port(self, msg, port_num):
        if port_num != 1:
            refuse(msg, errno.EINVAL)

    def __str__(self):
        return f"Context of device {self.name}"
