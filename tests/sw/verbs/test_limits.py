"""The limits against what the interface can carry."""

from verbena.hdl.abi.contexts import CQ_CONTEXT, QP_CONTEXT
from verbena.hdl.abi.tables import MPT
from verbena.hdl.abi.wqe import SEND_WQE, WQE_SIZES, send_sges
from verbena.sw.verbs import limits


def test_they_fit_their_fields():
    assert 1 << QP_CONTEXT.fields["log_sq_size"].mask >= limits.MAX_QP_WR
    assert 1 << CQ_CONTEXT.fields["log_size"].mask >= limits.MAX_CQE
    assert limits.MAX_CQE <= 1 << 15  # half of the free-running index
    assert QP_CONTEXT.fields["pd"].mask >= limits.MAX_PD
    assert MPT.fields["length"].mask >= limits.MAX_MR_SIZE
    assert SEND_WQE.fields["length"].mask >= limits.MAX_MSG_SZ


def test_entries_fit_wqes():
    assert [limits.max_sge(size) for size in WQE_SIZES] == [6, 14, 16]
    assert [limits.max_recv_sge(size) for size in WQE_SIZES] == [8, 16, 16]
    assert [limits.max_srq_sge(size) for size in WQE_SIZES] == [7, 15, 15]
    for size in (64, *WQE_SIZES):
        assert 32 + 16 * send_sges(size) <= size
