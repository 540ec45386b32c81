"""The table of transitions; tests of queue pairs go through it row by row."""

import pytest
from verbena.sw.verbs.libibverbs_enums import ibv_qp_attr_mask, ibv_qp_state
from verbena.sw.verbs.states import TRANSITIONS, check_transition

M, S = ibv_qp_attr_mask, ibv_qp_state


def test_required_and_optional_never_overlap():
    for required, optional in TRANSITIONS.values():
        assert not required & optional
        assert not (required | optional) & M.IBV_QP_STATE


@pytest.mark.parametrize("state", list(S)[:7])
def test_reset_and_error_are_reached_from_everywhere_and_take_nothing(state):
    assert check_transition(state, S.IBV_QPS_RESET, M.IBV_QP_STATE) is None
    assert "do not belong" in check_transition(state, S.IBV_QPS_RESET, M.IBV_QP_STATE | M.IBV_QP_PORT)
    assert "do not belong" in check_transition(state, S.IBV_QPS_RESET, M.IBV_QP_STATE | M.IBV_QP_CUR_STATE)
    why = check_transition(state, S.IBV_QPS_ERR, M.IBV_QP_STATE)
    if state == S.IBV_QPS_RESET:
        assert "no way from IBV_QPS_RESET to IBV_QPS_ERR" in why
    else:
        assert why is None


def test_what_is_missing_and_what_is_too_much():
    required = M.IBV_QP_PKEY_INDEX | M.IBV_QP_PORT | M.IBV_QP_ACCESS_FLAGS
    assert check_transition(0, 1, required) is None
    assert "0x20 are missing" in check_transition(0, 1, required & ~M.IBV_QP_PORT)
    assert "0x80 do not belong" in check_transition(0, 1, required | M.IBV_QP_AV)


def test_a_state_that_does_not_exist():
    assert "no way" in check_transition(0, 77, M.IBV_QP_STATE)


def test_draining():
    assert check_transition(3, 4, M.IBV_QP_EN_SQD_ASYNC_NOTIFY) is None
    assert check_transition(4, 4, M.IBV_QP_AV | M.IBV_QP_TIMEOUT | M.IBV_QP_MAX_DEST_RD_ATOMIC) is None
    assert check_transition(4, 4, M.IBV_QP_CUR_STATE) is not None
    assert check_transition(4, 3, M.IBV_QP_CUR_STATE) is None
