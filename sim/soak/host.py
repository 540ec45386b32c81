"""One adapter of the soak: its context, its completion queues, and the events of both."""

from verbena.sw.verbs.cq import CQ, CompChannel
from verbena.sw.verbs.pd import PD

from .model import Difference

__all__ = ["Host"]

DOORBELL = 64
"""Cycles in which a doorbell has its effect."""

PATIENCE = 50_000
"""Cycles between a completion of an armed CQ and its event: it stands in line behind other events, and the CQE may have
been polled before the bus had answered its write."""


class Host:
    """Adapter ``sim<index>`` of ``world``. ``room`` is the number of completions that may wait in a queue.

    ``send_cq`` and ``recv_cq`` are armed again and again: each first completion after that must bring an event.
    """

    def __init__(self, world, index, room):
        self.world = world
        self.index = index
        self.room = room
        self.context = world.context(f"sim{index}")
        self.pd = PD(self.context)
        self.channel = CompChannel(self.context)
        self.send_cq, self.recv_cq = (
            CQ(self.context, 2 * room, channel=self.channel, comp_vector=vector % self.context.num_comp_vectors)
            for vector in range(2)
        )
        self.armed = set()
        self.due = {}  # armed CQ: cycle in which a completion of it was seen
        self.events = 0

    gid_index = 0
    """Of its address in the table of GIDs."""

    @property
    def gid(self):
        return self.context.query_gid(1, self.gid_index)

    def poll(self, cq):
        """Completions of one of the two queues, which is armed when it is empty."""
        found = cq.poll(64)[1]
        if cq in self.armed:
            if found:
                self.due.setdefault(cq, self.world.cycles)
        elif not found:
            cq.req_notify()
            self.armed.add(cq)
            # What completes before the doorbell has its effect brings no event.
            self.world.advance(DOORBELL, stop=0)
            found = cq.poll(64)[1]
        return found

    def take_events(self):
        """Takes what the channel has, and says if it ought to have more. Returns the asynchronous events."""
        self.context._adapter.process_events()
        while (cq := self.channel._take()) is not None:
            self.events += 1
            self.armed.discard(cq)
            self.due.pop(cq, None)
        for cq, cycle in self.due.items():
            if cq in self.armed and self.world.cycles - cycle > PATIENCE:
                raise Difference(f"{cq} of sim{self.index} was armed, has completions, and no event came")
        found = []
        while (event := self.context._take()) is not None:
            event.ack()
            found.append(event)
        return found
