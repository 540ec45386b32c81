"""The completer between a requester and a peer who do as the book says, and a network that does not: whatever is lost,
doubled or overtaken, every WQE succeeds, in order."""

import pytest
from completer_world import PSNS, QPS, READS, WINDOW, Kind, Message, World
from streams import make_rng
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState
from verbena.hdl.transport.common.layouts import ResponseJobKind

MESSAGES = 10
TIMEOUT = 400
"""Cycles; with these stalls, an answer that is not lost takes up to 190 (60 seeds)."""


class Peer:
    """A responder: takes packets in order, answers, and sends one NAK per gap."""

    def __init__(self, rng, psn, refusal):
        self.rng, self.expected, self.refusal = rng, psn, refusal
        self.msn, self.told = 0, False

    def receive(self, psn, message):
        """Answers to the packet: (kind, psn, syndrome), where READs' packets stand for all from ``psn`` on."""
        if psn > self.expected:
            told, self.told = self.told, True
            return [] if told else [("ack", self.expected, 0x60)]
        read = message.opcode in READS
        if psn == self.expected:
            if not read and self.rng.random() < self.refusal:
                self.told = True
                return [("ack", psn, 0x20 + self.rng.randrange(32))]
            self.expected, self.told = (message.last if read else psn) + 1, False
            self.msn += read or psn == message.last
        if read:
            return [("data", k, 0) for k in range(psn, message.last + 1)]
        return [("ack", self.expected - 1, 31)] if psn == message.last or psn < self.expected - 1 else []


class Side:
    """A QP: its requester, its response receiver and its timer."""

    def __init__(self, world, qp, rng, refusal, bad):
        self.world, self.qp, self.rng, self.bad = world, qp, rng, bad
        start = rng.choice([0, PSNS - 9, rng.randrange(PSNS)])
        self.start = psn = start
        self.messages = []
        for _ in range(MESSAGES):
            opcode = rng.randrange(7)
            length = 1 if opcode > 4 else rng.choice([1, 1, 2, 5])
            self.messages.append(Message(psn, psn + length - 1, opcode, rng.randrange(2)))
            psn += length
        self.end = psn
        self.psn = self.top = start
        self.peer = Peer(rng, start, refusal)
        self.air = []  # (cycle, answer)
        self.last, self.since = None, 0

    @property
    def queue(self):
        return self.world.model.queues[self.qp]

    @property
    def done(self):
        return self.queue.oldest == MESSAGES

    def message_of(self, psn):
        return next(m for m in self.messages if m.first <= psn <= m.last)

    def go_back(self):
        self.psn = self.queue.acked

    async def send(self, ctx):
        """One packet, if that is allowed."""
        if self.psn >= self.end or self.queue.waiting is not None:
            return
        self.psn = max(self.psn, self.queue.acked)
        if self.psn >= self.end:
            return
        message = self.message_of(self.psn)
        index = self.messages.index(message)
        if index - self.queue.oldest >= WINDOW - 1:
            return
        read = message.opcode in READS
        psn, self.psn = self.psn, message.last + 1 if read else self.psn + 1
        if self.psn > self.top:
            if self.psn == message.last + 1:
                await self.world.finish(ctx, self.qp, self.psn - self.top, message)
            else:
                await self.world.sent(ctx, self.qp)
            self.top = self.psn
        if self.rng.random() >= self.bad:
            now = self.world.cycle + 12
            for answer in self.peer.receive(psn, message):
                while self.rng.random() < self.bad:  # again, and perhaps much later
                    self.air.append((now + self.rng.randrange(80), answer))
                if self.rng.random() >= self.bad:
                    self.air.append((now + (25 if self.rng.random() < self.bad else 0), answer))

    def receive(self):
        """Answers that have come, as the response receiver hands them on."""
        now = self.world.cycle
        for answer in [a for when, a in self.air if when <= now]:
            kind, psn, syndrome = answer
            if kind == "ack":
                self.world.ack(self.qp, psn, syndrome)
                continue
            lacking = [(k, m) for k, m in enumerate(self.messages) if m.opcode in READS and m.missing <= m.last]
            lacking = [(k, m) for k, m in lacking if m.first < self.top]
            if not lacking or psn < lacking[0][1].missing:
                self.world.respond(self.qp, ResponseJobKind.NOTHING)
            elif psn == lacking[0][1].missing:
                lacking[0][1].missing += 1
                self.world.respond(self.qp, Kind.DATA, psn, wqe_index=lacking[0][0])
            else:
                self.world.respond(self.qp, Kind.SKIPPED, psn)
        self.air = [(when, a) for when, a in self.air if when > now]

    def time(self):
        now = (self.queue.acked, self.queue.generation)
        if now != self.last or self.world.pending["fired"] or self.queue.acked == self.top:
            self.last, self.since = now, self.world.cycle
        limit = 40 if self.queue.waiting is not None else TIMEOUT
        if self.world.cycle - self.since > limit:
            self.world.fire(self.qp)
            self.since = self.world.cycle


class Loop(World):
    async def finish(self, ctx, qp, packets, message):
        """The last packets of a message are sent for the first time; the model gets a copy of the message."""
        queue = self.model.queues[qp]
        queue.psn += packets - 1
        await self.sent(ctx, qp)
        entry = {"qp": qp, "wqe_index": queue.begun, "last_psn": message.last % PSNS}
        ctx.set(self.dut.outstanding.payload, entry | {"opcode": message.opcode, "signaled": message.signaled})
        ctx.set(self.dut.outstanding.valid, 1)
        await self.tick(ctx)
        ctx.set(self.dut.outstanding.valid, 0)
        queue.messages[queue.begun] = Message(message.first, message.last, message.opcode, message.signaled)


@pytest.mark.parametrize(("bad", "refusal"), [(0, 0), (0.1, 0.1), (0, 0.3)])
def test_all_succeed(bad, refusal):
    rng = make_rng()
    world = Loop(rng, 0.2)

    async def testbench(ctx):
        sides = [Side(world, qp, rng, refusal, bad) for qp in range(QPS)]
        for side in sides:
            await world.start(ctx, side.qp, side.start)
            world.model.queues[side.qp].retry_count = world.model.queues[side.qp].rnr_retry = 7
            await world.state(ctx, side.qp, QpState.RTS)
        seen = 0
        while not all(side.done for side in sides):
            for side in rng.sample(sides, QPS):
                await side.send(ctx)
                side.receive()
                side.time()
            await world.tick(ctx)
            for qp in world.out["retry"][seen:]:
                sides[qp].go_back()
            seen = len(world.out["retry"])
        for side in sides:
            side.air.clear()
            world.control(side.qp, QpAction.QUERY)
        await world.settle(ctx)
        for side in sides:
            want = [(k, 0, 0) for k, m in enumerate(side.messages) if m.signaled]
            assert world.statuses(side.qp) == want

    world.run(testbench, 60_000)
    assert world.out["error"] == []
    assert [reply["index"] for reply in world.out["reply"]] == [MESSAGES] * QPS
    assert bool(world.counts["retries"]) == bool(bad + refusal)
