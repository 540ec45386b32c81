"""What the engine is told of a queue pair; its words are checked in the tests of queue pairs."""

import pytest
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.sw.verbs.libibverbs_enums import ibv_qp_state
from verbena.sw.verbs.qp_context import action_of, context_of

RESET, INIT, RTR, RTS, SQD, SQE, ERR = list(ibv_qp_state)[:7]


@pytest.mark.parametrize(
    ("current", "new", "action"),
    [
        (RESET, INIT, 0),
        (INIT, INIT, 0),
        (INIT, RTR, 2),
        (RTR, RTS, 3),
        (RTS, RTS, 0),
        (RTS, SQD, 7),
        (SQD, SQD, 0),
        (SQD, RTS, 6),
        *((state, RESET, 1) for state in (RESET, INIT, RTR, RTS, SQD, ERR)),
        *((state, ERR, 4) for state in (INIT, RTR, RTS, SQD, ERR)),
    ],
)
def test_actions(current, new, action):
    assert action_of(current, new) == action


def test_every_field_has_a_place(make_qp):
    qp = make_qp()
    fields = context_of(qp, qp._attr)
    assert fields.keys() <= QP_CONTEXT.fields.keys()
    assert QP_CONTEXT.fields.keys() - fields.keys() == {"qkey", "qpn"}  # UD's
