"""The driver's part of the QP context table, and QPs that a device with a table loses."""

import errno
import struct
import threading
import time

import pytest
from fake_device import (
    CREATE_QP,
    DESTROY_QP,
    INVALIDATE_KEY,
    MODIFY_QP,
    NOP,
    QP_FATAL,
    QPC_BYTES,
    QPC_HIGH,
    QPC_LOW,
    QUERY_QP,
    RESET,
    FakeDevice,
)
from verbena.hdl.abi.contexts import QpState
from verbena.hdl.abi.qpc import qpc_bytes
from verbena.hdl.abi.registers import QpDoorbell
from verbena.sw import host_memory
from verbena.sw.adapter import Adapter
from verbena.sw.errors import AdapterError
from verbena.sw.qp_table import QpTable

SQ, RQ, PUSH = QpDoorbell.SQ_PRODUCER, QpDoorbell.RQ_PRODUCER, QpDoorbell.SQ_PUSH
PAGES = 0x4000000


class Owner:
    def __init__(self):
        self.events = []

    def _event(self, kind):
        self.events.append(kind)


def refused(code, function, *args, **kwargs):
    with pytest.raises(AdapterError) as caught:
        function(*args, **kwargs)
    assert caught.value.errno == code
    return caught.value.strerror


# The table alone


@pytest.fixture
def table():
    made = QpTable(host_memory, 8, 64)
    yield made
    made.close()


def words(table, place):
    return struct.unpack("<HH", host_memory.read(table.address + table.record * place, 4))


@pytest.mark.parametrize(("window", "count"), [(16, 2), (64, 8), (64, 1 << 14), (1024, 4)])
def test_size_and_alignment(window, count):
    table = QpTable(host_memory, count, window)
    assert table.record == qpc_bytes(window)
    assert table.bus % max(4096, table.record) == 0
    assert host_memory._arena.sizes[table.address - host_memory._arena.base] == count * table.record
    table.post(count - 1, SQ, 5)
    assert words(table, count - 1) == (5, 0)
    table.close()


def test_a_large_table_is_not_written_as_a_whole():
    """64 MiB of a host's memory stay untouched where nothing is said."""
    written = []

    class Memory:
        alloc_contiguous, free = staticmethod(host_memory.alloc_contiguous), staticmethod(host_memory.free)

        @staticmethod
        def write(address, data):
            written.append(len(data))

    table = QpTable(Memory, 1 << 14, 64)
    assert written == []
    table.clear(77)
    assert written == [64]
    table.close()


def test_each_queue_has_its_index(table):
    for place in range(8):
        table.clear(place)
    table.post(8 + 3, SQ, 0x11234)
    table.post(16 + 3, RQ, 0xFFFF)
    assert words(table, 3) == (0x1234, 0xFFFF)
    table.post(3, PUSH, 0x1235)
    assert words(table, 3) == (0x1235, 0xFFFF)
    table.post(3, RQ, 0x10000)
    assert words(table, 3) == (0x1235, 0)
    assert all(words(table, place) == (0, 0) for place in range(8) if place != 3)


def test_what_stood_there_is_cleared(table):
    host_memory.write(table.address + 5 * table.record, b"\xa5" * table.record)
    table.clear(8 + 5)
    record = host_memory.read(table.address + 5 * table.record, table.record)
    assert record == bytes(64) + b"\xa5" * (table.record - 64), "the rest is the device's"
    table.post(5, RQ, 7)
    table.clear(5)
    table.post(5, SQ, 1)
    assert words(table, 5) == (1, 0)


@pytest.mark.parametrize("first", [SQ, RQ])
def test_two_threads_post_to_both_queues(table, first, monkeypatch):
    """Memory may be written by words: whoever writes last writes what both have said."""
    table.clear(2)
    write, once = host_memory.write, []
    second = RQ if first == SQ else SQ

    def slowly(address, data):
        if not once:
            once.append(other := threading.Thread(target=table.post, args=(2, second, 9)))
            other.start()
            other.join(0.2)
        write(address, data)

    monkeypatch.setattr(host_memory, "write", slowly)
    table.post(2, first, 7)
    once[0].join()
    assert words(table, 2) == ((7, 9) if first == SQ else (9, 7))


