"""The READ/atomic responder between a responder, an acknowledger, a transmitter and an atomic unit that a plain model
plays."""

from collections import Counter, deque

import pytest
from amaranth.hdl import Value
from at_once import AtOnce
from streams import Deadlock, make_rng, plain, receive_all, send_all, shared, simulate, unpacked
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.stream.transfer import Passage
from verbena.hdl.transport.common.layouts import PayloadSource, ResponseKind, TxDescriptorKind
from verbena.hdl.transport.reads.read_atomic_responder import ReadAtomicResponder

QPS = 4
OK = AccessStatus.OK
FATAL = [status for status in AccessStatus if status not in (OK, AccessStatus.POISONED)]
SETTLED = 30
"""Cycles after which a QP whose response was refused has certainly stopped, if packets are taken."""


def context(qp):
    return {"path_mtu": [1, 2, 1, 5][qp], "pd": 0xA0000 + qp}


READS = (ResponseKind.READ, ResponseKind.REPEAT)
KNOWN = 16
"""READs and atomics that may be asked for again."""


def extent_of(entry):
    """(first PSN, PSN behind the last, address behind the range, bytes, key) of a READ."""
    length, after = entry["swap"] & 0xFFFFFFFF, entry["swap"] >> 32 & 0xFFFFFF
    return entry["psn"], after, (entry["address"] + length) % (1 << 64), length, entry["rkey"]


def expected(qp, life, entry):
    """(header and TX descriptor fields, access fields) of each packet of an entry that is not lost."""
    common = {"credits": entry["credits"], "msn": entry["msn"]}
    access = {"key": entry["rkey"], "pd": life.context["pd"], "qp": qp, "clear": 0, "last": 1, "discard": 0}
    if entry["kind"] not in READS:
        replay = entry["kind"] == ResponseKind.REPLAY
        packet = {"opcode": 0x12, "psn": entry["psn"], "length": 8, "last": 1}
        packet["source"] = PayloadSource.INLINE if replay else PayloadSource.ATOMIC
        run = (
            {"length": 0, "tag": 0}
            if replay
            else {"length": 8, "span": 8, "tag": 1, "access": 8, "address": entry["address"]}
        )
        return [(common | packet, access | run)]
    total, mtu = entry["swap"] & 0xFFFFFFFF, life.mtu
    starts = list(range(0, total, mtu)) or [0]
    packets = []
    for number, start in enumerate(starts):
        first, last = number == 0, number == len(starts) - 1
        length = min(mtu, total - start)
        packet = {
            "opcode": {(1, 1): 0x10, (1, 0): 0x0D, (0, 0): 0x0E, (0, 1): 0x0F}[first, last],
            "psn": (entry["psn"] + number) % (1 << 24),
            "length": length,
            "last": last,
            "source": PayloadSource.MEMORY,
        }
        run = {
            "length": length,
            "span": total - start,
            "tag": 0,
            "access": 4,
            "address": (entry["address"] + start) % (1 << 64),
        }
        packets.append((common | packet, access | run))
    return packets


