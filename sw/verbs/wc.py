"""Work completions; :mod:`.cq` hands them out."""

from .base import PyverbsObject
from .libibverbs_enums import ibv_wc_flags, ibv_wc_opcode, ibv_wc_status
from .naming import flags_of, name_of, names_of

__all__ = ["WC", "cqe_flags_to_str", "cqe_opcode_to_str", "cqe_status_to_str"]


class WC(PyverbsObject):
    """A work completion. If ``status`` is not 0, only wr_id, status, qp_num and vendor_err count.

    ``vendor_err`` is a :class:`verbena.hdl.abi.cqe.Syndrome`; ``imm_data`` is in network order, or, with
    IBV_WC_WITH_INV in ``wc_flags``, the key that the peer has invalidated.
    """

    def __init__(
        self,
        wr_id=0,
        status=0,
        opcode=0,
        vendor_err=0,
        byte_len=0,
        qp_num=0,
        src_qp=0,
        imm_data=0,
        wc_flags=0,
        pkey_index=0,
        slid=0,
        sl=0,
        dlid_path_bits=0,
    ):
        self.wr_id = wr_id
        self.status = status
        self.opcode = opcode
        self.vendor_err = vendor_err
        self.byte_len = byte_len
        self.qp_num = qp_num
        self.src_qp = src_qp
        self.imm_data = imm_data
        self.wc_flags = wc_flags
        self.pkey_index = pkey_index
        self.slid = slid
        self.sl = sl
        self.dlid_path_bits = dlid_path_bits

    def __repr__(self):
        head = f"WC(wr_id={self.wr_id}, status={cqe_status_to_str(self.status)}, "
        tail = f"qp_num={self.qp_num:#x}, vendor_err={self.vendor_err})"
        if self.status:
            return head + tail
        return (
            f"{head}opcode={cqe_opcode_to_str(self.opcode)}, byte_len={self.byte_len}, "
            f"wc_flags={flags_of(ibv_wc_flags, self.wc_flags)}, imm_data={self.imm_data:#x}, {tail}"
        )


def cqe_status_to_str(status):
    """Name of a completion's status."""
    return name_of(ibv_wc_status, status)


def cqe_opcode_to_str(opcode):
    """Name of a completion's operation."""
    return name_of(ibv_wc_opcode, opcode)


def cqe_flags_to_str(flags):
    """Names of a completion's flags, each followed by a space."""
    return "".join(f"{name} " for name in names_of(ibv_wc_flags, flags))
