"""Requests for one responder: those of an honest requester, and others, made with what its model knows."""

from dataclasses import replace

from responder_model import MTU, PSNS, Op, Request, Right

__all__ = ["ATOMIC_BYTES", "Forger"]

ATOMIC_BYTES = 64
"""At the end of the region that all may be done to."""
MOST_READS = 8
"""READs and atomics in a batch, fewer than the responder takes at a time."""
WRONG, LATE, EARLY = 0.03, 0.28, 0.08
"""Of all requests."""


class Forger:
    """Makes the requests of the peer of one queue pair.

    ``all_rights``, ``read_only`` and ``write_only`` are grants; ``closed`` are those whose keys open nothing here.
    ``others`` returns the windows of other queue pairs.
    """

    def __init__(self, rng, all_rights, read_only, write_only, closed, others):
        self.rng = rng
        self.all_rights, self.read_only, self.write_only = all_rights, read_only, write_only
        self.closed, self.others = closed, others
        self.reads = 0

    def next(self, model):
        """The next request to the responder of ``model``."""
        self.model = model
        request = self._honest()
        request.psn = model.psn
        kind = 1 if model.refusal else self.rng.random()
        if kind < WRONG:
            self._spoil(request)
        elif kind < WRONG + LATE:
            request = self._late(request)
        elif kind < WRONG + LATE + EARLY:
            request.psn += self.rng.choice([1, 1, 2, 300, PSNS // 2 - 1])
        request.psn %= PSNS
        request.address %= 1 << 64
        if request.opcode in Op.ANSWERED:
            request.payload = b""
        return request

    # -- What an honest requester might send next.

    @property
    def window(self):
        return next(iter(self.model.windows), None)

    def _honest(self):
        if self.model.message:
            return self._continue(self.model.message)
        rng, model = self.rng, self.model
        kinds = [self._send, self._first_send, self._send, self._write, self._write, self._first_write]
        make = rng.choice([*kinds, self._read, self._atomic])
        if make in (self._read, self._atomic):
            make = make if self._may_read() else self._write
        if make in (self._send, self._first_send) and not model.front and rng.random() < 0.8:
            make = self._write
        return make(model.front.room if model.front else 0)

    def _may_read(self):
        self.reads += 1
        return self.reads <= MOST_READS

    def _continue(self, message):
        rng = self.rng
        imm = rng.getrandbits(32)
        if message.kind == Op.WRITE:
            if message.left > MTU:
                return Request(0x07, rng.randbytes(MTU))
            opcode = rng.choice([0x08, 0x08, 0x09] if self.model.front else [0x08])
            return Request(opcode, rng.randbytes(message.left), imm=imm)
        room = self.model.front.room - message.got
        if room > MTU and rng.random() < 0.6:
            return Request(0x01, rng.randbytes(MTU))
        payload = rng.randbytes(max(1, rng.choice([min(room, MTU), 1])))
        if self.window and rng.random() < 0.2:
            return Request(0x16, payload, imm=self.window.key)
        return Request(rng.choice([0x02, 0x03]), payload, imm=imm)

    def _send(self, room):
        payload = self.rng.randbytes(min(MTU, self.rng.choice([0, 1, room, room // 2])))
        if self.window and self.rng.random() < 0.4:
            return Request(0x17, payload, imm=self.window.key)
        return Request(self.rng.choice([0x04, 0x05]), payload, imm=self.rng.getrandbits(32))

    def _first_send(self, room):
        return Request(0x00 if room >= MTU else 0x04, self.rng.randbytes(min(MTU, room)))

    def _write(self, room):
        length = self.rng.choice([0, 1, 2, 3, 4, 5, 63, 64, MTU - 1, MTU])
        key, address = self._good(length, Right.WRITE)
        opcode = self.rng.choice([0x0A, 0x0B] if self.model.front else [0x0A])
        return Request(opcode, self.rng.randbytes(length), address, key, length, imm=self.rng.getrandbits(32))

    def _first_write(self, room):
        length = self.rng.choice([MTU + 1, 2 * MTU, 2 * MTU + 1, 700, 4 * MTU, 1500])
        key, address = self._good(length, Right.WRITE)
        return Request(0x06, self.rng.randbytes(MTU), address, key, length)

    def _read(self, room):
        length = self.rng.choice([0, 1, 4, MTU - 1, MTU, MTU + 1, 2 * MTU, 600, 4 * MTU + 1])
        key, address = self._good(length, Right.READ)
        return Request(Op.READ, b"", address, key, length)

    def _atomic(self, room):
        rng, grant = self.rng, self.all_rights
        offset = grant.length - ATOMIC_BYTES + 8 * rng.randrange(ATOMIC_BYTES // 8)
        there = int.from_bytes(grant.memory.content[offset : offset + 8], "little")
        operands = rng.getrandbits(64), rng.choice([there, 5])
        return Request(rng.choice(Op.ATOMIC), b"", grant.start + offset, grant.key, operands=operands)

    def _good(self, length, right):
        """A key that has ``right``, and an address at an end of what it opens or amid it."""
        rng, grants = self.rng, [self.all_rights]
        grants += {Right.READ: [self.read_only] * 3, Right.WRITE: [self.write_only]}.get(right, [])
        if right == Right.WRITE and self.window and length <= self.window.length:
            grants.append(self.window)
        grant = rng.choice(grants)
        spare = grant.length - length - (ATOMIC_BYTES if grant is self.all_rights else 0)
        return grant.key, grant.start + rng.choice([0, spare, rng.randrange(spare + 1)])

    # -- What it would not send, or would not send now.

    def _bad(self, length, right):
        """A key and an address that do not fit."""
        key, address = self._good(length, right)
        of_all, rng = self.all_rights, self.rng
        places = [(key ^ 1 << rng.randrange(8), address), (key ^ 1 << rng.randrange(8, 32), address), (0, address)]
        places += [(grant.key, grant.start) for grant in (*self.closed, *self.others())]
        places.append((of_all.key, (1 << 64) - length // 2 - 1))
        for grant in [of_all, *([self.window] if self.window else [])]:
            places += [(grant.key, grant.start - 1), (grant.key, grant.start + grant.length - length + 1)]
        return rng.choice(places)

    def _spoil(self, request):
        """Makes one thing of it wrong, which mostly ends the queue pair."""
        rng = self.rng
        kind = rng.randrange(9)
        if kind == 0:
            request.opcode = rng.choice([*Op.SEND, *Op.WRITE, *Op.ANSWERED])
            if request.opcode in Op.ATOMIC:
                request.key, request.address = self.all_rights.key, self.all_rights.start + self.all_rights.length - 8
        elif kind == 1:
            request.payload = request.payload[: rng.randrange(len(request.payload) + 1)]
        elif kind == 2:
            request.payload += rng.randbytes(rng.randrange(1, 9))
        elif kind == 3:
            request.length = rng.choice([0, 1, MTU - 1, MTU, MTU + 1, 1 << 31, (1 << 31) + 1, (1 << 32) - 1])
        elif kind == 4:
            request.address += rng.choice([1, 2, 4, -1])
        elif request.opcode in Op.INVALIDATE:
            keys = [grant.key for grant in (*self.closed, *self.others(), self.all_rights)]
            request.imm = rng.choice([*keys, request.imm ^ 1, 0])
        else:
            right = Right.ATOMIC if request.opcode in Op.ATOMIC else Right.WRITE
            right = Right.READ if request.opcode == Op.READ else right
            request.key, request.address = self._bad(request.length, right)

    def _late(self, request):
        """Something with a PSN that is over; half of the time a READ or an atomic again, or one that is like it."""
        rng = self.rng
        if self.model.asked and rng.random() < 0.5:
            if self._may_read():
                return self._again(rng.choice(self.model.asked[-4:]))
            request = Request(0x04, b"late")
        elif request.opcode in Op.ANSWERED and not self._may_read():
            request = Request(0x04, b"late")
        elif rng.random() < 0.5:
            request.opcode = rng.choice([*Op.SEND, *Op.WRITE])
        request.psn = self.model.psn - rng.choice([1, 1, 2, 3, 5, 100, 1 << 22, PSNS // 2 - 1, PSNS // 2])
        return request

    def _again(self, asked):
        rng, again = self.rng, replace(asked)
        if asked.opcode != Op.READ:
            if rng.random() < 0.3:
                again.operands = rng.getrandbits(64), asked.operands[1]
                again.address = self.all_rights.start
            return again
        skipped = rng.randrange(max(1, -(-asked.length // MTU)))
        again.psn += skipped
        again.address += skipped * MTU
        again.length = max(0, asked.length - skipped * MTU)
        if rng.random() < 0.2:
            again.address += rng.choice([-8, 8, MTU])
        if rng.random() < 0.2:
            again.length = rng.choice([0, 1, 4 * MTU, again.length + MTU, 1 << 31, (1 << 31) + 1])
        return again
