"""RingIndices: who writes which row, against a model."""

import pytest
from at_once import AtOnce
from streams import make_rng, shared, simulate
from verbena.hdl.queue.ring_indices import RingIndices

QPS = 4
ROWS = ("producer", "misrung", "issued", "fetched", "failed", "consumed")
FLAGS = ("misrung", "failed")
WAKE = 2 * QPS  # cycles in which each ring is set, as a reset does not reach the rows


@pytest.mark.parametrize("cycles", [1000, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("lands", "swaps"), [(False, False), (True, False), (True, True)])
def test_against_a_model(lands, swaps, cycles):
    """All writers at work in all cycles in which they may; a ring is set in those that are left."""
    rng = make_rng()
    dut = shared(RingIndices, QPS, lands=lands, swaps=swaps)
    rows = {name: [0] * QPS for name in ROWS}
    seen = set()

    async def testbench(ctx):
        status, put = None, AtOnce(ctx)
        qp, rings = {}, False
        edges = aiter(ctx.tick())
        for cycle in range(cycles):
            qp |= {name: rng.randrange(QPS) for name in ("look", "status", "start", "end", "consumed")}
            # Whose turn it is stands in the cycle before something is done for it.
            stands = cycle % 2 if cycle < WAKE else rng.random() < 0.6
            if not stands:
                rings = cycle >= WAKE and rng.random() < 0.7
                qp |= {"rung": rng.randrange(QPS), "set": cycle // 2 if cycle < WAKE else rng.randrange(QPS)}
            setting = stands and not rings and (cycle < WAKE or rng.random() < 0.5)
            index = {name: rng.randrange(1 << 16) for name in ("rung", "start", "end", "consumed", "set")}
            verdict = rng.choice(["accept", "reject", None]) if rings and stands else None
            start, ends = (not setting and rng.random() < 0.4 for _ in range(2))
            land = lands and rings and stands and verdict is None and not start and not ends and rng.random() < 0.5
            consumes = cycle >= WAKE and rng.random() < 0.5
            counts = consumes and rng.random() < 0.7
            failure = rng.choice(["good", "bad", None]) if ends else None
            reset = setting and (cycle < WAKE or rng.random() < 0.5)
            arm = setting and (cycle < WAKE or rng.random() < 0.7)
            then = {name: rng.randrange(2 if name in FLAGS else 1 << 16) for name in ("producer", *FLAGS, "consumed")}
            values = {
                **{f"{name}_qp": value for name, value in qp.items()},
                "rung_index": index["rung"],
                "start_end": index["start"],
                "end": index["end"],
                "consumed_index": index["consumed"],
                "set_index": index["set"],
                "rings": rings,
                "accept": verdict == "accept",
                "reject": verdict == "reject",
                "start": start,
                "ends": ends,
                "good": failure == "good",
                "bad": failure == "bad",
                "consumes": consumes,
                "consumes_en": counts,
                "set": setting,
                "reset": reset,
                "arm": arm,
                **({"land": land} if lands else {}),
                **({"then": then} if swaps else {}),
            }
            for name, value in values.items():
                put(getattr(dut, name), value)
            put.set()
            if cycle >= WAKE:
                for name in ("producer", "issued", "consumed", *FLAGS):
                    assert ctx.get(getattr(dut, name)) == rows[name][qp["look"]], name
                assert ctx.get(dut.end_failed) == rows["failed"][qp["end"]]
            if cycle > WAKE:
                assert (ctx.get(dut.status.producer), ctx.get(dut.status.fetched), ctx.get(dut.status.error)) == status
            at = qp["status"]
            status = rows["producer"][at], rows["fetched"][at], rows["misrung"][at] | rows["failed"][at]
            await anext(edges)

            # -- What it is to be now.
            if verdict == "accept":
                rows["producer"][qp["rung"]] = index["rung"]
            if verdict == "reject" and not ends:
                rows["misrung"][qp["rung"]] = 1
            if start:
                rows["issued"][qp["start"]] = index["start"]
            if failure == "good":
                rows["fetched"][qp["end"]] = index["end"]
            if failure == "bad":
                rows["failed"][qp["end"]] = 1
            if land:
                rows["issued"][qp["rung"]] = rows["fetched"][qp["rung"]] = index["rung"]
            if counts:
                rows["consumed"][qp["consumed"]] = index["consumed"]
            if setting:
                rows["issued"][qp["set"]] = rows["fetched"][qp["set"]] = index["set"]
            if reset:
                for name in ("producer", *FLAGS):
                    rows[name][qp["set"]] = then[name] if swaps else 0
            if arm and not consumes:
                rows["consumed"][qp["set"]] = index["set"]
            seen.update((verdict, failure, land and "land", reset and "reset", (arm and not consumes) and "arm"))

    simulate(dut, testbench, seed=rng.seed_value)
    assert seen >= {"accept", "reject", "good", "bad", "reset", "arm"} | ({"land"} if lands else set())
