"""The CQ context table: what a completion queue is, in host memory. The engine has slots for some on chip."""

from .record import Field, Record

__all__ = ["ARMS_BITS", "CQC_BYTES", "CQC_DRIVER", "CQC_SAVED", "CQN_BITS", "CQ_RECORD"]

CQC_BYTES = 64
"""A CQ's record. It stands at ``cqc_base + CQN * CQC_BYTES``."""

CQN_BITS = 14
"""Most bits of a CQ number."""

CQC_SAVED = 16
"""Bytes that the engine writes, from the first one on: all when the slot is given to another CQ."""

CQC_DRIVER = 32
"""At this byte the driver's word begins. The driver writes it before each doorbell of the CQ, the engine never does."""

ARMS_BITS = 4
"""Bits of a count of arms."""

CQ_RECORD = Record(
    "cq_record",
    CQC_BYTES,
    [
        Field("base", 64, "bus address of the ring, 4 KiB aligned"),
        Field("log_size", 4, "entries, 0 to 15"),
        Field("valid", 1),
        Field("dead", 1, "a CQE was lost: none is written any more"),
        Field("ring", 1, "each MODIFY_CQ changes it"),
        Field("_", 1),
        Field("arms_seen", ARMS_BITS, "`arms` at the last completion event"),
        Field("solicited_arms_seen", ARMS_BITS),
        Field("producer", 16, "CQEs written"),
        Field("cq_count", 16, "as in `cq_context`, and so are the next two"),
        Field("cq_period", 12),
        Field("comp_vector", 4),
        Field("_", 64),
        Field("_", 64),
        Field("consumer", 16, "CQEs taken: free-running, as the doorbell has it"),
        Field("arms", ARMS_BITS, "times that an event was asked for at the next completion"),
        Field("solicited_arms", ARMS_BITS, "or at the next one that is solicited or in error"),
        Field("consumer_ring", 1, "the `ring` that `consumer` belongs to; of another one it is 0"),
        Field("_", 39),
        Field("_", 64),
        Field("_", 64),
        Field("_", 64),
    ],
    "A CQ's record, at `cqc_base + CQN * 64`. The driver writes the word that `consumer` begins, and no other once the "
    "CQ is there: CREATE_CQ and MODIFY_CQ write the rest. A CQ is armed as long as `arms` or `solicited_arms` is not "
    "what was seen of it.",
)
