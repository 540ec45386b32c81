"""Regions by bus addresses, and memory of the device itself."""

import errno
import struct

import pytest
from fake_device import FakeDevice
from verbena.sw.port import provide
from verbena.sw.verbs.device import DM, AllocDmAttr, Context
from verbena.sw.verbs.libibverbs_enums import ibv_access_flags
from verbena.sw.verbs.mr import DMMR, PhysicalMR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

A = ibv_access_flags
LOCAL, REMOTE, ZERO_BASED = A.IBV_ACCESS_LOCAL_WRITE, A.IBV_ACCESS_REMOTE_WRITE, A.IBV_ACCESS_ZERO_BASED
BUS, SIZE = 0x3C_0004_0000, 65536


class Window:
    """Memory of the device."""

    bus, size = BUS, SIZE

    def __init__(self):
        self.content = bytearray(b"?" * SIZE)

    def read(self, offset, length):
        return bytes(self.content[offset : offset + length])

    def write(self, offset, data):
        self.content[offset : offset + len(data)] = data


def opened(name="fake7", reach=64, **kwargs):
    """The device, and a context on it."""
    device = FakeDevice(name, physical=True, reach=reach)
    device.device_memory = Window()
    for key, value in kwargs.items():
        setattr(device, key, value)
    provide(name, lambda: device)
    return device, Context(name=name)


@pytest.fixture
def pair():
    device, context = opened()
    with context:
        yield device, context


def refused(code, function, *args, **kwargs):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args, **kwargs)
    assert caught.value.error_code == code
    return str(caught.value)


def entry(device, mr):
    """(address, length, first page, whether it is physical, access) as the device sees them."""
    first, address, mtt, pd, access = struct.unpack("<QQQII", device.mpt(mr.lkey >> 8))
    assert first >> 63 == 1
    assert first >> 48 & 63 == 12
    assert pd & 0xFFFFFF == mr.pd.handle
    return address, first & (1 << 48) - 1, mtt / 8, first >> 54 & 1, access & 31


def test_a_region_by_its_bus_address(pair):
    device, context = pair
    pd = PD(context)
    mr = PhysicalMR(pd, 0x1234_5678_9ABC, 10_000_000, LOCAL | REMOTE)
    assert entry(device, mr) == (0x1234_5678_9ABC, 10_000_000, 0x1_2345_6789, 1, 3)
    assert (mr.buf, mr.length, mr.lkey) == (0x1234_5678_9ABC, 10_000_000, mr.rkey)
    for call, arguments in ((mr.read, (8, 0)), (mr.write, (b"x", 1)), (mr.rereg, (1,))):
        refused(errno.EOPNOTSUPP, call, *arguments)
    with pytest.raises(PyverbsUserError, match="not within the region"):
        mr.read(8, 10_000_000)
    mr.close()
    assert device.mpt(mr.handle) == bytes(32)
    with PhysicalMR(pd, 0x7_0000_0ABC, 8, 0, iova=0xABC) as mr:
        assert entry(device, mr) == (0xABC, 8, 0x70_0000, 1, 0)
    with PhysicalMR(pd, 0x7_0000_0000, 8, ZERO_BASED) as mr:
        assert entry(device, mr) == (0, 8, 0x70_0000, 1, 0)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((0x1000, 8, REMOTE), errno.EINVAL),  # without LOCAL_WRITE
        ((0x1000, 8, A.IBV_ACCESS_ON_DEMAND), errno.EOPNOTSUPP),
        ((-1, 8, 0), errno.EINVAL),
        ((0x1000, -1, 0), errno.EINVAL),
        (((1 << 64) - 7, 8, 0), errno.EINVAL),
        ((0x1001, 8, 0, 0x1000), errno.EINVAL),
        ((0x1001, 8, ZERO_BASED), errno.EINVAL),
        ((0x1000, 8, ZERO_BASED, 0x1000), errno.EINVAL),
        ((0x1000, 8, 0, (1 << 64) - 4096 + 4089), errno.EINVAL),
    ],
)
def test_physical_regions_refused(pair, arguments, code):
    assert refused(code, PhysicalMR, PD(pair[1]), *arguments).startswith("Failed to register a physical MR")


