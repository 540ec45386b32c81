"""What the responder of one RC queue pair makes of requests: memory, completions, answers, and how it ends."""

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["MTU", "PSNS", "Grant", "Memory", "Op", "Receive", "Request", "Responder", "Right"]

MTU = 256
PSNS = 1 << 24
LONGEST = 1 << 31
INVALID, ACCESS = 0x61, 0x62
RECV, RECV_WRITE = 128, 129
"""Opcodes of completions."""


class Right:
    WRITE, READ, ATOMIC = 2, 4, 8


class Op:
    """Opcodes, and those that have something in common."""

    READ, CMP_SWP, FETCH_ADD = 0x0C, 0x13, 0x14
    ATOMIC = (CMP_SWP, FETCH_ADD)
    ANSWERED = (READ, *ATOMIC)
    SEND, WRITE = (*range(6), 0x16, 0x17), tuple(range(6, 12))
    BEGIN = (0x00, 0x04, 0x05, 0x06, 0x0A, 0x0B, 0x17, *ANSWERED)
    GO_ON = (0x00, 0x01, 0x06, 0x07)
    RETH = (0x06, 0x0A, 0x0B, READ)
    IMM = (0x03, 0x05, 0x09, 0x0B)
    INVALIDATE = (0x16, 0x17)


@dataclass
class Request:
    """One packet. ``imm`` is also the key that a SEND invalidates, ``operands`` are those of an atomic."""

    opcode: int
    payload: bytes = b""
    address: int = 0
    key: int = 0
    length: int = 0
    imm: int = 0
    operands: tuple = (0, 0)
    psn: int = 0

    def __str__(self):
        where = f"{self.length} bytes at {self.address:#x} by key {self.key:#x}"
        return f"opcode {self.opcode:#04x}, {len(self.payload)} bytes, {where}, imm {self.imm:#x}, {self.operands}"


@dataclass
class Memory:
    """What must stand at ``address``. ``fixed`` is what nobody writes."""

    address: int
    content: bytearray
    fixed: bool = False
    loose: list = field(default_factory=list)
    """Ranges that may hold anything, until it is looked what they hold."""
    writes: list = field(default_factory=list)

    def write(self, offset, data, author):
        self.content[offset : offset + len(data)] = data
        self.writes.append((offset, offset + len(data), author))

    def difference(self, found):
        """Says where ``found`` differs and who wrote there; None if it does not."""
        for start, end in self.loose:
            self.content[start:end] = found[start:end]
        self.loose.clear()
        if found == self.content:
            return None
        wrong = [at for at, (a, b) in enumerate(zip(self.content, found)) if a != b]
        authors = [author for start, end, author in self.writes if start <= wrong[0] < end] or ["nobody"]
        where = f"{len(wrong)} bytes from {wrong[0]} to {wrong[-1]}"
        bytes_there = f"{self.content[wrong[0]]:#04x} expected, {found[wrong[0]]:#04x} found first"
        return f"{where}: {bytes_there}, last written by {authors[-1]}"


class Grant(NamedTuple):
    """What a key opens, of a region or a window."""

    key: int
    memory: Memory
    start: int
    length: int
    rights: int
    window: bool = False


class Receive(NamedTuple):
    """``pieces`` are pairs of offset and length."""

    wr_id: int
    memory: Memory
    pieces: list

    @property
    def room(self):
        return sum(length for _, length in self.pieces)


class Refused(Exception):
    """``blamed`` if the receive at the front is completed by an error of its own."""

    def __init__(self, code, blamed=False):
        self.code, self.blamed = code, blamed


@dataclass
class Message:
    """Which is not complete."""

    kind: tuple
    address: int = 0
    key: int = 0
    left: int = 0
    got: int = 0


