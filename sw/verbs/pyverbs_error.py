"""Exceptions."""

import os

__all__ = ["PyverbsError", "PyverbsRDMAError", "PyverbsUserError"]


class PyverbsError(Exception):
    """Base of all. With an ``error_code`` the text ends in the errno and what it means."""

    def __init__(self, msg, error_code=-1):
        if error_code != -1:
            msg = f"{msg}. Errno: {error_code}, {os.strerror(abs(error_code))}"
        super().__init__(msg)


class PyverbsRDMAError(PyverbsError):
    """The device or its driver refused; ``error_code`` is the errno."""

    def __init__(self, msg, error_code=-1):
        super().__init__(msg, error_code)
        self._error_code = error_code

    @property
    def error_code(self):
        return self._error_code


class PyverbsUserError(PyverbsError):
    """The caller used the interface wrongly."""
