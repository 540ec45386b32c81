"""A capture of a small world."""

from scapy.utils import rdpcap
from stand_in import stand_in
from test_world import copy, send
from verbena.sim.world import World
from verbena.sw import host_memory


def record(path):
    """Three frames between two adapters, the second lost, a copy, and a tap's frame; the addresses of the copy, and the
    cycles of it all.
    """
    address = host_memory.alloc(8192, 4096)
    source, target = host_memory.bus_pages(address, 8192)
    host_memory.write(address, bytes(range(64)))
    with World(2, stand_in(), seed=3) as world:
        world.capture(path, bus=True, frames="both")
        world.adapters[0].fault_at(1, "lose")
        send(world, 100, 3, world.adapters[1].mac)
        world.advance(500, stop=0)
        assert copy(world, source, target, 8) == 0
        tap = world.tap(0x02_00_00_00_00_99)
        tap.send(world.adapters[1].mac.to_bytes(6, "big") + bytes(6) + b"\x88\xb5" + bytes(46))
        world.advance(100)
        world.flush()
        assert len(rdpcap(str(path))) > 10
        cycles = world.cycles
    host_memory.free(address)
    return source, target, cycles
