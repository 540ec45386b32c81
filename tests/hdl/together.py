"""Many ports of a block, set in one go."""

from amaranth.hdl import Cat, Value

__all__ = ["together"]


def together(ctx, *ports):
    """``ctx.set`` for all these ports at once: ``put(values)``, of as many numbers. Each time one is set the simulator
    evaluates all that hangs on it; so this takes a fraction of the time, and none if all is as it was. Nobody else may
    set these ports."""
    ports = [Value.cast(port) for port in ports]
    places = [sum(map(len, ports[:number])) for number in range(len(ports))]
    masks = [(1 << len(port)) - 1 for port in ports]
    whole, last = Cat(ports), None

    def put(values):
        nonlocal last
        bits = sum((value & mask) << place for value, mask, place in zip(values, masks, places, strict=True))
        if bits != last:
            ctx.set(whole, bits)
            last = bits

    return put
