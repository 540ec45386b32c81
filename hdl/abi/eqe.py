"""Event queue entries."""

from enum import IntEnum

from .record import Field, Record

__all__ = ["EQE", "EventType"]

EQE = Record(
    "eqe",
    16,
    [
        Field("type", 8, "enum ibv_event_type, or COMPLETION"),
        Field("_", 24),
        Field("number", 24, "number of the QP, CQ or SRQ that the event is about"),
        Field("_", 8),
        Field("_", 32),
        Field("_", 31),
        Field("phase", 1, "as in a CQE"),
    ],
    "Event queue entry.",
)


class EventType(IntEnum):
    """``enum ibv_event_type``; COMPLETION is Verbena's own and feeds completion channels.

    QP_FATAL whose number is less than ``max_qp`` is about a place of the QP context table: the record that stands there
    cannot be read, or was overwritten, and the device has forgotten the QP. No command may name that QP any more;
    its place is free. Where there is a table the driver gives no QP such a number but QP1, whose number is its place.
    """

    CQ_ERR = 0
    QP_FATAL = 1
    QP_REQ_ERR = 2
    QP_ACCESS_ERR = 3
    COMM_EST = 4
    SQ_DRAINED = 5
    DEVICE_FATAL = 8
    PORT_ACTIVE = 9
    PORT_ERR = 10
    SRQ_ERR = 14
    SRQ_LIMIT_REACHED = 15
    QP_LAST_WQE_REACHED = 16
    COMPLETION = 128
