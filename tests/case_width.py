"""Which of a test's cases are at its narrowest, and at its widest bus."""

from collections import defaultdict

__all__ = ["ends"]


def ends(cases):
    """The first of a function's ``cases`` at its narrowest bus, and the last at its widest."""
    widths = defaultdict(list)
    for case in cases:
        widths[_width(case)].append(case)
    return widths[min(widths)][0], widths[max(widths)][-1]


def _width(case):
    parameters = case.callspec.params if hasattr(case, "callspec") else {}
    width = parameters.get("width", parameters.get("data_width", 0))
    return width if isinstance(width, int) else 0
