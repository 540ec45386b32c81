"""The headers of a RoCE packet, each once, in wire order; plain Python.

Sources: InfiniBand Architecture Specification volume 1 (BTH and its extended headers), its annex A17 (RoCEv2), RFC 791
(IPv4), RFC 768 (UDP), RFC 8200 (IPv6). RoCEv1 is annex A16.
"""

from dataclasses import dataclass

__all__ = [
    "ENCAPSULATIONS",
    "HEADERS",
    "IBA_TRANSPORT",
    "ICRC_BYTES",
    "MAX_PAYLOAD",
    "MULTICAST_QPN",
    "NETWORKS",
    "UDP",
    "UDP_PORT",
    "Encapsulation",
    "Header",
    "WireField",
    "check_networks",
]

ICRC_BYTES = 4
MAX_PAYLOAD = 4096
"""Bytes of the largest path MTU."""

UDP_PORT = 4791
"""IANA's port of RoCEv2."""

UDP, IBA_TRANSPORT = 17, 0x1B
"""What follows an IP header, and a GRH (IBA 8.3)."""


@dataclass(frozen=True)
class WireField:
    """``start``: wire bits in front of the field in its header, where bit 0 is the most significant of byte 0.

    A field in ``memory_order`` is not a number to the engine but bytes: the first on the wire is the least significant.
    """

    name: str
    width: int
    start: int = 0
    memory_order: bool = False


