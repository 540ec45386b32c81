"""A subordinate on the bridges' bus, for testbenches."""

from streams import pause, receive_all, send_all

__all__ = ["serve"]


async def serve(ctx, port, rng, respond):
    """Answers every request on ``port`` for ever, with random stalls.

    ``respond(request)`` does what it asks, and returns what is read, or None if nothing is at its address.
    """
    while True:
        await pause(ctx, rng, 0.5)
        (request,) = await receive_all(ctx, port.request, 1)
        data = respond(request)
        item = {"data": 0xDEADBEEF, "error": 1} if data is None else {"data": data, "error": 0}
        await send_all(ctx, port.answer, [item], rng, 0.5)
