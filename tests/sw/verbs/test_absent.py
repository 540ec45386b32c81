"""What the engine does not have: objects that describe it, and calls that refuse."""

import errno

import pytest
from verbena.sw.verbs import fork
from verbena.sw.verbs.flow import FlowAttr
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.srq import OpsWr, SrqAttr, SrqInitAttr, SrqInitAttrEx
from verbena.sw.verbs.wq import WQ, WQAttr, WQInitAttr
from verbena.sw.verbs.wr import SGE
from verbena.sw.verbs.xrcd import XRCD, XRCDInitAttr


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: XRCD("context", XRCDInitAttr(3, 0, -1)), "Failed to allocate XRCD"),
        (lambda: WQ("context", WQInitAttr()), "Failed to create WQ"),
    ],
)
def test_it_cannot_be_made(make, text):
    with pytest.raises(PyverbsRDMAError) as caught:
        make()
    assert str(caught.value) == f"{text}. Errno: 95, Operation not supported"
    assert caught.value.error_code == errno.EOPNOTSUPP


def test_shared_receive_queues_are_described():
    attr = SrqAttr(5, 6, 7)
    for init in (SrqInitAttr(attr), SrqInitAttrEx(5, 6, 7)):
        assert (init.max_wr, init.max_sge, init.srq_limit) == (5, 6, 7)
    attr.max_wr = 9
    assert SrqInitAttr(attr).max_wr == 9
    assert SrqInitAttr().max_wr == 100
    extended = SrqInitAttrEx()
    assert (extended.comp_mask, extended.srq_type, extended.pd, extended.xrcd, extended.cq) == (0, 0, None, None, None)
    ops = OpsWr(1, num_sge=1, sg_list=[SGE(1, 2, 3), SGE(4, 5, 6)], tag=7)
    assert (ops.wr_id, ops.flags, ops.tag, [sge.addr for sge in ops.sg_list]) == (1, 1, 7, [1])
    assert OpsWr().sg_list == []


def test_the_rest_is_described():
    assert vars(XRCDInitAttr(1, 2, 3)) == {"comp_mask": 1, "oflags": 2, "fd": 3}
    assert vars(WQAttr(1, 2, 3, 4, 5)) == dict(
        zip(("attr_mask", "wq_state", "curr_wq_state", "flags", "flags_mask"), range(1, 6))
    )
    assert (WQInitAttr(wq_pd="pd").pd, WQInitAttr().max_wr) == ("pd", 100)
    assert (FlowAttr(flow_type=3).type, FlowAttr().specs) == (3, [])


def test_forks_are_safe():
    assert fork.fork_init() is None
    assert fork.is_fork_initialized().name == "IBV_FORK_UNNEEDED"
