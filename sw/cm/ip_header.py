"""What rdma_cm adds to REQ and SIDR_REQ (IBA A11): IP addresses, and services named by a port space and a port."""

from typing import NamedTuple

from .layout import Layout

__all__ = ["IP_HEADER", "PORT_SPACE_TCP", "PORT_SPACE_UDP", "IpAddresses", "address_text", "mapped", "service_id"]

PORT_SPACE_TCP, PORT_SPACE_UDP = 0x0106, 0x0111

IP_HEADER = Layout(
    "IP addressing header",
    [("version", 8), ("ip_version", 4), ("_", 4), ("port", 16), ("source", 128), ("destination", 128)],
)


def service_id(port_space, port):
    """Service ID of a port."""
    return port_space << 16 | port


def mapped(ip):
    """The IPv4-mapped GID of an IPv4 address, both numbers."""
    return 0xFFFF << 32 | ip


def address_text(ip):
    """An IPv4 address, a number, in dotted form."""
    return ".".join(str(byte) for byte in ip.to_bytes(4, "big"))


class IpAddresses(NamedTuple):
    """IPv4 addresses of both sides as numbers, and the sender's port."""

    source: int
    port: int
    destination: int

    def pack(self):
        """The 36 bytes with which private data begin. An IPv4 address stands in the last 4 of 16 bytes, without the
        ffff of a GID.
        """
        return IP_HEADER.pack(ip_version=4, port=self.port, source=self.source, destination=self.destination)

    @classmethod
    def unpack(cls, private_data):
        """Of private data; ``ValueError`` if they do not begin with such a header, of version 0 and IPv4."""
        header = IP_HEADER.unpack(private_data[: IP_HEADER.size])
        if header["version"] or header["ip_version"] != 4:
            raise ValueError(f"header version {header['version']}, IP version {header['ip_version']}")
        return cls(header["source"] & 0xFFFFFFFF, header["port"], header["destination"] & 0xFFFFFFFF)
