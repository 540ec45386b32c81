"""The adapters of a world as devices of the driver."""

from verbena.sw.verbs.base import PyverbsCM

from .sim_port import SimPort

__all__ = ["WorldDevices"]


class WorldDevices(PyverbsCM):
    """Owner of the contexts on the adapters of ``world``, and of the world itself if nobody else has it any more.

    The adapters are ``sim0``, ``sim1`` and so on. When this is closed, contexts go first, then the world, and then what
    the drivers had in host memory. A context that is forgotten, or is in use, keeps the world alive.
    """

    def __init__(self, world):
        super().__init__()
        self.world = world
        self.ports = {}
        for index in range(len(world.adapters)):
            port = SimPort(world, index)
            port.owners = (self,)
            self.ports[port.name] = port
        self._opened()

    def _destroy(self):
        self.world._end()
        for port in self.ports.values():
            if port._driver is not None:
                port._driver.close()
