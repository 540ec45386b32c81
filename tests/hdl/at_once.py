"""Inputs that a testbench sets all at once: each ``ctx.set`` has the simulator evaluate the design."""

from amaranth.hdl import Cat, Const, ShapeCastable, Value, ValueCastable

__all__ = ["AtOnce"]


class AtOnce:
    """As :func:`streams.changes`; but what is put is set, if it has changed, by :meth:`set`. Nobody else may set these
    ports."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.ports = {}  # by identity: (port, value, width, bits)
        self.all, self.changed = None, False

    def __call__(self, port, value):
        known = self.ports.get(id(port))
        if known is None:
            self.all = None
        elif known[1] == value:
            return
        width = known[2] if known else len(Value.cast(port))
        self.ports[id(port)] = port, value, width, self._bits(port, value) & (1 << width) - 1
        self.changed = True

    @staticmethod
    def _bits(port, value):
        shape = port.shape() if isinstance(port, ValueCastable) else None
        return Const.cast(shape.const(value) if isinstance(shape, ShapeCastable) else value).value

    def set(self):
        if not self.changed:
            return
        if self.all is None:
            self.all = Cat(Value.cast(port) for port, *_ in self.ports.values())
        number = place = 0
        for _, _, width, bits in self.ports.values():
            number |= bits << place
            place += width
        self.ctx.set(self.all, number)
        self.changed = False
