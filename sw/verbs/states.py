"""Which attributes each transition of a QP's state wants and allows, by the QP's type."""

from .libibverbs_enums import ibv_qp_attr_mask as M
from .libibverbs_enums import ibv_qp_state as S
from .libibverbs_enums import ibv_qp_type as T

__all__ = ["TRANSITIONS", "check_transition"]

_ALWAYS = M.IBV_QP_STATE


def _mask(names):
    total = 0
    for name in names.split():
        total |= M[f"IBV_QP_{name}"]
    return total


_LATE = "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"

_RC = {
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

_OF_RC = _mask("MAX_DEST_RD_ATOMIC MIN_RNR_TIMER TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC")
"""Attributes of what is answered."""

_UC = {way: (required & ~_OF_RC, optional & ~_OF_RC) for way, (required, optional) in _RC.items()}
_UC[S.IBV_QPS_SQE, S.IBV_QPS_RTS] = (0, _mask("CUR_STATE ACCESS_FLAGS"))
_UC[S.IBV_QPS_SQD, S.IBV_QPS_SQD] = (0, _mask("AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE"))

_UD = {
    (S.IBV_QPS_RESET, S.IBV_QPS_INIT): (_mask("PKEY_INDEX PORT QKEY"), 0),
    (S.IBV_QPS_INIT, S.IBV_QPS_INIT): (0, _mask("PKEY_INDEX PORT QKEY")),
    (S.IBV_QPS_INIT, S.IBV_QPS_RTR): (0, _mask("PKEY_INDEX QKEY")),
    (S.IBV_QPS_RTR, S.IBV_QPS_RTS): (_mask("SQ_PSN"), _mask("CUR_STATE QKEY")),
    (S.IBV_QPS_RTS, S.IBV_QPS_RTS): (0, _mask("CUR_STATE QKEY")),
    (S.IBV_QPS_RTS, S.IBV_QPS_SQD): (0, _mask("EN_SQD_ASYNC_NOTIFY")),
    (S.IBV_QPS_SQD, S.IBV_QPS_RTS): (0, _mask("CUR_STATE QKEY")),
    (S.IBV_QPS_SQD, S.IBV_QPS_SQD): (0, _mask("PKEY_INDEX QKEY")),
    (S.IBV_QPS_SQE, S.IBV_QPS_RTS): (0, _mask("CUR_STATE QKEY")),
}

_RAW = {way: (_mask("PORT") if way == (S.IBV_QPS_RESET, S.IBV_QPS_INIT) else 0, 0) for way in _UD}
"""A raw packet queue has no attributes but its port."""

TRANSITIONS = {T.IBV_QPT_RC: _RC, T.IBV_QPT_UC: _UC, T.IBV_QPT_UD: _UD, T.IBV_QPT_RAW_PACKET: _RAW}
"""The specification's table, as Linux has it; to RESET and to ERR any state leads, but not RESET to ERR."""


def _name(state):
    return S(state).name if state in set(S) else state


def check_transition(qp_type, current, new, mask):
    """Why ``mask`` does not lead a QP of ``qp_type`` from ``current`` to ``new``, or None if it does."""
    transitions = TRANSITIONS[qp_type]
    given = mask & ~_ALWAYS
    if new == S.IBV_QPS_RESET or (new == S.IBV_QPS_ERR and current != S.IBV_QPS_RESET):
        return None if not given else f"attributes {given:#x} do not belong to this transition"
    if (current, new) not in transitions:
        return f"there is no way from {_name(current)} to {_name(new)}"
    required, optional = transitions[current, new]
    if missing := required & ~given:
        return f"attributes {missing:#x} are missing"
    if foreign := given & ~(required | optional):
        return f"attributes {foreign:#x} do not belong to this transition"
    return None
