"""What a command asks for."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import Command, CommandStatus, QpAction
from ..abi.contexts import CQ_CONTEXT_WORDS, QP_CONTEXT, QP_CONTEXT_WORDS
from ..abi.cqc import CQN_BITS
from .registers import CommandWord

__all__ = ["Decoder", "Plan"]


class Plan(enum.Enum, shape=3):
    """Where a command's steps begin."""

    NOTHING = 0
    WRITE_QP = 1
    MODIFY_QP = 2
    READ_QP = 3
    WRITE_CQ = 4
    INVALIDATE = 5
    WRITE_SRQ = 6
    CLEAR_SRQ = 7


class Decoder(wiring.Component):
    """Decodes a command: combinational.

    Parameters
    ----------
    qps : int
        Places of QPs.
    srqs : int
        Shared receive queues.
    moderation : bool
        Events of CQs are moderated.

    Members
    -------
    command : :data:`CommandWord`
    plan : :class:`Plan`
        NOTHING if the status is not OK.
    status : :class:`verbena.hdl.abi.commands.CommandStatus`
        OK, BAD_OPCODE, BAD_NUMBER or BAD_PARAMETER.
    cqc_log_size : 4
        The logarithm of the number of CQs that there may be.
    number : 14
        Index of the QP, the low bits of its number, or number of the CQ or SRQ.
    action : ``QpAction``
    word
        The word of the context from which it is written downwards.
    psn_word
        The word of the mailbox with the PSN that the action wants.
    destroy : 1
        Zeros are written.
    keep : 1
        What the CQ has to say stays: MODIFY_CQ, MODERATE_CQ. Of an SRQ only one word is written: MODIFY_SRQ.
    stay : 1
        Its ring stays, too: MODERATE_CQ.
    """

    def __init__(self, qps, srqs=0, *, moderation=False):
        self.qps = qps
        self.srqs = srqs
        self.moderation = moderation
        super().__init__(
            {
                "command": In(CommandWord),
                "plan": Out(Plan),
                "status": Out(CommandStatus),
                "number": Out(CQN_BITS),
                "cqc_log_size": In(4),
                "action": Out(QpAction),
                "word": Out(range(max(QP_CONTEXT_WORDS, CQ_CONTEXT_WORDS))),
                "psn_word": Out(range(QP_CONTEXT_WORDS)),
                "destroy": Out(1),
                "keep": Out(1),
                "stay": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        qp_bits = ceil_log2(self.qps)
        opcode, number, action = self.command.opcode, self.command.number, self.command.action
        plan = Signal(Plan)
        m.d.comb += [self.number.eq(number[:qp_bits]), self.action.eq(QpAction.RESET)]
        m.d.comb += self.psn_word.eq(QP_CONTEXT.fields["sq_psn"].word)
        with m.If(action == QpAction.START_RECEIVE):
            m.d.comb += self.psn_word.eq(QP_CONTEXT.fields["rq_psn"].word)
        known = Signal(init=1)
        in_range = Signal()
        good = Signal(init=1)
        m.d.comb += in_range.eq(number != 0)  # QP0's, which RoCE has not (IBA A16)
        with m.Switch(opcode):
            with m.Case(Command.NOP):
                m.d.comb += in_range.eq(1)
            with m.Case(Command.CREATE_QP):
                m.d.comb += [plan.eq(Plan.WRITE_QP), self.word.eq(QP_CONTEXT_WORDS - 1)]
            with m.Case(Command.MODIFY_QP):
                m.d.comb += [
                    plan.eq(Plan.MODIFY_QP),
                    self.action.eq(action),
                    self.word.eq(QP_CONTEXT_WORDS - 1),
                    good.eq(((action[3:] == 0) & (action != QpAction.QUERY)) | (action == QpAction.RESTART_SEND)),
                ]
            with m.Case(Command.QUERY_QP):
                m.d.comb += [plan.eq(Plan.READ_QP), self.action.eq(QpAction.QUERY)]
            with m.Case(Command.DESTROY_QP):
                m.d.comb += [plan.eq(Plan.WRITE_QP), self.destroy.eq(1)]
            moderate = (Command.MODERATE_CQ,) if self.moderation else ()
            with m.Case(Command.CREATE_CQ, Command.DESTROY_CQ, Command.MODIFY_CQ, *moderate):
                m.d.comb += [
                    plan.eq(Plan.WRITE_CQ),
                    self.number.eq(number),
                    in_range.eq((number >> self.cqc_log_size) == 0),
                    self.word.eq(CQ_CONTEXT_WORDS - 1),
                    self.destroy.eq(opcode == Command.DESTROY_CQ),
                    self.keep.eq((opcode == Command.MODIFY_CQ) | (opcode == Command.MODERATE_CQ)),
                    self.stay.eq(opcode == Command.MODERATE_CQ),
                ]
            with m.Case(Command.INVALIDATE_KEY, Command.INVALIDATE_MTT):
                m.d.comb += [plan.eq(Plan.INVALIDATE), in_range.eq(1)]
            if self.srqs:
                with m.Case(Command.CREATE_SRQ, Command.MODIFY_SRQ, Command.DESTROY_SRQ):
                    modify = opcode == Command.MODIFY_SRQ
                    m.d.comb += [
                        plan.eq(Mux(modify, Plan.WRITE_SRQ, Plan.CLEAR_SRQ)),
                        self.number.eq(number),
                        in_range.eq(number < self.srqs),
                        self.word.eq(Mux(modify, QP_CONTEXT.fields["srq_limit"].word, QP_CONTEXT_WORDS - 1)),
                        self.destroy.eq(opcode == Command.DESTROY_SRQ),
                        self.keep.eq(modify),
                    ]
            with m.Default():
                m.d.comb += known.eq(0)
        with m.If(~known):
            m.d.comb += self.status.eq(CommandStatus.BAD_OPCODE)
        with m.Elif(~good):
            m.d.comb += self.status.eq(CommandStatus.BAD_PARAMETER)
        with m.Elif(~in_range):
            m.d.comb += self.status.eq(CommandStatus.BAD_NUMBER)
        with m.Else():
            m.d.comb += self.plan.eq(plan)
        return m
