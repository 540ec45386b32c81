"""How fast the compiled model runs: ``python -m verbena.sim.speed``.

Cycles a second of processor time with one adapter and with two, idle and with frames on the wire; Python is called once
for all of a run. What else the machine does then does not count, as far as it leaves the caches alone. Then messages a
second of the wall's clock, driver and all (:mod:`.message_speed`), which want a machine that does nothing else.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from verbena.sw.tools.command import command_line

from .link import connect, listen
from .message_speed import KINDS, PLACES, measure_messages
from .model import build, rnic
from .world import World

__all__ = ["figures", "main", "measure", "measure_linked"]

CYCLE_NS = 6.4

FRAME = 1082
"""Bytes of a WRITE's packet at an MTU of 1024."""


def measure(design=None, *, adapters=1, seconds=1.0, frames=False, cores=1):
    """Cycles a second of processor time; with two ``cores``, of the wall's clock.

    With ``frames``, a tap keeps each adapter's receiver busy with frames that the engine does not know, at the rate of
    the line.
    """
    clock = time.process_time if cores == 1 else time.perf_counter
    with World(adapters, design, seed=1, cores=cores) as world:
        tap = world.tap(0x02_00_00_00_00_99)
        done, start = 0, clock()
        while (passed := clock() - start) < seconds:
            if frames:
                for adapter in world.adapters:
                    for _ in range(20):
                        tap.send(adapter.mac.to_bytes(6, "big") + tap.mac.to_bytes(6, "big") + bytes(FRAME - 12))
            done += world.advance(20 * (FRAME + 24) * 8 // world.model.design.data_width, stop=0)
        return done / passed


def measure_linked(design=None, *, delay, cycles=50_000):
    """Two adapters in worlds of their own, linked by a wire of ``delay`` cycles, each on a core if there is one: cycles
    a second of the wall's clock, and of a world's processor time.
    """
    results, errors = [], []

    def play(first, meet, path):
        try:
            with World(
                1, design, seed=1, first=first, link=meet(path, latency_ns=delay * CYCLE_NS, patience=30)
            ) as world:
                world.advance(2000, stop=0)
                start, used = time.perf_counter(), time.thread_time()
                world.advance(cycles, stop=0)
                results.append((cycles / (time.perf_counter() - start), cycles / (time.thread_time() - used)))
                world.advance(2 * delay, stop=0)
        except Exception as error:
            errors.append(error)

    with tempfile.TemporaryDirectory() as folder:
        ends = [(0, listen, Path(folder) / "link"), (1, connect, Path(folder) / "link")]
        threads = [threading.Thread(target=play, args=end) for end in ends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return tuple(min(values) for values in zip(*results))


def _best(repeat, measurement, *arguments, **options):
    """The largest of some results, each a number or a tuple of numbers."""
    return max(measurement(*arguments, **options) for _ in range(repeat))


def figures(design, data_width, *, seconds=1.0, repeat=1, say=print):
    """All figures, as a dictionary for JSON; ``say`` gets a line for each as soon as it is there. Of ``repeat``
    measurements the best one counts: what else the machine does only ever takes something away.
    """
    found = {"data_width": data_width, "cycles_per_second": {}, "messages_per_second": {}}
    cycles, messages = found["cycles_per_second"], found["messages_per_second"]
    for adapters in (1, 2):
        given = {"adapters": adapters, "seconds": seconds}
        idle, busy = (_best(repeat, measure, design, **given, frames=frames) for frames in (False, True))
        name = f"{adapters} adapter{'s' * (adapters > 1)}"
        cycles[name] = {"idle": idle, "frames": busy}
        say(f"{name}: {idle:,.0f} cycles/s idle, {busy:,.0f} with frames arriving")
    both = _best(repeat, measure, design, adapters=2, seconds=seconds, frames=True, cores=2)
    cycles["2 adapters on two cores"] = {"frames": both}
    say(f"2 adapters on two cores: {both:,.0f} cycles/s of the wall's clock, with frames arriving")
    for delay in (80, 500):
        wall, used = _best(repeat, measure_linked, design, delay=delay)
        name = f"2 linked worlds, {delay} cycles apart"
        cycles[name] = {"wall": wall, "processor": used}
        say(f"{name}: {wall:,.0f} cycles/s of the wall's clock, {used:,.0f} of a world's processor time")
    for kind, text in KINDS.items():
        rates = {
            place: _best(repeat, measure_messages, kind, place, seconds=seconds, data_width=data_width)
            for place in PLACES
        }
        messages[kind] = rates
        one, two, programs = rates.values()
        say(
            f"{text}: {one:,.0f} messages/s of the wall's clock in one program on one core, {two:,.0f} on two cores, "
            f"{programs:,.0f} between two programs"
        )
    return found


@command_line
def main(arguments=None):
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m verbena.sim.speed", description="Measure the speed of the simulation."
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="of processor time for each figure (%(default)s)")
    parser.add_argument("--data-width", type=int, default=64, help="64, 128, 256 or 512 (%(default)s)")
    parser.add_argument("--repeat", type=int, default=1, help="times that each is measured; the best one counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args(arguments)
    if options.repeat < 1:
        parser.error(f"--repeat must be at least 1, not {options.repeat}")

    design = rnic(data_width=options.data_width)
    start = time.perf_counter()
    build(design, verbose=True)
    print(f"model ready after {time.perf_counter() - start:.1f} s")
    found = figures(
        design,
        options.data_width,
        seconds=options.seconds,
        repeat=options.repeat,
        say=lambda line: print(line, flush=True),
    )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
