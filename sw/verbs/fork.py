"""Fork support: there is nothing to be done. The device keeps on reading and writing the parent's memory, and in the
child all of the parent's objects count as closed.
"""

from .libibverbs_enums import IBV_FORK_UNNEEDED

__all__ = ["fork_init", "is_fork_initialized"]


def fork_init():
    """Makes forks safe, which they are."""


def is_fork_initialized():
    """``enum ibv_fork_status``: IBV_FORK_UNNEEDED."""
    return IBV_FORK_UNNEEDED
