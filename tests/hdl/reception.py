"""Lookup, responder and acknowledger, joined as in the engine."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from received import ReceivedRequests, connect_ports
from verbena.hdl.stream.fifo import Queue
from verbena.hdl.transport.common.layouts import Job
from verbena.hdl.transport.responder.acknowledger import Acknowledger

__all__ = ["QPS", "Reception"]

QPS = 4


class Reception(wiring.Component):
    """The three, with the queue of jobs between the latter two."""

    def __init__(self):
        self.responder = ReceivedRequests(QPS, 2 * QPS)
        self.acknowledger = Acknowledger(QPS)
        members = {}
        for block in (self.responder, self.acknowledger):
            members |= {name: member for name, member in block.signature.members.items() if name != "job"}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.jobs = jobs = Queue(Job, 16)
        wiring.connect(m, self.responder.job, jobs.i)
        wiring.connect(m, jobs.o, self.acknowledger.job)
        for name, block in (("responder", self.responder), ("acknowledger", self.acknowledger)):
            m.submodules[name] = block
            connect_ports(m, block, self, [port for port in block.signature.members if port != "job"])
        return m
