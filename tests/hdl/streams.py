"""How tests drive streams in Amaranth's simulator: random stalls, a printed seed, and a deadlock that says who waits.

A typical test::

    def test_queue(seed=None):
        rng = make_rng(seed)
        dut = Queue(8, 16)
        sent = [rng.randrange(256) for _ in range(100)]

        async def producer(ctx):
            await send_all(ctx, dut.i, sent, rng)

        async def consumer(ctx):
            assert await receive_all(ctx, dut.o, len(sent), rng) == sent

        simulate(dut, producer, consumer, seed=rng.seed_value)

Where many short tests simulate the same block, ``shared(Queue, 8, 16)`` instead of ``Queue(8, 16)`` saves their time.

A background testbench must not sit in ``ctx.tick().until()`` or ``.repeat()`` when the simulation ends: Amaranth 0.5
cannot close it there. Loop over ``ctx.tick()`` instead; ``simulate`` fails where a testbench does not.
"""

import os
import random
import re
from contextlib import nullcontext
from functools import lru_cache, partial
from pathlib import Path
from zlib import crc32

from amaranth.hdl import ClockDomain, Module, ResetInserter, ShapeCastable, Signal, Value, ValueCastable
from amaranth.lib import data, stream
from amaranth.sim import Simulator

__all__ = [
    "Deadlock",
    "Item",
    "Simulation",
    "changes",
    "check_reset_leaves_payload",
    "collect",
    "make_rng",
    "pause",
    "plain",
    "receive_all",
    "received",
    "send_all",
    "shared",
    "simulate",
    "unpacked",
]


class Deadlock(AssertionError):
    """The testbenches did not end before the deadline."""


class Item(dict):
    """Payload of a stream whose shape is a struct: a dictionary whose fields are attributes, too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def plain(value):
    """``data.Const`` to :class:`Item` (structs), list (arrays); anything else as it is. Unions stay ``data.Const``."""
    if not isinstance(value, data.Const):
        return value
    layout = value.shape()
    if isinstance(layout, data.ArrayLayout):
        return [plain(value[i]) for i in range(layout.length)]
    if isinstance(layout, data.UnionLayout):
        return value
    return Item((name, plain(value[name])) for name, _ in layout)


def unpacked(port, bits):
    """The payload of the stream ``port``, as :func:`plain` value, from the number that ``Value.cast(port.payload)`` is.
    To sample that, and unpack what is taken, is faster than to sample the payload in each cycle."""
    shape = port.payload.shape() if isinstance(port.payload, ValueCastable) else None
    return plain(shape.from_bits(bits) if isinstance(shape, ShapeCastable) else bits)


def make_rng(seed=None):
    """A ``random.Random`` with its seed, printed, in ``seed_value``: the one given, else VERBENA_SEED, else one that
    comes from the test's name, so that a test is the same whenever and wherever it runs."""
    if seed is None:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]  # behind it, the phase
        seed = int(os.environ.get("VERBENA_SEED") or crc32(test.rpartition("/")[2].encode()))
    rng = random.Random(seed)
    rng.seed_value = seed
    print(f"seed {seed} (VERBENA_SEED={seed})")
    return rng


async def pause(ctx, rng, stall, domain="sync"):
    """Zero or more cycles: another one with probability ``stall`` each time."""
    edges = aiter(ctx.tick(domain))
    while stall and rng.random() < stall:
        await anext(edges)


def changes(ctx):
    """``ctx.set`` for who sets its ports in each cycle: what has the value already is left alone, because each time the
    simulator evaluates all that hangs on it. Nobody else may set these ports."""
    values = {}

    def put(port, value):
        if values.get(id(port), (None, None))[1] != value:
            values[id(port)] = port, value
            ctx.set(port, value)

    return put


