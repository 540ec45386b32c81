"""Which attributes each transition of a QP's state wants and allows (RC)."""

from .libibverbs_enums import ibv_qp_attr_mask as M
from .libibverbs_enums import ibv_qp_state as S

__all__ = ["TRANSITIONS", "check_transition"]

_ALWAYS = M.IBV_QP_STATE


def _mask(names):
    total = 0
    for name in names.split():
        total |= M[f"IBV_QP_{name}"]
    return total


_LATE = "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"

TRANSITIONS = {
    # (from, to): (required, optional); IBV_QP_STATE is implied
    (S.IBV_QPS_RESET, S.IBV_QPS_INIT): (_mask("PKEY_INDEX PORT ACCESS_FLAGS"), 0),
    (S.IBV_QPS_INIT, S.IBV_QPS_INIT): (0, _mask("PKEY_INDEX PORT ACCESS_FLAGS")),
    (S.IBV_QPS_INIT, S.IBV_QPS_RTR): (
        _mask("AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER"),
        _mask("ALT_PATH ACCESS_FLAGS PKEY_INDEX"),
    ),
    (S.IBV_QPS_RTR, S.IBV_QPS_RTS): (_mask("TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC"), _mask(_LATE)),
    (S.IBV_QPS_RTS, S.IBV_QPS_RTS): (0, _mask(_LATE)),
    (S.IBV_QPS_RTS, S.IBV_QPS_SQD): (0, _mask("EN_SQD_ASYNC_NOTIFY")),
    (S.IBV_QPS_SQD, S.IBV_QPS_RTS): (0, _mask(_LATE)),
    (S.IBV_QPS_SQD, S.IBV_QPS_SQD): (
        0,
        _mask(f"PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC PKEY_INDEX {_LATE}")
        & ~M.IBV_QP_CUR_STATE,
    ),
}
"""The specification's table for RC, as Linux has it; to RESET and to ERR any state leads, but not RESET to ERR."""


def _name(state):
    return S(state).name if state in set(S) else state


def check_transition(current, new, mask):
    """Why ``mask`` does not lead from ``current`` to ``new``, or None if it does."""
    given = mask & ~_ALWAYS
    if new == S.IBV_QPS_RESET or (new == S.IBV_QPS_ERR and current != S.IBV_QPS_RESET):
        return None if not given else f"attributes {given:#x} do not belong to this transition"
    if (current, new) not in TRANSITIONS:
        return f"there is no way from {_name(current)} to {_name(new)}"
    required, optional = TRANSITIONS[current, new]
    if missing := required & ~given:
        return f"attributes {missing:#x} are missing"
    if foreign := given & ~(required | optional):
        return f"attributes {foreign:#x} do not belong to this transition"
    return None
