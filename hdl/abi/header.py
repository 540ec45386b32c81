"""The descriptions of this folder for others: as a C header, and as tables for the documentation.

Both are found by looking: a record, an enumeration or a number that stands in one of the modules appears in both.
"""

import ast
import importlib
import re
from enum import IntEnum
from inspect import cleandoc, getsource
from itertools import pairwise

from ..abi import registers
from .commands import OPERANDS, RESULTS, Command
from .counters import COUNTERS
from .record import Record
from .registers import COUNTERS as COUNTERS_OFFSET
from .registers import REGISTERS

__all__ = ["constants", "enumerations", "header", "markdown", "meanings", "records"]

MODULES = ("registers", "contexts", "qpc", "cqc", "commands", "wqe", "cqe", "eqe", "tables", "gids")

HELPERS = """\
/* Records are arrays of little-endian 64-bit words, and no field crosses a word: field F of a record stands in word
 * F_WORD, at bit F_SHIFT, and F_MASK is its largest value. On a big-endian host swap the words. */
#define VERBENA_GET(words, field) ((words)[field##_WORD] >> field##_SHIFT & field##_MASK)
#define VERBENA_SET(words, field, value) \\
  ((words)[field##_WORD] = ((words)[field##_WORD] & ~(field##_MASK << field##_SHIFT)) \\
                           | ((uint64_t)(value) & field##_MASK) << field##_SHIFT)
"""


def _modules():
    return [importlib.import_module(f".{module}", __package__) for module in MODULES]


def _found(wanted):
    """{name: object} of what ``wanted`` accepts in the modules, in the order in which it stands there."""
    found = {}
    for module in _modules():
        for name, value in vars(module).items():
            if wanted(name, value):
                found.setdefault(name, value)
    return found


def records():
    """All records."""
    return list({id(record): record for record in _found(lambda _, value: isinstance(value, Record)).values()}.values())


def enumerations():
    """All enumerations."""

    def wanted(_, value):
        return isinstance(value, type) and issubclass(value, IntEnum) and value is not IntEnum

    return list(_found(wanted).values())


def constants():
    """{name: int} of the single numbers."""
    return _found(lambda name, value: type(value) is int and name.isupper())


def meanings():
    """{name: text} of what the modules say of their numbers, in the docstring below each."""
    found = {}
    for module in _modules():
        for assigned, said in pairwise(ast.parse(getsource(module)).body):
            match assigned, said:
                case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = text
    return found


def _snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _comment(text):
    """One line for C: without reStructuredText's marks."""
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", " ".join(text.split())).replace("``", "").replace("*/", "* /")


def _define(name, value, comment=""):
    line = f"#define {f'VERBENA_{name.upper()}':<47} {value}"
    return f"{line}  /* {_comment(comment)} */" if comment else line


def header():
    """The C header: ``VERBENA_`` macros and ``verbena_`` types for C99 and C++11."""
    said = meanings()
    lines = [
        "/* Interface of the Verbena RDMA engine, as its driver sees it. Generated; do not edit. */",
        "#ifndef VERBENA_ABI_H",
        "#define VERBENA_ABI_H",
        "",
        "#include <stdint.h>",
        "",
        HELPERS,
        "/* Numbers */",
        *(
            _define(name, f"{value:#x}u" if value > 255 else f"{value}u", said.get(name, ""))
            for name, value in constants().items()
        ),
        "",
        "/* Registers: byte offsets, 32 bits each */",
        *(
            _define(f"REG_{r.name}", f"0x{r.offset:03x}u", f"{r.access}: {r.doc}" if r.doc else r.access)
            for r in REGISTERS.values()
        ),
        "",
        "/* Counters: byte offsets, 64 bits each, low word first */",
        *(
            _define(f"COUNTER_{counter.name}", f"0x{COUNTERS_OFFSET + 8 * index:03x}u", counter.doc)
            for index, counter in enumerate(COUNTERS.values())
        ),
    ]
    structs = {record.name for record in records()}
    for enumeration in enumerations():
        name = _snake(enumeration.__name__)
        tag = f"{name}_code" if name in structs else name  # tags of structs and enums are one name space
        lines += [
            "",
            f"/* {_comment(enumeration.__doc__)} */",
            f"enum verbena_{tag} {{",
            *(f"  VERBENA_{name.upper()}_{member.name} = {member.value}," for member in enumeration),
            "};",
        ]
    for record in records():
        lines += [
            "",
            f"/* {_comment(record.doc)} */",
            f"struct verbena_{record.name} {{",
            f"  uint64_t word[{record.size // 8}];",
            "};",
            _define(f"{record.name}_SIZE", f"{record.size}u"),
        ]
        for field in record.fields.values():
            name = f"{record.name}_{field.name}"
            lines += [
                _define(f"{name}_WORD", field.offset // 64, field.doc),
                _define(f"{name}_SHIFT", field.offset % 64),
                _define(f"{name}_MASK", f"UINT64_C({field.mask:#x})"),
            ]
    return "\n".join([*lines, "", "#endif", ""])


def _table(titles, rows):
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for row in rows:
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines)


def _prose(text):
    """A docstring as Markdown: references become code."""
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", cleandoc(text)).replace("``", "`")


def _paragraphs(text):
    """What a docstring says below its first line, a line each."""
    return [" ".join(_prose(part).split()) for part in text.split("\n\n")[1:]]


def markdown():
    """The reference of registers, commands, records and enumerations, as Markdown from second-level headings down."""
    said = meanings()
    parts = [
        "## Registers",
        *_paragraphs(registers.__doc__),
        _table(
            ("offset", "register", "access", "meaning"),
            ((f"`0x{r.offset:03x}`", f"`{r.name}`", r.access, r.doc) for r in REGISTERS.values()),
        ),
        "## Numbers",
        _table(
            ("name", "value", "meaning"),
            (
                (f"`{name}`", f"`{value:#x}`" if value > 255 else value, " ".join(_prose(said.get(name, "")).split()))
                for name, value in constants().items()
            ),
        ),
        "## Counters",
        _table(
            ("offset", "counter", "what it counts"),
            (
                (f"`0x{COUNTERS_OFFSET + 8 * index:03x}`", f"`{counter.name}`", counter.doc)
                for index, counter in enumerate(COUNTERS.values())
            ),
        ),
        "## Commands",
        _table(
            ("opcode", "command", "mailbox before", "mailbox after"),
            (
                (
                    command.value,
                    f"`{command.name}`",
                    f"`{OPERANDS[command].name}`" if command in OPERANDS else "",
                    ", ".join(f"`{record.name}`" for record in RESULTS.get(command, ())),
                )
                for command in Command
            ),
        ),
        "## Records",
        "Little-endian; `word at` is the byte at which the field's 32-bit word begins. What is not listed is zero.",
    ]
    for record in records():
        parts += [f"### `{record.name}`, {record.size} bytes", _prose(record.doc)]
        rows = (
            (
                f"`0x{field.word * 4:02x}`",
                f"{field.offset % 32 + field.width - 1}:{field.offset % 32}",
                f"`{field.name}`",
                field.doc,
            )
            for field in record.fields.values()
        )
        parts.append(_table(("word at", "bits", "field", "meaning"), rows))
    parts.append("## Enumerations")
    for enumeration in enumerations():
        parts += [f"### `{enumeration.__name__}`", _prose(enumeration.__doc__)]
        parts.append(_table(("value", "name"), ((member.value, f"`{member.name}`") for member in enumeration)))
    return "\n\n".join(parts) + "\n"
