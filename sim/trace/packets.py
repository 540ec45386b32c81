"""A frame's RoCE headers by name, and in words."""

from dataclasses import dataclass

from verbena.hdl.transport.common.aeth import AethSyndrome
from verbena.hdl.wire.headers import ENCAPSULATIONS, HEADERS, ICRC_BYTES, UDP_PORT
from verbena.hdl.wire.opcodes import OPCODES, Kind, Transport

__all__ = ["PSNS", "Packet", "dissect", "psn_after"]

PSNS = 1 << 24
_ETHERTYPES = {row.ethertype: row for row in ENCAPSULATIONS.values()}
_NAKS = {
    AethSyndrome.NAK_SEQUENCE: "NAK sequence",
    AethSyndrome.NAK_INVALID_REQUEST: "NAK invalid request",
    AethSyndrome.NAK_REMOTE_ACCESS: "NAK remote access",
    AethSyndrome.NAK_REMOTE_OPERATION: "NAK remote operation",
}
_RESPONSES = (Kind.READ_RESPONSE, Kind.ACK, Kind.ATOMIC_RESPONSE)


def psn_after(psn, other):
    """Whether ``psn`` comes after ``other``, in the circle of all PSNs."""
    return 0 < (psn - other) % PSNS < PSNS // 2


@dataclass(frozen=True)
class Packet:
    """``source`` and ``destination`` are IP addresses or GIDs as numbers; ``fields`` the headers' fields,
    ``header.field``; ``row`` the opcode's :class:`verbena.hdl.wire.opcodes.Opcode`; ``payload`` bytes without pad and
    ICRC.
    """

    source: int
    destination: int
    fields: dict
    row: object
    payload: int

    @property
    def psn(self):
        return self.fields["bth.psn"]

    @property
    def dest_qpn(self):
        return self.fields["bth.dest_qpn"]

    @property
    def response(self):
        """It goes to a requester."""
        return self.row.kind in _RESPONSES

    @property
    def syndrome(self):
        """Of the AETH; None if there is none."""
        return self.fields.get("aeth.syndrome")

    @property
    def nak(self):
        """A NAK or an RNR NAK in words; an empty string otherwise."""
        if self.row.kind != Kind.ACK or self.syndrome & 0x60 not in (0x20, 0x60):
            return ""
        if self.syndrome & 0x60 == 0x20:
            return f"RNR NAK, timer {self.syndrome & 31}"
        return _NAKS.get(self.syndrome, f"NAK {self.syndrome & 31}")

    @property
    def name(self):
        """Opcode in words, without the transport if that is RC."""
        if self.nak:
            return self.nak
        return self.row.name.removeprefix("RC_") if self.row.transport == Transport.RC else self.row.name


def dissect(frame):
    """The :class:`Packet` in an Ethernet frame; None if it is not RoCE, or is cut short."""
    try:
        fields = {f"ethernet.{k}": v for k, v in HEADERS["ethernet"].unpack(frame).items()}
        row = _ETHERTYPES.get(fields["ethernet.ethertype"])
        if row is None:
            return None
        at = HEADERS["ethernet"].size
        for name in row.headers:
            fields |= {f"{name}.{k}": v for k, v in HEADERS[name].unpack(frame[at:]).items()}
            at += HEADERS[name].size
        network = row.network
        protocol = fields["ipv4.protocol" if network == "ipv4" else f"{network}.next_header"]
        if protocol != row.protocol or fields.get("udp.destination_port", UDP_PORT) != UDP_PORT:
            return None
        # What Ethernet pads with is no payload.
        behind = fields["udp.length"] - HEADERS["udp"].size if "udp" in row.headers else fields["grh.payload_length"]
        end = at + behind
        fields |= {f"bth.{k}": v for k, v in HEADERS["bth"].unpack(frame[at:]).items()}
        at += HEADERS["bth"].size
        opcode = OPCODES.get(fields["bth.opcode"])
        if opcode is None or end > len(frame):
            return None
        for name in opcode.headers:
            fields |= {f"{name}.{k}": v for k, v in HEADERS[name].unpack(frame[at:end]).items()}
            at += HEADERS[name].size
    except ValueError:
        return None
    payload = max(0, end - at - fields["bth.pad"] - ICRC_BYTES) if opcode.payload else 0
    return Packet(fields[f"{network}.source"], fields[f"{network}.destination"], fields, opcode, payload)
