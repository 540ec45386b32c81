"""The messages of the connection manager (IBA 12.6, 12.11), each a class whose objects have the fields as attributes.

A LAP, which asks for another path of a connection, is known to be refused by an APR; on RoCE Linux ignores both.
"""

from .layout import Layout
from .mad import BASE_VERSION, CLASS, CLASS_VERSION, HEADER, METHOD_SEND, concerns_cm

__all__ = [
    "LAP_UNSUPPORTED",
    "MESSAGES",
    "Apr",
    "Drep",
    "Dreq",
    "Lap",
    "Message",
    "Mra",
    "Rej",
    "Rep",
    "Req",
    "Rtu",
    "SidrRep",
    "SidrReq",
    "unpack",
]

BODY = 232
"""Bytes of each message."""
ARI_BYTES = 72
"""Of the additional rejection information."""


_IDS = ("local_id", 32), ("remote_id", 32)
"""Fields at the beginning of each message of a connection but the first."""


def _path(prefix):
    """Fields of a REQ that describe a path."""
    fields = [
        ("local_lid", 16),
        ("remote_lid", 16),
        ("local_gid", 128),
        ("remote_gid", 128),
        ("flow_label", 20),
        ("_", 6),
        ("packet_rate", 6),
        ("traffic_class", 8),
        ("hop_limit", 8),
        ("sl", 4),
        ("subnet_local", 1),
        ("_", 3),
        ("ack_timeout", 5),
        ("_", 3),
    ]
    return [(name if name == "_" else prefix + name, width) for name, width in fields]


class Message:
    """A message of given fields; those that are not given are zero. ``ValueError`` if one does not fit."""

    attribute = None
    """Its number in the header."""
    layout = None

    def __init__(self, **values):
        self.layout.pack(**values)
        for name in self.layout.fields:
            setattr(self, name, values.get(name, 0))
        self.private_data = bytes(values.get("private_data", b""))

    def pack(self, tid):
        """The MAD, 256 bytes."""
        values = {name: getattr(self, name) for name in (*self.layout.fields, "private_data")}
        header = HEADER.pack(
            base_version=BASE_VERSION,
            management_class=CLASS,
            class_version=CLASS_VERSION,
            method=METHOD_SEND,
            tid=tid,
            attribute=self.attribute,
        )
        return header + self.layout.pack(**values)

    @property
    def _told(self):
        return {name: value for name, value in vars(self).items() if value and name != "private_data"}

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value:#x}' for name, value in self._told.items())})"


class Req(Message):
    """Request for a connection. ``starting_psn`` is the one from which its receiver sends."""

    attribute = 0x10
    layout = Layout(
        "REQ",
        [
            ("local_id", 32),
            ("_", 32),
            ("service_id", 64),
            ("ca_guid", 64),
            ("_", 32),
            ("qkey", 32),
            ("qpn", 24),
            ("responder_resources", 8),
            ("local_eecn", 24),
            ("initiator_depth", 8),
            ("remote_eecn", 24),
            ("remote_response_timeout", 5),
            ("transport", 2),
            ("flow_control", 1),
            ("starting_psn", 24),
            ("local_response_timeout", 5),
            ("retry_count", 3),
            ("pkey", 16),
            ("path_mtu", 4),
            ("rdc_exists", 1),
            ("rnr_retry", 3),
            ("max_cm_retries", 4),
            ("srq", 1),
            ("extended_transport", 3),
            *_path(""),
            *_path("alternate_"),
        ],
        92,
    )


class Mra(Message):
    """A message has come, and its answer will take time."""

    attribute = 0x11
    layout = Layout("MRA", [*_IDS, ("what", 2), ("_", 6), ("service_timeout", 5), ("_", 3)], 222)


class Rej(Message):
    """A REQ or REP is refused. ``ari`` is a number of 72 bytes, of which the first ``ari_length`` say more."""

    attribute = 0x12
    layout = Layout(
        "REJ",
        [
            *_IDS,
            ("what", 2),
            ("_", 6),
            ("ari_length", 7),
            ("_", 1),
            ("reason", 16),
            ("ari", 8 * ARI_BYTES),
        ],
        148,
    )


