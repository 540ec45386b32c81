"""What the receiving half of the transport is tested with: receive rings, attributes, packets, and the rules in Python.

The rules are written from the InfiniBand responder's (PSN, opcode sequence, opcode, receive WQE, length, then the
buffer; of UC 9.8), not from the hardware.
"""

from types import SimpleNamespace

from amaranth.hdl import Mux, Value
from at_once import AtOnce
from streams import unpacked
from verbena.hdl.abi.contexts import QP_CONTEXT, QpState, QpType
from verbena.hdl.queue.ring import RECEIVE_BATCH

MASK24 = (1 << 24) - 1
FIRST_QPN = 0x5A5A00
"""The number of QP 0; others follow."""

SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM = range(6)
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM = range(6, 12)
READ_REQUEST, ACKNOWLEDGE, COMPARE_SWAP, FETCH_ADD = 0x0C, 0x11, 0x13, 0x14

FIRST, MIDDLE, LAST, ONLY = "first", "middle", "last", "only"
POSITION = [FIRST, MIDDLE, LAST, LAST, ONLY, ONLY]


KINDS = {READ_REQUEST: 0, COMPARE_SWAP: 1, FETCH_ADD: 2}
REPLAY, REPEAT = 3, 4
UC = 0x20
"""Opcodes of UC: those of RC, and this."""

CREDITS = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
           6144, 8192, 12288, 16384, 24576, 32768]  # fmt: skip
"""The table as the InfiniBand specification prints it."""


async def write_attributes(ctx, dut, qp, known=None, **values):
    """What the command block does: all words, the last one first; or those that differ from what is ``known``, a list
    that learns them."""
    words = QP_CONTEXT.words(qpn=FIRST_QPN + qp, **values)
    numbers = [word for word in reversed(range(len(words))) if known is None or words[word] != known[word]]
    if known is not None:
        known[:] = words
    ctx.set(dut.attribute_en, bool(numbers))
    for word in numbers:
        ctx.set(dut.attribute, {"index": qp, "word": word, "data": words[word]})
        await ctx.tick()
    ctx.set(dut.attribute_en, 0)


def attributes(**values):
    """Attributes of a connected QP; those given replace or add."""
    chosen = {
        "state": QpState.RTS,
        "type": QpType.RC,
        "path_mtu": 1,
        "access": 2,
        "max_dest_rd_atomic": 4,
        "min_rnr_timer": 12,
        "pd": 0x123456,
        "dest_qpn": 0x654321,
        "pkey": 0xFFFF,
        "dest_ip": 0x0A000002,
        "rq_cqn": 3,
        "log_rq_size": 4,
        "log_rq_stride": 5,
    }
    chosen.update(values)
    return chosen


