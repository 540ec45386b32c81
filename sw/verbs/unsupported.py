"""Calls that pyverbs has and the adapter cannot serve."""

import errno
import functools
import inspect

from .base import PyverbsCM, refuse

__all__ = ["unsupported"]


def unsupported(failed):
    """Makes a function without a body one that refuses: ``PyverbsRDMAError`` with EOPNOTSUPP and the text ``failed``.

    Its signature stays, so that wrong arguments raise ``TypeError`` as ever; of an object that is closed it says so. It
    has the attribute ``unsupported``.
    """

    def decorate(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args, **kwargs):
            signature.bind(*args, **kwargs)
            if function.__name__ != "__init__" and args and isinstance(args[0], PyverbsCM):
                args[0]._check_open()
            refuse(failed, errno.EOPNOTSUPP)

        call.unsupported = failed
        return call

    return decorate
