"""Bring-up, commands, tables and events. Bytes are written out by hand."""

import errno
import struct
import threading

import pytest
from fake_device import (
    BUS_TIMEOUT,
    COMMAND,
    COUNTERS,
    CREATE_QP,
    CREATE_SRQ,
    DESTROY_SRQ,
    DEVICE_RESET,
    EQ_CONSUMER,
    MAILBOX,
    MODIFY_SRQ,
    NOP,
    OWNER,
    SRQ_PAGES,
    VERSION,
    FakeDevice,
)
from verbena.hdl.abi.commands import Command
from verbena.hdl.abi.counters import COUNTERS as NAMES
from verbena.sw import host_memory
from verbena.sw.adapter import Adapter, AdapterError
from verbena.sw.events import take_events

COMPLETION, CQ_ERR, QP_FATAL, QP_ACCESS_ERR, DEVICE_FATAL = 128, 0, 1, 3, 8
SRQ_ERR, SRQ_LIMIT_REACHED, LAST_WQE = 14, 15, 16
NEIGHBOUR_IP, NEIGHBOUR_LOW, NEIGHBOUR_HIGH = 0x58, 0x5C, 0x60


@pytest.fixture(params=[False, True], ids=["slots", "table"])
def fake(request):
    """With slots for all QPs, and with a table of them."""
    return FakeDevice(table=request.param)


@pytest.fixture
def adapter(fake):
    return Adapter(fake)


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


# Bring-up


def test_bring_up(fake, adapter):
    """The adapter is claimed, then reset, then told everything, then enabled."""
    written = dict(fake.writes)
    offsets = [offset for offset, _ in fake.writes]
    assert offsets[:2] == [OWNER, COMMAND]
    assert fake.writes[1] == (COMMAND, DEVICE_RESET << 24)
    assert offsets[-1] == 0x0C
    assert written[BUS_TIMEOUT] == 4096
    assert written[0x0C] == 3
    assert (written[0x20], written[0x24], written[0x28]) == (0x420000A1, 0x0256, 0x0A0000A1)
    assert (written[0x38], written[0x48]) == (14, 12)
    for low, high, size in ((0x30, 0x34, 32 << 14), (0x40, 0x44, 16 << 12)):
        bus = written[high] << 32 | written[low]
        assert bus % 4096 == 0
        assert not any(fake.read_bus(bus + at, 4096) != bytes(4096) for at in range(0, size, 4096))
    assert (adapter.control.max_qp, adapter.max_cq, adapter.control.data_bytes, adapter.control.window) == (8, 4, 8, 64)


def test_types_of_queue_pairs():
    assert Adapter(FakeDevice()).control.qp_types == {2, 3, 4}
    assert Adapter(FakeDevice(uc=False)).control.qp_types == {2, 4}
    assert Adapter(FakeDevice(ud=False)).control.qp_types == {2, 3}


def test_something_else_is_not_brought_up(fake):
    fake.registers[0] = 0xFFFFFFFF
    assert "no Verbena engine: magic 0xffffffff" in refused(errno.ENODEV, Adapter, fake)
    fake.registers[0], fake.registers[4] = 0x56524231, 3
    assert f"interface 3, the driver {VERSION}" in refused(errno.ENODEV, Adapter, fake)
    assert fake.writes == []


# Neighbours


def test_a_known_neighbour_is_not_asked_for(fake, adapter):
    assert adapter.control.resolve(0x0A0000A2) == fake.mac + 1
    assert not fake.rung(NEIGHBOUR_IP)


def test_another_neighbour_answers_an_arp_request(fake, adapter):
    """The second one: the first request was lost."""

    def answer():
        fake.now += 10_000_000
        if len(fake.rung(NEIGHBOUR_IP)) == 2:
            fake.registers |= {NEIGHBOUR_LOW: 0xA55A0001, NEIGHBOUR_HIGH: 1 << 31 | 0x0256}

    fake.script.extend([answer] * 1000)
    assert adapter.control.resolve(0xC0A80001) == 0x0256A55A0001
    assert fake.rung(NEIGHBOUR_IP) == [0xC0A80001] * 2


