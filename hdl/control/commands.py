"""The command block: the only writer of attributes."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import MAILBOX_WORDS, Command, CommandStatus, QpAction
from ..abi.contexts import QP_CONTEXT, QP_CONTEXT_WORDS
from ..abi.cqc import CQN_BITS
from ..stream.connections import link
from ..stream.fifo import Queue
from ..stream.transfer import AttributeWrite, CqControl, Event, QpControl, QpError
from .context_mover import ContextMover
from .contexts import Contexts
from .cq_command import CqCommand
from .decoder import Decoder, Plan
from .qp_command import QpCommand
from .qp_look import QPN_WORD, QpLook
from .quiet import Quiet
from .registers import CommandWord
from .replies import Replies, Reply
from .report_handler import ReportHandler
from .reports import Reports
from .srq_command import SrqCommand
from .tokens import Tokens

__all__ = ["Commands"]

QP_PLANS = (Plan.WRITE_QP, Plan.MODIFY_QP, Plan.READ_QP)
SRQN_BITS = QP_CONTEXT.fields["srqn"].width


class Commands(wiring.Component):
    """Executes one command at a time, and lets what a pipeline reports be handled between two commands, or while one
    waits for its end. Here stands whose turn it is; what is done then others know: :class:`.qp_command.QpCommand`,
    :class:`.cq_command.CqCommand`, :class:`.srq_command.SrqCommand` and :class:`.report_handler.ReportHandler`, which
    use contexts, mailbox and tokens one after the other.

    Attributes live here once more, in full, for QUERY_QP and for the state that an error changes. Words are written
    from the last to the first, so that ``state`` comes last.

    The low bits of a QP number are the QP's index. CREATE_QP may name any whose place is empty, or its own; other
    commands must name the one that has it: BAD_NUMBER.

    A QP that has gone to ERR by itself stays there, whatever the host believes, until RESET: BAD_STATE, as for DRAIN
    when the QP is not in RTS, RESUME when it is not in SQD, and RESTART_SEND when it is not in SQE.

    After a reset, which does not reach block RAM, all QPs are destroyed, one after the other, before the first command.
    Nothing is on its way then, so their tokens follow each other: 115 to 130 cycles a QP.

    Members
    -------
    command : stream of ``CommandWord``, ``result`` : 4
        ``ready`` says that it is done; then ``result`` is a :class:`verbena.hdl.abi.commands.CommandStatus`.
    mailbox_addr, mailbox_r_data, mailbox_w_data, mailbox_w_en
        The mailbox; read data 2 cycles later.
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
    completions_move, completions_mark, completions_visible : 1
        Of a :class:`verbena.hdl.queue.completion.CompletionWriter`. RESET waits until all completions of the QP's old
        life are in memory, or lost and reported.
    event : stream of ``Event``
        Asynchronous events, 16 deep.
    """

    def __init__(self, qps, *, table=None, srqs=0, unreliable=True, moderation=False):
        self.qps = qps
        self.moderation = moderation
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
                "completions_mark": Out(1),
                "completions_visible": In(1, init=1),
                "event": Out(stream.Signature(Event)),
            }
            | (swap if self.swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.decoder = decoder = Decoder(self.table, self.srqs, moderation=self.moderation)
        m.submodules.contexts = contexts = Contexts(self.qps)
        m.submodules.mover = mover = ContextMover(kinds=3)
        m.submodules.look = look = QpLook()
        m.submodules.tokens = tokens = Tokens(self.qps, swaps=self.swaps)
        m.submodules.replies = replies = Replies()
        m.submodules.reports = reports = Reports(self.qps, tells=2 if self.srqs else 1)
        m.submodules.events = events = Queue(Event, 16)
        m.submodules.quiet = quiet = Quiet()
        m.submodules.handler = handler = ReportHandler(srqs=self.srqs > 0, unreliable=self.unreliable)
        m.submodules.qp = qp = QpCommand()
        m.submodules.cq = cq = CqCommand()
        units = {"qp": qp, "cq": cq}
        if self.srqs:
            m.submodules.srq = units["srq"] = srq = SrqCommand()

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
        link(m, reports.o, handler.report)
        link(m, handler.event, events.i)
        wiring.connect(m, events.o, wiring.flipped(self.event))
        wiring.connect(m, cq.control, wiring.flipped(self.cq_control))
        for name in (f"{kind}_attribute{part}" for kind in ("qp", "cq", "ring") for part in ("", "_en")):
            m.d.comb += getattr(self, name).eq(getattr(contexts, name))

        # -- What is asked: the decoder's answer, a cycle late; before the first command, to destroy one slot.
        decoded = Signal(
            data.StructLayout(
                {name: member.shape for name, member in decoder.signature.members.items() if member.flow == Out}
            ),
            reset_less=True,  # it is new in each cycle
        )
        m.d.comb += [decoder.command.eq(self.command.payload), decoder.cqc_log_size.eq(self.cqc_log_size)]
        m.d.sync += [decoded[name].eq(getattr(decoder, name)) for name in decoded.shape().members]
        with m.If(~self.swept):
            m.d.sync += [
                decoded.plan.eq(Plan.WRITE_QP),
                decoded.action.eq(QpAction.RESET),
                decoded.word.eq(QP_CONTEXT_WORDS - 1),
                decoded.destroy.eq(1),
            ]
        number = Signal(CQN_BITS)  # the QP's slot, or the number of the CQ or SRQ
        for unit in units.values():
            for name in ("plan", "action", "word", "destroy", "keep", "stay"):
                if name in unit.signature.members:
                    m.d.comb += getattr(unit, name).eq(decoded[name])
            m.d.comb += unit.moving.eq(mover.busy)
        m.d.comb += [
            qp.new.eq(~self.swept),
            qp.qpn.eq(self.command.payload.number),
            qp.create.eq(self.command.payload.opcode == Command.CREATE_QP),
            cq.number.eq(number),
            cq.bad.eq(self.cq_control_bad),
            self.invalidate.payload.index.eq(self.command.payload.number),
        ]

        # -- Contexts, mailbox and tokens: those who use them take turns.
        reporting = handler.busy
        clearing = Signal()  # an SRQ, in each cycle
        m.d.comb += [
            mover.write.eq(Cat(qp.write | handler.write, cq.write, srq.write if self.srqs else 0)),
            mover.first.eq(reduce(or_, (Mux(unit.write, unit.first, 0) for unit in units.values()))),
            mover.single.eq(reduce(or_, (unit.single for unit in units.values() if unit is not cq))),
            mover.read.eq(qp.read),
            mover.zero.eq((decoded.destroy | (srq.zero if self.srqs else 0)) & ~reporting),
            mover.given.eq(reporting | (mover.coming == QPN_WORD)),
            mover.value.eq(Mux(reporting, handler.value, self.command.payload.number)),
            mover.shown.eq(decoded.psn_word),
            mover.mailbox_r_data.eq(self.mailbox_r_data),
            look.look.eq(qp.look | handler.look),
            look.row.eq(contexts.row),
            contexts.number.eq(Mux(reporting, handler.report.payload.qp, number)),
            contexts.word.eq(mover.word | look.word),
            contexts.data.eq(mover.data),
            contexts.write_qp.eq(mover.write_word[0]),
            contexts.write_cq.eq(mover.write_word[1]),
            contexts.write_srq.eq(mover.write_word[2] | clearing),
            qp.owner.eq(look.qpn),
            qp.state.eq(look.first.state),
            qp.shown.eq(mover.data),
            qp.looked.eq(look.looked),
            handler.qpn.eq(look.qpn),
            handler.first.eq(look.first),
            handler.looked.eq(look.looked),
            handler.moving.eq(mover.busy),
            tokens.new.eq(~self.swept),
            tokens.request.valid.eq(qp.token | handler.token),
            tokens.request.payload.qp.eq(contexts.number),
            tokens.request.payload.action.eq(Mux(reporting, handler.action, decoded.action)),
            tokens.request.payload.psn.eq(qp.psn),
            qp.taken.eq(tokens.request.ready),
            handler.taken.eq(tokens.request.ready),
            quiet.begin.eq(qp.settle | handler.settle),
            quiet.moves.eq(self.completions_move),
            qp.settled.eq(quiet.over),
            self.completions_mark.eq(quiet.mark),
            quiet.visible.eq(self.completions_visible),
            handler.settled.eq(quiet.over),
            replies.clear.eq(qp.ask),
            qp.answered.eq(replies.done),
            qp.reports.eq(~reports.empty),
            self.mailbox_addr.eq(mover.mailbox_addr),
            self.mailbox_w_data.eq(contexts.row),
            self.mailbox_w_en.eq(mover.mailbox_w_en | replies.write),
        ]
        with m.If(replies.write):
            m.d.comb += [
                self.mailbox_addr.eq(QP_CONTEXT_WORDS + replies.word),
                self.mailbox_w_data.eq(replies.data),
            ]
        if self.srqs:
            # Nobody else has a token under way while that of an SRQ's ring is.
            m.d.comb += [
                self.rq_fetch.valid.eq(tokens.rq_fetch.valid | srq.token),
                self.rq_fetch.payload.eq(tokens.rq_fetch.payload),
                tokens.rq_fetch.ready.eq(self.rq_fetch.ready & ~srq.token),
                srq.taken.eq(self.rq_fetch.ready),
            ]
            with m.If(srq.token):
                m.d.comb += [
                    self.rq_fetch.payload.qp.eq(self.qps | number[:SRQN_BITS]),
                    self.rq_fetch.payload.action.eq(QpAction.RESET),
                ]
        if self.swaps:
            self._connect_keeper(m, contexts, tokens, reports)
            m.d.sync += [self.opens.eq(0), self.forget.eq(qp.freed)]
            m.d.comb += self.forget_slot.eq(number)

        # -- Whose turn it is.
        invalidated = Signal()  # the access check is far from here
        m.d.sync += [
            self.invalidate.payload.translations.eq(self.command.payload.opcode == Command.INVALIDATE_MTT),
            invalidated.eq(self.invalidate.valid & self.invalidate.ready),
        ]
        with m.If(self.invalidate.ready):
            m.d.sync += self.invalidate.valid.eq(0)
        done = reduce(or_, (unit.done for unit in units.values()))
        with m.FSM() as fsm:
            m.d.comb += handler.may.eq(fsm.ongoing("IDLE") | qp.waits)
            # A reset does not reach the memories. First the sets that wait in memory are taken out, a cycle a QP.
            with m.State("RESET"):
                m.d.sync += number.eq(number + 1)
                with m.If(number == self.qps - 1):
                    m.d.sync += number.eq(0)
                    m.next = "SWEEP"
            with m.State("SWEEP"):
                m.d.comb += qp.go.eq(1)
                m.next = "SWEEPING"
            with m.State("SWEEPING"), m.If(qp.done):
                m.next = "SWEPT"
            with m.State("SWEPT"):
                with m.If(number != self.qps - 1):
                    m.d.sync += number.eq(number + 1)
                    m.next = "SWEEP"
                with m.Elif(~tokens.under_way & (self.directory_ready if self.swaps else 1)):
                    m.d.sync += number.eq(0)
                    m.next = "CLEAR_SRQS"
            with m.State("CLEAR_SRQS"):  # they have nothing on any path
                m.d.comb += clearing.eq(self.srqs != 0)
                m.d.sync += number.eq(number + 1)
                with m.If(number == max(1, self.srqs) - 1):
                    m.d.sync += self.swept.eq(1)
                    m.next = "IDLE"

            with m.State("IDLE"):
                first = reports.o.valid  # what was reported goes first
                if self.swaps:
                    # A QP that has failed must be in ERR when it opens: its poison is gone.
                    first |= self.closed & ~reports.empty
                    m.d.sync += self.opens.eq(reports.empty)
                with m.If(first):
                    pass
                with m.Elif(self.command.valid):
                    m.next = "DECODED"
                if self.swaps:
                    with m.Elif(self.wants & ~self.closed):
                        m.d.sync += self.grant.eq(1)
                        m.next = "GRANTED"
            with m.State("DECODED"):
                m.d.sync += [number.eq(decoded.number), self.result.eq(decoded.status)]
                m.next = "BEGIN"
                with m.Switch(decoded.plan):
                    with m.Case(Plan.NOTHING):
                        m.next = "FINISH"
                    with m.Case(Plan.INVALIDATE):
                        m.next = "INVALIDATE"
                    if self.swaps:
                        with m.Case(*QP_PLANS):
                            m.d.sync += [self.grant.eq(1), self.bring.eq(1)]
                            m.next = "GRANTED"
            with m.State("BEGIN"):
                with m.Switch(decoded.plan):
                    with m.Case(Plan.WRITE_CQ):
                        m.d.comb += cq.go.eq(1)
                    if self.srqs:
                        with m.Case(Plan.WRITE_SRQ, Plan.CLEAR_SRQ):
                            m.d.comb += srq.go.eq(1)
                    with m.Default():
                        m.d.comb += qp.go.eq(1)
                m.next = "RUN"
            with m.State("RUN"):
                m.d.sync += self.result.eq(qp.status | cq.status)  # one of them
                with m.If(done):
                    m.next = "FINISH"
            with m.State("INVALIDATE"):
                with m.If(invalidated):
                    m.next = "FINISH"
                with m.Elif(~self.invalidate.valid):
                    m.d.sync += self.invalidate.valid.eq(1)
            with m.State("FINISH"):
                m.d.comb += self.command.ready.eq(1)
                m.next = "IDLE"
            if self.swaps:
                self._grant(m, number)
        return m

    def _connect_keeper(self, m, contexts, tokens, reports):
        """What the keeper of slots is told, and what it does while it has its turn."""
        m.d.comb += [
            self.bring_index.eq(self.command.payload.number),
            self.bring_create.eq(self.command.payload.opcode == Command.CREATE_QP),
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

    def _grant(self, m, number):
        """The keeper of slots has its turn. Without what it was asked for the command begins anew."""
        with m.State("GRANTED"), m.If(self.done):
            m.d.sync += self.grant.eq(0)
            m.next = "IDLE"
            with m.If(self.brought):
                m.d.sync += [self.bring.eq(0), number.eq(self.slot), self.result.eq(self.status)]
                m.next = "BEGIN"
                with m.If(self.status != CommandStatus.OK):
                    m.next = "FINISH"
