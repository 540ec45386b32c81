"""Events of the port."""

from amaranth.sim import Simulator
from verbena.hdl.control.port_state import PortState


def test_each_change_is_told_once():
    dut = PortState()

    async def bench(ctx):
        seen = []

        async def run(link, ready, cycles):
            ctx.set(dut.link, link)
            ctx.set(dut.event.ready, ready)
            for _ in range(cycles):
                _, _, valid, payload = await ctx.tick().sample(dut.event.valid, dut.event.payload)
                if valid and ready:
                    seen.append((payload.type, payload.number))

        await run(1, 1, 5)
        assert seen == []
        await run(0, 1, 5)
        assert seen == [(10, 1)]
        await run(1, 0, 5)  # waits at the output, and is taken back while it does
        await run(0, 0, 5)
        await run(0, 1, 5)
        assert seen == [(10, 1), (9, 1), (10, 1)]

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
