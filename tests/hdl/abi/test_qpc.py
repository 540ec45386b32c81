"""The QP context table: the driver's words, and the size of a record."""

import pytest
from verbena.hdl.abi.qpc import QP_DOORBELLS, QPC_DRIVER, QPC_WORDS, qpc_bytes


def test_the_two_indices_are_halves_of_a_word_that_do_not_share_a_byte():
    assert QP_DOORBELLS.size == QPC_DRIVER == 64
    assert QP_DOORBELLS.pack(sq_producer=0x1122, rq_producer=0x3344) == bytes.fromhex("22114433") + bytes(60)
    assert [field.offset % 8 for field in QP_DOORBELLS.fields.values()] == [0, 0]


@pytest.mark.parametrize("window", [1, 4, 16, 32, 47, 48, 49, 64, 128, 1024])
def test_a_record_is_the_least_power_of_two_that_holds_it(window):
    size = qpc_bytes(window)
    assert size & size - 1 == 0
    assert size // 2 < QPC_DRIVER + 8 * (QPC_WORDS + window) <= size


def test_sizes_of_the_usual_windows():
    assert [qpc_bytes(window) for window in (16, 48, 49, 64, 128)] == [2048, 2048, 4096, 4096, 4096]


def test_no_record_crosses_a_page_but_a_large_one():
    """Records are aligned to their size, and so each stands in one page of 4 KiB, or begins one."""
    for window in (16, 64, 255):
        assert 4096 % qpc_bytes(window) == 0 or qpc_bytes(window) % 4096 == 0
