"""Texts of numbers, as pyverbs has them."""

import sys

from .libibverbs_enums import ibv_access_flags, ibv_rereg_mr_err_code
from .naming import name_of, names_of
from .pyverbs_error import PyverbsUserError

__all__ = [
    "access_flags_to_str",
    "be64toh",
    "gid_str",
    "gid_str_to_array",
    "mig_state_to_str",
    "mtu_to_str",
    "qp_state_to_str",
    "qp_type_to_str",
    "rereg_error_to_str",
]


def be64toh(num):
    """The number that the bytes of a 64-bit big-endian number are; its own inverse."""
    return int.from_bytes(num.to_bytes(8, sys.byteorder), "big")


def gid_str(subnet_prefix, interface_id):
    """Text of a GID in eight groups; both numbers are in network order, as in ``union ibv_gid``."""
    digits = f"{be64toh(subnet_prefix):016x}{be64toh(interface_id):016x}"
    return ":".join(digits[i : i + 4] for i in range(0, 32, 4))


def gid_str_to_array(val):
    """The 16 bytes of a GID of eight groups of four digits, as two hexadecimal digits each. ``PyverbsUserError``
    otherwise.
    """
    groups = val.split(":")
    if len(groups) != 8 or any(len(group) != 4 or set(group) - set("0123456789abcdefABCDEF") for group in groups):
        raise PyverbsUserError(f"Invalid GID value ({val})")
    return [group[i : i + 2] for group in groups for i in (0, 2)]


_QP_TYPES = {2: "RC", 3: "UC", 4: "UD", 8: "Raw Packet", 9: "XRCD_SEND", 10: "XRCD_RECV", 255: "Driver QP"}
_QP_STATES = ("Reset", "Init", "RTR", "RTS", "SQD", "SQE", "Error", "Unknown")
_MTUS = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
_MIG_STATES = ("Migrated", "Re-arm", "Armed")


def _entry(table, value):
    names = table if isinstance(table, dict) else dict(enumerate(table))
    return names.get(value, f"Unknown ({value})")


def qp_type_to_str(qp_type):
    """Name of a QP's type."""
    return _entry(_QP_TYPES, qp_type)


def qp_state_to_str(qp_state):
    """Name of a QP's state."""
    return _entry(_QP_STATES, qp_state)


def mtu_to_str(mtu):
    """Bytes of an ``enum ibv_mtu``, as a number; 0 if there is no such MTU."""
    return _MTUS.get(mtu, 0)


def access_flags_to_str(flags):
    """Names of access flags, each followed by a space."""
    names = [name.removeprefix("IBV_ACCESS_") for name in names_of(ibv_access_flags, flags)]
    words = [name.replace("_", " ").capitalize().replace("Mw ", "MW ") for name in names]
    return "".join(f"{word} " for word in words)


def mig_state_to_str(mig):
    """Name of a migration state."""
    return _entry(_MIG_STATES, mig)


def rereg_error_to_str(error):
    """Name of what ``ibv_rereg_mr`` returns."""
    known = error in set(ibv_rereg_mr_err_code)
    return name_of(ibv_rereg_mr_err_code, error) if known else f"Unknown error ({error})"
