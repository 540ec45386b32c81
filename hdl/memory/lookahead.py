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

    Members
    -------
    put : 1
        Strobe: an access is written to row ``tail``. It can be looked up in the next cycle; or in this one, if
        ``idle``.
    room : 1
        A register: an access may come, and ``margin`` more.
    tail : row
    free : 1
        The oldest access may leave. Once it is high it stays so until one leaves.
    can : 1
        A lookup is wanted: of ``row`` and ``part``; it is a demand lookup if ``demand``. One of each kind may be under
        way at a time.
    idle : 1
        The queue is empty, and an access that is put in this cycle can be looked up in it: of row ``tail``.
    pending : 1
        As ``can``, but also with ``over``: most likely there is a lookup to start in the next cycle.
    start : 1
        Strobe: the lookup begins.
    more : 1
        In the cycle after ``start``: another part follows this one.
    over, over_demand, found, reads, again : 1
        Strobe: a lookup is over; it is a demand lookup; it has found what it needs; or else, a read was queued; or
        there was no room for that, and the same lookup should be tried again.
    answered, answered_demand, answered_absent : 1
        Strobe: the oldest read is answered, that of a demand lookup, and there is no such record.
    forget : 1
        Strobe: records are invalidated; what was absent may be there now.
    absent : 1
        The oldest access's demand read has found no record: its next lookup needs none.
    had_read : 1
        A read was made for the oldest access.
    """

    def __init__(self, depth, *, parts=1, margin=0):
        if not isinstance(depth, int) or depth < 2 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, at least 2, not {depth!r}")
        if parts not in (1, 2):
            raise ValueError(f"parts must be 1 or 2, not {parts!r}")
        if margin not in range(depth):
            raise ValueError(f"margin must be less than {depth}, not {margin!r}")
        self.depth = depth
        self.parts = parts
        self.margin = margin
        row = ceil_log2(depth)
        strobes = ("put", "free", "start", "more", "over", "over_demand", "found", "reads", "again")
        answers = ("answered", "answered_demand", "answered_absent", "forget")
        super().__init__(
            {name: In(1) for name in strobes + answers}
            | {name: Out(1) for name in ("room", "can", "demand", "idle", "pending", "part", "absent", "had_read")}
            | {"row": Out(row), "tail": Out(row)}
        )

    def elaborate(self, platform):
        m = Module()
        part_bits = self.parts - 1
        width = part_bits + ceil_log2(self.depth) + 1
        # Places count parts, and rows with a bit that tells full from empty.
        head, ahead = Signal(width), Signal(width)
        tail = Signal(width - part_bits)
        level = (tail - head[part_bits:])[: len(tail)]
        m.d.sync += self.room.eq(level + self.put < self.depth - self.margin)
        with m.If(self.put):
            m.d.sync += tail.eq(tail + 1)

        demanding, looking = Signal(), Signal()  # a demand lookup is under way; one of `ahead` is
        ready = Signal()  # the oldest access need not wait for a prefetch
        blocked = Signal()  # it waits for its demand read
        level_one = head == ahead  # the oldest access has not been looked up yet
        waits = ahead[part_bits:] != tail
        behind = ready & ~level_one & ~blocked & self.free & ~demanding
        place = Mux(behind, head, ahead)
        m.d.comb += [
            self.can.eq(behind | (waits & ~looking)),
            self.pending.eq(self.can | self.over),
            self.idle.eq(~looking & level_one & ~waits),
            self.demand.eq(behind | (level_one & self.free)),
            self.row.eq(place[part_bits:]),
            self.part.eq(place[0] if part_bits else 0),
            self.tail.eq(tail),
        ]

        # A demand lookup of an access that has not been looked up is one of `ahead`, too.
        started, starts_demand = Signal(), Signal()
        both = Signal()
        m.d.sync += started.eq(self.start)
        with m.If(self.start):
            m.d.sync += starts_demand.eq(self.demand)
            with m.If(self.demand):
                m.d.sync += [demanding.eq(1), both.eq(~behind)]
            with m.If(~behind):
                m.d.sync += looking.eq(1)
        next_head, next_ahead = Signal(width), Signal(width)
        if part_bits:
            for mine, place, after in ((starts_demand, head, next_head), (~starts_demand, ahead, next_ahead)):
                more = Signal(name=f"more_{after.name}")
                with m.If(started & mine):
                    m.d.sync += more.eq(self.more)
                m.d.comb += after.eq(Mux(more, place | 1, Cat(Const(0, 1), place[1:] + 1)))
        else:
            m.d.comb += [next_head.eq(head + 1), next_ahead.eq(ahead + 1)]

        # Which parts have a prefetch, and how many of these are answered whose access is not the oldest yet.
        m.submodules.prefetched = prefetched = memory.Memory(shape=1, depth=1 << width - 1, init=[])
        put, get = prefetched.write_port(), prefetched.read_port(domain="comb")
        answers = Signal(range(2 * self.depth + 1))
        leaves, passes, evaluate, use = Signal(), Signal(), Signal(), Signal()
        oldest = Signal(width)
        m.d.comb += [
            leaves.eq(self.over & self.over_demand & self.found),
            passes.eq(self.over & Mux(self.over_demand, both, ~self.again)),
            put.addr.eq(ahead),
            put.data.eq(self.reads & ~self.over_demand),
            put.en.eq(passes),
            oldest.eq(Mux(leaves, next_head, head)),
            get.addr.eq(oldest),
            evaluate.eq((leaves | ~ready) & ~level_one & (oldest != ahead)),
            use.eq(evaluate & get.data & answers.any()),
        ]
        m.d.sync += answers.eq(answers + (self.answered & ~self.answered_demand) - use)

        with m.If(passes):
            m.d.sync += ahead.eq(Mux(self.over_demand, next_head, next_ahead))
        with m.If(self.over & (~self.over_demand | both)):
            m.d.sync += looking.eq(0)
        with m.If(leaves):
            m.d.sync += [head.eq(next_head), ready.eq(0), self.had_read.eq(0)]
        with m.If(evaluate):
            m.d.sync += [ready.eq(~get.data | answers.any()), self.had_read.eq(get.data)]
        with m.If(self.over & self.over_demand):
            m.d.sync += [demanding.eq(0), self.absent.eq(0)]
            with m.If(~self.found):
                # Another one of the oldest access follows.
                m.d.sync += [ready.eq(1), blocked.eq(self.reads), self.had_read.eq(self.had_read | self.reads)]
        with m.If(self.answered & self.answered_demand):
            m.d.sync += [blocked.eq(0), self.absent.eq(self.answered_absent)]
        with m.If(self.forget):
            m.d.sync += self.absent.eq(0)
        return m
