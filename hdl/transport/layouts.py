"""What the transport's blocks say to each other."""

from amaranth.lib import data

from ..roce.packet_header import TransportHeader

__all__ = ["Ack", "Failure", "Flush", "Job", "LookedUp", "Outstanding", "RequestHeader"]

RequestHeader = data.StructLayout(
    {
        "transport": TransportHeader,  # without dest_qpn and pkey, which the transmitter fills in
        "qp": 12,
        "wqe_index": 16,
        "inline": 1,  # the payload comes from the requester's inline stream
        "message_last": 1,  # LAST or ONLY
        "token": 1,  # no packet: a control token that must come out at the end
    }
)
"""Requester to transmitter, one a packet, in the order of the access runs."""

Outstanding = data.StructLayout({"qp": 12, "wqe_index": 16, "last_psn": 24, "opcode": 4, "signaled": 1})
"""Requester to completer: a message is under way. ``opcode`` is the SendOpcode."""

Failure = data.StructLayout({"qp": 12, "wqe_index": 16, "status": 8, "syndrome": 8})
"""To the completer: this WQE failed locally; earlier ones may still complete."""

Flush = data.StructLayout({"qp": 12, "index": 16})
"""To the completer: the QP is in ERR, and all WQEs before ``index`` are to be flushed."""

Ack = data.StructLayout({"qp": 12, "psn": 24, "msn": 24, "syndrome": 8})
"""ACK or NAK: from the acknowledger to the transmitter, and from the lookup to the completer."""

LookedUp = data.StructLayout({"transport": TransportHeader, "qp": 12, "accept": 1})
"""Lookup to responder. ``accept``: the QP exists, receives, and the packet's P_Key and source are its peer's. If not,
the packet is discarded."""

Job = data.StructLayout(
    {
        "qp": 12,
        "acknowledge": 1,  # send ACK, or a NAK if `syndrome` says so
        "syndrome": 8,  # AETH syndrome to send
        "psn": 24,  # AETH's packet
        "msn": 24,
        "receive": 1,  # a receive WQE is in use or consumed by this packet: it takes the blame if the access is refused
        "complete": 1,  # write the receive completion
        "status": 8,  # WcStatus of that completion, if the run is OK
        "cause": 8,  # Syndrome of that completion
        "opcode": 8,  # WcOpcode
        "flags": 8,
        "solicited": 1,
        "wqe_index": 16,
        "immediate": 32,
        "byte_length": 32,
        "remote": 1,  # the run's key came from the wire (RETH): refusal is NAK 0x62; else 0x63
        "fatal": 1,  # the QP goes to ERR with `event`
        "event": 8,
        "token": 1,  # control token
        "silent": 1,  # discarded packet: no effect, its Done is just consumed
    }
)
"""Responder to acknowledger, one for each run, in the same order."""
