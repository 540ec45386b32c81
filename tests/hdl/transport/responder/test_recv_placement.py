"""The placement of received payload: messages of many packets, over many entries, of QPs that take turns."""

import pytest
from amaranth.back import rtlil
from streams import collect, make_rng, plain, simulate
from verbena.hdl.abi.wqe import SRQ_WQE
from verbena.hdl.transport.responder.recv_placement import PlacementKind, RecvPlacement

QPS, AREA = 4, 256
MTU = 256
DISCARD, WRITE, SEND = PlacementKind.DISCARD.value, PlacementKind.WRITE.value, PlacementKind.SEND.value


def split(entries, sizes):
    """The accesses of each packet, byte by byte: (key, address) of every byte, then joined."""
    places = [(key, (address + k) % (1 << 64)) for address, length, key in entries for k in range(length)]
    runs, start = [], 0
    for size in sizes:
        run = []
        for key, address in places[start : start + size]:
            if run and run[-1][0] == key and (run[-1][1] + run[-1][2]) % (1 << 64) == address:
                run[-1][2] += 1
            else:
                run.append([key, address, 1])
        missing = size - sum(length for _, _, length in run)
        runs.append((run, missing))
        start += size
    return runs


def lay(words, place, entries, log_stride, shared=None):
    """Puts a receive WQE at word ``place``; in front of its entries, if it is of a shared receive queue, which it is,
    and bits that mean nothing."""
    laid = [word for address, length, key in entries for word in (address, length | key << 32)]
    if shared is not None:
        at = SRQ_WQE.fields["id"].offset
        other = 0x9E3779B97F4A7C15 & ~(0xFFFF << at)
        laid = [other | shared << at, 0xFEDC_BA98_7654_3210, *laid]
    assert len(laid) <= 1 << log_stride - 3
    words[place : place + (1 << log_stride - 3)] = laid + [0] * ((1 << log_stride - 3) - len(laid))


