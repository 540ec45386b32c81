"""When membership in a group is reported."""

import pytest
from sides import NEAR, NEAR6, Side
from verbena.hdl.abi.gids import GidType
from verbena.sw.cm.address_vector import AddressVector
from verbena.sw.cm.membership_report import ROUTERS, ROUTERS6, report
from verbena.sw.gids import OwnGid, mapped

GROUP, GROUP6 = mapped(0xEF010203), 0xFF0E << 112 | 5


@pytest.fixture
def side(wire):
    return Side(wire, "near", NEAR)


def reports(side):
    """What was sent since the last call."""
    found, side.frames.sent = side.frames.sent, []
    return found


@pytest.mark.parametrize(
    ("index", "group", "routers", "source"),
    [(0, GROUP, ROUTERS, NEAR), (1, GROUP6, ROUTERS6, 0)],  # NEAR6 is not link-local
)
def test_the_first_who_joins_and_the_last_who_leaves(wire, side, index, group, routers, source):
    """Each is reported twice, the second time within a second."""
    vector, row = AddressVector(index, group), side.manager.gids[index]
    for change, others, joins in (
        (side.manager.join, [side.manager.join, side.manager.leave], True),
        (side.manager.leave, [], False),
    ):
        told = (report(source, group, joins), routers, row)
        start = wire.now
        change(vector)
        assert reports(side) == [told]
        assert wire.next()
        assert 0 < wire.now - start <= 1000
        assert reports(side) == [told]
        assert not wire.next()
        for other in others:
            other(vector)
        assert reports(side) == []
    assert not side.manager._memberships


@pytest.mark.parametrize(("index", "group", "source"), [(0, GROUP, NEAR), (1, GROUP6, 0)])
def test_a_member_is_told_of_now_and_then(wire, side, index, group, source):
    """Every 100 seconds, as long as it is one; but nobody waits for that."""
    vector = AddressVector(index, group)
    side.manager.join(vector)
    while wire.next():
        pass
    reports(side)
    for after, told in ((99_999, 0), (1, 1), (99_999, 0), (200_000, 1)):
        wire.now += after
        side.manager.work()
        assert [frame[0] for frame in reports(side)] == [report(source, group, True, stays=True)] * told
        assert side.manager.due is None
    side.manager.leave(vector)
    while wire.next():
        pass
    reports(side)
    wire.now += 100_000
    side.manager.work()
    assert reports(side) == []


def test_who_joins_again_at_once(wire, side):
    """What is repeated is what holds now."""
    vector = AddressVector(0, GROUP)
    for change in (side.manager.join, side.manager.leave, side.manager.join):
        change(vector)
    assert [frame[0] for frame in reports(side)] == [report(NEAR, GROUP, joins) for joins in (True, False, True)]
    while wire.next():
        pass
    assert [frame[0] for frame in reports(side)] == [report(NEAR, GROUP, True)]
    side.manager.leave(vector)


def test_a_link_local_address_tells_of_ipv6(side):
    """That of the same VLAN."""
    local = [0xFE80 << 112 | number for number in (1, 2)]
    side.manager.gids += [OwnGid(local[0], GidType.ROCE_V2_IPV6, 100), OwnGid(local[1], GidType.ROCE_V2_IPV6)]
    side.manager.join(AddressVector(1, GROUP6))
    assert side.manager.gids[1].gid == NEAR6
    assert reports(side)[0][0] == report(local[1], GROUP6, True)


def test_without_its_qp1_it_says_nothing(side):
    side.mads.open = False
    side.manager.join(AddressVector(0, GROUP))
    assert reports(side) == []
