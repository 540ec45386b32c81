"""The key check by itself: one entry and one access at a time, as hypothesis likes them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from memory_model import MPT_BASE, TOP, Host, access, server
from streams import collect, make_rng, send_all, simulate
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.memory.protection import PAGE_BITS_MAX, PAGE_BITS_MIN, Protection

QPS = 4


@st.composite
def entry_and_access(draw):
    """A region, and an access at one of its edges or anywhere."""
    log = draw(st.integers(PAGE_BITS_MIN, PAGE_BITS_MAX))
    first = draw(st.one_of(st.integers(0, TOP - 1), st.integers(TOP - (1 << 13), TOP - 1), st.integers(0, 1 << 13)))
    # A region that would reach beyond 2^64 is a driver's mistake; the check must still not let an access wrap around.
    size = draw(st.one_of(st.integers(0, 1 << 14), st.integers(0, (1 << 48) - 1), st.just((1 << 48) - 1)))
    length = draw(st.one_of(st.integers(0, 8), st.integers(1, 4096), st.just(4096)))
    page = 1 << log
    edge = draw(st.sampled_from([first, first + size - length, first // page * page + page, first + size // 2, TOP, 0]))
    place = (edge + draw(st.one_of(st.integers(-2, 2), st.integers(-5000, 5000), st.just(1 << 63)))) % TOP
    return log, first, size, place, length


def expected(host, request):
    """(status, number of the first page in the region, whether the access crosses)."""
    if request["length"] == 0:
        return AccessStatus.OK, None, 0
    status, _ = host.check(request)
    if status not in (AccessStatus.OK, AccessStatus.PAGE):  # this half knows nothing of pages
        return status, None, 0
    entry = host.entry(request["key"] >> 8)
    log, address = entry["log_page_size"], request["address"]
    last = address + request["length"] - 1
    return AccessStatus.OK, (address >> log) - (entry["address"] >> log), int(address >> log != last >> log)


@settings(max_examples=12)
@given(st.lists(entry_and_access(), min_size=20, max_size=60), st.integers(0, 1 << 32))
def test_range(cases, seed):
    rng = make_rng(seed)
    host = Host()
    requests = []
    for index, (log, first, size, place, length) in enumerate(cases):
        key = index << 8 | rng.randrange(256)
        host.register(key, first, size, [], log_page_size=log)
        requests.append(access(key, place, length, qp=index % QPS))
    dut = Protection(64, QPS, sets=64)
    got = []

    async def send(ctx):
        ctx.set(dut.mpt_base, MPT_BASE)
        ctx.set(dut.mpt_log_size, host.log_size)
        ctx.set(dut.room, 3)
        await send_all(ctx, dut.request[index % 2], requests)
        await ctx.tick().repeat(5)

    index = seed
    serve = server(host, dut.read, dut.fill, rng, lambda: 4)

    async def watch(ctx):
        await collect(ctx, dut.o, got)

    simulate(dut, send, background=[serve, watch], seed=seed, deadline=10_000)
    assert len(got) == len(requests)
    for request, checked in zip(requests, got, strict=True):
        status, page, cross = expected(host, request)
        assert checked.status == status, request
        assert checked.lookup == (status == AccessStatus.OK and request["length"] > 0)
        assert checked.cross == cross
        assert (checked.length, checked.last, checked.qp) == (request["length"], 1, request["qp"])
        assert checked.offset == request["address"] % (1 << PAGE_BITS_MAX)
        if page is not None:
            assert checked.page == page
