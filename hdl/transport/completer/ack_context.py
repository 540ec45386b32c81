"""The acknowledge context: the completer's state of a QP."""

from amaranth.lib import data

from ..common.layouts import Progress

__all__ = ["Recovery", "ack_context"]

Recovery = data.StructLayout(
    {
        "retrying": 1,  # the queue went back for a lost packet, and nothing has been acknowledged since
        "retries": 3,  # that were counted since something was acknowledged
        "rnr_retries": 3,
    }
)


def ack_context(keys=False):
    """Layout of the context; with ``keys`` there are WQEs that have no packet."""
    return data.StructLayout(
        {
            "progress": Progress,
            "generation": 4,  # changes whenever something is acknowledged, at each retry, and when waiting begins
            "rnr_timer": 5,
            "recovery": Recovery,
            "dead": 1,  # a WQE completed in error: until RESET only flushing goes on
            "failed": 1,  # the WQE `index` failed and completes with the status below
            "index": 16,
            "status": 8,
            "syndrome": 8,
            "drain": 1,  # say when all WQEs before `bound` are complete
            "bound": 16,
            **({"operations": 16} if keys else {}),  # complete WQEs that no MSN counts, as they have no packet
        }
    )