@pytest.mark.parametrize("second", [None, 25_000_000])
def test_three_requests_a_second_apart(fake, adapter, second):
    """Of the port's time, whatever it counts as a second; a port that always has something to do is waited for."""
    if second is not None:
        fake.second_ns = second
    second = second or 10**9
    asked = []

    def busy(cycles):
        if len(fake.rung(NEIGHBOUR_IP)) > len(asked):
            asked.append(fake.now)
        fake.now += second // 100
        return True

    fake.advance = busy
    assert "192.168.0.1" in refused(errno.EHOSTUNREACH, adapter.control.resolve, 0xC0A80001)
    assert asked == [0, second, 2 * second]
    assert fake.now == 3 * second


def test_an_answer_may_come_late_in_the_second(fake, adapter):
    def late(cycles):
        fake.now += 10_000_000
        if fake.now > 950_000_000:
            fake.registers |= {NEIGHBOUR_LOW: 0xA55A0001, NEIGHBOUR_HIGH: 1 << 31 | 0x0256}
        return True

    fake.advance = late
    assert adapter.control.resolve(0xC0A80001) == 0x0256A55A0001
    assert fake.rung(NEIGHBOUR_IP) == [0xC0A80001]


def test_nobody_answers(fake, adapter):
    fake.registers |= {NEIGHBOUR_LOW: 0xA55A0001, NEIGHBOUR_HIGH: 0x0256}
    assert "192.168.0.1" in refused(errno.EHOSTUNREACH, adapter.control.resolve, 0xC0A80001)
    assert fake.rung(NEIGHBOUR_IP) == [0xC0A80001] * 3
    assert sum(fake.advanced) < 1_000_000


# Commands


def test_a_command_waits_for_its_end(fake, adapter):
    fake.busy_reads = 3
    adapter.control.command(Command.NOP, 5)
    assert fake.writes[-1] == (COMMAND, 5)
    assert fake.advanced == [32, 32, 32]


def test_the_state_alone(fake, adapter, monkeypatch):
    """A QP's state is asked for often: one word of the answer is read."""
    fake.qps[9], fake.dynamic[9], read = [0xFFFFFFF3, *range(1, 32)], (0,) * 5, []
    words = adapter.control._read_block
    monkeypatch.setattr(
        adapter.control, "_read_block", lambda offset, count: (read.append((offset, count)), words(offset, count))[1]
    )
    assert adapter.qp_state(9) == 3
    assert fake.writes[-1] == (COMMAND, 9 | 3 << 24)
    assert read == [(MAILBOX, 1)]


def test_operands_and_results(fake, adapter):
    fake.qps[9], fake.dynamic[9] = [0x321, *range(1, 32)], (0xABCDEF, 0x123456, 0x1111, 0x2222, 0x3333)
    values = adapter.query_qp(9)
    assert fake.writes[-1] == (COMMAND, 9 | 3 << 24)
    assert (values["state"], values["type"], values["path_mtu"], values["pd"]) == (1, 2, 3, 1)
    assert values["current_sq_psn"] == 0xABCDEF
    assert values["current_rq_psn"] == 0x123456
    assert (values["current_sq_index"], values["current_rq_index"], values["current_sq_completed"]) == (
        0x1111,
        0x2222,
        0x3333,
    )


def test_blocks_of_words(fake):
    """A port that can reads and writes the mailbox at once."""
    blocks = []

    def read_block(offset, count):
        blocks.append((offset, count))
        return [fake.read32(offset + 4 * i) for i in range(count)]

    def write_block(offset, values):
        blocks.append((offset, len(values)))
        for i, value in enumerate(values):
            fake.write32(offset + 4 * i, value)

    fake.read_block, fake.write_block = read_block, write_block
    adapter = Adapter(fake)
    number = adapter.create_qp(Owner(), state=1, pkey=0x1234)
    assert blocks == [(0x800, 32)]
    assert adapter.query_qp(number)["pkey"] == 0x1234
    adapter.destroy_qp(number)
    assert blocks[1:] == [(0x800, 36)]


