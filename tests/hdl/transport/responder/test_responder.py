"""The responder against rules written in Python, and every row of errors by hand."""

from itertools import pairwise

import pytest
from amaranth.back import rtlil
from receive_world import (
    COMPARE_SWAP,
    FETCH_ADD,
    MASK24,
    READ_REQUEST,
    REPEAT,
    REPLAY,
    SEND_FIRST,
    SEND_LAST,
    SEND_MIDDLE,
    SEND_ONLY,
    SEND_ONLY_IMM,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_LAST_IMM,
    WRITE_MIDDLE,
    WRITE_ONLY,
)
from responder_world import QPS, World, flushed
from streams import receive_all, send_all
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState, QpType
from verbena.hdl.stream.transfer import Passage
from verbena.hdl.transport.responder.responder import PATIENCE, Responder

NO_RESPONSES = [*range(0x0D), *range(0x13, 0x20)]
"""Opcodes that the lookup gives to a responder."""


def random_wqe(rng, stride, sizes):
    """Entries that fit most messages, and seldom do not."""
    count = rng.randint(0, 1 << (stride - 4))
    entries = [(rng.getrandbits(64), rng.choice(sizes), rng.getrandbits(32)) for _ in range(count)]
    if entries and rng.random() < 0.9:
        entries[-1] = (entries[-1][0], rng.choice([1 << 31, 50_000]), entries[-1][2])
    return entries


