"""Event queue entries."""

from enum import IntEnum

from .record import Field, Record

__all__ = ["EQE", "EVENT_QUEUE", "EVENT_QUEUES_MAX", "EventType"]

EVENT_QUEUES_MAX = 8
"""Event queues that an engine may have."""

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

EVENT_QUEUE = Record(
    "event_queue",
    32,
    [
        Field("base", 64, "bus address of the ring, 4 KiB aligned"),
        Field("log_size", 4, "log2 of its entries; a write of this word resets the ring's indices"),
        Field("_", 28),
        Field("consumer", 16, "free-running index; the interrupt is high while it differs from the producer"),
        Field("_", 16),
        Field("interval", 16, "with moderation: 1.024 us between two rises of the interrupt at least; 0: none"),
        Field("_", 48),
        Field("_", 64),
    ],
    "An event queue, at `EVENT_QUEUES` of the registers. Of the first one only `interval` is written there: the rest "
    "stands in the registers from `eq_low` on. DEVICE_RESET clears all of it.",
)


class EventType(IntEnum):
    """``enum ibv_event_type``; COMPLETION is Verbena's own and feeds completion channels. It goes to the event queue of
    the CQ's ``comp_vector``, all others to the first one.

    QP_FATAL whose number is less than ``max_qp`` is about a place of the QP context table: the record that stands there
    cannot be read, or was overwritten, and the device has forgotten the QP. No command may name that QP any more;
    its place is free. Where there is a table the driver gives no QP such a number but QP1, whose number is its place.

    COMM_EST has its number, and no engine says it yet: a queue pair in RTR takes what comes, and its completions tell.
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
