"""Puts the Verilog that yosys writes from Amaranth's netlist into a form that linters take without a warning.

What both mean stays the same; Verilog only wants it said in other words. Before yosys, in RTLIL, operands get the width
that the operator works at. After it, in Verilog, choices by one-hot bits exclude each other, initial values stand in
``initial``, and rows of zeros in a loop. What remains is switched off by name, with the reason.
"""

import re

__all__ = ["even_widths", "tidy"]

MODULE = re.compile(r"^module .*?^end$", re.MULTILINE | re.DOTALL)
WIRE = re.compile(r"^  wire +(?:width (\d+) +)?(?:(?:input|output|inout) +\d+ +|signed +)*(\S+)$", re.MULTILINE)
CELL = re.compile(r"^  cell \$(\w+) (\S+)\n(.*?)^  end$", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^    (?:parameter|connect) \\(\w+) (.*)$", re.MULTILINE)

COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
SUMS = {"add", "sub", "mul", "and", "or", "xor", "xnor"}
"""Whose lower bits depend on the operands' lower bits only."""
LEFT = {"not", "neg", "pos", "shl", "sshl"}
"""Whose operand A counts at the width of the result; as for all, wider ones have no effect on it."""
NARROWING = {"shr", "shift", "shiftx", "divfloor", "modfloor"}
"""Whose result is as wide as operand A."""

CONSTANT = (
    "  cell $not {}\n    parameter \\A_SIGNED 0\n    parameter \\A_WIDTH 1\n    parameter \\Y_WIDTH 1\n"
    "    connect \\A 1'{}\n    connect \\Y {}\n  end"
)
"""A cell, because an attribute may stand in front of it."""

INITIAL = re.compile(r"^  reg (\[\d+:0\] )?(\S+ *) = (.*);$", re.MULTILINE)
ONE_HOT = re.compile(r"(?<=')b(\?*)1(\?+):$", re.MULTILINE)
ZERO_ROWS = re.compile(r"^    (\S+ ?)\[(\d+)\] = (\d+'h0+);\n(?:    \1\[\d+\] = \3;\n)+", re.MULTILINE)


PRAGMAS = """\
// A record's fields, a sum's carry and a submodule's ports have names here even where nobody reads them.
/* verilator lint_off UNUSEDSIGNAL */
// All modules stand in one file.
/* verilator lint_off DECLFILENAME */
"""

INTERRUPT = re.compile(r"^  (?:output|wire) (?:\[\d+:0\] )?interrupt;$", re.MULTILINE)
"""The usual name of the port, and a word of some C++ compilers: Verilator renames it in the model."""


def even_widths(rtlil):
    """RTLIL in which no operator has operands, or a result, of another width than it works at."""
    return MODULE.sub(_module, rtlil)


def tidy(verilog):
    """Verilog, as ``write_verilog -sv`` writes it, without what linters warn of."""
    verilog = ZERO_ROWS.sub(_zero_loop, verilog)
    verilog = INITIAL.sub(lambda m: f"  reg {m[1] or ''}{m[2]};\n  initial {m[2]} = {m[3]};", verilog)
    verilog = ONE_HOT.sub(lambda m: f"b{m[1]}1{'0' * len(m[2])}:", verilog)
    off, on = (f"  /* verilator lint_{state} SYMRSVDWORD */" for state in ("off", "on"))
    return PRAGMAS + INTERRUPT.sub(lambda m: f"{off}\n{m[0]}\n{on}", verilog)


def _module(module):
    text = module[0]
    wires = {name: int(width or 1) for width, name in WIRE.findall(text)}

    def cell(match):
        kind, name, body = match.groups()
        if kind not in COMPARISONS | SUMS | LEFT | NARROWING:
            return match[0]
        fields = dict(FIELD.findall(body))
        if (known := _outcome(kind, fields)) is not None:
            return CONSTANT.format(name, 1 - known, fields["Y"])
        a, y = int(fields["A_WIDTH"]), int(fields["Y_WIDTH"])
        b = int(fields.get("B_WIDTH", 0))
        if kind in COMPARISONS:
            want = {"A": max(a, b), "B": max(a, b)}
        elif kind in SUMS:
            want = {"A": y, "B": y}
        elif kind in LEFT:
            want = {"A": y}
        elif kind in ("divfloor", "modfloor"):
            want = {"B": a}
        else:
            want = {}
        signed = fields["A_SIGNED"] == "1" and fields.get("B_SIGNED", "1") == "1"
        for port, width in want.items():
            fields[port] = _resized(fields[port], int(fields[f"{port}_WIDTH"]), width, signed, wires)
            fields[f"{port}_WIDTH"] = str(width)
        head = ""
        if kind in NARROWING and a != y and fields["B_SIGNED"] == "0":
            # A result as wide as the operand, of which the lower bits go on, or which zeros fill up.
            wide = f"$wide{name}"
            shown = f"{wide} [{y - 1}:0]" if a > y else f"{{ {y - a}'{'0' * (y - a)} {wide} }}"
            head = f"  wire width {a} {wide}\n  connect {fields['Y']} {shown}\n"
            fields["Y"], fields["Y_WIDTH"] = wide, str(a)
        body = FIELD.sub(lambda field: field[0][: field.start(2) - field.start()] + fields[field[1]], body)
        return f"{head}  cell ${kind} {name}\n{body}  end"

    return CELL.sub(cell, text)


def _outcome(kind, fields):
    """0 or 1 if a comparison with the least or the greatest number comes out the same always, else None."""
    limit = re.fullmatch(r"(\d+)'(0+|1+)|{  }", fields.get("B", ""))
    if kind not in ("lt", "le", "gt", "ge") or not limit or fields["A_SIGNED"] == "1":
        return None
    if "1" not in limit[0].split("'")[-1]:
        return {"ge": 1, "lt": 0}.get(kind)
    return {"gt": 0, "le": 1}.get(kind) if int(limit[1]) >= int(fields["A_WIDTH"]) else None


def _resized(signal, width, wanted, signed, wires):
    """``signal`` with ``wanted`` bits instead of ``width``."""
    bits = _bits(signal, wires)
    if len(bits) != width:
        raise ValueError(f"{signal} has {len(bits)} bits, not {width}")
    if wanted < width:
        return _joined(bits[:wanted])
    if wanted > width:
        return _joined([*bits, *[bits[-1] if signed else "1'0"] * (wanted - width)])
    return signal


def _bits(signal, wires):
    """The bits of a signal in RTLIL, the lowest first."""
    words = signal.split()
    bits, index = [], 0
    while index < len(words):
        word = words[index]
        index += 1
        if word in "{}":
            continue
        if re.match(r"\d+'", word):
            found = [f"1'{bit}" for bit in word.split("'")[1]]
        else:
            high, low = wires[word] - 1, 0
            if index < len(words) and words[index].startswith("["):
                high, _, low = words[index][1:-1].partition(":")
                high, low = int(high), int(low or high)
                index += 1
            found = [f"{word} [{i}]" for i in range(high, low - 1, -1)]
        bits = found[::-1] + bits
    return bits


def _joined(bits):
    return bits[0] if len(bits) == 1 else "{ " + " ".join(reversed(bits)) + " }"


def _zero_loop(rows):
    """One loop for consecutive rows of zeros, where yosys writes a line a row."""
    name, first, zero = rows[1], int(rows[2]), rows[3]
    count = rows[0].count("\n")
    if int(re.findall(r"\[(\d+)\] = ", rows[0])[-1]) != first + count - 1:
        return rows[0]
    loop = f"for (int verbena_row = {first}; verbena_row < {first + count}; verbena_row = verbena_row + 1)"
    return f"    {loop}\n      {name}[verbena_row] = {zero};\n"