class Header:
    """A header of ``size`` bytes.

    Parameters
    ----------
    name : str
    fields : list of tuple
        ``(name, width)`` in wire order, most significant bit first; ``(name, width, "memory")`` for bytes that are
        passed on as they lie in memory. A field named ``_`` is sent as zero and not looked at.
    """

    def __init__(self, name, fields):
        self.name = name
        self.fields = {}
        start = 0
        for field, width, *order in fields:
            if order not in ([], ["memory"]):
                raise ValueError(f"order of field {field!r} must be 'memory' or absent, not {order!r}")
            if order and (start % 8 or width % 8):
                raise ValueError(f"field {field!r} of header {name!r} must be whole bytes to stand in memory order")
            if field in self.fields:
                raise ValueError(f"field {field!r} stands twice in header {name!r}")
            if field != "_":
                self.fields[field] = WireField(field, width, start, bool(order))
            start += width
        if start % 8:
            raise ValueError(f"header {name!r} must be whole bytes, not {start!r} bits")
        self.size = start // 8

    def __repr__(self):
        return f"Header({self.name!r}, {list(self.fields)!r})"

    def __getitem__(self, name):
        return self.fields[name]

    def pack(self, **values):
        """Bytes of the header. Fields not given are zero; an unknown name or a value that does not fit raises."""
        whole = 0
        for name, value in values.items():
            field = self.fields.get(name)
            if field is None:
                raise ValueError(f"header {self.name!r} has no field {name!r}")
            if not 0 <= value < 1 << field.width:
                raise ValueError(f"{self.name}.{name} has {field.width} bits and cannot hold {value!r}")
            if field.memory_order:
                value = int.from_bytes(value.to_bytes(field.width // 8, "little"), "big")
            whole |= value << self.size * 8 - field.start - field.width
        return whole.to_bytes(self.size, "big")

    def unpack(self, data):
        """Dictionary of all fields from the first ``size`` bytes of ``data``."""
        if len(data) < self.size:
            raise ValueError(f"header {self.name!r} has {self.size} bytes, not {len(data)!r}")
        whole = int.from_bytes(data[: self.size], "big")
        values = {}
        for name, field in self.fields.items():
            value = whole >> self.size * 8 - field.start - field.width & (1 << field.width) - 1
            if field.memory_order:
                value = int.from_bytes(value.to_bytes(field.width // 8, "little"), "big")
            values[name] = value
        return values


_IPV6 = [
    ("version", 4),
    ("traffic_class", 8),
    ("flow_label", 20),
    ("payload_length", 16),
    ("next_header", 8),
    ("hop_limit", 8),
    ("source", 128),
    ("destination", 128),
]
"""The GRH has the form of the IPv6 header (IBA 8.3)."""

HEADERS = {
    header.name: header
    for header in [
        Header("ethernet", [("destination", 48), ("source", 48), ("ethertype", 16)]),
        Header(
            "ipv4",
            [
                ("version", 4),
                ("header_words", 4),
                ("traffic_class", 8),
                ("total_length", 16),
                ("identification", 16),
                ("_", 1),
                ("dont_fragment", 1),
                ("more_fragments", 1),
                ("fragment_offset", 13),
                ("hop_limit", 8),
                ("protocol", 8),
                ("checksum", 16),
                ("source", 32),
                ("destination", 32),
            ],
        ),
        Header("ipv6", _IPV6),
        Header("grh", _IPV6),
        Header("udp", [("source_port", 16), ("destination_port", 16), ("length", 16), ("checksum", 16)]),
        Header(
            "bth",
            [
                ("opcode", 8),
                ("solicited", 1),
                ("migrated", 1),
                ("pad", 2),
                ("version", 4),
                ("pkey", 16),
                ("fecn", 1),
                ("becn", 1),
                ("reserved", 6),
                ("dest_qpn", 24),
                ("ack_request", 1),
                ("_", 7),
                ("psn", 24),
            ],
        ),
        Header("reth", [("address", 64), ("rkey", 32), ("dma_length", 32)]),
        Header("atomiceth", [("address", 64), ("rkey", 32), ("swap_add", 64), ("compare", 64)]),
        Header("aeth", [("syndrome", 8), ("msn", 24)]),
        Header("atomicacketh", [("original", 64)]),
        Header("immdt", [("immediate", 32, "memory")]),
        Header("ieth", [("immediate", 32, "memory")]),
        Header("feth", [("_", 26), ("selectivity", 2), ("placement", 4)]),
        Header("deth", [("qkey", 32), ("_", 8), ("source_qpn", 24)]),
    ]
}


@dataclass(frozen=True)
class Encapsulation:
    """What stands between the Ethernet header and the BTH.

    ``masked`` fields count as all ones in the ICRC, because routers may change them. ``protocol`` is what the first of
    ``headers``, the network header, says of what follows.
    """

    name: str
    ethertype: int
    headers: tuple
    masked: tuple
    protocol: int = UDP

    @property
    def network(self):
        """Name of the network header: IPv4's, IPv6's or the GRH."""
        return self.headers[0]

    @property
    def bth_offset(self):
        """Bytes in front of the BTH, counted behind the Ethernet header."""
        return sum(HEADERS[name].size for name in self.headers)

    def masked_bits(self):
        """Dictionary: wire byte (behind the Ethernet header) to mask of the bits that the ICRC takes as ones."""
        bases, base = {}, 0
        for name in (*self.headers, "bth"):
            bases[name] = base
            base += HEADERS[name].size
        masks = {}
        for header, name in self.masked:
            field = HEADERS[header][name]
            for bit in range(bases[header] * 8 + field.start, bases[header] * 8 + field.start + field.width):
                masks[bit // 8] = masks.get(bit // 8, 0) | 0x80 >> bit % 8
        return masks


_BTH_MASKED = (("bth", "fecn"), ("bth", "becn"), ("bth", "reserved"))

ENCAPSULATIONS = {
    row.name: row
    for row in [
        Encapsulation(
            "RoCEv2/IPv4",
            0x0800,
            ("ipv4", "udp"),
            (
                ("ipv4", "traffic_class"),
                ("ipv4", "hop_limit"),
                ("ipv4", "checksum"),
                ("udp", "checksum"),
                *_BTH_MASKED,
            ),
        ),
        Encapsulation(
            "RoCEv2/IPv6",
            0x86DD,
            ("ipv6", "udp"),
            (
                ("ipv6", "traffic_class"),
                ("ipv6", "flow_label"),
                ("ipv6", "hop_limit"),
                ("udp", "checksum"),
                *_BTH_MASKED,
            ),
        ),
        Encapsulation(
            "RoCEv1",
            0x8915,
            ("grh",),
            (("grh", "traffic_class"), ("grh", "flow_label"), ("grh", "hop_limit"), *_BTH_MASKED),
            IBA_TRANSPORT,
        ),
    ]
}
NETWORKS = ("RoCEv2/IPv4", "RoCEv2/IPv6", "RoCEv1")
"""Those that the hardware handles: the first alone, the first two, or all."""


def check_networks(networks):
    """``ValueError`` unless ``networks`` are the first ones of :data:`NETWORKS`, one at least."""
    if not networks or networks != NETWORKS[: len(networks)]:
        raise ValueError(f"networks must be the first of {NETWORKS}, not {networks!r}")


MULTICAST_QPN = 0xFFFFFF
"""Destination of packets to a group (IBA 10.5)."""
