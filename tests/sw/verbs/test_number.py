"""Numbers of a fixed width."""

import enum

import pytest
from verbena.sw.verbs.number import Unsigned, unsigned, within
from verbena.sw.verbs.pyverbs_error import PyverbsUserError


class Holder:
    small = Unsigned(4)
    twice = Unsigned(8, lambda value: 2 * value)


def test_what_is_taken():
    holder = Holder()
    holder.small = 15
    holder.twice = 100
    assert (holder.small, holder.twice) == (15, 200)
    assert vars(holder) == {"small": 15, "twice": 200}
    assert isinstance(Holder.small, Unsigned)
    assert unsigned("x", enum.IntFlag("F", "A B").B, 2) == 2


@pytest.mark.parametrize("bad", [16, -1, 1.0, "1", None])
def test_what_is_not(bad):
    holder = Holder()
    with pytest.raises(PyverbsUserError) as caught:
        holder.small = bad
    assert str(caught.value) == f"Holder.small must be an integer from 0 to 0xf, not {bad!r}"
    assert not vars(holder)
    assert not within(bad, 0, 15)


def test_what_it_is_made_into_counts():
    holder = Holder()
    with pytest.raises(PyverbsUserError, match="twice must be an integer from 0 to 0xff, not 256"):
        holder.twice = 128
