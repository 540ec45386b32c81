"""One description of a message on the wire: big-endian, most significant bit first, as the specification draws it."""

__all__ = ["Layout"]


class Layout:
    """Fields one behind the other, from the first byte on.

    Parameters
    ----------
    name : str
        For errors.
    fields : list of (str, int)
        Name and width in bits. One named ``_`` is reserved: zero when sent, ignored when received.
    tail : int
        Bytes behind them, the field ``private_data``, which is bytes; shorter data are filled with zeros.

    Raises
    ------
    ValueError
        If the fields do not fill whole bytes, or if one stands twice.
    """

    def __init__(self, name, fields, tail=0):
        self.name = name
        self.fields = {}  # name: (bits behind it, width)
        bits = sum(width for _, width in fields)
        if bits % 8:
            raise ValueError(f"fields of {name} take {bits} bits, which are no whole bytes")
        self._head = bits // 8
        self.tail = tail
        self.size = self._head + tail
        for field, width in fields:
            bits -= width
            if field in self.fields:
                raise ValueError(f"field {field!r} stands twice in {name}")
            if field != "_":
                self.fields[field] = bits, width

    def pack(self, private_data=b"", **values):
        """Bytes of the message. Fields that are not given are zero; ``ValueError`` for a name that is not there, or a
        value that does not fit.
        """
        whole = 0
        for name, value in values.items():
            if name not in self.fields:
                raise ValueError(f"{self.name} has no field {name!r}")
            bit, width = self.fields[name]
            if not 0 <= value < 1 << width:
                raise ValueError(f"{self.name}.{name} has {width} bits and cannot hold {value!r}")
            whole |= value << bit
        if len(private_data) > self.tail:
            raise ValueError(f"{self.name} has room for {self.tail} bytes of private data, not for {len(private_data)}")
        return whole.to_bytes(self._head, "big") + bytes(private_data).ljust(self.tail, b"\0")

    def unpack(self, data):
        """A dictionary of all fields of ``size`` bytes."""
        if len(data) != self.size:
            raise ValueError(f"{self.name} has {self.size} bytes, not {len(data)}")
        whole = int.from_bytes(data[: self._head], "big")
        values = {name: whole >> bit & (1 << width) - 1 for name, (bit, width) in self.fields.items()}
        return values | {"private_data": bytes(data[self._head :])} if self.tail else values
