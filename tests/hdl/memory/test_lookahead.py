"""A client's queue against a model in plain Python, with a cache that answers at random."""

from collections import deque

import pytest
from amaranth.back import rtlil
from streams import make_rng, simulate
from verbena.hdl.memory.lookahead import Lookahead


@pytest.mark.parametrize(
    ("depth", "parts", "margin", "renew"),
    [(2, 1, 0, False), (4, 2, 1, False), (8, 1, 0, False), (16, 2, 1, False), (8, 1, 0, True), (32, 2, 1, True)],
)
def test_random(depth, parts, margin, renew):
    """Accesses leave in order, each part once, by a demand lookup that found something; a demand lookup of a part that
    has a prefetch waits for its answer, one after a demand read for that. With ``renew`` those behind one that was
    looked up ahead, and then finds nothing, are looked up once more, and their prefetches do not count."""
    rng = make_rng()
    dut = Lookahead(depth, parts=parts, margin=margin, renew=renew)

    async def bench(ctx):
        accesses = deque()  # rows: how many parts
        put = left = 0
        ahead = deque()  # parts that have been looked up and have not left: (row, part, prefetch or None)
        position = (0, 0)  # the next part that is looked up ahead
        head = (0, 0)
        reads = deque()  # under way: ("prefetch" or "demand", cycle of the answer)
        flying = deque()  # lookups: (cycle of `over`, demand, first, place)
        owed = deque()  # prefetches answered whose part has not left
        demand_read = absent = free = False
        previous_start = -2
        cycle = demands = prefetches = waits = more = renewed = 0
        stale = known = False

        def behind(place):
            two = accesses[place[0] - head[0]] == 2
            return (place[0], 1) if place[1] == 0 and two else (place[0] + 1, 0)

        while left < (600 if renew else 200):
            level = put - head[0]
            # What comes.
            room = ctx.get(dut.room)
            assert level <= depth
            comes = level < depth and room and rng.random() < 0.4
            assert not (level + margin >= depth + 1 and room), "room for more than there is"
            ctx.set(dut.put, comes)
            ctx.set(dut.free, rng.random() < 0.7 or bool(flying and any(item[1] for item in flying)))
            over = bool(flying) and flying[0][0] <= cycle
            found = reading = again = False
            if over:
                _, demand, first, place, certain = flying[0]
                found = certain or rng.random() < (0.8 if renew else 0.5)
                crowded = sum(kind != "demand" for kind, _ in reads) == 2 * depth
                again = not found and (rng.random() < 0.2 or (crowded and not demand))
                reading = not found and not again and (demand or rng.random() < 0.8)
                ctx.set(dut.over_demand, demand)
                ctx.set(dut.found, found)
                ctx.set(dut.reads, reading)
                ctx.set(dut.again, again)
            ctx.set(dut.over, over)
            answered = bool(reads) and reads[0][1] <= cycle
            nothing = answered and rng.random() < 0.2
            ctx.set(dut.answered, answered)
            if answered:
                ctx.set(dut.answered_demand, reads[0][0] == "demand")
                ctx.set(dut.answered_absent, nothing)
            ctx.set(dut.more, len(accesses) and previous_start == cycle - 1 and more)
            looking = [item for item in flying if item[2]]
            start = ctx.get(dut.can) and cycle >= previous_start + 2 and rng.random() < 0.8
            ctx.set(dut.start, start)
            if start:
                demand, row, part = ctx.get(dut.demand), ctx.get(dut.row), ctx.get(dut.part)
                first = (row, part) == (position[0] % depth, position[1]) and (head == position or not demand)
                place = position if first else head
                assert (row, part) == (place[0] % depth, place[1])
                assert place[0] < put, "nothing to look up"
                assert not any(item[1] == demand and item[2] == first for item in flying)
                if demand:
                    assert free
                    assert place == head
                    assert not demand_read, "its read is under way"
                    if not first:
                        prefetched = ahead[0]
                        if prefetched and not prefetched[0]:
                            assert owed, "its prefetch is under way"
                            owed.popleft()
                            prefetched[0] = True
                        waits += bool(prefetched)
                    assert ctx.get(dut.absent) == absent
                more = part == 0 and accesses[place[0] - head[0]] == 2
                flying.append((cycle + 3, demand, first, place, absent and demand))
                previous_start = cycle
            back = stale and known and demand_read and not looking
            stale = stale and bool(looking) and not (answered and reads[0][0] == "demand")
            known = head != position and behind(head) != position
            free = ctx.get(dut.free)  # for the next cycle
            await ctx.tick()
            # What has happened.
            if back:
                position = behind(head)
                renewed += len(ahead) > 1
                ahead = deque([ahead[0]])
                owed.clear()
                reads = deque(("void" if kind == "prefetch" else kind, at) for kind, at in reads)
            if comes:
                accesses.append(rng.randrange(1, parts + 1))
                put += 1
            if answered:
                kind, _ = reads.popleft()
                if kind == "demand":
                    demand_read, absent = False, nothing
                elif kind == "prefetch":
                    owed.append(True)
            if over:
                _, demand, first, place, _ = flying.popleft()
                two = accesses[place[0] - head[0]] == 2
                after = (place[0], 1) if place[1] == 0 and two else (place[0] + 1, 0)
                latest = max([cycle, *(at for _, at in reads)])
                if reading:
                    reads.append(("demand" if demand else "prefetch", latest + rng.randrange(1, 8 if renew else 60)))
                if first and (demand or not again):
                    position = after
                    ahead.append([False] if reading and not demand else None)
                    prefetches += not demand
                if demand:
                    demands += 1
                    demand_read, absent = reading, False
                    stale = renew and reading and not first
                    if found:
                        ahead.popleft()
                        if after[0] != head[0]:
                            accesses.popleft()
                            left += 1
                        head = after
            cycle += 1
        assert demands > 200
        assert prefetches > 50
        assert waits > 30
        assert renewed > 30 or not renew

    simulate(dut, bench, seed=rng.seed_value, deadline=60_000)


def test_room_tells_of_a_margin():
    """``room`` falls when no more than ``margin`` accesses may come."""
    dut = Lookahead(8, margin=2)

    async def bench(ctx):
        await ctx.tick()
        seen = []
        for _ in range(8):
            seen.append(ctx.get(dut.room))
            ctx.set(dut.put, 1)
            await ctx.tick()
        ctx.set(dut.put, 0)
        assert seen == [1] * 6 + [0] * 2

    simulate(dut, bench)


@pytest.mark.parametrize("parts", [1, 2])
def test_converts(parts):
    assert "module" in rtlil.convert(Lookahead(8, parts=parts))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [({"depth": 6}, "not 6"), ({"depth": 1}, "not 1"), ({"parts": 3}, "not 3"), ({"margin": 8}, "not 8")],
)
def test_wrong_arguments(wrong, match):
    with pytest.raises(ValueError, match=match):
        Lookahead(**{"depth": 8, **wrong})