def test_a_word_is_written_whole(table, monkeypatch):
    """Smaller pieces would be read and written back where the memory is behind a network."""
    sizes = []
    monkeypatch.setattr(host_memory, "write", lambda address, data: sizes.append((address % 4, len(data))))
    table.post(1, SQ, 1)
    table.post(1, RQ, 1)
    assert sizes == [(0, 4), (0, 4)]


# The adapter


@pytest.fixture
def fake():
    return FakeDevice(table=True, push=True)


@pytest.fixture
def adapter(fake):
    return Adapter(fake)


def test_the_device_is_told_of_the_table(fake, adapter):
    written = dict(fake.writes)
    assert written[QPC_HIGH] << 32 | written[QPC_LOW] == adapter.qp_table.bus
    assert (adapter.qp_table.count, adapter.qp_table.record) == (8, QPC_BYTES)
    adapter.close()
    sizes = host_memory._arena.sizes
    assert adapter.qp_table.address - host_memory._arena.base not in sizes


def test_a_device_without_one_has_none():
    fake = FakeDevice()
    adapter = Adapter(fake)
    assert adapter.qp_table is None
    assert not {QPC_LOW, QPC_HIGH} & {offset for offset, _ in fake.writes}
    number = adapter.create_qp(owner := Owner())
    fake.event(QP_FATAL, number % 8)  # a number as any other
    adapter.process_events()
    assert owner.events == []
    fake.event(QP_FATAL, number)
    adapter.process_events()
    assert owner.events == [QP_FATAL]
    assert adapter.query_qp(number)["state"] == QpState.RESET


def test_a_table_that_finds_no_room(fake, monkeypatch):
    """Nothing of the others is kept, and the device may be opened again."""
    before = dict(host_memory._get().sizes)
    alloc = host_memory.alloc_contiguous

    def full(size, *alignment):
        if size == 8 * QPC_BYTES:
            raise MemoryError("no room")
        return alloc(size, *alignment)

    with monkeypatch.context() as patch:
        patch.setattr(host_memory, "alloc_contiguous", full)
        with pytest.raises(MemoryError, match="no room"):
            Adapter(fake)
    assert host_memory._get().sizes == before
    Adapter(fake).close()
    assert host_memory._get().sizes == before


def test_an_index_stands_in_memory_before_it_is_rung(fake, adapter):
    """The fake device looks there at each doorbell."""
    number = adapter.create_qp(Owner())
    adapter.ring_qp(number, SQ, 0x12345)
    adapter.ring_qp(number, RQ, 7)
    assert fake.posted(number) == (0x2345, 7)
    adapter.push_qp(number, bytes(64), 0x10003)
    assert fake.posted(number) == (3, 7)
    assert fake.writes[-1] == (PAGES + PUSH, 3)


def test_a_life_begins_with_nothing_posted(fake, adapter):
    """Also where another QP has been, or the memory had another use. The fake device looks there at each command."""
    address = adapter.qp_table.address
    host_memory.write(address, b"\xff" * 8 * QPC_BYTES)
    numbers = [adapter.create_qp(Owner()) for _ in range(8)]
    for number in numbers:
        adapter.ring_qp(number, SQ, 5)
        adapter.ring_qp(number, RQ, 6)
    adapter.modify_qp(numbers[0], RESET)
    assert fake.posted(numbers[0]) == (0, 0)
    assert fake.posted(numbers[1]) == (5, 6)
    adapter.modify_qp(numbers[1], 0, pd=3)
    assert fake.posted(numbers[1]) == (5, 6)
    adapter.destroy_qp(numbers[2])
    assert adapter.create_qp(Owner()) == numbers[2]
    assert fake.posted(numbers[2]) == (0, 0)


