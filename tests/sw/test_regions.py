"""Keys and the tables behind them. Bytes are written out by hand."""

import struct

import pytest
from fake_device import INVALIDATE_KEY, FakeDevice
from verbena.sw import host_memory
from verbena.sw.adapter import Adapter
from verbena.sw.regions import MAX_REGIONS, best_pages

LOCAL, REMOTE_WRITE = 1, 2


@pytest.fixture
def fake():
    return FakeDevice()


@pytest.fixture
def adapter(fake):
    return Adapter(fake)


def test_mpt_entry_and_scattered_pages(fake, adapter):
    at = host_memory.alloc(3 * 4096 + 100, 4096) + 100
    region = adapter.register(0x123456, at, 2 * 4096, LOCAL | REMOTE_WRITE)
    entry = fake.mpt(region.index)
    mtt = struct.unpack_from("<Q", entry, 16)[0]
    assert entry == struct.pack(
        "<QQQII", at, 8192 | 12 << 48 | 1 << 63, mtt, 0x123456 | (region.key & 255) << 24, LOCAL | REMOTE_WRITE
    )
    assert region.key >> 8 == region.index
    assert mtt % 8 == 0
    pages = struct.unpack("<3Q", fake.read_bus(mtt, 24))
    assert [page & 4095 for page in pages] == [1, 1, 1]
    assert [fake.host(page & ~4095) for page in pages] == [at - 100, at + 3996, at + 8092]


def test_contiguous_memory_takes_large_pages(fake, adapter):
    at, bus = host_memory.alloc_contiguous(1 << 21, 1 << 20)
    agreeing = ((at ^ bus) & -(at ^ bus)).bit_length() - 1  # low bits that both addresses share
    region = adapter.register(1, at, 1 << 20, 0)
    log_page = fake.mpt(region.index)[14] & 63
    assert log_page == min(21, agreeing)
    mtt = struct.unpack_from("<Q", fake.mpt(region.index), 16)[0]
    assert struct.unpack("<Q", fake.read_bus(mtt, 8))[0] == bus >> log_page << log_page | 1


def test_a_region_of_nothing(fake, adapter):
    region = adapter.register(1, 0x1000, 0, 0)
    assert fake.mpt(region.index)[:24] == struct.pack("<QQQ", 0x1000, 12 << 48 | 1 << 63, 0)
    adapter.deregister(region)
    assert fake.mpt(region.index) == bytes(32)


def test_memory_that_no_device_reaches(adapter):
    with pytest.raises(ValueError, match="no device reaches"):
        adapter.register(1, 0x1000, 1, 0)
    assert adapter.regions.by_index == {}


def test_deregistering_tells_the_device(fake, adapter, monkeypatch):
    at = host_memory.alloc(4096, 4096)
    region = adapter.register(1, at, 4096, 0)
    freed = []
    monkeypatch.setattr(host_memory, "free", lambda a: freed.append(fake.commands[-1][0]))
    adapter.deregister(region)
    assert fake.mpt(region.index) == bytes(32)
    assert fake.commands[-1][:2] == (INVALIDATE_KEY, region.index)
    assert freed == [INVALIDATE_KEY]  # not before the device has let go of the table


def test_changing_a_region_keeps_its_key(fake, adapter):
    first, second = host_memory.alloc(4096, 4096), host_memory.alloc(8192, 4096)
    region = adapter.register(1, first, 4096, LOCAL)
    key = region.key
    adapter.change_region(region, (second, 8192), pd=2)
    entry = fake.mpt(region.index)
    assert struct.unpack_from("<Q", entry)[0] == second
    assert struct.unpack_from("<II", entry, 24) == (2 | (key & 255) << 24, LOCAL)
    mtt = struct.unpack_from("<Q", entry, 16)[0]
    assert fake.host(struct.unpack("<Q", fake.read_bus(mtt, 8))[0] & ~4095) == second
    assert fake.commands[-1][:2] == (INVALIDATE_KEY, region.index)
    with pytest.raises(ValueError, match="no device reaches"):
        adapter.change_region(region, (0x1000, 5))
    with pytest.raises(ValueError, match="cannot hold"):
        adapter.change_region(region, (first, 4096), pd=1 << 24)
    assert fake.mpt(region.index) == entry
    assert region.entry["pd"] == 2


def test_neighbours_of_a_key_are_never_valid(adapter):
    for _ in range(MAX_REGIONS):
        adapter.register(1, 0, 0, 0)
    keys = {region.key for region in adapter.regions.by_index.values()}
    assert len(keys) == 16383
    assert not keys & {key + 1 for key in keys}
    assert min(keys) > 255
    with pytest.raises(MemoryError, match="all 16383 keys are in use"):
        adapter.register(1, 0, 0, 0)


def test_an_index_never_has_the_same_key_twice_in_a_row(adapter):
    adapter.regions.random.randrange = lambda low, high=None: low + 4
    seen = []
    for _ in range(256):
        region = adapter.register(1, 0, 0, 0)
        seen.append(region.key & 255)
        adapter.deregister(region)
    assert seen[:3] == [5, 6, 7]
    assert sorted(seen[:255]) == list(range(1, 256))
    assert seen[255] == 5


def pages_of(entries, log_page, first, count):
    """Bus pages that the engine finds in a translation table."""
    group = 1 << log_page - 12
    start = first >> 12
    return [entries[(start + i) // group - start // group] + ((start + i) % group << 12) for i in range(count)]


@pytest.mark.parametrize(
    ("first", "pages", "log_page"),
    [
        (0x10000, [0x5000], 12),
        (0x10000, [0x6000], 13),
        (0x10000, [0x6000, 0x7000], 13),
        (0x10000, [0x6000, 0x8000], 12),
        (0x11000, [0x7000, 0x8000, 0x9000, 0x2000], 13),
        (0x10000, [0x20000 + 4096 * i for i in range(16)], 16),
        (0x10000, [0x30000 + 4096 * i for i in range(15)] + [0], 12),
        (0x1FF000, [0x3FF000, 0x800000, 0x801000], 14),
    ],
)
def test_the_largest_page_that_fits(first, pages, log_page):
    found, entries = best_pages(first, pages)
    assert found == log_page
    assert all(entry % (1 << log_page) == 0 for entry in entries)
    assert pages_of(entries, log_page, first, len(pages)) == pages
