"""Attributes of queue pairs."""

import errno

import pytest
from verbena.hdl.abi.gids import GidType
from verbena.sw.gids import OwnGid
from verbena.sw.verbs.addr import AHAttr, GlobalRoute
from verbena.sw.verbs.libibverbs_enums import ibv_qp_attr_mask
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp_attr import FIELDS, QPAttr, QPCap, QPInitAttr, check_values

M = ibv_qp_attr_mask


def test_defaults():
    cap = {"max_send_wr": 1, "max_recv_wr": 10, "max_send_sge": 1, "max_recv_sge": 1, "max_inline_data": 0}
    assert vars(QPCap()) == cap
    init = QPInitAttr()
    assert vars(init.cap) == cap
    assert (init.qp_type, init.sq_sig_all, init.send_cq, init.recv_cq, init.srq, init.qp_context) == (4, 1, *[None] * 4)
    attr = QPAttr()
    assert (attr.qp_state, attr.cur_qp_state, attr.port_num, attr.path_mtu) == (1, 0, 1, 3)
    names = """path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags pkey_index en_sqd_async_notify sq_draining
    max_rd_atomic max_dest_rd_atomic min_rnr_timer timeout retry_cnt rnr_retry alt_pkey_index alt_port_num alt_timeout
    rate_limit"""
    assert {getattr(attr, name) for name in names.split()} == {0}
    assert attr.ah_attr.is_global == attr.alt_ah_attr.is_global == 0


def test_capacities_are_a_copy():
    cap = QPCap(5)
    init = QPInitAttr(cap=cap)
    cap.max_send_wr = 6
    init.cap.max_send_wr = 7
    assert init.max_send_wr == init.cap.max_send_wr == 5
    init.max_send_wr = 8
    init.max_inline_data = 9
    assert (init.cap.max_send_wr, init.cap.max_inline_data) == (8, 9)
    init.cap = cap
    assert init.max_send_wr == 6
    assert "max_send_wr 6" in str(cap)


GIDS = [OwnGid(0xFFFF << 32 | 0x0A000001, GidType.ROCE_V2_IPV4)]
PKEYS = [0xFFFF, *[0x8001] * 7]


def test_every_field_exists():
    assert all(hasattr(QPAttr(), name) for name in FIELDS.values())


def test_only_what_the_mask_names_is_looked_at():
    attr = QPAttr()
    attr.timeout, attr.port_num = 99, 7
    check_values(attr, M.IBV_QP_STATE | M.IBV_QP_RETRY_CNT, GIDS, PKEYS)
    for mask in (M.IBV_QP_TIMEOUT, M.IBV_QP_PORT, M.IBV_QP_AV):
        with pytest.raises(PyverbsRDMAError, match=M(mask).name) as caught:
            check_values(attr, mask, GIDS, PKEYS)
        assert caught.value.error_code == errno.EINVAL


LIMITS = {
    "qp_access_flags": (0, (1 << 32) - 1),
    "pkey_index": (0, 7),
    "port_num": (1, 1),
    "path_mtu": (1, 5),
    "timeout": (0, 31),
    "retry_cnt": (0, 7),
    "rnr_retry": (0, 7),
    "rq_psn": (0, 0xFFFFFF),
    "sq_psn": (0, 0xFFFFFF),
    "max_rd_atomic": (0, 16),
    "max_dest_rd_atomic": (0, 16),
    "min_rnr_timer": (0, 31),
    "dest_qp_num": (0, 0xFFFFFF),
    "qkey": (0, 0xFFFFFFFF),
}


@pytest.mark.parametrize("name", LIMITS)
def test_numbers_out_of_range_are_named(name):
    assert set(LIMITS) == set(FIELDS.values()) - {"ah_attr"}
    attr = QPAttr()
    mask = next(bit for bit, field in FIELDS.items() if field == name)
    for good in LIMITS[name]:
        setattr(attr, name, good)
        check_values(attr, mask, GIDS, PKEYS)
    for bad in (LIMITS[name][0] - 1, LIMITS[name][1] + 1, 1.5, "1"):
        setattr(attr, name, bad)
        with pytest.raises(PyverbsRDMAError) as caught:
            check_values(attr, mask, GIDS, PKEYS)
        assert f"{name} must be" in str(caught.value)
        assert f"not {bad!r}" in str(caught.value)
        assert caught.value.error_code == errno.EINVAL


def test_a_route_out_of_range_is_told():
    attr = QPAttr()
    for field, bad in (("flow_label", 1 << 20), ("hop_limit", 256), ("traffic_class", -1), ("sgid_index", 1)):
        route = GlobalRoute(dgid="::ffff:10.0.0.1")
        setattr(route, field, bad)
        attr.ah_attr = AHAttr(is_global=1, gr=route)
        with pytest.raises(PyverbsRDMAError, match=f"{field} {bad}"):
            check_values(attr, M.IBV_QP_AV, GIDS, PKEYS)


def test_an_empty_row_of_the_pkeys_is_told():
    attr = QPAttr()
    attr.pkey_index = 3
    check_values(attr, M.IBV_QP_PKEY_INDEX, GIDS, PKEYS)
    with pytest.raises(PyverbsRDMAError, match="row 3 of the P_Keys is empty"):
        check_values(attr, M.IBV_QP_PKEY_INDEX, GIDS, [0xFFFF, 0, 0, 0])
