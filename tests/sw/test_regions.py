"""Keys and the tables behind them. Bytes are written out by hand."""

import errno
import random
import struct

import pytest
from fake_device import INVALIDATE_KEY, INVALIDATE_MTT, FakeDevice
from verbena.hdl.abi.tables import MPT, KeyKind
from verbena.sw import host_memory
from verbena.sw.adapter import Adapter
from verbena.sw.errors import AdapterError
from verbena.sw.regions import MAX_REGIONS, alloc_pages, best_pages

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
        "<QQQII", 8192 | 12 << 48 | 1 << 63, at, mtt, 0x123456 | (region.key & 255) << 24, LOCAL | REMOTE_WRITE
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
    log_page = fake.mpt(region.index)[6] & 63
    assert log_page == min(21, agreeing)
    mtt = struct.unpack_from("<Q", fake.mpt(region.index), 16)[0]
    assert struct.unpack("<Q", fake.read_bus(mtt, 8))[0] == bus >> log_page << log_page | 1


@pytest.mark.parametrize("length", [4097, 10_000, 1 << 20, (5 << 20) + 8])
def test_huge_pages_hold_a_region_in_one(fake, adapter, length, monkeypatch):
    """If the environment asks for huge pages, one page of the device holds what the driver allocates for a region."""
    monkeypatch.setenv("VERBENA_HUGE_PAGES", "1")
    at = alloc_pages(adapter.memory, length)
    region = adapter.register(1, at, length, 0)
    entry = fake.mpt(region.index)
    log_page = entry[6] & 63
    assert at >> log_page == at + length - 1 >> log_page
    (page,) = struct.unpack("<Q", fake.read_bus(struct.unpack_from("<Q", entry, 16)[0], 8))
    start = page & -4096 | at & (1 << log_page) - 1
    assert page & 1
    assert [fake.host(start), fake.host(start + length - 1)] == [at, at + length - 1]
    adapter.deregister(region)
    host_memory.free(at)


@pytest.mark.parametrize("variable", [None, "0"])
def test_pages_are_small_if_nobody_asks(fake, adapter, variable, monkeypatch):
    monkeypatch.delenv("VERBENA_HUGE_PAGES", raising=False)
    if variable is not None:
        monkeypatch.setenv("VERBENA_HUGE_PAGES", variable)
    at = alloc_pages(adapter.memory, 1 << 20)
    assert fake.mpt(adapter.register(1, at, 1 << 20, 0).index)[6] & 63 == 12


def test_huge_pages_that_there_are_none_of(adapter, monkeypatch):
    """Memory without a place for a huge page, or none that the device reaches, is taken as it comes."""
    monkeypatch.setenv("VERBENA_HUGE_PAGES", "1")

    class Scattered:
        def __init__(self, error):
            self.error = error

        def alloc_contiguous(self, size, alignment):
            raise self.error

        def alloc(self, size, alignment):
            return size, alignment

    for error in (MemoryError("full"), ValueError("too large"), AdapterError(errno.EFAULT, "beyond")):
        assert alloc_pages(Scattered(error), 5000) == (5000, 4096)
    assert alloc_pages(Scattered(RuntimeError()), 4096) == (4096, 4096)


def test_a_region_of_nothing(fake, adapter):
    region = adapter.register(1, 0x1000, 0, 0)
    assert fake.mpt(region.index)[:24] == struct.pack("<QQQ", 12 << 48 | 1 << 63, 0x1000, 0)
    adapter.deregister(region)
    assert fake.mpt(region.index) == bytes(32)


def test_memory_that_no_device_reaches(adapter):
    with pytest.raises(ValueError, match="no device reaches"):
        adapter.register(1, 0x1000, 1, 0)
    assert adapter.regions.by_index == {}


def test_deregistering_tells_the_device(fake, adapter):
    at = host_memory.alloc(4096, 4096)
    region = adapter.register(1, at, 4096, 0)
    adapter.deregister(region)
    assert fake.mpt(region.index) == bytes(32)
    assert fake.commands[-1][:2] == (INVALIDATE_KEY, region.index)


class Writes:
    """Host memory that notes what is written into the MPT, and what is freed, among the commands of the device."""

    def __init__(self, fake, adapter, monkeypatch):
        self.log = []
        start, end = adapter.regions.address, adapter.regions.address + (32 << 14)
        write, free, run = host_memory.write, host_memory.free, fake._run

        def note_write(address, data):
            if start <= address < end:
                self.log.append((address % 32, bytes(data)))
            write(address, data)

        def note_free(address):
            self.log.append("free")
            free(address)

        def note_command(number, opcode, action):
            self.log.append(opcode)
            return run(number, opcode, action)

        monkeypatch.setattr(host_memory, "write", note_write)
        monkeypatch.setattr(host_memory, "free", note_free)
        monkeypatch.setattr(fake, "_run", note_command)

    def take(self):
        log = self.log[:]
        self.log.clear()
        return log


def test_an_entry_becomes_valid_last_and_invalid_first(fake, adapter, monkeypatch):
    """The word with `valid` is written behind all others; before those change, the device has dropped the entry."""
    writes = Writes(fake, adapter, monkeypatch)
    first, second = host_memory.alloc(4096, 4096), host_memory.alloc(8192, 4096)
    region = adapter.register(1, first, 4096, LOCAL)
    entry = fake.mpt(region.index)
    assert writes.take() == [(8, entry[8:]), (0, entry[:8])]
    adapter.change_region(region, (second, 8192))
    entry = fake.mpt(region.index)
    assert writes.take() == [(0, bytes(8)), INVALIDATE_KEY, (8, entry[8:]), (0, entry[:8])]
    adapter.deregister(region)
    assert writes.take() == [(0, bytes(8)), INVALIDATE_KEY, (0, bytes(32))]


