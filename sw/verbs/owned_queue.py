"""A queue whose items have owners."""

from collections import deque

__all__ = ["OwnedQueue"]


class _Owner:
    """Of some of the items that wait: how many these are, and whether they were dropped."""

    __slots__ = ("count", "dropped")

    def __init__(self):
        self.count = 0
        self.dropped = False


class OwnedQueue:
    """Items in order, the oldest first; each has an owner, whose items are dropped all at once.

    Each call takes constant time, on average, however many items and owners there are: an item that is dropped stays
    until it is its turn, or until most are such. Owners are told apart as the keys of a dictionary.
    """

    def __init__(self):
        self.clear()

    def __len__(self):
        return self._count

    def __iter__(self):
        """The items, the oldest first; they stay."""
        return (item for _, owner, item in self._items if not owner.dropped)

    def put(self, key, item):
        """Adds an item of the owner ``key``."""
        owner = self._owners.get(key)
        if owner is None:
            owner = self._owners[key] = _Owner()
        owner.count += 1
        self._count += 1
        self._items.append((key, owner, item))

    def take(self):
        """The oldest item, which leaves the queue. ``IndexError`` if there is none."""
        while True:
            key, owner, item = self._items.popleft()
            if owner.dropped:
                continue
            owner.count -= 1
            self._count -= 1
            if not owner.count:
                del self._owners[key]
            return item

    def drop(self, key):
        """Forgets all items of the owner ``key``."""
        owner = self._owners.pop(key, None)
        if owner is None:
            return
        owner.dropped = True
        self._count -= owner.count
        if len(self._items) > 2 * self._count:
            self._items = deque(entry for entry in self._items if not entry[1].dropped)

    def clear(self):
        """Forgets all items."""
        self._items = deque()  # (key, owner, item)
        self._owners = {}
        self._count = 0
