"""The table of transitions; tests of queue pairs go through it row by row."""

import pytest
from verbena.sw.verbs.libibverbs_enums import ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type
from verbena.sw.verbs.states import TRANSITIONS, check_transition

M, S, T = ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type


def test_required_and_optional_never_overlap():
    for required, optional in (row for table in TRANSITIONS.values() for row in table.values()):
        assert not required & optional
        assert not (required | optional) & M.IBV_QP_STATE


@pytest.mark.parametrize("state", list(S)[:7])
def test_reset_and_error_are_reached_from_everywhere_and_take_nothing(state):
    assert check_transition(T.IBV_QPT_RC, state, S.IBV_QPS_RESET, M.IBV_QP_STATE) is None
    assert "do not belong" in check_transition(T.IBV_QPT_RC, state, S.IBV_QPS_RESET, M.IBV_QP_STATE | M.IBV_QP_PORT)
    assert "do not belong" in check_transition(
        T.IBV_QPT_RC, state, S.IBV_QPS_RESET, M.IBV_QP_STATE | M.IBV_QP_CUR_STATE
    )
    why = check_transition(T.IBV_QPT_RC, state, S.IBV_QPS_ERR, M.IBV_QP_STATE)
    if state == S.IBV_QPS_RESET:
        assert "no way from IBV_QPS_RESET to IBV_QPS_ERR" in why
    else:
        assert why is None


def test_what_is_missing_and_what_is_too_much():
    required = M.IBV_QP_PKEY_INDEX | M.IBV_QP_PORT | M.IBV_QP_ACCESS_FLAGS
    assert check_transition(T.IBV_QPT_RC, 0, 1, required) is None
    assert "0x20 are missing" in check_transition(T.IBV_QPT_RC, 0, 1, required & ~M.IBV_QP_PORT)
    assert "0x80 do not belong" in check_transition(T.IBV_QPT_RC, 0, 1, required | M.IBV_QP_AV)


def test_a_state_that_does_not_exist():
    assert "no way" in check_transition(T.IBV_QPT_RC, 0, 77, M.IBV_QP_STATE)


def test_draining():
    assert check_transition(T.IBV_QPT_RC, 3, 4, M.IBV_QP_EN_SQD_ASYNC_NOTIFY) is None
    assert check_transition(T.IBV_QPT_RC, 4, 4, M.IBV_QP_AV | M.IBV_QP_TIMEOUT | M.IBV_QP_MAX_DEST_RD_ATOMIC) is None
    assert check_transition(T.IBV_QPT_RC, 4, 4, M.IBV_QP_CUR_STATE) is not None
    assert check_transition(T.IBV_QPT_RC, 4, 3, M.IBV_QP_CUR_STATE) is None


ROWS = {
    T.IBV_QPT_UC: {
        # (from, to): (required, optional), as the specification prints them
        (0, 1): ("PKEY_INDEX PORT ACCESS_FLAGS", ""),
        (1, 1): ("", "PKEY_INDEX PORT ACCESS_FLAGS"),
        (1, 2): ("AV PATH_MTU DEST_QPN RQ_PSN", "ALT_PATH ACCESS_FLAGS PKEY_INDEX"),
        (2, 3): ("SQ_PSN", "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE"),
        (3, 3): ("", "CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE"),
        (3, 4): ("", "EN_SQD_ASYNC_NOTIFY"),
        (4, 3): ("", "CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE"),
        (4, 4): ("", "AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE"),
        (5, 3): ("", "CUR_STATE ACCESS_FLAGS"),
    },
    T.IBV_QPT_UD: {
        (0, 1): ("PKEY_INDEX PORT QKEY", ""),
        (1, 1): ("", "PKEY_INDEX PORT QKEY"),
        (1, 2): ("", "PKEY_INDEX QKEY"),
        (2, 3): ("SQ_PSN", "CUR_STATE QKEY"),
        (3, 3): ("", "CUR_STATE QKEY"),
        (3, 4): ("", "EN_SQD_ASYNC_NOTIFY"),
        (4, 3): ("", "CUR_STATE QKEY"),
        (4, 4): ("", "PKEY_INDEX QKEY"),
        (5, 3): ("", "CUR_STATE QKEY"),
    },
    # Kernel qp_state_table, without the rate limit.
    T.IBV_QPT_RAW_PACKET: {(0, 1): ("PORT", "")}
    | dict.fromkeys([(1, 1), (1, 2), (2, 3), (3, 3), (3, 4), (4, 3), (4, 4), (5, 3)], ("", "")),
}


@pytest.mark.parametrize(("qp_type", "way"), [(qp_type, way) for qp_type, rows in ROWS.items() for way in rows])
def test_what_a_type_wants_and_allows(qp_type, way):
    """Each bit alone: needed, allowed or foreign."""
    names = [set(text.split()) for text in ROWS[qp_type][way]]
    required = sum(M[f"IBV_QP_{name}"] for name in names[0])
    assert check_transition(qp_type, *way, M.IBV_QP_STATE | required) is None
    for bit in M:
        name = bit.name.removeprefix("IBV_QP_")
        why = check_transition(qp_type, *way, M.IBV_QP_STATE | required ^ bit)
        if name in names[0]:
            assert "are missing" in why
        elif name in names[1] or bit == M.IBV_QP_STATE:
            assert why is None
        else:
            assert "do not belong" in why


@pytest.mark.parametrize("qp_type", ROWS)
def test_no_other_ways(qp_type):
    assert TRANSITIONS[qp_type].keys() == ROWS[qp_type].keys()
