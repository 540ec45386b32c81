"""In which order what waits is offered, and that what is offered stays."""

import pytest
from at_once import AtOnce
from streams import make_rng, plain, shared, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.transport.requester.requester_arbiter import RequesterArbiter, RequesterEvent

QPS = 8
SOURCES = ("rewound", "control", "retry", "ready")
EVENTS = dict(zip(SOURCES, (RequesterEvent.REWOUND, RequesterEvent.CONTROL, RequesterEvent.RETRY, RequesterEvent.TURN)))


def draw(rng, name):
    qp = rng.randrange(QPS)
    if name == "rewound":
        return {"qp": qp, "index": rng.getrandbits(16)}
    if name == "control":
        return {"qp": qp, "action": rng.choice(list(QpAction)), "psn": rng.getrandbits(24)}
    return qp


def offered(name, item):
    """What comes out: slot, event, and what else counts."""
    if name == "rewound":
        return item["qp"], RequesterEvent.REWOUND, item["index"]
    if name == "control":
        return item["qp"], RequesterEvent.CONTROL, 0 if item["action"] == QpAction.RESET else item["psn"]
    return item, EVENTS[name], None


@pytest.mark.parametrize("patience", [0.9, 0.2])
def test_order(patience):
    rng = make_rng()
    dut = shared(RequesterArbiter, QPS)
    seen = dict.fromkeys(SOURCES, 0)

    async def testbench(ctx):
        waiting = dict.fromkeys(SOURCES)
        put, edges = AtOnce(ctx), aiter(ctx.tick())
        for _ in range(6000):
            for name in SOURCES:
                if waiting[name] is None and rng.random() < 0.3:
                    waiting[name] = draw(rng, name)
                    put(getattr(dut, name).payload, waiting[name])
                put(getattr(dut, name).valid, waiting[name] is not None)
            rewind_free, reply_free = rng.random() < 0.5, rng.random() < 0.5
            put(dut.rewind_free, rewind_free)
            put(dut.reply_free, reply_free)
            ready = rng.random() < patience
            put(dut.o.ready, ready)
            put.set()
            may = {name for name in SOURCES if waiting[name] is not None}
            if not rewind_free:
                may -= {"control", "retry"}
            if "control" in may and waiting["control"]["action"] == QpAction.QUERY and not reply_free:
                may.discard("control")
            want = next((name for name in SOURCES if name in may), None) if ready else None
            assert ctx.get(dut.o.valid) == (want is not None)
            assert [name for name in SOURCES if ctx.get(getattr(dut, name).ready)] == ([want] if want else [])
            if want:
                item = plain(ctx.get(dut.o.payload))
                slot, event, operand = offered(want, waiting[want])
                assert (item["slot"], item["item"]["event"]) == (slot, event)
                assert operand is None or item["item"]["operand"] == operand
                if want == "control":
                    assert item["item"]["action"] == waiting[want]["action"].value
                seen[want] += 1
                waiting[want] = None
            await anext(edges)

    simulate(dut, testbench, seed=rng.seed_value)
    assert min(seen.values()) > 20
