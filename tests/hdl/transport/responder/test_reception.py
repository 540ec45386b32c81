"""Responder and acknowledger together, with accesses that are refused at random and a command block that reacts late:
what the host must be able to rely on."""

from pathlib import Path

import pytest
from receive_world import (
    ACKNOWLEDGE,
    COMPARE_SWAP,
    FETCH_ADD,
    READ_REQUEST,
    SEND_FIRST,
    SEND_LAST,
    SEND_MIDDLE,
    SEND_ONLY,
    UC,
    WRITE_FIRST,
    WRITE_LAST_IMM,
    WRITE_ONLY,
    WRITE_ONLY_IMM,
    Ring,
    Rules,
    attributes,
    write_attributes,
)
from reception import QPS, Reception
from scapy.layers.inet import UDP
from scapy.utils import rdpcap
from streams import collect, make_rng, send_all, shared, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState, QpType

SUCCESS, OPERATION, PROTECTION, FLUSHED, ACCESS = 0, 2, 4, 5, 8
KEY, POISONED = 1, 6
QP_FATAL, NO_EVENT = 1, 255


def memory(dut, accesses, verdicts):
    """Background testbench: the access check and the DMA engine: a verdict a run, some time later. Odd keys do not
    exist."""

    async def testbench(ctx):
        poisoned = [False] * QPS
        run, pending, now = [], [], 0
        edges = aiter(ctx.tick().sample(dut.done.valid, dut.done.ready))
        while True:
            while accesses:
                run.append(accesses.pop(0))
                if run[-1].last:
                    qp, status = run[0].qp, 0
                    forgets = run[0]["clear"] or run[0].fresh
                    if poisoned[qp] and not forgets:
                        status = POISONED
                    elif any(access.key % 2 for access in run if access.length and not access.discard):
                        status, poisoned[qp] = KEY, True
                    elif forgets:
                        poisoned[qp] = False
                    pending.append((now + 32, status))
                    run = []
            ctx.set(dut.done.valid, bool(pending) and pending[0][0] <= now)
            if pending:
                ctx.set(dut.done.payload, {"status": pending[0][1]})
            _, _, valid, ready = await anext(edges)
            if valid and ready:
                verdicts.append(pending.pop(0)[1])
            now += 1

    return testbench


