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

__all__ = ["BLOCKS", "COMPLETING", "SECTIONS", "limits"]

SECTIONS = (
    "completer",
    "responder",
    "response_receiver",
    "attributes",
    "acknowledger",
    "read_atomic_responder",
    "sq_fetch",
    "rq_fetch",
    "requester",
    "timers",
)
"""The sections in their order in a record, in which they are given back: the completer takes the longest, then the ways
of LOAD to READ/atomic responder and response receiver. Attributes come when the tokens of those before them have been
fetched, since each word that is written makes a stage fetch once more, and before anybody begins something."""

BLOCKS = tuple(name for name in SECTIONS if name != "attributes")
"""The blocks that have state of a QP."""

COMPLETING = ("completer", "acknowledger")
"""Those of them whose completions go to CQs."""


def _words(shape):
    return -(-Shape.cast(shape).width // WORD_BITS)


def limits(window):
    """Most words of each of :data:`SECTIONS`. ``window``: messages of a QP that may be under way."""
    most = {
        "attributes": ATTRIBUTE_WORDS,
        "responder": _words(ResponderState),
        "acknowledger": 1,
        "read_atomic_responder": max(_words(ResponseState), _words(ReplayRow)) * (1 + KEPT),
        "response_receiver": _words(ReadGroup) * (1 + READS) + 1,
        "completer": _words(completer_head(window, keys=True)) + window,
        "timers": 1,
        "sq_fetch": _words(RingState),
        "rq_fetch": _words(RingState),
        "requester": _words(RequesterContext),
    }
    return tuple(most[name] for name in SECTIONS)
