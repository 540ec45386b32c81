"""Translation by itself: pages of large numbers, the two pieces of an access, both clients' runs."""

import pytest
from memory_model import QPS, Host, server
from streams import collect, make_rng, send_all, simulate
from verbena.hdl.abi.tables import MTT, AccessStatus
from verbena.hdl.memory.mtt import RECEIVE, TRANSMIT, Translation

MTT_BASE = 0x1234_5678_9ABC_DE00


def checked(client, page, offset, length, *, cross=0, page_bits=12, **fields):
    good = {"client": client, "mtt_address": MTT_BASE >> 3, "page": page, "offset": offset, "page_bits": page_bits}
    return good | {"length": length, "cross": cross, "lookup": 1, "last": 1} | fields


def run(accesses, host, client, pieces, data_width=64):
    """The client's pieces; the other one gets none, and a verdict a run is told on transmit only. Of each run that
    fails one error is counted, but none of those that are poisoned.
    """
    rng = make_rng()
    dut = Translation(data_width, QPS, sets=16)
    got, other, verdicts = [], [], []
    errors = 0

    async def send(ctx):
        for item in accesses:
            while not ctx.get(dut.room[client]):
                await ctx.tick()
            await send_all(ctx, dut.i, [item])
            await ctx.tick()
            await ctx.tick()

        while len(got) < pieces:
            await ctx.tick()
        await ctx.tick().repeat(60)

    async def take(ctx):
        await collect(ctx, dut.piece[client], got, rng)

    async def take_other(ctx):
        await collect(ctx, dut.piece[1 - client], other)

    async def verdict(ctx):
        await collect(ctx, dut.verdict, verdicts)

    async def count(ctx):
        nonlocal errors
        async for _, _, error in ctx.tick().sample(dut.count_error):
            errors += error

    serve = server(host, dut.read, dut.fill, rng, lambda: rng.randrange(40))
    simulate(dut, send, background=[serve, take, take_other, verdict, count], seed=rng.seed_value)
    assert len(got) == pieces
    assert not other
    assert [item.status for item in verdicts] == [p.status for p in got if p.last and client == TRANSMIT]
    assert errors == sum(p.last and p.status not in (AccessStatus.OK, AccessStatus.POISONED) for p in got)
    return [(p.address if not p.discard and p.length else None, p.length, p.discard, p.status, p.last) for p in got]


@pytest.mark.parametrize("data_width", [64, 512])
@pytest.mark.parametrize("client", [TRANSMIT, RECEIVE])
def test_pages(client, data_width):
    """Page numbers and page sizes up to the largest; bits below the page size come from the virtual address."""
    host = Host()
    accesses, want = [], []
    for page, bits in ((0, 12), (1, 30), ((1 << 36) - 1, 12), (255, 20), (256, 29), (12345, 30), (7, 13)):
        bus = ((page << 41) + (5 << 50)) % (1 << 64) >> bits << bits
        host.store(MTT_BASE + 8 * page, MTT.pack(present=1, page=bus >> 12))
        offset = (1 << 30) - 1 - 77
        accesses.append(checked(client, page, offset, 64, page_bits=bits))
        want.append((bus + offset % (1 << bits), 64, 0, 0, 1))
    assert run(accesses, host, client, len(want), data_width) == want


@pytest.mark.parametrize("client", [TRANSMIT, RECEIVE])
def test_second_page_absent(client):
    """The first page's piece is out; then the run fails."""
    host = Host()
    host.store(MTT_BASE, MTT.pack(present=1, page=0x777))
    across = checked(client, 0, 0xFF0, 64, cross=1, qp=3)
    accesses = [across | {"last": 0}, checked(client, 0, 0, 100, qp=3), checked(client, 0, 0, 8, qp=3)]
    accesses += [checked(client, 0, 0, 8, qp=2), {"client": client, "clear": 1, "last": 1, "qp": 3}]
    accesses += [checked(client, 0, 16, 8, qp=3)]
    page, poisoned = AccessStatus.PAGE, AccessStatus.POISONED
    want = [(0x777FF0, 16, 0, 0, 0)]
    if client == TRANSMIT:
        want += [(None, 0, 0, page, 1), (None, 0, 0, poisoned, 1)]
    else:
        want += [(None, 48, 1, 0, 0), (None, 100, 1, page, 1), (None, 8, 1, poisoned, 1)]
    want += [(0x777000, 8, 0, 0, 1), (None, 0, 0, 0, 1), (0x777010, 8, 0, 0, 1)]
    assert run(accesses, host, client, len(want)) == want


