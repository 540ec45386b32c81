"""The memory of a shared receive queue: where a WQE stands, and when its places are free."""

import struct

import pytest
from fake_device import Memory
from verbena.sw.verbs.shared_queue import SharedQueue, log_stride_of


@pytest.fixture
def queue():
    return SharedQueue(Memory(), 5, 6)


def stands(queue, base, place):
    return queue.memory.read(base + 64 * place, 64)


def entry(number):
    return struct.pack("<QII", 0x1000 * number, 16 + number, 0xA0)


@pytest.mark.parametrize(("sges", "log_stride"), [(1, 5), (2, 6), (3, 6), (4, 7), (7, 7)])
def test_what_fits_behind_the_header(sges, log_stride):
    assert log_stride_of(sges) == log_stride


def test_a_wqe_stands_in_two_places(queue):
    """In the ring by its turn, in the table by its id; each time whole, whatever stood there."""
    assert (queue.size, queue.free, queue.log_size) == (8, 8, 3)
    assert queue.bus % 4096 == queue.ring_bus % 4096 == 0
    for number in range(8):
        queue.put(100 + number, entry(number) * 3)
    assert (queue.free, queue.producer) == (0, 8)
    assert [queue.complete(number) for number in (5, 2)] == [105, 102]
    queue.put(7, entry(77))
    expected = struct.pack("<HHIQ", 5, 0, 0, 0) + entry(77) + bytes(32)
    assert stands(queue, queue.address, 5) == stands(queue, queue._ring, 0) == expected
    assert stands(queue, queue.address, 0) == bytes(16) + entry(0) * 3
    assert queue.complete(5) == 7
    assert (queue.free, queue.producer) == (2, 9)


def test_ids_are_used_in_turns_and_never_twice(queue):
    """Whatever the order in which they complete."""
    out = []
    for number in range(1000):
        queue.put(number, entry(0))
        table = {int.from_bytes(stands(queue, queue._ring, queue.producer - 1 & 7)[:2], "little")}
        assert not table & set(out)
        out += table
        if len(out) == 8:
            for taken in out[number % 7 :: 2]:
                queue.complete(taken)
                out.remove(taken)
    assert queue.producer == 1000


def test_entries_are_those_behind_the_header(queue):
    queue.put(1, entry(1) + entry(2))
    assert list(queue.entries(0)) == [(0x1000, 17), (0x2000, 18), (0, 0)]


def test_the_producer_is_a_free_running_index(queue):
    queue.producer = 0xFFFF
    queue.put(1, entry(1))
    assert queue.producer == 0
    assert stands(queue, queue._ring, 7) == stands(queue, queue.address, 0)


def test_memory_that_is_not_there_leaves_nothing(monkeypatch):
    memory = Memory()
    taken = set(Memory._taken)
    calls = iter([memory.alloc_contiguous])

    def once(*arguments):
        try:
            return next(calls)(*arguments)
        except StopIteration:
            raise MemoryError from None

    monkeypatch.setattr(memory, "alloc_contiguous", once, raising=False)
    with pytest.raises(MemoryError):
        SharedQueue(memory, 8, 6)
    assert taken == Memory._taken
