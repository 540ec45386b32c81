"""Attributes of devices and ports, and their texts."""

import pytest
from fake_device import FakeDevice
from verbena.sw.adapter import Adapter
from verbena.sw.verbs import device_attr as d
from verbena.sw.verbs.addr import GID
from verbena.sw.verbs.libibverbs_enums import ibv_gid_type
from verbena.sw.verbs.limits import MAX_CQE, MAX_MR, MAX_QP_WR

SCALARS = """
fw_version node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id hw_ver max_qp max_qp_wr
device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom max_res_rd_atom
max_qp_init_rd_atom max_ee_init_rd_atom atomic_caps max_ee max_rdd max_mw max_raw_ipv6_qps max_raw_ethy_qp
max_mcast_grp max_mcast_qp_attach max_ah max_fmr max_map_per_fmr max_srq max_srq_wr max_srq_sge max_pkeys
local_ca_ack_delay phys_port_cnt
"""


@pytest.fixture
def attr():
    return d.DeviceAttr(Adapter(FakeDevice()))


def test_device(attr):
    assert not [name for name in SCALARS.split() if not hasattr(attr, name)]
    assert (attr.max_qp, attr.max_cq) == (8, 4)
    assert (attr.max_qp_wr, attr.max_cqe, attr.max_mr) == (MAX_QP_WR, MAX_CQE, MAX_MR) == (16384, 32768, 16383)
    assert (attr.max_sge, attr.phys_port_cnt, attr.max_pkeys) == (6, 1, 8)
    assert attr.page_size_cap & 4096
    assert attr.vendor_id not in (0x02C9, 0x1D0F, 0x8086)
    assert attr.atomic_caps == 1
    assert attr.max_qp_rd_atom == attr.max_qp_init_rd_atom == 16
    assert (attr.max_res_rd_atom, attr.max_sge_rd) == (63, 6)
    assert (attr.max_srq, attr.max_srq_wr, attr.max_srq_sge) == (2, 16384, 7)
    assert attr.max_mw == attr.max_mcast_grp == 0
    assert attr.max_ah == (1 << 31) - 1
    assert attr.device_cap_flags == 1 << 7 | 1 << 10 | 1 << 11 | 1 << 12
    assert "IBV_DEVICE_RC_RNR_NAK_GEN" in str(attr)
    assert "0056:42ff:fe00:00a1" in str(attr)


@pytest.mark.parametrize(("log_responses", "most"), [(6, 63), (8, 128)])
def test_what_the_peers_may_have_outstanding(log_responses, most):
    """The pool, of which one row stays free; or what 8 QPs may have, if that is less."""
    attr = d.DeviceAttr(Adapter(FakeDevice(log_responses=log_responses)))
    assert attr.max_res_rd_atom == most


def test_a_device_without_shared_receive_queues():
    attr = d.DeviceAttr(Adapter(FakeDevice(srqs=0)))
    assert attr.max_srq == attr.max_srq_wr == attr.max_srq_sge == 0


def test_a_device_with_raw_packet_queues(attr):
    assert attr.max_raw_ethy_qp == 0
    assert d.DeviceAttr(Adapter(FakeDevice(raw=True))).max_raw_ethy_qp == attr.max_qp


def test_a_device_without_atomics():
    attr = d.DeviceAttr(Adapter(FakeDevice(atomics=False)))
    assert attr.atomic_caps == 0


def test_guid_is_in_network_order(attr):
    assert attr.node_guid.to_bytes(8, "little").hex() == "005642fffe0000a1"
    assert d.guid_format(attr.node_guid) == "0056:42ff:fe00:00a1"


def test_port():
    attr = d.PortAttr()
    assert (attr.state, attr.phys_state, attr.link_layer, attr.lid) == (4, 5, 2, 0)
    assert (attr.max_mtu, attr.active_mtu, attr.max_msg_sz) == (5, 5, 1 << 31)
    assert (attr.gid_tbl_len, attr.pkey_tbl_len) == (1, 8)
    assert attr.active_width in (1, 2, 4, 8, 16)
    text = str(attr)
    for part in ("4096 (5)", "Active (4)", "Ethernet", "Link up (5)", "1X (1)", "10.0 Gbps (4)"):
        assert part in text


@pytest.mark.parametrize(("mtu", "active"), [(256, 1), (1024, 3), (4096, 5)])
def test_the_networks_mtu(mtu, active):
    attr = d.PortAttr(mtu=mtu)
    assert (attr.max_mtu, attr.active_mtu) == (5, active)


def test_gid_entry():
    entry = d.GIDEntry.of(GID("fe80::1122:3344"), 3, 1, ibv_gid_type.IBV_GID_TYPE_ROCE_V2)
    assert entry.gid_subnet_prefix.to_bytes(8, "little").hex() == "fe80000000000000"
    assert entry.gid_interface_id.to_bytes(8, "little").hex() == "0000000011223344"
    assert entry.gid_str() == "fe80:0000:0000:0000:0000:0000:1122:3344"
    assert (entry.gid_index, entry.port_num, entry.gid_type, entry.ndev_ifindex) == (3, 1, 2, 0)
    assert entry.gid_str() in str(entry)
    assert "RoCEv2" in str(entry)
    assert "RoCEv1" in str(d.GIDEntry.of(GID("fe80::1"), 3, 1, ibv_gid_type.IBV_GID_TYPE_ROCE_V1))
    assert vars(d.GIDEntry(1, 2, 3, 4, 5, 6)) == dict(
        zip(("gid_subnet_prefix", "gid_interface_id", "gid_index", "port_num", "gid_type", "ndev_ifindex"), range(1, 7))
    )


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (d.translate_mtu, 3, "1024 (3)"),
        (d.translate_mtu, 9, "Invalid MTU (9)"),
        (d.translate_link_layer, 1, "InfiniBand"),
        (d.translate_link_layer, 7, "Invalid link layer (7)"),
        (d.phys_state_to_str, 2, "Polling (2)"),
        (d.phys_state_to_str, 0, "Invalid physical state (0)"),
        (d.width_to_str, 2, "4X (2)"),
        (d.width_to_str, 3, "Invalid width (3)"),
        (d.speed_to_str, 32, "25.0 Gbps (32)"),
        (d.speed_to_str, 3, "Invalid speed (3)"),
        (d.port_state_to_str, 1, "Down (1)"),
        (d.port_state_to_str, 9, "Invalid state (9)"),
        (d.translate_event_type, 3, "IBV_EVENT_QP_ACCESS_ERR"),
        (d.translate_event_type, 99, "Unknown event (99)"),
        (d.translate_gid_type, 2, "RoCEv2"),
        (d.translate_gid_type, 9, "Unknown gid_type (9)"),
        (d.translate_node_type, 1, "CA"),
        (d.translate_node_type, 6, "USNIC UDP"),
        (d.translate_node_type, -1, "Unknown"),
        (d.translate_node_type, 99, "Unknown"),
        (d.translate_transport_type, 0, "IB"),
        (d.translate_transport_type, 1, "IWARP"),
        (d.translate_device_caps, 0, "0"),
        (d.translate_device_caps, 3, "\n  IBV_DEVICE_RESIZE_MAX_WR\n  IBV_DEVICE_BAD_PKEY_CNTR"),
        (d.translate_port_cap_flags, 1 << 26, "\n  IBV_PORT_IP_BASED_GIDS"),
        (d.translate_port_cap_flags2, 1, "\n  IBV_PORT_SET_NODE_DESC_SUP"),
        (d.guid_to_hex, 0xAB0, "ab0"),
    ],
)
def test_texts(function, value, text):
    assert function(value) == text
