"""What differs between two frames, field by field."""

from verbena.sim.trace.packets import dissect

__all__ = ["compare", "differences"]


def differences(frame, expected):
    """Lines such as ``bth.pad 1, expected 3``; None if one of them is no RoCE frame."""
    ours, theirs = dissect(frame), dissect(expected)
    if ours is None or theirs is None:
        return None
    lines = []
    for name in dict.fromkeys([*ours.fields, *theirs.fields]):
        found, wanted = ours.fields.get(name), theirs.fields.get(name)
        if found != wanted:
            wide = max(found or 0, wanted or 0) > 0xFFFF
            lines.append(f"{name} {_number(found, wide)}, expected {_number(wanted, wide)}")
    if len(frame) != len(expected):
        lines.append(f"{len(frame)} bytes, expected {len(expected)}")
    if not lines:
        at = next(i for i, (a, b) in enumerate(zip(frame, expected)) if a != b)
        what = "ICRC" if at >= len(frame) - 4 else "payload"
        lines.append(f"{what}: byte {at} {frame[at]:#04x}, expected {expected[at]:#04x}")
    return lines


def _number(value, wide):
    return "absent" if value is None else f"{value:#x}" if wide else str(value)


def compare(left, right):
    """Lines about ``left == right`` for pytest, if these are frames or lists of frames; otherwise None."""
    if isinstance(left, bytes | bytearray) and isinstance(right, bytes | bytearray) and left != right:
        lines = differences(bytes(left), bytes(right))
        return lines and ["frames differ", *lines]
    if isinstance(left, list) and isinstance(right, list):
        for number, (frame, expected) in enumerate(zip(left, right)):
            lines = compare(frame, expected)
            if lines:
                return [f"frame {number} of {len(left)} differs, expected {len(right)}", *lines[1:]]
    return None
