"""Takes QPs away from a requester while they live, and brings them back in other slots."""

from streams import pause, receive_all
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.transport.common.layouts import TxDescriptorKind
from verbena.hdl.transport.requester.requester_context import Phase

__all__ = ["Swapper"]


class Swapper:
    """A background testbench beside a world, which does what command block, completer and prefetcher do of a swap.

    ``pauses`` are those before a swap, before SAVE, and before LOAD.
    """

    def __init__(self, world, qps, *, pauses=(0.99, 0.95, 0.95), most=10**6):
        self.world, self.qps, self.pauses, self.most = world, qps, pauses, most
        self.clean = set()  # slots that a QP has left
        self.swaps = 0
        self.retried = 0  # retries between STOP and SAVE
        self.phases = set()  # of states given away

    async def __call__(self, ctx):
        world, rng = self.world, self.world.rng
        while True:
            await pause(ctx, rng, self.pauses[0])
            await ctx.tick()
            ready = [qp for qp in self.qps if qp in world.words]
            if ready and self.swaps < self.most:
                await self.swap(ctx, rng.choice(ready))

    async def token(self, ctx, slot, action):
        port = self.world.dut.control
        ctx.set(port.payload, {"qp": slot, "action": action, "psn": self.world.rng.getrandbits(24)})
        ctx.set(port.valid, 1)
        taken = False
        while not taken:
            _, _, taken = await ctx.tick().sample(port.ready)
        ctx.set(port.valid, 0)

    async def swap(self, ctx, qp):
        world, rng, dut = self.world, self.world.rng, self.world.dut
        if world.busy or world.known[qp] is None or ctx.get(dut.control.valid) or ctx.get(dut.attribute_en):
            return
        world.busy = True
        slot = world.slot[qp]
        tokens, rewinds = self.tokens(qp), len(world.of("rewind", qp))
        await self.token(ctx, slot, QpAction.STOP)
        await self.comes_out(ctx, qp, tokens + 1)
        stopped = len(world.log)
        await pause(ctx, rng, self.pauses[1])
        if qp in world.retries:
            world.said.add(qp)
        world.away.add(qp)
        await self.token(ctx, slot, QpAction.SAVE)
        words = await self.saved(ctx)
        assert len(words) == 2
        self.retried += len(world.of("rewind", qp)) > rewinds
        self.phases.add(Phase(words[0] & 7))
        assert not any(back == qp for _, back, _ in world.rewinds)
        assert qp not in world.said
        of_qp = {name for _, name, item in world.log[stopped:] if "qp" in item and item["qp"] == qp}
        assert of_qp <= {"packet", "access", "rewind"}, of_qp
        kinds = [item["kind"] for _, name, item in world.log[stopped:] if name == "packet" and item["qp"] == qp]
        assert set(kinds) <= {TxDescriptorKind.VOID}
        await self.comes_out(ctx, qp, tokens + 1)
        world.owner[slot] = None
        self.clean.add(slot)
        free = [slot for slot, owner in enumerate(world.owner) if owner not in self.qps]
        await self.load(ctx, qp, rng.choice(free), words)
        self.swaps += 1
        world.busy = False

    async def saved(self, ctx):
        """Words up to the last one, with pauses."""
        port, words, last = self.world.dut.saved, [], False
        while not last:
            item = (await receive_all(ctx, port, 1, self.world.rng, 0.7))[0]
            words.append(item.data)
            last = item.last
        return words

    def tokens(self, qp):
        return sum(item["kind"] == TxDescriptorKind.REQUEST_TOKEN for item in self.world.of("packet", qp))

    async def comes_out(self, ctx, qp, tokens):
        """So many tokens have, and the run of each that was no packet."""
        edges = aiter(ctx.tick())
        while True:
            runs = sum(item["clear"] for item in self.world.of("access", qp))
            others = sum(item["kind"] != TxDescriptorKind.REQUEST for item in self.world.of("packet", qp))
            if self.tokens(qp) >= tokens and runs == others:
                return
            seen = len(self.world.log)
            while seen == len(self.world.log):
                await anext(edges)

    async def load(self, ctx, qp, slot, words):
        world, rng, dut = self.world, self.world.rng, self.world.dut
        if slot not in self.clean:
            tokens = self.tokens(world.owner[slot])
            await self.token(ctx, slot, QpAction.RESET)
            await self.comes_out(ctx, world.owner[slot], tokens + 1)
        self.clean.discard(slot)
        world.slot[qp], world.owner[slot] = slot, qp
        for word, value in enumerate(world.words[qp]):
            ctx.set(dut.attribute, {"index": slot, "word": word, "data": value})
            ctx.set(dut.attribute_en, 1)
            await ctx.tick()
        ctx.set(dut.attribute_en, 0)
        # The completer tells its progress, and puts the QP on the ready queue.
        world.told_anew = (qp, world.known[qp], True)
        world.news.appendleft(world.told_anew)
        world.fetched[qp] = world.consumed[qp]
        world.away.discard(qp)
        world.fetch(ctx, qp)
        world.away.add(qp)
        while world.told_anew is not None:
            await ctx.tick()
        await pause(ctx, rng, self.pauses[2])
        world.starts.append((qp, world.latest[qp]))
        ctx.set(dut.control.payload, {"qp": slot, "action": QpAction.LOAD, "psn": rng.getrandbits(24)})
        ctx.set(dut.control.valid, 1)
        for word in words:
            await pause(ctx, rng, 0.7)
            ctx.set(dut.loaded.payload, word)
            ctx.set(dut.loaded.valid, 1)
            taken = False
            while not taken:
                _, _, taken, early = await ctx.tick().sample(dut.loaded.ready, dut.control.ready)
                assert not early
            ctx.set(dut.loaded.valid, 0)
        await self.token(ctx, slot, QpAction.LOAD)
        world.away.discard(qp)
        world.fetch(ctx, qp)
