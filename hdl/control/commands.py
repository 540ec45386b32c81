"""The command block: the only writer of attributes."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import MAILBOX_WORDS, Command, CommandStatus, QpAction
from ..abi.contexts import CQ_CONTEXT_WORDS, QP_CONTEXT, QP_CONTEXT_WORDS, QP_DYNAMIC, QpState
from ..stream.fifo import Queue
from ..stream.ram import Ram
from ..stream.record import record_layout, word_layout
from ..stream.transfer import AttributeWrite, Event, QpControl, QpError
from .registers import CommandWord

__all__ = ["Commands"]

NO_EVENT = 255
Reply = data.StructLayout({"psn": 24, "index": 16})


class Commands(wiring.Component):
    """Executes one command at a time, and moves QPs to ERR when a pipeline reports an error; between two commands, or
    while one waits for its end.

    Attributes live here once more, in full, for QUERY_QP and for the state that an error changes. Words are written
    from the last to the first, so that
    ``state`` comes last. START_RECEIVE and START_SEND send their token before the attributes are written, RESET and
    ERROR after them: a QP never runs on half of its
    attributes. A QP that has gone to ERR by itself stays there, whatever the host believes, until RESET: BAD_STATE.

    RESET, and with it CREATE_QP and DESTROY_QP, ends when nothing of the QP's old life is left in any pipeline: its
    token has come out at the end of both.

    Members
    -------
    command : stream of ``CommandWord``, ``result`` : 4
        ``ready`` says that it is done; then ``result`` is a :class:`verbena.hdl.abi.commands.CommandStatus`.
    mailbox_addr, mailbox_r_data, mailbox_w_data, mailbox_w_en
        The mailbox; read data in the same cycle.
    qp_attribute, qp_attribute_en, cq_attribute, cq_attribute_en
        Broadcast of ``AttributeWrite``.
    requester, responder, completer, sq_fetch, rq_fetch : streams of ``QpControl``
        Tokens. ``requester_done`` and ``responder_done`` are strobes: the RESET token has left the pipeline.
    requester_reply, responder_reply : streams of ``{psn, index}``, completer_reply : stream of ``{index}``
        Answers to QUERY.
    cq_control : stream of ``{cq}``
        Resets the indices of a CQ.
    invalidate : stream of ``{index}``
        Drops an MPT entry and all translations from the caches; ``ready`` says that it is done.
    responder_error, completer_error : streams of ``QpError``
        Queued here, ``qps`` deep each, so that no pipeline ever waits: a QP reports once a life.
    event : stream of ``Event``
        Asynchronous events, 16 deep.
    """

    def __init__(self, qps, cqs):
        self.qps = qps
        self.cqs = cqs
        token = stream.Signature(QpControl)
        super().__init__(
            {
                "command": In(stream.Signature(CommandWord)),
                "result": Out(4),
                "mailbox_addr": Out(ceil_log2(MAILBOX_WORDS)),
                "mailbox_r_data": In(32),
                "mailbox_w_data": Out(32),
                "mailbox_w_en": Out(1),
                "qp_attribute": Out(AttributeWrite),
                "qp_attribute_en": Out(1),
                "cq_attribute": Out(AttributeWrite),
                "cq_attribute_en": Out(1),
                "requester": Out(token),
                "responder": Out(token),
                "completer": Out(token),
                "sq_fetch": Out(token),
                "rq_fetch": Out(token),
                "requester_done": In(1),
                "responder_done": In(1),
                "requester_reply": In(stream.Signature(Reply)),
                "responder_reply": In(stream.Signature(Reply)),
                "completer_reply": In(stream.Signature(data.StructLayout({"index": 16}))),
                "cq_control": Out(stream.Signature(data.StructLayout({"cq": 12}))),
                "invalidate": Out(stream.Signature(data.StructLayout({"index": 24}))),
                "responder_error": In(stream.Signature(QpError)),
                "completer_error": In(stream.Signature(QpError)),
                "event": Out(stream.Signature(Event)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        qp_bits = ceil_log2(self.qps)
        command = self.command.payload

        # Everything that the steps below share.
        qp = Signal(12)
        action = Signal(3)
        psn = Signal(24)
        word = Signal(range(max(QP_CONTEXT_WORDS, CQ_CONTEXT_WORDS) + 4))
        from_error = Signal()  # the step belongs to an error report, not to a command
        destroy = Signal()
        event = Signal(8)
        result = Signal(CommandStatus)
        word0 = word_layout(QP_CONTEXT, [0])
        m.d.comb += self.result.eq(result)

        m.submodules.context = context = Ram(32, self.qps * QP_CONTEXT_WORDS)
        written, written_en = Signal(AttributeWrite), Signal()  # the broadcast, a cycle before
        m.d.sync += [self.qp_attribute.eq(written), self.qp_attribute_en.eq(written_en)]
        m.d.comb += [
            context.w_addr.eq(Cat(self.qp_attribute.word, self.qp_attribute.index[:qp_bits])),
            context.w_data.eq(self.qp_attribute.data),
            context.w_en.eq(self.qp_attribute_en),
            context.r_addr.eq(Cat(word[:5], qp[:qp_bits])),
            written.index.eq(qp),
            self.cq_attribute.index.eq(qp),
            written.word.eq(word),
            self.cq_attribute.word.eq(word),
            self.cq_attribute.data.eq(self.mailbox_r_data),
            self.mailbox_addr.eq(word),
        ]

        for name in ("requester", "responder", "completer", "sq_fetch", "rq_fetch"):
            token = getattr(self, name).payload
            m.d.comb += [token.qp.eq(qp), token.action.eq(action), token.psn.eq(psn)]
        m.d.comb += [self.cq_control.payload.cq.eq(qp), self.invalidate.payload.index.eq(command.number)]

        # Errors wait here while a command runs.
        m.submodules.errors0 = errors0 = Queue(QpError, self.qps)
        m.submodules.errors1 = errors1 = Queue(QpError, self.qps)
        wiring.connect(m, wiring.flipped(self.responder_error), errors0.i)
        wiring.connect(m, wiring.flipped(self.completer_error), errors1.i)
        m.submodules.events = events = Queue(Event, 16)
        wiring.connect(m, events.o, wiring.flipped(self.event))
        error_source = Signal()
        error = Signal(QpError)
        m.d.comb += [
            error_source.eq(~errors0.o.valid),
            error.eq(Mux(errors0.o.valid, errors0.o.payload.as_value(), errors1.o.payload.as_value())),
        ]

        # Which steps a RESET still owes, and what its tokens have reported.
        tx_out = Signal()
        rx_out = Signal()
        with m.If(self.requester_done):
            m.d.sync += tx_out.eq(1)
        with m.If(self.responder_done):
            m.d.sync += rx_out.eq(1)

        # Answers to QUERY come in any order, some before the token counts as taken.
        replies = Signal(8 * QP_DYNAMIC.size)
        answered = Signal(3)
        step = Signal(range(QP_DYNAMIC.size // 4))
        dynamic = data.View(record_layout(QP_DYNAMIC), replies)
        for place, (reply, fields) in enumerate(
            (
                (self.requester_reply, {"sq_psn": "psn", "sq_index": "index"}),
                (self.responder_reply, {"rq_psn": "psn", "rq_index": "index"}),
                (self.completer_reply, {"sq_completed": "index"}),
            )
        ):
            m.d.comb += reply.ready.eq(~answered[place])
            with m.If(reply.valid & ~answered[place]):
                m.d.sync += [answered[place].eq(1), *(dynamic[k].eq(reply.payload[v]) for k, v in fields.items())]

        resetting = Signal()  # the command is done once errors of the old life are out of the queues
        valid_qp = Signal()
        valid_cq = Signal()
        m.d.comb += [valid_qp.eq(command.number[qp_bits:] == 1), valid_cq.eq(command.number < self.cqs)]

        def finish(status):
            m.d.sync += result.eq(status)
            m.next = "FINISH"

        def send(token, then):
            m.d.comb += token.valid.eq(1)
            with m.If(token.ready):
                m.next = then

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [word.eq(0), resetting.eq(0), destroy.eq(0), from_error.eq(0)]
                with m.If(errors0.o.valid | errors1.o.valid):
                    m.next = "ERROR"
                with m.Elif(self.command.valid):
                    m.d.sync += qp.eq(command.number[:qp_bits])
                    m.next = "DECODE"

            with m.State("DECODE"):
                m.d.sync += [action.eq(QpAction.NONE), result.eq(CommandStatus.OK)]
                with m.Switch(command.opcode):
                    with m.Case(Command.NOP):
                        finish(CommandStatus.OK)
                    with m.Case(Command.CREATE_QP):
                        m.d.sync += [action.eq(QpAction.RESET), word.eq(QP_CONTEXT_WORDS - 1)]
                        self._checked(m, valid_qp, "WRITE_QP", finish)
                    with m.Case(Command.MODIFY_QP):
                        m.d.sync += [action.eq(command.action), word.eq(QP_CONTEXT.fields["rq_psn"].word)]
                        with m.If(command.action > QpAction.ERROR):
                            finish(CommandStatus.BAD_PARAMETER)
                        with m.Else():
                            self._checked(m, valid_qp, "PSN", finish)
                    with m.Case(Command.QUERY_QP):
                        m.d.sync += [action.eq(QpAction.QUERY), answered.eq(0), replies.eq(0)]
                        self._checked(m, valid_qp, "READ_ADDRESS", finish)
                    with m.Case(Command.DESTROY_QP):
                        m.d.sync += [action.eq(QpAction.RESET), word.eq(0), destroy.eq(1)]
                        self._checked(m, valid_qp, "WRITE_QP", finish)
                    with m.Case(Command.CREATE_CQ):
                        m.d.sync += [word.eq(CQ_CONTEXT_WORDS - 1), qp.eq(command.number)]
                        self._checked(m, valid_cq, "WRITE_CQ", finish)
                    with m.Case(Command.DESTROY_CQ):
                        m.d.sync += [word.eq(CQ_CONTEXT_WORDS - 1), qp.eq(command.number), destroy.eq(1)]
                        self._checked(m, valid_cq, "WRITE_CQ", finish)
                    with m.Case(Command.INVALIDATE_KEY):
                        m.next = "INVALIDATE"
                    with m.Default():
                        finish(CommandStatus.BAD_OPCODE)

            # MODIFY_QP: the PSN that its action wants stands in the mailbox.
            with m.State("PSN"):
                m.d.sync += psn.eq(self.mailbox_r_data)
                with m.If((action == QpAction.START_SEND) & (word != QP_CONTEXT.fields["sq_psn"].word)):
                    m.d.sync += word.eq(QP_CONTEXT.fields["sq_psn"].word)
                with m.Else():
                    m.d.sync += word.eq(QP_CONTEXT_WORDS - 1)
                    with m.If((action == QpAction.START_SEND) | (action == QpAction.START_RECEIVE)):
                        m.next = "TOKEN_REQUESTER"
                    with m.Else():
                        m.next = "WRITE_QP"

            with m.State("WRITE_QP"):
                m.d.comb += [
                    written.data.eq(Mux(destroy, 0, self.mailbox_r_data)),
                    written_en.eq(1),
                ]
                with m.If(word == 0):
                    # Of the word with the state, only once it is known that no error has come first.
                    m.d.comb += written_en.eq(0)
                    m.next = "STATE_ADDRESS"
                with m.Else():
                    m.d.sync += word.eq(word - 1)
            with m.State("STATE_ADDRESS"):
                m.next = "STATE_WAIT"
            with m.State("STATE_WAIT"):
                m.next = "WRITE_STATE"
            with m.State("WRITE_STATE"):
                was = Signal(word0)
                m.d.comb += [was.eq(context.r_data), written.data.eq(Mux(destroy, 0, self.mailbox_r_data))]
                with m.If((was.state == QpState.ERR) & (action == QpAction.NONE)):
                    finish(CommandStatus.BAD_STATE)
                with m.Else():
                    m.d.comb += written_en.eq(1)
                    with m.If((action == QpAction.RESET) | (action == QpAction.ERROR)):
                        m.next = "SETTLE"
                    with m.Else():
                        m.next = "SETTLED"

            with m.State("SETTLE"):
                # The broadcast reaches the tables before the token reaches their users.
                m.next = "TOKEN_REQUESTER"
            with m.State("SETTLED"):
                finish(CommandStatus.OK)
            with m.State("TOKEN_REQUESTER"):
                m.d.sync += [tx_out.eq(0), rx_out.eq(0)]
                send(self.requester, "TOKEN_RESPONDER")
            with m.State("TOKEN_RESPONDER"):
                send(self.responder, "TOKEN_PASSED")
            with m.State("TOKEN_PASSED"), m.If((action != QpAction.RESET) | (tx_out & rx_out)):
                m.next = "TOKEN_COMPLETER"
            with m.State("TOKEN_COMPLETER"):
                send(self.completer, "TOKEN_SQ")
            with m.State("TOKEN_SQ"):
                send(self.sq_fetch, "TOKEN_RQ")
            with m.State("TOKEN_RQ"):
                m.d.comb += self.rq_fetch.valid.eq(1)
                with m.If(self.rq_fetch.ready):
                    with m.If(from_error):
                        m.next = "EVENT"
                    with m.Elif(action == QpAction.RESET):
                        m.d.sync += resetting.eq(1)
                        m.next = "PURGE"
                    with m.Elif(action == QpAction.ERROR):
                        finish(CommandStatus.OK)
                    with m.Elif(action == QpAction.QUERY):
                        m.next = "REPLIES"
                    with m.Else():
                        m.d.sync += action.eq(QpAction.NONE)
                        m.next = "WRITE_QP"
            with m.State("PURGE"):
                with m.If(errors0.o.valid | errors1.o.valid):
                    m.next = "ERROR"
                with m.Else():
                    finish(CommandStatus.OK)

            # QUERY_QP: all words, then what the owners say.
            with m.State("READ_ADDRESS"):
                m.next = "READ_WAIT"
            with m.State("READ_WAIT"):
                m.next = "READ_WORD"
            with m.State("READ_WORD"):
                m.d.comb += [self.mailbox_w_data.eq(context.r_data), self.mailbox_w_en.eq(1)]
                m.d.sync += word.eq(word + 1)
                with m.If(word == QP_CONTEXT_WORDS - 1):
                    m.next = "TOKEN_REQUESTER"
                with m.Else():
                    m.next = "READ_ADDRESS"
            with m.State("REPLIES"):
                with m.If(answered.all()):
                    m.d.sync += step.eq(0)
                    m.next = "REPLY"
            with m.State("REPLY"):
                m.d.comb += [self.mailbox_w_data.eq(replies.bit_select(0, 32)), self.mailbox_w_en.eq(1)]
                m.d.sync += [replies.eq(replies >> 32), word.eq(word + 1), step.eq(step + 1)]
                with m.If(step == QP_DYNAMIC.size // 4 - 1):
                    finish(CommandStatus.OK)

            with m.State("WRITE_CQ"):
                m.d.comb += self.cq_attribute_en.eq(1)
                with m.If(destroy):
                    m.d.comb += self.cq_attribute.data.eq(0)
                m.d.sync += word.eq(word - 1)
                with m.If(word == 0):
                    m.next = "CONTROL_CQ"
            with m.State("CONTROL_CQ"):
                m.d.comb += self.cq_control.valid.eq(1)
                with m.If(self.cq_control.ready):
                    finish(CommandStatus.OK)

            with m.State("INVALIDATE"):
                m.d.comb += self.invalidate.valid.eq(1)
                with m.If(self.invalidate.ready):
                    finish(CommandStatus.OK)

            with m.State("FINISH"):
                m.d.comb += self.command.ready.eq(1)
                m.next = "IDLE"

            # A pipeline reports an error: to ERR, unless the QP is there or gone already.
            with m.State("ERROR"):
                m.d.comb += [errors0.o.ready.eq(1), errors1.o.ready.eq(error_source)]
                m.d.sync += [
                    qp.eq(error.qp),
                    event.eq(error.event),
                    word.eq(0),
                    action.eq(QpAction.ERROR),
                    from_error.eq(1),
                ]
                m.next = "ERROR_ADDRESS"
            with m.State("ERROR_ADDRESS"):
                m.next = "ERROR_WAIT"
            with m.State("ERROR_WAIT"):
                m.next = "ERROR_STATE"
            with m.State("ERROR_STATE"):
                old = Signal(word0)
                new = Signal(word0)
                m.d.comb += [
                    old.eq(context.r_data),
                    new.eq(context.r_data),
                    new.state.eq(QpState.ERR),
                    written.data.eq(new),
                ]
                with m.If((old.state == QpState.RTR) | (old.state == QpState.RTS) | (old.state == QpState.SQD)):
                    m.d.comb += written_en.eq(1)
                    m.next = "SETTLE"
                with m.Else():
                    m.next = "RESUME"
            with m.State("EVENT"):
                m.d.comb += [
                    events.i.payload.type.eq(event),
                    events.i.payload.number.eq(qp | self.qps),
                    events.i.valid.eq(event != NO_EVENT),
                ]
                with m.If(events.i.ready | (event == NO_EVENT)):
                    m.next = "RESUME"
            with m.State("RESUME"):
                m.d.sync += from_error.eq(0)
                with m.If(resetting):
                    m.next = "PURGE"
                with m.Else():
                    m.next = "IDLE"
        return m

    @staticmethod
    def _checked(m, valid, then, finish):
        with m.If(valid):
            m.next = then
        with m.Else():
            finish(CommandStatus.BAD_NUMBER)
