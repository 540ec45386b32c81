"""Calls that pyverbs has and the adapter cannot serve."""

import errno
import functools
import inspect

from .base import refuse

__all__ = ["unsupported"]


def unsupported(failed):
    """Makes a function without a body one that refuses: ``PyverbsRDMAError`` with EOPNOTSUPP and the text ``failed``.

    Its signature stays, so that wrong arguments raise ``TypeError`` as ever. It has the attribute ``unsupported``.
    """

    def decorate(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args, **kwargs):
            signature.bind(*args, **kwargs)
            refuse(failed, errno.EOPNOTSUPP)

        call.unsupported = failed
        return call

    return decorate
