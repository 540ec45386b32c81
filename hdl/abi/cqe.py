"""Completion queue entries, and what they say."""

from enum import IntEnum

from .record import Field, Record

__all__ = ["CQE", "CqeFlag", "Syndrome", "WcOpcode", "WcStatus"]

CQE = Record(
    "cqe",
    32,
    [
        Field("immediate", 32, "ImmDt, or with flag WITH_INV the IETH, in wire byte order"),
        Field("byte_length", 32, "bytes received (receive completions)"),
        Field("qpn", 24, "QP number of this side"),
        Field("status", 8, "enum ibv_wc_status"),
        Field("opcode", 8, "enum ibv_wc_opcode"),
        Field("flags", 8, "GRH 1 (UD), WITH_IMM 2, WITH_INV 8"),
        Field(
            "wqe_index",
            16,
            "free-running index of the WQE in its ring; unsignaled WQEs before it are complete too. Of an SRQ the `id` "
            "of the WQE",
        ),
        Field("source_qpn", 24, "QP number of the peer"),
        Field("syndrome", 8, "vendor_err: why an operation failed, see Syndrome"),
        Field("source_ip", 32, "IPv4 address of the peer (receive completions of UD)"),
        Field("traffic_class", 8, "and TOS of its packet"),
        Field("hop_limit", 8, "and TTL"),
        Field("_", 16),
        Field("_", 31),
        Field("phase", 1, "1 in the first pass through the ring, 0 in the second, and so on; written last"),
    ],
    "Completion queue entry, in a ring of ``1 << log_size``.",
)


class WcStatus(IntEnum):
    """``enum ibv_wc_status``."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_EEC_OP_ERR = 3
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    FATAL_ERR = 19
    GENERAL_ERR = 21


class WcOpcode(IntEnum):
    """``enum ibv_wc_opcode``."""

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    COMP_SWAP = 3
    FETCH_ADD = 4
    BIND_MW = 5
    LOCAL_INV = 6
    REG_MR = 10  # of kernels
    RECV = 128
    RECV_RDMA_WITH_IMM = 129


class CqeFlag(IntEnum):
    """``enum ibv_wc_flags``."""

    GRH = 1
    WITH_IMM = 2
    WITH_INV = 8


class Syndrome(IntEnum):
    """Verbena's ``vendor_err``.

    1 to 7 are the access check's verdicts (:class:`verbena.hdl.abi.tables.AccessStatus`).
    """

    NONE = 0
    KEY = 1
    PD = 2
    RANGE = 3
    RIGHTS = 4
    PAGE = 5
    POISONED = 6
    BUS = 7
    OPCODE = 16
    LENGTH = 17
    SGE_COUNT = 18
    REMOTE_NAK = 19
    FLUSHED = 20
    RECV_TOO_SHORT = 21
    RING_BUS = 22
