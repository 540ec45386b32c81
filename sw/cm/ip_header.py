"""What rdma_cm adds to REQ and SIDR_REQ (IBA A11): IP addresses, and services named by a port space and a port."""

from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from ..gids import ipv4_of, mapped
from .layout import Layout

__all__ = [
    "IP_HEADER",
    "PORT_SPACE_TCP",
    "PORT_SPACE_UDP",
    "IpAddresses",
    "address_text",
    "endpoint_text",
    "service_id",
]

PORT_SPACE_TCP, PORT_SPACE_UDP = 0x0106, 0x0111

IP_HEADER = Layout(
    "IP addressing header",
    [("version", 8), ("ip_version", 4), ("_", 4), ("port", 16), ("source", 128), ("destination", 128)],
)


def service_id(port_space, port):
    """Service ID of a port."""
    return port_space << 16 | port


def address_text(gid):
    """The IP address that a GID, a number, stands for: IPv4 in dotted form, IPv6 with colons."""
    ip = ipv4_of(gid)
    return str(IPv6Address(gid) if ip is None else IPv4Address(ip))


def endpoint_text(gid, port):
    """An address and a port, as in an URL (RFC 3986, 3.2.2)."""
    text = address_text(gid)
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


class IpAddresses(NamedTuple):
    """IP addresses of both sides, as GIDs, of one kind, and the sender's port."""

    source: int
    port: int
    destination: int

    def pack(self):
        """The 36 bytes with which private data begin. An IPv4 address stands in the last 4 of 16 bytes, without the
        ffff of a GID.
        """
        addresses = {"source": self.source, "destination": self.destination}
        if ipv4_of(self.source) is None:
            return IP_HEADER.pack(ip_version=6, port=self.port, **addresses)
        return IP_HEADER.pack(ip_version=4, port=self.port, **{name: ipv4_of(gid) for name, gid in addresses.items()})

    @classmethod
    def unpack(cls, private_data):
        """Of private data; ``ValueError`` if they do not begin with such a header, of version 0 and IPv4 or IPv6."""
        header = IP_HEADER.unpack(private_data[: IP_HEADER.size])
        if header["version"] or header["ip_version"] not in (4, 6):
            raise ValueError(f"header version {header['version']}, IP version {header['ip_version']}")
        addresses = header["source"], header["destination"]
        if header["ip_version"] == 4:
            addresses = (mapped(address & 0xFFFFFFFF) for address in addresses)
        source, destination = addresses
        return cls(source, header["port"], destination)
