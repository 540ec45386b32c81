"""Modules that only describe, or only refuse: a program that imports them goes on."""

import errno

import pytest
from verbena.sw.verbs.dma_util import mmio_write64_as_be, udma_from_dev_barrier, udma_to_dev_barrier
from verbena.sw.verbs.dmabuf import DmaBuf, DrmDmaBuf, GpuType, HabanaLabsDmaBuf
from verbena.sw.verbs.libibverbs_enums import IBV_FLOW_SPEC_ETH, IBV_FLOW_SPEC_INNER, IBV_FLOW_SPEC_TCP
from verbena.sw.verbs.mem_alloc import posix_memalign, read
from verbena.sw.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError
from verbena.sw.verbs.spec import EthSpec, Ipv4ExtSpec, Ipv6Spec, Spec, TcpUdpSpec


def test_what_is_given_counts_whole():
    eth = EthSpec(dst_mac="AA:bb:1:2:3:4", ether_type=0x800, ether_type_mask=0xF0)
    assert (eth.dst_mac, eth.dst_mac_mask) == ("aa:bb:01:02:03:04", "ff:ff:ff:ff:ff:ff")
    assert (eth.src_mac, eth.src_mac_mask) == ("00:00:00:00:00:00",) * 2
    assert (eth.ether_type, eth.ether_type_mask, eth.vlan_tag, eth.vlan_tag_mask) == (0x800, 0xF0, 0, 0)
    assert (eth.spec_type, eth.size) == (IBV_FLOW_SPEC_ETH, 40)
    eth.src_mac = "1:2:3:4:5:6"
    assert eth.src_mac == "01:02:03:04:05:06"
    ip = Ipv4ExtSpec(dst_ip="10.0.0.1", src_ip="10.1.0.0", src_ip_mask="255.255.0.0", ttl=9, is_inner=True)
    assert (ip.dst_ip_mask, ip.src_ip, ip.src_ip_mask, ip.ttl_mask) == (
        "255.255.255.255",
        "10.1.0.0",
        "255.255.0.0",
        255,
    )
    assert ip.spec_type & IBV_FLOW_SPEC_INNER
    six = Ipv6Spec("fe80::1", flow_label=5)
    assert (six.dst_ip, six.flow_label_mask, six.src_ip_mask) == ("fe80::1", 0xFFFFF, "::")
    ports = TcpUdpSpec(IBV_FLOW_SPEC_TCP, dst_port=80)
    assert (ports.dst_port, ports.dst_port_mask, ports.src_port_mask) == (80, 0xFFFF, 0)
    assert "IBV_FLOW_SPEC_INNER IBV_FLOW_SPEC_IPV4_EXT" in str(ip)
    assert "dst_port        : 80                   65535" in str(ports)
    assert (ip.size, six.size, ports.size) == (32, 88, 16)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (Spec, NotImplementedError, "abstract"),
        (lambda: EthSpec("aa:bb"), PyverbsUserError, "'aa:bb' is no MAC address"),
        (lambda: EthSpec("aa:bb:cc:dd:ee:1ff"), PyverbsUserError, "is no MAC address"),
        (lambda: EthSpec(vlan_tag=1 << 16), PyverbsUserError, "must be an integer from 0 to 0xffff"),
        (lambda: Ipv4ExtSpec("10.0.0.256"), PyverbsUserError, "is no address of IPv4Address"),
        (lambda: TcpUdpSpec(IBV_FLOW_SPEC_ETH), PyverbsError, "must be IBV_FLOW_SPEC_TCP or IBV_FLOW_SPEC_UDP"),
        (lambda: Spec.type_to_str(0x7777), PyverbsError, "is not implemented yet"),
    ],
)
def test_what_is_wrong(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_barriers_and_doorbells():
    at = posix_memalign(8)
    udma_to_dev_barrier()
    mmio_write64_as_be(at, 0x0102030405060708)
    udma_from_dev_barrier()
    assert read(at, 8) == bytes(range(1, 9))


@pytest.mark.parametrize("make", [lambda: DmaBuf(64), lambda: DrmDmaBuf(64, gpu=1), lambda: HabanaLabsDmaBuf(64)])
def test_memory_of_others(make):
    with pytest.raises(PyverbsRDMAError) as caught:
        make()
    assert caught.value.error_code == errno.EOPNOTSUPP
    assert GpuType.habana.value == 1
