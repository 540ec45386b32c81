"""Responder, acknowledger and READ/atomic responder with more QPs than there are places for: as in
:mod:`test_responder_side`, but each QP is taken out of its place now and then, and put into another one later."""

from collections import deque

import pytest
from receive_world import (
    READ_REQUEST,
    SEND_LAST,
    SEND_ONLY,
    WRITE_LAST_IMM,
    WRITE_ONLY_IMM,
    Ring,
    attributes,
    write_attributes,
)
from reception import QPS, SwappedReception
from request_peer import NUMBERS, READS, Peer
from streams import collect, make_rng, plain, receive_all, send_all, shared, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.transport.common.layouts import PayloadSource, TxDescriptorKind

PEERS = 6
BLOCKS = ("responder", "acknowledger", "read_atomic_responder")
USE_WQE = (SEND_ONLY, SEND_LAST, WRITE_ONLY_IMM, WRITE_LAST_IMM)


class World:
    """Peers, of which some are in a place; host memory and the wire."""

    def __init__(self, messages):
        self.rng = rng = make_rng()
        self.stall = stall = rng.choice([0.0, 0.3])
        self.dut = shared(SwappedReception)
        self.ring = Ring(self.dut, rng, [5] * QPS, stall=stall)
        self.peers = [Peer(rng, None, rng.choice([0, NUMBERS - 5, 777]), messages) for _ in range(PEERS)]
        for peer in self.peers:
            peer.words = None  # while it is away, if it ever was connected
            peer.ring = ([], 0)  # posted, consumed
            peer.moved = peer.in_memory = 0  # bytes of accesses, and of those that are done
            peer.written, peer.completed = [], []
            peer.executed, peer.arrived = {}, {}  # values of atomics; PSNs of responses; each by number
            peer.entries = deque()  # READs and atomics that are neither answered nor given up
            peer.answered = 0  # number behind the last one that is
        self.places = [None] * QPS
        self.closed = [True] * QPS
        self.sending = None  # place
        self.words = {name: [] for name in BLOCKS}
        self.dones = dict.fromkeys(BLOCKS[1:], 0)
        self.now = self.swaps = self.naks = self.replays = 0
        self.accesses, self.runs, self.packets = [], [], []
        self.operations, self.operands, self.inline = deque(), deque(), []

    # -- The command block.
    async def token(self, ctx, place, action):
        """RESPONDER_DONE and READ_ATOMIC_RESPONDER_DONE are waited for."""
        before = dict(self.dones)
        await send_all(ctx, self.dut.control, [{"qp": place, "action": action}])
        while self.dones != {name: count + 1 for name, count in before.items()}:
            await ctx.tick()

    async def swapper(self, ctx):
        rng = self.rng
        for place in range(QPS):
            await write_attributes(
                ctx, self.dut, place, **attributes(log_rq_stride=5, access=14, max_dest_rd_atomic=READS)
            )
        away = list(self.peers)
        while True:
            place = rng.randrange(QPS)
            if self.places[place] is not None:
                self.closed[place] = True
                while self.sending == place:
                    await ctx.tick()
                await self.token(ctx, place, QpAction.SAVE)
                while not all(words and words[-1].last for words in self.words.values()):
                    await ctx.tick()
                peer, self.places[place] = self.places[place], None
                peer.words = {name: [word.data for word in words] for name, words in self.words.items()}
                peer.ring = (self.ring.posted[place], self.ring.consumed[place])
                self.ring.reset(place)
                for words in self.words.values():
                    words.clear()
                away.append(peer)
                self.swaps += 1
            peer = away.pop(rng.randrange(len(away)))
            self.places[place], peer.qp = peer, place
            self.ring.posted[place], self.ring.consumed[place] = peer.ring
            self.ring.fetched[place] = self.ring.consumed[place]
            if peer.words is None:
                await send_all(
                    ctx, self.dut.control, [{"qp": place, "action": QpAction.START_RECEIVE, "psn": peer.first}]
                )
            else:
                await self.token(ctx, place, QpAction.LOAD)
                assert not any(peer.words.values())
            self.closed[place] = False
            for _ in range(rng.choice([0, 50, 100, 200])):
                await ctx.tick()

    def loader(self, name):
        async def testbench(ctx):
            port = getattr(self.dut, f"{name}_loaded")
            while True:
                await ctx.tick()
                for peer in self.peers:
                    if peer.words and peer.qp is not None and self.places[peer.qp] is peer:
                        while peer.words[name]:
                            await send_all(ctx, port, [peer.words[name][0]], self.rng, self.stall)
                            peer.words[name].pop(0)

        return testbench

    async def strobes(self, ctx):
        async for _, _, *dones in ctx.tick().sample(*(getattr(self.dut, f"{name}_token_done") for name in BLOCKS[1:])):
            for name, done in zip(BLOCKS[1:], dones):
                self.dones[name] += done

    # -- The peers.
    async def script(self, ctx):
        rng, late = self.rng, []
        while any(peer.unacked < peer.total for peer in self.peers):
            await ctx.tick()
            place = rng.randrange(QPS)
            peer = self.places[place]
            if self.closed[place] or peer is None:
                continue
            self.sending = place
            if rng.random() < 0.5 and len(self.ring.posted[place]) - self.ring.consumed[place] < 6:
                self.ring.post(place, [(0x1000, 300, 1), (0x2000, 4000, 2)])
            packet = peer.take()
            send = []
            if packet is not None:
                draw = rng.random()
                send = [] if draw < 0.08 else [packet] * (1 + (draw < 0.13))
                if draw > 0.94:
                    late.append((peer, *send))
                    send = []
            todo = [(peer, packet) for packet in send]
            if late and rng.random() < 0.3:
                whose, what = late.pop(0)
                if whose is peer:
                    todo.append((whose, what))
            for _, what in todo:
                item = {"transport": what.fields, "qp": place, "accept": 1, "swap": what.number, "compare": 7}
                await send_all(ctx, self.dut.request, [item], rng, self.stall)
            self.sending = None
        for _ in range(200):
            await ctx.tick()

    def bytes_before(self, peer, number):
        return sum(p.fields["length"] for p in peer.packets if p.number < number)

    # -- Host memory, as the responder writes it.
    async def memory(self, ctx):
        run, pending, dut = [], [], self.dut
        edges = aiter(ctx.tick().sample(dut.done.valid, dut.done.ready))
        while True:
            while self.accesses:
                access = self.accesses.pop(0)
                if access.length and not access.discard:
                    peer = self.places[access.qp]
                    peer.moved += access.length
                    if access.access == 2:
                        peer.written.append((access.key, access.address, access.length))
                    run.append((peer, access.length))
                if access.last:
                    pending.append((self.now + self.rng.choice([5, 40]), run))
                    run = []
            ctx.set(dut.done.valid, bool(pending) and pending[0][0] <= self.now)
            _, _, valid, ready = await anext(edges)
            self.now += 1
            if valid:
                for peer, length in pending[0][1]:
                    peer.in_memory += length
                pending[0] = (pending[0][0], [])
                if ready:
                    pending.pop(0)

    async def atomic_unit(self, ctx):
        """Each atomic is executed once."""
        dut = self.dut
        while True:
            await ctx.tick()
            if self.operations and self.operands:
                peer, number = self.operations.popleft()
                operands = self.operands.popleft()
                assert (operands.swap, operands.compare) == (number, 7)
                assert number not in peer.executed
                value = self.rng.getrandbits(64)
                await send_all(ctx, dut.result, [{"value": value, "ok": 1}], self.rng, self.stall)
                peer.executed[number] = value

    # -- The transmitter, and what becomes of the responses.
    async def transmitter(self, ctx):
        """One packet after the other, each with its run; some get lost."""
        dut, rng = self.dut, self.rng
        while True:
            await ctx.tick()
            if not (self.packets and self.runs):
                continue
            packet, run = self.packets.pop(0), self.runs.pop(0)
            assert packet.qp == run.qp
            for _ in range(rng.choice([0, 0, 20])):
                await ctx.tick()
            peer, header = self.places[packet.qp], packet.transport
            if packet.kind == TxDescriptorKind.RESPONSE_TOKEN:
                assert run["clear"]
                await send_all(ctx, dut.answered_i, [{"qp": packet.qp}])
                continue
            number = peer.number(header.psn)
            (request,) = [p for p in peer.packets if p.number <= number < p.number + p.count]
            value = None
            if packet.source == PayloadSource.ATOMIC:
                while number not in peer.executed:
                    await ctx.tick()
                value = peer.executed[number]
            elif packet.source == PayloadSource.INLINE:
                (beat,) = await receive_all(ctx, dut.inline, 1)
                value = int.from_bytes(beat.data.to_bytes(8, "little"), "big")
                assert value == peer.executed[number]
                self.replays += 1
            else:
                assert run.address == request.fields["address"] + 256 * (number - request.number)
            assert peer.in_memory >= self.bytes_before(peer, request.number)
            if rng.random() < 0.9:
                self.respond(peer, request, number)
            if packet.message_last:
                answer = {"qp": packet.qp, "psn": header.psn, "msn": header.msn, "last": 1}
                await send_all(ctx, dut.answered_i, [answer])

    def respond(self, peer, request, number):
        arrived = peer.arrived.setdefault(request.number, set())
        arrived.add(number)
        if len(arrived) == request.count:
            peer.respond(request.number)

    async def look(self, ctx):
        """What is cut: descriptors, and runs, of which those of atomics go to the atomic unit, too."""
        dut = self.dut
        packets, runs = dut.packet, dut.read_atomic_responder_access
        edges = aiter(
            ctx.tick().sample(packets.valid & packets.ready, packets.payload, runs.valid & runs.ready, runs.payload)
        )
        while True:
            ctx.set(packets.ready, self.rng.random() >= self.stall)
            ctx.set(runs.ready, self.rng.random() >= self.stall)
            _, _, packet_comes, packet, run_comes, run = await anext(edges)
            if packet_comes:
                packet = plain(packet)
                self.packets.append(packet)
                if packet.source == PayloadSource.ATOMIC and packet.kind == TxDescriptorKind.RESPONSE:
                    peer = self.places[packet.qp]
                    self.operations.append((peer, peer.number(packet.transport.psn)))
            if run_comes:
                self.runs.append(plain(run))

    async def entries(self, ctx):
        """What is to be answered, and what the acknowledger hears of it."""
        inside = self.dut.blocks["read_atomic_responder"]
        entry, answered = inside.entry, inside.answered_o
        async for _, _, comes, what, over, answer in ctx.tick().sample(
            entry.valid & entry.ready,
            entry.payload,
            answered.valid & answered.ready & answered.payload.last,
            answered.payload,
        ):
            if comes:
                peer = self.places[what.qp]
                number = peer.number(what.entry.psn)
                (request,) = [p for p in peer.packets if p.number == number and p.responds]
                peer.entries.append(number + request.count)
            if over:
                peer = self.places[answer.qp]
                peer.answered = max(peer.answered, peer.entries.popleft())

    async def acks(self, ctx):
        dut, rng = self.dut, self.rng
        ctx.set(dut.backlog, rng.randrange(2))
        while True:
            await ctx.tick()
            ctx.set(dut.ack.ready, rng.random() >= self.stall)
            _, _, valid, ready, ack = await ctx.tick().sample(dut.ack.valid, dut.ack.ready, dut.ack.payload)
            ctx.set(dut.ack.ready, 0)
            if not (valid and ready):
                continue
            peer = self.places[ack.qp]
            assert ack.syndrome < 0x20 or ack.syndrome in (0x60, 0x2C)
            number = peer.number(ack.psn) + (ack.syndrome < 0x20)
            assert peer.in_memory >= self.bytes_before(peer, number)
            reads = [packet for packet in peer.packets if packet.responds and packet.number < number]
            assert not reads or peer.answered >= reads[-1].number + reads[-1].count
            assert ack.msn >= sum(packet.end for packet in peer.packets if packet.number < number)
            if rng.random() < 0.9:
                peer.acknowledge(number)
                if ack.syndrome >= 0x20:
                    self.naks += 1
                    peer.back()

    async def completions(self, ctx):
        dut = self.dut
        while True:
            for completion in await receive_all(ctx, dut.completion, 1, self.rng, self.stall):
                self.places[completion.qp].completed.append((completion.wqe_index, completion.status))

    async def no_errors(self, ctx):
        ctx.set(self.dut.error.ready, 1)
        async for _, _, error in ctx.tick().sample(self.dut.error.valid):
            assert not error

    def collector(self, port, items):
        async def testbench(ctx):
            await collect(ctx, port, items, self.rng, self.stall)

        return testbench

    def run(self):
        dut = self.dut
        background = [
            self.ring.run, self.swapper, self.strobes, self.memory, self.atomic_unit, self.transmitter, self.look,
            self.entries, self.acks, self.completions, self.no_errors,
            self.collector(dut.responder_access, self.accesses), self.collector(dut.operands, self.operands),
            *(self.loader(name) for name in BLOCKS),
            *(self.collector(getattr(dut, f"{name}_saved"), self.words[name]) for name in BLOCKS),
        ]  # fmt: skip
        simulate(dut, self.script, background=background, seed=self.rng.seed_value, deadline=40_000)
        for peer in self.peers:
            assert peer.written == peer.writes
            assert peer.moved == peer.in_memory == self.bytes_before(peer, peer.total)
            uses = sum(p.end and p.fields["opcode"] in USE_WQE for p in peer.packets)
            assert peer.completed == [(number & 0xFFFF, 0) for number in range(uses)]
            atomics = [p.number for p in peer.packets if p.responds and p.fields["opcode"] != READ_REQUEST]
            assert sorted(peer.executed) == atomics


@pytest.mark.parametrize("messages", [8, pytest.param(16, marks=pytest.mark.slow)])
def test_lossy_requests_of_more_qps_than_places(messages):
    """Whatever is asked for happens once, in order; nothing is answered for before it is done, and each atomic's answer
    is what it found."""
    world = World(messages)
    world.run()
    print(world.now, "cycles", world.swaps, "swaps", world.naks, "NAKs", world.replays, "replays")
    assert world.swaps >= 8
    assert world.naks
    assert world.replays
