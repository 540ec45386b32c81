"""Wire order against Amaranth's order: the only place that knows about it.

On the wire byte 0 comes first, and in a byte, and in a number, the most significant bit. In a beat byte 0 is the least
significant, so wire bit *n* (0 is the most significant of byte 0) stands in bit ``n - n % 8 + 7 - n % 8`` of the beat.
"""

from dataclasses import dataclass, replace

from amaranth.hdl import Cat, Const, Value

from .headers import HEADERS, ICRC_BYTES
from .opcodes import OPCODES

__all__ = [
    "RECEIVE_CARRIED",
    "TRANSMIT_CARRIED",
    "HeaderSequence",
    "PacketMap",
    "PacketMaps",
    "header_bits",
    "wire_field",
]

TRANSMIT_CARRIED = {"atomiceth": 16, "atomicacketh": 8}
RECEIVE_CARRIED = {"atomicacketh": 8}
"""Bytes at a header's end that move between transport and wire as payload: an atomic's operands, its original value."""


def _places(field, base=0):
    """Bits of a beat in which the bits of the field stand, its least significant first; ``base`` bytes in front."""
    wire = range(base * 8 + field.start, base * 8 + field.start + field.width)
    return list(wire) if field.memory_order else [n - n % 8 + 7 - n % 8 for n in reversed(wire)]


def _runs(field, base=0):
    """The same as ``(place, index, length)`` of runs of bits that stand side by side: ``index`` is the field's bit."""
    runs = []
    for index, place in enumerate(_places(field, base)):
        if runs and runs[-1][0] + runs[-1][2] == place:
            runs[-1][2] += 1
        else:
            runs.append([place, index, 1])
    return runs


def wire_field(raw, field, base=0):
    """The field as a number, most significant bit last as Amaranth has it, out of ``raw``; also assignable.

    Parameters
    ----------
    raw : Value
        Bytes, byte 0 in the least significant bits.
    field : WireField
    base : int
        Bytes of ``raw`` in front of the field's header.
    """
    return Cat(*(raw[place : place + length] for place, _, length in _runs(field, base)))


def header_bits(header, **values):
    """The header as it stands in a beat, with the fields ``values`` (Value or int) in place; those not given are 0."""
    pieces = []
    for name, value in values.items():
        if name not in header.fields:
            raise ValueError(f"header {header.name!r} has no field {name!r}")
        field = header[name]
        value = Const(value, field.width) if isinstance(value, int) else Value.cast(value)
        if len(value) != field.width:
            raise ValueError(f"{header.name}.{name} has {field.width} bits, not {len(value)!r}")
        pieces += [(place, value[index : index + length]) for place, index, length in _runs(field)]
    parts, end = [], 0
    for place, piece in sorted(pieces, key=lambda item: item[0]):
        parts += [Const(0, place - end), piece]
        end = place + len(piece)
    return Cat(*parts, Const(0, header.size * 8 - end))


@dataclass(frozen=True)
class HeaderSequence:
    """A kind of packet: the extended ``headers``, in order, that the opcodes ``codes`` share; ``words`` is where, in
    32-bit words behind the Ethernet header, the payload begins, or the ``carried`` bytes of headers that count as such.
    Opcodes that are refused stand with others whose headers are as long, or where ``headers`` is empty.
    """

    headers: tuple
    words: int
    carried: int
    codes: tuple


