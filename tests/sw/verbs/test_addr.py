"""GIDs and routes."""

import pytest
from verbena.sw.verbs.addr import GID, AHAttr, GlobalRoute
from verbena.sw.verbs.pyverbs_error import PyverbsUserError

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
