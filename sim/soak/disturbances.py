"""What is done on purpose while operations are under way. Each tells the connection what it may lead to."""

from verbena.sw import host_memory
from verbena.sw.verbs.cq import ModerateCq, ModifyCqAttr
from verbena.sw.verbs.libibverbs_enums import ibv_event_type, ibv_wc_status

from ..ports import Faults
from .model import Difference

__all__ = ["KINDS", "Disturbances"]

KINDS = ("lose", "duplicate", "reorder", "corrupt", "delay", "damage")
"""Faults of the wire."""

E = ibv_event_type
S = ibv_wc_status
LOST_REGION = {
    "slice_mrs": ((E.IBV_EVENT_QP_ACCESS_ERR,), (S.IBV_WC_REM_ACCESS_ERR,), (S.IBV_WC_LOC_ACCESS_ERR,)),
    "pool_mrs": ((), (S.IBV_WC_LOC_PROT_ERR,), ()),
    "buffer_mrs": ((), (S.IBV_WC_REM_OP_ERR,), (S.IBV_WC_LOC_PROT_ERR,)),
}
"""What the connection may see when these regions are gone: events, statuses of sends, of receives."""

LOST_PAGE = (
    (E.IBV_EVENT_QP_FATAL,),
    (S.IBV_WC_GENERAL_ERR, S.IBV_WC_REM_OP_ERR),
    (S.IBV_WC_LOC_PROT_ERR, S.IBV_WC_LOC_ACCESS_ERR),
)
"""The same when a page of memory does not answer."""

LONG_PERIOD = 60
"""Microseconds for which an event may be held back: less than the host's patience."""


class Disturbances:
    """Does something now and then.

    Parameters
    ----------
    soak : .run.Soak
    loss : float
        Probability of each fault of the wire, a frame.
    """

    def __init__(self, soak, loss):
        self.soak = soak
        self.random = soak.random
        self.counts = {}
        soak.world.set_faults(Faults(**dict.fromkeys(KINDS, loss)))
        self._choices = {
            self.refusal: 8,
            self.reset: 2,
            self.destroy: 2,
            self.error: 1,
            self.deregister: 3,
            self.drain: 6,
            self.resize: 3,
            self.moderate: 3,
            self.overrun: 1,
            self.bus: 2,
            self.memory: 6,
        }

    def step(self):
        """Perhaps one disturbance."""
        for connection in self.soak.connections:
            if connection.draining is not None and self.random.random() < 0.1:
                connection.resume()
        if self.random.random() < self.soak.unrest:
            action = self.random.choices(list(self._choices), self._choices.values())[0]
            healthy = [c for c in self.soak.connections if not c.failing and not any(f.dead for f in c.flows)]
            if healthy and action(self.random.choice(healthy)) is not False:
                self.counts[action.__name__] = self.counts.get(action.__name__, 0) + 1

    def calm(self):
        """Nothing is done any more: what was held goes on."""
        for connection in self.soak.connections:
            if connection.draining is not None:
                connection.resume()
            connection.muted = False

    def refusal(self, connection):
        """An operation that must be refused, and others behind it."""
        return self.random.choice(connection.flows).refuse()

    def reset(self, connection):
        """Both queue pairs go to RESET in the midst of everything."""
        connection.end("reset")

    def destroy(self, connection):
        """Both are destroyed, and others take their place."""
        connection.end("destroyed", anew=True)

    def error(self, connection):
        """Both go to ERR."""
        connection.fails()
        connection.kill()

    def deregister(self, connection):
        """Memory loses its regions while operations use it; from then on no byte of it may change."""
        flow = self.random.choice(connection.flows)
        kind = self.random.choice(list(LOST_REGION))
        regions = getattr(flow, kind)
        connection.fails(*LOST_REGION[kind])
        for each in connection.flows:
            each.stopped = True
        for region in regions:
            region.close()
        memory = flow.memory[list(LOST_REGION).index(kind)]
        before = memory.read(memory.length, 0)
        regions.clear()
        self.soak.world.advance(self.random.randrange(1, 20_000), stop=0)
        after = memory.read(memory.length, 0)
        if after != before:
            raise Difference(f"{flow.name}: {kind} were deregistered, and memory was written after that")
        self.error(connection)

    def drain(self, connection):
        """The send queue of one queue pair goes to SQD for a while."""
        if connection.draining is not None:
            return False
        connection.drain(self.random.randrange(2))
        return True

    def resize(self, _):
        """A completion queue gets another ring."""
        host = self.random.choice(self.soak.hosts)
        cq = self.random.choice((host.send_cq, host.recv_cq))
        cq.resize(host.room << self.random.randrange(1, 4))

    def moderate(self, _):
        """Events of a completion queue come for more or fewer completions, or none is held back any more."""
        random = self.random
        host = random.choice(self.soak.hosts)
        if not host.context.query_device_ex().cq_mod_caps.max_cq_period:
            return False
        moderation = ModerateCq(random.choice((0, 1, 4, 1000)), random.choice((0, 1, LONG_PERIOD)))
        random.choice((host.send_cq, host.recv_cq)).modify(ModifyCqAttr(moderate=moderation))
        return True

    def overrun(self, connection):
        """A completion queue of its own gets too small, and nobody polls it."""
        return connection.mute()

    def bus(self, connection):
        """A page of local memory, or of receive buffers, is no longer on the bus."""
        flow = self.random.choice(connection.flows)
        memory = flow.memory[self.random.randrange(1, 3)]
        page = memory.buf + self.random.randrange(memory.length) & ~(host_memory.PAGE - 1)
        window = next(window for window in host_memory.windows() if window.address == page)
        connection.fails(*LOST_PAGE)
        self.soak.world.window(False, window)
        self.soak.world.advance(self.random.randrange(1, 20_000), stop=0)
        self.soak.world.window(True, window)
        self.error(connection)

    def memory(self, _):
        """Host memory gets slower or faster, holds back, and answers out of order."""
        random = self.random
        adapter = random.choice(self.soak.world.adapters)
        adapter.set_memory(
            read_latency=random.choice((1, 40, 128, 400, 1500)),
            write_latency=random.choice((1, 32, 200, 800)),
            stall=random.choice((0, 0, 0.1, 0.4)),
            shuffle=random.random() < 0.5,
            read_bandwidth=random.choice((16, 16, 12)),
            write_bandwidth=random.choice((16, 16, 12)),
        )
