"""The world around an engine, with the stand-in as the engine."""

import ctypes
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from in_child import in_child
from stand_in import MAGIC, R, stand_in
from verbena.sim.link import connect, listen
from verbena.sim.model import build
from verbena.sim.world import INTERRUPT, TAP, WATCH, BusError, Faults, ProtocolError, World
from verbena.sw import host_memory

pytestmark = pytest.mark.verilator


@pytest.fixture(params=[64, pytest.param(512, marks=pytest.mark.slow)])
def width(request):
    return request.param


@pytest.fixture
def block():
    """A page to read and a page to write, and their bus addresses."""
    address = host_memory.alloc(8192, 4096)
    yield address, *host_memory.bus_pages(address, 8192)
    host_memory.free(address)


def write64(adapter, offset, value):
    adapter.write32(offset, value & 0xFFFFFFFF)
    adapter.write32(offset + 4, value >> 32)


def copy(world, source, target, beats, *, adapter=0, identity=3):
    """Copies with the adapter's engine; returns the worst response so far."""
    a = world.adapters[adapter]
    write64(a, R.SOURCE, source)
    write64(a, R.TARGET, target)
    a.write32(R.COPY, beats | identity << 16)
    while not a.interrupt:
        world.advance(10_000, stop=INTERRUPT)
    a.write32(R.ACKNOWLEDGE, 0)
    return a.read32(R.COPY) >> 16


def send(world, size, count, to, *, adapter=0):
    a = world.adapters[adapter]
    write64(a, R.MAC, int.from_bytes(to.to_bytes(6, "big"), "little"))
    a.write32(R.SEND, size | count << 16)


def expected(size, mac):
    return mac.to_bytes(6, "big") + bytes(i & 255 for i in range(6, size))


def test_registers(width):
    with World(design=stand_in(width)) as world:
        a = world.adapters[0]
        assert a.read32(R.MAGIC) == MAGIC
        a.write32(R.SOURCE, 0x12345678)
        before = world.cycles
        assert a.read32(R.SOURCE) == 0x12345678
        assert world.cycles - before == 3
        with pytest.raises(BusError, match="SLVERR"):
            a.read32(0x40)


@pytest.mark.parametrize("latency", [1, 2, 128, 1000])
def test_read_latency_is_exact(latency, block):
    _, source, target = block
    with World(design=stand_in(), memory_latency=latency) as world:
        copy(world, source, target, 8)
        # The stand-in counts from the cycle of the address to that of the first data.
        assert world.adapters[0].read32(R.ACKNOWLEDGE) == latency


@pytest.mark.parametrize(("latency", "bandwidth"), [(1, 16), (32, 16), (32, 4)])
def test_write_latency_and_bandwidth_are_exact(latency, bandwidth, block):
    _, source, target = block
    cycles = []
    for write_latency in (latency, latency + 7):
        with World(
            design=stand_in(), memory_latency=1, write_latency=write_latency, write_bandwidth=bandwidth
        ) as world:
            copy(world, source, target, 32)
            cycles.append(world.cycles)
    assert cycles[1] - cycles[0] == 7
    with World(design=stand_in(), memory_latency=1, write_latency=latency, write_bandwidth=16) as world:
        copy(world, source, target, 32)
        # 31 beats follow the first, one every 16 / bandwidth cycles.
        assert cycles[0] - world.cycles == pytest.approx(31 * (16 / bandwidth - 1), abs=3)