def test_what_the_device_has_not():
    _, context = opened("fake6", reach=40)
    with context:
        pd = PD(context)
        assert "reaches 40 bits" in refused(errno.EFAULT, PhysicalMR, pd, (1 << 40) - 4, 8, 0)
        PhysicalMR(pd, (1 << 40) - 8, 8, 0).close()
    device = FakeDevice("fake5")
    device.device_memory = Window()
    provide("fake5", lambda: device)
    with Context(name="fake5") as context:
        refused(errno.EOPNOTSUPP, PhysicalMR, PD(context), 0x1000, 8, 0)
        assert context.query_device_ex().max_dm_size == 0
        refused(errno.EOPNOTSUPP, DM, context, AllocDmAttr(8))


def test_memory_of_the_device(pair):
    device, context = pair
    assert context.query_device_ex().max_dm_size == SIZE
    dm = DM(context, AllocDmAttr(5000))
    assert dm.copy_from_dm(0, 5000) == bytes(5000)
    dm.copy_to_dm(4995, "hello, there", 5)
    assert dm.copy_from_dm(4990, 10) == bytes(5) + b"hello"
    assert b"hello" in device.device_memory.content
    assert device.device_memory.content.count(0) == 4995
    for call in (lambda: dm.copy_from_dm(4999, 2), lambda: dm.copy_to_dm(-1, b"xx", 2), lambda: dm.copy_from_dm(0, -1)):
        assert "Failed to copy" in refused(errno.EINVAL, call)
    dm.close()
    assert "closed" in refused(errno.EINVAL, dm.copy_from_dm, 0, 1)


def test_parts_do_not_overlap_and_come_back(pair):
    _, context = pair
    parts = [DM(context, AllocDmAttr(8192 - 7 * number)) for number in range(8)]
    for number, dm in enumerate(parts):
        dm.copy_to_dm(0, bytes([number] * dm.length), dm.length)
    for number, dm in enumerate(parts):
        assert dm.copy_from_dm(0, dm.length) == bytes([number] * dm.length)
    assert "Failed to allocate device memory" in refused(errno.ENOMEM, DM, context, AllocDmAttr(1))
    for dm in parts:
        dm.close()
    DM(context, AllocDmAttr(SIZE)).close()
    with DM(context, AllocDmAttr(8)), DM(context, AllocDmAttr(8, log_align_req=14)) as dm, PD(context) as pd:
        assert DMMR(pd, 8, ZERO_BASED, dm, 0)._region.entry["mtt_address"] == BUS + 16384 >> 12 << 3
    refused(errno.ENOMEM, DM, context, AllocDmAttr(8, log_align_req=20))
    for wrong in (AllocDmAttr(0), AllocDmAttr(SIZE + 1), AllocDmAttr(8, 64), AllocDmAttr(8, 0, 1)):
        refused(errno.EINVAL, DM, context, wrong)


def test_a_region_of_it(pair):
    device, context = pair
    pd, dm = PD(context), DM(context, AllocDmAttr(16384))
    mr = DMMR(pd, 8000, LOCAL | REMOTE | ZERO_BASED, dm, 8192)
    assert entry(device, mr) == (0, 8000, (BUS >> 12) + 2, 1, 3)
    assert mr.buf == 0
    mr.write("words", 5, 7000)
    assert mr.read(6, 7000) == dm.copy_from_dm(8192 + 7000, 6) == b"words\0"
    failed = "Failed to register a device MR"
    for length, access, offset in ((8, LOCAL, 0), (8, ZERO_BASED, 8), (16385, ZERO_BASED, 0), (8, ZERO_BASED, -4096)):
        assert refused(errno.EINVAL, DMMR, pd, length, access, dm, offset).startswith(failed)
    with pytest.raises(PyverbsUserError, match="dm must be a DM"):
        DMMR(pd, 8, ZERO_BASED, None, 0)
    dm.close()  # and its region
    assert device.mpt(mr.handle) == bytes(32)


def test_of_another_device(pair):
    _, other = opened("fake8")
    with other:
        refused(errno.EINVAL, DMMR, PD(other), 8, ZERO_BASED, DM(pair[1], AllocDmAttr(8)), 0)
