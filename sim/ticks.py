"""The time of timers: how many cycles stand for how many nanoseconds."""

from .settings import setting

__all__ = ["TICK", "default_tick", "second_ns", "tick_text"]

TICK = 16
"""Cycles that a simulated adapter's timers take for 4.096 us, unless the option ``tick`` says otherwise. True time
would be 640, but a hundred thousand cycles a second are simulated, and nobody wants to wait minutes for a timeout."""

MOST = (1 << 32) - 1
"""Cycles of a tick: the engine's register has so many bits."""

TICKS_A_SECOND = 1 / 4.096e-6


def second_ns(tick, clock_hz):
    """Nanoseconds of simulated time that count as a second, at ``tick`` cycles of ``clock_hz`` for 4.096 us: as much
    less than a true second as the tick is shorter than a true one.
    """
    return round(tick * TICKS_A_SECOND * 1e9 / clock_hz)


def default_tick():
    """``VERBENA_TICK`` of the environment, or :data:`TICK`."""
    return setting("VERBENA_TICK", TICK, least=1, most=MOST)


def tick_text(tick, clock_hz):
    """What timers take, in words: which tick was used, and which is the true one."""
    true = round(clock_hz * 4.096e-6)
    return f"timers: {tick} cycles for 4.096 µs" + (" (true)" if tick == true else f" (true: VERBENA_TICK={true})")
