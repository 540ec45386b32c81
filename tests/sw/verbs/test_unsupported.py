"""Calls that refuse."""

import errno
import inspect

import pytest
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.unsupported import unsupported


class Thing:
    @unsupported("Failed to turn")
    def turn(self, angle, fast=False):
        """Turns it."""


def test_it_refuses():
    with pytest.raises(PyverbsRDMAError) as caught:
        Thing().turn(90)
    assert str(caught.value) == "Failed to turn. Errno: 95, Operation not supported"
    assert caught.value.error_code == errno.EOPNOTSUPP


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"slow": 1})])
def test_wrong_arguments_are_told_as_ever(args, kwargs):
    with pytest.raises(TypeError):
        Thing().turn(*args, **kwargs)


def test_signature_and_text_stay():
    assert str(inspect.signature(Thing().turn)) == "(angle, fast=False)"
    assert Thing.turn.__doc__ == "Turns it."
    assert Thing.turn.unsupported == "Failed to turn"
