import re
import subprocess

from streams import make_rng
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.hdl.abi.counters import COUNTERS
from verbena.hdl.abi.cqe import CQE
from verbena.hdl.abi.gids import GID_ROW, GROUP_MEMBER
from verbena.hdl.abi.header import constants, enumerations, header, markdown, meanings, records
from verbena.hdl.abi.registers import COUNTERS as COUNTERS_OFFSET
from verbena.hdl.abi.registers import REGISTERS


def compile_and_run(folder, body):
    """Standard output of a C program with ``body`` as its main function."""
    (folder / "verbena.h").write_text(header())
    (folder / "main.c").write_text(
        '#include <stdio.h>\n#include <string.h>\n#include "verbena.h"\nint main(void) {\n' + body + "\nreturn 0;\n}\n"
    )
    strict = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    subprocess.run(["gcc", *strict, "-o", "main", "main.c"], cwd=folder, check=True)
    return subprocess.run([folder / "main"], check=True, capture_output=True, text=True).stdout


def test_fields_are_where_pack_puts_them(tmp_path):
    """A record that the macros fill, over zeros and over ones, is what ``Record.pack`` makes; and it reads back."""
    rng = make_rng()
    body, expected = [], []
    for record in records():
        values = {name: rng.getrandbits(field.width) for name, field in record.fields.items()}
        prefix = f"VERBENA_{record.name.upper()}"
        for background in (0, 0xFF):
            body.append(f"{{ struct verbena_{record.name} r; memset(&r, {background}, {prefix}_SIZE);")
            body += [
                f"VERBENA_SET(r.word, {prefix}_{name.upper()}, UINT64_C({value}));" for name, value in values.items()
            ]
            for name, value in values.items():
                body.append(f'if (VERBENA_GET(r.word, {prefix}_{name.upper()}) != UINT64_C({value})) puts("{name}");')
            body.append(
                'for (unsigned i = 0; i < sizeof r; i++) { printf("%02x", ((unsigned char *)&r)[i]); }\nputs(""); }'
            )
            whole = int.from_bytes(record.pack(**values), "little")
            if background:
                covered = sum(field.mask << field.offset for field in record.fields.values())
                whole |= (1 << 8 * record.size) - 1 & ~covered
            expected.append(whole.to_bytes(record.size, "little").hex())
    assert compile_and_run(tmp_path, "\n".join(body)).split() == expected


def test_numbers_are_those_of_the_modules(tmp_path):
    body, expected = [], []
    for register in REGISTERS.values():
        body.append(f'printf("%u\\n", VERBENA_REG_{register.name.upper()});')
        expected.append(register.offset)
    for index, counter in enumerate(COUNTERS.values()):
        body.append(f'printf("%u\\n", VERBENA_COUNTER_{counter.name.upper()});')
        expected.append(COUNTERS_OFFSET + 8 * index)
    for enumeration in enumerations():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", enumeration.__name__).upper()
        for member in enumeration:
            body.append(f'printf("%d\\n", VERBENA_{name}_{member.name});')
            expected.append(member.value)
    for record in records():
        body.append(f'printf("%u\\n", (unsigned)sizeof(struct verbena_{record.name}));')
        expected.append(record.size)
    assert list(map(int, compile_and_run(tmp_path, "\n".join(body)).split())) == expected


def test_header_serves_cpp(tmp_path):
    (tmp_path / "verbena.hpp").write_text(header())
    subprocess.run(
        ["gcc", "-x", "c++", "-std=c++11", "-Wall", "-Werror", "-fsyntax-only", "-include", "verbena.hpp", "/dev/null"],
        cwd=tmp_path,
        check=True,
    )


def test_each_number_has_a_meaning():
    assert not set(constants()) - set(meanings())


def test_markdown_names_everything():
    text = markdown()
    for record in records():
        assert f"### `{record.name}`, {record.size} bytes" in text
        for name in record.fields:
            assert f"| `{name}` |" in text
    for enumeration in enumerations():
        assert f"### `{enumeration.__name__}`" in text
    for name in [*REGISTERS, *COUNTERS]:
        assert f"| `{name}` |" in text
    assert "| `0x00` | 15:12 | `access` |" in text
    assert CQE in records()
    assert {GID_ROW, GROUP_MEMBER} <= set(records())
    assert re.search(r"\| `NEIGHBOUR` \| `0x600` \| With a table of GIDs, write-only: four words", text)
    assert QP_CONTEXT in records()
    # A table stays a table: each row of one has as many cells as its title.
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1
    assert ":class:" not in text