@pytest.mark.parametrize("settings", [{}, {"stall": 0.5}, {"stall": 0.3, "shuffle": True}, {"read_bandwidth": 3}])
def test_copy_between_scattered_pages(width, block, settings):
    address, source, target = block
    beats = min(4096 * 8 // width, 256)
    data = bytes(i * 7 & 255 for i in range(beats * width // 8))
    host_memory.write(address, data)
    host_memory.write(address + 4096, bytes(4096))
    with World(design=stand_in(width), **settings) as world:
        assert copy(world, source, target, beats) == 0
        assert world.adapters[0].bus_counters == {
            "read_bursts": 1,
            "write_bursts": 1,
            "read_beats": beats,
            "write_beats": beats,
            "decode_errors": 0,
        }
    assert host_memory.read(address + 4096, len(data)) == data


def test_addresses_outside_of_windows_are_decode_errors(block):
    address, source, target = block
    host_memory.write(address + 4096, b"keep")
    with World(design=stand_in()) as world:
        # An address of the process is none of the bus.
        assert copy(world, address, target, 1) == 3
        assert world.adapters[0].bus_counters["decode_errors"] == 1
        assert copy(world, source, address + 4096, 1) == 3
        assert world.adapters[0].bus_counters["decode_errors"] == 2


def test_pinned_memory_is_reachable_until_it_is_unpinned(block):
    import ctypes

    buffer = ctypes.create_string_buffer(b"outside of the arena", 64)
    address = ctypes.addressof(buffer)
    address += -address % 8
    with pytest.raises(ValueError, match="no device reaches"):
        host_memory.bus_pages(address, 8)
    with World(design=stand_in()) as world:
        host_memory.pin(address, 8)
        bus = host_memory.bus_pages(address, 8)[0] + address % 4096
        assert copy(world, bus, block[2], 1) == 0
        assert host_memory.read(block[0] + 4096, 8) == host_memory.read(address, 8)
        host_memory.unpin(address, 8)
        assert copy(world, bus, block[2], 1) == 3


def test_a_broken_burst_is_reported(block):
    _, source, target = block
    with World(design=stand_in()) as world, pytest.raises(ProtocolError, match="AR crosses 4 KiB"):
        copy(world, source + 4088, target, 2)


def test_a_write_becomes_visible_with_its_response_and_wakes_who_watches(block):
    address, source, target = block
    host_memory.write(address, b"\x5a" * 8)
    host_memory.write(address + 4096, bytes(16))
    with World(design=stand_in(), write_latency=500) as world:
        number = world.watch(address + 4096, 8)
        a = world.adapters[0]
        write64(a, R.SOURCE, source)
        write64(a, R.TARGET, target)
        a.write32(R.COPY, 1)
        world.advance(10_000)
        assert world.events == WATCH
        assert host_memory.read(address + 4096, 8) == b"\x5a" * 8
        assert world.advance(10_000) == 2
        assert world.events == INTERRUPT
        world.unwatch(number)
        a.write32(R.ACKNOWLEDGE, 0)
        a.write32(R.COPY, 1)
        assert world.advance(10_000, stop=WATCH) == 10_000
        assert world.idle


@pytest.mark.parametrize("size", [0, 60, 82, 1500])
def test_pacing_is_exact(width, size):
    size = size or 64
    with World(1, stand_in(width)) as world:
        tap = world.tap(0x02_00_00_00_00_99)
        start = None
        send(world, size, 400, tap.mac)
        for _ in range(400):
            while (frame := tap.receive()) is None:
                assert world.advance(10_000, stop=TAP)
            assert frame == expected(size, tap.mac)
            start = start or world.cycles
        bytes_ = width // 8
        occupied = max((max(size, 60) + 24) / bytes_, -(-size // bytes_))
        assert (world.cycles - start) / 399 == pytest.approx(occupied, rel=0.01)


def test_without_pacing_frames_are_back_to_back():
    with World(1, stand_in(), paced=False) as world:
        tap = world.tap(0x02_00_00_00_00_99)
        send(world, 64, 100, tap.mac)
        world.advance(64 // 8 * 100 + 3, stop=0)
        assert tap.counters["received_frames"] == 100


@pytest.mark.parametrize("delay", [0, 50])
def test_between_adapters_a_beat_takes_one_cycle_and_the_delay(delay):
    times = {}
    for end in (0, 1):
        with World(2, stand_in(), wire_delay=delay) as world:
            send(world, 1000, 1, world.adapters[1].mac)
            name = ("sent_frames", "received_frames")[end]
            while not world.adapters[end].counters[name]:
                world.advance(1)
            times[end] = world.cycles
    assert times[1] - times[0] == 1 + delay


def test_loopback_and_flooding(width):
    with World(3, stand_in(width)) as world:
        a, b, _ = world.adapters
        send(world, 100, 2, a.mac)
        world.advance(500)
        assert [x.read32(R.RECEIVED) for x in world.adapters] == [2, 0, 0]
        assert a.read32(R.BYTES) == 200
        send(world, 64, 1, b.mac)
        send(world, 64, 1, 0xFFFF_FFFF_FFFF, adapter=2)
        world.advance(500)
        assert [x.read32(R.RECEIVED) for x in world.adapters] == [3, 2, 0]
        send(world, 64, 1, 0x02_00_00_00_00_77, adapter=1)
        world.advance(500)
        assert [x.read32(R.RECEIVED) for x in world.adapters] == [4, 2, 1]


def test_taps_and_injection(width):
    with World(2, stand_in(width)) as world:
        a, b = world.adapters
        tap = world.tap(0x02_00_00_00_00_99)
        write64(a, R.MAC, int.from_bytes(tap.mac.to_bytes(6, "big"), "little"))
        a.write32(R.ECHO, 1)
        for size in (14, 60, 63, 64, 65, 1500, 4200):
            body = bytes(i * 5 & 255 for i in range(size - 6))
            tap.send(a.mac.to_bytes(6, "big") + body)
            world.advance(5000)
            assert world.events == TAP
            assert tap.receive() == tap.mac.to_bytes(6, "big") + body
            assert tap.receive() is None
        b.inject(bytes(64))
        b.inject(bytes(64), error=True)
        tap.send(b.mac.to_bytes(6, "big") + bytes(58), error=True)
        world.advance(1000)
        assert b.read32(R.RECEIVED) == 3 | 2 << 16
        tap.send(tap.mac.to_bytes(6, "big") + bytes(8), error=True)
        world.advance(100)
        assert tap.receive() is None


def received(world, tap, cycles):
    world.advance(cycles, stop=0)
    frames = []
    while (frame := tap.receive()) is not None:
        frames.append(frame)
    return frames


def faulty(seed, faults, count=200):
    with World(1, stand_in(), seed=seed) as world:
        tap = world.tap(0x02_00_00_00_00_99)
        world.set_faults(faults)
        for i in range(count):
            send(world, 100 + i, 1, tap.mac)
            while world.adapters[0].counters["sent_frames"] <= i:
                world.advance(1, stop=0)
        return received(world, tap, 20_000), world.adapters[0].fault_counters, world.cycles


def test_faults_repeat_from_their_seed():
    faults = Faults(lose=0.1, duplicate=0.1, reorder=0.1, corrupt=0.1, delay=0.05, damage=0.02)
    first = faulty(5, faults)
    assert first == faulty(5, faults)
    assert first != faulty(6, faults)
    assert all(count > 0 for count in first[1].values())


@pytest.mark.parametrize("fault", ["lose", "duplicate", "reorder", "corrupt", "delay", "damage"])
def test_each_fault_does_what_it_says(fault):
    frames, counters, _ = faulty(1, Faults(**{fault: 0.2, "reorder_cycles": 100}))
    n = counters.pop(fault)
    assert 20 < n < 60
    assert not any(counters.values())
    perfect = [expected(100 + i, 0x02_00_00_00_00_99) for i in range(200)]
    if fault in ("lose", "damage"):
        assert len(frames) == 200 - n
        assert frames == [frame for frame in perfect if frame in frames]
    elif fault == "duplicate":
        assert len(frames) == 200 + n
        assert sorted(frames, key=len) == frames
    elif fault == "reorder":
        assert frames != perfect
        assert sorted(frames, key=len) == perfect
    elif fault == "corrupt":
        assert 0 < sum(a != b for a, b in zip(frames, perfect)) <= n
        assert all(sum((x ^ y).bit_count() for x, y in zip(a, b)) <= 3 for a, b in zip(frames, perfect))
    else:
        assert frames == perfect


def test_scripted_faults_hit_one_frame():
    with World(1, stand_in()) as world:
        a = world.adapters[0]
        tap = world.tap(0x02_00_00_00_00_99)
        a.fault_at(1, "lose")
        a.fault_at(3, "corrupt")
        for i in range(5):
            send(world, 64 + i, 1, tap.mac)
            world.advance(50)
        frames = received(world, tap, 1000)
        assert [len(frame) for frame in frames] == [64, 66, 67, 68]
        assert [frame == expected(len(frame), tap.mac) for frame in frames] == [True, True, False, True]
        with pytest.raises(ValueError, match="has been sent"):
            a.fault_at(1, "lose")


def test_reset_leaves_nothing_behind(block):
    _, source, target = block
    with World(2, stand_in()) as world:
        a, b = world.adapters
        write64(a, R.SOURCE, source)
        write64(a, R.TARGET, target)
        a.write32(R.COPY, 8)
        send(world, 1500, 3, b.mac)
        world.advance(100)
        a.reset()
        world.advance(2000)
        assert world.idle
        assert a.read32(R.SOURCE) == 0
        # Of the frame that the reset cut off an end arrives, damaged.
        assert b.read32(R.RECEIVED) == 1 | 1 << 16
        assert copy(world, source, target, 8) == 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1, 2, 0)])
def test_worlds_end_in_any_order(order):
    """In a process of its own: who waits there for ever cannot be interrupted."""
    build(stand_in())  # before time runs
    program = f"""
from stand_in import stand_in
from verbena.sim.world import World
worlds = [World(2, stand_in()) for _ in {order}]
for number in {order}:
    worlds[number].advance(100)
    worlds[number].close()
with World(1, stand_in()) as another:
    another.advance(100)
"""
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=True, timeout=60)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="lose must be a probability, not 2"):
        Faults(lose=2)
    with pytest.raises(ValueError, match="adapters must be at least 1, not 0"):
        World(0, stand_in())
    with World(1, stand_in()) as world:
        with pytest.raises(ValueError, match="no memory setting 'speed'"):
            world.adapters[0].set_memory(speed=1)
        with pytest.raises(ValueError, match="no wire setting 'speed'"):
            world.set_wire(speed=1)
        with pytest.raises(OSError, match="without trace"):
            world.waves("x")
    with pytest.raises(ValueError, match="closed"):
        world.advance(1)


def test_a_child_process_has_no_part_in_a_world(tmp_path):
    """Though a thread of its parent is inside; a world of its own it may have. A capture has each frame once."""
    with World(2, stand_in()) as world:
        world.capture(tmp_path / "a.pcapng")
        frame = bytes.fromhex("025642000002 025642000001") + bytes(range(100, 200))
        tap = world.tap(0x02_00_00_00_00_99)
        tap.send(frame)
        other = threading.Thread(target=world.advance, args=(3_000_000, 0))
        other.start()
        while world._lock.acquire(blocking=False):  # until the thread has it
            world._lock.release()
            time.sleep(0.001)

        def child():
            closed = world.closed
            world.close()
            with World(1, stand_in()) as own:
                value = own.adapters[0].read32(R.MAGIC)
            ctypes.CDLL(None).fflush(None)
            return closed, value == MAGIC

        assert in_child(child) == "(True, True)"
        other.join()
        assert not world.closed
    assert (tmp_path / "a.pcapng").read_bytes().count(frame) == 1


def test_a_world_has_no_threads():
    """Of Verilator. A forked child has none: a world that garbage collection ends there would wait for them without
    end. With a second core there is one of our own.
    """

    def threads():
        return {path.name for path in Path("/proc/self/task").iterdir()}

    before = threads()  # some of which may end meanwhile
    with World(2, stand_in(), cores=1):
        assert threads() <= before
    with World(2, stand_in(), cores=2):
        assert len(threads() - before) == 1
    until = time.monotonic() + 10  # the kernel lists one that has been joined for a moment yet
    while threads() - before and time.monotonic() < until:
        time.sleep(0.01)
    assert threads() <= before


@pytest.mark.parametrize("adapters", [2, 3])
def test_a_second_core_changes_nothing(width, tmp_path, adapters):
    """Registers, memory, frames and their cycles are the same, whoever evaluates an engine."""
    found = []
    for cores in (1, 2):
        host = host_memory.alloc(8192, 4096)
        source, target = host_memory.bus_pages(host, 8192)
        host_memory.write(host, bytes(range(256)) * 16)
        path = tmp_path / f"{cores}.pcapng"
        with World(adapters, stand_in(width), seed=3, cores=cores, wire_delay=5) as world:
            world.capture(path, bus=True)
            world.set_faults(Faults(lose=0.1, delay=0.2))
            for index, adapter in enumerate(world.adapters):
                mac = int.from_bytes(world.adapters[index - 1].mac.to_bytes(6, "big"), "little")
                write64(adapter, R.MAC, mac)
                adapter.write32(R.SEND, 300 | 50 << 16)
            worst = [copy(world, source, target, 16, adapter=index) for index in range(adapters)]
            world.advance(20_000, stop=0)
            received = [adapter.read32(R.RECEIVED) for adapter in world.adapters]
            found.append((worst, received, world.cycles))
        host_memory.free(host)
        found[-1] += (path.read_bytes(),)
    assert found[0] == found[1]
    assert all(count > 0 for count in found[0][1])


def test_a_child_process_has_no_part_in_a_link(tmp_path):
    """The peer is told nothing when the child ends."""
    ends = []
    other = threading.Thread(target=lambda: ends.append(listen(tmp_path / "link", patience=30)))
    other.start()
    near = World(1, stand_in(), link=connect(tmp_path / "link", patience=30))
    other.join()
    far = World(1, stand_in(), first=1, link=ends[0])
    near.move(100, 10)
    assert in_child(lambda: (near.close(), near.closed)) == "(None, True)"
    far.move(100, 10)
    near.move(100, 10)
    assert (near.link, far.link) == ("up", "up")
    near.close()
    far.move(1000, 10)
    assert far.link == "ended"
    far.close()