def random_packets(number, count, swaps=False):
    """``swaps``: QPs give their state away now and then, and others have their place meanwhile."""
    stall = (0.0, 0.3)[number % 2]
    strides = ((4, 5, 6, 7), (7, 4, 5, 5))[number // 2]
    access, limits = (14, 2, 14, 6), (3, 4, 200, 16)
    values = [
        {"path_mtu": 1 + qp, "pd": 77 + qp, "access": access[qp], "max_dest_rd_atomic": limits[qp]} for qp in range(QPS)
    ]
    world = World(stall=stall, strides=strides, values=values, swaps=swaps)
    rng = world.rng
    plans = [None] * QPS
    asked = [[] for _ in range(QPS)]

    def response(mtu):
        if rng.random() < 0.5:
            return READ_REQUEST, {"dma_length": rng.choice([0, 1, mtu, mtu + 1, 5 * mtu, rng.randrange(100 * mtu)])}
        fields = {"swap": rng.getrandbits(64), "compare": rng.getrandbits(64)}
        return rng.choice([COMPARE_SWAP, FETCH_ADD]), fields

    def next_packet(qp):
        """A packet that continues what goes on, or begins something."""
        rules = world.rules[qp]
        mtu = rules.mtu
        plan = plans[qp]
        if rules.message is None and rng.random() < 0.4:
            opcode, fields = response(mtu)
            fields |= {"address": rng.getrandbits(61) * 8 + (rng.random() < 0.02), "rkey": rng.getrandbits(32)}
            asked[qp].append((rules.epsn, opcode, fields))
            plan = [(opcode, 0, fields)]
        elif not plan or rules.message is None:
            write = rng.random() < 0.5
            count = rng.choice([1, 1, 1, 2, 3, 5])
            tail = rng.choice([0, 1, 4, mtu - 1, mtu, rng.randint(1, mtu)]) if count == 1 else rng.randint(1, mtu)
            total = (count - 1) * mtu + tail
            more = {"address": rng.getrandbits(64), "rkey": rng.getrandbits(32), "dma_length": total} if write else {}
            immediate = rng.random() < 0.4
            base = 6 if write else 0
            if count == 1:
                plan = [(base + 4 + immediate, tail, more)]
            else:
                plan = [(base, mtu, more)] + [(base + 1, mtu, {})] * (count - 2) + [(base + 2 + immediate, tail, {})]
        packet, plans[qp] = plan[0], plan[1:]
        return packet

    async def swap(ctx, qp):
        words = await world.save(ctx, qp)
        if rng.random() < 0.5:
            other = (qp + 1) % QPS
            if rng.random() < 0.5:
                await world.load(ctx, qp, await world.save(ctx, other))
                await world.load(ctx, other, await world.save(ctx, qp))
            else:
                await world.packet(ctx, other, WRITE_ONLY, 8, psn=world.rules[other].epsn - 5)
        await world.load(ctx, qp, words)

    async def script(ctx):
        for qp in range(QPS):
            await world.connect(ctx, qp, rng.choice([0, MASK24 - 3, rng.getrandbits(24)]))
        for _ in range(count):
            qp = rng.randrange(QPS)
            if swaps and rng.random() < 0.3:
                await swap(ctx, qp)
            rules = world.rules[qp]
            world.room = rng.random() < 0.8
            if rng.random() < (0.5, 0.2)[qp % 2]:
                world.served[qp] = rng.randint(world.served[qp], len(rules.entries))
            if rules.dead and rng.random() < 0.4:
                await world.connect(ctx, qp, rng.choice([0, MASK24 - 2, rng.getrandbits(24)]))
                plans[qp] = None
                asked[qp] = []
            if rng.random() < 0.6 and len(world.ring.posted[qp]) - rules.index < 12:
                sizes = [0, 1, 7, rules.mtu, 2 * rules.mtu]
                world.ring.post(qp, random_wqe(rng, strides[qp], sizes))
            more = {
                "ack_request": rng.randrange(2),
                "solicited": rng.randrange(2),
                "immediate": rng.getrandbits(32),
            }
            fault = rng.random()
            if fault < 0.75:
                opcode, length, fields = next_packet(qp)
                job = await world.packet(ctx, qp, opcode, length, **(more | fields))
                if job.get("syndrome", 0) & 0xE0 == 0x20:
                    plans[qp] = [(opcode, length, fields), *plans[qp]]  # the requester will come again
            elif fault < 0.83:
                psn = rules.epsn + rng.choice([1, 2, 5, (1 << 23) - 1])
                await world.packet(ctx, qp, rng.randrange(12), rng.randrange(300), psn=psn, **more)
            elif fault < 0.92:
                psn = rules.epsn - rng.choice([1, 2, 5, 1 << 23])
                opcode = rng.choice([*range(12), READ_REQUEST, COMPARE_SWAP, 0x16])
                more["dma_length"] = rng.choice([rules.mtu, 5 * rules.mtu, 5 * rules.mtu + 1, 1 << 31, (1 << 31) + 1])
                if asked[qp] and rng.random() < 0.6:
                    psn, opcode, fields = rng.choice(asked[qp])
                    more |= fields
                await world.packet(ctx, qp, opcode, rng.randrange(300), psn=psn, **more)
            elif fault < 0.94:
                await world.packet(ctx, qp, rng.choice(NO_RESPONSES), rng.choice([0, 1, rules.mtu]), **more)
            elif fault < 0.96:
                opcode, length, fields = next_packet(qp)
                length = max(0, length + rng.choice([-1, 1, 500]))
                await world.packet(ctx, qp, opcode, length, **(more | fields))
            else:
                opcode, length, fields = next_packet(qp)
                await world.packet(ctx, qp, opcode, length, accept=0, **(more | fields))
                plans[qp] = [(opcode, length, fields), *plans[qp]]

    world.simulate(script)


def random_packets_of_uc(number, count, swaps=False):
    """Messages, of which now and then a packet is missing, comes twice, or is wrong in some respect."""
    strides = ((4, 5, 6, 7), (7, 4, 5, 5))[number % 2]
    values = [{"path_mtu": 1 + qp, "pd": 77 + qp, "access": (2, 14, 0, 2)[qp], "type": QpType.UC} for qp in range(QPS)]
    world = World(stall=(0.0, 0.3)[number % 2], strides=strides, values=values, swaps=swaps)
    rng = world.rng
    plans = [[] for _ in range(QPS)]
    seen = {"lost": 0, "unserved": 0, "done": 0}

    def message(mtu):
        write, immediate = rng.random() < 0.5, rng.random() < 0.4
        count = rng.choice([1, 1, 2, 3, 5])
        tail = rng.choice([0, 1, mtu, rng.randint(1, mtu)]) if count == 1 else rng.randint(1, mtu)
        base = WRITE_FIRST if write else SEND_FIRST
        total = (count - 1) * mtu + tail + (rng.random() < 0.05)
        more = {"address": rng.getrandbits(64), "rkey": rng.getrandbits(32), "dma_length": total} if write else {}
        if count == 1:
            return [(base + 4 + immediate, tail, more)]
        return [(base, mtu, more)] + [(base + 1, mtu, {})] * (count - 2) + [(base + 2 + immediate, tail, {})]

    async def script(ctx):
        for qp in range(QPS):
            await world.connect(ctx, qp, rng.choice([0, MASK24 - 3, rng.getrandbits(24)]))
        for _ in range(count):
            qp = rng.randrange(QPS)
            rules, mtu = world.rules[qp], world.rules[qp].mtu
            if swaps and rng.random() < 0.2:
                await world.load(ctx, qp, await world.save(ctx, qp))
            if rules.dead and rng.random() < 0.5:
                await world.connect(ctx, qp, rng.getrandbits(24))
            if rng.random() < 0.4 and len(world.ring.posted[qp]) - rules.index < 12:
                world.ring.post(qp, random_wqe(rng, strides[qp], [0, 1, 7, mtu, 2 * mtu]))
            if rng.random() < 0.02:
                world.ring.errors[qp] = 1
            if not plans[qp]:
                plans[qp] = message(mtu)
            opcode, length, fields = plans[qp].pop(0)
            more = {name: rng.randrange(2) for name in ("ack_request", "solicited")}
            more |= {"immediate": rng.getrandbits(32)} | fields
            fault = rng.random()
            if fault < 0.08:  # it is missing
                plans[qp] = plans[qp] or message(mtu)
                opcode, length, fields = plans[qp].pop(0)
                more |= {"psn": rules.epsn + 1} | fields
            elif fault < 0.14:
                more["psn"] = rules.epsn + rng.choice([-1, -5, 5, 1 << 22, 1 << 23])
            elif fault < 0.18:
                opcode = rng.randrange(12)
            elif fault < 0.22:
                length = max(0, length + rng.choice([-1, 1, 500]))
            elif fault < 0.24:  # somebody else's, in between
                more |= rng.choice([{"accept": 0}, {"other": True}])
                plans[qp].insert(0, (opcode, length, fields))
            elif fault < 0.28:  # the rest of the message does not come
                plans[qp] = []
            job = await world.packet(ctx, qp, opcode, length, **more)
            seen["lost"] += rules.lost
            seen["unserved"] += bool(job.get("silent") and job["cause"] and not rules.dead)
            seen["done"] += bool(job.get("complete"))

    world.simulate(script)
    assert all(seen.values()), seen


COUNTS = [50, pytest.param(110, marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("number", range(4))
def test_random_packets(number, count):
    """Valid streams, gaps, duplicates, wrong opcodes, wrong lengths, RNR, on interleaved QPs with random stalls."""
    random_packets(number, count)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("number", [1, 2])
def test_random_packets_of_qps_that_are_away(number, count):
    random_packets(number, count, swaps=True)


@pytest.mark.parametrize("count", [80, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize("number", range(2))
def test_random_packets_of_uc(number, count):
    """Messages whole and torn, wrong lengths and rights, no receive WQE, rings in error: nothing is answered."""
    random_packets_of_uc(number, count)


@pytest.mark.parametrize("count", COUNTS)
def test_random_packets_of_uc_of_qps_that_are_away(count):
    random_packets_of_uc(1, count, swaps=True)


async def check_nothing(ctx, world, cycles=60):
    jobs = len(world.jobs)
    for _ in range(cycles):
        await ctx.tick()
    assert len(world.jobs) == jobs


def test_answers_by_hand():
    """What the rules say, said once more by numbers: each row of errors, and what follows it."""
    world = World()
    big = [(0x1000, 4096, 0xAA01)]

    async def script(ctx):
        async def fresh(psn=100):
            await world.connect(ctx, 0, psn)

        async def says(packet, **wanted):
            job = await packet
            for name, value in wanted.items():
                assert job.get(name, 0) == value, (name, job)

        send = lambda *args, **kwargs: world.packet(ctx, 0, *args, **kwargs)  # noqa: E731

        # A gap: one NAK, then silence, until the packet comes; duplicates are acknowledged again.
        await fresh()
        world.ring.post(0, big)
        await says(send(SEND_ONLY, 8, psn=103), syndrome=0x60, psn=100, msn=0, fatal=0)
        await says(send(SEND_ONLY, 8, psn=104), silent=1)
        await says(send(SEND_ONLY, 8, psn=99), syndrome=1, psn=99)
        await says(send(SEND_ONLY, 8, psn=101), silent=1)
        await says(send(SEND_ONLY, 8), syndrome=0, psn=100, msn=1, complete=1, wqe_index=0)
        await says(send(SEND_ONLY, 8, psn=100), syndrome=0, psn=100, msn=1, complete=0)
        await says(send(SEND_ONLY, 8, psn=104), syndrome=0x60, psn=101, msn=1)
        # A duplicate that nothing would answer; one whose PSN is far behind.
        await says(send(0x16, psn=100), silent=1)
        await says(send(WRITE_ONLY, 8, psn=101 - (1 << 23)), syndrome=0, psn=100)

        # No receive WQE: the timer's code, nothing consumed; what follows is silent; the retry succeeds.
        await fresh()
        await says(send(SEND_ONLY_IMM, 8), syndrome=0x20 | 12, psn=100, msn=0, fatal=0)
        await says(send(WRITE_ONLY, 8, psn=101, dma_length=8), silent=1)
        await says(send(SEND_ONLY_IMM, 8), syndrome=0x20 | 12, psn=100)
        world.ring.post(0, big)
        await says(send(SEND_ONLY_IMM, 8, immediate=0x04030201), psn=100, complete=1, immediate=0x04030201, flags=2)
        # WRITE with immediate needs one, but only with its last packet.
        await says(send(WRITE_FIRST, 256, dma_length=300), syndrome=0)
        await says(send(WRITE_LAST_IMM, 44), syndrome=0x20 | 12, psn=102)
        world.ring.post(0, big)
        await says(send(WRITE_LAST_IMM, 44), psn=102, complete=1, opcode=129, byte_length=300, wqe_index=1, msn=2)

        # Opcode sequence.
        for opcodes in (
            [SEND_MIDDLE],
            [SEND_LAST],
            [WRITE_MIDDLE],
            [WRITE_LAST_IMM],
            [SEND_FIRST, SEND_ONLY],
            [SEND_FIRST, SEND_FIRST],
            [SEND_FIRST, WRITE_MIDDLE],
            [SEND_FIRST, WRITE_ONLY],
            [WRITE_FIRST, SEND_LAST],
            [WRITE_FIRST, WRITE_FIRST],
            [SEND_FIRST, READ_REQUEST],
            [WRITE_FIRST, FETCH_ADD],
            [0x15],
            [0x16],
            [0x1F],
        ):
            await fresh()
            world.ring.post(0, big)
            for opcode in opcodes[:-1]:
                await says(send(opcode, 256, dma_length=1000), fatal=0, acknowledge=1)
            await says(send(opcodes[-1], 256, dma_length=256), syndrome=0x61, fatal=1, event=2, complete=0)
            await says(send(WRITE_ONLY, 8, dma_length=8), silent=1, cause=20)

        # Lengths of packets, and of a WRITE's packets together.
        for packets in (
            [(SEND_FIRST, 255, 0)],
            [(SEND_FIRST, 257, 0)],
            [(SEND_ONLY, 257, 0)],
            [(SEND_FIRST, 256, 0), (SEND_LAST, 0, 0)],
            [(SEND_FIRST, 256, 0), (SEND_MIDDLE, 255, 0)],
            [(SEND_FIRST, 256, 0), (SEND_LAST, 257, 0)],
            [(WRITE_FIRST, 255, 600)],
            [(WRITE_ONLY, 8, 9)],
            [(WRITE_ONLY, 8, 7)],
            [(WRITE_ONLY, 0, 7)],
            [(WRITE_ONLY, 8, 0)],
            [(WRITE_FIRST, 256, 256)],
            [(WRITE_FIRST, 256, 100)],
            [(WRITE_FIRST, 256, (1 << 31) + 1)],
            [(WRITE_FIRST, 256, 600), (WRITE_LAST, 88 + 1, 0)],
            [(WRITE_FIRST, 256, 600), (WRITE_LAST, 88, 0)],
            [(WRITE_FIRST, 256, 512), (WRITE_MIDDLE, 256, 0)],
        ):
            await fresh()
            world.ring.post(0, big)
            for opcode, length, total in packets[:-1]:
                await says(send(opcode, length, dma_length=total), fatal=0)
            opcode, length, total = packets[-1]
            await says(send(opcode, length, dma_length=total), syndrome=0x61, fatal=1, event=2, complete=0)
        await fresh()
        await says(send(WRITE_FIRST, 256, dma_length=1 << 31), fatal=0, syndrome=0)

        # The receive WQE is too small: it completes, and the next one is there for the flush.
        await fresh()
        world.ring.post(0, [(0x5000, 10, 1), (0x6000, 20, 2)])
        await says(send(SEND_ONLY, 31), syndrome=0x61, fatal=1, event=255, complete=1, status=1, cause=21, wqe_index=0)
        await fresh()
        world.ring.post(0, [])
        await says(send(SEND_ONLY, 0), fatal=0, complete=1, byte_length=0)
        world.ring.post(0, [(0x5000, 10, 1), (0x6000, 20, 2)])
        await says(send(SEND_ONLY, 30), fatal=0, complete=1, byte_length=30)

        # Not a key is asked for a WRITE of no bytes.
        await says(send(WRITE_ONLY, 0, rkey=5, address=6), fatal=0, syndrome=0)

        # The QP does not allow WRITEs.
        await world.attribute(ctx, 0, access=0xD)
        await fresh()
        await says(send(WRITE_ONLY, 8, dma_length=8), syndrome=0x62, fatal=1, event=3)

    world.simulate(script, deadline=60_000)


def test_reads_and_atomics_by_hand():
    """PSNs, MSNs, ring entries, and each reason to refuse."""
    world = World(values=[{"access": 14, "max_dest_rd_atomic": 2}] * QPS)

    async def script(ctx):
        async def fresh(psn=100):
            await world.connect(ctx, 0, psn)
            world.entries.clear()
            world.wanted_entries.clear()

        async def says(packet, **wanted):
            job = await packet
            for name, value in wanted.items():
                assert job.get(name, 0) == value, (name, job)

        def send(opcode, dma_length=0, **more):
            return world.packet(ctx, 0, opcode, dma_length=dma_length, **more)

        # A READ takes the PSNs of its responses; MTU 256.
        for length, packets in ((0, 1), (1, 1), (256, 1), (257, 2), (1000, 4), (1 << 31, 1 << 23)):
            await fresh()
            await says(send(READ_REQUEST, length), release=1, acknowledge=0, psn=100, msn=1)
            assert world.rules[0].epsn == 100 + packets
        # It counts as a message, at once, and an ACK tells so; it is an entry of the ring.
        await fresh()
        for _ in range(7):
            world.ring.post(0, [])
        await says(send(READ_REQUEST, 600, address=0x1234567890, rkey=7), release=1, msn=1)
        await says(send(FETCH_ADD, address=0x1000, rkey=9, swap=5, compare=6), release=1, psn=103, msn=2)
        await says(send(WRITE_ONLY), acknowledge=1, psn=104, msn=3, syndrome=6 - 1)
        await world.packet(ctx, 0, WRITE_ONLY, 0, psn=104)
        while len(world.jobs) < len(world.expected):
            await ctx.tick()
        read = {"kind": 0, "psn": 100, "msn": 1, "credits": 5, "address": 0x1234567890, "rkey": 7}
        add = {"kind": 2, "psn": 103, "msn": 2, "credits": 5, "address": 0x1000, "rkey": 9, "swap": 5, "compare": 6}
        both = {"path_mtu": 1, "pd": world.values[0]["pd"]}
        assert world.entries == [(0, both | read | {"swap": 103 << 32 | 600, "compare": 0}), (0, both | add)]

        # No more of them than agreed on, 2; when one is answered, the next; PSNs of all responses are there.
        await says(send(COMPARE_SWAP, psn=103, address=0x1000), release=1)  # an old one does not count as one too many
        world.served[0] = 1
        await says(send(COMPARE_SWAP, address=0x1000, rkey=9, swap=5, compare=6), release=1, psn=105, msn=4)
        await fresh()
        await says(send(READ_REQUEST, 600), release=1)
        await says(send(READ_REQUEST, 600), release=1)
        world.served[0] = 1
        await says(send(READ_REQUEST, 600), release=1)
        await says(send(READ_REQUEST, 600), syndrome=0x61, fatal=1, event=2)

        # An old WRITE is acknowledged with the newest PSN, unless that is one of theirs: no ACK answers them, and Linux
        # would take it for an answer.
        await fresh()
        await says(send(WRITE_ONLY), psn=100)
        await says(send(READ_REQUEST, 300), psn=101, release=1)
        for psn in (100, 99):
            await says(send(WRITE_ONLY, psn=psn), psn=psn, acknowledge=1)
        await says(send(WRITE_ONLY), psn=103)
        await says(send(WRITE_ONLY, psn=100), psn=103)

        # Old ones: a READ inside what was received, also in part; the MSN stands still. Not a PSN further.
        await fresh()
        await says(send(READ_REQUEST, 1000), release=1, msn=1)
        await says(send(FETCH_ADD, address=8), release=1, msn=2)
        for psn, length in ((100, 1000), (102, 257), (103, 512), (104, 0)):
            await says(send(READ_REQUEST, length, psn=psn), release=1, psn=psn, msn=2)
        for psn, length in ((102, 1000), (104, 257), (90, (1 << 31) + 1), (100, 1 << 31)):
            await says(send(READ_REQUEST, length, psn=psn), silent=1)
        await says(send(FETCH_ADD, psn=104, address=8), release=1, psn=104, msn=2)
        while len(world.jobs) < len(world.expected):
            await ctx.tick()
        assert [entry["kind"] for _, entry in world.entries[-2:]] == [REPEAT, REPLAY]
        # 16 rows and no more, for new ones, too; there is no NAK for what duplicates have filled.
        for _ in range(9):
            await says(send(FETCH_ADD, psn=104, address=8), release=1)
        await says(send(FETCH_ADD, psn=104, address=8), silent=1)
        await says(send(READ_REQUEST, 1000, psn=100), silent=1)
        await says(send(FETCH_ADD, address=8), silent=1)
        world.served[0] = 1
        await says(send(FETCH_ADD, address=8), release=1, psn=105, msn=3)
        # Once they are answered, the limit holds again.
        world.served[0] = 17
        await says(send(FETCH_ADD, address=8), release=1)
        await says(send(FETCH_ADD, address=8), release=1)
        await says(send(FETCH_ADD, address=8), syndrome=0x61, fatal=1)

        # Others have the rows: what a QP has beside what waits for its answer is dropped, and its first is taken.
        world.room = False
        await fresh()
        await says(send(READ_REQUEST, 600), release=1, msn=1)
        await says(send(READ_REQUEST, 600), silent=1)
        await says(send(READ_REQUEST, 600, psn=100), silent=1)
        world.served[0] = 1
        await says(send(READ_REQUEST, 600), release=1, psn=103, msn=2)
        await says(send(FETCH_ADD, address=8), silent=1)
        world.room = True
        await says(send(FETCH_ADD, address=8), release=1, psn=106, msn=3)

        for opcode, more, syndrome in (
            (READ_REQUEST, {"dma_length": (1 << 31) + 1}, 0x61),
            (FETCH_ADD, {"address": 4}, 0x61),
            (COMPARE_SWAP, {"address": 1}, 0x61),
        ):
            await fresh()
            await says(world.packet(ctx, 0, opcode, 0, **more), syndrome=syndrome, fatal=1, event=2, release=0)
        await fresh()
        await says(world.packet(ctx, 0, READ_REQUEST, 8, dma_length=8), syndrome=0x61, fatal=1)
        # A READ's address may be any.
        await fresh()
        await says(send(READ_REQUEST, 5, address=(1 << 64) - 1), release=1)

        for access, refused in ((10, READ_REQUEST), (6, FETCH_ADD), (6, COMPARE_SWAP)):
            await world.attribute(ctx, 0, access=access)
            await fresh()
            await says(send(WRITE_ONLY), fatal=0)
            await says(send(refused, psn=100), silent=1)  # also if it claims to be old
            await says(send(refused), syndrome=0x62, fatal=1, event=3)
        await world.attribute(ctx, 0, access=14, max_dest_rd_atomic=0)
        await fresh()
        await says(send(READ_REQUEST), syndrome=0x61, fatal=1)

    world.simulate(script, deadline=60_000)


# PSNs that come while 10 is expected, and which of them bring a NAK.
GAPS = {
    "a gap": ([12, 13, 14, 15], [0]),
    "10 lost once more": ([11, 12, 13, 11, 12, 13], [0, 4]),
    "and again": ([11, 12, 13, 11, 12, 13, 14, 11, 12, 13], [0, 4, 9]),
    "two lost, then one": ([12, 13, 11, 12, 13, 14], [0, 4]),
    "11 lost on the first way": ([12, 13, 14, 11, 12, 13], [0, 5]),
    "11 late": ([12, 13, 11, 14, 15], [0]),
    "11 late, right behind": ([12, 11, 13, 14], [0]),
    "12 late": ([11, 13, 12, 14], [0]),
    "13 early": ([13, 11, 12, 14], [0]),
    "12 doubled": ([12, 12, 13, 14], [0]),
    "12 doubled late": ([12, 13, 12, 14, 15], [0]),
    "12 doubled much later": ([12, 13, 14, 15, 12, 16, 17], [0]),
    "13 doubled": ([12, 13, 13, 14, 13, 15], [0]),
    "nobody can tell": ([11, 11, 11], [0]),
    "first seen again is another": ([11, 12, 13, 12, 13], [0]),
    "too far": ([300, 301, 300, 301], [0]),
    "just near enough": ([10 + 254, 10 + 260, 10 + 254, 10 + 255], [0, 3]),
    "not near enough": ([10 + 255, 10 + 260, 10 + 255, 10 + 256], [0]),
}


@pytest.mark.parametrize("opcode", [COMPARE_SWAP, FETCH_ADD])
def test_without_atomics(opcode):
    """One is an invalid request, also if the QP allows it; an old one has no answer; READs are served as ever."""
    world = World(values=[{"access": 14, "max_dest_rd_atomic": 2}] * QPS, atomics=False)

    async def script(ctx):
        await world.connect(ctx, 0, 100)
        job = await world.packet(ctx, 0, READ_REQUEST, dma_length=600)
        assert (job["release"], job.get("fatal", 0)) == (1, 0)
        assert (await world.packet(ctx, 0, opcode, address=8, psn=90))["silent"] == 1
        job = await world.packet(ctx, 0, opcode, address=8)
        assert (job["syndrome"], job["fatal"], job.get("release", 0)) == (0x61, 1, 0)

    world.simulate(script)


def test_one_nak_for_a_gap():
    """Also if packets are late or doubled; and another one if the requester came back in vain."""
    world = World()

    async def script(ctx):
        for name, (packets, naks) in GAPS.items():
            await world.connect(ctx, 0, 10)
            for number, psn in enumerate(packets):
                job = await world.packet(ctx, 0, WRITE_ONLY, psn=psn)
                assert ("silent" not in job) == (number in naks), (name, number, psn)
                if number in naks:
                    assert (job["acknowledge"], job["syndrome"], job["psn"]) == (1, 0x60, 10)
            # All is forgotten as soon as the packet is there.
            await world.packet(ctx, 0, WRITE_ONLY)
            assert (await world.packet(ctx, 0, WRITE_ONLY, psn=13))["syndrome"] == 0x60

    world.simulate(script)


@pytest.mark.parametrize("name", ["a gap", "and again", "13 early", "just near enough", "not near enough"])
def test_a_gap_of_a_qp_that_is_away(name):
    """Between any two packets: as if it had never been."""
    world = World(swaps=True)
    packets, naks = GAPS[name]

    async def script(ctx):
        await world.connect(ctx, 0, 10)
        for number, psn in enumerate(packets):
            job = await world.packet(ctx, 0, WRITE_ONLY, psn=psn)
            assert ("silent" not in job) == (number in naks), (number, psn)
            await world.load(ctx, 0, await world.save(ctx, 0))

    world.simulate(script)


def test_messages_of_a_qp_that_is_away():
    """In the middle of a SEND over several entries, of a WRITE, and behind a READ; the peer's last word is known, too:
    an RNR NAK, a READ that is asked for again, an error."""
    world = World(swaps=True, strides=(7,) * QPS, values=[{"access": 14}] * QPS)
    entries = [(0x1000, 100, 1), (0x2000, 200, 2), (0x3000, 300, 3), (0x4000, 1 << 20, 4)]

    async def script(ctx):
        for qp in (0, 2):
            await world.connect(ctx, qp, 5)

        async def says(opcode, length=0, **more):
            job = await world.packet(ctx, 0, opcode, length, **more)
            words = await world.save(ctx, 0)
            await world.packet(ctx, 2, WRITE_ONLY, 8, dma_length=8, address=0x7000, rkey=9)
            await world.load(ctx, 1, words)  # into another place, and back
            await world.load(ctx, 0, await world.save(ctx, 1))
            return job

        assert (await says(SEND_FIRST, 256))["syndrome"] & 0xE0 == 0x20
        assert "silent" in await says(SEND_FIRST, 256, psn=6)
        world.ring.post(0, entries)
        for opcode in (SEND_FIRST, SEND_MIDDLE, SEND_MIDDLE, SEND_LAST):
            await says(opcode, 256)
        await says(WRITE_FIRST, 256, address=0x5000, rkey=7, dma_length=600)
        await says(WRITE_MIDDLE, 256)
        await says(WRITE_LAST, 88)
        read = {"dma_length": 700, "address": 0x6000, "rkey": 8}
        await says(READ_REQUEST, **read)
        assert (await says(WRITE_ONLY, psn=9))["psn"] == 9
        await says(READ_REQUEST, psn=12, **read)
        assert (await says(SEND_LAST, 8))["fatal"]
        assert "silent" in await says(WRITE_ONLY)

    world.simulate(script)


def test_psn_wraps():
    world = World()

    async def script(ctx):
        await world.connect(ctx, 1, MASK24)
        await world.packet(ctx, 1, WRITE_ONLY, 4, dma_length=4)
        await world.packet(ctx, 1, WRITE_ONLY, 4, dma_length=4, psn=MASK24)
        await world.packet(ctx, 1, WRITE_ONLY, 4, dma_length=4, psn=2)
        await world.packet(ctx, 1, WRITE_ONLY, 4, dma_length=4)
        assert world.rules[1].epsn == 1

    world.simulate(script)
    assert [(job.psn, job.syndrome) for job in world.jobs[1:]] == [(MASK24, 0), (MASK24, 0), (0, 0x60), (0, 0)]


def test_waits_for_a_fetch():
    """A WQE that is posted is worth waiting for; but not if the QP is taken away meanwhile, or the ring breaks."""
    world = World()

    async def script(ctx):
        for ending in ("fetch", "error", "state"):
            await world.connect(ctx, 2, 7)
            world.ring.frozen = True
            world.ring.post(2, [(0, 100, 1)])
            packet = {"opcode": SEND_ONLY, "psn": 7, "length": 5, "ack_request": 1}
            await send_all(ctx, world.dut.request, [{"transport": packet, "qp": 2, "accept": 1}])
            await check_nothing(ctx, world)
            if ending == "error":
                world.ring.errors[2] = 1
            elif ending == "state":
                await world.attribute(ctx, 2, state=QpState.ERR)
            else:
                world.ring.frozen = False
            world.expected.append((2, *world.rules[2].packet(packet | {"solicited": 0})))
            while len(world.jobs) < len(world.expected):
                await ctx.tick()
            world.ring.frozen = False
            if ending != "state":
                await world.attribute(ctx, 2, state=QpState.RTS)
        await world.attribute(ctx, 2, state=QpState.ERR)

    world.simulate(script)
    first, error, state = [job for job in world.jobs if not job.token]
    assert (first.complete, first.status) == (1, 0)
    assert (error.syndrome, error.event, error.complete, error.status, error.cause) == (0x63, 1, 1, 2, 22)
    assert state.silent


def test_waits_for_a_wqe_that_was_forgotten():
    """In the middle of its message, when there was no room for it, or its QP was away: for its further entries, and so
    that the next one is not taken for fetched."""
    world = World()
    ring = world.ring

    async def script(ctx):
        await world.connect(ctx, 2, 7)
        for number in range(3):
            ring.post(2, [(0x1000 * number, 300, 1 + number), (0x9000 + 0x1000 * number, 100, 11 + number)])
        mtu = world.rules[2].mtu
        assert mtu == 256
        await world.packet(ctx, 2, SEND_FIRST, mtu)
        ring.frozen = True
        ring.fetched[2] = ring.consumed[2]
        ring.words[2] = [world.rng.getrandbits(64) for _ in ring.words[2]]
        last = {"opcode": SEND_LAST, "psn": 8, "length": 144, "ack_request": 1}
        await send_all(ctx, world.dut.request, [{"transport": last, "qp": 2, "accept": 1}])
        await check_nothing(ctx, world)
        ring.frozen = False
        world.expected.append((2, *world.rules[2].packet(last | {"solicited": 0})))
        while len(world.jobs) < len(world.expected):
            await ctx.tick()
        await world.packet(ctx, 2, SEND_ONLY, 200)

    world.simulate(script)
    assert [job.complete for job in world.jobs if not job.token] == [0, 1, 1]


def test_ring_error_without_wqe():
    """A ring that a false doorbell broke has no WQE to complete."""
    world = World()

    async def script(ctx):
        await world.connect(ctx, 0, 7)
        world.ring.errors[0] = 1
        await world.packet(ctx, 0, WRITE_ONLY, 8, dma_length=8)
        await world.packet(ctx, 0, SEND_ONLY, 8)

    world.simulate(script)
    assert [(job.syndrome, job.complete, job.fatal) for job in world.jobs[1:]] == [(0, 0, 0), (0x63, 0, 1)]


def test_messages_of_uc_by_hand():
    """What the rules say, said once more by numbers."""
    world = World(values=[{"type": QpType.UC}] * QPS)
    rules = world.rules[0]

    async def script(ctx):
        async def says(*args, silent=0, cause=0, fatal=0, complete=0, msn=None, wqe_index=None, **more):
            job = await world.packet(ctx, 0, *args, **more)
            assert not job.get("acknowledge")
            assert (job.get("silent", 0), job.get("cause", 0), job.get("fatal", 0)) == (silent, cause, fatal)
            assert job.get("complete", 0) == complete
            assert None in (msn, job.get("msn")) or job["msn"] == msn
            assert wqe_index is None or job["wqe_index"] == wqe_index

        lost, unserved = {"silent": 1, "cause": 0}, {"silent": 1, "cause": 20}
        await world.connect(ctx, 0, 100)
        world.ring.post(0, [(0x1000, 300, 1)])
        # A message begins with any PSN, later or earlier than expected.
        await says(WRITE_ONLY, 8, dma_length=8, psn=500, msn=1)
        await says(WRITE_ONLY, 8, dma_length=8, psn=3, msn=2)
        await says(WRITE_ONLY, 8, dma_length=8, psn=3, msn=3)
        assert rules.epsn == 4
        # Its middle is missing: the rest is nothing, and its receive serves another one.
        await says(SEND_FIRST, 256, wqe_index=0, psn=4)
        await says(SEND_LAST, 10, psn=6, **lost)
        await says(SEND_LAST, 10, psn=7, **lost)
        # Another one begins before its end.
        await says(SEND_FIRST, 256, wqe_index=0)
        await says(WRITE_ONLY, 8, dma_length=8, msn=4)
        await says(SEND_LAST, 10, **lost)
        # One that goes on as the other kind.
        await says(SEND_FIRST, 256, wqe_index=0)
        await says(WRITE_LAST, 10, **lost)
        await says(SEND_LAST, 10, **lost)
        await says(SEND_ONLY, 8, wqe_index=0, complete=1, msn=5)
        # No receive is posted: one that is posted later is not for this message.
        await says(SEND_FIRST, 256, **unserved)
        world.ring.post(0, [(0x1000, 300, 1)])
        await says(SEND_LAST, 8, **lost)
        # Longer than its receive, which serves the next one; of wrong lengths.
        await says(SEND_FIRST, 256, wqe_index=1)
        await says(SEND_LAST, 100, **unserved)
        await says(SEND_FIRST, 255, **unserved)
        await says(SEND_ONLY, 257, **unserved)
        await says(WRITE_ONLY, 8, dma_length=9, **unserved)
        await says(WRITE_FIRST, 256, dma_length=300, msn=5)
        await says(WRITE_MIDDLE, 256, **unserved)
        await says(WRITE_LAST, 44, **lost)
        await says(SEND_FIRST, 256, wqe_index=1)
        await says(SEND_LAST, 44, wqe_index=1, complete=1, msn=6)
        # No right to write.
        await world.attribute(ctx, 0, access=13)
        await says(WRITE_ONLY, 8, dma_length=8, **unserved)
        # Of RC, and not from the peer: as if it had not come, in the middle of a message, too.
        world.ring.post(0, [(0x1000, 300, 1)])
        await says(SEND_FIRST, 256, wqe_index=2)
        await says(SEND_ONLY, 8, other=True, **lost)
        await says(SEND_ONLY, 8, accept=0, **lost)
        await says(SEND_LAST, 8, wqe_index=2, complete=1, msn=7)
        assert (rules.index, rules.dead) == (3, False)
        # Of a ring in error it tells nobody but the host.
        world.ring.frozen = True
        world.ring.post(0, [(0x1000, 300, 1)])
        world.ring.errors[0] = 1
        await says(SEND_ONLY, 8, fatal=1, cause=22, wqe_index=3, complete=1)
        await says(SEND_ONLY, 8, **unserved)

    world.simulate(script)
    assert [access.fresh for access in world.accesses[-2:]] == [1, 1]


def test_flush():
    """All receive WQEs of a QP in ERR, in order, also more than are on chip, and those posted later; other QPs go
    on; after RESET nothing is flushed."""
    world = World(stall=0.2, strides=(7, 4, 5, 5))

    async def script(ctx):
        await world.connect(ctx, 0, 5)
        await world.connect(ctx, 1, 5)
        for qp in (0, 1):
            for number in range(9):
                world.ring.post(qp, [(number, 1000, number)])
        await world.packet(ctx, 0, SEND_ONLY, 10)
        await world.packet(ctx, 0, SEND_FIRST, 256)
        world.rules[0].dead = True
        await world.attribute(ctx, 0, state=QpState.ERR)
        await world.control(ctx, 0, QpAction.ERROR)
        for index in range(1, 9):
            flushed(world, 0, index)
        while len(world.jobs) < len(world.expected):
            await ctx.tick()
        await check_nothing(ctx, world)
        assert world.ring.consumed[0] == 9
        await world.packet(ctx, 1, SEND_ONLY, 10)
        world.ring.post(0, [])
        flushed(world, 0, 9)
        await check_later(ctx, world)
        await world.packet(ctx, 0, WRITE_ONLY, 10, dma_length=10)
        await world.connect(ctx, 0, 5)
        world.ring.post(0, [(0, 100, 1)])
        await check_later(ctx, world)
        await world.packet(ctx, 0, SEND_ONLY, 10)
        await check_later(ctx, world)
        assert world.ring.consumed[:2] == [1, 1]

    async def check_later(ctx, world):
        for _ in range(100):
            await ctx.tick()
        assert len(world.jobs) == len(world.expected)

    world.simulate(script)


def test_a_flush_is_no_packet():
    """It has nothing of the packet that waits meanwhile, which is of UC."""
    world = World(values=[{"type": QpType.UC}] * QPS)

    async def script(ctx):
        for qp in (0, 1):
            await world.connect(ctx, qp, 5)
        for number in range(3):
            world.ring.post(0, [(number, 1000, number)])
        await world.attribute(ctx, 0, state=QpState.ERR)
        await world.packet(ctx, 1, WRITE_ONLY, 8, dma_length=8)
        await world.control(ctx, 0, QpAction.ERROR)
        for index in range(3):
            flushed(world, 0, index)

    world.simulate(script)


def flush_states(world):
    """Functions that post a receive WQE, and expect its flush, of QP 0; and that wait for all that is expected.
    ``quiet``: no flush is even looked at."""

    def post(index, expected=True):
        world.ring.post(0, [(index, 1000, index)])
        if expected:
            flushed(world, 0, index)

    async def settle(ctx, quiet=False):
        for _ in range(150):
            await ctx.tick()
            assert not (quiet and ctx.get(world.dut.block.flush.valid))
        assert len(world.jobs) == len(world.expected)

    return post, settle


@pytest.mark.parametrize("stall", [0, 0.3])
def test_a_flush_goes_on_after_load(stall):
    """Not while the QP is away, whatever arrives, but then with all that was posted, and what is posted later; and not
    if the QP that is loaded is not in ERR."""
    world = World(swaps=True, stall=stall, strides=(7, 4, 5, 5))
    post, settle = flush_states(world)

    async def script(ctx):
        await world.connect(ctx, 0, 5)
        healthy = await world.save(ctx, 0)
        await world.load(ctx, 0, healthy)
        await world.attribute(ctx, 0, state=QpState.ERR)
        await world.control(ctx, 0, QpAction.ERROR)
        for index in range(3):
            post(index)
        await settle(ctx)
        words = await world.save(ctx, 0)
        post(3, expected=False)
        await world.packet(ctx, 1, WRITE_ONLY, psn=-5)
        await settle(ctx)
        await world.load(ctx, 0, words)
        flushed(world, 0, 3)
        await settle(ctx)
        for index in (4, 5):
            post(index)
            await settle(ctx)
        words = await world.save(ctx, 0)
        # Another one is there, which lives.
        await world.attribute(ctx, 0, state=QpState.RTS)
        await world.load(ctx, 0, healthy)
        post(6, expected=False)
        await settle(ctx, quiet=True)
        await world.save(ctx, 0)
        await world.attribute(ctx, 0, state=QpState.ERR)
        await world.load(ctx, 0, words)
        flushed(world, 0, 6)
        post(7)
        await settle(ctx)

    world.simulate(script)
    assert world.ring.consumed[0] == 8


def test_a_flush_that_came_before_save():
    """It was queued, and comes when the QP's state has gone: it finds a ring with WQEs, and takes none."""
    world = World(swaps=True, strides=(7, 4, 5, 5))
    post, settle = flush_states(world)

    async def script(ctx):
        await world.connect(ctx, 0, 5)
        await world.connect(ctx, 1, 5)
        await world.attribute(ctx, 0, state=QpState.ERR)
        await world.control(ctx, 0, QpAction.ERROR)
        post(0)
        await settle(ctx)
        world.hold_jobs = True
        world.rules[1].index = 0
        await world.packet(ctx, 1, WRITE_ONLY, wait=False)
        for _ in range(20):
            await ctx.tick()
        await world.control(ctx, 0, QpAction.SAVE)
        world.expected.append((0, None, {"token": 1, "passage": Passage.SAVE}))
        post(1, expected=False)
        for _ in range(30):
            await ctx.tick()
        world.hold_jobs = False
        await settle(ctx)
        words = [word.data for word in world.words]
        await world.load(ctx, 0, words)
        flushed(world, 0, 1)
        await settle(ctx)

    world.simulate(script)


def test_a_word_may_wait():
    """Requests go on, but not another SAVE."""
    world = World(swaps=True)
    dut = world.dut
    world.words_wait = True

    async def script(ctx):
        for qp in (0, 1):
            await world.connect(ctx, qp, 5)
        await world.control(ctx, 0, QpAction.SAVE)
        world.expected.append((0, None, {"token": 1, "passage": Passage.SAVE}))
        await world.packet(ctx, 1, WRITE_ONLY)
        await world.control(ctx, 1, QpAction.SAVE)
        await check_nothing(ctx, world)
        assert ctx.get(dut.saved.valid)
        world.words_wait = False
        world.expected.append((1, None, {"token": 1, "passage": Passage.SAVE}))

    world.simulate(script)
    assert [word.last for word in world.words] == [0, 0, 0, 1] * 2


def test_tokens_pass_jobs_of_others():
    """As long as the QP has none of its own: neither under way nor held aside."""
    world = World(swaps=True)
    dut = world.dut

    async def swap(ctx, qp):
        """How many of its two tokens have passed."""
        before = len(world.passed)
        await world.load(ctx, qp, await world.save(ctx, qp))
        await ctx.tick().repeat(30)
        return len(world.passed) - before

    async def script(ctx):
        for qp in (0, 1):
            await world.connect(ctx, qp, 5)
        await ctx.tick().repeat(300)
        world.keep_jobs = True
        await world.packet(ctx, 1, WRITE_ONLY)
        for _ in range(3):
            assert await swap(ctx, 0) == 2
        ctx.set(dut.held, 1)
        for held, passed in ((3, 2), (0, 0), (3, 2)):
            ctx.set(dut.held_qp, held)
            assert await swap(ctx, 0) == passed
            if not passed:  # their jobs are under way as others' are
                world.keep_jobs = False
                await ctx.tick().repeat(300)
                world.keep_jobs = True
        ctx.set(dut.held, 0)
        world.keep_jobs = False
        await ctx.tick().repeat(300)
        assert await swap(ctx, 1) == 2
        world.keep_jobs = True
        await world.packet(ctx, 1, WRITE_ONLY)
        assert await swap(ctx, 1) == 0
        assert await swap(ctx, 0) == 2

    world.simulate(script)


def test_flush_after_ring_error():
    """WQEs that never were fetched are flushed, too."""
    world = World()

    async def script(ctx):
        await world.connect(ctx, 3, 5)
        world.ring.frozen = True
        for _ in range(3):
            world.ring.post(3, [])
        world.ring.errors[3] = 1
        await world.packet(ctx, 3, SEND_ONLY, 10)
        await world.attribute(ctx, 3, state=QpState.ERR)
        await world.control(ctx, 3, QpAction.ERROR)
        for index in (1, 2):
            flushed(world, 3, index)

    world.simulate(script)


def test_flush_and_packets_take_turns():
    world = World(strides=(4,) * QPS)

    async def script(ctx):
        await world.connect(ctx, 0, 5)
        await world.connect(ctx, 1, 5)
        for number in range(30):
            world.ring.post(0, [(number, 100, number)])
        await world.attribute(ctx, 0, state=QpState.ERR)
        await world.control(ctx, 0, QpAction.ERROR)
        start = len(world.expected)
        for number in range(30):
            flushed(world, 0, number)
            await world.packet(ctx, 1, WRITE_ONLY, 4, dma_length=4, wait=False)
        order.extend(range(start, start + 60))

    order = []
    world.check = lambda: None  # which of both begins is not said
    world.simulate(script)
    assert len(world.jobs) == len(world.expected)
    kinds = [job.complete for job in world.jobs[order[0] :]]
    assert sum(kinds) == 30
    assert all(abs(2 * sum(kinds[:n]) - n) <= 2 for n in range(60))


def test_query():
    world = World()

    async def script(ctx):
        await world.connect(ctx, 1, 1000)
        world.ring.post(1, [(0, 100, 1)])
        for _ in range(3):
            await world.packet(ctx, 1, WRITE_ONLY, 4, dma_length=4)
        await world.packet(ctx, 1, SEND_ONLY, 4)
        ctx.set(world.dut.control.payload, {"qp": 1, "action": QpAction.QUERY})
        ctx.set(world.dut.control.valid, 1)
        await ctx.tick().until(world.dut.control.ready)
        ctx.set(world.dut.control.valid, 0)
        (reply,) = await receive_all(ctx, world.dut.reply, 1, world.rng)
        assert reply == {"psn": 1004, "index": 1}
        for action in (QpAction.NONE, QpAction.START_SEND):
            await world.control(ctx, 1, action)
        await world.packet(ctx, 1, WRITE_ONLY, 4, dma_length=4)

    world.simulate(script)


def test_a_broadcast_tears_nothing():
    """Attributes that are written while packets come."""
    world = World()

    async def script(ctx):
        await world.connect(ctx, 0, 0)
        world.ring.post(0, [(0, 100, 1)])
        for _ in range(10):
            await world.packet(ctx, 0, WRITE_ONLY, 4, dma_length=4, wait=False)
            await world.attribute(ctx, 0)

    world.simulate(script)


@pytest.mark.parametrize("opcode", [READ_REQUEST, FETCH_ADD])
def test_what_is_asked_for_again_recalls_what_is_behind_it(opcode):
    """The ring is full when the peer goes back, and there is room once the READ/atomic responder has given up what is
    in it."""
    world = World(values=[{"access": 14, "max_dest_rd_atomic": 16}] * QPS)

    async def script(ctx):
        await world.connect(ctx, 0, 100)
        for _ in range(16):
            await world.packet(ctx, 0, READ_REQUEST, dma_length=256)
        await world.packet(ctx, 0, WRITE_ONLY, 8, dma_length=8, psn=101)
        assert world.recalls == []
        world.served[0] = world.lagging[0] = 16
        for psn in (101, 102):
            await world.packet(ctx, 0, opcode, dma_length=256, psn=psn)
        assert world.recalls == [(0, 101), (0, 102)]
        assert [entry["psn"] for *_, entry in world.wanted_entries[-2:]] == [101, 102]

    world.simulate(script)


def test_reception_does_not_wait_for_a_recall_for_ever():
    world = World(values=[{"access": 14, "max_dest_rd_atomic": 16}] * QPS)
    world.recallable = False

    async def script(ctx):
        await world.connect(ctx, 0, 100)
        await world.packet(ctx, 0, READ_REQUEST, dma_length=256)
        await world.packet(ctx, 0, READ_REQUEST, dma_length=256, psn=100)

    world.simulate(script)
    assert PATIENCE <= world.waits[-1] < PATIENCE + 16
    assert len(world.entries) == 2


@pytest.mark.parametrize("late", [False, True])
def test_a_read_waits_for_room(late):
    """But not for ever, and a QP's first does not wait."""
    world = World(values=[{"access": 14, "max_dest_rd_atomic": 16}] * QPS)

    async def script(ctx):
        await world.connect(ctx, 0, 100)
        world.room = False
        await world.packet(ctx, 0, READ_REQUEST, dma_length=256)
        world.rules[0].room = world.room = not late  # what the rules are told
        sent = world.packet(ctx, 0, READ_REQUEST, dma_length=256)
        world.crowded = PATIENCE + 20 if late else 100
        await sent

    world.simulate(script)
    first, second = world.waits[-2:]
    assert first < 20
    assert second >= 90
    assert second < (PATIENCE + 20 if late else 120)
    assert len(world.entries) == 2 - late


CYCLES = {
    "WRITE": (WRITE_ONLY, 8, {"dma_length": 8}, 6),
    "WRITE of nothing": (WRITE_ONLY, 0, {}, 6),
    "SEND": (SEND_ONLY, 8, {}, 8),
    "SEND of nothing": (SEND_ONLY, 0, {}, 6),
    "SEND into 2 entries": (SEND_ONLY, 200, {}, 14),
    "READ": (READ_REQUEST, 0, {"dma_length": 1000}, 6),
    "atomic": (FETCH_ADD, 0, {}, 6),
    "duplicate": (WRITE_ONLY, 8, {"dma_length": 8, "psn": 5}, 6),
    "duplicate READ": (READ_REQUEST, 0, {"dma_length": 8, "psn": 5}, 10),
    "not accepted": (WRITE_ONLY, 8, {"dma_length": 8, "accept": 0}, 6),
}


@pytest.mark.parametrize("name", CYCLES)
def test_cycles(name):
    opcode, length, more, cycles = CYCLES[name]
    world = World(values=[{"access": 14, "max_dest_rd_atomic": 16}] * QPS)

    async def script(ctx):
        await world.connect(ctx, 0, 10)
        for _ in range(8):
            world.ring.post(0, [(0, 100, 1), (0, 100, 1)])
        for _ in range(30):
            await ctx.tick()
        for _ in range(8):
            await world.packet(ctx, 0, opcode, length, wait=False, **more)

    world.simulate(script)
    assert {b - a for a, b in pairwise(world.cycles)} == {cycles}


def test_arguments():
    with pytest.raises(ValueError, match="qps must be a power of two from 2 to 4096, not 3"):
        Responder(3)
    with pytest.raises(ValueError, match="blocks must be a power of two, at least 2, not 100"):
        Responder(4, 100)


@pytest.mark.slow
def test_converts():
    for swaps in (False, True):
        rtlil.convert(Responder(64, swaps=swaps))
