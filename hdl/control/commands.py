"""The command block: the only writer of attributes."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import MAILBOX_WORDS, Command, CommandStatus, QpAction
from ..abi.contexts import QP_CONTEXT, QP_CONTEXT_WORDS, QpState, QpType
from ..abi.cqc import CQN_BITS
from ..abi.eqe import EventType
from ..stream.fifo import Queue
from ..stream.record import word_layout
from ..stream.transfer import NO_EVENT, SEND_FAILED, AttributeWrite, CqControl, Event, QpControl, QpError
from .contexts import Contexts
from .decoder import Decoder, Plan
from .registers import CommandWord
from .replies import Replies, Reply
from .reports import Reports
from .slot_keeper import QUIET
from .tokens import Tokens

__all__ = ["Commands"]

QPN_WORD = QP_CONTEXT.fields["qpn"].word
SRQN_BITS = QP_CONTEXT.fields["srqn"].width


class Commands(wiring.Component):
    """Executes one command at a time, and moves QPs to ERR when a pipeline reports an error; between two commands, or
    while one waits for its end. If it is the send queue of a UC or UD QP that has failed, that goes to SQE (IBA
    10.3.1): its receive queue goes on.

    Attributes live here once more, in full, for QUERY_QP and for the state that an error changes. Words are written
    from the last to the first, so that ``state`` comes last. START_RECEIVE, START_SEND and RESTART_SEND send their
    token before the attributes are written, all others after them: a QP never runs on half of its attributes.

    The low bits of a QP number are the QP's index. CREATE_QP may name any whose place is empty, or its own; other
    commands must name the one that has it: BAD_NUMBER.

    A QP that has gone to ERR by itself stays there, whatever the host believes, until RESET: BAD_STATE, as for DRAIN
    when the QP is not in RTS, RESUME when it is not in SQD, and RESTART_SEND when it is not in SQE.

    RESET, and with it CREATE_QP and DESTROY_QP, ends when nothing of the QP's old life is left in any pipeline:
    :class:`.tokens.Tokens`.

    After a reset, which does not reach block RAM, all QPs are destroyed, one after the other, before the first command.
    Nothing is on its way then, so their tokens follow each other: 115 to 130 cycles a QP.

    Members
    -------
    command : stream of ``CommandWord``, ``result`` : 4
        ``ready`` says that it is done; then ``result`` is a :class:`verbena.hdl.abi.commands.CommandStatus`.
    mailbox_addr, mailbox_r_data, mailbox_w_data, mailbox_w_en
        The mailbox; read data in the same cycle.
    swept : 1
        All QPs have been destroyed since the reset.
    qp_attribute, qp_attribute_en, cq_attribute, cq_attribute_en, ring_attribute, ring_attribute_en
        Broadcast of ``AttributeWrite``: registers; see :class:`.contexts.Contexts`.
    requester, responder, response_receiver, completer, sq_fetch, rq_fetch : streams of ``QpControl``
        Tokens. ``requester_done``, ``responder_done``, ``read_atomic_responder_done`` and ``response_receiver_done``
        are strobes: the RESET token has left the pipeline.
    requester_reply, responder_reply : streams of ``{psn, index}``, completer_reply : stream of ``{index}``
        Answers to QUERY.
    cq_control : stream of :data:`verbena.hdl.stream.transfer.CqControl`
        Around the writes of a CQ's attributes: the first holds completions, the second lets them go on. With
        ``cq_control_bad`` the first fails, as the CQ's record cannot be read.
    cqc_log_size : 4
        See :class:`.decoder.Decoder`.
    invalidate : stream of ``{index, translations}``
        Drops the MPT entry ``index`` from its cache, and waits for what has seen it; or drops all MTT entries.
        ``ready`` says that it is done.
    responder_error, completer_error, completion_error : streams of ``QpError``
        Queued in :class:`.reports.Reports`, so that no pipeline ever waits. SQ_DRAINED is no error: it becomes an event
        if the QP is in SQD, and changes nothing.
    timers : stream of ``QpControl``; sending : 1
        With ``swaps``: SAVE and LOAD; and whether QP ``closed_qp`` has requests on the transmit path.
    bring, bring_index, bring_create, brought, slot, status, wants, grant, done, forget, forget_slot, opens, reported
        With ``swaps``, of a :class:`.slot_keeper.SlotKeeper`: it has tokens and attributes for one job between two
        commands, or when a command needs a QP's slot. ``reported`` is its ``reports``, a
        cycle late.
    closed, closed_qp : 1, 12
        With ``swaps``: the keeper's. While a QP is closed what was reported goes before all else.
    token : stream of ``QpControl``; attribute_word, attribute_data, attribute_write, attribute_row
        With ``swaps``: what the keeper says, and the attributes of slot ``closed_qp``, with ``grant``.
    directory_ready : 1
        With ``swaps``: the directory of QPs is empty, as after a reset.
    completions_move : 1
        No completion waits to be written, or one is taken. RESET waits for so many such cycles that all completions of
        the QP's old life, which could still be lost and reported, are out of the queues.
    event : stream of ``Event``
        Asynchronous events, 16 deep.
    """

    def __init__(self, qps, *, table=None, srqs=0, unreliable=True):
        self.qps = qps
        self.unreliable = unreliable
        self.srqs = srqs
        self.table = table or qps
        self.swaps = table is not None
        token = stream.Signature(QpControl)
        swap = {
            "timers": Out(token),
            "sending": In(1),
            "bring": Out(1),
            "bring_index": Out(range(self.table)),
            "bring_create": Out(1),
            "brought": In(1),
            "slot": In(range(qps)),
            "status": In(CommandStatus),
            "wants": In(1),
            "grant": Out(1),
            "done": In(1),
            "forget": Out(1),
            "forget_slot": Out(range(qps)),
            "opens": Out(1),
            "reported": Out(1),
            "closed": In(1),
            "closed_qp": In(12),
            "token": In(token),
            "attribute_word": In(range(QP_CONTEXT_WORDS)),
            "attribute_data": In(32),
            "attribute_write": In(1),
            "attribute_row": Out(32),
            "directory_ready": In(1),
        }
        super().__init__(
            {
                "command": In(stream.Signature(CommandWord)),
                "result": Out(4),
                "swept": Out(1),
                "mailbox_addr": Out(ceil_log2(MAILBOX_WORDS)),
                "mailbox_r_data": In(32),
                "mailbox_w_data": Out(32),
                "mailbox_w_en": Out(1),
                "qp_attribute": Out(AttributeWrite),
                "qp_attribute_en": Out(1),
                "cq_attribute": Out(AttributeWrite),
                "cq_attribute_en": Out(1),
                "ring_attribute": Out(AttributeWrite),
                "ring_attribute_en": Out(1),
                "requester": Out(token),
                "responder": Out(token),
                "response_receiver": Out(token),
                "completer": Out(token),
                "sq_fetch": Out(token),
                "rq_fetch": Out(token),
                "requester_done": In(1),
                "responder_done": In(1),
                "read_atomic_responder_done": In(1),
                "response_receiver_done": In(1),
                "requester_reply": In(stream.Signature(Reply)),
                "responder_reply": In(stream.Signature(Reply)),
                "completer_reply": In(stream.Signature(data.StructLayout({"index": 16}))),
                "cqc_log_size": In(4),
                "cq_control": Out(stream.Signature(CqControl)),
                "cq_control_bad": In(1),
                "invalidate": Out(stream.Signature(data.StructLayout({"index": 24, "translations": 1}))),
                "responder_error": In(stream.Signature(QpError)),
                "completer_error": In(stream.Signature(QpError)),
                "completion_error": In(stream.Signature(QpError)),
                "completions_move": In(1),
                "event": Out(stream.Signature(Event)),
            }
            | (swap if self.swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.decoder = decoder = Decoder(self.table, self.srqs)
        m.submodules.contexts = contexts = Contexts(self.qps)
        m.submodules.tokens = tokens = Tokens(self.qps, swaps=self.swaps)
        m.submodules.replies = replies = Replies()
        m.submodules.reports = reports = Reports(self.qps, tells=2 if self.srqs else 1)
        m.submodules.events = events = Queue(Event, 16)
        heard = ("requester", "responder", "response_receiver", "completer", "sq_fetch", "rq_fetch")
        for name in heard + (("timers",) if self.swaps else ()):
            if name != "rq_fetch" or not self.srqs:
                wiring.connect(m, getattr(tokens, name), wiring.flipped(getattr(self, name)))
        for name in ("requester", "responder", "read_atomic_responder", "response_receiver"):
            m.d.comb += getattr(tokens, f"{name}_done").eq(getattr(self, f"{name}_done"))
        for name in ("requester", "responder", "completer"):
            wiring.connect(m, wiring.flipped(getattr(self, f"{name}_reply")), getattr(replies, name))
        wiring.connect(m, wiring.flipped(self.responder_error), reports.responder)
        wiring.connect(m, wiring.flipped(self.completer_error), reports.completer)
        wiring.connect(m, wiring.flipped(self.completion_error), reports.completions)
        wiring.connect(m, events.o, wiring.flipped(self.event))
        for name in (f"{kind}_attribute{part}" for kind in ("qp", "cq", "ring") for part in ("", "_en")):
            m.d.comb += getattr(self, name).eq(getattr(contexts, name))
        report = reports.o.payload

        # Everything that the steps below share.
        number = Signal(CQN_BITS)  # the QP's slot, or the CQ's number
        waiting = Signal(CQN_BITS)  # that of the command, while the step belongs to a report
        action = Signal(QpAction)
        psn = Signal(24)
        word = Signal(range(QP_CONTEXT_WORDS))
        qpn = self.command.payload.number
        whose = Signal()  # the QP number of `number` is read
        mine, empty = Signal(), Signal()  # it was the command's, or none
        # What the decoder says, a cycle late.
        decoded = Signal(
            data.StructLayout(
                {name: member.shape for name, member in decoder.signature.members.items() if member.flow == Out}
            )
        )
        m.d.sync += [decoded[name].eq(getattr(decoder, name)) for name in decoded.shape().members]
        plan = decoded.plan
        result = Signal(CommandStatus)
        destroy = Signal()
        keep = Signal()
        holding = Signal()  # completions wait: the attributes of their CQ may be changed
        reporting = Signal()  # the step belongs to a report, not to a command
        starting = Signal()  # the token goes before the attributes
        resetting = Signal()  # the command is done once the reports of the old life are out of the queues
        left = Signal(range(QUIET + 1))
        with m.If(self.completions_move & (left != 0)):
            m.d.sync += left.eq(left - 1)
        controlled, control_bad, invalidated = Signal(), Signal(), Signal()
        m.d.sync += [
            mine.eq(contexts.row[: len(qpn)] == qpn),
            empty.eq(contexts.row[: len(qpn)] == 0),
            controlled.eq(self.cq_control.valid & self.cq_control.ready),
            control_bad.eq(self.cq_control_bad),
            invalidated.eq(self.invalidate.valid & self.invalidate.ready),
        ]
        m.d.comb += [
            self.result.eq(result),
            decoder.command.eq(self.command.payload),
            decoder.cqc_log_size.eq(self.cqc_log_size),
            contexts.number.eq(number),
            contexts.word.eq(Mux(whose, QPN_WORD, word)),
            contexts.data.eq(Mux(destroy, 0, Mux(word == QPN_WORD, qpn, self.mailbox_r_data))),
            self.mailbox_addr.eq(word),
            self.mailbox_w_data.eq(contexts.row),
            tokens.new.eq(~self.swept),
            tokens.request.payload.qp.eq(number),
            tokens.request.payload.action.eq(action),
            tokens.request.payload.psn.eq(psn),
            self.cq_control.payload.cq.eq(number),
            self.cq_control.payload.hold.eq(~holding),
            self.cq_control.payload.keep.eq(keep),
            self.invalidate.payload.index.eq(self.command.payload.number),
            self.invalidate.payload.translations.eq(self.command.payload.opcode == Command.INVALIDATE_MTT),
            events.i.payload.type.eq(report.event),
            events.i.payload.number.eq(contexts.row),
        ]
        # A reset does not reach the memories. First the sets that wait in memory are taken out, a cycle a QP.
        sweep = Signal(range(self.qps))
        old, err = Signal(word_layout(QP_CONTEXT, [0])), Signal(word_layout(QP_CONTEXT, [0]))
        m.d.comb += [old.eq(contexts.row), err.eq(contexts.row), err.state.eq(QpState.ERR)]
        told, sending_fails = Signal(), Signal()  # the report is an event; of the send queue alone
        m.d.sync += told.eq((report.event != NO_EVENT) & (report.event != SEND_FAILED))
        if self.unreliable:
            of_sends = Signal()
            m.d.sync += of_sends.eq(report.event == SEND_FAILED)
            m.d.comb += sending_fails.eq(of_sends & (old.type != QpType.RC))
            with m.If(sending_fails):
                m.d.comb += err.state.eq(QpState.SQE)

        if self.swaps:
            m.d.sync += [self.opens.eq(0), self.forget.eq(0)]
        with m.FSM() as fsm:
            ringing = fsm.ongoing("RESET_SRQ") if self.srqs else None
            with m.State("RESET"):
                m.d.sync += sweep.eq(sweep + 1)
                with m.If(sweep.all()):
                    m.d.sync += sweep.eq(0)
                    m.next = "SWEEP"
            with m.State("SWEEP"):
                m.d.sync += [
                    number.eq(sweep),
                    action.eq(QpAction.RESET),
                    word.eq(QP_CONTEXT_WORDS - 1),
                    destroy.eq(1),
                    keep.eq(0),
                    holding.eq(0),
                    reporting.eq(0),
                    starting.eq(0),
                    resetting.eq(0),
                ]
                m.next = "WRITE_QP"
            with m.State("SWEPT"):
                with m.If(sweep != self.qps - 1):
                    m.d.sync += sweep.eq(sweep + 1)
                    m.next = "SWEEP"
                with m.Elif(~tokens.under_way & (self.directory_ready if self.swaps else 1)):
                    m.next = "SWEPT_QPS"
                    m.d.sync += [number.eq(0), word.eq(0), destroy.eq(1)]
            with m.State("SWEPT_QPS"):  # SRQs have nothing on any path
                m.d.comb += contexts.write_srq.eq(self.srqs != 0)
                m.d.sync += number.eq(number + 1)
                with m.If(number == max(1, self.srqs) - 1):
                    m.d.sync += self.swept.eq(1)
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.sync += [holding.eq(0), reporting.eq(0), starting.eq(0), resetting.eq(0)]
                if self.swaps:
                    # A QP that has failed must be in ERR when it opens: its poison is gone.
                    m.d.sync += self.opens.eq(reports.empty)
                with m.If(reports.o.valid):
                    m.next = "REPORT"
                if self.swaps:
                    with m.Elif(self.closed & ~reports.empty):
                        pass  # it is on its way
                with m.Elif(self.command.valid):
                    m.next = "DECODE"
                if self.swaps:
                    with m.Elif(self.wants & ~self.closed):
                        m.d.sync += self.grant.eq(1)
                        m.next = "GRANTED"

            with m.State("DECODE"):
                m.d.sync += [
                    number.eq(decoded.number),
                    action.eq(decoded.action),
                    word.eq(decoded.word),
                    result.eq(decoded.status),
                    destroy.eq(decoded.destroy),
                    keep.eq(decoded.keep),
                ]
                m.next = "PLAN"
            with m.State("PLAN"):
                m.d.comb += whose.eq(1)
                with m.Switch(plan):
                    with m.Case(Plan.NOTHING):
                        m.next = "FINISH"
                    with m.Case(Plan.WRITE_CQ):
                        m.next = "CONTROL_CQ"
                    with m.Case(Plan.INVALIDATE):
                        m.next = "INVALIDATE"
                    if self.srqs:
                        with m.Case(Plan.WRITE_SRQ):
                            m.next = "WRITE_SRQ"
                        with m.Case(Plan.CLEAR_SRQ):
                            m.next = "CLEAR_SRQ"
                    with m.Default():
                        m.next = "WHOSE"
                        if self.swaps:
                            m.d.sync += [self.grant.eq(1), self.bring.eq(1)]
                            m.next = "GRANTED"

            # Whose is the place that the low bits of the number say? A new QP may take an empty one.
            with m.State("WHOSE"):
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.next = "CHECK"
            with m.State("CHECK"):
                with m.Switch(plan):
                    with m.Case(Plan.WRITE_QP):
                        m.next = "WRITE_QP"
                    with m.Case(Plan.MODIFY_QP):
                        m.next = "PSN"
                    with m.Case(Plan.READ_QP):
                        m.d.comb += replies.clear.eq(1)
                        m.next = "READ_ADDRESS"
                with m.If(~mine & ~(empty & (self.command.payload.opcode == Command.CREATE_QP))):
                    m.d.sync += result.eq(CommandStatus.BAD_NUMBER)
                    m.next = "FINISH"

            # MODIFY_QP: the PSN that its action wants stands in the mailbox.
            with m.State("PSN"):
                m.d.sync += [psn.eq(self.mailbox_r_data), word.eq(QP_CONTEXT_WORDS - 1)]
                m.next = "WRITE_QP"
                starts = (QpAction.START_SEND, QpAction.START_RECEIVE, QpAction.RESTART_SEND)
                with m.If(reduce(or_, (action == each for each in starts))):
                    m.d.sync += starting.eq(1)
                    m.next = "TOKENS"

            # The word with the state is written only once it is known that no error has come first.
            with m.State("WRITE_QP"):
                with m.If(word == 0):
                    m.next = "STATE_ADDRESS"
                with m.Else():
                    m.d.comb += contexts.write_qp.eq(1)
                    m.d.sync += word.eq(word - 1)
            with m.State("STATE_ADDRESS"):
                m.next = "STATE_WAIT"
            with m.State("STATE_WAIT"):
                m.next = "WRITE_STATE"
                with m.If(reporting):
                    m.next = "REPORT_STATE"
            with m.State("WRITE_STATE"):
                refused = Signal()
                with m.Switch(action):
                    with m.Case(QpAction.NONE, QpAction.START_RECEIVE, QpAction.START_SEND):
                        m.d.comb += refused.eq(old.state == QpState.ERR)
                    with m.Case(QpAction.DRAIN):
                        m.d.comb += refused.eq(old.state != QpState.RTS)
                    with m.Case(QpAction.RESUME):
                        m.d.comb += refused.eq(old.state != QpState.SQD)
                    with m.Case(QpAction.RESTART_SEND):
                        m.d.comb += refused.eq(old.state != QpState.SQE)
                with m.If(refused):
                    m.d.sync += result.eq(CommandStatus.BAD_STATE)
                    m.next = "FINISH"
                with m.Else():
                    m.d.comb += contexts.write_qp.eq(1)
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                # The broadcast reaches the tables before the token reaches their users, or the host hears of it.
                m.next = "TOKENS"
                with m.If(starting | (action == QpAction.NONE)):
                    m.next = "FINISH"
            with m.State("TOKENS"):
                m.d.comb += tokens.request.valid.eq(1)
                with m.If(tokens.request.ready):
                    m.next = "FINISH"
                    with m.If(reporting):
                        m.next = "EVENT_ADDRESS"
                    with m.Elif(starting):
                        m.next = "WRITE_QP"
                    with m.Elif((action == QpAction.RESET) & self.swept):
                        m.d.sync += [resetting.eq(1), left.eq(QUIET)]
                        m.next = "PURGE"
                    with m.Elif(action == QpAction.QUERY):
                        m.next = "REPLIES"
            with m.State("PURGE"):
                with m.If(reports.empty & (left == 0)):
                    m.next = "FINISH"
                    with m.If(destroy):
                        m.next = "FREE"
                with m.Elif(reports.o.valid):
                    m.next = "REPORT"

            # What was in flight went by the old path; now the place is empty.
            with m.State("FREE"):
                m.d.comb += [whose.eq(1), contexts.write_qp.eq(1)]
                if self.swaps:
                    m.d.sync += self.forget.eq(1)
                m.next = "FREED"
            with m.State("FREED"):  # as after SETTLE
                m.next = "FINISH"

            # QUERY_QP: all words, then what the owners say.
            with m.State("READ_ADDRESS"):
                m.next = "READ_WAIT"
            with m.State("READ_WAIT"):
                m.next = "READ_WORD"
            with m.State("READ_WORD"):
                m.d.comb += self.mailbox_w_en.eq(1)
                m.d.sync += word.eq(word + 1)
                m.next = "READ_ADDRESS"
                with m.If(word == QP_CONTEXT_WORDS - 1):
                    m.next = "TOKENS"
            with m.State("REPLIES"), m.If(replies.done):
                m.next = "FINISH"

            with m.State("WRITE_CQ"):
                m.d.comb += contexts.write_cq.eq(1)
                m.d.sync += word.eq(word - 1)
                with m.If(word == 0):
                    m.next = "SETTLE_CQ"
            with m.State("SETTLE_CQ"):
                m.next = "SETTLED_CQ"
            with m.State("SETTLED_CQ"):
                m.next = "CONTROL_CQ"
            # The completions' and the access check's answers are far from here: they are acted on a cycle later.
            with m.State("CONTROL_CQ"):
                m.d.comb += self.cq_control.valid.eq(~controlled)
                with m.If(controlled):
                    m.d.sync += holding.eq(1)
                    m.next = "WRITE_CQ"
                    with m.If(control_bad):
                        m.d.sync += result.eq(CommandStatus.BUS_ERROR)
                        m.next = "FINISH"
                    with m.Elif(holding):
                        m.next = "FINISH"

            with m.State("INVALIDATE"):
                m.d.comb += self.invalidate.valid.eq(~invalidated)
                with m.If(invalidated):
                    m.next = "FINISH"

            with m.State("FINISH"):
                m.d.comb += self.command.ready.eq(self.swept)
                m.next = "IDLE"
                with m.If(~self.swept):
                    m.next = "SWEPT"

            # A pipeline reports an error: to ERR, unless the QP is there or gone already.
            with m.State("REPORT"):
                m.d.sync += [waiting.eq(number), number.eq(report.qp)]
                m.d.sync += [word.eq(0), action.eq(QpAction.ERROR), reporting.eq(1)]
                m.next = "STATE_ADDRESS"
            with m.State("REPORT_STATE"):
                lives = (old.state == QpState.RTR) | (old.state == QpState.RTS) | (old.state == QpState.SQD)
                if self.unreliable:
                    lives |= old.state == QpState.SQE
                m.d.comb += contexts.data.eq(err)
                m.next = "REPORTED"
                with m.If(report.event == EventType.SQ_DRAINED):
                    with m.If(old.state == QpState.SQD):
                        m.next = "EVENT_ADDRESS"
                if self.srqs:
                    with m.Elif(report.event == EventType.QP_LAST_WQE_REACHED):
                        with m.If(old.state == QpState.ERR):
                            m.d.sync += left.eq(QUIET)
                            m.next = "LAST_WQE"
                with m.Elif(lives):
                    m.d.comb += contexts.write_qp.eq(1)
                    with m.If(sending_fails):
                        m.d.sync += action.eq(QpAction.SEND_ERROR)
                    m.next = "SETTLE"
            with m.State("EVENT_ADDRESS"):
                m.d.comb += whose.eq(1)
                m.next = "EVENT_WAIT"
            with m.State("EVENT_WAIT"):
                m.d.comb += whose.eq(1)
                m.next = "EVENT"
            with m.State("EVENT"):
                m.d.comb += [whose.eq(1), events.i.valid.eq(told)]
                with m.If(events.i.ready | ~told):
                    m.next = "REPORTED"
            with m.State("REPORTED"):
                m.d.comb += reports.o.ready.eq(1)
                m.d.sync += [reporting.eq(0), number.eq(waiting)]
                m.next = "IDLE"
                with m.If(resetting):
                    m.next = "PURGE"

            if self.srqs:
                self._srq(m, contexts, number, word, destroy, keep, left)
            if self.swaps:
                self._grant(m, number, result, whose)

        with m.If(replies.write):
            m.d.comb += [
                self.mailbox_addr.eq(QP_CONTEXT_WORDS + replies.word),
                self.mailbox_w_data.eq(replies.data),
                self.mailbox_w_en.eq(1),
            ]
        if self.swaps:
            self._connect_keeper(m, contexts, tokens, reports, number)
        if self.srqs:
            # Nobody else has a token under way while that of an SRQ's ring is.
            m.d.comb += [
                self.rq_fetch.valid.eq(tokens.rq_fetch.valid | ringing),
                self.rq_fetch.payload.eq(tokens.rq_fetch.payload),
                tokens.rq_fetch.ready.eq(self.rq_fetch.ready & ~ringing),
            ]
            with m.If(ringing):
                m.d.comb += [
                    self.rq_fetch.payload.qp.eq(self.qps | number[:SRQN_BITS]),
                    self.rq_fetch.payload.action.eq(QpAction.RESET),
                ]
        return m

    def _srq(self, m, contexts, number, word, destroy, keep, left):
        """Commands about SRQs: doorbells are ignored, the ring is empty, and then it is what is to be; and the event
        of a QP that needs none any more, when its completions have been written.
        """
        with m.State("CLEAR_SRQ"):
            m.d.comb += [contexts.write_srq.eq(1), contexts.word.eq(0), contexts.data.eq(0)]
            m.next = "CLEARED_SRQ"
        with m.State("CLEARED_SRQ"):  # as after SETTLE
            m.next = "RESET_SRQ"
        with m.State("RESET_SRQ"), m.If(self.rq_fetch.ready):
            m.next = "WRITE_SRQ"
            with m.If(destroy):
                m.next = "FINISH"
        with m.State("WRITE_SRQ"):
            m.d.comb += contexts.write_srq.eq(1)
            m.d.sync += word.eq(word - 1)
            with m.If((word == 0) | keep):
                m.next = "FREED"
        with m.State("LAST_WQE"), m.If(left == 0):
            m.next = "EVENT_ADDRESS"

    def _connect_keeper(self, m, contexts, tokens, reports, number):
        """What the keeper of slots is told, and what it does while it has its turn."""
        m.d.comb += [
            self.bring_index.eq(self.command.payload.number),
            self.bring_create.eq(self.command.payload.opcode == Command.CREATE_QP),
            self.forget_slot.eq(number),
            self.attribute_row.eq(contexts.row),
            tokens.sending.eq(self.sending),
        ]
        m.d.sync += self.reported.eq(~reports.empty)
        with m.If(self.grant):
            m.d.comb += [
                contexts.number.eq(self.closed_qp),
                contexts.word.eq(self.attribute_word),
                contexts.data.eq(self.attribute_data),
                contexts.write_qp.eq(self.attribute_write),
                tokens.request.payload.eq(self.token.payload),
                tokens.request.valid.eq(self.token.valid),
                self.token.ready.eq(tokens.request.ready),
            ]

    def _grant(self, m, number, result, whose):
        """The keeper of slots has its turn. Without what it was asked for the command begins anew."""
        with m.State("GRANTED"), m.If(self.done):
            m.d.sync += self.grant.eq(0)
            m.next = "IDLE"
            with m.If(self.brought):
                m.d.sync += [self.bring.eq(0), number.eq(self.slot)]
                m.next = "BROUGHT"
                with m.If(self.status != CommandStatus.OK):
                    m.d.sync += result.eq(self.status)
                    m.next = "FINISH"
        with m.State("BROUGHT"):
            m.d.comb += whose.eq(1)
            m.next = "WHOSE"