@pytest.mark.parametrize("client", [TRANSMIT, RECEIVE])
def test_fresh_second_page_absent(client):
    """What was refused before is forgotten, but the access itself may be refused, in its second page, too."""
    host = Host()
    host.store(MTT_BASE, MTT.pack(present=1, page=0x777))
    fresh = {"qp": 3, "fresh": 1}
    across = checked(client, 0, 0xFF0, 64, cross=1, **fresh)
    accesses = [checked(client, 1, 0, 8, qp=3), across, checked(client, 0, 0, 8, qp=3)]
    accesses += [checked(client, 0, 8, 8, **fresh), checked(client, 0, 16, 8, qp=3)]
    page, poisoned = AccessStatus.PAGE, AccessStatus.POISONED
    if client == TRANSMIT:
        want = [(None, 0, 0, page, 1), (0x777FF0, 16, 0, 0, 0), (None, 0, 0, page, 1), (None, 0, 0, poisoned, 1)]
    else:
        want = [(None, 8, 1, page, 1), (0x777FF0, 16, 0, 0, 0), (None, 48, 1, page, 1), (None, 8, 1, poisoned, 1)]
    want += [(0x777008, 8, 0, 0, 1), (0x777010, 8, 0, 0, 1)]
    assert run(accesses, host, client, len(want)) == want


@pytest.mark.parametrize(("renew", "least", "most"), [(False, 7 * 128, 8 * 160), (True, 128, 2 * 160)])
def test_what_waits_when_all_entries_are_invalidated(renew, least, most):
    """31 accesses to 8 pages have found their entries, and wait; all entries are invalidated. With ``renew`` the misses
    of 7 of the pages overlap while the first one is read; without, one follows the other.
    """
    rng = make_rng()
    host = Host()
    dut = Translation(512, QPS, sets=16, waiting=32, renew=renew)
    for page in range(8):
        host.store(MTT_BASE + 8 * page, MTT.pack(present=1, page=0x500 + page))
    accesses = [checked(RECEIVE, number // 4, 1024 * (number % 4), 1024) for number in range(32)]
    got = []
    took = 0

    async def bench(ctx):
        nonlocal took

        async def put(items):
            for item in items:
                while not ctx.get(dut.room[RECEIVE]):
                    await ctx.tick()
                await send_all(ctx, dut.i, [item])
                await ctx.tick().repeat(6)

        async def take(count):
            ctx.set(piece.ready, 1)
            cycles = 0
            edges = aiter(ctx.tick().sample(piece.valid, piece.payload))
            while count:
                _, _, valid, payload = await anext(edges)
                cycles += 1
                if valid:
                    got.append(payload.address)
                    count -= 1
            ctx.set(piece.ready, 0)
            return cycles

        piece = dut.piece[RECEIVE]
        for number in range(8):
            await put(accesses[4 * number : 4 * number + 1])
            await take(1)
        await put(accesses[:31])
        ctx.set(dut.invalidate.valid, 1)
        await ctx.tick().until(dut.invalidate.ready)
        ctx.set(dut.invalidate.valid, 0)
        took = await take(31)

    serve = server(host, dut.read, dut.fill, rng, lambda: 128)
    simulate(dut, bench, background=[serve], seed=rng.seed_value)
    assert got[8:] == [(0x500 + number // 4 << 12) + 1024 * (number % 4) for number in range(31)]
    assert least < took < most


def test_no_more_reads_than_can_be_told_apart():
    """Of those under way when accesses are looked up once more two for each access are counted."""
    with pytest.raises(ValueError, match="waiting must be at least 8 with renew, not 4"):
        Translation(64, 4, waiting=4, renew=True)
    Translation(64, 4, waiting=4)
    Translation(64, 4, waiting=8, renew=True)
