"""Space in a region, handed out in order."""

__all__ = ["Ring"]


class Ring:
    """Hands out space of a region in order, and takes it back in order."""

    def __init__(self, size):
        self.size = size
        self.head = self.tail = 0

    def take(self, length):
        """Offset of ``length`` contiguous bytes, or None."""
        start = self.tail % self.size
        skip = self.size - start if start + length > self.size else 0
        if self.tail + skip + length - self.head > self.size:
            return None
        self.tail += skip + length
        return (self.tail - length) % self.size