def test_a_command_that_is_refused(fake, adapter):
    fake.refuse[NOP] = 4
    assert refused(errno.EINVAL, adapter.control.command, Command.NOP, 0x12) == "NOP of 0x12 was refused: BAD_PARAMETER"
    fake.refuse[NOP] = 9
    assert refused(errno.EINVAL, adapter.control.command, Command.NOP) == "NOP of 0x0 was refused: 9"


def test_a_command_that_does_not_end(fake, adapter, monkeypatch):
    monkeypatch.setattr("verbena.sw.control.COMMAND_CYCLES", 1000)
    fake.busy_reads = 10**9
    assert "does not end" in refused(errno.ETIMEDOUT, adapter.control.command, Command.NOP)
    count = len(fake.writes)
    # The mailbox belongs to it: nothing more may be said.
    assert "an earlier command does not end" in refused(errno.EBUSY, adapter.query_qp, 9)
    assert len(fake.writes) == count


def test_a_command_that_memory_holds_up(fake, adapter, monkeypatch):
    monkeypatch.setattr("verbena.sw.control.COMMAND_CYCLES", 1000)
    fake.busy_reads = 10**9
    fake.registers[0x18] = 4
    assert "host memory does not answer" in refused(errno.ETIMEDOUT, adapter.control.command, Command.NOP)


def test_a_reset_that_does_not_end(fake, adapter, monkeypatch):
    monkeypatch.setattr("verbena.sw.control.COMMAND_CYCLES", 1000)
    fake.busy_reads = 10**9
    assert "DEVICE_RESET does not end" in refused(errno.ETIMEDOUT, adapter.control.reset)


def test_all_contexts_hear_of_a_device_that_is_lost(fake, adapter):
    contexts = [Owner(), Owner()]
    adapter.contexts.update(contexts)
    fake.event(DEVICE_FATAL, 0)
    adapter.process_events()
    assert [context.events for context in contexts] == [[DEVICE_FATAL]] * 2


def test_close_stops_the_device_and_gives_it_up(fake, adapter):
    count = len(fake.writes)
    adapter.close()
    assert fake.writes[count:] == [(COMMAND, DEVICE_RESET << 24), (OWNER, 0)]
    assert fake.registers[0x0C] == 0
    Adapter(fake).close()


def test_events_are_taken_while_a_command_waits(fake, adapter):
    owner = Owner()
    adapter.create_cq(owner, 0, 4)
    fake.busy_reads = 2
    fake.script.append(lambda: fake.event(COMPLETION, 0))
    adapter.control.command(Command.NOP)
    assert owner.events == [COMPLETION]


