"""What the soak takes for right after a failure."""

from types import SimpleNamespace

import pytest
from verbena.sim.soak.completions import Completions
from verbena.sim.soak.model import Difference, Operation, Peer
from verbena.sw.verbs.libibverbs_enums import ibv_wc_status as S

FLUSH, PROTECTION, ACCESS = S.IBV_WC_WR_FLUSH_ERR, S.IBV_WC_LOC_PROT_ERR, S.IBV_WC_REM_ACCESS_ERR


class Flow(Completions):
    """Three requests, the second of which has ``fates``; the first has failed."""

    name = "QP"

    def __init__(self, *fates, extra=()):
        self.model = Peer(64)
        for number in range(3):
            self.model.open.append(Operation(number, "SEND", True, fates=frozenset(fates if number == 1 else ())))
        self.connection = SimpleNamespace(
            extra=frozenset(extra), statuses=lambda *_: {S.IBV_WC_RETRY_EXC_ERR}, broke=lambda _: None
        )
        self.dead, self.killed = False, False
        self.sent(SimpleNamespace(wr_id=0, status=S.IBV_WC_RETRY_EXC_ERR))

    def flush(self, *statuses):
        for number, status in enumerate(statuses, 1):
            self.sent(SimpleNamespace(wr_id=number, status=status))
        return self.flushed


def test_flushed():
    assert Flow().flush(FLUSH, FLUSH) == 3


def test_a_local_failure_of_its_own():
    """The engine met it before the flush came to it, and keeps it (:class:`verbena.hdl.transport.completer`)."""
    assert Flow(PROTECTION).flush(PROTECTION, FLUSH) == 3
    assert Flow(PROTECTION).flush(FLUSH, FLUSH) == 3
    assert Flow(extra=[PROTECTION, ACCESS]).flush(PROTECTION, FLUSH) == 3


@pytest.mark.parametrize(
    ("flow", "statuses"),
    [
        (Flow(), (PROTECTION,)),
        (Flow(PROTECTION), (FLUSH, PROTECTION)),
        (Flow(ACCESS), (ACCESS,)),
        (Flow(extra=[ACCESS]), (ACCESS,)),
        (Flow(), (S.IBV_WC_SUCCESS,)),
    ],
)
def test_nothing_else(flow, statuses):
    with pytest.raises(Difference):
        flow.flush(*statuses)


def test_in_order():
    with pytest.raises(Difference, match="flush of 1"):
        Flow().sent(SimpleNamespace(wr_id=2, status=FLUSH))