@pytest.mark.parametrize("times", [0, 1, 5])
@pytest.mark.parametrize("kind", [KeyKind.WINDOW, KeyKind.WINDOW_2])
def test_a_window_is_gone_when_no_work_request_writes_to_it_any_more(fake, adapter, monkeypatch, kind, times):
    """Requests that had found it bind it, one after the other, each behind the driver's clearing."""
    fake.key_operations = True
    region = adapter.regions.register_window(1, kind)
    entry, run, left = fake.mpt(region.index), fake._run, [times]

    def bind(number, opcode, action):
        if opcode == INVALIDATE_KEY and left[0]:
            left[0] -= 1
            bound = MPT.unpack(entry) | {"valid": 1, "length": 8, "address": 5}
            adapter.memory.write(adapter.regions._place(region.index), MPT.pack(**bound))
        return run(number, opcode, action)

    monkeypatch.setattr(fake, "_run", bind)
    fake.commands.clear()
    adapter.deregister(region)
    assert [command[0] for command in fake.commands] == [INVALIDATE_KEY] * (times + 1)
    assert not any(fake.mpt(region.index))


def test_one_word_is_changed_in_place(fake, adapter, monkeypatch):
    """The device sees the old rights or the new ones; nobody who has both is refused meanwhile."""
    region = adapter.register(1, host_memory.alloc(4096, 4096), 4096, LOCAL)
    before = fake.mpt(region.index)
    writes = Writes(fake, adapter, monkeypatch)
    adapter.change_region(region, None, access=LOCAL | REMOTE_WRITE, pd=2)
    entry = fake.mpt(region.index)
    assert entry[:24] == before[:24]
    assert writes.take() == [(24, entry[24:]), INVALIDATE_KEY]
    adapter.change_region(region, None, access=LOCAL | REMOTE_WRITE)
    assert writes.take() == [INVALIDATE_KEY]


def test_a_table_is_freed_when_the_device_has_dropped_it(fake, adapter, monkeypatch):
    """Many at once, for the device drops all translations: when they take as much memory as the MPT."""
    at = host_memory.alloc(8192, 4096)
    adapter.regions._log_size = 8  # 8 KiB
    writes = Writes(fake, adapter, monkeypatch)
    for number in range(256):
        region = adapter.register(1, at, 4096, LOCAL)
        if number % 2:
            adapter.change_region(region, (at + 4096, 4096))  # has two: one is put aside here, one when it goes
        adapter.deregister(region)
    log = [entry for entry in writes.take() if not isinstance(entry, tuple)]
    assert log.count("free") == 384
    assert log.count(INVALIDATE_MTT) == 3
    for place in (place for place, entry in enumerate(log) if entry == INVALIDATE_MTT):
        assert log[place + 1 : place + 129] == ["free"] * 128


def test_tables_put_aside_are_freed_for_want_of_memory(fake, adapter, monkeypatch):
    at = host_memory.alloc(4096, 4096)
    adapter.deregister(adapter.register(1, at, 4096, LOCAL))
    alloc, full = host_memory.alloc_contiguous, [True]

    def first_none(size, alignment):
        if full.pop():
            raise MemoryError("no memory")
        return alloc(size, alignment)

    full.insert(0, False)
    monkeypatch.setattr(host_memory, "alloc_contiguous", first_none)
    region = adapter.register(1, at, 4096, LOCAL)
    assert fake.commands[-1][0] == INVALIDATE_MTT
    assert fake.mpt(region.index)[7] >> 7


def test_a_table_that_was_never_used_is_freed_at_once(fake, adapter, monkeypatch):
    at = host_memory.alloc(4096, 4096)
    region = adapter.register(1, at, 4096, LOCAL)
    writes = Writes(fake, adapter, monkeypatch)
    with pytest.raises(ValueError, match="cannot hold"):
        adapter.change_region(region, (at, 4096), pd=1 << 24)
    assert writes.take() == ["free"]


def test_keys_cannot_be_foretold():
    """Two devices that are alike in all that a peer may know get other keys, and other QPs."""
    keys, numbers = [], []
    for _ in range(2):
        fake = FakeDevice()
        del fake.random
        adapter = Adapter(fake)
        keys.append([adapter.register(1, 0, 0, 0).key for _ in range(50)])
        numbers.append([adapter.create_qp(object) for _ in range(8)])
    guesses = random.Random(fake.mac)
    foretold = [guesses.randrange(1, 1 << 14) << 8 | guesses.randrange(1, 256) for _ in range(50)]
    for mine, others in (keys, keys[::-1], (keys[0], foretold), (keys[1], foretold)):
        assert len(set(mine) & set(others)) < 3
        assert len({key >> 8 & 1 << bit for key in mine for bit in range(14)}) == 15  # each bit of an index is used
    for mine, others in (numbers, numbers[::-1]):
        assert sorted(number % 8 for number in mine) == list(range(8))
        assert not set(mine) & set(others)
        assert max(mine) > 1 << 20


def test_a_simulated_device_says_what_keys_are_drawn_from():
    keys = []
    for _ in range(2):
        fake = FakeDevice()
        fake.random = random.Random(17)
        adapter = Adapter(fake)
        keys.append([adapter.register(1, 0, 0, 0).key for _ in range(50)] + list(adapter.qp_numbers.free))
    assert keys[0] == keys[1]


def test_changing_a_region_keeps_its_key(fake, adapter):
    first, second = host_memory.alloc(4096, 4096), host_memory.alloc(8192, 4096)
    region = adapter.register(1, first, 4096, LOCAL)
    key = region.key
    adapter.change_region(region, (second, 8192), pd=2)
    entry = fake.mpt(region.index)
    assert struct.unpack_from("<Q", entry, 8)[0] == second
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
