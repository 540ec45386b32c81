"""The responder against rules written in Python, and every row of errors by hand."""

import pytest
from amaranth.back import rtlil
from receive_world import (
    MASK24,
    READ_REQUEST,
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
    WRITE_ONLY_IMM,
    Ring,
    Rules,
    attributes,
    check_job,
    check_run,
    write_attributes,
)
from streams import collect, make_rng, receive_all, send_all, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState
from verbena.hdl.transport.responder import Responder

QPS = 4


def runs_of(accesses):
    runs = [[]]
    for access in accesses:
        runs[-1].append(access)
        if access.last:
            runs.append([])
    assert runs.pop() == []
    return runs


class World:
    """A responder, its rings, and what came out of it."""

    def __init__(self, seed=None, *, stall=0.0, strides=(5,) * QPS, values=None, area=256):
        self.rng = make_rng(seed)
        self.stall = stall
        self.dut = Responder(QPS, area)
        self.ring = Ring(self.dut, self.rng, strides, stall=stall)
        values = values or [{}] * QPS
        self.values = [attributes(log_rq_stride=strides[qp], **values[qp]) for qp in range(QPS)]
        self.rules = [Rules(qp, self.ring, self.values[qp]) for qp in range(QPS)]
        self.accesses, self.jobs = [], []
        self.expected = []  # (qp, run, job)
        self.dropped = {"sequence": 0, "duplicate": 0}
        self.cycles = []  # when each packet was taken

    async def control(self, ctx, qp, action, psn=0):
        await send_all(ctx, self.dut.control, [{"qp": qp, "action": action, "psn": psn}])

    async def attribute(self, ctx, qp, **values):
        self.values[qp].update(values)
        await write_attributes(ctx, self.dut, qp, **self.values[qp])

    async def connect(self, ctx, qp, psn=0):
        """RESET, and the way to RTS."""
        await self.attribute(ctx, qp, state=QpState.RESET)
        await self.control(ctx, qp, QpAction.RESET)
        self.expected.append((qp, None, {"token": 1}))
        self.ring.reset(qp)
        await self.control(ctx, qp, QpAction.START_RECEIVE, psn)
        await self.attribute(ctx, qp, state=QpState.RTS)
        self.rules[qp].restart(psn)

    async def packet(self, ctx, qp, opcode, length=0, *, psn=None, accept=1, wait=True, **more):
        """Sends a packet, by default with the PSN expected, and asks the rules."""
        rules = self.rules[qp]
        packet = {
            "opcode": opcode,
            "psn": rules.epsn if psn is None else psn & MASK24,
            "length": length,
            "ack_request": 1,
            "solicited": 0,
            "immediate": 0,
            "address": 0,
            "rkey": 0,
            "dma_length": 0,
        }
        packet.update(more)
        if psn is not None and accept and not rules.dead:
            distance = (packet["psn"] - rules.epsn + (1 << 23)) % (1 << 24) - (1 << 23)
            self.dropped["sequence"] += distance > 0
            self.dropped["duplicate"] += distance < 0
        run, job = rules.packet(packet, accept)
        self.expected.append((qp, run, job))
        await send_all(ctx, self.dut.request, [{"transport": packet, "qp": qp, "accept": accept}], self.rng, self.stall)
        return job

    def check(self):
        runs = runs_of(self.accesses)
        assert len(runs) == len(self.jobs) == len(self.expected)
        for run, job, (qp, wanted_run, wanted_job) in zip(runs, self.jobs, self.expected):
            check_job(job, wanted_job, qp)
            if wanted_run is None:
                (access,) = run
                assert (access.length, access["clear"], access.discard) == (0, "token" in wanted_job, 0)
                assert access.qp == qp
            else:
                check_run(run, wanted_run, qp, self.values[qp]["pd"])

    def simulate(self, script, **kwargs):
        """Runs ``script(ctx)`` after all QPs were connected, then compares."""
        dut = self.dut
        counted = {"sequence": 0, "duplicate": 0}

        async def run(ctx):
            for qp in range(QPS):
                await self.attribute(ctx, qp)
            await script(ctx)
            while len(self.jobs) < len(self.expected):
                await ctx.tick()
            for _ in range(20):
                await ctx.tick()

        async def count(ctx):
            cycle = 0
            while True:
                _, _, sequence, duplicate, valid, ready = await ctx.tick().sample(
                    dut.count_drop_sequence, dut.count_drop_duplicate, dut.request.valid, dut.request.ready
                )
                counted["sequence"] += sequence
                counted["duplicate"] += duplicate
                if valid and ready:
                    self.cycles.append(cycle)
                cycle += 1

        async def accesses(ctx):
            await collect(ctx, dut.access, self.accesses, self.rng, self.stall)

        async def jobs(ctx):
            await collect(ctx, dut.job, self.jobs, self.rng, self.stall)

        background = (accesses, jobs, self.ring.run, count)
        simulate(dut, run, background=background, seed=self.rng.seed_value, **kwargs)
        self.check()
        assert counted == self.dropped


