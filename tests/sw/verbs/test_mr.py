"""Memory regions."""

import errno
import struct

import pytest
from fake_device import INVALIDATE_KEY
from verbena.sw.verbs import mem_alloc
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import ibv_access_flags, ibv_rereg_mr_flags
from verbena.sw.verbs.mr import MR, MW, Buf, BufMR, DmaBufMR, MREx, MWBind, MWBindInfo, mwtype2str
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

TRANSLATION, CHANGE_PD, ACCESS, _ = ibv_rereg_mr_flags
LOCAL, REMOTE_WRITE, REMOTE_READ, ATOMIC, BIND, ZERO_BASED, ODP, HUGE, FLUSH, FLUSH_P, RELAXED = ibv_access_flags


def fields(device, mr):
    """(address, length, pd, variant, access) as the device sees them."""
    entry = device.mpt(mr.lkey >> 8)
    length, address = struct.unpack_from("<QQ", entry)
    rest, access = struct.unpack_from("<II", entry, 24)
    assert length >> 63 == 1
    return address, length & (1 << 48) - 1, rest & 0xFFFFFF, rest >> 24, access


def refused(code, function, *args, **kwargs):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args, **kwargs)
    assert caught.value.error_code == code
    return str(caught.value)


def test_memory_of_its_own(device, pd):
    mr = MR(pd, 5000, LOCAL | REMOTE_WRITE | RELAXED)
    assert mr.buf % 4096 == 0
    assert mr.read(5000, 0) == bytes(5000)
    assert fields(device, mr) == (mr.buf, 5000, pd.handle, mr.lkey & 255, 3)
    assert mr.lkey == mr.rkey
    assert mr.handle == mr.lkey >> 8
    assert (mr.length, mr.access) == (5000, LOCAL | REMOTE_WRITE | RELAXED)
    assert f"{mr.buf:#x}" in str(mr)
    mr.close()
    mr.close()
    assert device.mpt(mr.handle) == bytes(32)
    assert device.commands[-1][:2] == (INVALIDATE_KEY, mr.handle)


@pytest.mark.parametrize("address", [None, 0])
def test_without_an_address_it_allocates(device, pd, address):
    mr = MR(pd, 100, LOCAL, address=address)
    assert mr.buf % 4096 == 0
    assert mr.read(100, 0) == bytes(100)
    mr.close()
    with pytest.raises(ValueError, match="not allocated"):
        mem_alloc.host_memory.free(mr.buf)


def test_memory_of_the_process(device, pd):
    buffer = bytearray(b"0123456789" * 1000)
    windows = len(mem_alloc.host_memory.windows())
    mr = MR(pd, access=LOCAL | REMOTE_WRITE, address=buffer)
    assert mr.length == 10_000
    assert fields(device, mr)[:2] == (mr.buf, 10_000)
    mtt = struct.unpack_from("<Q", device.mpt(mr.handle), 16)[0]
    page = struct.unpack("<Q", device.read_bus(mtt, 8))[0] & ~4095
    assert device.read_bus(page + mr.buf % 4096, 5) == b"01234"
    mr.write("xyz", 3, 9_000)
    assert buffer[9_000:9_004] == b"xyz3"
    with pytest.raises(BufferError):
        buffer.clear()
    # The same memory once more, by its address.
    other = MR(pd, 10, LOCAL, address=mr.buf + 9_000)
    mr.close()
    buffer.clear()
    assert device.host(other._adapter.memory.bus_pages(other.buf, 1)[0]) == other.buf & ~4095
    other.close()
    assert len(mem_alloc.host_memory.windows()) == windows


def test_memory_that_may_only_be_read(device, pd):
    text = b"only to be read"
    assert "read-only" in refused(errno.EFAULT, MR, pd, 0, LOCAL, text)
    mr = MR(pd, 4, REMOTE_READ, text)
    assert mr.read(4, 0) == b"only"
    with pytest.raises(PyverbsUserError, match="read-only"):
        mr.write("x", 1)
    before = device.mpt(mr.handle)
    assert "read-only" in refused(errno.EFAULT, mr.rereg, ACCESS, access=LOCAL)
    assert device.mpt(mr.handle) == before


