"""What identifiers of the connection manager are given and told; :mod:`.cmid` hands it out."""

import errno
import ipaddress
import socket

from verbena.sw.cm.ip_header import endpoint_text
from verbena.sw.cm.parameters import Parameters

from ..gids import mapped
from .addr import GID, AHAttr, GlobalRoute
from .base import PyverbsObject, refuse
from .cm_enums import RAI_NUMERICHOST, RAI_PASSIVE, rdma_port_space
from .number import within
from .pyverbs_error import PyverbsUserError

__all__ = ["AddrInfo", "ConnParam", "JoinMCAttrEx", "UDParam"]

HOP_LIMIT = 64
MAX_PORT = 65535


class ConnParam(PyverbsObject):
    """Connection parameters: READs and atomics of the peer that this side serves at a time (``resources``), and its own
    that it issues (``depth``); retries of this side's requests; ``qp_num`` of a QP that no CMID has made.

    ``private_data``, Verbena's own name for what C has here, is up to 56 bytes for the peer's program when asked for a
    connection, 196 when accepting one; of UD 180 and 136.
    """

    def __init__(self, resources=1, depth=1, flow_control=0, retry=5, rnr_retry=5, srq=0, qp_num=0):
        self.responder_resources = resources
        self.initiator_depth = depth
        self.flow_control = flow_control
        self.retry_count = retry
        self.rnr_retry_count = rnr_retry
        self.srq = srq
        self.qpn = qp_num
        self.private_data = b""

    def _parameters(self, failed, qp_num):
        """These, with the number of the QP that a CMID has made, if it has; EINVAL if one is out of range."""
        for name, most in (
            ("responder_resources", 255),
            ("initiator_depth", 255),
            ("flow_control", 1),
            ("retry_count", 7),
            ("rnr_retry_count", 7),
            ("srq", 1),
            ("qpn", (1 << 24) - 1),
        ):
            if not within(getattr(self, name), 0, most):
                refuse(f"{failed}: {name} must be 0 to {most}, not {getattr(self, name)!r}", errno.EINVAL)
        return Parameters(
            self.responder_resources,
            self.initiator_depth,
            self.flow_control,
            self.retry_count,
            self.rnr_retry_count,
            self.srq,
            qp_num or self.qpn,
            bytes(self.private_data),
        )

    def __str__(self):
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())


def _resolve(node, service, flags):
    """GID, a number, and port that a node and a service name, 0 for what is not named; and the device that the node's
    scope names, or None. A node with addresses of both kinds is its IPv4 one.
    """
    node, service = (text.decode() if isinstance(text, bytes) else text for text in (node, service))
    failed = f"Failed to get Address Info of {node}, service {service}"
    for text in (node, service):
        if not isinstance(text, (str, type(None))):
            raise TypeError(f"{failed}: a name must be a str, not {type(text).__name__}")
    if service and service.strip().isdecimal() and int(service) > MAX_PORT:  # libc takes its lower 16 bits
        refuse(f"{failed}: ports go up to {MAX_PORT}", errno.EINVAL)
    hints = socket.AI_NUMERICHOST if flags & RAI_NUMERICHOST else 0
    host, _, scope = (node or "").partition("%")
    try:
        found = socket.getaddrinfo(host or None, service, 0, socket.SOCK_STREAM, 0, hints)
    except (socket.gaierror, UnicodeError) as error:
        refuse(f"{failed}: {getattr(error, 'strerror', None) or error}", errno.EINVAL)
    address, port, *_ = min(found, key=lambda each: each[0] != socket.AF_INET)[4]
    if not host:
        return 0, port, None
    ip = ipaddress.ip_address(address)
    return mapped(int(ip)) if ip.version == 4 else int(ip), port, scope or None


class AddrInfo(PyverbsObject):
    """Addresses by name or number, IPv4 or IPv6, and ports by service: ``src`` is the own one, ``dst`` the peer's. With
    RAI_PASSIVE in ``flags`` it is that of a listener, which may be None: then it listens at the first device. A
    listener at ``::``, or at None, takes IPv4, too, one at 0.0.0.0 nothing else. The scope of an address, such as
    ``fe80::2%sim0``, is a device's name.

    ``port_space`` 0 is RDMA_PS_TCP. EINVAL: there is no such name, or both addresses name devices that differ.
    """

    def __init__(self, src=None, dst=None, src_service=None, dst_service=None, port_space=0, flags=0):
        self.port_space = port_space or rdma_port_space.RDMA_PS_TCP
        self.flags = flags
        nothing = 0, 0, None
        *own, near = _resolve(src, src_service, flags) if src or src_service else nothing
        *peer, far = _resolve(dst, dst_service, flags) if not self.passive and (dst or dst_service) else nothing
        if near and far and near != far:
            refuse(f"Failed to get Address Info: {src} and {dst} are on different links", errno.EINVAL)
        self.src, self.dst = tuple(own), tuple(peer)
        """GID and port as numbers; 0 where none is named."""
        self.device = near or far
        """Verbena's own: name of the device that a scope names, or None."""

    @property
    def passive(self):
        """Whether it is that of a listener."""
        return bool(self.flags & RAI_PASSIVE)

    def close(self):
        """Nothing is held."""

    def __str__(self):
        return ", ".join(f"{name} {endpoint_text(*end)}" for name, end in (("src", self.src), ("dst", self.dst)))


class UDParam(PyverbsObject):
    """What an event of RDMA_PS_UDP tells of the peer, or of a multicast group: number and Q_Key of its QP, and the way
    there.
    """

    def __init__(self, cm_event):
        told = cm_event._ud
        if told is None:
            raise PyverbsUserError(f"a {cm_event.event_str() or 'closed event'} tells nothing of a peer's UD QP")
        self._vector, self.qp_num, self.qkey, self._tos = told

    @property
    def ah_attr(self):
        """An :class:`.AHAttr` of the way."""
        index, dgid = self._vector
        route = GlobalRoute(GID.of(dgid), 0, index, HOP_LIMIT, self._tos)
        return AHAttr(is_global=1, port_num=1, gr=route)


class JoinMCAttrEx(PyverbsObject):
    """How a multicast group is joined: ``addr``, an :class:`AddrInfo`, and ``join_flags``, a ``rdma_cm_mc_join_flags``.
    ``comp_mask`` must have both bits of ``rdma_cm_join_mc_attr_mask``.
    """

    def __init__(self, addr, comp_mask=0, join_flags=0):
        self.addr = addr
        self.comp_mask = comp_mask
        self.join_flags = join_flags
