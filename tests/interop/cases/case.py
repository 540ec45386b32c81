"""What a case is."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """One line of the table.

    ``run(bench)`` raises if Linux and the adapter do not agree. ``role`` is what the adapter is. ``reason`` explains a
    case in which Linux differs from the specification.
    """

    name: str
    role: str
    run: Callable
    mtu: int = 1024
    faults: str = "none"
    reason: str = ""
    ip: str = "IPv4"
    tool: bool = False
