"""Texts of numbers."""

import pytest
from verbena.sw.verbs import utils as u
from verbena.sw.verbs.pyverbs_error import PyverbsUserError

MAPPED = "0000:0000:0000:0000:0000:ffff:c0a8:0001"


def test_gids():
    assert u.be64toh(1) == 1 << 56
    assert u.gid_str(0, int.from_bytes(bytes.fromhex("0000ffffc0a80001"), "little")) == MAPPED
    assert "".join(u.gid_str_to_array(MAPPED)) == "0000" * 5 + "ffffc0a80001"
    assert {len(byte) for byte in u.gid_str_to_array(MAPPED)} == {2}


@pytest.mark.parametrize("text", ["", "::1", MAPPED[1:], MAPPED + ":0000", MAPPED.replace("c0a8", "c0g8")])
def test_no_gid(text):
    with pytest.raises(PyverbsUserError, match="Invalid GID value"):
        u.gid_str_to_array(text)


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (u.qp_type_to_str, 2, "RC"),
        (u.qp_type_to_str, 255, "Driver QP"),
        (u.qp_type_to_str, 7, "Unknown (7)"),
        (u.qp_state_to_str, 0, "Reset"),
        (u.qp_state_to_str, 6, "Error"),
        (u.qp_state_to_str, 9, "Unknown (9)"),
        (u.mtu_to_str, 3, 1024),
        (u.mtu_to_str, 9, 0),
        (u.access_flags_to_str, 0, ""),
        (u.access_flags_to_str, 31, "Local write Remote write Remote read Remote atomic MW bind "),
        (u.access_flags_to_str, 32 + 64, "Zero based On demand "),
        (u.mig_state_to_str, 1, "Re-arm"),
        (u.mig_state_to_str, 3, "Unknown (3)"),
        (u.rereg_error_to_str, -4, "IBV_REREG_MR_ERR_CMD"),
        (u.rereg_error_to_str, 1, "Unknown error (1)"),
    ],
)
def test_texts(function, value, text):
    assert function(value) == text
