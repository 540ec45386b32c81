"""A queue pair leaves its slot."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .quiet import Quiet

__all__ = ["QpSaver"]


class QpSaver(wiring.Component):
    """Takes the QP out of a slot, if it may leave: it is ``closed``, the token SAVE goes, and its owners give its state
    away, while its attributes are read. When no completion of it is under way any more it is ``gone``, and its record
    is written.

    If any QP has reported something meanwhile its record is written, and read ``back``. If that cannot be it is
    ``dropped``.

    *Latency*: whether it may leave is known 3 cycles after ``begin``, if no record is being written.

    Members
    -------
    begin : 1
        Strobe: from the next cycle on the slot is known.
    drop : 1
        Strobe, behind ``back``: what came back is not what was written.
    serving, taken : 1
        Of that slot, 2 cycles later: the QP must stay; there is one.
    full, reports : 1
        As of :class:`.slot_keeper.SlotKeeper`.
    completed, waits, moves, visible, mark : 1
        Likewise; for :class:`.quiet.Quiet`.
    writing, write_failed, reading : 1
        As of :class:`verbena.hdl.context.store.QpStore`.
    missing : 1
        A record is lost, and that has not been told.
    told : 1
        What follows from ``gone`` has been told.
    attributes_busy : 1
        As of :class:`.context_words.ContextWords`.
    say, said : 1
        The token goes; all have heard of it.
    collect, write, read, clear : 1
        Strobes: the owners, and the attributes, begin to give; the record is written; it is read; the slot is nobody's.
    gone : 1
        Strobe, with ``write`` and ``clear``: the QP is in host memory.
    returns : 1
        Nothing else may be read.
    stays, unwritten, left, back, dropped : 1
        Strobes, one of which ends what began: the QP stays; another one's record is lost, which has to be told before;
        it has left; its record is being read; it is lost, with ``clear``.
    """

    begin: In(1)
    drop: In(1)
    serving: In(1)
    taken: In(1)
    full: In(1)
    reports: In(1)
    completed: In(1)
    waits: In(1)
    moves: In(1)
    visible: In(1)
    mark: Out(1)
    writing: In(1)
    write_failed: In(1)
    reading: In(1)
    missing: In(1)
    told: In(1)
    attributes_busy: In(1)
    say: Out(1)
    said: In(1)
    collect: Out(1)
    write: Out(1)
    read: Out(1)
    clear: Out(1)
    gone: Out(1)
    returns: Out(1)
    stays: Out(1)
    unwritten: Out(1)
    left: Out(1)
    back: Out(1)
    dropped: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.quiet = quiet = Quiet()
        m.d.comb += [
            quiet.begin.eq(~self.completed),
            quiet.waits.eq(self.waits),
            quiet.moves.eq(self.moves),
            quiet.visible.eq(self.visible),
            self.mark.eq(quiet.mark),
            self.clear.eq(self.gone | self.dropped),
        ]
        with m.FSM() as fsm:
            m.d.comb += [
                self.say.eq(fsm.ongoing("SAVE")),
                self.returns.eq(fsm.ongoing("RETURN") | fsm.ongoing("READ_BACK") | fsm.ongoing("DROP")),
                self.dropped.eq(fsm.ongoing("DROP")),
            ]
            with m.State("IDLE"):
                with m.If(self.begin):
                    m.next = "LOOK"
                with m.Elif(self.drop):
                    m.next = "DROP"
            with m.State("LOOK"):
                m.next = "WAIT"
            with m.State("WAIT"):
                m.next = "DECIDE"
            with m.State("DECIDE"):
                with m.If(self.serving | ~self.taken):
                    m.d.comb += self.stays.eq(1)
                    m.next = "IDLE"
                with m.Elif(~self.writing):
                    with m.If(self.missing):
                        m.d.comb += self.unwritten.eq(1)
                        m.next = "IDLE"
                    with m.Else():
                        m.d.comb += self.collect.eq(1)
                        m.next = "SAVE"
            with m.State("SAVE"), m.If(self.said):
                m.next = "SAVED"
            with m.State("SAVED"):
                with m.If(self.full & ~self.attributes_busy):
                    with m.If(self.reports):
                        m.d.comb += self.write.eq(1)
                        m.next = "RETURN"
                    with m.Elif(quiet.over):
                        m.next = "GONE"
            with m.State("GONE"):
                m.d.comb += [self.write.eq(1), self.gone.eq(1)]
                m.next = "CLEAR"
            with m.State("CLEAR"), m.If(~self.attributes_busy & self.told):
                m.d.comb += self.left.eq(1)
                m.next = "IDLE"

            # Something was reported.
            with m.State("RETURN"), m.If(~self.writing & ~self.reading):
                m.next = "READ_BACK"
                with m.If(self.write_failed):
                    m.next = "DROP"
            with m.State("READ_BACK"):
                m.d.comb += [self.read.eq(1), self.back.eq(1)]
                m.next = "IDLE"
            with m.State("DROP"):
                m.next = "IDLE"
        return m