@pytest.mark.parametrize("packets", [50, pytest.param(150, marks=pytest.mark.slow)])
def test_every_receive_wqe_completes_once_and_in_order(packets):
    """Successes, then at most one error, then flushes; ACKs grow, and a fatal NAK is the last word; after RESET all is
    well."""
    rng = make_rng()
    stall = rng.choice([0.0, 0.3])
    dut = shared(Reception)
    ring = Ring(dut, rng, [5] * QPS, stall=stall)
    values = [attributes(log_rq_stride=5) for _ in range(QPS)]
    accesses, completions, acks, errors = [], [], [], []
    verdicts = []
    commands = []

    async def change(ctx, qp, state, action, psn=0):
        values[qp]["state"] = state
        await write_attributes(ctx, dut, qp, **values[qp])
        await send_all(ctx, dut.control, [{"qp": qp, "action": action, "psn": psn}])

    async def command_block(ctx):
        """As the real one, but slower."""
        while True:
            await ctx.tick()
            if len(errors) > len(commands):
                qp = errors[len(commands)].qp
                for _ in range(rng.choice([0, 50, 300])):
                    await ctx.tick()
                await change(ctx, qp, QpState.ERR, QpAction.ERROR)
                commands.append(qp)

    def collector(port, items):
        async def testbench(ctx):
            await collect(ctx, port, items, rng, stall)

        return testbench

    def key():
        return rng.getrandbits(31) * 2 + (rng.random() < 0.06)

    async def script(ctx):
        for life in range(900 // packets):
            # Some lives have no access that follows a refused one.
            if life >= 2 and POISONED in verdicts:
                break
            psn, middle = [7] * QPS, [False] * QPS
            for log in (completions, acks, errors, commands):
                log.clear()
            for qp in range(QPS):
                values[qp]["state"] = QpState.RESET
                await write_attributes(ctx, dut, qp, **values[qp])
                await send_all(ctx, dut.control, [{"qp": qp, "action": QpAction.RESET}])
                while not await token(ctx):
                    pass
                ring.reset(qp)
                await send_all(ctx, dut.control, [{"qp": qp, "action": QpAction.START_RECEIVE, "psn": 7}])
                values[qp]["state"] = QpState.RTS
                await write_attributes(ctx, dut, qp, **values[qp])
            for _ in range(packets):
                qp = rng.randrange(QPS)
                if len(ring.posted[qp]) - ring.consumed[qp] < 12:
                    ring.post(qp, [(0, 600, key()), (0, 400, key())])
                length = 256
                if middle[qp]:
                    opcode = rng.choice([SEND_MIDDLE, SEND_LAST])
                    middle[qp] = opcode == SEND_MIDDLE
                else:
                    opcode = rng.choice([SEND_FIRST, WRITE_ONLY, WRITE_ONLY_IMM, SEND_LAST + 2])
                    length = rng.choice([0, 5, 256]) if opcode != SEND_FIRST else 256
                    middle[qp] = opcode == SEND_FIRST
                packet = {"opcode": opcode, "psn": psn[qp], "length": length, "dma_length": length, "rkey": key()}
                packet["ack_request"] = 1
                psn[qp] += 1
                await send_all(ctx, dut.request, [{"transport": packet, "qp": qp, "accept": 1}], rng, stall)
            quiet = 0
            while quiet < 150:
                await ctx.tick()
                quiet = quiet + 1 if len(errors) == len(commands) else 0
            for qp in range(QPS):  # those that live still
                if qp not in commands:
                    await change(ctx, qp, QpState.ERR, QpAction.ERROR)
            ring.post(0, [])
            while len(completions) < sum(map(len, ring.posted)):
                await ctx.tick()
            for _ in range(60):
                await ctx.tick()
            check()

    async def token(ctx):
        _, _, done = await ctx.tick().sample(dut.token_done)
        return done

    def check():
        assert len({error.qp for error in errors}) == len(errors) == len(commands)
        for qp in range(QPS):
            mine = [c for c in completions if c.qp == qp]
            assert [c.wqe_index for c in mine] == list(range(len(ring.posted[qp])))
            statuses = [c.status for c in mine]
            good = next((n for n, status in enumerate(statuses) if status != SUCCESS), len(statuses))
            assert all(status == FLUSHED for status in statuses[good + 1 :])
            assert all(status in (SUCCESS, FLUSHED) for status in statuses) or qp in commands
            answers = [ack for ack in acks if ack.qp == qp]
            distances = [(ack.psn - 7) % (1 << 24) for ack in answers]
            assert distances == sorted(distances)
            # Fatal: the last word.
            assert all(ack.syndrome < 0x20 or ack.syndrome in (0x2C, 0x60) for ack in answers[:-1])
            if qp in commands:
                assert answers[-1].syndrome in (0x61, 0x62, 0x63)

    background = [
        ring.run, memory(dut, accesses, verdicts), command_block,
        collector(dut.access, accesses), collector(dut.completion, completions), collector(dut.ack, acks),
        collector(dut.error, errors), collector(dut.release, []),
    ]  # fmt: skip
    simulate(dut, script, background=background, seed=rng.seed_value, deadline=300_000)
    assert KEY in verdicts
    assert POISONED in verdicts


class Unreliable:
    """QPs of UC, and the rules that say what becomes of their receive WQEs."""

    def __init__(self):
        self.rng = make_rng()
        self.stall = self.rng.choice([0.0, 0.3])
        self.dut = shared(Reception)
        self.ring = Ring(self.dut, self.rng, [5] * QPS, stall=self.stall)
        self.values = [attributes(log_rq_stride=5, type=QpType.UC) for _ in range(QPS)]
        self.rules = [Rules(qp, self.ring, self.values[qp]) for qp in range(QPS)]
        self.accesses, self.completions, self.acks, self.errors, self.verdicts = [], [], [], [], []
        self.expected = [[] for _ in range(QPS)]  # (status, syndrome) of each receive WQE
        self.poisoned = [False] * QPS
        self.dead = [None] * QPS  # or the event

    async def change(self, ctx, qp, state, action, psn=0):
        self.values[qp]["state"] = state
        await write_attributes(ctx, self.dut, qp, **self.values[qp])
        await send_all(ctx, self.dut.control, [{"qp": qp, "action": action, "psn": psn}])

    async def packet(self, ctx, qp, opcode, length, psn=None, **more):
        rules = self.rules[qp]
        packet = {"opcode": UC + opcode, "length": length, "ack_request": 1, "solicited": 0, "immediate": 0} | more
        packet["psn"] = rules.epsn if psn is None else psn
        run, job = rules.packet({"address": 0, "rkey": 0, "dma_length": 0} | packet)
        if not self.dead[qp] and not job.get("silent"):
            self._served(qp, run, job)
        await send_all(ctx, self.dut.request, [{"transport": packet, "qp": qp, "accept": 1}], self.rng, self.stall)

    def _served(self, qp, run, job):
        refused = any(access.key % 2 for access in run if access.length and not access.discard)
        self.poisoned[qp] &= not self.rules[qp].fresh
        status = POISONED if self.poisoned[qp] else KEY if refused else 0
        self.poisoned[qp] |= status != 0
        if job.get("fatal"):
            self.dead[qp] = job["event"]
            self.expected[qp].append((job["status"], job["cause"]))
        elif status and not job["remote"]:
            self.dead[qp] = NO_EVENT
            self.expected[qp].append((PROTECTION, status))
        elif job.get("complete"):
            self.expected[qp].append((ACCESS if status else SUCCESS, status))

    def simulate(self, script):
        dut = self.dut

        async def connected(ctx):
            for qp in range(QPS):
                await self.change(ctx, qp, QpState.RTS, QpAction.START_RECEIVE)
            await script(ctx)

        def collector(port, items):
            async def testbench(ctx):
                await collect(ctx, port, items, self.rng, self.stall)

            return testbench

        background = [
            self.ring.run, memory(dut, self.accesses, self.verdicts), collector(dut.access, self.accesses),
            collector(dut.completion, self.completions), collector(dut.ack, self.acks),
            collector(dut.error, self.errors), collector(dut.release, []),
        ]  # fmt: skip
        simulate(dut, connected, background=background, seed=self.rng.seed_value, deadline=100_000)
        assert self.acks == []
        assert {error.qp: error.event for error in self.errors} == {
            qp: event for qp, event in enumerate(self.dead) if event is not None
        }
        assert len(self.errors) == len({error.qp for error in self.errors})
        for qp in range(QPS):
            mine = [item for item in self.completions if item.qp == qp]
            assert [item.wqe_index for item in mine] == list(range(len(self.ring.posted[qp])))
            known = self.expected[qp]
            flushed = [(FLUSHED, 20)] * (len(mine) - len(known))
            assert [(item.status, item.syndrome) for item in mine] == known + flushed

    async def finish(self, ctx):
        """All that is posted completes, as each QP goes to ERR, when what came before has been looked at."""
        await ctx.tick().repeat(200)
        for qp in range(QPS):
            await self.change(ctx, qp, QpState.ERR, QpAction.ERROR)
        while len(self.completions) < sum(map(len, self.ring.posted)):
            await ctx.tick()
        await ctx.tick().repeat(60)


@pytest.mark.parametrize("packets", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_receive_wqes_of_uc(packets):
    """A WRITE that is refused costs its own message, and the receive WQE of its immediate; what else is lost costs
    none; a receive WQE whose key is wrong ends the QP's life. The peer is told nothing."""
    world = Unreliable()
    rng, ring = world.rng, world.ring
    middle = [None] * QPS  # of a WRITE: bytes still to come

    def key(odds):
        return rng.getrandbits(31) * 2 + (rng.random() < odds)

    async def script(ctx):
        for _ in range(packets):
            qp = rng.randrange(QPS)
            rules = world.rules[qp]
            if rng.random() < 0.5 and len(ring.posted[qp]) - rules.index < 6:
                if len(ring.posted[qp]) == rules.index:  # what came before is to find none, as the rules say
                    await ctx.tick().repeat(200)
                ring.post(qp, [(0, 600, key(0.03)), (0, 400, key(0.03))])
            more = {}
            if middle[qp] is None:
                opcode, length = rng.choice([SEND_FIRST, SEND_ONLY, WRITE_FIRST, WRITE_ONLY, WRITE_ONLY_IMM]), 256
                if opcode not in (SEND_FIRST, WRITE_FIRST):
                    length = rng.choice([0, 5, 256])
                count = rng.choice([2, 3])
                total = length if opcode != WRITE_FIRST else 256 * count
                more = {"rkey": key(0.3), "dma_length": total} if opcode >= WRITE_FIRST else {}
                if opcode in (SEND_FIRST, WRITE_FIRST):
                    middle[qp] = opcode, count - 1
            else:
                (first, left), length = middle[qp], 256
                if left > 1:
                    opcode, middle[qp] = first + 1, (first, left - 1)
                else:
                    opcode, middle[qp] = first + 2 + rng.randrange(2), None
            if rng.random() < 0.06:
                more["psn"] = rules.epsn + 1
            await world.packet(ctx, qp, opcode, length, **more)
        await world.finish(ctx)

    world.simulate(script)
    assert {KEY, POISONED} <= set(world.verdicts)
    assert any((ACCESS, KEY) in expected for expected in world.expected)


@pytest.mark.parametrize("opcode", [SEND_ONLY, WRITE_ONLY_IMM])
def test_a_ring_error_behind_a_refused_write_of_uc(opcode):
    """It is told all the same; and those that live are flushed as ever."""
    world = Unreliable()

    async def script(ctx):
        for qp in range(QPS):
            await world.packet(ctx, qp, WRITE_ONLY, 8, dma_length=8, rkey=3)
        await ctx.tick().repeat(200)
        world.ring.frozen = True
        for qp in range(QPS):
            world.ring.post(qp, [(0, 600, 2)])
        world.ring.errors[0] = 1
        more = {"dma_length": 8, "rkey": 2} if opcode == WRITE_ONLY_IMM else {}
        await world.packet(ctx, 0, opcode, 8, **more)
        world.ring.frozen = False
        await world.finish(ctx)

    world.simulate(script)
    assert world.dead[0] == QP_FATAL
    assert world.expected[0] == [(OPERATION, 22)]


def test_a_ring_error_at_the_end_of_a_refused_write_of_uc():
    """Its immediate would need a receive WQE."""
    world = Unreliable()

    async def script(ctx):
        await world.packet(ctx, 1, WRITE_FIRST, 256, dma_length=512, rkey=3)
        world.ring.frozen = True
        world.ring.post(1, [(0, 600, 2)])
        world.ring.errors[1] = 1
        await world.packet(ctx, 1, WRITE_LAST_IMM, 256)
        await world.finish(ctx)

    world.simulate(script)
    assert world.expected[1] == [(OPERATION, 22)]


CAPTURES = Path(__file__).parents[3] / "captures"
IMMEDIATE = (3, 5, 9, 11)
READ_FIRST, READ_ONLY, ATOMIC_ACKNOWLEDGE = 0x0D, 0x10, 0x12

# What the responder has that sent the answers there. `lost`: the frame that never arrived; `late`: the frame before
# which no receive WQE is posted.
REPLAYS = {
    "rc_send_0": {},
    "rc_send_1": {},
    "rc_send_1000": {},
    "rc_send_imm_1000": {},
    "rc_srq_send": {},
    "rc_write_0": {},
    "rc_write_1": {},
    "rc_write_5000": {},
    "rc_write_imm_1000": {},
    "rc_psn_wrap": {},
    "rc_mtu256_v4": {"path_mtu": 1},
    "rc_mtu4096_v4": {"path_mtu": 5},
    "err_rnr_nak": {"late": 30, "min_rnr_timer": 0x36 - 0x20},
    "err_seq_nak_drop_middle": {"lost": 1},
    "err_remote_access_write": {"status": KEY},
    "rc_read_0": {},
    "rc_read_1000": {},
    "rc_read_5000": {},
    "rc_cas": {},
    "rc_faa": {},
}


def recorded(name):
    """Requests and answers of a capture, in order: (QPN, LookedUp) and (PSN, MSN, syndrome). A READ's first response,
    and an atomic's, is an answer, too."""
    for frame in rdpcap(str(CAPTURES / f"{name}.pcap")):
        if not (frame.haslayer(UDP) and frame[UDP].dport == 4791):
            continue
        data = bytes(frame[UDP].payload)[: frame[UDP].len - 8]
        opcode, pad, psn = data[0], data[1] >> 4 & 3, int.from_bytes(data[9:12], "big")
        if opcode in (ACKNOWLEDGE, READ_FIRST, READ_ONLY, ATOMIC_ACKNOWLEDGE):
            yield None, (psn, int.from_bytes(data[13:16], "big"), data[12])
        elif opcode in (COMPARE_SWAP, FETCH_ADD):
            header = {"opcode": opcode, "psn": psn, "address": int.from_bytes(data[12:20], "big")}
            numbers = {"swap": int.from_bytes(data[24:32], "big"), "compare": int.from_bytes(data[32:40], "big")}
            yield int.from_bytes(data[5:8], "big"), {"transport": header} | numbers
        elif opcode <= READ_REQUEST:
            place = 12
            header = {"opcode": opcode, "psn": psn, "ack_request": data[8] >> 7}
            if opcode in (6, 10, 11, READ_REQUEST):
                header["address"] = int.from_bytes(data[12:20], "big")
                header["rkey"] = int.from_bytes(data[20:24], "big")
                header["dma_length"] = int.from_bytes(data[24:28], "big")
                place = 28
            if opcode in IMMEDIATE:
                place += 4
            header["length"] = len(data) - place - pad - 4  # ICRC
            yield int.from_bytes(data[5:8], "big"), {"transport": header}


@pytest.mark.parametrize("name", REPLAYS)
def test_answers_as_linux_does(name):
    """The requests of a capture bring the ACKs and NAKs that the kernel's Soft-RoCE sent, PSN, MSN and syndrome; but
    that it gives no credits."""
    facts = {"path_mtu": 3, "min_rnr_timer": 12, "late": 0, "lost": None, "status": 0} | REPLAYS[name]
    rng = make_rng()
    dut = shared(Reception)
    ring = Ring(dut, rng, [4] * QPS)
    rights = {"access": 14, "max_dest_rd_atomic": 16}
    fields = attributes(log_rq_stride=4, **rights, path_mtu=facts["path_mtu"], min_rnr_timer=facts["min_rnr_timer"])
    answers = []

    async def script(ctx):
        for signal in (dut.access.ready, dut.done.valid, dut.completion.ready, dut.error.ready):
            ctx.set(signal, 1)
        ctx.set(dut.done.payload, {"status": 0})
        numbers, expected = [], []
        for count, (number, what) in enumerate(recorded(name)):
            if number is None:
                expected.append(what)
                continue
            if count == facts["lost"]:
                continue
            if number not in numbers:
                numbers.append(number)
                qp = len(numbers) - 1
                await write_attributes(ctx, dut, qp, **fields)
                token = {"qp": qp, "action": QpAction.START_RECEIVE, "psn": what["transport"]["psn"]}
                await send_all(ctx, dut.control, [token])
            if count >= facts["late"]:
                ring.post(numbers.index(number), [(0x1000, 1 << 20, 2)])
            ctx.set(dut.done.payload, {"status": facts["status"]})
            await send_all(ctx, dut.request, [what | {"qp": numbers.index(number), "accept": 1}])
            for _ in range(30):
                await ctx.tick()
        assert expected
        got = [(psn, msn, 0x1F if syndrome < 0x20 else syndrome) for psn, msn, syndrome in answers]
        assert got == expected

    async def said(ctx):
        """ACKs, and responses as soon as they are released, which leave at once."""
        ctx.set(dut.ack.ready, 1)
        ctx.set(dut.release.ready, 1)
        ctx.set(dut.recalled, 1)
        ctx.set(dut.entry.ready, 1)
        entries = []
        async for _, _, enable, row, released, acked, ack in ctx.tick().sample(
            dut.entry.valid, dut.entry.payload, dut.release.valid, dut.ack.valid, dut.ack.payload
        ):
            if enable:
                entries.append(row.entry)
                ctx.set(dut.served, len(entries))
            if released:
                entry = entries[-1]
                answers.append((entry.psn, entry.msn, entry.credits))
                ctx.set(dut.answered.payload, {"qp": row.qp, "last": 1})
            ctx.set(dut.answered.valid, released)
            if acked:
                answers.append((ack.psn, ack.msn, ack.syndrome))

    simulate(dut, script, background=[ring.run, said], seed=rng.seed_value)
