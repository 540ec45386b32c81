"""Several worlds in one process: one after the other, and side by side."""

import errno
import gc

import pytest
from verbena.sim import devices, ticks
from verbena.sim import world as world_module
from verbena.sim.pair import End, connect
from verbena.sim.world import World
from verbena.sw import host_memory, port
from verbena.sw.verbs import base
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import IBV_WR_RDMA_WRITE
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.wr import SGE, SendWR

pytestmark = pytest.mark.verilator


def free_memory():
    """What is free once all that is forgotten is buried: queue pairs first, then what they kept, and so on."""
    for _ in range(6):
        gc.collect()
        base.bury()
    return [(heap.starts[:], heap.ends[:]) for heap in host_memory._get().heaps]


def ends(world, *names, size=8192):
    return [End(name, size, world=world) for name in names]


def write(a, b, text):
    """Posts a WRITE of ``text`` to where ``b`` has its region."""
    a.mr.write(text, len(text))
    wr = SendWR(1, IBV_WR_RDMA_WRITE, 1, sg=[SGE(a.mr.buf, len(text), a.mr.lkey)])
    wr.set_wr_rdma(b.mr.rkey, b.mr.buf)
    a.qp.post_send(wr)


def finish(a):
    while not (done := a.cq.poll()[1]):
        pass
    assert done[0].status == 0


def closed(call, *args):
    with pytest.raises(PyverbsRDMAError, match="is closed") as caught:
        call(*args)
    assert caught.value.error_code == errno.EINVAL


def test_one_after_the_other():
    free = free_memory()
    for options in ({"adapters": 3, "memory_latency": 20, "seed": 5, "tick": 32}, {"adapters": 2}):
        with World(**options) as world:
            last = f"sim{options['adapters'] - 1}"
            a, b = ends(world, "sim0", last)
            assert list(world.ports) == [f"sim{i}" for i in range(options["adapters"])]
            assert world.ports[last].tick == options.get("tick", ticks.TICK)
            connect(a, b)
            write(a, b, "in this world")
            finish(a)
            assert b.mr.read(13, 0) == b"in this world"
            write(a, b, "and still on its way")
        for call in (a.context.query_counters, a.cq.poll, a.qp.query, b.mr.read):
            closed(call, *([1, 0] if call == b.mr.read else []))
        assert free_memory() == free
        closed(world.context, "sim0")
        world.close()


def test_side_by_side():
    """Neither notices the other: each takes the cycles that it takes alone."""

    def run(worlds):
        pairs = []
        for world in worlds:
            a, b = ends(world, "sim0", "sim1")
            connect(a, b)
            pairs.append((a, b))
        for turn in range(5):
            for number, (a, b) in enumerate(pairs):
                write(a, b, f"turn {turn} of world {number}")
            for a, _ in pairs:
                finish(a)
            for number, (_, b) in enumerate(pairs):
                assert b.mr.read(17, 0) == f"turn {turn} of world {number}".encode()
        return [world.cycles for world in worlds]

    options = {"memory_latency": 60}
    with World(2) as first:
        alone = run([first])
    with World(2, **options) as second:
        alone += run([second])
    with World(2) as first, World(2, **options) as second:
        assert run([first, second]) == alone
        first.close()
        with World(2) as third:
            run([second, third])


def test_memory_registered_in_two_worlds_at_once():
    buffer = bytearray(8192)
    with World(2) as first, World(2) as second:
        regions = [MR(PD(world.context("sim1")), 0, 3, buffer) for world in (first, second)]
        for world, mr in zip((first, second), regions):
            a, b = ends(world, "sim0", "sim1")
            b.pd.close()
            b = End("sim1", 64, world=world)
            connect(a, b)
            b.mr.close()
            b.mr = MR(b.pd, 4096, 3, mr.buf + (4096 if world is second else 0))
            write(a, b, "here")
            finish(a)
        first.close()
        assert (buffer[:4], buffer[4096:4100]) == (b"here", b"here")
        with pytest.raises(BufferError):
            buffer.clear()
    buffer.clear()


def test_a_world_that_is_forgotten_goes_with_all_that_it_had():
    free = free_memory()
    worlds = []
    for _ in range(3):
        world = World(2)
        a, b = ends(world, "sim0", "sim1")
        connect(a, b)
        worlds.append(world._handle)
        del world, a, b
    assert free_memory() == free
    context = World(1).context()
    gc.collect()
    assert context.query_counters("tx_packets")["tx_packets"] == 0  # it keeps its world
    del context
    assert free_memory() == free


def test_an_engine_that_does_not_answer_does_not_hold_its_world():
    free = free_memory()
    with World(2) as world:
        a, b = ends(world, "sim0", "sim1")
        connect(a, b)
        for adapter in world.adapters:
            adapter.reset(1 << 30)
        before = world.cycles
    assert before
    assert a.context._closed
    assert free_memory() == free


def test_names_of_other_worlds():
    with World(1) as world:
        with pytest.raises(PyverbsRDMAError, match="Failed to find device sim1: this world has sim0") as caught:
            world.context("sim1")
        assert caught.value.error_code == errno.ENODEV
        first, second = world.context(), world.context("sim0", push=False)
        assert first._adapter is second._adapter
        assert not second._push
        first.close()
        assert second.query_port(1).state == 4


def test_what_is_made_of_the_options(monkeypatch):
    made = []

    def build(design, trace):
        made.append((design.data_width, trace))
        raise InterruptedError

    monkeypatch.setattr(world_module, "build", build)
    with pytest.raises(InterruptedError):
        World(data_width=512, trace=True)
    assert made == [(512, True)]
    with pytest.raises(ValueError, match="either a design or a data_width"):
        World(design=world_module.rnic(), data_width=64)


@pytest.fixture
def fresh(monkeypatch):
    """No default world yet; the one that there may be is untouched."""
    monkeypatch.setattr(devices, "_world", None)
    monkeypatch.setattr(devices, "_options", {})
    monkeypatch.setattr(port, "_open", {})


def test_the_default_world_is_closed_and_made_anew(fresh):
    free = free_memory()
    devices.configure(memory_latency=20)
    with Context(name="sim0") as context:
        default = devices.world()
        assert default.adapters[0].memory["read_latency"] == 20
        with default.context("sim0") as other:
            assert other._adapter is context._adapter
        with pytest.raises(RuntimeError, match="exists already"):
            devices.configure(seed=3)
        with World(1) as world:
            assert world.context()._adapter is not context._adapter
        assert context.query_counters("tx_packets")["tx_packets"] == 0
    open_ = Context(name="sim1")
    default.close()
    closed(open_.query_port, 1)
    devices.configure(memory_latency=30)
    with Context(name="sim1") as context:
        assert devices.world() is not default
        assert context.query_counters("tx_packets")["tx_packets"] == 0
        assert devices.world().adapters[1].memory["read_latency"] == 30
    devices.world().close()
    assert free_memory() == free
