"""The key check by itself: one entry and one access at a time, as hypothesis likes them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_model import MPT_BASE, TOP, Host, access, server
from streams import collect, make_rng, send_all, shared, simulate
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.memory.mpt import PAGE_BITS_MIN, Protection
from verbena.hdl.stream.transfer import PAGE_BITS_MAX

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
    beyond = (first + size - place) % TOP  # up to the region's end
    span = draw(
        st.one_of(st.just(length), st.just(beyond - 1), st.just(beyond), st.just(beyond + 1), st.integers(0, 1 << 31))
    )
    return log, first, size, place, length, min(max(span, length), (1 << 32) - 1)


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


def run(host, requests, client, rng, data_width=64):
    """What comes out, one a request."""
    dut = shared(Protection, data_width, QPS, sets=64)
    got = []

    async def send(ctx):
        ctx.set(dut.mpt_base, MPT_BASE)
        ctx.set(dut.mpt_log_size, host.log_size)
        ctx.set(dut.room, 3)
        await send_all(ctx, dut.request[client], requests)
        edges = aiter(ctx.tick())
        while len(got) < len(requests):
            await anext(edges)
        await ctx.tick().repeat(20)

    async def watch(ctx):
        await collect(ctx, dut.o, got)

    serve = server(host, dut.read, dut.fill, rng, lambda: 4)
    simulate(dut, send, background=[serve, watch], seed=rng.seed_value, deadline=20_000)
    return got


@pytest.mark.parametrize(("client", "data_width"), [(0, 64), (1, 512)])
def test_rights(client, data_width):
    """Each right that is asked for must be granted, whatever else is: all 1,024 cases."""
    host = Host()
    for granted in range(32):
        host.register(granted << 8, 0x1000, 64, [], access=granted)
    cases = [(granted, wanted) for granted in range(32) for wanted in range(32)]
    requests = [access(granted << 8, 0x1000, 8, access=wanted) for granted, wanted in cases]
    got = run(host, requests, client, make_rng(), data_width)
    assert [item.client for item in got] == [client] * len(cases)
    for (granted, wanted), item in zip(cases, got, strict=True):
        refused = any(wanted >> bit & 1 and not granted >> bit & 1 for bit in range(5))
        assert item.status == (AccessStatus.RIGHTS if refused else AccessStatus.OK), (granted, wanted)


def test_key_and_protection_domain():
    """The entry must be valid, of the key's variant and of the PD; what is wrong first is told."""
    host = Host()
    host.register(0x105, 0x1000, 64, [], pd=7, access=1)
    host.register(0x206, 0x1000, 64, [], pd=7, valid=0)
    cases = [
        (access(0x105, 0x1000, 8, pd=7), AccessStatus.OK),
        (access(0x104, 0x1000, 8, pd=7), AccessStatus.KEY),
        (access(0x185, 0x1000, 8, pd=6), AccessStatus.KEY),
        (access(0x206, 0x1000, 8, pd=7), AccessStatus.KEY),
        (access(0x300, 0x1000, 8, pd=7), AccessStatus.KEY),
        (access(host.log_size << 20 | 0x105, 0x1000, 8, pd=7), AccessStatus.KEY),
        (access(0x105, 0x1000, 8, pd=6), AccessStatus.PD),
        (access(0x105, 0x5000, 8, pd=7 | 1 << 15, access=2), AccessStatus.PD),
        (access(0x105, 0x5000, 8, pd=7, access=2), AccessStatus.RIGHTS),
        (access(0x105, 0x5000, 8, pd=7, access=1), AccessStatus.RANGE),
    ]
    got = run(host, [request for request, _ in cases], 0, make_rng())
    assert [item.status for item in got] == [status for _, status in cases]


@settings(max_examples=12)
@given(st.lists(entry_and_access(), min_size=20, max_size=60), st.integers(0, 1 << 32))
def test_range(cases, seed):
    rng = make_rng(seed)
    host = Host()
    requests = []
    for index, (log, first, size, place, length, span) in enumerate(cases):
        key = index << 8 | rng.randrange(256)
        host.register(key, first, size, [], log_page_size=log)
        requests.append(access(key, place, length, span=span, qp=index % QPS))
    for request, checked in zip(requests, run(host, requests, seed % 2, rng), strict=True):
        status, page, cross = expected(host, request)
        assert checked.status == status, request
        assert checked.lookup == (status == AccessStatus.OK and request["length"] > 0)
        assert checked.cross == cross
        assert (checked.length, checked.last, checked.qp) == (request["length"], 1, request["qp"])
        assert checked.offset == request["address"] % (1 << PAGE_BITS_MAX)
        entry = host.entry(request["key"] >> 8)
        if checked.lookup:
            assert (checked.mtt_address << 3, checked.page_bits) == (entry["mtt_address"], entry["log_page_size"])
        if page is not None:
            assert checked.page == page
