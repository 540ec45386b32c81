"""The sections of a queue pair's record: who has state of a queue pair, and how much."""

from amaranth.hdl import Shape

from ..queue.ring_swap import RingState
from ..stream.words import WORD_BITS
from ..transport.completer.completer_swap import completer_head
from ..transport.completer.read_target_swap import ReadGroup
from ..transport.completer.read_targets import READS
from ..transport.reads.replay_cache import KEPT, ReplayRow
from ..transport.reads.response_swap import ResponseState
from ..transport.requester.requester_context import RequesterContext
from ..transport.responder.responder import ResponderState
from .context_words import ATTRIBUTE_WORDS

__all__ = ["BLOCKS", "COMPLETING", "limits"]

BLOCKS = (
    "responder",
    "response_receiver",
    "completer",
    "sq_fetch",
    "rq_fetch",
    "acknowledger",
    "read_atomic_responder",
    "timers",
    "requester",
)
"""The blocks that have state of a QP, in the order in which they get it back: the way of LOAD to acknowledger and
READ/atomic responder is the longest."""

COMPLETING = ("completer", "acknowledger")
"""Those of them whose completions go to CQs."""


def _words(shape):
    return -(-Shape.cast(shape).width // WORD_BITS)


def limits(window):
    """Most words of each section of a record: of the attributes, and of each of :data:`BLOCKS`. ``window``: messages of
    a QP that may be under way."""
    most = {
        "responder": _words(ResponderState),
        "acknowledger": 1,
        "read_atomic_responder": max(_words(ResponseState), _words(ReplayRow)) * (1 + KEPT),
        "response_receiver": _words(ReadGroup) * (1 + READS) + 1,
        "completer": _words(completer_head(window)) + window,
        "timers": 1,
        "sq_fetch": _words(RingState),
        "rq_fetch": _words(RingState),
        "requester": _words(RequesterContext),
    }
    return (ATTRIBUTE_WORDS, *(most[name] for name in BLOCKS))