async def send_all(ctx, port, items, rng=None, stall=0.3, *, domain="sync"):
    """Sends ``items`` on the stream ``port``, with random gaps. ``valid`` and the payload stay until they are taken.

    An item is an int, a dictionary of fields (those not named are zero), a list for an array, or a ``data.Const``; an
    int is also good for a struct.
    Returns right after the clock edge at which the last item was taken.
    """
    edges = aiter(ctx.tick(domain).sample(port.ready))
    valid = False
    for item in items:
        while rng is not None and stall and rng.random() < stall:
            if valid:
                ctx.set(port.valid, 0)
                valid = False
            await anext(edges)
        if isinstance(item, int) and not isinstance(port.payload, Value):
            ctx.set(Value.cast(port.payload), item)
        else:
            ctx.set(port.payload, item)
        if not valid:
            ctx.set(port.valid, 1)
            valid = True
        taken = False
        while not taken:
            _, _, taken = await anext(edges)
    if valid:
        ctx.set(port.valid, 0)


async def received(ctx, port, rng=None, stall=0.3, *, domain="sync"):
    """Yields each payload of the stream ``port`` right after the clock edge at which it was taken, for ever."""
    edges = aiter(ctx.tick(domain).sample(port.valid, Value.cast(port.payload)))
    ready = False
    while True:
        while rng is not None and stall and rng.random() < stall:
            if ready:
                ctx.set(port.ready, 0)
                ready = False
            await anext(edges)
        if not ready:
            ctx.set(port.ready, 1)
            ready = True
        valid = False
        while not valid:
            _, _, valid, bits = await anext(edges)
            if not valid and rng is not None and rng.random() < stall:
                break  # `ready` may fall again before `valid`: a block must bear that
        if valid:
            yield unpacked(port, bits)


async def receive_all(ctx, port, count, rng=None, stall=0.3, *, domain="sync"):
    """List of the next ``count`` payloads of the stream ``port``, as :func:`plain` values, taken with random gaps.

    Returns right after the clock edge at which the last payload was taken, with ``ready`` low.
    """
    items = []
    if count > 0:
        async for item in received(ctx, port, rng, stall, domain=domain):
            items.append(item)
            if len(items) == count:
                break
        ctx.set(port.ready, 0)
    return items


async def collect(ctx, port, items, rng=None, stall=0.3, *, domain="sync"):
    """Appends whatever comes on ``port`` to the list ``items``, for ever: for a background testbench."""
    async for item in received(ctx, port, rng, stall, domain=domain):
        items.append(item)


def _streams(path, interface):
    """(path, stream) of all streams in an interface object, whatever the nesting."""
    if isinstance(interface, list | tuple):
        for index, element in enumerate(interface):
            yield from _streams(f"{path}[{index}]", element)
        return
    signature = getattr(interface, "signature", None)
    if signature is None:
        return  # a bare Module
    if isinstance(signature, stream.Signature) or isinstance(signature.flip(), stream.Signature):
        yield path, interface
        return
    for name, member in signature.members.items():
        if member.is_signature:
            yield from _streams(f"{path}.{name}" if path else name, getattr(interface, name))


def _waves_file():
    """Where the waves of the test that runs go, if ``pytest --waves`` asks for them; None otherwise."""
    folder, test = os.environ.get("VERBENA_TEST_WAVES"), os.environ.get("PYTEST_CURRENT_TEST")
    if not folder or not test:
        return None
    name = re.sub(r"[^\w.=-]+", "_", test.partition(" (")[0].partition("::")[2] or test)
    return Path(folder) / f"{name}.vcd"