def test_rereg_to_other_memory_lets_go_of_the_first(device, pd):
    first, second = bytearray(5000), bytearray(6000)
    windows = len(mem_alloc.host_memory.windows())
    mr = MR(pd, 0, LOCAL, first)
    key = mr.lkey
    assert "the buffer has 6000 bytes" in refused(errno.EINVAL, mr.rereg, TRANSLATION, None, second, 6001)
    mr.rereg(TRANSLATION, addr=second, length=6000)
    first.clear()
    with pytest.raises(BufferError):
        second.clear()
    assert (mr.length, mr.lkey, fields(device, mr)[1]) == (6000, key, 6000)
    mr.rereg(ACCESS, access=LOCAL | REMOTE_WRITE)
    assert fields(device, mr)[1] == 6000
    mr.close()
    second.clear()
    assert len(mem_alloc.host_memory.windows()) == windows


def test_nothing_at_all(device, pd):
    mr = MR(pd)
    assert fields(device, mr)[1] == 0
    assert mr.buf
    assert mr.read(0, 0) == b""


@pytest.mark.parametrize(
    "access", [0, LOCAL, REMOTE_READ, BIND, LOCAL | REMOTE_WRITE | REMOTE_READ | ATOMIC | BIND, 1 << 29]
)
def test_rights(device, pd, access):
    assert fields(device, MR(pd, 8, access))[4] == access & 31


@pytest.mark.parametrize(
    ("access", "code"),
    [
        (REMOTE_WRITE, errno.EINVAL),
        (ATOMIC | REMOTE_READ, errno.EINVAL),
        (1 << 12, errno.EINVAL),
        (1 << 30, errno.EINVAL),
        (ODP, errno.EOPNOTSUPP),
        (HUGE | LOCAL, errno.EOPNOTSUPP),
        (FLUSH, errno.EOPNOTSUPP),
        (FLUSH_P, errno.EOPNOTSUPP),
    ],
)
def test_rights_refused(pd, access, code):
    assert refused(code, MR, pd, 8, access).startswith("Failed to register a MR")


def test_zero_based(device, pd):
    """Peers count from 0, and go on to when it has other memory."""
    mr = MR(pd, 5000, LOCAL | REMOTE_READ | ZERO_BASED)
    assert fields(device, mr)[:2] == (0, 5000)
    assert fields(device, mr)[4] == LOCAL | REMOTE_READ
    mr.write(b"here", 4, 4996)
    assert mem_alloc.host_memory.read(mr.buf + 4996, 4) == b"here"
    other = mem_alloc.posix_memalign(8192, 4096)
    mr.rereg(TRANSLATION, addr=other, length=8192)
    assert fields(device, mr)[:2] == (0, 8192)
    mr.rereg(ACCESS, access=LOCAL | ZERO_BASED)
    assert fields(device, mr)[:2] == (0, 8192)
    assert "cannot be changed" in refused(errno.EINVAL, mr.rereg, ACCESS, access=LOCAL)
    assert "iova 0 of memory at" in refused(errno.EINVAL, mr.rereg, TRANSLATION, addr=other + 8, length=8)
    mr.close()
    assert "iova 0x0 of memory at" in refused(errno.EINVAL, MR, pd, 8, LOCAL | ZERO_BASED, address=other + 8)
    assert "zero-based, with iova" in refused(errno.EINVAL, MREx, pd, 8, LOCAL | ZERO_BASED, other, iova=4096)
    with MREx(pd, 8, LOCAL | ZERO_BASED, other, iova=0) as mr:
        assert fields(device, mr)[:2] == (0, 8)
    mem_alloc.free(other)


def test_ranges_refused(pd):
    refused(errno.EINVAL, MR, pd, -1)
    refused(errno.EINVAL, MR, pd, (1 << 40) + 1)
    refused(errno.EINVAL, MR, pd, 8, address=-5)
    refused(errno.EINVAL, MR, pd, 8, address=(1 << 64) - 7)
    refused(errno.ENOMEM, MR, pd, 1 << 40)
    assert "no memory at 0x1000" in refused(errno.EFAULT, MR, pd, 8, address=0x1000)
    refused(errno.EOPNOTSUPP, MR, pd, implicit=True)


