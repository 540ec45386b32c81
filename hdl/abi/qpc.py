"""The QP context table: what a queue pair is, in host memory, while it has no slot on chip.

One definition: bus addresses, lines, owners, the rows of block RAM on chip (:mod:`verbena.hdl.context`) and the tables
of the documentation derive from it.
"""

from dataclasses import dataclass

from .record import Field, Record

__all__ = [
    "HALF_BYTES",
    "LINE_BYTES",
    "LINE_WORDS",
    "QPC_BYTES",
    "QP_REQUESTER",
    "QP_RESPONDER",
    "ContextRecord",
    "Owned",
]

QPC_BYTES = 1024
"""A QP's record: the requester's half, then the responder's. It stands at ``qpc_base + QPN * QPC_BYTES``."""

HALF_BYTES = QPC_BYTES // 2

LINE_BYTES = 64

LINE_WORDS = LINE_BYTES // 8
"""Words of 64 bits in a line."""


@dataclass(frozen=True)
class Owned(Field):
    """A field that ``part`` of the record holds. A part is what one owner writes into one line."""

    part: str = ""


class ContextRecord(Record):
    """Half of a QP's record.

    Parameters
    ----------
    name, doc
        As of :class:`.record.Record`.
    number : int
        Which half.
    owners : dict of str to str
        Of each part its owner: the only one that writes it while the QP lives.
    lines : dict of int to list of list of Owned
        Of each line that is used its words of 64 bits, of which the last ones may be left out.

    Attributes
    ----------
    places : dict of str to tuple of (int, tuple of Owned)
        Of each part its line, and its fields.
    """

    def __init__(self, name, number, owners, lines, doc):
        fields = []
        for line in range(HALF_BYTES // LINE_BYTES):
            words = lines.get(line, [])
            for word in [*words, *[[]] * (LINE_WORDS - len(words))]:
                fields += word
                fields += [Field("_", 64 - sum(field.width for field in word))]
        super().__init__(name, HALF_BYTES, [field for field in fields if field.width], doc)
        self.number = number
        self.owners = owners
        found = {}
        for field in self.fields.values():
            found.setdefault(field.part, {}).setdefault(field.offset // (8 * LINE_BYTES), []).append(field)
        if (parts := set(found)) != set(owners):
            raise ValueError(f"owners of record {name!r} must be those of {sorted(parts)}, not {sorted(owners)}")
        if several := [part for part, places in found.items() if len(places) > 1]:
            raise ValueError(f"a part stands in one line, but {several[0]!r} of record {name!r} in several")
        self.places = {part: (*places.keys(), tuple(*places.values())) for part, places in found.items()}

    def bits(self, part):
        """How many bits a part has."""
        return sum(field.width for field in self.places[part][1])

    def words_used(self, line):
        """Words from the first one of a line to the last one that holds a field."""
        ends = [field.offset + field.width for at, fields in self.places.values() if at == line for field in fields]
        return -(-(max(ends) - line * LINE_BYTES * 8) // 64) if ends else 0


def _part(part):
    def owned(name, width, doc=""):
        return Owned("_" if name == "_" else name, width, doc, part=part)

    return owned


_sets, _sends, _acks, _gets, _first, _second, _posts = map(
    _part, ("attributes", "send", "ack_context", "read_progress", "messages", "more_messages", "producer")
)

QP_REQUESTER = ContextRecord(
    "qp_requester",
    0,
    {
        "attributes": "commands",
        "send": "requester",
        "ack_context": "completer",
        "read_progress": "response receiver",
        "messages": "requester",
        "more_messages": "requester",
        "producer": "driver, before its doorbell",
    },
    {
        0: [
            [
                _sets("state", 4, "enum ibv_qp_state"),
                _sets("type", 4, "enum ibv_qp_type"),
                _sets("path_mtu", 4, "enum ibv_mtu"),
                _sets("timeout", 5),
                _sets("retry_count", 3),
                _sets("rnr_retry", 3),
                Field("_", 1),
                _sets("max_rd_atomic", 8),
                _sets("pkey", 16),
                _sets("source_port", 16),
            ],
            [_sets("sq_base", 64, "4 KiB aligned")],
            [
                _sets("pd", 24),
                _sets("log_sq_size", 4),
                _sets("log_sq_stride", 4),
                _sets("dest_qpn", 24),
                _sets("traffic_class", 8),
            ],
            [_sets("qkey", 32), _sets("qpn", 24)],
            [_sets("dest_ip", 32), _sets("sq_cqn", 24), _sets("hop_limit", 8)],
            [],
            [_sets("dest_mac", 48)],
        ],
        2: [
            [
                _sends("send_psn", 24, "next packet"),
                _sends("send_phase", 3),
                _sends("send_draining", 1),
                _sends("send_stopped", 1),
            ],
            [],
            [_sends("send_top_psn", 24, "first one never sent")],
            [],
            [_sends("send_blocks", 23, "of 256 bytes, sent of the message"), _sends("send_reads", 8, "begun")],
            [],
            [_sends("send_index", 16, "WQE sent, or next"), _sends("send_top", 16, "first WQE never begun")],
        ],
        3: [
            [_gets("read_progress_place_address", 64)],
            [
                _acks("ack_context_progress_oldest", 16, "WQE that completes next"),
                _acks("ack_context_progress_unacked", 24, "first PSN not acknowledged"),
            ],
            [_gets("read_progress_place_key", 32), _gets("read_progress_left", 32, "bytes still to come")],
            [
                _acks("ack_context_progress_first", 24, "PSN of the oldest WQE"),
                _acks("ack_context_progress_limit", 16, "credits"),
            ],
            [_gets("read_progress_place_left", 32), _gets("read_progress_place_sge", 4)],
            [
                _acks("ack_context_progress_reads", 8, "completed"),
                _acks("ack_context_generation", 4),
                _acks("ack_context_rnr_timer", 5),
                _acks("ack_context_recovery_retrying", 1),
                _acks("ack_context_recovery_retries", 3),
                _acks("ack_context_recovery_rnr_retries", 3),
                _acks("ack_context_index", 16, "WQE that failed"),
            ],
            [_gets("read_progress_expected", 24, "PSN"), _gets("read_progress_active", 1)],
            [
                _acks("ack_context_bound", 16, "of a drain"),
                _acks("ack_context_status", 8),
                _acks("ack_context_syndrome", 8),
                _acks("ack_context_progress_limited", 1),
                _acks("ack_context_progress_waiting", 1),
                _acks("ack_context_dead", 1),
                _acks("ack_context_failed", 1),
                _acks("ack_context_drain", 1),
            ],
        ],
        4: [[_first(f"message_{n}", 32), _first(f"message_{n + 1}", 32)] for n in range(0, 16, 2)],
        5: [[_second(f"message_{n}", 32), _second(f"message_{n + 1}", 32)] for n in range(16, 32, 2)],
        7: [[_posts("sq_producer", 16, "WQEs posted")]],
    },
    "Requester's half of a QP's record, at `qpc_base + QPN * 1024`. A `message_` is one that is begun and not complete:"
    " last PSN in bits 23:0, opcode in 27:24, signaled in 28. The table is to come; no command names it yet.",
)

_sets, _takes, _places, _acks, _serves, _posts = map(
    _part, ("attributes", "request_state", "place", "acknowledge", "served", "producer")
)

QP_RESPONDER = ContextRecord(
    "qp_responder",
    1,
    {
        "attributes": "commands",
        "request_state": "responder",
        "place": "responder",
        "acknowledge": "acknowledger",
        "served": "READ and atomic responder",
        "producer": "driver, before its doorbell",
    },
    {
        0: [
            [
                _sets("state", 4, "enum ibv_qp_state"),
                _sets("type", 4, "enum ibv_qp_type"),
                _sets("path_mtu", 4, "enum ibv_mtu"),
                _sets("access", 4, "qp_access_flags"),
                _sets("min_rnr_timer", 5),
                Field("_", 3),
                _sets("max_dest_rd_atomic", 8),
                _sets("pkey", 16),
                _sets("source_port", 16),
            ],
            [_sets("rq_base", 64, "4 KiB aligned")],
            [
                _sets("pd", 24),
                _sets("log_rq_size", 4),
                _sets("log_rq_stride", 4),
                _sets("dest_qpn", 24),
                _sets("traffic_class", 8),
            ],
            [_sets("qkey", 32), _sets("qpn", 24)],
            [_sets("dest_ip", 32), _sets("rq_cqn", 24), _sets("hop_limit", 8)],
            [],
            [_sets("dest_mac", 48)],
        ],
        2: [
            [_places("place_address", 64)],
            [_takes("request_state_epsn", 24, "PSN expected"), _acks("acknowledge_msn", 24, "acknowledged")],
            [_places("place_key", 32), _places("place_left", 32)],
            [_takes("request_state_msn", 24, "complete"), _acks("acknowledge_wqe_index", 16, "blamed")],
            [_places("place_received", 32), _places("place_sge", 4)],
            [
                _takes("request_state_index", 16, "next receive WQE"),
                _takes("request_state_taken", 5),
                _takes("request_state_message", 2),
                _takes("request_state_nak_sent", 1),
                _acks("acknowledge_pending", 5, "released and not answered"),
                _acks("acknowledge_dead", 1),
                _acks("acknowledge_blamed", 1),
            ],
            [],
            [
                _takes("request_state_sequence_error_offset", 8),
                _takes("request_state_sequence_error_others", 1),
                _takes("request_state_sequence_error_again", 1),
                _takes("request_state_dead", 1),
                _takes("request_state_mixed", 1),
                _takes("request_state_asked", 1),
            ],
        ],
        3: [
            [_serves("served_offset", 31, "bytes sent of the response")],
            [],
            [
                _serves("served_packets", 23, "of it"),
                _serves("served_atomic", 1),
                _serves("served_middle", 1),
                _serves("served_quiet", 1),
                _serves("served_dead", 1),
            ],
            [],
            [
                _serves("served_released", 5),
                _serves("served_cut", 5),
                _serves("served_served", 8),
                _serves("served_place_slot", 4),
                _serves("served_place_wrapped", 1),
            ],
        ],
        7: [[_posts("rq_producer", 16, "receive WQEs posted")]],
    },
    "Responder's half of a QP's record, at `qpc_base + QPN * 1024 + 512`. The table is to come; no command"
    " names it yet.",
)
