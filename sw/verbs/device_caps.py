"""What a device can do besides the basic verbs: ``struct ibv_device_attr_ex``; :mod:`.device` hands these out.

Classes and attributes are pyverbs'. What the engine does not have is 0.
"""

from .base import PyverbsObject
from .cq_moderation import MAX_CQ_COUNT, MAX_CQ_PERIOD
from .device_attr import DeviceAttr

__all__ = [
    "CQModerationCaps",
    "DeviceAttrEx",
    "ODPCaps",
    "PCIAtomicCaps",
    "PacketPacingCaps",
    "QueryDeviceExInput",
    "RSSCaps",
    "TMCaps",
    "TSOCaps",
]

RAW_CLOCK_KHZ = 1_000_000
"""Of the clock that ``query_rt_values_ex`` reads: it counts nanoseconds."""


class QueryDeviceExInput(PyverbsObject):
    """``struct ibv_query_device_ex_input``; ``comp_mask`` must be 0."""

    def __init__(self, comp_mask):
        self.comp_mask = comp_mask


class _Caps(PyverbsObject):
    """Capabilities, which the engine has not unless a class says so."""

    _names = ()

    def __init__(self):
        for name in self._names:
            setattr(self, name, 0)

    def __str__(self):
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())


class ODPCaps(_Caps):
    """On-demand paging."""

    _names = ("general_caps", "rc_odp_caps", "uc_odp_caps", "ud_odp_caps", "xrc_odp_caps")


class PCIAtomicCaps(_Caps):
    """Sizes of atomics on PCI Express. The engine has the host's memory read and written, and is atomic by itself."""

    _names = ("fetch_add", "swap", "compare_swap")


class TSOCaps(_Caps):
    """TCP segmentation offload."""

    _names = ("max_tso", "supported_qpts")


class RSSCaps(_Caps):
    """Receive side scaling."""

    _names = (
        "supported_qpts",
        "max_rwq_indirection_tables",
        "max_rwq_indirection_table_size",
        "rx_hash_fields_mask",
        "rx_hash_function",
    )


class PacketPacingCaps(_Caps):
    """Rate limits."""

    _names = ("qp_rate_limit_min", "qp_rate_limit_max", "supported_qpts")


class TMCaps(_Caps):
    """Tag matching."""

    _names = ("max_rndv_hdr_size", "max_num_tags", "flags", "max_ops", "max_sge")


class CQModerationCaps(_Caps):
    """Moderation of completion events: the largest ``cq_count`` and ``cq_period``, in microseconds, if it is there."""

    _names = ("max_cq_count", "max_cq_period")


class DeviceAttrEx(PyverbsObject):
    """``struct ibv_device_attr_ex``.

    ``hca_core_clock`` is in kHz and of the clock of :meth:`.Context.query_rt_values_ex`, which counts nanoseconds of
    the device's time.
    """

    def __init__(self, adapter):
        self.orig_attr = DeviceAttr(adapter)
        self.comp_mask = 0
        self.odp_caps = ODPCaps()
        self.completion_timestamp_mask = 0
        self.hca_core_clock = RAW_CLOCK_KHZ
        self.device_cap_flags_ex = self.orig_attr.device_cap_flags
        self.tso_caps = TSOCaps()
        self.rss_caps = RSSCaps()
        self.max_wq_type_rq = 0
        self.packet_pacing_caps = PacketPacingCaps()
        self.raw_packet_caps = 0
        self.tm_caps = TMCaps()
        self.cq_mod_caps = caps = CQModerationCaps()
        if adapter.control.cq_moderation:
            caps.max_cq_count, caps.max_cq_period = MAX_CQ_COUNT, MAX_CQ_PERIOD
        self.max_dm_size = 0 if adapter.device_memory is None else adapter.device_memory.size
        self.pci_atomic_caps = PCIAtomicCaps()
        self.phys_port_cnt_ex = self.orig_attr.phys_port_cnt
