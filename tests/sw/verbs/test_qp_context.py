"""What the engine is told of a queue pair; its words are checked in the tests of queue pairs."""

import random

import pytest
from verbena.hdl.abi.contexts import QP_CONTEXT
from verbena.sw.verbs.libibverbs_enums import ibv_qp_state
from verbena.sw.verbs.qp_context import action_of, context_of, source_port

RESET, INIT, RTR, RTS, SQD, SQE, ERR = list(ibv_qp_state)[:7]


@pytest.mark.parametrize(
    ("current", "new", "action"),
    [
        (RESET, INIT, 0),
        (INIT, INIT, 0),
        (INIT, RTR, 2),
        (RTR, RTS, 3),
        (RTS, RTS, 0),
        (RTS, SQD, 7),
        (SQD, SQD, 0),
        (SQD, RTS, 6),
        *((state, RESET, 1) for state in (RESET, INIT, RTR, RTS, SQD, ERR)),
        *((state, ERR, 4) for state in (INIT, RTR, RTS, SQD, ERR)),
    ],
)
def test_actions(current, new, action):
    assert action_of(current, new) == action


def test_every_field_has_a_place(make_qp):
    qp = make_qp()
    fields = context_of(qp, qp._attr)
    assert fields.keys() <= QP_CONTEXT.fields.keys()
    assert QP_CONTEXT.fields.keys() - fields.keys() == {"qpn", "srq_limit"}  # the command says it; an SRQ has it


@pytest.mark.parametrize(
    ("qpns", "port"),
    [((72, 73), 54408), ((120, 121), 63672), ((126, 127), 65154), ((130, 131), 49799), ((1, 0), 0xC000)],
)
def test_the_source_port_is_that_of_linux(qpns, port):
    """Numbers and ports of connections in tests/captures; either side has the same."""
    assert source_port(0, *qpns) == source_port(0, *reversed(qpns)) == port


def test_the_source_port_follows_from_the_flow_label():
    """Seen from Linux: 0xb01e6 gives 0xc1ca."""
    assert source_port(0xB01E6, 72, 73) == 0xC1CA
    rng = random.Random(1)
    for _ in range(1000):
        port = source_port(rng.choice((0, rng.getrandbits(20))), rng.getrandbits(24), rng.getrandbits(24))
        assert 0xC000 <= port < 1 << 16
