"""Beats, frames and addresses for the tests of what is between packets and the wire."""

__all__ = ["IP_ADDRESS", "MAC", "PEER_IP", "PEER_MAC", "beats", "frames_of", "ip_text", "mac_text", "number", "padded"]

MAC, PEER_MAC = 0x02_00_00_00_00_01, 0x02_00_00_A5_5A_FE
IP_ADDRESS, PEER_IP = 0x0A_00_00_01, 0xC0_A8_FE_63


def mac_text(value):
    return ":".join(f"{byte:02x}" for byte in value.to_bytes(6, "big"))


def ip_text(value):
    return ".".join(map(str, value.to_bytes(4, "big")))


def number(text):
    """MAC or IPv4 address in text form to a number."""
    if ":" in text:
        return int(text.replace(":", ""), 16)
    return int.from_bytes(bytes(map(int, text.split("."))), "big")


def padded(frame, size=60):
    """Bytes of a frame, filled up to the least size on the wire."""
    frame = bytes(frame)
    return frame + bytes(max(0, size - len(frame)))


def beats(frame, width, *, error=False, rng=None):
    """``PacketBeat`` dictionaries of ``frame`` (bytes); bytes behind the end are random if ``rng`` is given."""
    size = width // 8
    result = []
    for start in range(0, max(1, len(frame)), size):
        part = frame[start : start + size]
        filler = rng.randbytes(size - len(part)) if rng else bytes(size - len(part))
        last = start + size >= len(frame)
        result.append(
            {
                "data": int.from_bytes(part + filler, "little"),
                "count": len(part),
                "first": start == 0,
                "last": last,
                "error": error and last,
            }
        )
    return result


def frames_of(items, width):
    """The other way: list of (bytes, error) from ``PacketBeat`` items, which must be well-formed."""
    frames, now = [], None
    for item in items:
        assert item.first == (now is None)
        now = now or b""
        assert item.count == width // 8 or item.last, item
        now += item.data.to_bytes(width // 8, "little")[: item.count]
        if item.last:
            frames.append((now, item.error))
            now = None
    assert now is None, "the last frame has no end"
    return frames