class Rep(Message):
    """Answer to a REQ. ``starting_psn`` is the one from which its receiver sends."""

    attribute = 0x13
    layout = Layout(
        "REP",
        [
            *_IDS,
            ("qkey", 32),
            ("qpn", 24),
            ("_", 8),
            ("eecn", 24),
            ("_", 8),
            ("starting_psn", 24),
            ("_", 8),
            ("responder_resources", 8),
            ("initiator_depth", 8),
            ("ack_delay", 5),
            ("failover", 2),
            ("flow_control", 1),
            ("rnr_retry", 3),
            ("srq", 1),
            ("_", 4),
            ("ca_guid", 64),
        ],
        196,
    )


class Rtu(Message):
    """The answer has come: the connection is ready to use."""

    attribute = 0x14
    layout = Layout("RTU", [*_IDS], 224)


class Dreq(Message):
    """Request to end a connection. ``qpn`` is its receiver's."""

    attribute = 0x15
    layout = Layout("DREQ", [*_IDS, ("qpn", 24), ("_", 8)], 220)


class Drep(Message):
    """Answer to a DREQ."""

    attribute = 0x16
    layout = Layout("DREP", [*_IDS], 224)


class SidrReq(Message):
    """Asks for the QP of a service that works by datagrams."""

    attribute = 0x17
    layout = Layout("SIDR_REQ", [("request_id", 32), ("pkey", 16), ("_", 16), ("service_id", 64)], 216)


class SidrRep(Message):
    """Answer to a SIDR_REQ: QP number and Q_Key, or a status."""

    attribute = 0x18
    layout = Layout(
        "SIDR_REP",
        [
            ("request_id", 32),
            ("status", 8),
            ("info_length", 8),
            ("_", 16),
            ("qpn", 24),
            ("_", 8),
            ("service_id", 64),
            ("qkey", 32),
            ("info", 8 * ARI_BYTES),
        ],
        136,
    )


class Lap(Message):
    """Asks for an alternate path of a connection. ``qpn`` is its receiver's."""

    attribute = 0x19
    layout = Layout(
        "LAP",
        [
            *_IDS,
            ("_", 32),
            ("qpn", 24),
            ("remote_response_timeout", 5),
            ("_", 3),
            ("_", 32),
            ("local_lid", 16),
            ("remote_lid", 16),
            ("local_gid", 128),
            ("remote_gid", 128),
            ("flow_label", 20),
            ("_", 4),
            ("traffic_class", 8),
            ("hop_limit", 8),
            ("_", 2),
            ("packet_rate", 6),
            ("sl", 4),
            ("subnet_local", 1),
            ("_", 3),
            ("ack_timeout", 5),
            ("_", 3),
        ],
        168,
    )


class Apr(Message):
    """Answer to a LAP: ``status`` 0 is yes."""

    attribute = 0x1A
    layout = Layout(
        "APR",
        [*_IDS, ("info_length", 8), ("status", 8), ("_", 16), ("info", 8 * ARI_BYTES)],
        148,
    )


LAP_UNSUPPORTED = 2
"""Status of an APR: there are no alternate paths (IBA 12.6.9)."""

MESSAGES = {kind.attribute: kind for kind in (Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep)}
"""Classes by their number in the header."""
_HEARD = MESSAGES | {Lap.attribute: Lap}
"""Those, and what is only refused."""

assert all(kind.layout.size == BODY for kind in (*_HEARD.values(), Apr))


def unpack(mad):
    """``(TID, message)`` of a MAD of 256 bytes; None if it is none of these."""
    header = HEADER.unpack(mad[: HEADER.size])
    if not concerns_cm(header) or header["attribute"] not in _HEARD:
        return None
    kind = _HEARD[header["attribute"]]
    return header["tid"], kind(**kind.layout.unpack(mad[HEADER.size :]))