def random_wqe(rng, stride, sizes):
    return [
        (rng.getrandbits(64), rng.choice(sizes), rng.getrandbits(32)) for _ in range(rng.randint(0, 1 << (stride - 4)))
    ]


@pytest.mark.parametrize("number", range(4))
def test_random_packets(number):
    """Valid streams, gaps, duplicates, wrong opcodes, wrong lengths, RNR, on interleaved QPs with random stalls."""
    stall = (0.0, 0.3)[number % 2]
    strides = ((4, 5, 6, 7), (7, 4, 5, 5))[number // 2]
    values = [{"path_mtu": 1 + qp, "pd": 77 + qp, "access": 2 if qp else 14} for qp in range(QPS)]
    world = World(stall=stall, strides=strides, values=values, area=(128, 256)[number // 2])
    rng = world.rng
    plans = [None] * QPS

    def next_packet(qp):
        """A packet that continues what goes on, or begins something."""
        rules = world.rules[qp]
        mtu = rules.mtu
        plan = plans[qp]
        if not plan or rules.message is None:
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

    async def script(ctx):
        for qp in range(QPS):
            await world.connect(ctx, qp, rng.choice([0, MASK24 - 3, rng.getrandbits(24)]))
        for _ in range(250):
            qp = rng.randrange(QPS)
            rules = world.rules[qp]
            if rules.dead and rng.random() < 0.4:
                await world.connect(ctx, qp, rng.choice([0, MASK24 - 2, rng.getrandbits(24)]))
                plans[qp] = None
            if rng.random() < 0.5 and len(world.ring.posted[qp]) - rules.index < 12:
                sizes = [0, 1, 7, rules.mtu, 2 * rules.mtu, 100_000]
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
                    plans[qp] = [(opcode, length, fields), *plans[qp]]
                    rules.message = rules.message  # the requester will come again
            elif fault < 0.83:
                psn = rules.epsn + rng.choice([1, 2, 5, (1 << 23) - 1])
                await world.packet(ctx, qp, rng.randrange(12), rng.randrange(300), psn=psn, **more)
            elif fault < 0.92:
                psn = rules.epsn - rng.choice([1, 2, 5, 1 << 23])
                await world.packet(ctx, qp, rng.choice([*range(12), READ_REQUEST]), rng.randrange(300), psn=psn, **more)
            elif fault < 0.94:
                await world.packet(ctx, qp, rng.randrange(32), rng.choice([0, 1, rules.mtu]), **more)
            elif fault < 0.96:
                opcode, length, fields = next_packet(qp)
                length = max(0, length + rng.choice([-1, 1, 500]))
                await world.packet(ctx, qp, opcode, length, **(more | fields))
            else:
                opcode, length, fields = next_packet(qp)
                await world.packet(ctx, qp, opcode, length, accept=0, **(more | fields))
                plans[qp] = [(opcode, length, fields), *plans[qp]]

    world.simulate(script)
