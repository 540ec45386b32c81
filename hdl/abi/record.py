"""One description of a record that host and engine share.

A :class:`Record` is a little-endian block of memory whose fields are listed from its first byte on, each with a width
in bits. A field never
crosses a 64-bit boundary.
"""

from dataclasses import dataclass, replace

__all__ = ["Field", "Record"]


@dataclass(frozen=True)
class Field:
    """One field: ``name``, ``width`` in bits, ``doc`` for people; ``offset`` in bits is filled in by the record that
    holds it.
    """

    name: str
    width: int
    doc: str = ""
    offset: int = 0

    @property
    def word(self):
        """Index of the 32-bit word in which the field starts."""
        return self.offset // 32

    @property
    def mask(self):
        return (1 << self.width) - 1


class Record:
    """A record of ``size`` bytes.

    Parameters
    ----------
    name : str
        Name in the C header and in the documentation.
    size : int
        Bytes, a multiple of 8.
    fields : list of Field
        From the first byte on. A field named ``_`` is padding.
    doc : str
        What the record is for.

    Raises
    ------
    ValueError
        If a field crosses a 64-bit boundary, stands twice, or the fields exceed ``size``.
    """

    def __init__(self, name, size, fields, doc=""):
        if size % 8:
            raise ValueError(f"size of record {name!r} must be a multiple of 8, not {size!r}")
        self.name = name
        self.size = size
        self.doc = doc
        self.fields = {}
        offset = 0
        for field in fields:
            if offset // 64 != (offset + field.width - 1) // 64:
                raise ValueError(f"field {field.name!r} of record {name!r} crosses a 64-bit boundary at bit {offset}")
            if field.name != "_":
                if field.name in self.fields:
                    raise ValueError(f"field {field.name!r} stands twice in record {name!r}")
                self.fields[field.name] = replace(field, offset=offset)
            offset += field.width
        if offset > size * 8:
            raise ValueError(f"fields of record {name!r} take {offset} bits, more than its {size} bytes")

    def __repr__(self):
        return f"Record({self.name!r}, {self.size}, {list(self.fields)!r})"

    def pack(self, **values):
        """Bytes of the record.

        Fields not given are zero; an unknown name or a value that does not fit is a ``ValueError``.
        """
        whole = 0
        for name, value in values.items():
            field = self.fields.get(name)
            if field is None:
                raise ValueError(f"record {self.name!r} has no field {name!r}")
            if not 0 <= value <= field.mask:
                raise ValueError(f"{self.name}.{name} has {field.width} bits and cannot hold {value!r}")
            whole |= value << field.offset
        return whole.to_bytes(self.size, "little")

    def unpack(self, data):
        """Dictionary of all fields from ``data`` (``size`` bytes)."""
        if len(data) != self.size:
            raise ValueError(f"record {self.name!r} has {self.size} bytes, not {len(data)}")
        whole = int.from_bytes(data, "little")
        return {name: whole >> field.offset & field.mask for name, field in self.fields.items()}

    def words(self, **values):
        """The record as a list of 32-bit words."""
        data = self.pack(**values)
        return [int.from_bytes(data[i : i + 4], "little") for i in range(0, self.size, 4)]