def test_a_registration_that_fails_gives_its_memory_back(pd, monkeypatch):
    freed = []
    memory = pd.context._adapter.memory
    monkeypatch.setattr(memory, "free", freed.append)
    monkeypatch.setattr(pd.context._adapter.regions, "_free_key", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        MR(pd, 8)
    assert len(freed) == 1


def test_write_and_read(pd):
    mr = MR(pd, 16, LOCAL)
    mr.write("abcdef", 4)
    mr.write(bytearray(b"xyz"), 3, 13)
    mr.write(b"", 0, 16)
    assert mr.read(16, 0) == b"abcd" + bytes(9) + b"xyz"
    for length, offset in ((17, 0), (1, 16), (-1, 0), (1, -1)):
        with pytest.raises(PyverbsUserError, match="not within the region of 16"):
            mr.read(length, offset)
        with pytest.raises(PyverbsUserError):
            mr.write(bytes(20), length, offset)
    mr.close()
    assert "MR is closed" in refused(errno.EINVAL, mr.read, 1, 0)
    refused(errno.EINVAL, mr.write, b"x", 1)


def test_rereg_of_rights(device, pd):
    mr = MR(pd, 8, LOCAL)
    keys = mr.lkey, mr.rkey
    mr.rereg(ACCESS, access=LOCAL | REMOTE_WRITE)
    assert fields(device, mr) == (mr.buf, 8, pd.handle, mr.lkey & 255, 3)
    assert device.commands[-1][:2] == (INVALIDATE_KEY, mr.handle)
    assert (mr.lkey, mr.rkey, mr.access) == (*keys, 3)


def test_rereg_of_the_domain(device, context, pd):
    mr = MR(pd, 8, LOCAL)
    other = PD(context)
    mr.rereg(CHANGE_PD, pd=other)
    assert fields(device, mr)[2] == other.handle
    pd.close()
    assert mr.read(8, 0) == bytes(8)
    other.close()
    assert device.mpt(mr.handle) == bytes(32)


def test_rereg_of_memory(device, pd):
    mr = MR(pd, 8192, LOCAL)
    own = mr.buf
    key = mr.lkey
    mr.write("own", 3)
    at = mem_alloc.posix_memalign(4096, 4096)
    mr.rereg(TRANSLATION, addr=at + 5, length=100)
    assert (mr.buf, mr.length, mr.lkey) == (at + 5, 100, key)
    assert fields(device, mr)[:2] == (at + 5, 100)
    mtt = struct.unpack_from("<Q", device.mpt(mr.handle), 16)[0]
    assert device.host(struct.unpack("<Q", device.read_bus(mtt, 8))[0] & ~4095) == at
    # A part of what it had, which therefore must still be there.
    mr.rereg(TRANSLATION, addr=own, length=3)
    assert mr.read(3, 0) == b"own"
    mr.close()
    mem_alloc.free(at)


def test_rereg_of_everything_at_once(device, context, pd):
    mr = MR(pd, 8, 0)
    other = PD(context)
    at = mem_alloc.posix_memalign(64)
    mr.rereg(TRANSLATION | CHANGE_PD | ACCESS, other, at, 64, LOCAL)
    assert fields(device, mr) == (at, 64, other.handle, mr.lkey & 255, 1)


def test_rereg_refused(device, pd):
    mr = MR(pd, 8, LOCAL)
    before = device.mpt(mr.handle)
    refused(errno.EINVAL, mr.rereg, 0)
    refused(errno.EINVAL, mr.rereg, 8)
    refused(errno.EINVAL, mr.rereg, ACCESS, access=REMOTE_WRITE)
    refused(errno.EOPNOTSUPP, mr.rereg, ACCESS, access=ODP)
    refused(errno.EINVAL, mr.rereg, TRANSLATION, addr=0, length=-1)
    refused(errno.EFAULT, mr.rereg, TRANSLATION, addr=0x1000, length=1)
    with pytest.raises(PyverbsUserError, match="needs a PD"):
        mr.rereg(CHANGE_PD)
    with Context(name=device.name) as other:
        refused(errno.EINVAL, mr.rereg, CHANGE_PD, PD(other))
    closed = PD(pd.context)
    closed.close()
    refused(errno.EINVAL, mr.rereg, CHANGE_PD, closed)
    assert device.mpt(mr.handle) == before
    mr.close()
    refused(errno.EINVAL, mr.rereg, ACCESS, access=LOCAL)


def test_garbage(pd):
    mr = MR(pd, 8, LOCAL)
    del mr
    MR(pd, 8, LOCAL).close()
    assert pd.context._adapter.regions.by_index == {}


def test_of_another_process(pd):
    assert "Failed to import MR" in refused(errno.EOPNOTSUPP, MR, pd, handle=1)
    with pytest.raises(PyverbsUserError, match="Cannot create MR from <class"):
        MR(creator=pd.context, length=1)


def test_an_iova_is_what_peers_name(device, pd):
    at = mem_alloc.posix_memalign(3 * 4096, 4096)
    with MREx(pd, 5000, LOCAL, at + 100, iova=0x7000_0000_0064) as mr:
        assert fields(device, mr) == (0x7000_0000_0064, 5000, pd.handle, mr.lkey & 255, 1)
        assert (mr.buf, mr.length) == (at + 100, 5000)
        mr.rereg(TRANSLATION, addr=at, length=4096)
        assert fields(device, mr)[:2] == (at, 4096)
    with MREx(pd, 100, LOCAL) as mr:
        assert fields(device, mr)[0] == mr.buf


@pytest.mark.parametrize(
    ("kwargs", "code"),
    [
        ({"length": 8, "iova": 0x1001}, errno.EINVAL),
        ({"length": 8192, "iova": (1 << 64) - 4096}, errno.EINVAL),
        ({"length": 8, "fd": 3}, errno.EOPNOTSUPP),
        ({"length": 8, "fd_offset": 3}, errno.EOPNOTSUPP),
        ({"length": 8, "dmah": object()}, errno.EOPNOTSUPP),
        ({"length": 8, "access": REMOTE_WRITE}, errno.EINVAL),
        ({"implicit": True}, errno.EOPNOTSUPP),
    ],
)
def test_the_extended_call_refused(pd, kwargs, code):
    assert refused(code, MREx, pd, **kwargs).startswith("Failed to register MR using extended API")
    assert pd.context._adapter.regions.by_index == {}


def test_regions_of_a_buffer(device, pd):
    with Buf(pd, 8192) as buf:
        assert (buf.size, buf.addr % 4096) == (8192, 0)
        assert mem_alloc.read(buf.addr, 8192) == bytes(8192)
        part = BufMR(pd, buf, 100, LOCAL, offset=4096)
        whole = MREx(pd, 8192, LOCAL | REMOTE_READ, buf=buf)
        part.write("there", 5)
        assert whole.read(5, 4096) == b"there"
        assert fields(device, part)[:2] == (buf.addr + 4096, 100)
        assert "Errno: 61" in refused(errno.ENODATA, buf.export_dmabuf_fd)
    assert part._closed
    assert whole._closed
    with pytest.raises(ValueError, match="not allocated"):
        mem_alloc.host_memory.free(buf.addr)


def test_regions_beyond_a_buffer(context, pd):
    with Buf(pd, 8192) as buf, PD(context) as other:
        for length, offset in ((8193, 0), (1, 8192), (1, -1), (-1, 0)):
            assert refused(errno.EINVAL, BufMR, pd, buf, length, LOCAL, offset).startswith("Failed to register a MR")
        refused(errno.EINVAL, BufMR, other, buf, 1, LOCAL)
        refused(errno.EINVAL, MREx, other, 1, LOCAL, buf=buf)
        with pytest.raises(PyverbsUserError, match="either address or buf"):
            MREx(pd, 1, LOCAL, address=buf.addr, buf=buf)
    refused(errno.EINVAL, BufMR, pd, buf, 1, LOCAL)
    for size in (0, -1, 1 << 41):
        assert refused(errno.EINVAL, Buf, pd, size).startswith("Failed to allocate buffer")
    assert refused(errno.ENOMEM, Buf, pd, 1 << 40).startswith("Failed to allocate buffer")


def test_what_no_engine_has(pd):
    assert "Failed to allocate MW" in refused(errno.EOPNOTSUPP, MW, pd, 1)
    refused(errno.EOPNOTSUPP, MW, pd, 2)
    refused(errno.EINVAL, MW, pd, 3)
    refused(errno.EOPNOTSUPP, DmaBufMR, pd, 8, 1)


def test_requests_for_windows():
    info = MWBindInfo("mr", 1, 2, 3)
    assert (info.mr, info.addr, info.length, info.mw_access_flags) == ("mr", 1, 2, 3)
    bind = MWBind(info, 2)
    assert (bind.info, bind.send_flags, bind.wr_id) == (info, 2, 0)
    assert "length 2" in str(info)
    assert "send_flags 2" in str(bind)
    assert (mwtype2str(2), mwtype2str(3)) == ("IBV_MW_TYPE_2", "Unknown MW type (3)")
