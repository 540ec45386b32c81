"""What memory this process has."""

from pathlib import Path

__all__ = ["check_pages"]

MAPS = Path("/proc/self/maps")


def check_pages(start, end, writable):
    """``ValueError`` if the process may not read, or with ``writable`` not write, all of ``[start, end)``. Where the
    system does not tell (there is no ``/proc``) nothing is found wrong.
    """
    try:
        lines = MAPS.read_text().splitlines()
    except FileNotFoundError:
        return
    at = start
    for line in lines:
        span, rights = line.split(maxsplit=2)[:2]
        first, last = (int(edge, 16) for edge in span.split("-"))
        if last <= at:
            continue
        if first > at:
            break
        if rights[0] != "r" or (writable and rights[1] != "w"):
            raise ValueError(f"the process may not {'write' if rights[0] == 'r' else 'read'} its memory at {at:#x}")
        at = last
        if at >= end:
            return
    raise ValueError(f"the process has no memory at {at:#x}")
