"""The sections of a record: no block gives more words than there is room for."""

import pytest
from verbena.hdl.abi.contexts import QP_CONTEXT, QP_CONTEXT_WORDS
from verbena.hdl.abi.qpc import QPC_DRIVER, QPC_WORDS, qpc_bytes
from verbena.hdl.context.record import most_words
from verbena.hdl.control.context_words import ATTRIBUTE_WORDS
from verbena.hdl.control.sections import SECTIONS, limits
from verbena.hdl.queue.ring_swap import RingState
from verbena.hdl.stream.words import WORD_BITS, StateWords
from verbena.hdl.transport.completer.completer_swap import CompleterSwap
from verbena.hdl.transport.completer.read_target_swap import ReadGroup
from verbena.hdl.transport.completer.read_targets import READS
from verbena.hdl.transport.reads.replay_cache import KEPT, ReplayRow
from verbena.hdl.transport.reads.response_swap import ResponseState
from verbena.hdl.transport.requester.requester_context import RequesterContext
from verbena.hdl.transport.responder.responder import ResponderState

WINDOWS = [1 << bits for bits in range(1, 11)]


def words(shape):
    return StateWords(shape).words


@pytest.mark.parametrize("window", WINDOWS)
def test_each_block_gives_so_much_at_most(window):
    most = dict(zip(SECTIONS, limits(window), strict=True))
    # A state and each of its rows take as many words as the larger of them.
    row = max(words(ResponseState), words(ReplayRow))
    group = words(ReadGroup)
    assert most == {
        "attributes": ATTRIBUTE_WORDS,
        "responder": words(ResponderState),
        "acknowledger": 1,
        "read_atomic_responder": row + KEPT * row,
        "response_receiver": group + READS * group + 1,
        "completer": words(CompleterSwap(window).head) + window,
        "timers": 1,
        "sq_fetch": words(RingState),
        "rq_fetch": words(RingState),
        "requester": words(RequesterContext),
    }


def test_all_attributes_are_among_those_that_go():
    last = max(field.offset + field.width for name, field in QP_CONTEXT.fields.items() if name != "_")
    assert WORD_BITS * (ATTRIBUTE_WORDS - 1) < last <= WORD_BITS * ATTRIBUTE_WORDS <= 32 * QP_CONTEXT_WORDS


@pytest.mark.parametrize("window", WINDOWS)
def test_the_largest_record_fits(window):
    """Into what the host gives it, and into what it is told of that."""
    assert most_words(limits(window)) <= QPC_WORDS + window
    size = qpc_bytes(window)
    assert size & size - 1 == 0
    assert QPC_DRIVER + 8 * most_words(limits(window)) <= size
