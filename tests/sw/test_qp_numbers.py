"""QpNumbers: whose place is whose, and what it means to be lost."""

import errno
import random

import pytest
from verbena.sw.errors import AdapterError
from verbena.sw.qp_numbers import QPN_BITS, QpNumbers

COUNT = 16


@pytest.fixture
def numbers():
    return QpNumbers(COUNT, random.Random(5))


def test_each_has_a_place_of_its_own(numbers):
    taken = [numbers.take() for _ in range(COUNT)]
    assert {numbers.place(number) for number in taken} == set(range(COUNT))
    assert all(COUNT <= number < 1 << QPN_BITS for number in taken)
    with pytest.raises(AdapterError, match="all 16 QPs are in use") as caught:
        numbers.take()
    assert caught.value.errno == errno.ENOMEM


def test_a_place_rests_as_long_as_it_can(numbers):
    first, *others = [numbers.take() for _ in range(COUNT)]
    for number in (first, *others):
        numbers.give_back(number)
    again = [numbers.take() for _ in range(COUNT)]
    assert [numbers.place(number) for number in again] == [numbers.place(number) for number in (first, *others)]
    assert again != [first, *others]


def test_the_same_random_numbers_give_the_same_numbers():
    one, other = (QpNumbers(COUNT, random.Random(3)) for _ in range(2))
    assert [one.take() for _ in range(5)] == [other.take() for _ in range(5)]


def test_qp1_has_a_place_that_others_take_last(numbers):
    assert numbers.take_qp1() == numbers.place(1) == 1
    with pytest.raises(AdapterError, match="that of QP 0x1") as caught:
        numbers.take_qp1()
    assert caught.value.errno == errno.EBUSY
    others = [numbers.take() for _ in range(COUNT - 1)]
    assert 1 not in {numbers.place(number) for number in others}
    with pytest.raises(AdapterError, match="all 16 QPs are in use"):
        numbers.take()
    numbers.give_back(1)
    last = numbers.take()
    assert (numbers.place(last), last >= COUNT) == (1, True)
    with pytest.raises(AdapterError, match=f"that of QP {last:#x}"):
        numbers.take_qp1()
    numbers.give_back(others[0])
    numbers.give_back(last)
    assert numbers.take_qp1() == 1
    assert numbers.place(numbers.take()) == numbers.place(others[0])


def test_lost_until_it_is_given_back(numbers):
    number, other = numbers.take(), numbers.take()
    place = numbers.place(number)
    assert numbers.lose(numbers.free[0]) is None  # nobody is there
    assert not numbers.is_lost(number)
    assert numbers.lose(place) == number
    assert numbers.lose(place) is None
    assert numbers.is_lost(number)
    assert not numbers.is_lost(other)
    numbers.give_back(number)
    assert not numbers.is_lost(number)
    assert numbers.lose(place) is None


def test_a_number_that_rests_is_not_taken():
    """The same random numbers as of another one, whose numbers rest."""
    one, other = (QpNumbers(COUNT, random.Random(3)) for _ in range(2))
    resting = {one.take() for _ in range(5)}
    taken = {other.take(resting) for _ in range(5)}
    assert not taken & resting
    assert {other.place(number) for number in taken} == {one.place(number) for number in resting}
