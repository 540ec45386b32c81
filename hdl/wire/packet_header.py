"""What the wire's headers say, as the transport sees it: one flat layout for both directions."""

from amaranth.lib import data

from ..stream.transfer import LENGTH_BITS

__all__ = ["Deth", "Path", "ReceiveHeader", "TransmitHeader", "TransportHeader"]

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
        # ImmDt: as the four bytes lie in memory, first wire byte least significant
        "immediate": 32,
        # payload without pad and ICRC, bytes
        "length": LENGTH_BITS,
    }
)
"""Transport headers of one packet.

Which of RETH, AtomicETH, AETH and ImmDt count follows from ``opcode``; the others are zero or undefined. What an atomic
sends besides counts as payload; what it receives, as payload with the acknowledgement only.
"""

Path = data.StructLayout({"mac": 48, "ip": 32, "source_port": 16, "traffic_class": 8, "hop_limit": 8})
"""The peer's addresses. Addresses are numbers whose most significant byte comes first on the wire."""

TransmitHeader = data.StructLayout({"transport": TransportHeader, "path": Path})

Deth = data.StructLayout({"source_qpn": 24, "reserved": 8, "qkey": 32})
"""What stands in ``address`` of UD's packets."""

ReceiveHeader = data.StructLayout(
    {"transport": TransportHeader, "swap": 64, "compare": 64, "source_ip": 32, "traffic_class": 8, "hop_limit": 8}
)
"""``swap`` (or the addend) and ``compare`` are AtomicETH's, numbers, and undefined in other packets; its address and
key stand in ``transport``.
"""