def run(packets, words, *, stall=0.0, rng=None, received=0, ids=None, grh=False, area=256):
    """Gives placements to a buffer, and keeps each QP's place; the accesses, (misfit, too_long, byte_length) and cycles
    of each. As if each message had brought ``received`` bytes more than it has, when it goes on. ``ids`` gets the
    ``id`` of each."""
    dut = RecvPlacement(2 * QPS, grh, area // 2)
    places = [{"received": rng.getrandbits(32) if rng else 0} for _ in range(QPS)]
    rng = rng or make_rng()
    accesses, results = [], []

    async def script(ctx):
        for packet in packets:
            ctx.set(dut.place, places[packet["qp"]])
            ctx.set(dut.places, [2 * packet["qp"], 2 * packet["qp"] + 1])
            await ctx.tick()
            ctx.set(dut.i.payload, packet | {"kind": rng.choice([DISCARD, packet["kind"]])})
            await ctx.tick()
            # Sometimes there is no verdict at the first look.
            for _ in range(rng.choice([1, 1, 2]) if packet["kind"] != DISCARD else rng.randrange(2)):
                ctx.set(dut.look, 1)
                await ctx.tick()
                ctx.set(dut.look, 0)
                ctx.set(dut.load, 1)
                await ctx.tick()
                ctx.set(dut.load, 0)
            ctx.set(dut.i.payload, packet)
            ctx.set(dut.i.valid, 1)
            ready, cycles = 0, 0
            while not ready:
                _, _, ready = await ctx.tick().sample(dut.i.ready)
                cycles += 1
            ctx.set(dut.i.valid, 0)
            if packet["kind"] != DISCARD:
                place = plain(ctx.get(dut.next))
                places[packet["qp"]] = place | {"received": place["received"] + received}
            if ids is not None:
                ids.append(ctx.get(dut.id))
            results.append((ctx.get(dut.misfit), ctx.get(dut.too_long), ctx.get(dut.byte_length), cycles))
            await ctx.tick()

    async def memory(ctx):
        before = 0
        async for _, _, address in ctx.tick().sample(dut.word_addr):
            ctx.set(dut.word, before)
            before = words[address.block // 2][area // 16 * (address.block % 2) + address.word]

    async def access(ctx):
        await collect(ctx, dut.access, accesses, rng, stall)

    simulate(dut, script, background=(memory, access), seed=rng.seed_value)
    runs = [[]]
    for item in accesses:
        runs[-1].append(item)
        if item.last:
            runs.append([])
    assert runs.pop() == []
    return runs, results


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("shared", [0, 1])
@pytest.mark.parametrize("area", [256, 512])
def test_random_messages(area, shared, stall):
    """``shared``: the receive WQEs are of shared receive queues, and a WRITE has one, too. ``area``: twice the bytes of
    the largest WQE.
    """
    rng = make_rng()
    words = [[rng.getrandbits(64) for _ in range(area // 8)] for _ in range(QPS)]
    log_stride = [5, 6, 7, 5] if shared else [4, 5, 6, 7]
    log_stride = [log + (area > 256) for log in log_stride]
    queues, expected = [[] for _ in range(QPS)], [[] for _ in range(QPS)]
    for qp in range(QPS):
        for number in range(area >> log_stride[qp]):  # all that the area holds, and no WQE twice
            index = number + rng.choice([0, 5 * area, 65536 - area])
            sizes = [MTU] * rng.choice([0, 0, 1, 3]) + [rng.randint(1, MTU)]
            if len(sizes) == 1 and rng.random() < 0.2:
                sizes = [0]
            is_write = rng.random() < 0.4
            common = {
                "qp": qp,
                "pd": 0xABC000 + qp,
                "fresh": rng.randrange(2),
                "index": index % 65536,
                "log_stride": log_stride[qp],
                "shared": shared,
            }
            place = (index << log_stride[qp]) % area // 8
            which = rng.getrandbits(16) if shared else None
            if is_write:
                entries = [(rng.getrandbits(64), sum(sizes), rng.getrandbits(32))]
                (address, _, key) = entries[0]
                more = {"kind": WRITE, "address": address, "rkey": key, "total": sum(sizes)}
                lay(words[qp], place, [], log_stride[qp], which)
            else:
                count = rng.randint(1, (1 << (log_stride[qp] - 4)) - shared)
                entries = [
                    (rng.getrandbits(64), rng.choice([0, 1, 3, 100, MTU, 5000]), rng.getrandbits(32))
                    for _ in range(count)
                ]
                more = {"kind": SEND, "address": rng.getrandbits(64), "rkey": 5, "total": 6}
                lay(words[qp], place, entries, log_stride[qp], which)
            received = 0
            for k, (size, (accesses, missing)) in enumerate(zip(sizes, split(entries, sizes))):
                received += size
                packet = common | more | {"begin": int(k == 0), "end": int(k == len(sizes) - 1), "length": size}
                queues[qp].append(packet)
                expected[qp].append((accesses, missing, received, which))
                if missing:
                    break
    packets, wanted = [], []
    while any(queues):
        qp = rng.choice([qp for qp in range(QPS) if queues[qp]])
        packets.append(queues[qp].pop(0))
        wanted.append(expected[qp].pop(0))
        if rng.random() < 0.1:  # in between, and of no consequence
            packets.append({"kind": DISCARD, "qp": qp, "length": rng.choice([0, 77])})
            wanted.append(None)
    ids = []
    runs, results = run(packets, words, stall=stall, rng=rng, ids=ids, area=area)
    assert len(runs) == len(packets)
    for got, result, packet, want, found in zip(runs, results, packets, wanted, ids):
        assert all((access.qp, access.fresh) == (packet["qp"], packet.get("fresh", 0)) for access in got)
        if want is None:
            (access,) = got
            assert (access.length, access.discard) == (packet["length"], packet["length"] > 0)
            continue
        accesses, missing, received, which = want
        assert which in (None, found)
        assert result[:3] == (0, missing > 0, received)
        moves = [access for access in got if access.length and not access.discard]
        assert [[access.key, access.address, access.length] for access in moves] == accesses
        rights = 2 if packet["kind"] == WRITE else 1
        assert all(access.access == rights and access.pd == packet["pd"] for access in moves)
        # Of a WRITE all that is still to come has to fit; of a SEND what this access brings.
        left = packet["total"] - received + packet["length"]
        assert all(access.span == (left if packet["kind"] == WRITE else access.length) for access in moves)
        assert [access.length for access in got if access.discard] == ([missing] if missing else [])
        if not packet["length"]:
            assert [access.length for access in got] == [0]


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("lengths", [[9], [0], [3, 3, 3], [0, 0, 9], [1, 0, 1], [1, 2, 3, 4, 5, 6, 7], [0] * 6 + [5]])
def test_all_entries_of_a_shared_receive(lengths, more):
    """Those behind its number, and no others: what does not fit the last one has no place, whatever stands behind."""
    rng = make_rng()
    log_stride = {1: 5, 3: 6, 7: 7}[len(lengths)]
    words = [[rng.getrandbits(64) for _ in range(AREA // 8)] for _ in range(QPS)]
    entries = [(rng.getrandbits(64), size, rng.getrandbits(32)) for size in lengths]
    index = AREA // 2 >> log_stride
    lay(words[2], AREA // 16, entries, log_stride, 0xABCD)
    packet = {"kind": SEND, "qp": 2, "begin": 1, "end": 1, "shared": 1, "index": index, "log_stride": log_stride}
    ids = []
    runs, results = run([packet | {"length": sum(lengths) + more}], words, rng=rng, ids=ids)
    ((wanted, _),) = split(entries, [sum(lengths)])
    assert [[a.key, a.address, a.length] for a in runs[0] if a.length and not a.discard] == wanted
    assert [a.length for a in runs[0] if a.discard] == [1] * more
    assert (results[0][:3], ids) == ((0, more, sum(lengths) + more), [0xABCD])


@pytest.mark.parametrize("sizes", [[8], [0], [MTU, 8], [MTU, MTU, 8]])
def test_a_write_learns_which_shared_receive_it_gets(sizes):
    """Also with its last packet alone, whose WQE its first ones had not."""
    rng = make_rng()
    words = [[rng.getrandbits(64) for _ in range(AREA // 8)] for _ in range(QPS)]
    for slot in range(4):
        lay(words[1], 8 * slot, [(5, 6, 7), (8, 9, 10)], 6, 0x1111 * (slot + 1))
    common = {"kind": WRITE, "qp": 1, "shared": 1, "log_stride": 6, "address": 0x5000, "rkey": 9, "total": sum(sizes)}
    last = len(sizes) - 1
    packets = [
        common | {"begin": int(k == 0), "end": int(k == last), "length": size, "index": 2 if k == last else 0}
        for k, size in enumerate(sizes)
    ]
    ids = []
    runs, results = run(packets, words, rng=rng, ids=ids)
    assert ids[-1] == 0x3333
    assert [result[:3] for result in results] == [(0, 0, sum(sizes[: k + 1])) for k in range(len(sizes))]
    moves = [(a.key, a.address, a.length) for accesses in runs for a in accesses]
    assert moves == [(9, 0x5000 + sum(sizes[:k]), size) for k, size in enumerate(sizes)]


def test_entry_of_the_largest_length():
    """An entry may hold 2^31 bytes and more, and cross the end of the address space."""
    words = [[0] * (AREA // 8) for _ in range(QPS)]
    words[0][0:2] = [(1 << 64) - 10, 0xFFFF_FFFF | 7 << 32]
    common = {"kind": SEND, "qp": 0, "log_stride": 4, "index": 0}
    packets = [common | {"begin": 1, "length": 4096}, common | {"end": 1, "length": 1}]
    runs, results = run(packets, words)
    assert [(a.address, a.length, a.key) for (a,) in runs] == [((1 << 64) - 10, 4096, 7), (4086, 1, 7)]
    assert [result[:3] for result in results] == [(0, 0, 4096), (0, 0, 4097)]


@pytest.mark.parametrize(
    ("first", "length", "misfit"), [(MTU, MTU, 0), (MTU, 7, 0), (2 * MTU, 0, 0), (2 * MTU, 1, 1), (2 * MTU, MTU, 1)]
)
def test_a_send_is_of_at_most_2_31_bytes(first, length, misfit):
    words = [[0] * (AREA // 8) for _ in range(QPS)]
    words[0][0:2] = [0, 0xFFFF_FFFF | 7 << 32]
    common = {"kind": SEND, "qp": 0, "log_stride": 4, "index": 0}
    packets = [common | {"begin": 1, "length": first}, common | {"end": 1, "length": length}]
    runs, results = run(packets, words, received=(1 << 31) - 2 * MTU)
    assert [result[:2] for result in results] == [(0, 0), (misfit, 0)]
    assert [(access.length, access.discard) for access in runs[1]] == [(length, misfit)]


@pytest.mark.parametrize(
    ("end", "length", "total", "misfit"),
    [
        (1, 8, 8, 0),
        (1, 0, 0, 0),
        (1, 8, 9, 1),
        (1, 8, 7, 1),
        (1, 8, 8 + (1 << 13), 1),
        (0, 256, 257, 0),
        (0, 256, 256, 1),
        (0, 256, 1 << 31, 0),
        (0, 256, (1 << 31) + 1, 1),
    ],
)
def test_lengths_of_a_write(end, length, total, misfit):
    packet = {"kind": WRITE, "begin": 1, "end": end, "length": length, "total": total, "rkey": 9}
    runs, results = run([packet | {"qp": 0}], [[0] * 32] * QPS)
    assert results[0][0] == misfit
    assert [(access.length, access.discard) for access in runs[0]] == [(length, misfit)]


GRH = 40


@pytest.mark.parametrize("length", [0, 1, 8, 60, MTU])
@pytest.mark.parametrize("shared", [None, 0x7F80])
@pytest.mark.parametrize(
    "lengths",
    [
        *([], [0], [1], [39], [40], [41], [48], [100], [39, 1], [39, 0, 1], [20, 20, 60], [40, 60], [1, 2, 3, 100]),
        *([5000], [10, 10, 10, 10], [10, 10, 10, 9, 0, 1, 1], [7, 7, 7, 7, 7, 7, 7, 7]),
    ],
)
@pytest.mark.parametrize("grh", [False, True])
def test_40_bytes_in_front_of_datagrams(lengths, shared, length, grh):
    """They are left free, or filled, over as many entries as it takes, and all of them must fit, also without a
    payload; they count as received. The message behind is not a datagram and begins at once."""
    rng = make_rng()
    words = [[0] * (AREA // 8) for _ in range(QPS)]
    lengths = lengths[: 7 if shared else 8]
    entries = [(rng.getrandbits(64), size, rng.getrandbits(32)) for size in lengths]
    lay(words[0], 0, entries, 7, shared)
    words[1][0:2] = [77, MTU | 5 << 32]
    common = {"kind": SEND, "begin": 1, "end": 1}
    packets = [
        common | {"qp": 0, "log_stride": 7, "length": length, "datagram": 1, "shared": int(shared is not None)},
        common | {"qp": 1, "log_stride": 4, "length": 9},
    ]
    runs, results = run(packets, words, rng=rng, grh=grh, stall=0.3)
    (header, short), (wanted, missing) = split(entries, [GRH, length])
    assert results[0][:3] == (0, int(short + missing > 0), GRH + length)
    moves = [[a.key, a.address, a.length] for a in runs[0] if a.length and not a.discard]
    assert moves == (header if grh else []) + wanted
    lost = [short if grh else 0, missing]
    assert [a.length for a in runs[0] if a.discard] == [size for size in lost if size]
    assert sum(a.length for a in runs[0]) == (GRH if grh else 0) + length
    assert runs[0][-1].last
    assert [[a.key, a.address, a.length] for a in runs[1]] == [[5, 77, 9]]
    assert results[1][:3] == (0, 0, 9)


@pytest.mark.parametrize("length", [0, 8, MTU])
def test_datagrams_that_nobody_takes(length):
    """Of a datagram with its header both are thrown away."""
    packets = [{"kind": kind, "begin": 1, "end": 1, "length": length, "datagram": 1} for kind in (DISCARD, DISCARD)]
    packets.append({"kind": DISCARD, "length": 5})
    runs, _ = run([packet | {"qp": 0} for packet in packets], [[0] * 32] * QPS, grh=True)
    sizes = [[access.length for access in each if access.length] for each in runs]
    assert sizes == [[GRH, length] if length else [GRH]] * 2 + [[5]]
    assert all(access.discard for each in runs for access in each)


@pytest.mark.parametrize("shared", [0, 1])
def test_cycles(shared):
    words = [[0] * (AREA // 8) for _ in range(QPS)]
    words[0][2 * shared : 2 * shared + 8] = [0, 100, 0, 0, 0, 100, 0, 100]
    common = {"qp": 0, "log_stride": 7, "begin": 1, "end": 1, "shared": shared}
    packets = [
        common | {"kind": WRITE, "length": 8, "total": 8},
        common | {"kind": DISCARD, "length": 8},
        common | {"kind": SEND, "length": 0},
        common | {"kind": SEND, "length": 8, "end": 0},
        common | {"kind": SEND, "length": 8, "begin": 0},
        common | {"kind": SEND, "length": 101},
        common | {"kind": SEND, "length": 8, "datagram": 1},
    ]
    _, results = run(packets, words)
    opens = 4 + shared
    assert [cycles for *_, cycles in results] == [2, 2, 2, opens, 3, opens + 1 + 5 + 5, opens + 2]


def test_arguments():
    with pytest.raises(ValueError, match="blocks must be a power of two, at least 2, not 12"):
        RecvPlacement(12)


def test_converts():
    rtlil.convert(RecvPlacement(256))
