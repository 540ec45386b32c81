"""Exceptions."""

import errno

from verbena.sw.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError


def test_text_with_and_without_an_errno():
    assert str(PyverbsError("Failed")) == "Failed"
    assert str(PyverbsError("Failed", 22)) == "Failed. Errno: 22, Invalid argument"
    assert str(PyverbsRDMAError("Failed")) == "Failed"
    assert PyverbsRDMAError("Failed").error_code == -1
    error = PyverbsRDMAError("Failed", errno.EOPNOTSUPP)
    assert error.error_code == 95
    assert str(error) == "Failed. Errno: 95, Operation not supported"


def test_a_negative_errno_is_kept():
    error = PyverbsRDMAError("Failed", -errno.EINVAL)
    assert error.error_code == -22
    assert str(error) == "Failed. Errno: -22, Invalid argument"


def test_families():
    assert issubclass(PyverbsRDMAError, PyverbsError)
    assert issubclass(PyverbsUserError, PyverbsError)
    assert not issubclass(PyverbsUserError, PyverbsRDMAError)
