"""Reasons as texts."""

import pytest
from verbena.sw.cm.reasons import RejReason, SidrStatus, why


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (RejReason, 8, "8, INVALID_SERVICE_ID"),
        (RejReason, 18, "18, INVALID_ALT_GID"),
        (RejReason, 35, "35, VENDOR_OPTION_NOT_SUPPORTED"),
        (RejReason, 99, "99"),
        (SidrStatus, 2, "2, REJECTED"),
    ],
)
def test_why(kind, number, text):
    assert why(kind, number) == text
