"""Events, and the file that tells of them."""

import os
import select
import threading

import pytest
from verbena.sw.verbs.event_queue import EventQueue


@pytest.fixture
def queue():
    queue = EventQueue()
    yield queue
    queue.close()


def readable(queue, timeout=0):
    return bool(select.select([queue.fileno()], [], [], timeout)[0])


def test_events_in_order(queue):
    assert queue.take() is None
    owners = {event: object() for event in "abc"}
    for event in "abc":
        queue.put(event, owners[event])
    assert len(queue) == 3
    assert list(queue) == list("abc")
    queue.drop(owners["b"])
    assert [queue.take(), queue.take(), queue.take()] == ["a", "c", None]


def test_the_file_is_readable_while_there_are_events(queue):
    assert not readable(queue)
    queue.put("a")
    queue.put("b")
    assert readable(queue)
    queue.take()
    assert readable(queue)
    queue.take()
    assert not readable(queue)
    queue.put("c")
    queue.clear()
    assert not readable(queue)


def test_the_file_is_not_readable_for_what_was_dropped(queue):
    gone, other = object(), object()
    for owner in (gone, other, gone):
        queue.put("a", owner)
    queue.drop(gone)
    assert readable(queue)
    queue.drop(other)
    assert not readable(queue)


def test_a_file_that_is_asked_for_late_tells_of_what_was_there(queue):
    queue.put("a")
    assert readable(queue)
    assert queue.fileno() == queue.fileno()


def test_an_event_of_another_thread_wakes(queue):
    timer = threading.Timer(0.05, queue.put, "a")
    timer.start()
    assert readable(queue, timeout=10)
    timer.join()


def test_who_reads_from_the_file_does_not_make_the_queue_hang(queue):
    queue.put("a")
    os.read(queue.fileno(), 8)
    assert queue.take() == "a"
    assert queue.take() is None


def test_waiting_is_up_to_the_file(queue):
    assert queue.blocking
    os.set_blocking(queue.fileno(), False)
    assert not queue.blocking


def test_close(queue):
    fd = queue.fileno()
    queue.put("a")
    queue.close()
    queue.close()
    assert len(queue) == 0
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_it_tells_whether_there_is_a_file():
    queue = EventQueue()
    assert not queue.has_file
    queue.fileno()
    assert queue.has_file
    queue.close()
    assert not queue.has_file
