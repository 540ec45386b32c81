"""Responder and acknowledger against requesters in Python whose packets, and whose responses, get lost, doubled, late:
whatever is asked for happens once, in order, and nothing is answered for before it is done."""

from types import SimpleNamespace

import pytest
from receive_world import READ_REQUEST, REPEAT, REPLAY, SEND_LAST, SEND_ONLY, Ring, attributes, write_attributes
from reception import QPS, Reception
from request_peer import NUMBERS, READS, RESPONDING, Peer
from streams import collect, make_rng, send_all, shared, simulate
from verbena.hdl.abi.commands import QpAction


@pytest.mark.parametrize("messages", [10, pytest.param(30, marks=pytest.mark.slow)])
def test_lossy_requests(messages):
    rng = make_rng()
    stall = rng.choice([0.0, 0.3])
    dut = shared(Reception)
    ring = Ring(dut, rng, [5] * QPS, stall=stall)
    peers = [Peer(rng, qp, rng.choice([0, NUMBERS - 5, 777]), messages) for qp in range(QPS)]
    values = attributes(log_rq_stride=5, access=14, max_dest_rd_atomic=READS)
    rings = [[] for _ in range(QPS)]  # entries as (opcode or REPLAY, number)
    state = SimpleNamespace(now=0, naks=0, entered=0, replays=0)
    moved, in_memory = [0] * QPS, [0] * QPS  # bytes of accesses, and of those that are done
    written = [[] for _ in range(QPS)]
    released, served, left = [0] * QPS, [0] * QPS, []
    last_answered = [0] * QPS  # numbers for which a response has left
    completions, accesses = [], []

    def bytes_before(peer, number):
        return sum(p.fields["length"] for p in peer.packets if p.number < number)

    async def script(ctx):
        for qp, peer in enumerate(peers):
            await write_attributes(ctx, dut, qp, **values)
            await send_all(ctx, dut.control, [{"qp": qp, "action": QpAction.START_RECEIVE, "psn": peer.first}])
        late = []
        while any(peer.unacked < peer.total for peer in peers):
            peer = rng.choice(peers)
            if rng.random() < 0.5 and len(ring.posted[peer.qp]) - ring.consumed[peer.qp] < 6:
                ring.post(peer.qp, [(0x1000, 300, 1), (0x2000, 4000, 2)])
            packet = peer.take()
            send = []
            if packet is not None:
                draw = rng.random()
                send = [] if draw < 0.08 else [packet] * (1 + (draw < 0.13))
                if draw > 0.94:
                    late.append((peer, *send))
                    send = []
            elif rng.random() < 0.7:
                for _ in range(5):
                    await ctx.tick()
            todo = [(peer, packet) for packet in send]
            if late and rng.random() < 0.3:
                todo.append(late.pop(0))
            for whose, what in todo:
                item = {"transport": what.fields, "qp": whose.qp, "accept": 1, "swap": what.number, "compare": 7}
                await send_all(ctx, dut.request, [item], rng, stall)
        for _ in range(100):
            await ctx.tick()

    async def entries(ctx):
        ctx.set(dut.recalled, 1)
        ctx.set(dut.room, 1)
        edges = aiter(ctx.tick().sample(dut.entry.valid, dut.entry.ready, dut.entry.payload, dut.served_qp))
        while True:
            ctx.set(dut.entry.ready, rng.random() >= stall)
            _, _, valid, ready, row, qp = await anext(edges)
            ctx.set(dut.served, served[qp] % 256)
            if not (valid and ready):
                continue
            peer, entry = peers[row.qp], row.entry
            assert len(rings[row.qp]) - served[row.qp] < 16
            number = peer.number(entry.psn)
            (packet,) = [packet for packet in peer.packets if packet.number == number]
            assert (entry.address, entry.rkey) == (packet.fields["address"], packet.fields["rkey"])
            kind = entry.kind.value
            opcode = packet.fields["opcode"]
            again = any(old.number == number for _, old in rings[row.qp])
            if again:
                assert kind == (REPEAT if opcode == READ_REQUEST else REPLAY)
            else:
                assert kind == RESPONDING.index(opcode)
            if opcode == READ_REQUEST:
                after = (entry.psn + packet.count) % NUMBERS
                assert entry.swap == packet.fields["dma_length"] | after << 32
            else:
                assert (entry.swap, entry.compare) == (number, 7)
            if not again:
                assert entry.msn == packet.index + 1
            rings[row.qp].append((kind, packet))
            state.entered += 1
            state.replays += kind == REPLAY

    async def memory(ctx):
        """Access check and DMA engine: a run is done some time later."""
        run, pending = [], []
        edges = aiter(ctx.tick().sample(dut.done.valid, dut.done.ready))
        while True:
            while accesses:
                access = accesses.pop(0)
                if access.length and not access.discard:
                    moved[access.qp] += access.length
                    if access.access == 2:
                        written[access.qp].append((access.key, access.address, access.length))
                    run.append((access.qp, access.length))
                if access.last:
                    pending.append((state.now + rng.choice([5, 40]), run))
                    run = []
            ctx.set(dut.done.valid, bool(pending) and pending[0][0] <= state.now)
            _, _, valid, ready = await anext(edges)
            state.now += 1
            if valid:
                for qp, length in pending[0][1]:
                    in_memory[qp] += length
                pending[0] = (pending[0][0], [])
                if ready:
                    pending.pop(0)

    async def read_atomic_responder(ctx):
        """Releases, and responses that leave in the order of a QP; some get lost on their way."""
        waiting = []
        edges = aiter(ctx.tick().sample(dut.release.valid, dut.release.ready, dut.release.payload))
        while True:
            ctx.set(dut.release.ready, rng.random() >= stall)
            _, _, valid, ready, release = await anext(edges)
            if valid and ready:
                assert not release.token
                qp = release.qp
                _, packet = rings[qp][released[qp]]
                assert in_memory[qp] >= bytes_before(peers[qp], packet.number)
                released[qp] += 1
                waiting.append(qp)
            if waiting and rng.random() < 0.05:
                qp = waiting.pop(0)
                _, packet = rings[qp][served[qp]]
                served[qp] += 1
                last = packet.number + packet.count
                last_answered[qp] = max(last_answered[qp], last)
                if rng.random() < 0.85:
                    peers[qp].respond(packet.number)
                left.append({"qp": qp, "psn": packet.fields["psn"], "last": 1})

    async def transmitter(ctx):
        while True:
            await ctx.tick()
            if left:
                await send_all(ctx, dut.answered, [left.pop(0)])

    async def acks(ctx):
        got = []
        while True:
            await ctx.tick()
            ctx.set(dut.ack.ready, rng.random() >= stall)
            _, _, valid, ready, ack = await ctx.tick().sample(dut.ack.valid, dut.ack.ready, dut.ack.payload)
            ctx.set(dut.ack.ready, 0)
            if not (valid and ready):
                continue
            peer = peers[ack.qp]
            assert ack.syndrome < 0x20 or ack.syndrome in (0x60, 0x2C)
            number = peer.number(ack.psn) + (ack.syndrome < 0x20)
            assert in_memory[peer.qp] >= bytes_before(peer, number)
            reads = [packet for packet in peer.packets if packet.responds and packet.number < number]
            assert not reads or last_answered[peer.qp] >= reads[-1].number + reads[-1].count
            # As many messages as are complete, and credits for no more than there are receive WQEs.
            complete = sum(packet.end for packet in peer.packets if packet.number < number)
            assert ack.msn >= complete
            got.append(ack)
            if rng.random() < 0.9:
                peer.acknowledge(number)
                if ack.syndrome >= 0x20:
                    state.naks += 1
                    peer.back()

    def collector(port, items):
        async def testbench(ctx):
            await collect(ctx, port, items, rng, stall)

        return testbench

    async def no_errors(ctx):
        ctx.set(dut.error.ready, 1)
        async for _, _, error in ctx.tick().sample(dut.error.valid):
            assert not error

    background = [
        ring.run, entries, memory, read_atomic_responder, transmitter, acks, no_errors,
        collector(dut.access, accesses), collector(dut.completion, completions),
    ]  # fmt: skip
    simulate(dut, script, background=background, seed=rng.seed_value, deadline=100_000)
    for qp, peer in enumerate(peers):
        assert written[qp] == peer.writes
        assert moved[qp] == in_memory[qp] == bytes_before(peer, peer.total)
        uses = [p for p in peer.packets if p.end and p.fields["opcode"] in (SEND_ONLY, SEND_LAST, 9, 11)]
        mine = [c for c in completions if c.qp == qp]
        assert [(c.wqe_index, c.status) for c in mine] == [(number, 0) for number in range(len(uses))]
    print(state)