class PacketMap:
    """Where each header stands in packets of the given encapsulation and opcodes, in 32-bit words.

    Word 0 begins right behind the Ethernet header. All headers are multiples of 4 bytes.

    Parameters
    ----------
    encapsulation : Encapsulation
    opcodes : iterable of int
        Rows of :data:`.opcodes.OPCODES` whose extended headers are all flat.
    carried : dict
        Name of a header, the last of its packets, to the bytes at its end that count as payload.
    refused : iterable of int
        Further rows, with any headers. Of these packets only the BTH and the length of the payload count.

    Attributes
    ----------
    network_words : int
        Words of the network header, the first one.
    bth : int
        Word at which the BTH begins.
    base_words : int
        Words of a packet without extended headers and payload, the ICRC included.
    sequences : list of HeaderSequence
    words : int
        Words up to the end of the longest headers.
    """

    def __init__(self, encapsulation, opcodes, carried, refused=()):
        self.encapsulation = encapsulation
        self.opcodes = tuple(sorted(opcodes))
        self.refused = tuple(sorted(refused))
        for code in self.opcodes:
            if code not in OPCODES or not OPCODES[code].flat:
                raise ValueError(f"opcodes must be rows whose headers are flat, not {code!r}")
        if not self.opcodes:
            raise ValueError(f"opcodes must not be empty, not {opcodes!r}")
        self.network_words = HEADERS[encapsulation.network].size // 4
        self.bth = encapsulation.bth_offset // 4
        fixed = self.bth + HEADERS["bth"].size // 4
        self.base_words = fixed + ICRC_BYTES // 4
        codes = {}
        for code in self.opcodes:
            codes.setdefault(OPCODES[code].headers, []).append(code)
        self.sequences = []
        for headers, members in sorted(codes.items()):
            moved = carried.get(headers[-1], 0) if headers else 0
            size = sum(HEADERS[header].size for header in headers) - moved
            self.sequences.append(HeaderSequence(headers, fixed + size // 4, moved, tuple(members)))
        for code in self.refused:
            words = fixed + OPCODES[code].header_words
            for index, sequence in enumerate(self.sequences):
                if sequence.words == words and not sequence.carried:
                    self.sequences[index] = replace(sequence, codes=(*sequence.codes, code))
                    break
            else:
                self.sequences.append(HeaderSequence((), words, 0, (code,)))
        self.words = max(sequence.words for sequence in self.sequences)

    def start(self, name):
        """Word at which a header of the encapsulation, or the BTH, begins."""
        word = 0
        for header in (*self.encapsulation.headers, "bth"):
            if header == name:
                return word
            word += HEADERS[header].size // 4
        raise ValueError(f"name must be a header of {self.encapsulation.name}, not {name!r}")

    def extended(self):
        """Dictionary: name of an extended header, of which not all bytes are carried, to dictionary: word at which it
        begins to the indices of the sequences in which it does. A header with the same fields as another one is that
        one.
        """
        names, places = {}, {}
        for index, sequence in enumerate(self.sequences):
            word = self.base_words - 1
            for header in sequence.headers:
                if word < sequence.words:
                    fields = tuple((f.name, f.start, f.width) for f in HEADERS[header].fields.values())
                    places.setdefault(names.setdefault(fields, header), {}).setdefault(word, []).append(index)
                word += HEADERS[header].size // 4
        return places

    def extended_words(self):
        """Dictionary: (word, name of an extended header, index of its word that stands there) to the indices of the
        sequences in which it does. A word that headers have in common is the first one's."""
        names, places = {}, {}
        for number, sequence in enumerate(self.sequences):
            whole = [(header, index) for header in sequence.headers for index in range(HEADERS[header].size // 4)]
            for word, (header, index) in zip(range(self.base_words - 1, sequence.words), whole):
                bits = range(index * 32, index * 32 + 32)
                fields = [(f.name, f.start - bits.start, f.width) for f in HEADERS[header].fields.values()]
                content = (word, *(f for f in fields if f[1] < 32 and f[1] + f[2] > 0))
                places.setdefault(names.setdefault(content, (word, header, index)), []).append(number)
        return places

    def is_one_of(self, code, codes):
        """Whether ``code`` (Value) is one of ``codes``, looking only at what tells :attr:`opcodes` apart."""
        telling = [bit for bit in range(8) if len({each >> bit & 1 for each in self.opcodes}) > 1] or [0]
        rows = {tuple(each >> bit & 1 for bit in telling) for each in codes}
        patterns = ["".join(map(str, reversed(row))) for row in sorted(rows)]
        return Cat(code[bit] for bit in telling).matches(*patterns)

    @property
    def payload_codes(self):
        """Opcodes that may carry payload."""
        return tuple(code for code in (*self.opcodes, *self.refused) if OPCODES[code].payload)


class PacketMaps:
    """The maps of several encapsulations with the same opcodes, and their sequences together.

    Parameters
    ----------
    encapsulations : iterable of Encapsulation
    opcodes, carried, refused
        As of :class:`PacketMap`.

    Attributes
    ----------
    maps : list of PacketMap
        One for each encapsulation.
    sequences : list of HeaderSequence
        Those of the first map, then those of the second.
    networks : list of int
        For each of them, which map it is of.
    words : int
        Words up to the end of the longest headers.
    """

    def __init__(self, encapsulations, opcodes, carried, refused=()):
        self.maps = [PacketMap(each, opcodes, carried, refused) for each in encapsulations]
        if not self.maps:
            raise ValueError("encapsulations must not be empty")
        self.sequences = [sequence for each in self.maps for sequence in each.sequences]
        self.networks = [number for number, each in enumerate(self.maps) for _ in each.sequences]
        self.words = max(each.words for each in self.maps)

    def members(self, number):
        """Indices of the sequences of map ``number``."""
        return [index for index, network in enumerate(self.networks) if network == number]

    def _merged(self, places):
        """Dictionary of what ``places(map)`` gives of each map, a dictionary to indices of sequences, joined."""
        merged = {}
        for number, each in enumerate(self.maps):
            first = self.members(number)[0]
            for key, indices in places(each).items():
                merged.setdefault(key, []).extend(first + index for index in indices)
        return merged

    def extended(self):
        """As :meth:`PacketMap.extended`."""

        def flat(each):
            return {(name, word): kinds for name, starts in each.extended().items() for word, kinds in starts.items()}

        places = {}
        for (name, word), kinds in self._merged(flat).items():
            places.setdefault(name, {})[word] = kinds
        return places

    def extended_words(self):
        """As :meth:`PacketMap.extended_words`."""
        return self._merged(PacketMap.extended_words)

    def is_one_of(self, code, codes):
        """As :meth:`PacketMap.is_one_of`."""
        return self.maps[0].is_one_of(code, codes)

    @property
    def payload_codes(self):
        """As :attr:`PacketMap.payload_codes`."""
        return self.maps[0].payload_codes
