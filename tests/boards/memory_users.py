"""Who uses a node's memory: AXI and a bridge, against a dictionary."""

from streams import pause, receive_all, send_all, simulate

__all__ = ["BASE", "outside", "three_users"]

BASE, SIZE = 0x4000_0000, 8192
OKAY, DECERR = 0, 3


class Axi:
    """A manager that has one read and one write under way, each with random gaps."""

    def __init__(self, port, rng, lanes):
        self.port, self.rng, self.lanes = port, rng, lanes

    async def _address(self, ctx, channel, number, address, beats):
        port = self.port
        for name, value in {"id": number, "addr": address, "len": beats - 1, "size": 3, "burst": 1, "valid": 1}.items():
            ctx.set(getattr(port, channel + name), value)
        taken = 0
        while not taken:
            *_, taken = await ctx.tick().sample(getattr(port, f"{channel}ready"))
        ctx.set(getattr(port, f"{channel}valid"), 0)

    async def read(self, ctx, address, beats):
        port, number, data, answers = self.port, self.rng.randrange(1 << len(self.port.arid)), b"", set()
        await self._address(ctx, "ar", number, address, beats)
        for beat in range(beats):
            await pause(ctx, self.rng, 0.3)
            ctx.set(port.rready, 1)
            valid = 0
            while not valid:
                *_, valid, rid, rdata, rresp, rlast = await ctx.tick().sample(
                    port.rvalid, port.rid, port.rdata, port.rresp, port.rlast
                )
            ctx.set(port.rready, 0)
            assert (rid, rlast) == (number, beat == beats - 1)
            data += rdata.to_bytes(self.lanes, "little")
            answers.add(rresp)
        (answer,) = answers
        return data, answer

    async def write(self, ctx, address, data, strobes):
        port, number = self.port, self.rng.randrange(1 << len(self.port.arid))
        beats = len(data) // self.lanes
        await self._address(ctx, "aw", number, address, beats)
        for beat in range(beats):
            await pause(ctx, self.rng, 0.3)
            ctx.set(port.wdata, int.from_bytes(data[beat * self.lanes :][: self.lanes], "little"))
            ctx.set(port.wstrb, strobes >> beat * self.lanes & (1 << self.lanes) - 1)
            ctx.set(port.wlast, beat == beats - 1)
            ctx.set(port.wvalid, 1)
            taken = 0
            while not taken:
                *_, taken = await ctx.tick().sample(port.wready)
            ctx.set(port.wvalid, 0)
        await pause(ctx, self.rng, 0.3)
        ctx.set(port.bready, 1)
        valid = 0
        while not valid:
            *_, valid, bid, bresp = await ctx.tick().sample(port.bvalid, port.bid, port.bresp)
        ctx.set(port.bready, 0)
        assert bid == number
        return bresp


def three_users(dut, rng, *, background=(), deadline=100_000):
    """AXI reads, AXI writes and the bridge at the same time, each in a part of its own; then each reads all."""
    lanes = dut.data_width // 8
    axi = Axi(dut.axi, rng, lanes)
    model = bytearray(SIZE)
    ready = []

    def burst(start, size):
        beats = rng.randrange(1, 17)
        return BASE + start + rng.randrange(0, size - beats * lanes, lanes), beats

    async def bridge(ctx, address, value=None):
        request = {"address": address, "data": value or 0, "write": value is not None}
        await send_all(ctx, dut.bus.request, [request], rng)
        (answer,) = await receive_all(ctx, dut.bus.answer, 1, rng)
        return answer

    async def writer(ctx):
        for start in range(0, SIZE, 16 * lanes):
            await axi.write(ctx, BASE + start, bytes(16 * lanes), (1 << 16 * lanes) - 1)
        ready.append(True)
        for _ in range(60):
            address, beats = burst(0, SIZE // 2)
            data, strobes = rng.randbytes(beats * lanes), rng.choice([-1, rng.getrandbits(beats * lanes)])
            assert await axi.write(ctx, address, data, strobes & (1 << beats * lanes) - 1) == OKAY
            for n, byte in enumerate(data):
                if strobes >> n & 1:
                    model[address - BASE + n] = byte
        ready.append(True)

    async def reader(ctx):
        while not ready:
            await ctx.tick()
        for _ in range(40):
            address, beats = burst(SIZE * 3 // 4, SIZE // 4)
            assert await axi.read(ctx, address, beats) == (bytes(beats * lanes), OKAY)
        while len(ready) < 3:
            await ctx.tick()
        for start in range(0, SIZE, 16 * lanes):
            assert await axi.read(ctx, BASE + start, 16) == (model[start : start + 16 * lanes], OKAY)

    async def other(ctx):
        while not ready:
            await ctx.tick()
        for _ in range(150):
            at = rng.randrange(SIZE // 2, SIZE * 3 // 4, 4)
            if rng.random() < 0.5:
                value = rng.getrandbits(32)
                assert not (await bridge(ctx, BASE + at, value)).error
                model[at : at + 4] = value.to_bytes(4, "little")
            else:
                answer = await bridge(ctx, BASE + at)
                assert (answer.data, answer.error) == (int.from_bytes(model[at : at + 4], "little"), 0)
        ready.append(True)
        while len(ready) < 3:
            await ctx.tick()
        for at in rng.sample(range(0, SIZE, 4), 100):
            assert (await bridge(ctx, BASE + at)).data == int.from_bytes(model[at : at + 4], "little")

    simulate(dut, writer, reader, other, background=background, seed=rng.seed_value, deadline=deadline)


def outside(dut, rng, size, *, background=(), deadline=20_000):
    """DECERR, an error for the bridge, and no effect."""
    axi = Axi(dut.axi, rng, 8)

    async def host(ctx):
        assert await axi.write(ctx, BASE, b"A" * 16, 0xFFFF) == OKAY
        for far in (size, -size, 1 << 63, 1 << 32, -BASE):
            assert await axi.write(ctx, BASE + far, b"B" * 16, 0xFFFF) == DECERR
            assert (await axi.read(ctx, BASE + far, 2))[1] == DECERR
        for address in (BASE + size, 0, BASE - 4):
            for write in (0, 1):
                await send_all(ctx, dut.bus.request, [{"address": address, "data": 7, "write": write}])
                (answer,) = await receive_all(ctx, dut.bus.answer, 1)
                assert answer.error
        assert await axi.read(ctx, BASE, 2) == (b"A" * 16, OKAY)

    simulate(dut, host, background=background, seed=rng.seed_value, deadline=deadline)
