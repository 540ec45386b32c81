"""Runs of pieces, packets and their beats: what the DMA tests speak."""

from hypothesis import strategies as st
from verbena.hdl.abi.tables import AccessStatus

__all__ = ["beats_of", "packets_of", "piece", "piece_lists", "random_address", "random_length", "random_run", "within"]

PAGE, LARGEST_PAGE = 4096, 1 << 30


def piece(address, length, *, discard=0, status=0, tag=0, last=0):
    return {"address": address, "length": length, "discard": discard, "status": status, "tag": tag, "last": last}


def beats_of(data, data_width, *, error=0):
    """Beats of a packet; none for no data."""
    size = data_width // 8
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    return [
        {
            "data": int.from_bytes(chunk, "little"),
            "count": len(chunk),
            "first": n == 0,
            "last": n == len(chunks) - 1,
            "error": error and n == len(chunks) - 1,
        }
        for n, chunk in enumerate(chunks)
    ]


def packets_of(beats, data_width):
    """(bytes, error) of each packet; checks the rules of ``PacketBeat``."""
    packets, now = [], None
    for beat in beats:
        assert beat["first"] == (now is None), "first"
        now = b"" if now is None else now
        assert beat["last"] or beat["count"] == data_width // 8, "only the last beat may be short"
        now += (beat["data"] & (1 << 8 * beat["count"]) - 1).to_bytes(data_width // 8, "little")[: beat["count"]]
        if beat["last"]:
            packets.append((now, beat["error"]))
            now = None
    assert now is None, "a packet has no end"
    return packets


def random_address(rng):
    """Anywhere, but often near the end of a page, of 2 KiB, or of 4 GiB."""
    page = rng.choice([0, 1, 0xFFFFF, 0xFFFFFFFF, rng.getrandbits(40), rng.getrandbits(51)])
    near = rng.choice([0, 2048, 4096])
    return max(0, page * PAGE + (near - rng.randrange(40) if rng.random() < 0.6 else rng.randrange(PAGE)))


def random_length(rng, most=PAGE):
    return min(
        most, rng.choice([rng.randrange(20), rng.randrange(20), rng.randrange(300), rng.randrange(most + 1), 8, 0])
    )


def within(address, length, block):
    """As much of that as lies in one aligned block."""
    return address, min(length, block - address % block)


def random_run(rng, *, most=PAGE, discards=False):
    """Pieces of a run."""
    count = rng.choice([1, 1, 1, 2, 3, 5])
    pieces = [piece(*within(random_address(rng), random_length(rng, most), LARGEST_PAGE)) for _ in range(count)]
    status = 0
    if discards and rng.random() < 0.3:
        for p in pieces[rng.randrange(count) :]:
            p["discard"] = 1
        status = rng.choice([0, 1, 4, int(AccessStatus.POISONED)])
    tag = rng.randrange(2)
    for p in pieces:
        p["tag"] = tag
    pieces[-1].update(last=1, status=status)
    return pieces


@st.composite
def piece_lists(draw, granularity=1):
    """A few (address, length) with all alignments."""
    unit = granularity
    place = st.tuples(
        st.sampled_from([0, 1, 0x12345, 0xFFFFFFFFF]), st.integers(0, PAGE // unit - 1).map(lambda x: x * unit)
    ).map(lambda t: t[0] * PAGE + t[1])
    edge = st.tuples(st.sampled_from([1, 2]), st.integers(0, 70 // unit)).map(lambda t: t[0] * PAGE - t[1] * unit)
    length = st.one_of(st.integers(0 if unit == 1 else 1, 40), st.integers(1, PAGE // unit)).map(lambda x: x * unit)
    some = st.tuples(st.one_of(place, edge), length.map(lambda x: min(x, PAGE)))
    return draw(st.lists(some.map(lambda t: within(*t, LARGEST_PAGE)), min_size=1, max_size=6))
