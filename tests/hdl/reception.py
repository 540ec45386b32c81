"""Responder and acknowledger, joined as in the engine."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from verbena.hdl.stream.fifo import Queue
from verbena.hdl.transport.acknowledger import Acknowledger
from verbena.hdl.transport.layouts import Job
from verbena.hdl.transport.responder import Responder

__all__ = ["QPS", "Reception"]

QPS = 4


class Reception(wiring.Component):
    """The two, with the queue of jobs between them."""

    def __init__(self):
        self.responder = Responder(QPS, 2 * QPS)
        self.acknowledger = Acknowledger(QPS)
        members = {}
        for block, hidden in ((self.responder, {"job"}), (self.acknowledger, {"job"})):
            for name, member in block.signature.members.items():
                if name not in hidden:
                    members[name] = member
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.jobs = jobs = Queue(Job, 16)
        wiring.connect(m, self.responder.job, jobs.i)
        wiring.connect(m, jobs.o, self.acknowledger.job)
        for name, block in (("responder", self.responder), ("acknowledger", self.acknowledger)):
            m.submodules[name] = block
            for port, member in block.signature.members.items():
                if port == "job":
                    continue
                inner, outer = getattr(block, port), getattr(self, port)
                if not member.is_port:
                    if member.flow is wiring.Out:
                        wiring.connect(m, inner, wiring.flipped(outer))
                    else:
                        wiring.connect(m, wiring.flipped(outer), inner)
                elif member.flow is wiring.Out:
                    m.d.comb += outer.eq(inner)
                else:
                    m.d.comb += inner.eq(outer)
        return m
