"""The QP context table: what a queue pair is, in host memory, while it has no slot on chip."""

from .record import Field, Record

__all__ = ["INDEX_BITS", "QPC_DRIVER", "QPC_WORDS", "QP_DOORBELLS", "qpc_bytes"]

INDEX_BITS = 14
"""Most bits of a QP's index, its place in the table: the low bits of its number."""

QPC_DRIVER = 64
"""Bytes of a record's beginning that the driver writes, and the engine only reads. The rest is the engine's own."""

QP_DOORBELLS = Record(
    "qp_doorbells",
    QPC_DRIVER,
    [
        Field("sq_producer", 16, "free-running, as the doorbell SQ_PRODUCER or SQ_PUSH has it"),
        Field("rq_producer", 16, "the same of RQ_PRODUCER"),
        Field("_", 32),
        *(Field("_", 64) for _ in range(QPC_DRIVER // 8 - 1)),
    ],
    "The driver's part of a QP's record. The table has a record for each of the `max_qp` QPs; that of a QP stands at "
    "`qpc_base + (QPN % max_qp) * size`, and `size` is the least power of two that `QPC_DRIVER + 8 * (QPC_WORDS + most "
    "WQEs unacknowledged a QP)` bytes fit into. The driver writes each index before its doorbell is rung, 0 to both "
    "before CREATE_QP, and before MODIFY_QP with the action RESET. All else is the engine's. It reads no record that "
    "it has not written since CREATE_QP: the table need not be cleared.",
)

QPC_WORDS = 200
"""Words of 64 bits of the engine's part, besides one for each message that may be under way."""


def qpc_bytes(window):
    """Bytes of a record: a power of two. ``window``: messages of a QP that may be under way."""
    return 1 << (QPC_DRIVER + 8 * (QPC_WORDS + window) - 1).bit_length()
