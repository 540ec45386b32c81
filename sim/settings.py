"""Numbers of the environment."""

import errno
import os

__all__ = ["setting"]


def setting(name, default=None, kind=int):
    """A number of the environment, or ``default`` if it is not set. ``OSError`` (EINVAL) if it is not a number."""
    text = os.environ.get(name)
    try:
        return kind(text) if text else default
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise OSError(errno.EINVAL, f"{name} must be {what}, not {text!r}") from None
