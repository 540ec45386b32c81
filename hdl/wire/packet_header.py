"""What the wire's headers say, as the transport sees it: one flat layout for both directions."""

from amaranth.lib import data

from ..stream.transfer import GID_INDEX_BITS, LENGTH_BITS
from .headers import NETWORKS
from .vlan import VlanTag

__all__ = ["ArrivedHeader", "Deth", "Path", "ReceiveHeader", "TransmitHeader", "TransportHeader"]


TransportHeader = data.StructLayout(
    {
        # BTH
        "opcode": 8,
        "solicited": 1,
        "ack_request": 1,
        "becn": 1,
        "pkey": 16,
        "dest_qpn": 24,
        "psn": 24,
        # RETH; the first two also AtomicETH; the first also DETH (`Deth`)
        "address": 64,
        "rkey": 32,
        "dma_length": 32,
        # AETH
        "syndrome": 8,
        "msn": 24,
        # ImmDt or IETH: as the four bytes lie in memory, first wire byte least significant
        "immediate": 32,
        # payload without pad and ICRC, bytes
        "length": LENGTH_BITS,
    }
)
"""Transport headers of one packet.

Which of RETH, AtomicETH, AETH and ImmDt count follows from ``opcode``; the others are zero or undefined. What an atomic
sends besides counts as payload; what it receives, as payload with the acknowledgement only.
"""

Path = data.StructLayout(
    {
        "mac": 48,
        "ip": 32,
        "source_port": 16,
        "traffic_class": 8,
        "hop_limit": 8,
        # with a table of GIDs
        "gid_high": 96,
        "flow_label": 20,
        "sgid_index": GID_INDEX_BITS,
    }
)
"""The way to the peer. Addresses are numbers whose most significant byte comes first on the wire. With a table of GIDs
the peer's is ``gid_high`` and ``ip``, and the type of the row ``sgid_index`` tells what stands around the packet."""

TransmitHeader = data.StructLayout({"transport": TransportHeader, "path": Path})

Deth = data.StructLayout({"source_qpn": 24, "reserved": 8, "qkey": 32})
"""What stands in ``address`` of UD's packets."""

ReceiveHeader = data.StructLayout(
    {
        "transport": TransportHeader,
        "swap": 64,
        "compare": 64,
        "source_ip": 32,
        "traffic_class": 8,
        "hop_limit": 8,
        # with a table of GIDs
        "source_high": 96,
        "gid_index": GID_INDEX_BITS,
        "gid_found": 1,
    }
)
"""``swap`` (or the addend) and ``compare`` are AtomicETH's, numbers, and undefined in other packets; its address and
key stand in ``transport``. With a table of GIDs the sender's is ``source_high`` and ``source_ip``, and the receiver's
is row ``gid_index`` of the table, if it is ``gid_found`` there.
"""

ArrivedHeader = data.StructLayout(
    {"header": ReceiveHeader, "network": 320, "networks": len(NETWORKS), "tag": VlanTag, "group": 1}
)
"""A header whose GIDs have not been looked at. ``network`` is the IPv6 header, or the GRH, as it stands on the wire,
byte 0 least significant; of IPv4 the last 20 bytes are, and those before are 0. ``networks`` has a bit for each of
:data:`.headers.NETWORKS`; ``tag`` is that of the frame. ``group``: it came to the MAC address of a group."""
