"""Space that is handed out in order."""

import random

from verbena.sim.soak.ring import Ring


def test_what_is_taken_does_not_overlap_until_it_is_given_back():
    source = random.Random(3)
    ring, live = Ring(1000), []
    for _ in range(5000):
        if live and source.random() < 0.5:
            _, _, ring.head = live.pop(0)
            continue
        length = source.randrange(0, 400)
        at = ring.take(length)
        if at is None:
            assert live
            continue
        assert 0 <= at <= at + length <= 1000
        assert all(at + length <= a or b <= at for a, b, _ in live if a < b and length)
        live.append((at, at + length, ring.tail))
    assert Ring(10).take(11) is None
