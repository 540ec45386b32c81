"""Two adapters under cocotb, and the driver in a thread of the test; started by test_cocotb.py."""

import random

import cocotb
from bench_common import exchange, start
from cocotb.task import bridge
from verbena.sim.cocotb_port import provide_ports
from verbena.sim.pair import End, connect


@cocotb.test()
async def both_directions_and_memory_that_stalls_and_shuffles(dut):
    """What the world does to an adapter it does under cocotb, too."""
    world = await start(dut)
    names = provide_ports(dut, world)

    def program():
        rng = random.Random(cocotb.RANDOM_SEED)
        with End(names[0], 16384, depth=16) as a, End(names[1], 16384, depth=16) as b:
            connect(a, b, mtu=1024, psn=0xFFFFFE)
            for near, far in ((a, b), (b, a)):
                exchange(world, near, far, rng)
        for adapter in world.adapters:
            adapter.set_memory(stall=0.2, shuffle=True)
        with End(names[0], 16384, depth=16) as a, End(names[1], 16384, depth=16) as b:
            connect(a, b, mtu=256)
            exchange(world, a, b, rng)

    await bridge(program)()
    for adapter in world.adapters:
        assert adapter.bus_counters["decode_errors"] == 0
    world.check()
