"""Enumerations of ``<rdma/rdma_cma.h>``, as classes and, as in C, as flat names."""

from enum import IntEnum

__all__ = [
    "RAI_DNS",
    "RAI_FAMILY",
    "RAI_NOROUTE",
    "RAI_NUMERICHOST",
    "RAI_PASSIVE",
    "RAI_SA",
    "RDMA_OPTION_ID",
    "RDMA_OPTION_ID_ACK_TIMEOUT",
    "RDMA_OPTION_ID_TOS",
    "rdma_cm_event_type",
    "rdma_cm_join_mc_attr_mask",
    "rdma_cm_mc_join_flags",
    "rdma_port_space",
]

RAI_PASSIVE, RAI_NUMERICHOST, RAI_NOROUTE, RAI_FAMILY, RAI_SA, RAI_DNS = (1 << bit for bit in range(6))
RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, RDMA_OPTION_ID_ACK_TIMEOUT = 0, 0, 3


def _enum(name, prefix, members):
    kind = IntEnum(name, {prefix + member: value for member, value in members.items()}, module=__name__)
    globals().update(kind.__members__)
    __all__.extend(kind.__members__)
    return kind


_EVENTS = (
    "ADDR_RESOLVED ADDR_ERROR ROUTE_RESOLVED ROUTE_ERROR CONNECT_REQUEST CONNECT_RESPONSE CONNECT_ERROR UNREACHABLE "
    "REJECTED ESTABLISHED DISCONNECTED DEVICE_REMOVAL MULTICAST_JOIN MULTICAST_ERROR ADDR_CHANGE TIMEWAIT_EXIT "
    "ADDRINFO_RESOLVED ADDRINFO_ERROR"
)
rdma_cm_event_type = _enum(
    "rdma_cm_event_type", "RDMA_CM_EVENT_", {name: value for value, name in enumerate(_EVENTS.split())}
)
rdma_port_space = _enum("rdma_port_space", "RDMA_PS_", {"IPOIB": 0x0002, "TCP": 0x0106, "UDP": 0x0111, "IB": 0x013F})
rdma_cm_join_mc_attr_mask = _enum("rdma_cm_join_mc_attr_mask", "RDMA_CM_JOIN_MC_ATTR_", {"ADDRESS": 1, "JOIN_FLAGS": 2})
rdma_cm_mc_join_flags = _enum(
    "rdma_cm_mc_join_flags", "RDMA_MC_JOIN_FLAG_", {"FULLMEMBER": 0, "SENDONLY_FULLMEMBER": 1}
)
