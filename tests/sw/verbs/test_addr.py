"""GIDs and routes."""

import errno

import pytest
from verbena.sw.verbs.addr import AH, GID, GRH, AHAttr, GlobalRoute
from verbena.sw.verbs.cq import WC
from verbena.sw.verbs.mem_alloc import posix_memalign, write
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

MAPPED = "0000:0000:0000:0000:0000:ffff:c0a8:0001"


@pytest.mark.parametrize("text", [MAPPED, "::ffff:192.168.0.1", "::ffff:c0a8:1", "::FFFF:C0A8:0001"])
def test_a_gid_is_eight_groups(text):
    gid = GID(text)
    assert gid.gid == str(gid) == MAPPED
    assert gid.ipv4 == 0xC0A80001
    assert gid == GID.from_ipv4(0xC0A80001)
    assert hash(gid) == hash(GID(gid))
    assert int(gid) == 0xFFFFC0A80001
    assert MAPPED in repr(gid)


def test_other_gids():
    assert GID().gid == "0000:" * 7 + "0000"
    assert GID().ipv4 is None
    assert GID("fe80::1").ipv4 is None
    assert GID("fe80::1") != GID("fe80::2")
    assert GID("fe80::1") != "fe80::1"
    gid = GID()
    gid.gid = "fe80::1"
    assert gid == GID("fe80::1")


@pytest.mark.parametrize("text", ["", "192.168.0.1", "hello", "1:2:3", MAPPED + ":0"])
def test_no_gid(text):
    with pytest.raises(PyverbsUserError, match="Invalid GID"):
        GID(text)
    with pytest.raises(PyverbsUserError):
        GlobalRoute().dgid = text


def test_a_route_reads_as_text():
    route = GlobalRoute(GID(MAPPED), 1, 2, 3, 4)
    assert route.dgid == MAPPED
    assert (route.flow_label, route.sgid_index, route.hop_limit, route.traffic_class) == (1, 2, 3, 4)
    route.dgid = "fe80::1"
    assert route.dgid == GID("fe80::1").gid
    assert GlobalRoute().hop_limit == 1


def test_attributes_with_a_route_of_their_own():
    route = GlobalRoute(GID(MAPPED), 1, 2, 3, 4)
    attr = AHAttr(dlid=5, sl=6, src_path_bits=7, static_rate=8, is_global=1, port_num=2, gr=route)
    route.hop_limit = 99
    route.dgid = "::1"
    assert (attr.dlid, attr.sl, attr.src_path_bits, attr.static_rate, attr.port_num) == (5, 6, 7, 8, 2)
    names = ("dgid", "flow_label", "sgid_index", "hop_limit", "traffic_class")
    assert [getattr(attr, name) for name in names] == [MAPPED, 1, 2, 3, 4]
    attr.dgid, attr.flow_label, attr.sgid_index, attr.hop_limit, attr.traffic_class = "::2", 11, 12, 13, 14
    assert [getattr(attr, name) for name in names] == [GID("::2").gid, 11, 12, 13, 14]


def test_attributes_without_a_route():
    attr = AHAttr()
    assert attr.is_global == 0
    assert attr.dgid is attr.hop_limit is None
    with pytest.raises(PyverbsUserError, match="gr parameter is None"):
        AHAttr(is_global=1)


IPV6 = bytes.fromhex("6bc1234500303a09") + bytes.fromhex("fe800000000000000000000000000001" * 2)
"""Traffic class 0xbc, flow label 0x12345, 48 bytes, next header 58, 9 hops."""

IPV4 = bytes(20) + bytes.fromhex("45bc0054000040000711000" + "00" + "a0000a20a0000a1")
"""TOS 0xbc, 84 bytes, TTL 7, UDP, from 10.0.0.162 to 10.0.0.161."""


def test_a_grh():
    grh = GRH(GID("fe80::1"), GID("fe80::2"), 1, 2, 3)
    assert (grh.sgid, grh.dgid) == (GID("fe80::1").gid, GID("fe80::2").gid)
    assert (grh.version_tclass_flow, grh.paylen, grh.next_hdr, grh.hop_limit) == (1, 2, 3, 1)
    grh.sgid, grh.dgid = "fe80::3", "fe80::4"
    assert "fe80:0000:0000:0000:0000:0000:0000:0003" in str(grh)
    assert grh.dgid == GID("fe80::4").gid


def test_a_grh_in_memory():
    grh = GRH.unpack(IPV6)
    assert grh.version_tclass_flow.to_bytes(4, "little") == IPV6[:4]
    assert grh.paylen.to_bytes(2, "little") == b"\0\x30"
    assert (grh.next_hdr, grh.hop_limit, grh.sgid) == (58, 9, GID("fe80::1").gid)
    grh = GRH.unpack(IPV4)
    assert (grh.sgid, grh.dgid) == (GID("::ffff:10.0.0.162").gid, GID("::ffff:10.0.0.161").gid)
    assert grh.version_tclass_flow.to_bytes(4, "little").hex() == "6bc00000"
    assert (grh.paylen.to_bytes(2, "little").hex(), grh.next_hdr, grh.hop_limit) == ("0040", 17, 7)


PEER = "::ffff:10.0.0.162"


def test_an_address_handle(device, context, pd):
    attr = AHAttr(is_global=1, gr=GlobalRoute(GID(PEER), hop_limit=64))
    with AH(pd, attr=attr) as ah:
        attr.dgid = "::1"
        assert "10.0.0.162" not in str(ah)
        assert GID(PEER).gid in str(ah)
        assert f"{device.neighbours[0x0A0000A2]:012x}" in str(ah)
    ah = AH(pd, attr=AHAttr(is_global=1, gr=GlobalRoute(PEER)))
    pd.close()
    assert ah._closed


@pytest.mark.parametrize("given", ["GRH", "buffer"])
def test_the_way_back(pd, given):
    at = posix_memalign(64)
    write(at, IPV4)
    grh = GRH.unpack(IPV4) if given == "GRH" else at
    ah = AH(pd, wc=WC(wc_flags=1), grh=grh, port_num=1)
    assert (ah._attr.dgid, ah._attr.traffic_class, ah._attr.hop_limit) == (GID(PEER).gid, 0xBC, 255)


def no_handle(code, pd, **kwargs):
    with pytest.raises(PyverbsRDMAError, match="Failed to create AH") as caught:
        AH(pd, **kwargs)
    assert caught.value.error_code == code


def test_no_address_handle(pd):
    no_handle(errno.EINVAL, pd, attr=AHAttr())
    no_handle(errno.EINVAL, pd, attr=AHAttr(is_global=1, port_num=2, gr=GlobalRoute(PEER)))
    no_handle(errno.EINVAL, pd, attr=AHAttr(is_global=1, gr=GlobalRoute("fe80::1")))
    no_handle(errno.EINVAL, pd, wc=WC(), grh=GRH(PEER), port_num=1)
    no_handle(errno.EINVAL, pd, wc=WC(wc_flags=1), port_num=1)
    no_handle(errno.EFAULT, pd, wc=WC(wc_flags=1), grh=4096, port_num=1)
    for kwargs in ({}, {"attr": AHAttr(), "wc": WC()}):
        with pytest.raises(PyverbsUserError, match="either attr or wc"):
            AH(pd, **kwargs)
