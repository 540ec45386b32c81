"""Commands: the driver fills the mailbox, writes the command register, and waits for the status register.

The mailbox is 64 words of 32 bits in the register space. A command takes its operands from the mailbox and leaves its
results there.
"""

from enum import IntEnum

from .contexts import CQ_CONTEXT, QP_CONTEXT, QP_DYNAMIC
from .record import Field, Record

__all__ = ["COMMAND", "MAILBOX_WORDS", "OPERANDS", "RESULTS", "Command", "CommandStatus", "QpAction"]

MAILBOX_WORDS = 64
"""32-bit words of the mailbox."""

COMMAND = Record(
    "command",
    8,
    [
        Field("number", 24, "number of a QP, CQ or SRQ, or MPT index"),
        Field("opcode", 4, "enum command_opcode"),
        Field("action", 4, "enum qp_action, for MODIFY_QP"),
        Field("_", 32),
    ],
    "The command register (its first 32 bits): a write starts the command.",
)


class Command(IntEnum):
    """Opcodes."""

    NOP = 0
    CREATE_QP = 1
    MODIFY_QP = 2
    QUERY_QP = 3
    DESTROY_QP = 4
    CREATE_CQ = 5
    DESTROY_CQ = 6
    INVALIDATE_KEY = 7
    MODIFY_CQ = 8  # another ring, from its first entry on; how the CQ is armed, and its events, stay
    INVALIDATE_MTT = 9
    DEVICE_RESET = 10  # taken at any time, also while another command runs, which it ends
    CREATE_SRQ = 11  # empty, whatever it was
    MODIFY_SRQ = 12  # its limit
    DESTROY_SRQ = 13  # no QP may use it any more
    MODERATE_CQ = 14  # its cq_count and cq_period; the other attributes must be what they were


class QpAction(IntEnum):
    """What MODIFY_QP does besides writing the attributes; one token, carried through each pipeline in order."""

    NONE = 0
    RESET = 1
    START_RECEIVE = 2
    START_SEND = 3
    ERROR = 4
    QUERY = 5  # internal: the owner of a field answers on its `reply` stream
    RESUME = 6  # SQD to RTS: the send queue goes on
    DRAIN = 7  # RTS to SQD: event SQ_DRAINED when all that was begun is complete
    STOP = 8  # internal: the requester sends nothing more of the QP, until LOAD
    SAVE = 9  # internal: the owner of a state gives it away, and has none, as after RESET
    LOAD = 10  # internal: it gets one that was given away
    SEND_ERROR = 11  # internal: as ERROR, for the send queue alone
    RESTART_SEND = 12  # SQE to RTS: as START_SEND, behind what has failed; all that was posted must be complete


class CommandStatus(IntEnum):
    """Low 4 bits of the status register; bit 31 is `busy`."""

    OK = 0
    BAD_OPCODE = 1
    BAD_NUMBER = 2
    BAD_STATE = 3
    BAD_PARAMETER = 4
    BUS_ERROR = 5  # a table in host memory cannot be read


OPERANDS = {
    Command.CREATE_QP: QP_CONTEXT,
    Command.MODIFY_QP: QP_CONTEXT,
    Command.CREATE_CQ: CQ_CONTEXT,
    Command.MODIFY_CQ: CQ_CONTEXT,
    Command.MODERATE_CQ: CQ_CONTEXT,
    Command.CREATE_SRQ: QP_CONTEXT,
    Command.MODIFY_SRQ: QP_CONTEXT,
}
"""Record that the mailbox holds, from word 0 on, when the command starts. All words are written to the context."""

RESULTS = {Command.QUERY_QP: (QP_CONTEXT, QP_DYNAMIC)}
"""Records that the mailbox holds, one behind the other from word 0 on, when the command is done."""
