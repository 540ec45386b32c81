"""A device port in plain Python: registers, commands that keep contexts, doorbells that are noted down.

It does no work by itself. A test plays the engine: it writes completions and events, changes states, and looks at what
the driver has put into registers and memory. All layouts are written out here once more, by hand.
"""

import itertools
import random
import struct
from collections import deque
from contextlib import contextmanager

from verbena.sw import host_memory, port
from verbena.sw.verbs import base

__all__ = ["FakeDevice", "Memory", "provided"]

MAGIC, VERSION = 0x56524231, 11
QPS, CQS, SRQS = 8, 4, 2
QPC_BYTES = 4096
"""Of a QP's record: 64 messages may be under way."""

COMMAND, COMMAND_STATUS, CLOCK = 0x10, 0x14, 0x1C
MAC_LOW, MAC_HIGH, IP, TRANSPORTS = 0x20, 0x24, 0x28, 0x2C
MPT_LOW, MPT_HIGH, MPT_LOG_SIZE, QUEUES = 0x30, 0x34, 0x38, 0x3C
EQ_LOW, EQ_HIGH, EQ_LOG_SIZE, EQ_CONSUMER = 0x40, 0x44, 0x48, 0x4C
OWNER, BUS_TIMEOUT = 0x64, 0x68
EVENT_QUEUES = 0x100
CQC_LOW, CQC_HIGH, CQC_LOG_SIZE = 0x6C, 0x70, 0x74
QPC_LOW, QPC_HIGH = 0x78, 0x7C
MAILBOX, COUNTERS, QP_PAGES, CQ_PAGES, SRQ_PAGES = 0x800, 0xC00, 0x4000000, 0x8000000, 0xC000000
NOP, CREATE_QP, MODIFY_QP, QUERY_QP, DESTROY_QP, CREATE_CQ, DESTROY_CQ, INVALIDATE_KEY, MODIFY_CQ = range(9)
INVALIDATE_MTT = 9
DEVICE_RESET = 10
CREATE_SRQ, MODIFY_SRQ, DESTROY_SRQ = 11, 12, 13
MODERATE_CQ = 14
RESET, START_RECEIVE, START_SEND, ERROR = range(1, 5)
QP_FATAL = 1


class InOrder(random.Random):
    """Draws keys, and leaves the QPs in order: tests write their numbers down."""

    def sample(self, population, k):
        return list(population[:k])


class Memory:
    """Host memory that remembers what is taken through it, so that all of it can be given back."""

    _taken = set()  # of all fake devices

    def alloc(self, *arguments):
        at = host_memory.alloc(*arguments)
        self._taken.add(at)
        return at

    def alloc_contiguous(self, *arguments):
        at, bus = host_memory.alloc_contiguous(*arguments)
        self._taken.add(at)
        return at, bus

    def free(self, address):
        host_memory.free(address)
        self._taken.discard(address)

    def __getattr__(self, name):
        return getattr(host_memory, name)

    @classmethod
    def give_back(cls):
        arena = host_memory._get()
        for address in cls._taken:
            if address - arena.base in arena.sizes:  # else a test has given it back past its device
                host_memory.free(address)
        cls._taken.clear()


