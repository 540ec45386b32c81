"""What is around a SlotKeeper: a real directory, and models of commands, tokens, attributes, and records."""

from types import SimpleNamespace

from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from at_once import AtOnce
from streams import shared, unpacked
from verbena.hdl.abi.commands import CommandStatus, QpAction
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.context.directory import Away, Directory
from verbena.hdl.control.slot_keeper import SlotKeeper
from verbena.hdl.stream.connections import connect_signals, link

__all__ = ["Bench", "World"]

DIRECTORY = ("answered", "row", "changed")
SAMPLED = (
    *("wants", "done", "brought", "slot", "status", "closed", "closed_qp", "place", "place_index", "idle", "mark"),
    *("attributes_save", "attributes_load", "attributes_clear"),
    *("collect", "write", "write_index", "read", "read_index", "whole", "back", "count_qp_fetches"),
)
STREAMS = ("token", "want", "timers", "event", "sq_ring", "rq_ring")


class Bench(wiring.Component):
    """A keeper and its directory."""

    def __init__(self, qps, slots, forced):
        self.keeper = SlotKeeper(qps, slots, forced=forced)
        members = dict(self.keeper.signature.members)
        super().__init__(
            {name: member for name, member in members.items() if name not in ("ask", *DIRECTORY)}
            | {"directory_ready": Out(1), "probe": In(1)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.keeper = keeper = self.keeper
        m.submodules.directory = directory = Directory(keeper.qps, keeper.slots, 2)
        link(m, keeper.ask, directory.ask[1])
        m.d.comb += [
            directory.ask[0].valid.eq(self.probe),  # somebody else reads
            keeper.answered.eq(directory.answered[1]),
            self.directory_ready.eq(directory.ready),
            directory.write.eq(keeper.place),
            directory.index.eq(keeper.place_index),
            directory.new.eq(keeper.new),
        ]
        connect_signals(m, directory, keeper, "row", "changed")
        for name, member in self.signature.members.items():
            if name in ("directory_ready", "probe"):
                continue
            mine, theirs = getattr(self, name), getattr(keeper, name)
            if member.is_port and isinstance(mine, list | tuple):
                for left, right in zip(mine, theirs, strict=True):
                    m.d.comb += right.eq(left)
            elif member.is_port:
                left, right = Value.cast(mine), Value.cast(theirs)
                m.d.comb += right.eq(left) if member.flow == In else left.eq(right)
            elif member.flow == In:
                link(m, mine, theirs)
            else:
                link(m, theirs, mine)
        return m


class Completions:
    """A writer of completions, and what is on its way to it: of others at any time, and one of the QP that leaves."""

    def __init__(self, rng):
        self.rng = rng
        self.rate = rng.choice([0.02, 0.1, 0.5])
        self.queue, self.flights = [], []  # whether it is of who leaves; and the cycles until its answer
        self.gap = self.left = 0
        self.marks = 0
        self.told = []  # cycles until a loss is told
        self.fails = False

    @property
    def visible(self):
        return int(self.left == 0)

    def complete(self):
        """The QP that leaves has completed something, a moment ago."""
        self.queue[4:] = [True]

    def under_way(self):
        return any(self.queue) or any(mine for mine, _ in self.flights) or bool(self.told)

    def cycle(self, stall):
        """``waits``, ``moves`` and how many losses are told."""
        rng = self.rng
        if rng.random() < self.rate and len(self.queue) < 4:
            self.queue.append(False)
        self.gap = max(0, self.gap - 1)
        offered = bool(self.queue) and not self.gap
        waits = offered or bool(self.flights)
        moves = not offered or (len(self.flights) < 16 and rng.random() >= stall)
        self.told = [cycles - 1 for cycles in self.told]
        losses = self.told.count(0)
        self.told = [cycles for cycles in self.told if cycles]
        if self.flights:
            mine, cycles = self.flights[0]
            self.flights[0] = mine, cycles - 1
            if cycles <= 1:
                del self.flights[0]
                self.left = max(0, self.left - 1)
                if mine and self.fails:
                    self.told.append(rng.randint(1, 6))
        if offered and moves:
            self.flights.append((self.queue.pop(0), rng.randint(1, 3 if self.flights else 60)))
            self.gap = rng.randint(0, 3)
        return int(waits), int(moves), losses

    def mark(self):
        self.marks += 1
        self.left = len(self.flights)


class World:
    """A cycle a :meth:`step`. Whatever no block could bear is asserted on the way.

    ``content`` is whose state is in the blocks of each slot, and how old; ``records`` the same of host memory.
    """

    def __init__(self, rng, *, qps=16, slots=4, forced=False):
        self.rng, self.qps, self.slots, self.forced = rng, qps, slots, forced
        self.dut = shared(Bench, qps, slots, forced)
        self.rows = {}  # of QPs that there are: ("here", slot) or ("away", timer, phase)
        self.content = {}
        self.attributes = {}  # slot: QP
        self.records = {}
        self.age = {}  # of each QP: what it has done
        self.driver = dict.fromkeys(range(qps), 0)  # doorbells
        self.wanted, self.timers = [], set()
        self.owed = {}  # QP: doorbell that must still ring
        self.rings, self.fatal, self.log = [], [], []
        self.fetches = 0
        # What others do.
        self.turn = "idle"
        self.command, self.result = None, None  # (QP, create)
        self.asks = False  # the command waits for its QP's slot
        self.packet = self.next_packet = None  # the QPs of one that waits, and of the one behind it
        self.reported = 0
        self.works = None  # slots whose QPs do something; None: all
        self.serving = set()
        self.room = 1
        self.evict = None  # slot
        self.evicted = []  # (slot, skipped)
        self.forget = self.forgotten = None
        # The records' ways.
        self.saved = self.coming = self.given = None
        self.full_in = self.writing = self.reading = self.busy = 0
        self.full = self.wake = self.bad = 0
        self.failed = False
        self.written = 0
        self.reads = None  # (QP, whole)
        self.write_fails = self.read_fails = lambda qp: False
        self.wakes = lambda qp: False
        self.timer_of = lambda qp: 0
        self.timer, self.phase = 0, 0
        self.past = []  # `closed_qp`
        self.completed = 1
        self.completions = Completions(rng)
        self.stall = 0.3
        self.creating = None
        self.put = self.edges = None

    def slot_of(self, qp):
        row = self.rows.get(qp)
        return row[1] if row and row[0] == "here" else None

    def want(self, qp):
        """A doorbell that came while the QP was away, or on its way."""
        self.driver[qp] += 1
        self.owed[qp] = self.driver[qp]
        if qp not in self.wanted:
            self.wanted.append(qp)

    async def until(self, ctx, condition, cycles=3000):
        for _ in range(cycles):
            if condition():
                return
            await self.step(ctx)
        raise AssertionError(f"did not come: turn {self.turn}, rows {self.rows}, log {self.log[-8:]}")

    async def start(self, ctx):
        while not ctx.get(self.dut.directory_ready):
            await ctx.tick()
        self.closed = 0

    async def create(self, ctx, qp):
        status, slot = await self.execute(ctx, qp, 1)
        assert status == CommandStatus.OK
        assert self.slot_of(qp) == slot
        return slot

    async def execute(self, ctx, qp, create=0):
        """A command that needs the QP's slot. Its status, and the slot."""
        self.command, self.result = (qp, create), None
        await self.until(ctx, lambda: self.result is not None)
        return self.result

    async def settle(self, ctx):
        """Until nobody has anything to do."""
        quiet = 0
        while quiet < 8:
            await self.step(ctx)
            quiet = quiet + 1 if self.now.idle and not self.closed and self.turn == "idle" else 0
            busy = self.turn != "idle" and not self.asks  # a command that asks is not seen at once
            assert not (self.now.idle and (busy or self.wanted or self.packet is not None))

    def roll(self):
        return self.rng.random() >= self.stall

    def sampled(self):
        dut = self.dut
        ports = [getattr(dut, name) for name in SAMPLED]
        ports += [
            port for name in STREAMS for port in (getattr(dut, name).valid, Value.cast(getattr(dut, name).payload))
        ]
        ports += [dut.wanted.ready, Value.cast(dut.new)]
        return ports + ([dut.evict.ready, dut.evict_skip] if self.forced else [])

    async def step(self, ctx):
        dut, rng = self.dut, self.rng
        self.put = put = self.put or AtOnce(ctx)
        closed, closed_qp = ctx.get(dut.closed), ctx.get(dut.closed_qp)
        # -- Commands.
        grant = int(self.turn == "granted")
        opens = int(not grant and not self.reported)
        forgets = self.forget is not None and not grant
        visible = self.completions.visible
        waits, moves, losses = self.completions.cycle(self.stall)
        self.reported += losses
        for name, value in (
            ("grant", grant),
            ("opens", opens),
            ("forget", forgets),
            ("forget_slot", self.forget or 0),
            ("reports", int(self.reported > 0)),
            ("waits", waits),
            ("moves", moves),
            ("visible", visible),
            ("completed", self.completed),
            ("room", self.room),
            ("packet", int(self.packet is not None)),
            ("packet_index", self.packet or 0),
            ("next_packet", int(self.rows.get(self.next_packet, ("here",))[0] == "away")),
            ("next_packet_index", self.next_packet or 0),
            ("full", self.full),
            ("wake", self.wake),
            ("writing", int(self.writing > 0)),
            ("write_failed", int(self.failed)),
            ("written_index", self.written),
            ("reading", int(self.reading > 0)),
            ("bad", self.bad),
            ("attributes_busy", int(self.busy > 0)),
            ("timer", self.timer),
            ("timer_phase", self.phase),
            ("probe", int(rng.random() < 0.3)),
        ):
            put(getattr(dut, name), value)
        asked, create = self.command or (0, 0)
        put(dut.bring, self.asks)
        put(dut.bring_index, asked)
        put(dut.bring_create, create)
        put(dut.wanted.valid, bool(self.wanted))
        put(dut.wanted.payload, self.wanted[0] if self.wanted else 0)
        if self.forced:
            put(dut.evict.valid, self.evict is not None)
            put(dut.evict.payload, self.evict or 0)
        self.past = [*self.past[-1:], closed_qp]
        put(dut.serving, int(self.past[0] in self.serving))
        served = self.past[0] in self.serving
        # -- QPs that are open do something.
        use = None
        if self.content and rng.random() < 0.2:
            use = rng.choice(sorted(self.content))
            if closed and use == closed_qp:
                use = None
            elif self.works is None or use in self.works:
                self.age[self.content[use][0]] += 1
                self.content[use] = (self.content[use][0], self.age[self.content[use][0]])
            else:
                use = None
        put(dut.used[1], use or 0)
        put(dut.used_en, 2 if use is not None else 0)
        # -- Streams that the keeper feeds.
        ready = {name: int(self.roll()) for name in STREAMS}
        for name in ("sq_ring", "rq_ring"):
            if closed and ctx.get(getattr(dut, name).payload.qp) == closed_qp:
                ready[name] = 0
        ready["token"] &= grant
        for name, value in ready.items():
            put(getattr(dut, name).ready, value)
        put.set()
        self.edges = self.edges or aiter(ctx.tick().sample(*self.sampled()))
        sampled = (await anext(self.edges))[2:]
        self.now = now = SimpleNamespace(**dict(zip(SAMPLED, sampled, strict=False)))
        rest = sampled[len(SAMPLED) :]
        taken = {
            name: unpacked(getattr(dut, name), rest[2 * number + 1])
            for number, name in enumerate(STREAMS)
            if rest[2 * number] and ready[name]
        }
        rest = rest[2 * len(STREAMS) :]
        took, bits = rest[:2]
        if now.place:
            new = dut.new.shape().from_bits(bits)
            here, known, slot = new.here, new.known, new.value % self.slots
            away = Away.from_bits(new.value % (1 << Away.size))
        self.closed = now.closed

        # -- Tokens and attributes.
        self.full_in, full_in = max(0, self.full_in - 1), self.full_in
        if full_in == 1:
            self.full = 1
        if full_in and (full_in == 1 or rng.random() < 0.1):
            if not self.completed:
                self.completions.complete()
            self.completed = 1
        self.busy = max(0, self.busy - 1)
        if now.collect:
            assert self.writing == 0
            assert not served
            self.full = self.completed = 0
        if now.attributes_save:
            assert self.attributes[now.closed_qp] == self.content[now.closed_qp][0]
            self.busy = rng.randint(1, 12)
        if now.attributes_load:
            assert now.closed
            self.busy = rng.randint(1, 12)
            self.attributes[now.closed_qp] = self.coming[0]
        if now.attributes_clear:
            assert self.busy == 0
            self.busy = rng.randint(1, 3)
            self.attributes.pop(now.closed_qp)
        if now.mark:
            self.completions.mark()
        if "token" in taken:
            token = taken["token"]
            assert (token.qp, now.closed, token.psn) == (now.closed_qp, 1, 0)
            if token.action == QpAction.SAVE:
                self.saved = self.content.pop(token.qp)
                self.log.append(("save", token.qp, *self.saved))
                self.full_in = rng.randint(1, 20)
                self.wake = int(self.wakes(self.saved[0]))
                self.timer, self.phase = self.timer_of(self.saved[0]), rng.randrange(4)
            else:
                assert token.action == QpAction.LOAD
                assert token.qp not in self.content
                qp, age = self.given
                assert age == self.age[qp], "old state"
                assert self.attributes[token.qp] == qp
                self.content[token.qp], self.given = (qp, age), None
                self.log.append(("load", token.qp, qp, age))
                self.fetches += 1
            assert now.count_qp_fetches == (token.action == QpAction.LOAD)
        else:
            assert not now.count_qp_fetches

        # -- Records.
        if self.writing:
            self.writing -= 1
            if not self.writing:
                self.failed = self.write_fails(self.written)
                if not self.failed:
                    self.records[self.written] = self.leaving
        if self.reading:
            self.reading -= 1
            if not self.reading:
                qp, whole = self.reads
                self.bad = int(self.read_fails(qp) or (whole and qp not in self.records))
                if whole:
                    self.coming = self.records.get(qp)
        if now.write:
            assert self.full
            assert self.writing == 0
            assert now.write_index == self.saved[0]
            self.leaving, self.written, self.writing, self.failed = (
                self.saved,
                now.write_index,
                rng.randint(2, 40),
                False,
            )
            self.log.append(("write", now.write_index))
        if now.read:
            assert self.reading == 0
            assert not now.write
            assert not (self.writing and self.written == now.read_index)
            self.reads, self.reading = (now.read_index, now.whole), rng.randint(2, 40)
            value = self.driver[now.read_index] & 0xFFFF
            ctx.set(dut.doorbells, {"sq_producer": value, "rq_producer": value ^ 0xFFFF})
            self.log.append(("read" if now.whole else "peek", now.read_index))
        if now.back:
            assert self.reading == 0
            assert not self.bad
            self.given = self.coming

        # -- The directory.
        if now.place:
            qp = now.place_index
            if here:
                assert known
                assert self.busy == 0
                if slot not in self.content:
                    assert self.command == (qp, 1)
                    assert qp not in self.rows
                    self.age[qp] = 0
                    self.content[slot], self.attributes[slot] = (qp, 0), qp
                    self.records.pop(qp, None)
                    self.log.append(("create", slot, qp))
                assert self.content[slot][0] == qp
                assert all(other == qp or row[:2] != ("here", slot) for other, row in self.rows.items())
                assert self.slot_of(qp) is None
                self.rows[qp] = ("here", slot)
            elif known:
                assert self.slot_of(qp) is not None
                assert not self.completions.under_way()
                assert (away.timer, away.phase) == (self.timer, self.phase)
                self.rows[qp] = ("away", self.timer, self.phase)
                self.log.append(("gone", qp))
            else:
                assert bits == 0
                self.content.pop(self.slot_of(qp), None)
                if self.forgotten is not None:
                    self.attributes.pop(self.forgotten)
                self.rows.pop(qp, None)
                self.owed.pop(qp, None)
                self.log.append(("forgotten", qp))
        self.forgotten = self.forget if forgets else None  # the directory hears of it in the next cycle
        if forgets:
            self.forget = None
        for name, ring in taken.items():
            if name in ("sq_ring", "rq_ring"):
                qp = self.content[ring.qp][0]
                index = ring.index if name == "sq_ring" else ring.index ^ 0xFFFF
                self.rings.append((name, qp, index))
                both = [item for item in self.rings[-2:] if item[1:] == (qp, index)]
                if len(both) == 2 and index >= self.owed.get(qp, 1 << 16):
                    self.owed.pop(qp)
        if "want" in taken:
            assert taken["want"].member
            if taken["want"].qpn not in self.wanted:
                self.wanted.append(taken["want"].qpn)
            self.log.append(("want", taken["want"].qpn))
        if "timers" in taken:
            (self.timers.add if taken["timers"].member else self.timers.discard)(taken["timers"].qpn)
        if "event" in taken:
            assert taken["event"].type == EventType.QP_FATAL
            self.fatal.append(taken["event"].number)
            self.log.append(("fatal", taken["event"].number))
        if took:
            self.wanted.pop(0)
        if self.packet is not None and self.rows.get(self.packet, ("here",))[0] == "here":
            self.packet, self.next_packet = self.next_packet, None
            if self.rows.get(self.packet, ("here",))[0] == "here":
                self.packet = None
        if self.forced and rest[2]:
            self.evicted.append((self.evict, bool(rest[3])))
            self.evict = None

        # -- Commands, again.
        if self.turn == "idle":
            if self.reported:
                self.reported -= rng.random() < 0.3
            elif self.command and not self.result and rng.random() < 0.5:
                self.asks, self.turn = True, "granted"
            elif now.wants and not now.closed:
                self.turn = "granted"
        elif now.done:
            self.turn = "idle"
            assert self.asks or not now.brought
            if now.brought:
                self.result, self.command, self.asks = (CommandStatus(now.status), now.slot), None, False
            elif self.asks:
                self.log.append(("again",))
        if self.turn == "idle" and not now.place:
            self.check()

    def check(self):
        """Between two jobs all agree."""
        held = {slot: qp for slot, (qp, _) in self.content.items()}
        assert held == {row[1]: qp for qp, row in self.rows.items() if row[0] == "here"}
        assert self.attributes == held
        assert self.timers == {qp for qp, row in self.rows.items() if row[0] == "away" and row[1]}