def test_what_the_driver_cannot_say_changes_nothing(fake, adapter):
    number = adapter.create_qp(Owner())
    adapter.ring_qp(number, SQ, 5)
    with pytest.raises(ValueError, match="cannot hold"):
        adapter.modify_qp(number, RESET, pd=1 << 24)
    with pytest.raises(ValueError, match="cannot hold"):
        adapter.create_qp(Owner(), pd=1 << 24)
    assert fake.posted(number) == (5, 0)
    assert len([adapter.create_qp(Owner()) for _ in range(7)]) == 7


def test_a_number_is_never_that_of_a_place(fake, adapter):
    fake.random.sample = lambda population, k: [population[0]]
    assert all(adapter.create_qp(Owner()) >= adapter.control.max_qp for _ in range(8))


# QPs that are lost


def test_the_owner_of_the_place_is_told(fake, adapter):
    owners = [Owner() for _ in range(3)]
    numbers = [adapter.create_qp(owner) for owner in owners]
    fake.lose(numbers[1])
    assert adapter.process_events() == 1
    assert [owner.events for owner in owners] == [[], [QP_FATAL], []]
    fake.event(QP_FATAL, numbers[0])  # of the QP itself: it failed, and the device knows it
    adapter.process_events()
    assert owners[0].events == [QP_FATAL]
    assert adapter.query_qp(numbers[0])["state"] == QpState.RESET


def test_the_device_hears_no_more_of_it(fake, adapter):
    number = adapter.create_qp(Owner(), pd=5)
    adapter.modify_qp(number, 0, state=QpState.RTS, pd=5)
    fake.lose(number)
    adapter.process_events()
    said = len(fake.writes), len(fake.commands)
    values = adapter.query_qp(number)
    assert values["state"] == QpState.ERR
    assert {value for name, value in values.items() if name != "state"} == {0}
    assert set(values) == set(adapter.query_qp(adapter.create_qp(Owner())))
    said = len(fake.writes), len(fake.commands)
    for action in range(9):
        assert "has lost this QP" in refused(errno.EIO, adapter.modify_qp, number, action, state=action % 7)
    for doorbell in (SQ, RQ, PUSH):
        adapter.ring_qp(number, doorbell, 3)
    adapter.push_qp(number, bytes(64), 3)
    adapter.destroy_qp(number)
    assert (len(fake.writes), len(fake.commands)) == said
    assert number not in adapter.qps


def test_its_place_is_for_another_one(fake, adapter):
    numbers = [adapter.create_qp(Owner()) for _ in range(8)]
    fake.lose(numbers[3])
    adapter.process_events()
    refused(errno.ENOMEM, adapter.create_qp, Owner())
    adapter.destroy_qp(numbers[3])
    owner = Owner()
    assert adapter.create_qp(owner) == numbers[3]  # the fake device draws no other
    assert adapter.query_qp(numbers[3])["state"] == QpState.RESET
    adapter.modify_qp(numbers[3], 0, state=QpState.INIT)
    adapter.ring_qp(numbers[3], RQ, 3)
    assert fake.posted(numbers[3]) == (0, 3)
    assert owner.events == []
    fake.lose(numbers[3])
    adapter.process_events()
    assert owner.events == [QP_FATAL]


def test_it_is_told_once(fake, adapter):
    number = adapter.create_qp(owner := Owner())
    fake.lose(number)
    fake.event(QP_FATAL, number % 8)
    fake.event(QP_FATAL, 6)  # where nobody is
    assert adapter.process_events() == 3
    assert owner.events == [QP_FATAL]


def test_an_owner_that_is_forgotten(fake, adapter):
    number = adapter.create_qp(owner := Owner())
    del owner
    fake.lose(number)
    assert adapter.process_events() == 1
    adapter.destroy_qp(number)
    assert DESTROY_QP not in [command[0] for command in fake.commands]


