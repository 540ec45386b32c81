"""The thread that moves the time of a world while its program makes no call."""

import threading

from verbena.sim import attach


class Fleeting:
    """A world that another thread closes while its events are taken."""

    closed = inside = False

    def move(self, cycles, wait_ms):
        return cycles

    def take(self):
        self.closed = True
        raise ValueError("the world is closed")


def test_a_world_may_be_closed_while_its_time_is_moved(monkeypatch):
    world, told = Fleeting(), []
    monkeypatch.setattr(attach, "take_events", Fleeting.take)
    monkeypatch.setattr(threading, "excepthook", told.append)
    mover = attach.Mover(world, 0)
    mover.join(30)
    assert not mover.is_alive()
    assert not told