class Ring:
    """The receive rings' side of the responder: rings in host memory, and two blocks a QP on chip, of which what was
    consumed is overwritten."""

    def __init__(self, dut, rng, strides, *, stall=0.0):
        self.dut = dut
        self.rng = rng
        self.area = 2 * RECEIVE_BATCH
        self.strides = strides
        self.stall = stall
        qps = len(strides)
        self.posted = [[] for _ in range(qps)]
        self.fetched = [0] * qps
        self.consumed = [0] * qps
        self.errors = [0] * qps
        self.words = [[rng.getrandbits(64) for _ in range(self.area // 8)] for _ in range(qps)]
        self.arrivals = []
        self.frozen = False

    def reset(self, qp):
        self.posted[qp] = []
        self.fetched[qp] = self.consumed[qp] = self.errors[qp] = 0

    def post(self, qp, entries):
        """Posts a receive WQE: a list of (address, length, lkey)."""
        assert len(entries) <= 1 << (self.strides[qp] - 4)
        self.posted[qp].append(list(entries))

    def producer(self, qp):
        return len(self.posted[qp])

    def content(self, qp, index):
        """Words of a receive WQE; behind them is nothing."""
        return [word for address, length, lkey in self.posted[qp][index] for word in (address, length | lkey << 32)]

    def _fetch(self):
        for qp in range(len(self.posted)):
            index = self.fetched[qp]
            room = (self.area >> self.strides[qp]) - (index - self.consumed[qp])
            done = index == self.producer(qp)
            if self.frozen or self.errors[qp] or done or not room or self.rng.random() < self.stall:
                continue
            size = 1 << (self.strides[qp] - 3)
            place = index * size % (self.area // 8)
            words = self.content(qp, index)
            self.words[qp][place : place + size] = words + [0] * (size - len(words))
            self.fetched[qp] += 1
            if qp not in self.arrivals:
                self.arrivals.append(qp)

    def consume(self, qp, index):
        """All before ``index`` is done with."""
        assert index == (self.consumed[qp] + 1) & 0xFFFF <= self.fetched[qp]
        place = self.consumed[qp] << (self.strides[qp] - 3)
        for number in range(1 << (self.strides[qp] - 3)):
            self.words[qp][(place + number) % (self.area // 8)] = self.rng.getrandbits(64)
        self.consumed[qp] += 1

    async def run(self, ctx):
        """Background testbench: status 1 cycle, words 2 cycles after the address; consumption, arrivals, fetches."""
        dut = self.dut
        before, places = 0, [0, 1]
        ctx.set(dut.wanted.ready, 1)
        looked_at = dut.status_qp
        if "shared_ring" in dut.signature.members:
            looked_at = Mux(dut.shared_ring_en, dut.shared_ring, looked_at)
        put = AtOnce(ctx)
        edges = aiter(ctx.tick().sample(
            looked_at, dut.word_addr.block, dut.word_addr.word, dut.consumed.valid, dut.consumed.ready,
            Value.cast(dut.consumed.payload), dut.arrived.ready
        ))  # fmt: skip
        while True:
            put(dut.consumed.ready, self.rng.random() >= self.stall)
            put(dut.arrived.valid, bool(self.arrivals))
            if self.arrivals:
                put(dut.arrived.payload, self.arrivals[0])
            put.set()
            _, _, qp, block, word, taken, ready, consumed, arrived = await anext(edges)
            if taken and ready:
                consumed = unpacked(dut.consumed, consumed)
                self.consume(consumed.qp, consumed.index)
            if self.arrivals and arrived:
                self.arrivals.pop(0)
            status = {"producer": self.producer(qp), "fetched": self.fetched[qp], "error": self.errors[qp]}
            put(dut.status, status)
            put(dut.word, before)
            before = self.words[block // 2][RECEIVE_BATCH // 8 * (block % 2) + word]
            put(dut.places, places)
            places = [2 * qp, 2 * qp + 1]
            self._fetch()


class Rules:
    """The responder of one QP, in Python: packets in, accesses and jobs out, and entries of its response ring."""

    def __init__(self, qp, ring, values, epsn=0, atomics=True):
        self.qp = qp
        self.ring = ring
        self.values = values
        self.kinds = {opcode: kind for opcode, kind in KINDS.items() if atomics or opcode == READ_REQUEST}
        self.mtu = 128 << values["path_mtu"]
        self.unreliable = values["type"] == QpType.UC
        self.restart(epsn)

    def restart(self, epsn):
        self.epsn = epsn
        self.msn = 0
        self.index = 0
        self.message = None
        self.nak_sent = False
        self.dead = False
        self.entries = []  # all that were ever to be answered
        self.served = 0
        self.busy = False  # one was dropped, as there was none
        self.room = True  # for another one beside those that wait for their answer
        self.repeated = False  # a duplicate is, or was, among those
        self.since_nak = []  # packets ahead of the gap since its NAK
        self.asked = False  # the newest packet executed was a READ or an atomic
        self.lost = False  # it was the rest of a message of UC, of which something is missing
        self.fresh = 0  # whether its run forgets what was refused before; None: no matter

    def _access(self, length, *, key=0, address=0, access=0, discard=0):
        return SimpleNamespace(length=length, key=key, address=address, access=access, discard=discard)

    def _discard(self, packet):
        return [self._access(packet["length"], discard=int(packet["length"] > 0))]

    def credits(self):
        free = len(self.ring.posted[self.qp]) - self.index
        return max(code for code, count in enumerate(CREDITS) if count <= free)

    def _answer(self, syndrome, psn=None, **more):
        return {
            "acknowledge": 1,
            "syndrome": syndrome,
            "psn": self.epsn if psn is None else psn,
            "msn": self.msn,
            **more,
        }

    def _fatal(self, syndrome, event, **more):
        self.dead = True
        more |= {"fatal": 1, "event": event}
        return {"acknowledge": 0} | more if self.unreliable else self._answer(syndrome, **more)

    def _refuse(self, accesses, syndrome, event, **more):
        """What cannot be served kills the QP; of UC it is dropped, with its message."""
        if self.unreliable:
            return self._drop(accesses, cause=20)
        return accesses, self._fatal(syndrome, event, **more)

    def _drop(self, accesses, cause):
        self.message = None
        self.epsn = (self.epsn + 1) & MASK24
        return accesses, {"silent": 1, "cause": cause}

    def _no_wqe(self, discard):
        if self.unreliable:
            return self._drop(discard, cause=20)
        self.nak_sent = True
        self.since_nak = []
        return discard, self._answer(0x20 | self.values["min_rnr_timer"])

    def _find_wqe(self, discard, write, goes_on, length):
        """The message needs a receive WQE, or goes on in one; what is answered if there is none."""
        if goes_on and not write:
            return None
        posted = len(self.ring.posted[self.qp])
        if self.ring.errors[self.qp] and self.ring.fetched[self.qp] == self.index:
            self.fresh = int(self.unreliable)
            if posted == self.index:
                return discard, self._fatal(0x63, 1)
            job = self._fatal(0x63, 1, complete=1, status=2, cause=22, wqe_index=self.index)
            self.index += 1
            return discard, job
        return self._no_wqe(discard) if posted == self.index else None

    def _entries(self):
        """Of the receive WQE."""
        return self.ring.posted[self.qp][self.index]

    def _wqe(self):
        """Which it is, as a job tells."""
        return {"wqe_index": self.index}

    def _hold(self):
        """The message has begun, and goes on."""

    def _use(self):
        self.index += 1

    def lapse(self):
        """What the job of a RESET token tells beside."""
        return {}

    def _responses(self, packet):
        if packet["opcode"] != READ_REQUEST:
            return 1
        return max(1, -(-packet["dma_length"] // self.mtu))

    def _allowed(self, opcode):
        if opcode == READ_REQUEST:
            return bool(self.values["access"] & 4)
        if opcode in self.kinds:
            return bool(self.values["access"] & 8)
        return opcode < 6 or bool(self.values["access"] & 2)

    def _enter(self, packet, kind):
        """Puts an entry into the ring; the job that releases it."""
        swap = packet["swap"]
        if kind in (0, REPEAT):
            after = (packet["psn"] + self._responses(packet)) & MASK24
            swap = swap >> 56 << 56 | after << 32 | packet["dma_length"]
        self.entries.append(
            {
                "kind": kind,
                "path_mtu": self.values["path_mtu"],
                "pd": self.values["pd"],
                "psn": packet["psn"],
                "msn": self.msn,
                "credits": self.credits(),
                "address": packet["address"],
                "rkey": packet["rkey"],
                "swap": swap,
                "compare": packet["compare"],
            }
        )
        return {"release": 1, "psn": packet["psn"], "msn": self.msn}

    def _fits(self):
        flight = len(self.entries) - self.served
        return flight == 0 or (self.room and flight < 16)

    def _old(self, packet):
        opcode, silent = packet["opcode"], {"silent": 1, "cause": 0}
        if opcode in self.kinds:
            if not self._allowed(opcode) or not self._fits():
                return silent
            if opcode == READ_REQUEST:
                ahead = (packet["psn"] + self._responses(packet) - self.epsn) & MASK24
                if packet["dma_length"] > 1 << 31 or 0 < ahead <= 1 << 23:
                    return silent
            self.repeated = True
            return self._enter(packet, REPEAT if opcode == READ_REQUEST else REPLAY)
        if opcode > WRITE_ONLY_IMM:
            return silent
        return self._answer(self.credits(), psn=packet["psn"] if self.asked else (self.epsn - 1) & MASK24)

    def _ahead(self, psn):
        """A packet behind a gap. One NAK; and another if the first packet that the NAK was for comes a second time,
        after others, and the one behind it directly follows."""
        seen, self.since_nak = self.since_nak, [*self.since_nak, psn]
        first = seen[0] if seen else None
        watched = first is not None and (first - self.epsn) & MASK24 < 256
        again = watched and seen[-1] == first and any(other != first for other in seen)
        returned = again and psn == (first + 1) & MASK24 and (psn - self.epsn) & MASK24 < 256
        if not self.nak_sent or returned:
            self.since_nak = [psn]
            self.nak_sent = True
            return self._answer(0x60)
        if not watched:
            self.since_nak = [psn]
        return {"silent": 1, "cause": 0}

    def packet(self, packet, accept=1):
        """(accesses, job without what does not matter)"""
        self.lost, self.fresh = False, 0
        accept = accept and (packet["opcode"] >= UC) == self.unreliable
        accesses, job = self._judge(packet | {"opcode": packet["opcode"] % UC}, accept)
        for access in accesses:
            access.fresh = self.fresh
        if self.unreliable and accept and not job.get("silent"):
            job["unreliable"] = 1
        return accesses, job

    def _judge(self, packet, accept):
        discard = self._discard(packet)
        opcode, length = packet["opcode"], packet["length"]
        if not accept:
            return discard, {"silent": 1, "cause": 0}
        if self.values["state"] not in (QpState.RTR, QpState.RTS, QpState.SQD):
            return discard, {"silent": 1, "cause": 0}
        if self.dead:
            self.fresh = None
            return discard, {"silent": 1, "cause": 20}
        if self.unreliable:
            expected, self.epsn = self.epsn, packet["psn"]
            write, goes_on = opcode >= 6, POSITION[opcode % 6] in (MIDDLE, LAST)
            self.fresh = None
            if not goes_on:
                self.message = None
            elif packet["psn"] != expected or self.message is None or self.message.write != write:
                self.lost = True
                return self._drop(discard, cause=0)
        distance = (packet["psn"] - self.epsn) & MASK24
        if distance >= 1 << 23:
            return discard, self._old(packet)
        if distance:
            return discard, self._ahead(packet["psn"])
        if opcode > WRITE_ONLY_IMM and opcode not in self.kinds:
            return discard, self._fatal(0x61, 2)
        if opcode in self.kinds:
            return discard, self._respond(packet)
        write, position, immediate = opcode >= 6, POSITION[opcode % 6], opcode % 6 in (3, 5)
        goes_on = position in (MIDDLE, LAST)
        if goes_on != (self.message is not None) or (goes_on and self.message.write != write):
            return discard, self._fatal(0x61, 2)
        if not self._allowed(opcode):
            return self._refuse(discard, 0x62, 3)
        if not write or immediate:
            lacks = self._find_wqe(discard, write, goes_on, length)
            if lacks:
                return lacks
        if position in (FIRST, MIDDLE):
            if length != self.mtu:
                return self._refuse(discard, 0x61, 2)
        elif length > self.mtu or (position == LAST and length == 0):
            return self._refuse(discard, 0x61, 2)

        if not goes_on:
            message = SimpleNamespace(write=write, received=0)
            if write:
                message.total, message.address, message.key = packet["dma_length"], packet["address"], packet["rkey"]
            else:
                message.entries = [entry for entry in self._entries() if entry[1]]
        else:
            message = self.message
        accesses = []
        if self.unreliable:
            self.fresh = int(not goes_on)
        if write:
            left = message.total - message.received
            if (left != length if position in (LAST, ONLY) else left <= length) or message.total > 1 << 31:
                return self._refuse(discard, 0x61, 2)
            address = (message.address + message.received) % (1 << 64)
            accesses.append(self._access(length, key=message.key, address=address, access=2))
        else:
            rest, skip = length, message.received
            for address, size, lkey in message.entries:
                if skip >= size:
                    skip -= size
                elif rest:
                    part = min(rest, size - skip)
                    accesses.append(self._access(part, key=lkey, address=(address + skip) % (1 << 64), access=1))
                    rest -= part
                    skip = 0
            if rest:
                accesses.append(self._access(rest, discard=1))
                blamed = {"complete": 1, "status": 1, "cause": 21, "receive": 1, "remote": 0} | self._wqe()
                if not self.unreliable:
                    self._use()
                return self._refuse(accesses, 0x61, 255, **blamed)
            if not length:
                accesses.append(self._access(0))

        message.received += length
        self.message = message
        self.nak_sent = False
        self.since_nak = []
        job = {"acknowledge": 0, "remote": int(write)}
        if not self.unreliable:
            job |= {"acknowledge": packet["ack_request"], "psn": self.epsn}
        job["receive"] = int(not write or immediate)
        if job["receive"]:
            job |= self._wqe()
        if not write and position == FIRST:
            self._hold()
        if position in (LAST, ONLY):
            self.msn = (self.msn + 1) & MASK24
            self.message = None
            if not write or immediate:
                job |= {
                    "complete": 1,
                    "opcode": 129 if write else 128,
                    "flags": 2 if immediate else 0,
                    "solicited": packet["solicited"],
                    "byte_length": message.received,
                }
                if immediate:
                    job["immediate"] = packet["immediate"]
                self._use()
        self.epsn = (self.epsn + 1) & MASK24
        self.asked = False
        job["msn"] = self.msn
        if job["acknowledge"]:
            job["syndrome"] = self.credits()
        return accesses, job

    def _respond(self, packet):
        """A READ or an atomic that is expected."""
        opcode = packet["opcode"]
        if self.message is not None:
            return self._fatal(0x61, 2)
        if not self._allowed(opcode):
            return self._fatal(0x62, 3)
        flight = len(self.entries) - self.served
        mixed = self.repeated and flight > 0
        if flight >= min(16, self.values["max_dest_rd_atomic"]) and not mixed:
            return self._fatal(0x61, 2)
        if packet["length"] or (packet["dma_length"] > 1 << 31 if opcode == READ_REQUEST else packet["address"] % 8):
            return self._fatal(0x61, 2)
        if not self._fits():
            self.busy = True
            return {"silent": 1, "cause": 0}
        self.repeated = mixed
        self.nak_sent = False
        self.since_nak = []
        self.msn = (self.msn + 1) & MASK24
        self.epsn = (self.epsn + self._responses(packet)) & MASK24
        self.asked = True
        return self._enter(packet, self.kinds[opcode])


FLAGS = ("acknowledge", "release", "complete", "fatal", "token", "silent", "last")


def check_job(job, expected, qp):
    """Compares what is said, and that nothing more is."""
    assert job.qp == qp
    for name in FLAGS:
        assert job[name] == expected.get(name, 0), (name, job, expected)
    if not job.silent:
        assert job.unreliable == expected.get("unreliable", 0)
    if job.complete:
        assert job.status == expected.get("status", 0)
        assert job.cause == expected.get("cause", 0)
    for name, value in expected.items():
        assert job[name] == value, (name, job, expected)


def check_run(run, expected, qp, pd):
    """Compares a run of accesses with the rules'; what is discarded or empty has no address."""
    assert [access.last for access in run] == [0] * (len(run) - 1) + [1]
    assert len(run) == len(expected), (run, expected)
    for access, wanted in zip(run, expected):
        assert (access.length, access.discard, access["clear"]) == (wanted.length, wanted.discard, 0), (run, expected)
        assert wanted.fresh in (None, access.fresh), (run, expected)
        if wanted.length and not wanted.discard:
            assert (access.key, access.address, access.access) == (wanted.key, wanted.address, wanted.access)
            assert (access.qp, access.pd) == (qp, pd)
