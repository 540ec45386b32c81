"""Lookup, responder and acknowledger, joined as in the engine."""

from types import SimpleNamespace

from amaranth.hdl import Module
from amaranth.lib import wiring
from received import ReceivedRequests, connect_ports
from verbena.hdl.stream.fifo import Queue
from verbena.hdl.transport.common.layouts import Job
from verbena.hdl.transport.reads.read_atomic_responder import ReadAtomicResponder
from verbena.hdl.transport.responder.acknowledger import Acknowledger

__all__ = ["QPS", "Reception", "SwappedReception"]

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


class SwappedReception(wiring.Component):
    """The READ/atomic responder, too, and all with SAVE and LOAD. What several of them have bears the block's name."""

    inner = (
        *("job", "entry", "room", "served_qp", "served", "recall", "recall_en", "recalled"),
        *("release", "answered", "answered_o"),
        *("passing", "job_done", "held", "held_qp"),
    )
    named = ("saved", "loaded", "access", "token_done")

    def __init__(self):
        self.blocks = {
            "responder": ReceivedRequests(QPS, 2 * QPS, swaps=True),
            "acknowledger": Acknowledger(QPS, swaps=True),
            "read_atomic_responder": ReadAtomicResponder(QPS, swaps=True),
        }
        self.outer = {
            (block, port): f"{block}_{port}" if port in self.named else port
            for block, component in self.blocks.items()
            for port in component.signature.members
            if port not in self.inner
        }
        super().__init__(
            {name: self.blocks[block].signature.members[port] for (block, port), name in self.outer.items()}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.jobs = jobs = Queue(Job, 16)
        m.submodules += self.blocks.values()
        responder, acknowledger, read_atomic_responder = self.blocks.values()
        wiring.connect(m, responder.job, jobs.i)
        wiring.connect(m, jobs.o, acknowledger.job)
        wiring.connect(m, responder.entry, read_atomic_responder.entry)
        wiring.connect(m, acknowledger.release, read_atomic_responder.release)
        wiring.connect(m, read_atomic_responder.answered_o, acknowledger.answered)
        for name in ("served_qp", "recall", "recall_en"):
            m.d.comb += getattr(read_atomic_responder, name).eq(getattr(responder, name))
        for name in ("served", "recalled", "room"):
            m.d.comb += getattr(responder, name).eq(getattr(read_atomic_responder, name))
        wiring.connect(m, responder.passing, acknowledger.passing)
        for name in ("job_done", "held", "held_qp"):
            m.d.comb += getattr(responder, name).eq(getattr(acknowledger, name))
        for name, block in self.blocks.items():
            ports = {port: getattr(self, outer) for (owner, port), outer in self.outer.items() if owner == name}
            connect_ports(m, block, SimpleNamespace(**ports), ports)
        return m