class Life:
    """A QP from one RESET to the next; it may be away meanwhile, and come back in another place."""

    def __init__(self, rng, qp):
        self.context = context(qp)
        self.mtu = 128 << self.context["path_mtu"]
        self.words = None  # while it is away
        self.kept = self.back = 0  # READs and atomics that were known, and those of them that came back with it
        self.found = 0  # number of the one that was last asked for again
        self.psn = rng.choice([0, 0xFFFFFE, rng.randrange(1 << 24)])
        self.entries = []
        self.released = self.served = 0  # served: the acknowledger knows it
        self.begun = None  # kind of the newest entry of which something is cut
        self.answered = 0  # the transmitter says so
        self.cut = (0, 0)  # entry and packet that are next
        self.originals = []  # READs and atomics, in order
        self.known = deque(maxlen=KNOWN)  # of those that are begun or given up: see `found`
        self.refused = None  # cycle in which that was said
        self.released_in = 0  # cycle of the last release

    def new_entry(self, rng):
        mtu = self.mtu
        kind = rng.choices(list(ResponseKind), [8, 3, 3, 3, 5])[0]
        entry = {
            "kind": kind,
            "psn": self.psn,
            "msn": rng.randrange(1 << 24),
            "credits": rng.randrange(32),
            "address": rng.randrange(1 << 64),
            "rkey": rng.randrange(1 << 32),
            "swap": rng.randrange(1 << 64),
            "compare": rng.randrange(1 << 64),
        }
        count = 1
        if kind == ResponseKind.READ:
            length = rng.choice([0, 1, 8, mtu - 1, mtu, mtu + 1, 3 * mtu + 5, rng.randrange(6 * mtu)])
            count = max(1, -(-length // mtu))
            entry["swap"] = length | (self.psn + count) % (1 << 24) << 32 | rng.randrange(256) << 56
        elif kind == ResponseKind.REPLAY:
            count = 0
            psns = [original["psn"] for original in self.originals[-20:] if original["kind"] not in READS]
            entry["psn"] = rng.choice(psns + [self.psn] * 3)
        elif kind == ResponseKind.REPEAT:
            count = 0
            self.ask_again(rng, entry)
        else:
            entry["source"] = {}
        if count:
            self.originals.append(entry)
        self.psn = (self.psn + count) % (1 << 24)
        return entry

    def ask_again(self, rng, entry):
        """A READ that was asked for, or the rest of one; or, now and then, one that is a little different."""
        mtu = self.mtu
        reads = [original for original in self.originals[-KNOWN - 3 :] if original["kind"] in READS]
        if not reads:
            return
        read = rng.choice(reads[-4:] + reads)
        first, after, _, length, key = extent_of(read)
        number = rng.choice([0, rng.randrange((after - first) % (1 << 24)), (after - first) % (1 << 24) - 1])
        change = rng.choice([None] * 8 + ["address", "rkey", "psn", "length"])
        if change == "psn":
            number -= 1  # it would have begun a packet earlier
        length -= number * mtu - (change == "length")
        entry["psn"] = (first + number) % (1 << 24)
        entry["address"] = (read["address"] + number * mtu) % (1 << 64)
        entry["rkey"] = key
        if change in ("address", "rkey"):
            entry[change] ^= rng.choice([1, 1 << 12, 1 << 31])
        after = entry["psn"] + max(1, -(-length // mtu))
        entry["swap"] = length | after % (1 << 24) << 32 | rng.randrange(256) << 56

    def begin(self, entry, cut):
        """The entry has its turn: what it repeats, None if that is not known. ``cut``: and it is served, not given
        up."""
        kind = entry["kind"]
        record = {"read": None, "number": self.kept}
        if kind == ResponseKind.READ:
            self.known.append(record | {"read": entry, "extent": extent_of(entry), "cut": cut})
            self.kept += 1
        elif kind not in (ResponseKind.REPLAY, ResponseKind.REPEAT):
            self.known.append(record | {"psn": entry["psn"], "source": entry["source"]})
            self.kept += 1
        elif kind == ResponseKind.REPLAY:
            same = [r for r in self.known if r["read"] is None and r["psn"] == entry["psn"]]
            if same and same[-1]["source"]["value"] is not None:
                self.found = same[-1]["number"]
                return same[-1]["source"]
        else:
            first, after, end, length, key = extent_of(entry)
            for record in reversed(self.known):
                if record["read"] is not None:
                    then, *rest = record["extent"]
                    mtu = self.mtu
                    same = rest[:2] == [after, end] and rest[2] % mtu == length % mtu and rest[3] == key
                    if same and (first - then) % (1 << 24) < 1 << 23:
                        was_cut, self.found = record["cut"], record["number"]
                        if cut:
                            record["extent"] = (first, after, end, length, key)
                            record["cut"] = True
                        return {"cut": was_cut}
        return None


class World:
    """Everything around the READ/atomic responder, one cycle at a time; raises if the READ/atomic responder does what
    it must not."""

    def __init__(self, dut, rng, stall, trouble, recalls, swaps=0):
        self.dut, self.rng, self.stall, self.trouble, self.recalls = dut, rng, stall, trouble, recalls
        self.swaps = swaps
        self.recall = self.late = None  # (qp, psn)
        self.lives = [Life(rng, qp) for qp in range(QPS)]
        self.away = []  # lives
        self.token = None  # QP that has a token on its way
        self.early = 0  # tokens that are sent, and for which nobody waits
        self.token_taken, self.passage = False, Passage.RESET
        self.closing = None  # QP that is to be saved when all is answered
        self.load_due = False  # the next token is LOAD
        self.saved, self.loading, self.word_shown = [], deque(), False  # words
        self.entering = None  # what stands at `entry`
        self.offered = None  # what stands at `release`
        self.packets, self.accesses = deque(), deque()
        self.way = deque()  # (qp, life, TX descriptor, entry, status) between READ/atomic responder and transmitter
        self.until = 0  # cycle until which the wire is busy
        self.operations = deque()  # atomics that the unit has not executed
        self.operands = deque()
        self.result, self.answer = None, None
        self.passing = deque()  # answers that must come out
        self.cycle = 0
        self.seen = Counter()
        self.generating = True
        self.put = None  # of the simulation that runs

    def chance(self):
        return self.rng.random() >= self.stall

    # -- Responder and acknowledger.
    def write_entry(self, ctx):
        dut, rng = self.dut, self.rng
        qp = rng.randrange(QPS)
        life = self.lives[qp]
        waits = len(life.entries) - life.served
        closed = qp in (self.token, self.closing)
        most = 5 if self.swaps else 16  # a QP must be done with all now and then
        if self.entering is None and self.generating and not closed and waits < most and self.chance():
            if waits and not ctx.get(dut.room):
                self.seen["no room"] += 1
            else:
                entry = life.new_entry(rng)
                fields = {k: v for k, v in entry.items() if k != "source"}
                self.put(dut.entry.payload, {"qp": qp, "entry": fields | life.context})
                self.entering = (qp, entry)
        self.put(dut.entry.valid, self.entering is not None)

    def offer_release(self, ctx):
        dut = self.dut
        self.next_release()
        self.put(dut.release.valid, self.offered is not None)
        if self.offered:
            self.put(dut.release.payload, dict(zip(("qp", "token", "passage"), self.offered)))

    def next_release(self):
        rng = self.rng
        if self.offered is None and self.chance():
            qp = rng.randrange(QPS) if self.closing is None else self.closing
            enters = self.entering and self.entering[0] == qp
            if self.load_due:
                self.load_due = False
                self.begin_token(self.token, Passage.LOAD)
                return
            free = self.generating and self.token is None and not enters
            if free and self.closing is None and rng.random() < self.trouble:
                self.begin_token(qp, Passage.RESET)
            elif free and self.closing is None and rng.random() < self.swaps:
                self.closing = qp
            elif free and self.closing == qp and self.answered(self.lives[qp]):
                self.begin_token(qp, Passage.SAVE)
            else:
                ready = [
                    qp
                    for qp, life in enumerate(self.lives)
                    if life.released < len(life.entries) and life.refused is None and qp != self.token
                ]
                if ready:
                    self.offered = (rng.choice(ready), 0, Passage.RESET)
                    self.lives[self.offered[0]].released += 1

    def begin_token(self, qp, passage):
        self.token, self.passage, self.closing = qp, passage, None
        self.offered = (qp, 1, passage)

    def answered(self, life):
        """The acknowledger waits for that, or has given up."""
        return life.refused is not None or life.served == len(life.entries)

    def move_words(self, ctx):
        self.put(self.dut.saved.ready, self.chance())
        if self.loading:
            self.put(self.dut.loaded.payload, self.loading[0])
        valid = self.loading and (self.word_shown or self.chance())
        self.put(self.dut.loaded.valid, bool(valid))
        self.word_shown = valid

    def offer_recall(self, ctx):
        dut, rng = self.dut, self.rng
        if self.recall is None and self.generating and rng.random() < self.recalls:
            qp = rng.randrange(QPS)
            life = self.lives[qp]
            near = life.entries[max(0, life.cut[0] - 2) : life.cut[0] + 3]
            psn = rng.choice([entry["psn"] for entry in near] + [life.psn]) + rng.choice([0, 0, 1, 2])
            at, k = life.cut
            if k:
                psn = life.entries[at]["psn"] + rng.choice([0, k])
            self.recall = (qp, psn % (1 << 24))
            self.put(dut.recall, dict(zip(("qp", "psn"), self.recall)))
        elif self.recall and rng.random() < 0.002:
            self.late, self.recall = self.recall, None  # patience is over; one entry may be under way
        self.put(dut.recall_en, self.recall is not None)
        self.put(dut.hold, rng.random() < self.stall / 3)

    def recallable(self, life, psn):
        """Whether the next entry is to be given up."""
        at, k = life.cut
        if at == life.released or life.refused is not None:
            return False
        entry = life.entries[at]
        ahead = (entry["psn"] + k - psn) % (1 << 24) < 1 << 23
        return ahead and entry["kind"] in (*READS, ResponseKind.REPLAY)

    def recall_over(self):
        if self.recall is None:  # patience has ended in this cycle
            return
        qp, psn = self.recall
        self.recall = None
        life = self.lives[qp]
        offered = self.offered and self.offered[0] == qp  # its last release is not taken yet
        if qp != self.token and not offered and self.cycle - life.released_in > 20:
            assert not self.recallable(life, psn), "recalled, and not given up"

    def release_taken(self):
        qp, token, _ = self.offered
        self.offered = None
        self.lives[qp].released_in = self.cycle
        if token:
            self.token_taken = True
            self.passing = deque(a for a in self.passing if a["qp"] != qp)
            self.seen[self.passage] += 1

    # -- What comes out.
    def pair(self):
        while self.packets and self.accesses:
            packet, access = self.packets.popleft(), self.accesses.popleft()
            qp = packet["qp"]
            life = self.lives[qp]
            if packet["kind"] == TxDescriptorKind.RESPONSE_TOKEN:
                assert (access["length"], access["clear"], access["tag"], access["last"]) == (0, 1, 0, 1)
                assert (packet["message_last"], packet["transport"]["length"]) == (0, 0)
                self.way.append((qp, None, packet, None, OK))
                self.early += self.passage is not Passage.RESET
                continue
            assert packet["kind"] == TxDescriptorKind.RESPONSE
            self.check(qp, life, packet, access)

    def check(self, qp, life, packet, access):
        at, k = life.cut
        assert at < life.released, "cut before its release"
        assert life.refused is None or self.cycle - life.refused < SETTLED or self.stall, "a refused QP goes on"
        entry = life.entries[at]
        packets = expected(qp, life, entry)
        if k == 0 and at:
            before = entry["kind"] if life.begun is None else life.begun  # what was given up whole sent nothing
            changes = (entry["kind"] in READS) != (before in READS)
            if changes or entry["kind"] == ResponseKind.REPLAY:
                assert life.answered >= at, "overlaps with entries of another kind"
            elif life.answered < at:
                self.seen["overlap"] += 1
        life.begun = entry["kind"]
        if k == 0:
            repeated = life.begin(entry, True)
            if entry["kind"] in (ResponseKind.REPLAY, ResponseKind.REPEAT):
                assert repeated is not None, "repeats what never was"
                entry["source"] = repeated
            entry["quiet"] = entry["kind"] == ResponseKind.REPEAT and repeated["cut"]
            self.seen["refusals are told"] += entry["kind"] == ResponseKind.REPEAT and not entry["quiet"]
            self.seen["known since it was away", entry["kind"]] += repeated is not None and life.found < life.back
        assert access["quiet"] == entry["quiet"]
        want, run = packets[k]
        transport = packet["transport"]
        for name in ("opcode", "psn", "length", "msn"):
            assert transport[name] == want[name], name
        assert transport["syndrome"] == want["credits"]
        assert (packet["source"], packet["message_last"]) == (want["source"], want["last"])
        for name, value in run.items():
            assert access[name] == value, name
        life.cut = (at + 1, 0) if want["last"] else (at, k + 1)
        status = OK
        if self.rng.random() < self.trouble:
            status = self.rng.choice([AccessStatus.POISONED, self.rng.choice(FATAL)])
        elif life.refused is not None:
            status = AccessStatus.POISONED
        self.seen[entry["kind"]] += 1
        self.seen["middle"] += k > 0
        self.way.append((qp, life, packet, entry, status))
        if run["tag"]:
            self.operations.append((entry, status))

    # -- The atomic unit.
    def execute(self, ctx):
        if self.result is None and self.operations and self.operands and self.chance():
            entry, status = self.operations.popleft()
            operands = self.operands.popleft()
            assert (operands["swap"], operands["compare"]) == (entry["swap"], entry["compare"])
            assert operands["add"] == (entry["kind"] == ResponseKind.FETCH_ADD)
            value = self.rng.randrange(1 << 64)
            self.result = (entry, {"value": value, "ok": status == OK})
        self.put(self.dut.result.valid, self.result is not None)
        if self.result:
            self.put(self.dut.result.payload, self.result[1])

    def executed(self):
        entry, result = self.result
        entry["source"]["value"] = result["value"] if result["ok"] else None
        self.result = None

    # -- The transmitter.
    def transmit(self, ctx):
        dut = self.dut
        self.put(dut.inline.ready, 0)
        if self.answer is None and self.way and self.cycle >= self.until and self.chance():
            qp, life, packet, entry, status = self.way[0]
            if packet["source"] == PayloadSource.ATOMIC and "value" not in entry["source"]:
                return self.show_answer(ctx)
            if packet["source"] == PayloadSource.INLINE:
                if not ctx.get(dut.inline.valid):
                    return self.show_answer(ctx)
                beat = plain(ctx.get(dut.inline.payload))
                self.put(dut.inline.ready, 1)
                assert beat["data"].to_bytes(dut.data_width // 8, "little")[:8] == entry["source"]["value"].to_bytes(
                    8, "big"
                )
                assert (beat["count"], beat["first"], beat["last"], beat["error"]) == (8, 1, 1, 0)
                self.seen["replayed"] += 1
            self.way.popleft()
            self.until = self.cycle + self.rng.choice([0, 0, 0, 0, 60])
            last = packet["message_last"]
            if status != OK or last or life is None:
                transport = packet["transport"]
                self.answer = (
                    life,
                    {"qp": qp, "status": status, "psn": transport["psn"], "msn": transport["msn"], "last": last},
                )
                stale = self.token_taken and qp == self.token
                if not stale and life is not None:
                    life.answered += last
                    self.passing.append(self.answer[1])
        return self.show_answer(ctx)

    def show_answer(self, ctx):
        self.put(self.dut.answered_i.valid, self.answer is not None)
        if self.answer:
            self.put(self.dut.answered_i.payload, self.answer[1])

    def answer_taken(self):
        """Whether it was a token that was waited for."""
        life, answer = self.answer
        self.answer = None
        if life is None and self.early:  # of SAVE or LOAD, which was done when it was sent
            self.early -= 1
        elif life is None:
            assert (self.token, self.token_taken) == (answer["qp"], True)
            assert not any(qp == self.token for qp, *_ in self.way)
            return True
        return False

    def token_out(self):
        """The token has been to the transmitter."""
        qp, passage, rng = self.token, self.passage, self.rng
        self.token, self.token_taken = None, False
        if passage is Passage.RESET:
            self.lives[qp] = Life(rng, qp)
        elif passage is Passage.LOAD:
            assert not self.loading
        else:
            life = self.lives[qp]
            life.words, life.back = [word.data for word in self.saved], life.kept
            assert [word.last for word in self.saved] == [0] * (len(life.words) - 1) + [1]
            assert len(life.words) == 2 + 2 * len(life.known)
            self.seen["words", len(life.words)] += 1
            self.saved.clear()
            self.away.append(life)
            self.lives[qp] = Life(rng, qp)
            if len(self.away) > rng.randrange(3):
                life = self.away.pop(rng.randrange(len(self.away)))
                self.lives[qp] = life
                self.loading.extend(life.words)
                self.token, self.load_due = qp, True

    def answer_out(self, answer):
        """Counts what the acknowledger hears; between, entries that are lost are reported by the READ/atomic responder
        itself."""
        qp = answer["qp"]
        life = self.lives[qp]
        assert not (self.token_taken and qp == self.token), "an answer of the QP's past"
        mine = next((a for a in self.passing if a["qp"] == qp), None)
        fields = ("status", "psn", "msn", "last")
        if self.passing and mine is self.passing[0] and all(answer[f] == mine[f] for f in fields):
            self.passing.popleft()
        else:
            assert (answer["status"], answer["last"]) == (OK, 1)
            at, k = life.cut
            entry = life.entries[at]
            repeats = entry["kind"] in (ResponseKind.REPLAY, ResponseKind.REPEAT)
            waits = entry["kind"] == ResponseKind.REPLAY and life.answered != at
            if repeats and not k and not waits and life.begin(entry, False) is None:
                self.seen["lost", entry["kind"]] += 1
            else:
                recalls = [r for r in (self.recall, self.late) if r and r[0] == qp]
                assert recalls, "given up, and not recalled"
                assert any(self.recallable(life, psn) for _, psn in recalls)
                if recalls[0] == self.late:
                    self.late = None
                self.seen["given up in its middle" if k else "given up"] += 1
                if k == 0 and not repeats:
                    life.begin(entry, False)
            life.cut = (at + 1, 0)
            life.answered += 1
        life.served += answer["last"]
        if answer["status"] in FATAL and life.refused is None:
            life.refused = self.cycle

    def done(self):
        finished = all(
            life.refused is not None or life.served == len(life.entries) for life in self.lives
        )  # of a refused one, what is on its way drains
        return (
            finished
            and self.token is None
            and self.offered is None
            and not (self.way or self.passing or self.answer or self.operations)
        )

    async def run(self, ctx, cycles, enough=()):
        """So many cycles something new comes, or until all of ``enough`` is seen."""
        dut, rng = self.dut, self.rng
        names = ["entry", "release", "answered_i", "answered_o", "packet", "access", "operands", "result"]
        names += ["saved", "loaded"] if self.swaps else []
        ports = {name: getattr(dut, name) for name in names}
        sampled = [s for port in ports.values() for s in (port.valid, port.ready)]
        shown = ["answered_o", "packet", "access", "operands"] + (["saved"] if self.swaps else [])
        payloads = [Value.cast(ports[name].payload) for name in shown]  # as numbers, because few are taken
        edge = ctx.tick().sample(dut.recalled, dut.token_done, *sampled, *payloads)
        takers = {"answered_o": self.answer_out, "packet": self.packets.append, "access": self.accesses.append}
        takers |= {"operands": self.operands.append, "saved": self.saved.append}
        self.put = AtOnce(ctx)
        quiet = 0
        while quiet < 50:
            self.cycle += 1
            self.generating &= self.cycle < cycles and not (enough and all(self.seen[name] for name in enough))
            if self.cycle > 3 * cycles + 20_000:
                raise Deadlock(f"seed {rng.seed_value}: {[(x.cut, x.served, len(x.entries)) for x in self.lives]}")
            self.write_entry(ctx)
            self.offer_release(ctx)
            self.offer_recall(ctx)
            self.execute(ctx)
            self.transmit(ctx)
            if self.swaps:
                self.move_words(ctx)
            for name in ("answered_o", "packet", "access", "operands"):
                self.put(ports[name].ready, self.chance())
            served_qp = rng.randrange(QPS)
            self.put(dut.served_qp, served_qp)
            self.put.set()
            _, _, recalled, token_done, *values = await edge
            moved = {name: values[2 * i] and values[2 * i + 1] for i, name in enumerate(names)}
            for name, bits in zip(shown, values[2 * len(names) :]):
                if moved[name]:
                    takers[name](unpacked(ports[name], bits))
            if self.swaps and moved["loaded"]:
                self.loading.popleft()
                self.word_shown = False
            if moved["result"]:
                self.executed()
            if moved["entry"]:
                qp, entry = self.entering
                self.lives[qp].entries.append(entry)
                self.entering = None
            if moved["release"]:
                self.release_taken()
            arrives = bool(moved["answered_i"]) and self.answer_taken()
            assert token_done or not arrives
            if token_done:
                assert arrives or self.passage is not Passage.RESET
                self.token_out()
            if recalled:
                self.recall_over()
            self.pair()
            quiet = quiet + 1 if not self.generating and self.done() else 0
        for qp, life in enumerate(self.lives):
            ctx.set(dut.served_qp, qp)
            await ctx.tick()
            if life.refused is None or not self.swaps:
                assert ctx.get(dut.served) == life.served % 32
            if life.refused is None:
                assert life.cut == (len(life.entries), 0)


@pytest.mark.parametrize(
    ("stall", "trouble", "recalls"),
    [(0, 0, 0), (0.6, 0, 0), (0, 0.01, 0), (0.6, 0.02, 0), (0, 0, 0.02), (0.6, 0, 0.01), (0.4, 0.01, 0.01)],
)
def test_random(stall, trouble, recalls):
    rng = make_rng()
    dut = shared(ReadAtomicResponder, QPS, rng.choice([64, 512]))
    world = World(dut, rng, stall, trouble, recalls)
    cycles = 6000 if recalls and not trouble else 1500  # a READ is rarely given up in its middle

    async def testbench(ctx):
        await world.run(ctx, cycles)

    simulate(dut, testbench, seed=rng.seed_value, deadline=100_000)
    wanted = [Passage.RESET] if trouble else ["overlap", "middle", *ResponseKind, "replayed"]
    if recalls and not trouble:
        wanted = ["given up", "given up in its middle", "refusals are told"]
    elif not trouble:
        wanted += [("lost", ResponseKind.REPLAY), ("lost", ResponseKind.REPEAT)]
    assert all(world.seen[name] for name in wanted), world.seen


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("stall", "trouble", "recalls"), [(0, 0, 0), (0.4, 0, 0), (0, 0.005, 0.01), (0.4, 0.01, 0.01)])
def test_random_qps_that_are_away(stall, trouble, recalls, long):
    """They give their state away when all is answered, in any place they get it back, and what was executed before is
    answered from it."""
    rng = make_rng()
    dut = shared(ReadAtomicResponder, QPS, rng.choice([64, 512]), swaps=True)
    world = World(dut, rng, stall, trouble, recalls, swaps=0.1)

    again = [("known since it was away", kind) for kind in (ResponseKind.REPLAY, ResponseKind.REPEAT)]
    wanted = [Passage.SAVE, Passage.LOAD] + ([] if trouble else [*again, ("words", 34)])

    async def testbench(ctx):
        await world.run(ctx, 6000, () if long else wanted)

    simulate(dut, testbench, seed=rng.seed_value, deadline=100_000)
    assert all(world.seen[name] for name in wanted), world.seen


async def served(ctx, dut, qp):
    ctx.set(dut.served_qp, qp)
    await ctx.tick()
    return ctx.get(dut.served)


async def write(ctx, dut, qp, **entry):
    await send_all(ctx, dut.entry, [{"qp": qp, "entry": context(qp) | {"rkey": qp} | entry}])


READ = {"kind": ResponseKind.READ}
ATOMIC = {"kind": ResponseKind.FETCH_ADD}


@pytest.mark.parametrize(("entry", "cycles"), [(ATOMIC, 10), (READ | {"swap": 8}, 11)])
def test_latency(entry, cycles):
    """Cycles from `release` to `access`, in an idle READ/atomic responder."""
    dut = shared(ReadAtomicResponder, QPS)

    async def testbench(ctx):
        await ctx.tick().repeat(dut.rows)  # until the pool is awake
        await write(ctx, dut, 1, **entry)
        await ctx.tick().repeat(4)
        ctx.set(dut.release.payload, {"qp": 1})
        ctx.set(dut.release.valid, 1)
        passed = 0
        while not ctx.get(dut.access.valid):
            _, _, taken = await ctx.tick().sample(dut.release.ready)
            if taken:
                ctx.set(dut.release.valid, 0)
            passed += 1
        assert passed == cycles

    simulate(dut, testbench)


@pytest.mark.parametrize(("entry", "qps", "cycles"), [(READ, 1, 10), (READ, 4, 9), (ATOMIC, 1, 10), (ATOMIC, 4, 9)])
def test_throughput(entry, qps, cycles):
    """Cycles a READ or atomic of 8 bytes, all of which are released and answered meanwhile."""
    dut = shared(ReadAtomicResponder, QPS)
    count = 40
    begins = []

    async def releases(ctx):
        for number in range(count):
            qp = number % qps
            while number - len(begins) >= 8:
                await ctx.tick()
            await write(ctx, dut, qp, **entry, swap=8, psn=number)
            await send_all(ctx, dut.release, [{"qp": qp}])

    async def answers(ctx):
        """An answer some time after each packet."""
        for name in ("access", "packet", "operands", "answered_o"):
            ctx.set(getattr(dut, name).ready, 1)
        ctx.set(dut.result.valid, 1)
        due, cycle = deque(), 0
        while len(begins) < count or due:
            ready = bool(due) and due[0][0] <= cycle
            ctx.set(dut.answered_i.valid, ready)
            if ready:
                ctx.set(dut.answered_i.payload, {"qp": due[0][1], "last": 1})
            sampled = (dut.packet.valid, dut.packet.payload.qp, dut.answered_i.ready)
            _, _, valid, qp, taken = await ctx.tick().sample(*sampled)
            if taken and ready:
                due.popleft()
            if valid:
                begins.append(cycle)
                due.append((cycle + 20, qp))
            cycle += 1

    simulate(dut, releases, answers)
    steady = begins[16:]
    assert (steady[-1] - steady[0]) / (len(steady) - 1) <= cycles


def test_round_robin():
    """QPs with long READs alternate, and a large READ needs far less time than the wire."""
    dut = shared(ReadAtomicResponder, QPS)
    seen = []

    async def testbench(ctx):
        for qp in (1, 2):
            await write(ctx, dut, qp, **READ, swap=1 << 16, path_mtu=5)
        await send_all(ctx, dut.release, [{"qp": 1}, {"qp": 2}])
        ctx.set(dut.access.ready, 1)
        ctx.set(dut.packet.ready, 1)
        edges = aiter(ctx.tick().sample(dut.packet.valid, dut.packet.payload))
        for cycle in range(400):
            _, _, valid, packet = await anext(edges)
            if valid:
                seen.append((cycle, packet.qp, packet.transport.length))

    simulate(dut, testbench)
    assert [qp for _, qp, _ in seen] == [1, 2] * 16
    assert {length for _, _, length in seen} == {4096}
    assert seen[-1][0] - seen[0][0] <= 31 * 13


def test_replays_wait_for_each_other():
    """A replay is not cut before the value of the one before is on its way, even if that is another QP's."""
    dut = shared(ReadAtomicResponder, QPS)

    async def testbench(ctx):
        for name in ("access", "packet", "operands", "answered_o"):
            ctx.set(getattr(dut, name).ready, 1)
        for qp in (0, 1):
            await write(ctx, dut, qp, **ATOMIC, psn=5)
            await send_all(ctx, dut.release, [{"qp": qp}])
            await send_all(ctx, dut.result, [{"value": 0xABC0 + qp, "ok": 1}])
            await send_all(ctx, dut.answered_i, [{"qp": qp, "last": 1}])
            await write(ctx, dut, qp, kind=ResponseKind.REPLAY, psn=5)
        await send_all(ctx, dut.release, [{"qp": 0}, {"qp": 1}])
        for qp in (0, 1):
            packets = 0
            for _ in range(60):
                _, _, valid, packet = await ctx.tick().sample(dut.packet.valid, dut.packet.payload)
                if valid:
                    packets += 1
                    assert (packet.qp, packet.source) == (qp, PayloadSource.INLINE)
            assert packets == 1
            assert ctx.get(dut.inline.valid)
            assert ctx.get(dut.inline.payload.data).to_bytes(8, "little") == (0xABC0 + qp).to_bytes(8, "big")
            ctx.set(dut.inline.ready, 1)
            await ctx.tick()
            ctx.set(dut.inline.ready, 0)

    simulate(dut, testbench)


async def token(ctx, dut, passage, qp=1):
    """From the acknowledger to the transmitter and back."""
    await send_all(ctx, dut.release, [{"qp": qp, "token": 1, "passage": passage}])
    await come_back(ctx, dut, qp)


async def come_back(ctx, dut, qp=1):
    kind = None
    edges = aiter(ctx.tick().sample(dut.packet.valid, dut.packet.payload.kind))
    while kind != TxDescriptorKind.RESPONSE_TOKEN:
        _, _, valid, kind = await anext(edges)
        kind = kind if valid else None
    await send_all(ctx, dut.answered_i, [{"qp": qp}])


async def atomic(ctx, dut, psn, value, qp=1):
    """One that is executed and answered."""
    await write(ctx, dut, qp, **ATOMIC, psn=psn)
    await send_all(ctx, dut.release, [{"qp": qp}])
    await send_all(ctx, dut.result, [{"value": value, "ok": 1}])
    await send_all(ctx, dut.answered_i, [{"qp": qp, "last": 1}])


async def replay(ctx, dut, psn, qp=1):
    """What the atomic had found, None if that is not known."""
    await write(ctx, dut, qp, kind=ResponseKind.REPLAY, psn=psn)
    await send_all(ctx, dut.release, [{"qp": qp}])
    for _ in range(80):
        _, _, lost, found, value = await ctx.tick().sample(
            dut.answered_o.valid, dut.inline.valid, dut.inline.payload.data
        )
        if lost:
            return None
        if found:
            ctx.set(dut.inline.ready, 1)
            await ctx.tick()
            ctx.set(dut.inline.ready, 0)
            await send_all(ctx, dut.answered_i, [{"qp": qp, "last": 1}])
            return int.from_bytes((value & (1 << 64) - 1).to_bytes(8, "little"), "big")
    raise AssertionError("nothing came of it")


@pytest.mark.parametrize("count", [0, 3, 16, 21])
def test_a_qp_is_saved_and_loaded(count):
    """What it has executed is known after LOAD, also in another QP's place, and what other QPs' atomics find while it
    comes back is not lost; counts go on."""
    rng = make_rng()
    dut = shared(ReadAtomicResponder, QPS, swaps=True)

    async def testbench(ctx):
        for name in ("access", "packet", "operands", "answered_o"):
            ctx.set(getattr(dut, name).ready, 1)
        await ctx.tick().repeat(dut.rows)  # until the pool is awake
        for number in range(count):
            await atomic(ctx, dut, number, 0xA0 + number)
        assert await served(ctx, dut, 1) == count
        await send_all(ctx, dut.release, [{"qp": 1, "token": 1, "passage": Passage.SAVE}])
        await ctx.tick().repeat(60)  # nobody takes the words, so the token waits
        words = await receive_all(ctx, dut.saved, 2 + 2 * min(count, 16))
        assert [word.last for word in words] == [0] * (len(words) - 1) + [1]
        await come_back(ctx, dut)

        # Its place is as after RESET, and another QP takes it for a while.
        assert await served(ctx, dut, 1) == 0
        assert await replay(ctx, dut, max(count - 1, 0)) is None
        for number in range(20):
            await atomic(ctx, dut, number, 0xFFF)
        await token(ctx, dut, Passage.RESET)

        # The results of others come one after the other while its rows are written.
        others = 15
        for number in range(others):
            await write(ctx, dut, 2, **ATOMIC, psn=number)
            await send_all(ctx, dut.release, [{"qp": 2}])
        await ctx.tick().repeat(200)
        results = [{"value": 0xB0 + number, "ok": 1} for number in range(others)]
        await send_all(ctx, dut.release, [{"qp": 1, "token": 1, "passage": Passage.LOAD}])
        given, found, shown = deque(word.data for word in words), deque(results), False
        edges = aiter(ctx.tick().sample(dut.loaded.valid & dut.loaded.ready, dut.result.valid & dut.result.ready))
        while given or found:
            ctx.set(dut.loaded.valid, bool(given))
            shown |= bool(found) and rng.random() < 0.5 and len(given) <= max(len(words) - 3, 0)
            ctx.set(dut.result.valid, shown)
            for port, items in ((dut.loaded, given), (dut.result, found)):
                if items:
                    ctx.set(port.payload, items[0])
            _, _, word, result = await anext(edges)
            for moved, items in ((word, given), (result, found)):
                if moved:
                    items.popleft()
            shown &= not result
        ctx.set(dut.loaded.valid, 0)
        ctx.set(dut.result.valid, 0)
        await ctx.tick().repeat(20)
        await send_all(ctx, dut.answered_i, [{"qp": 1}])
        await send_all(ctx, dut.answered_i, [{"qp": 2, "last": 1}] * others)
        assert await served(ctx, dut, 1) == count
        await atomic(ctx, dut, count, 0xA0 + count)
        for number in range(count + 1):
            known = number > count - 16
            assert await replay(ctx, dut, number) == (0xA0 + number if known else None)
        for number in range(others):
            assert await replay(ctx, dut, number, qp=2) == 0xB0 + number
        assert await served(ctx, dut, 1) == (2 * count + 2) % 32

    simulate(dut, testbench, deadline=60_000)


class Recaller:
    """A READ/atomic responder whose packets, answers and atomics a test looks at; the answers to what leaves are the
    test's."""

    def __init__(self):
        self.dut = shared(ReadAtomicResponder, QPS)
        self.packets, self.answers = [], []  # (opcode, psn); last

    async def watch(self, ctx):
        dut = self.dut
        for name in ("access", "operands", "answered_o"):
            ctx.set(getattr(dut, name).ready, 1)
        while True:
            sampled = (dut.packet.valid, dut.packet.ready, dut.packet.payload.transport)
            _, _, valid, ready, transport, answered, answer = await ctx.tick().sample(
                *sampled, dut.answered_o.valid, dut.answered_o.payload
            )
            if valid and ready:
                self.packets.append((transport.opcode, transport.psn))
            if answered:
                self.answers.append((answer.qp, answer.last))

    async def put(self, ctx, *entries, qp=1):
        for entry in entries:
            await write(ctx, self.dut, qp, **entry)
            await send_all(ctx, self.dut.release, [{"qp": qp}])

    async def cut(self, ctx, count=None, cycles=100):
        """Lets packets pass until there are so many in all."""
        ctx.set(self.dut.packet.ready, 1)
        for _ in range(cycles):
            if len(self.packets) == count:
                break
            await ctx.tick()
        ctx.set(self.dut.packet.ready, 0)

    async def recall(self, ctx, psn, qp=1, cycles=500):
        dut = self.dut
        ctx.set(dut.recall, {"qp": qp, "psn": psn})
        ctx.set(dut.recall_en, 1)
        done, passed = 0, -1
        edges = aiter(ctx.tick().sample(dut.recalled))
        while not done and passed < cycles:
            _, _, done = await anext(edges)
            passed += 1
        ctx.set(dut.recall_en, 0)
        return passed if done else None

    def run(self, script):
        async def testbench(ctx):
            await script(ctx)

        simulate(self.dut, testbench, background=[self.watch])


def large(psn, number=0):
    """A READ of 16 packets, from one of them on."""
    after, length = (psn + 16) % (1 << 24), (16 - number) << 12
    kind = ResponseKind.REPEAT if number else ResponseKind.READ
    place = {"psn": (psn + number) % (1 << 24), "address": 0x10000 + (number << 12)}
    return {"kind": kind, "path_mtu": 5, "swap": after << 32 | length} | place


@pytest.mark.parametrize("base", [100, 0xFFFFFC])
def test_a_recall(base):
    """What is behind the PSN is given up, in the middle of a READ, too; each entry counts as answered once, and what is
    asked for next is served at once, from its own beginning."""
    user = Recaller()

    async def script(ctx):
        dut = user.dut
        await user.put(ctx, large(base), large(base + 16), large(base + 32))
        await user.cut(ctx, 5)
        ctx.set(dut.packet.ready, 1)  # a sixth may be under way
        assert await user.recall(ctx, base + 2) is not None
        count = len(user.packets)
        assert count in (5, 6)
        await user.cut(ctx)
        assert len(user.packets) == count
        assert user.answers == [(1, 1)] * 3
        assert await served(ctx, dut, 1) == 3
        # The rest of the first one, and another QP's, which is not meant.
        await user.put(ctx, large(base, 2))
        await user.cut(ctx, count + 3)
        assert user.packets[count:] == [(opcode, (base + 2 + n) & 0xFFFFFF) for n, opcode in enumerate((13, 14, 14))]

    user.run(script)


def test_a_recall_of_what_is_still_to_come():
    """READs before the PSN stay, and so does another QP's; that there is nothing to give up takes 10 cycles."""
    user = Recaller()

    async def script(ctx):
        await user.put(ctx, large(100))
        assert await user.recall(ctx, 100, qp=2) == 9
        await user.cut(ctx, 2)
        assert await user.recall(ctx, 116) is not None
        await user.cut(ctx, 16, cycles=1000)
        assert [psn for _, psn in user.packets] == list(range(100, 116))
        assert user.answers == []

    user.run(script)


def test_a_recall_gives_up_no_atomic():
    """It is to be executed; what is behind it is left, too. A replay is given up, and what it needs stays."""
    user = Recaller()

    async def script(ctx):
        ctx.set(user.dut.hold, 1)
        await user.put(ctx, ATOMIC | {"psn": 100}, large(101))
        assert await user.recall(ctx, 90) is not None
        assert user.answers == []
        ctx.set(user.dut.hold, 0)
        await user.cut(ctx, 1)
        assert user.packets == [(0x12, 100)]
        await send_all(ctx, user.dut.result, [{"value": 5, "ok": 1}])
        await send_all(ctx, user.dut.answered_i, [{"qp": 1, "last": 1}])
        ctx.set(user.dut.hold, 1)
        await user.put(ctx, {"kind": ResponseKind.REPLAY, "psn": 100})
        ctx.set(user.dut.packet.ready, 1)  # for a READ's packet that was under way
        assert await user.recall(ctx, 100) is not None
        given_up = len(user.packets) - 1
        assert given_up <= 1
        assert user.answers == [(1, 1)] * 3
        ctx.set(user.dut.hold, 0)
        await user.cut(ctx)
        assert len(user.packets) == 1 + given_up
        await user.put(ctx, {"kind": ResponseKind.REPLAY, "psn": 100})
        await user.cut(ctx)
        assert user.packets[1 + given_up :] == [(0x12, 100)]

    user.run(script)


def test_a_recall_does_not_wait_for_payload():
    """While responses are held, nothing is begun, but what is recalled is given up."""
    user = Recaller()

    async def script(ctx):
        ctx.set(user.dut.hold, 1)
        await user.put(ctx, large(100), large(116))
        await user.cut(ctx)
        assert user.packets == []
        assert await user.recall(ctx, 100) is not None
        assert user.answers == [(1, 1)] * 2
        ctx.set(user.dut.hold, 0)
        await user.cut(ctx)
        assert user.packets == []

    user.run(script)


def test_one_packet_is_begun_before_hold_counts_it():
    """4 cycles behind a large packet, `hold` says whether there may be another."""
    user = Recaller()

    async def script(ctx):
        dut = user.dut
        await user.put(ctx, large(100))
        ctx.set(dut.packet.ready, 1)
        moved = False
        edges = aiter(ctx.tick().sample(dut.packet.valid, dut.packet.ready))
        while not moved:
            _, _, valid, ready = await anext(edges)
            moved = valid and ready
        for _ in range(3):
            await ctx.tick()
        ctx.set(dut.hold, 1)
        for _ in range(60):
            await ctx.tick()
        assert len(user.packets) == 1
        ctx.set(dut.hold, 0)
        await user.cut(ctx, 2)
        assert len(user.packets) == 2

    user.run(script)


@pytest.mark.parametrize("qps", [0, 3, 8192])
def test_arguments(qps):
    with pytest.raises(ValueError, match="not "):
        ReadAtomicResponder(qps)
