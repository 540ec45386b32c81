"""Listeners at one port, each at addresses of its own."""

__all__ = ["Listeners"]


class Listeners:
    """What a :class:`.manager.Manager` takes for one listener: it is asked at the addresses of all of them."""

    def __init__(self):
        self._all = []

    def add(self, listener):
        """One more listens."""
        self._all.append(listener)

    def remove(self, listener):
        """One listens no more. Whether any does."""
        self._all.remove(listener)
        return bool(self._all)

    def hears(self, gid):
        """Whether one is asked at that of the own addresses."""
        return any(each.hears(gid) for each in self._all)

    def requested(self, exchange, addresses):
        """Whether the one at the address that was asked takes the request."""
        return next(each for each in self._all if each.hears(addresses.destination)).requested(exchange, addresses)
