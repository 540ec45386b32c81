"""The driver's part of the CQ context table, in real memory."""

import errno
import threading

import pytest
from verbena.hdl.abi.cqc import ARMS_BITS, CQ_RECORD, CQC_BYTES
from verbena.sw import host_memory
from verbena.sw.cq_table import CqTable
from verbena.sw.errors import AdapterError

ROUND = 1 << ARMS_BITS


@pytest.fixture
def table():
    made = CqTable(host_memory, 6, 4)
    yield made
    made.close()


def record(table, number):
    return CQ_RECORD.unpack(host_memory.read(table.address + CQC_BYTES * number, CQC_BYTES))


def test_all_numbers_are_taken_and_places_are_shared_evenly(table):
    taken = [table.take() for _ in range(64)]
    for count in (4, 8, 60):
        assert {sum(number % 4 == place for number in taken[:count]) for place in range(4)} == {count // 4}
    assert sorted(taken) == list(range(64))
    with pytest.raises(AdapterError, match="all 64 CQs are in use") as caught:
        table.take()
    assert caught.value.errno == errno.ENOMEM
    table.give_back(taken[17])
    assert table.take() == taken[17]


def test_a_number_rests_before_it_is_taken_again(table):
    number = table.take()
    seen = []
    for _ in range(16):
        table.give_back(number)
        number = table.take()
        seen.append(number)
    assert len(set(seen)) == 16


def test_a_place_that_is_free_is_taken_first(table):
    taken = [table.take() for _ in range(8)]
    for number in taken:
        if number % 4 == 2:
            table.give_back(number)
    assert [table.take() % 4 for _ in range(2)] == [2, 2]


def test_what_stands_in_memory(table):
    number = [table.take() for _ in range(5)][-1]
    assert not any(record(table, number).values())
    assert table.consume(number, 0x12345) == 0x2345
    assert table.arm(number, True) == 1 << ARMS_BITS
    assert table.arm(number, False) == 1 << ARMS_BITS | 1
    found = record(table, number)
    assert (found["consumer"], found["arms"], found["solicited_arms"], found["consumer_ring"]) == (0x2345, 1, 1, 0)
    table.begin_ring(number)
    found = record(table, number)
    assert (found["consumer"], found["arms"], found["solicited_arms"], found["consumer_ring"]) == (0, 1, 1, 1)
    table.begin_ring(number)
    assert record(table, number)["consumer_ring"] == 0
    table.give_back(number)
    while (again := table.take()) != number:
        pass
    assert not any(record(table, again).values())


@pytest.mark.parametrize("solicited", [False, True])
def test_arms_are_never_a_round_ahead_of_the_last_event(table, solicited):
    """The device compares counts: one that has gone round would look as if nobody had asked."""
    number = table.take()
    name = "solicited_arms" if solicited else "arms"
    for _ in range(40):
        table.arm(number, solicited)
    assert record(table, number)[name] == ROUND // 2 - 1
    seen = set()
    for _ in range(ROUND):
        table.answered(number)
        before = record(table, number)[name]
        table.arm(number, solicited)
        assert record(table, number)[name] == (before + 1) % ROUND
        seen.add(before)
    assert len(seen) == ROUND


def test_two_threads_tell_of_one_queue(table, monkeypatch):
    """One polls, and one arms: whoever writes the word last writes what both have said."""
    number = table.take()
    write, once = host_memory.write, []

    def slowly(address, data):
        if not once:
            once.append(arms := threading.Thread(target=table.arm, args=(number, False)))
            arms.start()
            arms.join(0.2)
        write(address, data)

    monkeypatch.setattr(host_memory, "write", slowly)
    table.consume(number, 7)
    once[0].join()
    assert (record(table, number)["consumer"], record(table, number)["arms"]) == (7, 1)


def test_an_event_of_a_number_that_is_not_taken_is_nothing(table):
    table.answered(5)
