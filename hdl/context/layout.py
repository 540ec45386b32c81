"""How the lines of a context stand in rows of block RAM."""

from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Const, Shape, Value
from amaranth.lib import data

from ..abi.qpc import LINE_BYTES
from ..stream.table import PAGE_BITS, RINGS

__all__ = ["ATTRIBUTES", "LINE_BITS", "SlotLayout"]

LINE_BITS = 8 * LINE_BYTES

ATTRIBUTES = "attributes"
"""The part that the engine only reads."""


def leaves(value, path):
    """(name, bits) of the fields of a view, those of structures in it as ``outer_inner``."""
    if isinstance(value, data.View) and isinstance(value.shape(), data.StructLayout):
        for name, _ in value.shape():
            yield from leaves(value[name], f"{path}_{name}")
    else:
        yield path, Value.cast(value)


def gather(bits):
    """Concatenation of bits, each given as (value, index) or None for 0; neighbours become one slice."""
    runs = []
    for bit in bits:
        value, index = bit or (None, 0)
        if runs and runs[-1][0] is value and (value is None or runs[-1][2] == index):
            runs[-1][2] += 1
        else:
            runs.append([value, index, index + 1])
    return Cat(Const(0, end - start) if value is None else value[start:end] for value, start, end in runs)


class SlotLayout:
    """Which bits of a record a slot keeps, and where.

    A line is ``rows`` rows of the same width, the first words in the first row. Each part has columns of its own: the
    bits of a row, counted from its begin, that the part uses in any row. So a row comes from memory as it stands there,
    without a multiplexer, and a record whose rows use the same columns takes the least block RAM.

    Parameters
    ----------
    record : ContextRecord
    names : iterable of str
        Attributes that are kept. Ring addresses without their low 12 bits, which read as zero.
    states : dict of str to shape-like
        Parts that are kept, each the state of an owner. Its fields are those of the part: ``part_field``, and
        ``part_field_field`` of a structure in it.
    rows : int
        1, 2, 4 or 8.

    Attributes
    ----------
    row_bits : int
        Of a row of a line.
    lines : list of int
        What is fetched: the lines of all that is kept, ascending.
    saved : list of int
        What is written back: those of ``states``.
    columns : dict of str to list of int
        Of each part.

    Raises
    ------
    ValueError
        An unknown name; a state that is not its part; a line written back of which not all parts are kept.
    """

    def __init__(self, record, names, states, rows):
        if rows not in (1, 2, 4, 8):
            raise ValueError(f"rows must be 1, 2, 4 or 8, not {rows!r}")
        self.record = record
        self.names = tuple(names)
        self.states = dict(states)
        self.rows = rows
        self.row_bits = LINE_BITS // rows
        known = {part: {field.name: field for field in fields} for part, (_, fields) in record.places.items()}
        kept = {ATTRIBUTES: {}}
        for name in self.names:
            if name not in known.get(ATTRIBUTES, {}):
                raise ValueError(f"record {record.name!r} has no attribute {name!r}")
            kept[ATTRIBUTES][name] = known[ATTRIBUTES][name]
        for part, shape in self.states.items():
            if part == ATTRIBUTES or part not in known:
                raise ValueError(f"record {record.name!r} has no state {part!r}")
            view = data.View(shape, Const(0, Shape.cast(shape))) if isinstance(shape, data.Layout) else None
            widths = {name: len(bits) for name, bits in leaves(view, part)} if view is not None else {}
            if widths != {name: field.width for name, field in known[part].items()}:
                raise ValueError(f"state {part!r} is not what record {record.name!r} says")
            kept[part] = known[part]
        self._kept = {part: fields for part, fields in kept.items() if fields}
        self._line = {part: record.places[part][0] for part in self._kept}
        self.lines = sorted(set(self._line.values()))
        self.saved = sorted({self._line[part] for part in self.states})
        for part, (line, _) in record.places.items():
            if line in self.saved and part not in self.states:
                raise ValueError(f"line {line} of record {record.name!r} is written back, but {part!r} is not kept")
        self._bits = {part: list(self._places(part)) for part in self._kept}
        self.columns = {part: sorted({column for _, column, *_ in bits}) for part, bits in self._bits.items()}

    def _places(self, part):
        """(row, column, name, bit of the field) of each bit that is kept."""
        for name, field in self._kept[part].items():
            for bit in range(PAGE_BITS if name in RINGS else 0, field.width):
                yield *divmod((field.offset + bit) % LINE_BITS, self.row_bits), name, bit

    @property
    def parts(self):
        return tuple(self._kept)

    def line_of(self, part):
        return self._line[part]

    def rows_used(self, line):
        """Rows of a line, from its first one on, that hold what is kept."""
        return 1 + max(row for part in self._kept if self._line[part] == line for row, *_ in self._bits[part])

    def bytes_used(self, line):
        return self.rows_used(line) * self.row_bits // 8

    def fields(self, part, columns):
        """{name: bits} of a part's fields. ``columns``: the rows of the part, one behind the other."""
        width, places = len(self.columns[part]), {column: at for at, column in enumerate(self.columns[part])}
        found = {name: [None] * field.width for name, field in self._kept[part].items()}
        for row, column, name, bit in self._bits[part]:
            found[name][bit] = columns, row * width + places[column]
        return {name: gather(bits) for name, bits in found.items()}

    def pack(self, part, value):
        """The rows of a part that hold a state, one behind the other."""
        width, places = len(self.columns[part]), {column: at for at, column in enumerate(self.columns[part])}
        values, bits = dict(leaves(value, part)), [None] * (width * self.rows)
        for row, column, name, bit in self._bits[part]:
            bits[row * width + places[column]] = values[name], bit
        return gather(bits)

    def take(self, part, row):
        """The columns of a part of a row of its line."""
        return gather((row, column) for column in self.columns[part])

    def whole(self, line, parts, row):
        """A row of a line. ``parts``: {part: its columns in this row}; ``row``: which one it is."""
        mine = [part for part in self.states if self._line[part] == line]

        def of(part):
            places = {column: at for at, column in enumerate(self.columns[part])}
            return gather(
                (parts[part], places[column]) if column in places else None for column in range(self.row_bits)
            )

        if len({column for part in mine for column in self.columns[part]}) == sum(len(self.columns[p]) for p in mine):
            return reduce(or_, map(of, mine))

        # Two parts have the same column, in different rows.
        def used(part):
            masks = [
                sum(1 << column for at, column, *_ in self._bits[part] if at == where) for where in range(self.rows)
            ]
            return Array(Const(mask, self.row_bits) for mask in masks)[row]

        return reduce(or_, (of(part) & used(part) for part in mine))