@pytest.mark.parametrize("status", [2, 5])
@pytest.mark.parametrize("opcode", [MODIFY_QP, QUERY_QP, DESTROY_QP])
def test_a_command_is_refused_before_the_event_is_taken(fake, adapter, opcode, status):
    """The device says no, and an event that waits says why."""
    number = adapter.create_qp(owner := Owner())
    fake.lose(number)
    fake.refuse[opcode] = status
    if opcode == MODIFY_QP:
        assert "has lost this QP" in refused(errno.EIO, adapter.modify_qp, number, RESET)
    elif opcode == QUERY_QP:
        assert adapter.query_qp(number)["state"] == adapter.qp_state(number) == QpState.ERR
    else:
        adapter.destroy_qp(number)
        assert number not in adapter.qps
    assert owner.events == [QP_FATAL]
    assert fake.commands[-1][0] == opcode


@pytest.mark.parametrize("opcode", [MODIFY_QP, QUERY_QP, DESTROY_QP])
def test_a_command_that_is_refused_for_another_reason(fake, adapter, opcode):
    number = adapter.create_qp(Owner())
    fake.lose(adapter.create_qp(Owner()))
    fake.refuse[opcode] = 3
    call = {MODIFY_QP: lambda: adapter.modify_qp(number, 0), QUERY_QP: lambda: adapter.query_qp(number)}
    assert "BAD_STATE" in refused(errno.EINVAL, call.get(opcode, lambda: adapter.destroy_qp(number)))
    assert number in adapter.qps


def test_an_event_comes_while_a_command_runs(fake, adapter):
    number = adapter.create_qp(owner := Owner())
    fake.busy_reads = 2
    fake.script.append(lambda: fake.lose(number))
    adapter.control.command(NOP)
    assert owner.events == [QP_FATAL]
    assert adapter.query_qp(number)["state"] == QpState.ERR


def test_a_queue_that_was_not_made_leaves_its_place(fake, adapter):
    fake.refuse[CREATE_QP] = 5
    for _ in range(20):
        refused(errno.EIO, adapter.create_qp, Owner())
    fake.refuse.clear()
    assert len({adapter.create_qp(Owner()) % 8 for _ in range(8)}) == 8
    fake.refuse[INVALIDATE_KEY] = 5  # has nothing to do with QPs
    refused(errno.EIO, adapter.control.command, INVALIDATE_KEY)


# Many


class Large(FakeDevice):
    """16,384 QPs, about which it knows nothing."""

    def __init__(self):
        super().__init__(table=True)
        self.registers[0x08] = self.registers[0x08] & ~15 | 14

    def _run(self, number, opcode, action):
        return 0

    def posted(self, number):
        table = self.registers[QPC_HIGH] << 32 | self.registers[QPC_LOW]
        return struct.unpack("<HH", self.read_bus(table + QPC_BYTES * (number % (1 << 14)), 4))


def test_so_many_can_be_made():
    """All of them, each of its own place and with its own word; the last ones cost what the first ones do."""
    fake = Large()
    adapter = Adapter(fake)
    owner = Owner()
    began = time.process_time()
    numbers = [adapter.create_qp(owner) for _ in range(1000)]
    first = time.process_time() - began
    numbers += [adapter.create_qp(owner) for _ in range(14384)]
    began = time.process_time()
    numbers += [adapter.create_qp(owner) for _ in range(1000)]
    assert time.process_time() - began < 10 * first
    assert {number % (1 << 14) for number in numbers} == set(range(1 << 14))
    assert min(numbers) >= 1 << 14
    refused(errno.ENOMEM, adapter.create_qp, owner)
    for index in (0, 77, 16383):
        adapter.ring_qp(numbers[index], SQ, index)
    assert [fake.posted(numbers[index])[0] for index in (0, 76, 77, 16383)] == [0, 0, 77, 16383]
    adapter.close()