def simulate(dut, *testbenches, background=(), seed=None, deadline=20_000, vcd=None, period=1e-8):
    """Runs ``dut`` until all ``testbenches`` (``async def testbench(ctx)``) have returned.

    Parameters
    ----------
    dut : Component
    testbenches, background
        Those in ``background`` may run for ever.
    seed : int or None
        Only printed, and named in the error.
    deadline : int
        Cycles of ``sync``; then :class:`Deadlock` names the testbenches that still run and the streams of ``dut`` that
        are valid but not ready.
    vcd : str or None
        File for the waveforms; by default one of ``pytest --waves``.
    """
    view, groups = None, ()
    if not vcd and (vcd := _waves_file()):
        view = str(vcd.with_suffix(".gtkw"))
        groups = {path: [port.valid, port.ready, port.payload] for path, port in _streams("", dut)}
    simulation = getattr(dut, "simulation", None)
    if simulation is None or vcd or period != simulation.period:
        simulation = Simulation(dut, len(testbenches), len(background) + 1, period)
    running = {}

    def tracked(number, testbench):
        name = getattr(testbench, "__name__", f"testbench {number}")
        running[number] = name

        async def wrapper(ctx):
            await testbench(ctx)
            del running[number]

        return wrapper

    async def watchdog(ctx):
        await ctx.delay(deadline * period)
        waiting, idle = [], []
        for path, port in _streams("", dut):
            valid, ready = ctx.get(port.valid), ctx.get(port.ready)
            if valid and not ready:
                waiting.append(f"{path} = {plain(ctx.get(port.payload))}")
            elif ready and not valid:
                idle.append(path)
        raise Deadlock(
            f"after {deadline} cycles (seed {seed}) still running: {', '.join(running.values())}; "
            f"valid but not ready: {'; '.join(waiting) or 'nothing'}; "
            f"ready but not valid: {', '.join(idle) or 'nothing'}"
        )

    print(f"seed {seed}")
    simulation.run([tracked(*item) for item in enumerate(testbenches)], [*background, watchdog], vcd, view, groups)


class Simulation:
    """A block in Amaranth's simulator: each run begins from its initial state, with testbenches of its own.

    ``foreground`` and ``background`` are the most testbenches of a run.
    """

    def __init__(self, dut, foreground=12, background=24, period=1e-8):
        self.dut, self.period = dut, period
        self.places = {False: foreground, True: background}
        self.given = {False: [], True: []}
        self.started = []
        self.sim = None

    def _compile(self):
        m = Module()
        m.domains.sync = ClockDomain()
        m.submodules.dut = self.dut
        self.sim = Simulator(m)
        self.sim.add_clock(self.period)
        for behind, count in self.places.items():
            for number in range(count):
                self.sim.add_testbench(partial(self._given, behind, number), background=behind)

    async def _given(self, behind, number, ctx):
        if number < len(self.given[behind]):
            testbench = self.given[behind][number](ctx)
            self.started.append(testbench)
            await testbench

    def _close(self):
        """Here, so that a testbench that cannot be closed fails its own test and not one that happens to run later."""
        for testbench in self.started:
            try:
                testbench.close()
            except RuntimeError as error:
                raise RuntimeError(
                    f"{testbench.__qualname__} ended in until() or repeat(): loop over tick()"
                ) from error

    def run(self, foreground, background, vcd=None, view=None, groups=()):
        """Until all ``foreground`` have returned; waves go to ``vcd``, their ``groups`` to ``view``."""
        self.given = {False: foreground, True: background}
        self.started = []
        for behind, given in self.given.items():
            if len(given) > self.places[behind]:
                raise ValueError(f"{len(given)} testbenches, but there are {self.places[behind]} places")
        if self.sim is None:
            self._compile()
        else:
            self.sim.reset()
        try:
            with self.sim.write_vcd(str(vcd), view, traces=groups) if vcd else nullcontext():
                self.sim.run()
            self._close()
        finally:
            self.given = {False: [], True: []}


def check_reset_leaves_payload(dut):
    """A reset of ``dut``, with streams of 8 bits, ends ``valid``; the many flip-flops of the payload need none."""
    reset = Signal()

    async def testbench(ctx):
        ctx.set(dut.i.payload, 0x5A)
        ctx.set(dut.i.valid, 1)
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        await ctx.tick()
        assert ctx.get(dut.o.valid)
        ctx.set(reset, 1)
        await ctx.tick()
        assert (ctx.get(dut.o.valid), ctx.get(dut.o.payload)) == (0, 0x5A)

    simulate(ResetInserter(reset)(dut), testbench)


@lru_cache(maxsize=16)
def shared(make, *arguments, **options):
    """``make(...)`` as a block that other tests with the same arguments use, too: Amaranth elaborates and compiles it
    once, which takes longer than most tests run. Nobody may change it but through :func:`simulate`; a test that patches
    what the block is made of makes its own.
    """
    dut = make(*arguments, **options)
    dut.simulation = Simulation(dut)
    return dut
