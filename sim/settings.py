"""Numbers of the environment."""

import errno
import os

__all__ = ["setting"]


def setting(name, default=None, kind=int, *, least=0, most=(1 << 63) - 1):
    """A number of the environment, or ``default`` if it is not set. ``OSError`` (EINVAL) if it is not a number from
    ``least`` to ``most``.
    """
    text = os.environ.get(name)
    if not text:
        return default
    try:
        value = kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise OSError(errno.EINVAL, f"{name} must be {what}, not {text!r}") from None
    if not least <= value <= most:
        raise OSError(errno.EINVAL, f"{name} must be {least} to {most}, not {text}")
    return value
