"""Times of the connection manager: how its messages write them, and what Linux makes of them.

Times are in milliseconds, by the clock of :mod:`.clock`.
"""

__all__ = [
    "ACK_TIMEOUT",
    "MRA_TIMEOUT",
    "REQ_RETRIES",
    "REQ_WAIT",
    "RESPONSE_TIMEOUT",
    "SIDR_WAIT",
    "code_ms",
    "local_ack_timeout",
]

PACKET_LIFE_TIME = 18
"""Code of the time that a packet may take on RoCE (Linux 6.1, CMA_IBOE_PACKET_LIFETIME)."""
ACK_DELAY = 15
"""Code of the time after which the adapter acknowledges."""
RESPONSE_TIMEOUT = 20
"""Code of the time in which a side answers (Linux, CMA_CM_RESPONSE_TIMEOUT)."""
REQ_RETRIES = 15
"""Repetitions of what is not answered (Linux, CMA_MAX_CM_RETRIES)."""
MRA_TIMEOUT = 24
"""Code of the time that a MRA asks for (Linux, CMA_CM_MRA_SETTING)."""


def code_ms(code):
    """Milliseconds of a code: 2^(code - 8), as Linux takes 4.096 us times 2^code (cm_convert_to_ms)."""
    return 2.0 ** (code - 8)


def local_ack_timeout(life_time=PACKET_LIFE_TIME, ack_delay=ACK_DELAY):
    """Code of the time after which a QP repeats a request: to and fro, and what the peer takes, rounded as Linux does
    (cm_ack_timeout), 31 at most.
    """
    timeout = life_time + 1
    if timeout >= ack_delay:
        timeout += ack_delay >= timeout - 1
    else:
        timeout = ack_delay + (timeout >= ack_delay - 1)
    return min(31, timeout)


ACK_TIMEOUT = local_ack_timeout()
"""Code of a REQ's local ACK timeout, unless the program says otherwise: 19."""
REQ_WAIT = 2 * code_ms(PACKET_LIFE_TIME) + code_ms(RESPONSE_TIMEOUT)
"""Until a REQ, or the DREQ of the side that sent it, is repeated: 6144."""
SIDR_WAIT = code_ms(RESPONSE_TIMEOUT)
"""Until a SIDR_REQ is repeated: 4096."""