class FakeDevice:
    """A :class:`verbena.sw.port.Port`. With ``table`` each QP has a record in host memory, and the device asserts that
    the driver's words stand there in time.

    Members
    -------
    writes : list of (offset, value)
        Every register write but those to the mailbox.
    commands : list of (opcode, number, action, words of the mailbox)
    qps : {number: 32 words}, cqs : {number: 4 words}, srqs : {number: 32 words}
        Contexts, as the last command left them.
    dynamic : {number: (sq_psn, rq_psn, sq_index, rq_index, sq_completed)}
    busy_reads : int
        How often the status says `busy` after each command; ``hang`` makes it say so for ever.
    refuse : {opcode: status}
    before_modify : {number of a CQ: callable}
        Called once when a MODIFY_CQ of it comes, before it has its effect.
    script : deque of callables
        One is called at each ``advance``, which returns whether there are more.
    advanced : list of int
        Cycles asked for.
    neighbours : {ip: mac}
    """

    log_cqc_size = 2
    device_memory = None

    def __init__(
        self,
        name="fake0",
        mac=0x0256420000A1,
        ip=0x0A0000A1,
        push=False,
        atomics=True,
        uc=True,
        ud=True,
        raw=False,
        reach=64,
        log_responses=6,
        table=False,
        srqs=SRQS,
        physical=False,
        log_wqe_bytes=7,
        log_event_queues=0,
        moderates=False,
    ):
        self.memory = Memory()
        self.name = name
        self.mac = mac
        self.ip = ip
        self.tick = 640
        log = (QPS - 1).bit_length(), (CQS - 1).bit_length(), 3, 6
        self.registers = {
            0x00: MAGIC,
            0x04: VERSION,
            0x18: 2,
            0x08: sum(x << 4 * i for i, x in enumerate(log))
            | push << 16
            | (not atomics) << 18
            | table << 19
            | log_responses << 20
            | reach << 24
            | physical << 31,
            CLOCK: 1234,
            QUEUES: srqs | log_event_queues << 16 | moderates << 20 | moderates << 21,
            TRANSPORTS: 1 << 2 | uc << 3 | ud << 4 | raw << 8 | log_wqe_bytes << 24,
        }
        self.table = table
        self.random = InOrder(1)
        self.mailbox = [0] * 64
        self.counters = [0] * 256
        self.writes = []
        self.commands = []
        self.qps = {}
        self.cqs = {}
        self.srqs = {}
        self.dynamic = {}
        self.busy_reads = 0
        self.hang = False
        self.refuse = {}
        self.before_modify = {}
        self.script = deque()
        self.advanced = []
        self.now = 0
        self.neighbours = {ip: mac, ip + 1: mac + 1}
        self.watches = {}
        self._numbers = itertools.count(1)
        self.produced = {}
        self.events = [0] * (1 << log_event_queues)
        self._busy = 0
        self._status = 0

    # The port

    def read32(self, offset):
        if offset == COMMAND_STATUS:
            if self.hang or self._busy:
                self._busy -= 1
                return 1 << 31
            return self._status
        if MAILBOX <= offset < MAILBOX + 256:
            assert not self._busy, "the mailbox is read while a command runs"
            return self.mailbox[(offset - MAILBOX) // 4]
        if COUNTERS <= offset < COUNTERS + 1024:
            return self.counters[(offset - COUNTERS) // 4]
        return self.registers.get(offset, 0)

    def write32(self, offset, value):
        assert 0 <= value < 1 << 32
        if MAILBOX <= offset < MAILBOX + 256:
            assert not self._busy, "the mailbox is written while a command runs"
            self.mailbox[(offset - MAILBOX) // 4] = value
            return
        self.writes.append((offset, value))
        if offset == OWNER and value & self.registers.get(OWNER, 0) & 1:
            return
        if offset == COMMAND:
            self._busy = self.busy_reads
            self._status = self._run(value & 0xFFFFFF, value >> 24 & 15, value >> 28)
        else:
            self.registers[offset] = value
        if self.table and QP_PAGES <= offset < CQ_PAGES and offset % 4096 <= 8:
            # SQ_PRODUCER, RQ_PRODUCER, SQ_PUSH
            place = (offset - QP_PAGES) // 4096
            assert self.posted(place)[offset % 4096 == 4] == value, "what is rung does not stand in the record"

    def advance(self, max_cycles):
        self.advanced.append(max_cycles)
        if self.script:
            self.script.popleft()()
        return bool(self.script)

    def time_ns(self):
        return self.now

    def watch(self, address, length):
        number = next(self._numbers)
        self.watches[number] = (address, length)
        return number

    def unwatch(self, watch):
        del self.watches[watch]

    def resolve(self, ip):
        return self.neighbours[ip]

    # The engine

    def _run(self, number, opcode, action):
        if opcode == DEVICE_RESET:
            self.qps, self.cqs, self.srqs, self.dynamic, self.produced = {}, {}, {}, {}, {}
            self.events = [0] * len(self.events)
            self.registers[0x0C] = 0
            return 0
        self.commands.append((opcode, number, action, list(self.mailbox[:32])))
        if opcode in self.refuse:
            return self.refuse[opcode]
        if opcode == CREATE_QP and (not number or {n for n in self.qps if n % QPS == number % QPS} - {number}):
            return 2
        if opcode in (MODIFY_QP, QUERY_QP, DESTROY_QP) and number not in self.qps:
            return 2
        if self.table and (opcode == CREATE_QP or (opcode, action) == (MODIFY_QP, RESET)):
            assert self.posted(number) == (0, 0), "something is posted to a QP that begins"
        if opcode in (CREATE_CQ, MODIFY_CQ, DESTROY_CQ) and number >> self.registers[CQC_LOG_SIZE]:
            return 2
        if opcode in (CREATE_SRQ, MODIFY_SRQ, DESTROY_SRQ) and number >= self.registers[QUEUES] & 0xFFFF:
            return 2
        if opcode == CREATE_QP:
            self.qps[number] = self.mailbox[:32]
            self.dynamic[number] = (0, 0, 0, 0, 0)
        elif opcode == MODIFY_QP:
            self.qps[number] = self.mailbox[:32]
            sq_psn, rq_psn, *rest = self.dynamic[number]
            if action == RESET:
                self.dynamic[number] = (0, 0, 0, 0, 0)
            elif action == START_RECEIVE:
                self.dynamic[number] = (sq_psn, self.mailbox[17], *rest)
            elif action == START_SEND:
                self.dynamic[number] = (self.mailbox[16], rq_psn, *rest)
        elif opcode == QUERY_QP:
            sq_psn, rq_psn, sq_index, rq_index, sq_completed = self.dynamic[number]
            self.mailbox[:32] = self.qps[number]
            self.mailbox[32:36] = [sq_psn, rq_psn, sq_index | rq_index << 16, sq_completed]
        elif opcode == DESTROY_QP:
            del self.qps[number]
        elif opcode in (CREATE_CQ, MODIFY_CQ):
            if number in self.before_modify:
                self.before_modify.pop(number)()
            self.cqs[number] = self.mailbox[:4]
            self.produced[number] = 0
        elif opcode == MODERATE_CQ:
            assert self.cqs[number][:3] == self.mailbox[:3]
            assert self.cqs[number][3] >> 28 == self.mailbox[3] >> 28
            self.cqs[number] = self.mailbox[:4]
        elif opcode == DESTROY_CQ:
            del self.cqs[number]
        elif opcode == CREATE_SRQ:
            self.srqs[number] = self.mailbox[:32]
        elif opcode == MODIFY_SRQ:
            self.srqs[number][15] = self.mailbox[15]
        elif opcode == DESTROY_SRQ:
            assert not [n for n, words in self.qps.items() if words[14] >> 8 & 1 and words[14] >> 16 & 255 == number]
            del self.srqs[number]
        return 0

    def set_state(self, number, state):
        """The engine changes a QP's state by itself."""
        self.qps[number][0] = self.qps[number][0] & ~15 | state

    def lose(self, number):
        """The record of a QP is not what the engine has written: the engine forgets the QP, and tells its place."""
        del self.qps[number]
        self.event(QP_FATAL, number % QPS)

    def complete(self, cqn, qpn, index, *, status=0, opcode=0, imm=0, length=0, flags=0, source=0, syndrome=0):
        """Writes a completion into the ring of a CQ."""
        low, high, size, _ = self.cqs[cqn]
        size &= 15
        number, self.produced[cqn] = self.produced[cqn], self.produced[cqn] + 1 & 0xFFFF
        phase = ~(number >> size) & 1
        entry = struct.pack(
            "<IIIBBHIIII",
            imm,
            length,
            qpn | status << 24,
            opcode,
            flags,
            index & 0xFFFF,
            source | syndrome << 24,
            0,
            0,
            phase << 31,
        )
        self.write_bus((high << 32 | low) + 32 * (number & (1 << size) - 1), entry)

    def event(self, kind, number, queue=0):
        """Writes an event into an event ring."""
        first = EVENT_QUEUES + 32 * queue if queue else EQ_LOW
        low, high, size = (self.registers[first + 4 * word] for word in range(3))
        index = self.events[queue]
        self.events[queue] = index + 1 & 0xFFFF
        entry = struct.pack("<IIII", kind, number, 0, (~(index >> size) & 1) << 31)
        self.write_bus((high << 32 | low) + 16 * (index & (1 << size) - 1), entry)

    # Memory by bus address

    def host(self, bus):
        """Address in this process of a bus address."""
        for window in host_memory.windows():
            page = (bus - window.bus) // 4096 ^ window.mask
            if bus >= window.bus and 0 <= page < window.size // 4096:
                return window.address + page * 4096 + bus % 4096
        raise AssertionError(f"nothing is at {bus:#x} of the bus")

    def read_bus(self, bus, length):
        """``length`` bytes within a page, or within what is contiguous on the bus."""
        return host_memory.read(self.host(bus), length)

    def write_bus(self, bus, data):
        host_memory.write(self.host(bus), data)

    # What the driver has written

    def mpt(self, index):
        """The 32 bytes of an MPT entry."""
        return self.read_bus((self.registers[MPT_HIGH] << 32 | self.registers[MPT_LOW]) + 32 * index, 32)

    def posted(self, number):
        """Both producer indices in the record of a QP, of which all else that is the driver's is 0."""
        table = self.registers[QPC_HIGH] << 32 | self.registers[QPC_LOW]
        assert table % QPC_BYTES == 0
        sq, rq, rest = struct.unpack("<HH60s", self.read_bus(table + QPC_BYTES * (number % QPS), 64))
        assert not any(rest)
        return sq, rq

    def send_ring(self, number):
        """(bus address, log size, log stride) of a QP's send ring."""
        words = self.qps[number]
        return words[9] << 32 | words[8], words[10] & 15, words[10] >> 4 & 15

    def recv_ring(self, number):
        """The same of its receive ring; of an SRQ's table of WQEs, if it has one."""
        words = self.qps[number]
        return words[13] << 32 | words[12], words[14] & 15, words[14] >> 4 & 15

    def srq_ring(self, number):
        """The same of an SRQ's ring."""
        words = self.srqs[number]
        return words[13] << 32 | words[12], words[14] & 15, words[14] >> 4 & 15

    def wqe(self, ring, index):
        """Bytes of entry ``index`` of a ring."""
        bus, size, stride = ring
        return self.read_bus(bus + ((index & (1 << size) - 1) << stride), 1 << stride)

    def rung(self, offset):
        """Values written to a doorbell, in order."""
        return [value for at, value in self.writes if at == offset]


@contextmanager
def provided(fake):
    """The driver finds ``fake`` by its name meanwhile."""
    port.provide(fake.name, lambda: fake)
    try:
        yield fake
    finally:
        base.bury()
        del port._openers[fake.name]
        port._open.pop(fake.name, None)
