"""The accesses of one client that wait for their records, and which of them is looked up next."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["Lookahead"]


class Lookahead(wiring.Component):
    """Control of a queue of accesses whose reads of host memory overlap, although they leave in order.

    Each access is looked up in the :class:`.cache.Cache` as soon as its turn comes behind the others: if its record is
    not there, its read starts at once (a *prefetch*). When the access is the oldest, it waits until that read is
    answered, and is then looked up again (a *demand* lookup), and leaves with what it finds. If that finds nothing,
    because another record has replaced the line meanwhile, or because there is no such record, a demand read follows,
    and the access waits for it alone. An access that is the oldest when it comes is looked up only once.

    So what an access sees never depends on the prefetch, which only makes it likely that the record is there.

    When all records are invalidated, accesses that have been looked up have lost theirs, and each would miss when it is
    the oldest, one after the other. With ``renew`` the first one that does so has those behind it looked up once more,
    while it waits for its demand read: so their reads overlap, too. Prefetches under way then count for nobody.

    The owner keeps the accesses, in a memory of ``depth`` rows. An access has one or two ``part``s, each with a lookup
    of its own.

    Parameters
    ----------
    depth : int
        Accesses, a power of two.
    parts : int
        Lookups of an access, at most: 1 or 2.
    margin : int
        Accesses that may come after ``room`` has fallen.
    renew : bool
        Look accesses up once more when the oldest has lost its record. No more than ``2 * depth`` prefetches may be
        under way.

    Members
    -------
    put : 1
        Strobe: an access is written to row ``tail``. It can be looked up in the next cycle.
    room : 1
        A register: an access may come, and ``margin`` more.
    tail : row
    free : 1
        The oldest access may leave: its lookup may start from the next cycle on. Once it is high it stays so until one
        leaves.
    can : 1
        A lookup is wanted: of ``row`` and ``part``; it is a demand lookup if ``demand``. One of each kind may be under
        way at a time.
    pending : 1
        As ``can``, but also with ``over``: most likely there is a lookup to start in the next cycle.
    start : 1
        Strobe: the lookup begins.
    more : 1
        In the cycle after ``start``: another part follows this one.
    over, over_demand, found, reads, again : 1
        Strobe: a lookup is over, 3 cycles after its ``start`` at the earliest; it is a demand lookup; it has found what
        it needs; or else, a read was queued; or there was no room for that, and the same lookup should be tried again.
    answered, answered_demand, answered_absent : 1
        Strobe: the oldest read is answered, that of a demand lookup, and there is no such record.
    forget : 1
        Strobe: records are invalidated; what was absent may be there now.
    absent : 1
        The oldest access's demand read has found no record: its next lookup needs none.
    had_read : 1
        A read was made for the oldest access.
    """

    def __init__(self, depth, *, parts=1, margin=0, renew=False):
        if not isinstance(depth, int) or depth < 2 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, at least 2, not {depth!r}")
        if parts not in (1, 2):
            raise ValueError(f"parts must be 1 or 2, not {parts!r}")
        if margin not in range(depth):
            raise ValueError(f"margin must be less than {depth}, not {margin!r}")
        self.depth = depth
        self.parts = parts
        self.margin = margin
        self.renew = renew
        row = ceil_log2(depth)
        strobes = ("put", "free", "start", "more", "over", "over_demand", "found", "reads", "again")
        answers = ("answered", "answered_demand", "answered_absent", "forget")
        super().__init__(
            {name: In(1) for name in strobes + answers}
            | {name: Out(1) for name in ("room", "can", "demand", "pending", "part", "absent", "had_read")}
            | {"row": Out(row), "tail": Out(row)}
        )

    def hear(self, m, cache, client):
        """Connects what a :class:`.cache.Cache` says to this client."""
        over, answered = cache.over, cache.answered
        m.d.comb += [
            self.over.eq(over.valid & (over.client == client)),
            self.over_demand.eq(over.demand),
            self.found.eq(over.found),
            self.reads.eq(over.reads),
            self.again.eq(over.again),
            self.answered.eq(answered.valid & (answered.client == client)),
            self.answered_demand.eq(answered.demand),
            self.answered_absent.eq(answered.absent),
            self.forget.eq(cache.forget),
        ]

    def elaborate(self, platform):
        m = Module()
        part_bits = self.parts - 1
        width = part_bits + ceil_log2(self.depth) + 1
        # Places count parts, and rows with a bit that tells full from empty.
        head, ahead = Signal(width), Signal(width)
        tail = Signal(width - part_bits)
        level = (tail - head[part_bits:])[: len(tail)]
        most = self.depth - self.margin
        m.d.sync += self.room.eq(Mux(self.put, level < most - 1, level < most))
        with m.If(self.put):
            m.d.sync += tail.eq(tail + 1)

        # What decides on a lookup are registers: nothing is compared in the cycle in which it starts.
        demanding, looking = Signal(), Signal()  # a demand lookup is under way; one of `ahead` is
        ready = Signal()  # the oldest access need not wait for a prefetch
        blocked = Signal()  # it waits for its demand read
        level_one = Signal(init=1)  # it has not been looked up yet: `head` is `ahead`
        waits = Signal()  # there is an access at `ahead`
        behind, may_look = Signal(), Signal()  # a demand lookup of what has been looked up, one of `ahead` may start
        may_leave = Signal()
        place = Mux(behind, head, ahead)
        m.d.comb += [
            self.can.eq(behind | may_look),
            self.pending.eq(self.can | self.over),
            self.demand.eq(behind | (level_one & may_leave)),
            self.row.eq(place[part_bits:]),
            self.part.eq(place[0] if part_bits else 0),
            self.tail.eq(tail),
        ]

        # A demand lookup of an access that has not been looked up is one of `ahead`, too.
        both = Signal()
        with m.If(self.start & self.demand):
            m.d.sync += both.eq(~behind)
        next_head, next_ahead = Signal(width), Signal(width)
        if part_bits:
            started, of_head, of_ahead = Signal(), Signal(), Signal()
            m.d.sync += [started.eq(self.start), of_head.eq(self.demand), of_ahead.eq(~behind)]
            for mine, place, after in ((of_head, head, next_head), (of_ahead, ahead, next_ahead)):
                more = Signal(name=f"more_{after.name}")
                with m.If(started & mine):
                    m.d.sync += more.eq(self.more)
                m.d.comb += after.eq(Mux(more, place | 1, Cat(Const(0, 1), place[1:] + 1)))
        else:
            m.d.comb += [next_head.eq(head + 1), next_ahead.eq(ahead + 1)]

        # Which parts have a prefetch, and how many of these are answered whose access is not the oldest yet. The part
        # behind the oldest is read before the oldest leaves, and `known` if its lookup was over by then; a part that is
        # not `ready` is looked at until it is.
        m.submodules.prefetched = prefetched = memory.Memory(shape=1, depth=1 << width - 1, init=[])
        put, get = prefetched.write_port(), prefetched.read_port(domain="comb")
        answers, some = Signal(range(2 * self.depth + 1)), Signal()  # `some`: there are any
        demand_over, leaves, passes, evaluate = Signal(), Signal(), Signal(), Signal()
        use, used, comes = Signal(), Signal(), Signal()
        head_meets, ahead_meets = Signal(), Signal()  # where head or ahead goes next stands ahead, or the tail
        known, seen, has_prefetch = Signal(), Signal(), Signal()
        m.d.comb += [
            demand_over.eq(self.over & self.over_demand),
            leaves.eq(demand_over & self.found),
            passes.eq(self.over & Mux(self.over_demand, both, ~self.again)),
            put.addr.eq(ahead),
            put.data.eq(self.reads & ~self.over_demand),
            put.en.eq(passes),
            get.addr.eq(Mux(ready, next_head, head)),
            evaluate.eq(seen & ~ready & ~level_one),
            use.eq(some & has_prefetch & Mux(leaves, known, evaluate)),
            comes.eq(self.answered & ~self.answered_demand),
        ]
        m.d.sync += [
            head_meets.eq((next_head == ahead) & ~passes),
            ahead_meets.eq((next_ahead[part_bits:] == tail) & ~self.put),
            known.eq((next_head != ahead) & ~level_one),
            seen.eq(~ready & ~level_one),
            has_prefetch.eq(get.data),
            used.eq(use),
            answers.eq(answers + comes - used),
            some.eq(comes | answers[1:].any() | (answers[0] & ~used)),
        ]

        demanding_next, looking_next, ready_next, blocked_next, level_one_next, waits_next = (
            Signal(name=f"{name}_next") for name in ("demanding", "looking", "ready", "blocked", "level_one", "waits")
        )
        m.d.comb += [
            demanding_next.eq(~demand_over & (demanding | (self.start & self.demand))),
            looking_next.eq(~(self.over & (~self.over_demand | both)) & (looking | (self.start & ~behind))),
            ready_next.eq(ready),
            blocked_next.eq(blocked & ~(self.answered & self.answered_demand)),
            level_one_next.eq(level_one & ~passes),
            waits_next.eq(self.put | Mux(passes, ~ahead_meets, waits)),
        ]
        with m.If(demand_over):
            # If it has found nothing, another one of the oldest access follows.
            m.d.comb += [
                ready_next.eq(~self.found | (known & (~has_prefetch | some))),
                blocked_next.eq(~self.found & self.reads),
                level_one_next.eq(self.found & (level_one | head_meets)),
            ]
        with m.Elif(evaluate):
            m.d.comb += ready_next.eq(~has_prefetch | some)
        m.d.sync += [
            demanding.eq(demanding_next),
            looking.eq(looking_next),
            ready.eq(ready_next),
            blocked.eq(blocked_next),
            level_one.eq(level_one_next),
            waits.eq(waits_next),
            may_leave.eq(self.free),
            behind.eq(self.free & ready_next & ~level_one_next & ~blocked_next & ~demanding_next),
            may_look.eq(waits_next & ~looking_next),
        ]
        with m.If(passes):
            m.d.sync += ahead.eq(next_ahead)
        if self.renew:
            # The oldest access has lost its record: when no lookup of `ahead` is under way, this goes back to the part
            # behind. Reads under way are `void` then: no part has a prefetch any more.
            stale, stale_next, back = Signal(), Signal(), Signal()
            counts = Signal(init=1)  # the oldest prefetch under way is somebody's
            prefetches, void, void_next = (
                Signal(range(2 * self.depth + 1), name=name) for name in ("prefetches", "void", "void_next")
            )
            answer = self.answered & ~self.answered_demand
            m.d.comb += [
                stale_next.eq((demand_over & ~self.found & self.reads & ~both) | (stale & looking & blocked_next)),
                back.eq(stale & ~looking & known & blocked),
                void_next.eq(Mux(back, prefetches - answer, void - (answer & ~counts))),
                comes.eq(answer & counts),
            ]
            m.d.sync += [
                stale.eq(stale_next),
                prefetches.eq(prefetches - answer + (self.over & self.reads & ~self.over_demand)),
                void.eq(void_next),
                counts.eq(void_next == 0),
            ]
            with m.If(stale_next):
                m.d.sync += may_look.eq(0)
            with m.If(back):
                m.d.comb += waits_next.eq(1)
                m.d.sync += [ahead.eq(next_head), answers.eq(0), some.eq(0)]
        with m.If(leaves):
            m.d.sync += [head.eq(next_head), self.had_read.eq(known & has_prefetch)]
        with m.Elif(demand_over):
            m.d.sync += self.had_read.eq(self.had_read | self.reads)
        with m.Elif(evaluate):
            m.d.sync += self.had_read.eq(has_prefetch)
        with m.If(demand_over):
            m.d.sync += self.absent.eq(0)
        with m.If(self.answered & self.answered_demand):
            m.d.sync += self.absent.eq(self.answered_absent)
        with m.If(self.forget):
            m.d.sync += self.absent.eq(0)
        return m
