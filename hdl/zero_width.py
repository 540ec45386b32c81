"""Finds operators over values of width 0 in a netlist.

Amaranth allows signals of no bits, and its simulator takes ``all()`` of one for 1. yosys writes the same as ``& 1'h0``,
which is 0, and of the cases of a switch it takes the last. So a design may work in simulation and fail as Verilog. No
design of ours may hold such an operator.
"""

import re

__all__ = ["ZeroWidthError", "check_zero_widths"]

SOURCE = re.compile(r'^ *attribute \\src "(.*)"')
CELL = re.compile(r"^  cell \$(\w+) ")
WIDTH = re.compile(r"^    parameter \\([AB])_WIDTH 0$")

OPERANDS = {
    **dict.fromkeys(("reduce_and", "reduce_or", "reduce_xor", "reduce_bool"), "A"),
    **dict.fromkeys(("shift", "shiftx", "mul"), "AB"),
}
"""The operands that may not be empty: what is reduced, what a part is taken of, and where. An index in steps of several
bits is a product."""


class ZeroWidthError(ValueError):
    """A reduction, an index or a switch over a value of width 0; the message names the lines of the sources."""


def check_zero_widths(rtlil):
    """Raises :class:`ZeroWidthError` unless each reduction (``all``, ``any``, ``xor``, ``bool``, also those of ``If``
    and ``~`` of several bits), each index of ``bit_select`` and ``word_select``, and each switch (also that of an
    ``Array`` or of an FSM) of this RTLIL, as Amaranth writes it, has at least one bit to look at.
    """
    found = set()
    source = kind = None
    for line in rtlil.splitlines():
        if match := SOURCE.match(line):
            source = match[1]
        elif match := CELL.match(line):
            kind = match[1]
        elif line == "  end":
            kind = None
        elif kind in OPERANDS and (match := WIDTH.match(line)) and match[1] in OPERANDS[kind]:
            found.add((source, f"${kind}"))
        elif line.lstrip().startswith("switch {  }"):
            found.add((source, "switch"))
    if found:
        raise ZeroWidthError(
            "over a value of width 0: " + ", ".join(f"{kind} at {where}" for where, kind in sorted(found))
        )
