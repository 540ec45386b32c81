"""The steps of a command for a queue pair that has its slot."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import CommandStatus, QpAction
from ..abi.contexts import QP_CONTEXT_WORDS, QpState
from .decoder import Plan
from .qp_look import QPN_WORD

__all__ = ["QpCommand"]

STARTS = (QpAction.START_SEND, QpAction.START_RECEIVE, QpAction.RESTART_SEND)

FROM = {QpAction.DRAIN: QpState.RTS, QpAction.RESUME: QpState.SQD, QpAction.RESTART_SEND: QpState.SQE}
"""The state that an action needs; START_RECEIVE, START_SEND and no action need any but ERR."""


class QpCommand(wiring.Component):
    """Looks whose the slot is and how its QP is; then writes attributes, or reads them, and sends the token. The token
    of an action that starts something goes before the attributes, all others behind them: a QP never runs on half of
    its attributes. A command that is refused has changed nothing.

    RESET is done when nothing of the QP's old life is left: its token has come out everywhere, completions have moved
    for long enough, and all that was reported until then has been handled. Only then a slot that is destroyed is that
    of nobody.

    Members
    -------
    go, done : 1
        Strobes; what is asked stands from ``go`` to ``done``.
    new : 1
        As after a reset: the slot is destroyed without a look, and nothing is waited for.
    plan, action, word, destroy
        Of :class:`.decoder.Decoder`: WRITE_QP, MODIFY_QP or READ_QP.
    qpn, create : 24, 1
        The number whose the slot must be; with ``create`` it may be nobody's.
    status : ``CommandStatus``
        With ``done``: OK, BAD_NUMBER or BAD_STATE.
    look, looked, owner, state : 1, 1, 24, 4
        Of a :class:`.qp_look.QpLook`.
    write, first, single, read, zero, moving, shown : 1, 5, 1, 1, 1, 1, 32
        To and from a :class:`.context_mover.ContextMover`: ``moving`` is its ``busy``, and ``shown`` the word of the
        mailbox with the PSN, when ``looked``.
    token, psn, taken : 1, 24, 1
        The token of ``action``; it has been said.
    ask, answered : 1
        Strobe: a QUERY begins; all its answers have come.
    settle, settled : 1
        Of a :class:`.quiet.Quiet`: ``settled`` is its ``over``.
    reports : 1
        Something that was reported has not been handled.
    waits : 1
        It may be handled now.
    freed : 1
        Strobe: the slot is that of nobody from now on.
    """

    def __init__(self):
        word = range(QP_CONTEXT_WORDS)
        super().__init__(
            {
                "go": In(1),
                "done": Out(1),
                "new": In(1),
                "plan": In(Plan),
                "action": In(QpAction),
                "word": In(word),
                "destroy": In(1),
                "qpn": In(24),
                "create": In(1),
                "status": Out(CommandStatus),
                "look": Out(1),
                "looked": In(1),
                "owner": In(24),
                "state": In(4),
                "write": Out(1),
                "first": Out(word),
                "single": Out(1),
                "read": Out(1),
                "zero": Out(1),
                "moving": In(1),
                "shown": In(32),
                "token": Out(1),
                "psn": Out(24),
                "taken": In(1),
                "ask": Out(1),
                "answered": In(1),
                "settle": Out(1),
                "settled": In(1),
                "reports": In(1),
                "waits": Out(1),
                "freed": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        mine = Signal()  # the slot is the command's QP's, or may become it
        starting = Signal()  # the token goes before the attributes
        starts, refused = Signal(), Signal()
        m.d.sync += mine.eq((self.owner == self.qpn) | (self.create & (self.owner == 0)))
        m.d.comb += [self.zero.eq(self.destroy), starts.eq(reduce(or_, (self.action == each for each in STARTS)))]
        with m.Switch(self.action):
            with m.Case(QpAction.NONE, QpAction.START_RECEIVE, QpAction.START_SEND):
                m.d.comb += refused.eq(self.state == QpState.ERR)
            for action, state in FROM.items():
                with m.Case(action):
                    m.d.comb += refused.eq(self.state != state)
        with m.FSM() as fsm:
            m.d.comb += [
                self.look.eq(fsm.ongoing("LOOK")),
                self.read.eq(fsm.ongoing("READ")),
                self.token.eq(fsm.ongoing("TOKEN")),
                self.waits.eq(fsm.ongoing("PURGE")),
                self.freed.eq(fsm.ongoing("FREE")),
                self.done.eq(fsm.ongoing("DONE")),
            ]
            with m.State("IDLE"):
                m.d.sync += [starting.eq(0), self.status.eq(CommandStatus.OK)]
                with m.If(self.go):
                    m.next = "LOOK"
                    with m.If(self.new):
                        m.next = "WRITE"
            with m.State("LOOK"):
                m.next = "LOOKED"
            with m.State("LOOKED"), m.If(self.looked):
                with m.If(self.plan == Plan.MODIFY_QP):
                    m.d.sync += self.psn.eq(self.shown)
                with m.If(~mine):
                    m.d.sync += self.status.eq(CommandStatus.BAD_NUMBER)
                    m.next = "DONE"
                with m.Elif(refused):
                    m.d.sync += self.status.eq(CommandStatus.BAD_STATE)
                    m.next = "DONE"
                with m.Elif(self.plan == Plan.READ_QP):
                    m.next = "READ"
                with m.Elif(starts):
                    m.d.sync += starting.eq(1)
                    m.next = "TOKEN"
                with m.Else():
                    m.next = "WRITE"

            with m.State("WRITE"):
                m.d.comb += [self.write.eq(1), self.first.eq(self.word)]
                m.next = "WRITING"
            with m.State("WRITING"), m.If(~self.moving):
                m.next = "TOKEN"
                with m.If(starting | (self.action == QpAction.NONE)):
                    m.next = "DONE"
            with m.State("READ"):
                m.d.comb += self.ask.eq(1)
                m.next = "READING"
            with m.State("READING"), m.If(~self.moving):
                m.next = "TOKEN"

            with m.State("TOKEN"):
                m.d.comb += self.settle.eq(1)
                with m.If(self.taken):
                    m.next = "DONE"
                    with m.If(starting):
                        m.next = "WRITE"
                    with m.Elif((self.action == QpAction.RESET) & ~self.new):
                        m.next = "PURGE"
                    with m.Elif(self.action == QpAction.QUERY):
                        m.next = "REPLIES"
            with m.State("REPLIES"), m.If(self.answered):
                m.next = "DONE"
            # The driver forgets what is in the CQ of a QP that is reset: nothing may come later.
            with m.State("PURGE"), m.If(self.settled & ~self.reports):
                m.next = "DONE"
                with m.If(self.destroy):
                    m.next = "FREE"
            with m.State("FREE"):
                m.d.comb += [self.write.eq(1), self.first.eq(QPN_WORD), self.single.eq(1)]
                m.next = "FREEING"
            with m.State("FREEING"), m.If(~self.moving):
                m.next = "DONE"
            with m.State("DONE"):
                m.next = "IDLE"
        return m
