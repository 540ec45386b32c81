"""Codes of times: those that Linux 6.1 was seen to use, and its rule for the others."""

import pytest
from verbena.sw.cm import timers


def test_what_linux_uses():
    assert (timers.ACK_TIMEOUT, timers.REQ_WAIT, timers.SIDR_WAIT) == (19, 6144, 4096)
    assert timers.code_ms(timers.MRA_TIMEOUT) == 65536
    assert timers.code_ms(19) == 2048
    assert timers.code_ms(7) == 0.5


@pytest.mark.parametrize(
    ("life_time", "ack_delay", "code"),
    [(18, 15, 19), (18, 18, 20), (18, 19, 20), (10, 12, 13), (10, 14, 14), (31, 0, 31)],
)
def test_the_ack_timeout(life_time, ack_delay, code):
    """Never less than to and fro and the delay, each of which is the power of two of its code; and less than twice."""
    assert timers.local_ack_timeout(life_time, ack_delay) == code
    if code < 31:
        true = 2 * 2**life_time + 2**ack_delay
        assert 2**code * 1.25 > true
        assert 2**code < 2 * true
