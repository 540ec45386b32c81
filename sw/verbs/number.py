"""Numbers of a fixed width, checked where they are set."""

import operator

from .pyverbs_error import PyverbsUserError

__all__ = ["Unsigned", "unsigned", "within"]


def within(value, low, high):
    """Whether ``value`` is an integer, and one from ``low`` to ``high``."""
    try:
        return low <= operator.index(value) <= high
    except TypeError:
        return False


def unsigned(what, value, bits):
    """``value`` as an int, if it is an integer of so many bits; ``PyverbsUserError`` otherwise."""
    if not within(value, 0, (1 << bits) - 1):
        raise PyverbsUserError(f"{what} must be an integer from 0 to {(1 << bits) - 1:#x}, not {value!r}")
    return operator.index(value)


class Unsigned:
    """An attribute that takes integers of ``bits`` bits; what ``convert`` makes of the value given, if there is any.

    ``PyverbsUserError``, with name and value, for anything else. The value stands in the object's ``vars`` under the
    attribute's name.
    """

    def __init__(self, bits, convert=None):
        self._bits = bits
        self._convert = convert

    def __set_name__(self, owner, name):
        self._name = name

    def __get__(self, instance, owner=None):
        return self if instance is None else vars(instance)[self._name]

    def __set__(self, instance, value):
        if self._convert is not None:
            value = self._convert(value)
        what = f"{type(instance).__name__}.{self._name}"
        vars(instance)[self._name] = unsigned(what, value, self._bits)
