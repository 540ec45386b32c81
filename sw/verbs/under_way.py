"""Work requests that change a key, from when they are posted until it is known that they change nothing any more."""

import weakref

from .libibverbs_enums import ibv_qp_state

__all__ = ["UnderWay"]

_OVER = (ibv_qp_state.IBV_QPS_RESET, ibv_qp_state.IBV_QPS_ERR)
"""States in which a queue pair does nothing that was posted before."""


class UnderWay:
    """Those of one window or region."""

    def __init__(self):
        self._requests = []

    def add(self, qp, ticket):
        """One is posted to a queue pair, with this ticket of its send queue. Returns a call that takes this back."""
        mine = weakref.ref(qp), qp._sq, ticket
        self._requests.append(mine)
        return lambda: self._requests.remove(mine)

    def __bool__(self):
        """Some may still be done."""
        self._requests = [request for request in self._requests if not _is_over(*request)]
        return bool(self._requests)


def _is_over(qp, queue, ticket):
    """A queue pair that is garbage may live on for a while: its send queue tells when it is gone."""
    known = qp()
    return queue.is_over(ticket) or (known is not None and not known._closed and known.qp_state in _OVER)