def test_commands_of_two_threads_do_not_mix(fake, adapter):
    fake.busy_reads = 1
    fake.qps[8], fake.dynamic[8] = [0] * 32, (0,) * 5
    wrong = []

    def run(pd):
        for _ in range(50):
            adapter.modify_qp(8, 0, pd=pd)
        if fake.commands[-1][3][1] not in (7, 9):
            wrong.append(pd)

    threads = [threading.Thread(target=run, args=(pd,)) for pd in (7, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(c[0] == 2 for c in fake.commands) == 100


def test_counters_do_not_tear(fake, adapter):
    index = list(NAMES).index("rx_packets")
    at = COUNTERS + 8 * index
    values = iter([(0, 0xFFFFFFFF), (1, 5)])
    state = list(next(values))
    original = fake.read32

    def read32(offset):
        if offset == at + 4:
            return state[0]
        if offset == at:
            low = state[1]
            state[:] = next(values, state)
            return low
        return original(offset)

    fake.read32 = read32
    assert adapter.control.counters()["rx_packets"] == 1 << 32 | 5
    assert adapter.control.counters()["tx_packets"] == 0
    assert adapter.control.cycles() == 1234


# Queues


def test_queue_numbers(fake, adapter):
    owners = [Owner() for _ in range(9)]
    assert [adapter.create_qp(o) for o in owners[:8]] == [8, *range(10, 16), 9]  # the place of QP1 comes last
    assert "all 8 QPs are in use" in refused(errno.ENOMEM, adapter.create_qp, owners[8])
    adapter.destroy_qp(11)
    assert adapter.create_qp(owners[8]) == 11
    adapter.destroy_qp(9)
    assert adapter.create_qp(Owner(), qp1=True, state=1) == 1
    assert fake.qps[1][0] == 1
    assert "the place of QP1 is that of QP 0x1" in refused(errno.EBUSY, adapter.create_qp, owners[8], qp1=True)
    assert "all 8 QPs are in use" in refused(errno.ENOMEM, adapter.create_qp, owners[8])
    assert [adapter.create_cq(o, 0, 4) for o in owners[:4]] == [0, 1, 2, 3]
    assert "all 4 CQs are in use" in refused(errno.ENOMEM, adapter.create_cq, owners[4], 0, 4)


def test_contexts(fake, adapter):
    owner = Owner()
    adapter.create_cq(owner, 0x72_8000_1000, 5)
    assert fake.cqs[0] == [0x80001000, 0x72, 5 | 1 << 4, 0]
    number = adapter.create_qp(owner, pd=5, sq_base=0x1234_5678_9000)
    assert fake.qps[number][:10] == [0, 5, 0, 0, 0, 0, 0, 0, 0x56789000, 0x1234]
    adapter.modify_qp(number, 2, rq_psn=0x777777)
    assert fake.commands[-1][2] == 2
    assert fake.dynamic[number][1] == 0x777777
    with pytest.raises(ValueError, match="cannot hold"):
        adapter.modify_qp(number, 0, pd=1 << 24)


def test_a_queue_that_was_not_made_has_no_number(fake, adapter):
    fake.refuse[CREATE_QP] = 3
    refused(errno.EINVAL, adapter.create_qp, Owner())
    assert adapter.qps == {}


def test_doorbells(fake, adapter):
    adapter.ring_qp(8 + 5, 0, 0x12345)
    adapter.ring_qp(8 + 5, 4, 7)
    numbers = [adapter.create_cq(Owner(), 0, 4) for _ in range(4)]
    assert numbers == [0, 1, 2, 3]
    at = adapter.cq_table.address + 3 * 64 + 32
    adapter.tell_consumer(3, 0x10002)
    assert fake.memory.read(at, 8) == (2).to_bytes(8, "little")
    adapter.arm_cq(3, True)
    adapter.arm_cq(3, False)
    assert fake.memory.read(at, 8) == (0x110002).to_bytes(8, "little")
    assert fake.writes[-3:] == [(0x8003000, 2), (0x8003004, 0x10), (0x8003004, 0x11)]
    adapter.ring_qp(8 + 5, 0, 0x12345)
    adapter.ring_qp(8 + 5, 4, 7)
    assert fake.writes[-2:] == [(0x4005000, 0x2345), (0x4005004, 7)]


# Events


def test_events_reach_their_owners(fake, adapter):
    qp, cq = Owner(), Owner()
    number = adapter.create_qp(qp)
    adapter.create_cq(cq, 0, 4)
    for kind, about in ((COMPLETION, 0), (QP_ACCESS_ERR, number), (CQ_ERR, 0), (QP_FATAL, number), (QP_FATAL, 15)):
        fake.event(kind, about)
    assert adapter.process_events() == 5
    assert qp.events == [QP_ACCESS_ERR, QP_FATAL]
    assert cq.events == [COMPLETION, CQ_ERR]
    assert fake.rung(EQ_CONSUMER) == [5]
    assert adapter.process_events() == 0
    assert fake.rung(EQ_CONSUMER) == [5]


def test_an_owner_that_is_forgotten_hears_nothing(fake, adapter):
    owner = Owner()
    number = adapter.create_qp(owner)
    del owner
    fake.event(QP_FATAL, number)
    assert adapter.process_events() == 1


def test_a_push_leaves_out_zeros_but_the_first(fake, adapter):
    fake.writes.clear()
    adapter.push_qp(8 + 5, struct.pack("<16I", *[0] * 5, 6, *[0] * 9, 0xFFFF0000), 0x10003)
    page = 0x4005000
    assert fake.writes == [(page + 0x100, 0), (page + 0x114, 6), (page + 0x13C, 0xFFFF0000), (page + 8, 3)]


@pytest.mark.parametrize(
    ("able", "pays", "may"), [(0, None, 0), (1, None, 1), (1, False, 0), (1, True, 1), (0, True, 0)]
)
def test_device_and_port_say_whether_to_push(able, pays, may):
    fake = FakeDevice(push=able)
    if pays is not None:
        fake.pushes = pays
    adapter = Adapter(fake)
    assert adapter.may_push == bool(may)
    assert (adapter.control.max_qp, adapter.max_cq, adapter.control.data_bytes, adapter.control.window) == (8, 4, 8, 64)


def test_the_event_ring_wraps(fake, adapter):
    owner = Owner()
    adapter.create_cq(owner, 0, 4)
    for _ in range(3):
        for _ in range(3000):
            fake.event(COMPLETION, 0)
        assert adapter.process_events() == 3000
    assert len(owner.events) == 9000
    adapter.event_rings[0].consumer = fake.events[0] = 0xFFFE
    for at in range(4096):  # what that many events leave behind: the last two slots are one pass older
        host_memory.write(adapter.event_rings[0].address + 16 * at + 15, b"\0" if at < 0xFFE else b"\x80")
    for _ in range(4):
        fake.event(COMPLETION, 0)
    assert adapter.process_events() == 4
    assert fake.rung(EQ_CONSUMER)[-1] == 2


def test_late_events_are_not_for_the_successor(fake, adapter):
    old, new = Owner(), Owner()
    number = adapter.create_qp(old)
    fake.event(QP_FATAL, number)
    adapter.destroy_qp(number)
    adapter.qp_numbers.free.rotate(1)
    assert adapter.create_qp(new) == number
    adapter.process_events()
    assert (old.events, new.events) == ([QP_FATAL], [])


def test_advance_says_whether_anything_is_left(fake, adapter):
    assert adapter.advance(77) is False
    assert fake.advanced == [77]
    fake.script.extend([lambda: None, lambda: fake.event(COMPLETION, 0)])
    assert adapter.advance(1) is True
    assert adapter.advance(1) is True  # the last one, but it said something
    assert adapter.advance(1) is False


class Neighbours:
    """Two adapters in one world and a third one elsewhere, each with a CQ and files that tell of events."""

    def __init__(self):
        self.world, self.fakes, self.adapters, self.owners = object(), [], [], []
        for i, world in enumerate((self.world, self.world, object())):
            fake = FakeDevice(f"neighbour{i}")
            fake.world = world
            self.fakes.append(fake)
            self.adapters.append(Adapter(fake))
            self.adapters[-1].files = True
            self.owners.append(Owner())
            self.adapters[-1].create_cq(self.owners[-1], 0, 4)

    def happen(self):
        for fake in self.fakes:
            fake.event(COMPLETION, 0)

    @property
    def heard(self):
        return [len(owner.events) for owner in self.owners]


def test_who_gives_time_to_a_world_takes_the_events_of_all_in_it():
    there = Neighbours()
    there.fakes[0].script.append(there.happen)
    there.adapters[0].advance(10)
    assert there.heard == [1, 1, 0]
    assert [fake.advanced[-1:] for fake in there.fakes[1:]] == [[], []]
    there.happen()
    take_events(there.world)
    assert there.heard == [2, 2, 0]
    take_events(None)
    there.adapters[1].files = False
    there.happen()
    there.adapters[0].advance(10)
    assert there.heard == [3, 2, 0]
    there.adapters[1].files = True
    take_events(there.world)
    assert there.heard == [3, 3, 0]
    there.adapters[1].close()
    there.happen()
    take_events(there.world)
    assert there.heard == [4, 3, 0]


def test_a_neighbour_that_another_thread_has_is_not_waited_for():
    there = Neighbours()
    has, over = threading.Event(), threading.Event()

    def hold():
        with there.adapters[1]._lock:
            has.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    has.wait(60)
    there.happen()
    there.adapters[0].advance(10)
    assert there.heard == [1, 0, 0]
    over.set()
    thread.join()
    there.adapters[0].advance(10)
    assert there.heard == [1, 1, 0]


# Shared receive queues


def test_shared_receive_queues(fake, adapter):
    """The driver chooses the number; the record says where the ring is, and has the limit."""
    owner = Owner()
    attributes = {"state": 3, "rq_base": 0x12_3456_7000, "log_rq_size": 6, "log_rq_stride": 7}
    assert adapter.create_srq(owner, **attributes) == 0
    opcode, number, _, words = fake.commands[-1]
    assert (opcode, number) == (CREATE_SRQ, 0)
    assert (words[0], words[12], words[13], words[14], words[15]) == (3, 0x3456_7000, 0x12, 0x76, 0)
    other = Owner()
    assert adapter.create_srq(other, **attributes) == 1
    assert "all 2 SRQs" in refused(errno.ENOMEM, adapter.create_srq, owner, **attributes)
    adapter.modify_srq(1, **attributes, srq_limit=0x1234)
    assert fake.commands[-1][:2] == (MODIFY_SRQ, 1)
    assert fake.srqs[1][15] == 0x1234 << 16
    adapter.ring_srq(1, 0x1FFFE)
    assert fake.writes[-1] == (SRQ_PAGES + 4096, 0xFFFE)
    adapter.destroy_srq(0)
    assert fake.commands[-1][:2] == (DESTROY_SRQ, 0)
    assert adapter.create_srq(owner, **attributes) == 0
    adapter.destroy_srq(0)
    adapter.destroy_srq(1)
    assert [adapter.create_srq(owner, **attributes) for _ in range(2)] == [0, 1]


def test_an_srq_that_is_refused_leaves_nothing(fake, adapter):
    fake.refuse[CREATE_SRQ] = 4
    assert "BAD_PARAMETER" in refused(errno.EINVAL, adapter.create_srq, Owner(), state=3)
    del fake.refuse[CREATE_SRQ]
    assert adapter.srqs == {}
    assert [adapter.create_srq(Owner(), state=3) for _ in range(2)] == [0, 1]


def test_events_of_an_srq_go_to_it_alone(fake, adapter):
    """The number of an event is that of a QP, a CQ or an SRQ, as its kind says."""
    owners = [Owner() for _ in range(4)]
    assert adapter.create_srq(owners[0], state=3) == 0
    assert adapter.create_srq(owners[1], state=3) == 1
    adapter.create_cq(owners[2], 0x1000, 4)
    number = adapter.create_qp(owners[3])
    for kind, of in ((SRQ_ERR, 1), (SRQ_LIMIT_REACHED, 0), (SRQ_LIMIT_REACHED, 1), (CQ_ERR, 0), (LAST_WQE, number)):
        fake.event(kind, of)
    fake.event(SRQ_ERR, number)  # there is none
    adapter.process_events()
    expected = [[SRQ_LIMIT_REACHED], [SRQ_ERR, SRQ_LIMIT_REACHED], [CQ_ERR], [LAST_WQE]]
    assert [owner.events for owner in owners] == expected


def test_an_event_on_its_way_is_not_for_the_next_srq(fake, adapter):
    owner = Owner()
    adapter.create_srq(owner, state=3)
    fake.event(SRQ_LIMIT_REACHED, 0)
    adapter.destroy_srq(0)
    assert owner.events == [SRQ_LIMIT_REACHED]
    assert adapter.event_rings[0].consumer == 1


@pytest.mark.parametrize(("timeout_ms", "tries"), [(0, 1), (500, 1), (1000, 1), (1001, 2), (2500, 3)])
def test_an_answer_is_waited_for_no_longer_than_wanted(fake, adapter, timeout_ms, tries):
    fake.second_ns = 2_000_000

    def busy(cycles):
        fake.now += 2_000
        return True

    fake.advance = busy
    assert f"for {timeout_ms} ms" in refused(errno.ETIMEDOUT, adapter.control.resolve, 0xC0A80001, timeout_ms)
    assert fake.now == 2_000 * timeout_ms
    assert len(fake.rung(NEIGHBOUR_IP)) == tries


def test_what_is_closed_gives_nothing_new(fake, adapter):
    """Neither does it say anything: there may be a successor."""
    adapter.close()
    fake.writes.clear()
    for ask in (lambda: adapter.port.watch(0, 64), lambda: adapter.control.resolve(0x0A000001)):
        assert "'fake0' has been given up" in refused(errno.ENODEV, ask)
    assert fake.writes == []
