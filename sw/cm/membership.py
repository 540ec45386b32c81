"""An adapter's membership in a multicast group: it is reported when it begins and when it ends, and now and then."""

from ..gids import ipv4_of
from .address_vector import is_link_local
from .membership_report import ROUTERS, ROUTERS6, report

__all__ = ["Membership"]

ROBUSTNESS = 2
"""Reports of each change (RFC 3376, 8.1)."""
INTERVAL = 1000
"""Milliseconds in which the next one comes (RFC 3376, 8.11)."""
REMINDER = 100_000
"""Milliseconds after which it is told once more: a switch forgets who has told it nothing for 260 s (RFC 3376, 8.4)."""


class Membership:
    """In the group at the end of ``vector``, for all who have joined it.

    Queries of routers and switches are not answered: of a member they hear every 100 s without that, as long as the
    program calls the driver.

    Parameters
    ----------
    manager : Manager
        Has the time, the own GIDs, and sends the reports.
    vector : AddressVector
    """

    def __init__(self, manager, vector):
        self._manager, self._vector = manager, vector
        self._users = self._left = self._told = 0
        self.deadline = None
        """Time of the next report; None: there is none."""

    @property
    def over(self):
        """Whether nobody is in it, and all has been reported."""
        return not self._users and self.deadline is None

    def join(self):
        """One more is in the group."""
        self._users += 1
        if self._users == 1:
            self._report()

    def leave(self):
        """One has left it."""
        self._users -= 1
        if not self._users:
            self._report()

    def _report(self):
        self._left = ROBUSTNESS
        self.expire()

    def expire(self):
        """A report is due."""
        self._left -= 1
        manager = self._manager
        self.deadline = manager.now + manager.random.randrange(1, INTERVAL + 1) if self._left else None
        self._tell()

    def remind(self):
        """Tells once more of one who has been in the group for long. Nobody waits for that: it is no ``deadline``."""
        if self._users and self.deadline is None and self._manager.now - self._told >= REMINDER:
            self._tell(stays=True)

    def _tell(self, stays=False):
        manager, group = self._manager, self._vector.dgid
        self._told = manager.now
        row = manager.gids[self._vector.sgid_index]
        if ipv4_of(group) is not None:
            source, routers = row.gid, ROUTERS
        else:
            source, routers = self._source(row), ROUTERS6
        manager.send_frame(report(source, group, self._users > 0, stays), routers, row)

    def _source(self, row):
        """The link-local address of the same VLAN, or :: (RFC 3810, 5.2.13)."""
        rows = (each for each in self._manager.gids if each is not None and each.vlan == row.vlan)
        return next((each.gid for each in rows if is_link_local(each.gid)), 0)
