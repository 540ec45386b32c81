"""Queues whose items have owners, against a list."""

import random
import time

import pytest
from verbena.sw.verbs.owned_queue import OwnedQueue


@pytest.mark.parametrize("owners", [1, 3, 50])
@pytest.mark.parametrize("seed", range(4))
def test_as_a_list_does(owners, seed):
    rng = random.Random(seed)
    queue, expected = OwnedQueue(), []
    for number in range(3000):
        key = rng.randrange(owners)
        action = rng.random()
        if action < 0.55:
            queue.put(key, number)
            expected.append((key, number))
        elif action < 0.9:
            if expected:
                assert queue.take() == expected.pop(0)[1]
            else:
                with pytest.raises(IndexError):
                    queue.take()
        elif action < 0.999:
            queue.drop(key)
            expected = [item for item in expected if item[0] != key]
        else:
            queue.clear()
            expected = []
        assert len(queue) == len(expected)
        assert list(queue) == [item for _, item in expected]


def test_an_owner_whose_items_were_dropped_begins_anew():
    queue = OwnedQueue()
    for item in "abc":
        queue.put("one", item)
        queue.put("two", item.upper())
    queue.drop("one")
    queue.put("one", "d")
    assert list(queue) == ["A", "B", "C", "d"]
    queue.drop("two")
    assert (len(queue), queue.take()) == (1, "d")
    assert not queue


def test_what_is_dropped_does_not_stay():
    """Somebody who never takes anything does not fill memory."""
    queue = OwnedQueue()
    queue.put("stays", 0)
    for number in range(10_000):
        queue.put(number, number)
        queue.drop(number)
        assert len(queue._items) < 4
    assert len(queue._owners) == 1
    assert list(queue) == [0]


@pytest.mark.parametrize("order", [1, -1])
def test_many_owners_go(order):
    """Twenty times as many take some twenty times as long, not four hundred times."""

    def seconds(count):
        queue = OwnedQueue()
        for number in range(4 * count):
            queue.put(number % count, number)
        began = time.process_time()
        for number in range(count)[::order]:
            queue.drop(number)
        took = time.process_time() - began
        assert not queue
        return took

    assert min(seconds(40_000) for _ in range(2)) < 100 * max(seconds(2000) for _ in range(3))
