"""A queue pair comes to its slot."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["QpLoader"]


class QpLoader(wiring.Component):
    """Waits for the QP's record. Then the token LOAD goes, and its attributes are written while its owners get their
    words.

    Members
    -------
    begin : 1
        Strobe: from the next cycle on the slot is known.
    fetched : 1
        Its record has been read, or is being read.
    reading, bad : 1
        As of :class:`verbena.hdl.context.store.QpStore`.
    missing : 1
        A record is lost; it may be this one.
    attributes_busy : 1
        As of :class:`.context_words.ContextWords`.
    say, said : 1
        The token goes; all have heard of it.
    closes, load : 1
        Strobes: nothing of the slot may begin; a cycle later, the record is given to the owners, and to the attributes.
    failed, unwritten, came : 1
        Strobes, one of which ends what began: the record is ``bad``; there is none yet, and a lost one must be told
        before; the QP is there.
    """

    begin: In(1)
    fetched: In(1)
    reading: In(1)
    bad: In(1)
    missing: In(1)
    attributes_busy: In(1)
    say: Out(1)
    said: In(1)
    closes: Out(1)
    load: Out(1)
    failed: Out(1)
    unwritten: Out(1)
    came: Out(1)

    def elaborate(self, platform):
        m = Module()
        with m.FSM() as fsm:
            m.d.comb += [self.load.eq(fsm.ongoing("ATTRIBUTES")), self.say.eq(fsm.ongoing("LOAD"))]
            with m.State("IDLE"), m.If(self.begin):
                m.next = "RECORD"
            with m.State("RECORD"):
                with m.If(self.fetched & ~self.reading):
                    m.d.comb += [self.failed.eq(self.bad), self.closes.eq(~self.bad)]
                    m.next = "ATTRIBUTES"
                    with m.If(self.bad):
                        m.next = "IDLE"
                with m.Elif(self.missing):
                    m.d.comb += self.unwritten.eq(1)
                    m.next = "IDLE"
            with m.State("ATTRIBUTES"):
                m.next = "LOAD"
            with m.State("LOAD"), m.If(self.said):
                m.next = "SETTLE"
            with m.State("SETTLE"), m.If(~self.attributes_busy):
                m.d.comb += self.came.eq(1)
                m.next = "IDLE"
        return m
