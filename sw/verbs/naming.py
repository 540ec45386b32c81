"""Numbers of enumerations as the names that they have there."""

__all__ = ["flags_of", "name_of", "names_of"]


def name_of(kind, value):
    """The name of ``value`` in the enumeration ``kind``, or its decimal digits."""
    return kind(value).name if value in set(kind) else str(value)


def names_of(kind, value):
    """Names of all bits of the enumeration ``kind`` that ``value`` has set."""
    return [member.name for member in kind if value & member]


def flags_of(kind, value):
    """``value`` as names of ``kind`` with ``|`` between them; bits without a name as one hexadecimal number; 0 as 0."""
    unknown = value & ~sum(set(kind))
    return "|".join(names_of(kind, value) + ([f"{unknown:#x}"] if unknown else [])) or "0"
