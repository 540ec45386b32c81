"""What a response changes, against a send queue in plain packets."""

from itertools import product

from at_once import AtOnce
from streams import simulate
from verbena.hdl.transport.completer.response_effect import ResponseEffect

MESSAGES = [(packets, read) for packets in (1, 2) for read in (False, True)]


def cases():
    """(messages, kind of response, packet that it names) of all short queues; -1 is the packet before them."""
    for count in (1, 2, 3):
        for messages in product(MESSAGES, repeat=count):
            sent = sum(packets for packets, _ in messages)
            for named in range(-1, sent):
                yield messages, "ack", named
                if named >= 0:
                    yield messages, "nak", named
                    if _read_at(messages, named):
                        yield messages, "data", named


def _read_at(messages, named):
    """The response is of the first READ."""
    first = 0
    for packets, read in messages:
        if read:
            return first <= named < first + packets
        first += packets
    return False


def test_all():
    dut = ResponseEffect()
    seen = set()

    async def testbench(ctx):
        put = AtOnce(ctx)
        for (messages, kind, named), failed, drain in product(cases(), (0, 1), (0, 1)):
            sent = sum(packets for packets, _ in messages)
            # A NAK refuses the packet that it names, and anything says that all before have arrived.
            target = named if kind == "nak" else named + 1
            complete, moved, stop = 0, False, False
            for packets, read in messages:
                if read and kind != "data":
                    stop = True
                    break
                if complete + packets > target:
                    break
                complete, moved = complete + packets, True
                if read:
                    kind = "data of what is complete"
            # Behind a READ that has no answer nothing counts, since the peer answers in order.
            arrived = complete if stop else target
            put(dut.meaning, {"inclusive": kind != "nak", "nak": kind == "nak"})
            put(dut.newest, named == sent - 1)
            put(dut.moved, moved)
            put(dut.beyond, target > complete)
            put(dut.stop, stop)
            put(dut.at_failed, failed)
            put(dut.drain, drain)
            put.set()
            seen.add((stop, target > complete, moved))
            overtaken = target > arrived  # the peer is past a READ without having answered it
            told = (messages, kind, named)
            assert (target if ctx.get(dut.acknowledged) else complete) == arrived, told
            assert ctx.get(dut.progressed) == (arrived > 0), told
            assert ctx.get(dut.rested) == (arrived == sent), told
            assert ctx.get(dut.implied) == (overtaken and kind != "nak" and not failed), told
            asks = kind == "nak" or failed or drain or ctx.get(dut.implied)
            assert ctx.get(dut.more) == bool(asks), told

    simulate(dut, testbench)
    assert len(seen) == 8
