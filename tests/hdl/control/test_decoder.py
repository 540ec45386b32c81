"""Each opcode, with numbers and actions that are right and wrong."""

from streams import simulate
from verbena.hdl.abi.commands import COMMAND, Command, CommandStatus, QpAction
from verbena.hdl.abi.contexts import QP_CONTEXT, QP_CONTEXT_WORDS
from verbena.hdl.control.decoder import Decoder, Plan

QPS, LOG_CQS = 16, 13
QP_PLANS = {
    Command.CREATE_QP: (Plan.WRITE_QP, QpAction.RESET),
    Command.DESTROY_QP: (Plan.WRITE_QP, QpAction.RESET),
    Command.QUERY_QP: (Plan.READ_QP, QpAction.QUERY),
}


def test_every_command():
    dut = Decoder(QPS, moderation=True)

    async def check(ctx):
        ctx.set(dut.cqc_log_size, LOG_CQS)

        def decode(opcode, number=0, action=0):
            ctx.set(dut.command.as_value(), COMMAND.words(opcode=opcode, number=number, action=action)[0])
            return ctx.get(dut.status), ctx.get(dut.plan)

        good, bad = CommandStatus.OK, (CommandStatus.BAD_NUMBER, Plan.NOTHING)
        assert decode(Command.NOP) == (good, Plan.NOTHING)
        for opcode, (plan, action) in QP_PLANS.items():
            assert decode(opcode, QPS + 5) == (good, plan)
            assert (ctx.get(dut.number), ctx.get(dut.action)) == (5, action)
            assert ctx.get(dut.destroy) == (opcode == Command.DESTROY_QP)
            for number in (1, 2, 2 * QPS, 1 << 23 | QPS | 6, 0xFFFFFF):
                assert decode(opcode, number) == (good, plan)
                assert ctx.get(dut.number) == number % QPS
            assert decode(opcode, 0) == bad
        for action in range(16):
            legal = (action <= QpAction.DRAIN and action != QpAction.QUERY) or action == QpAction.RESTART_SEND
            status, plan = decode(Command.MODIFY_QP, QPS + 1, action)
            assert (status == good, plan == Plan.MODIFY_QP) == (legal, legal)
            assert legal or status == CommandStatus.BAD_PARAMETER
            if legal:
                assert (ctx.get(dut.action), ctx.get(dut.word)) == (action, QP_CONTEXT_WORDS - 1)
                psn = {
                    QpAction.START_SEND: "sq_psn",
                    QpAction.RESTART_SEND: "sq_psn",
                    QpAction.START_RECEIVE: "rq_psn",
                }.get(action)
                assert psn is None or ctx.get(dut.psn_word) == QP_CONTEXT.fields[psn].word
        for opcode in (Command.CREATE_CQ, Command.MODIFY_CQ, Command.DESTROY_CQ, Command.MODERATE_CQ):
            assert decode(opcode, (1 << LOG_CQS) - 1) == (good, Plan.WRITE_CQ)
            assert ctx.get(dut.number) == (1 << LOG_CQS) - 1
            assert ctx.get(dut.keep) == (opcode in (Command.MODIFY_CQ, Command.MODERATE_CQ))
            assert ctx.get(dut.stay) == (opcode == Command.MODERATE_CQ)
            assert decode(opcode, 1 << LOG_CQS) == decode(opcode, 1 << 20) == bad
        assert decode(Command.INVALIDATE_KEY, 0xFFFFFF) == (good, Plan.INVALIDATE)
        assert decode(Command.INVALIDATE_MTT, 0) == (good, Plan.INVALIDATE)
        for opcode in sorted(set(range(16)) - set(Command)):
            assert decode(opcode, QPS) == (CommandStatus.BAD_OPCODE, Plan.NOTHING)

    simulate(dut, check)
