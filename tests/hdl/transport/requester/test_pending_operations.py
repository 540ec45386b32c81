"""Results become completions or failures in their order, each once the completer knows its message."""

from collections import deque

import pytest
from streams import make_rng, simulate
from verbena.hdl.abi.cqe import WcStatus
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.transport.requester.pending_operations import KNOWN_AFTER, PendingOperations


def expected(status, binds):
    if status == AccessStatus.BUS:
        return WcStatus.GENERAL_ERR
    return WcStatus.MW_BIND_ERR if binds else WcStatus.LOC_QP_OP_ERR


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_random(count):
    """A result is there before its message is known, or comes later; who hears it takes his time."""
    rng = make_rng()
    dut = PendingOperations(count)
    wanted = 200
    under_way = deque()  # what has begun, each with its status, and the cycle in which it is known
    most = 0

    async def testbench(ctx):
        nonlocal most
        over, told_at, comes, number, known = 0, 0, False, 0, 0
        for cycle in range(60 * wanted):
            # A message is said behind the one before, and known some cycles after it was taken.
            begins = len(under_way) < count and cycle > known + 1 and rng.random() < 0.3
            if begins:
                begun = {"qp": rng.randrange(4096), "wqe_index": number, "psn": rng.randrange(1 << 24)}
                begun |= {"binds": rng.randrange(2)}
                ctx.set(dut.begun, begun)
                number += 1
                told_at = cycle + 1 + rng.randrange(12)
                known = told_at + KNOWN_AFTER
            ctx.set(dut.begin, begins)
            ctx.set(dut.told, rng.randrange(2) if begins else cycle >= told_at)
            comes = bool(under_way) and (comes or rng.random() < 0.05)
            first, status, knows = under_way[0] if under_way else (None, AccessStatus.OK, 0)
            good = status == AccessStatus.OK
            port, other = (dut.local, dut.failed) if good else (dut.failed, dut.local)
            takes = rng.randrange(2)
            ctx.set(dut.operated.payload.status, status)
            ctx.set(dut.operated.valid, comes)
            ctx.set(port.ready, takes)
            ctx.set(other.ready, rng.randrange(2))
            _, _, full, valid, wrong, ready, payload, *theirs = await ctx.tick().sample(
                dut.full, port.valid, other.valid, dut.operated.ready, port.payload, *dut.busy, *dut.qp
            )
            busy = sorted(qp for here, qp in zip(theirs[:count], theirs[count:], strict=True) if here)
            assert busy == sorted(item["qp"] for item, _, _ in under_way)
            assert full == (len(under_way) == count)
            assert not wrong
            assert valid == (comes and cycle >= knows)
            if valid:
                assert payload.qp == first["qp"]
                assert ready == takes
                if good:
                    assert payload.psn == first["psn"]
                else:
                    assert (payload.wqe_index, payload.syndrome) == (first["wqe_index"], status)
                    assert payload.status == expected(status, first["binds"])
            if begins:
                under_way.append((begun, rng.choice([AccessStatus.OK, *AccessStatus]), known))
            most = max(most, len(under_way))
            if valid and takes:
                under_way.popleft()
                comes, over = False, over + 1
                if over == wanted:
                    return

    simulate(dut, testbench, seed=rng.seed_value)
    assert most == count


@pytest.mark.parametrize("count", [0, 1.0])
def test_bad_parameters(count):
    with pytest.raises(ValueError, match="count"):
        PendingOperations(count)