class Responder:
    """One life of a queue pair.

    ``receives`` is the list of what is posted, which others may share, ``grants`` is that of its keys.
    """

    def __init__(self, psn, receives, grants):
        self.psn, self.msn = psn, 0
        self.receives, self.grants = receives, grants
        self.message, self.held = None, None
        self.completions = []
        """Those without error: ``wr_id``, opcode, bytes, and the immediate or None."""
        self.reads, self.atomics = {}, {}
        """By PSN: payload, or None where others write, and its length; and what stood there."""
        self.asked = []
        self.due = set()
        """PSNs that must be answered, if nothing is asked for again."""
        self.repeated, self.repeats = False, set()
        self.refusal, self.blamed = None, False
        self.silent = False
        """A READ or an atomic is refused once those before it are answered: what follows it may or may not count."""

    @property
    def front(self):
        return self.held or (self.receives[0] if self.receives else None)

    @property
    def windows(self):
        return [grant for grant in self.grants.values() if grant.window]

    def place(self, key, address, length, right):
        """The memory and the offset that ``key`` opens; None if it does not."""
        grant = self.grants.get(key)
        inside = grant and grant.start <= address and address + length <= grant.start + grant.length
        return (grant.memory, address - grant.memory.address) if inside and grant.rights & right else None

    def take(self, request):
        """What comes of ``request``, in a word."""
        ahead = (request.psn - self.psn) % PSNS
        if self.refusal:
            return "dead"
        if ahead >= PSNS // 2:
            self._repeat(request)
            return "repeated"
        if ahead:
            return "ahead"
        try:
            return self._execute(request)
        except Refused as refused:
            self.refusal, self.blamed = (refused.code, self.psn), refused.blamed
            if self.held:
                self.held.memory.loose += [(at, at + length) for at, length in self.held.pieces]
            return f"refused by {refused.code:#x}"

    def _repeat(self, request):
        self.repeated |= request.opcode in Op.ANSWERED
        if request.opcode != Op.READ or request.length >= 20 * MTU:
            return
        if not request.length or self.place(request.key, request.address, request.length, Right.READ):
            self.repeats |= set(parts(request))

    def _execute(self, request):
        opcode, size = request.opcode, len(request.payload)
        kind = Op.SEND if opcode in Op.SEND else Op.WRITE
        if (self.message and self.message.kind) != (None if opcode in Op.BEGIN else kind):
            raise Refused(INVALID)
        if (opcode in Op.SEND or opcode in Op.IMM) and not self.front:
            return "no receive"
        if size > MTU or (size < MTU and opcode in Op.GO_ON) or (not size and opcode not in Op.BEGIN):
            raise Refused(INVALID)
        last, packets = opcode not in Op.GO_ON, 1
        if opcode == Op.READ:
            packets = self._read(request)
        elif opcode in Op.ATOMIC:
            self._atomic(request)
        elif kind == Op.WRITE:
            self._write(request, last)
        else:
            self._send(request, last)
        if last:
            self.message = None
            self.msn += 1
        self.psn = (self.psn + packets) % PSNS
        return "done"

    def _hold(self):
        if not self.held:
            self.held = self.receives.pop(0)
        return self.held

    def _complete(self, opcode, request):
        imm = None
        if request.opcode in Op.IMM:  # the bytes stay in their order
            imm = int.from_bytes(request.imm.to_bytes(4, "big"), "little")
        elif request.opcode in Op.INVALIDATE:
            imm = request.imm
        self.completions.append((self._hold().wr_id, opcode, self.message.got, imm))
        self.held = None

    def _write(self, request, last):
        if request.opcode in Op.BEGIN:
            self.message = Message(Op.WRITE, request.address, request.key, request.length)
        message, size = self.message, len(request.payload)
        if message.left > LONGEST or size > message.left or (message.left == size) != last:
            raise Refused(INVALID)
        if size:
            place = self.place(message.key, message.address, message.left, Right.WRITE)
            if place is None:
                blamed = request.opcode in Op.IMM and self._hold()
                raise Refused(ACCESS, blamed=bool(blamed))
            memory, offset = place
            memory.write(offset, request.payload, f"PSN {request.psn}")
        message.address += size
        message.left -= size
        message.got += size
        if request.opcode in Op.IMM:
            self._complete(RECV_WRITE, request)

    def _send(self, request, last):
        if request.opcode in Op.BEGIN:
            self.message = Message(Op.SEND)
        message, receive, payload = self.message, self._hold(), request.payload
        if message.got + len(payload) > receive.room:
            raise Refused(INVALID, blamed=True)
        begin = -message.got
        for offset, length in receive.pieces:
            low, high = max(begin, 0), min(begin + length, len(payload))
            if low < high:
                receive.memory.write(offset + low - begin, payload[low:high], f"PSN {request.psn}")
            begin += length
        message.got += len(payload)
        if request.opcode in Op.INVALIDATE:
            if request.imm not in [window.key for window in self.windows]:
                raise Refused(ACCESS, blamed=True)
            del self.grants[request.imm]
        if last:
            self._complete(RECV, request)

    def _read(self, request):
        """The number of its responses."""
        if request.length > LONGEST:
            raise Refused(INVALID)
        data = b""
        if request.length:
            memory, offset = self._reach(request, request.length, Right.READ)
            data = bytes(memory.content[offset : offset + request.length]) if memory.fixed else None
        for number, (psn, size) in enumerate(parts(request)):
            self.reads[psn] = None if data is None else data[number * MTU : (number + 1) * MTU], size
            self.due.add(psn)
        self.asked.append(request)
        return len(parts(request))

    def _atomic(self, request):
        if request.address % 8:
            raise Refused(INVALID)
        memory, offset = self._reach(request, 8, Right.ATOMIC)
        before = int.from_bytes(memory.content[offset : offset + 8], "little")
        swap_add, compare = request.operands
        if request.opcode == Op.FETCH_ADD:
            after = (before + swap_add) % (1 << 64)
        else:
            after = swap_add if before == compare else before
        memory.write(offset, after.to_bytes(8, "little"), f"PSN {request.psn}")
        self.atomics[request.psn] = before
        self.due.add(request.psn)
        self.asked.append(request)

    def _reach(self, request, length, right):
        place = self.place(request.key, request.address, length, right)
        if place is None:
            self.silent = True
            raise Refused(ACCESS)
        return place


def parts(request):
    """PSN and length of each response of a READ."""
    count = max(1, -(-request.length // MTU))
    return [((request.psn + i) % PSNS, min(MTU, request.length - i * MTU)) for i in range(count)]
