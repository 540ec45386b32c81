"""What the engine tells of itself."""

import pytest
from verbena.hdl.abi import registers as abi
from verbena.hdl.config import Config
from verbena.hdl.control.identity import Identity


def test_what_a_config_has_is_told():
    """Names that both know, and those that the registers call otherwise."""
    plain = Identity.of(Config())
    assert (plain.qps, plain.table, plain.gids, plain.raw, plain.event_table) == (1 << 14, True, False, False, False)
    assert plain.words["transports"] == 0b11100 | 7 << 24
    full = Identity.of(
        Config(ipv6=True, roce_v1=True, multicast=True, raw_packets=True, key_operations=True, srqs=16, event_queues=4)
    )
    assert (full.gids, full.raw, full.event_table, full.srqs) == (True, True, True, 16)
    for bit in (abi.ROCE_V1, abi.MULTICAST, abi.KEY_OPERATIONS):
        assert full.words["transports"] & bit
        assert not plain.words["transports"] & bit
    assert full.words["queues"] == 16 | 2 << abi.LOG_EVENT_QUEUES


@pytest.mark.parametrize(
    ("change", "register", "bit"),
    [
        ({"requests": False, "atomics": False}, "capabilities", abi.RESPONDS_ONLY),
        ({"physical": True}, "capabilities", abi.PHYSICAL),
        ({"cq_moderation": True}, "queues", abi.CQ_MODERATION),
        ({"interrupt_moderation": True}, "queues", abi.INTERRUPT_MODERATION),
    ],
)
def test_each_switch_has_a_bit(change, register, bit):
    sizes = {"data_width": 64, "qps": 4, "cqs": 2, "window": 16}
    assert Identity(**sizes, **change).words[register] & bit
    assert not Identity(**sizes).words[register] & bit
