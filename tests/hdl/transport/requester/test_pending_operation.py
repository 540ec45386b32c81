"""A result becomes a completion or a failure, once the completer knows its message."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.abi.cqe import WcStatus
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.transport.requester.pending_operation import KNOWN_AFTER, PendingOperation


def expected(status, binds):
    if status == AccessStatus.BUS:
        return WcStatus.GENERAL_ERR
    return WcStatus.MW_BIND_ERR if binds else WcStatus.LOC_QP_OP_ERR


@pytest.mark.parametrize("count", [60])
def test_random(count):
    """The result is there before the message is known, or comes later; who hears it takes his time."""
    rng = make_rng()
    dut = PendingOperation()

    async def testbench(ctx):
        for number in range(count):
            begun = {"qp": rng.randrange(4096), "wqe_index": number, "psn": rng.randrange(1 << 24)}
            begun |= {"binds": rng.randrange(2)}
            ctx.set(dut.begun, begun)
            ctx.set(dut.begin, 1)
            ctx.set(dut.told, rng.randrange(2))
            await ctx.tick()
            ctx.set(dut.begin, 0)
            ctx.set(dut.begun, {"qp": 1, "wqe_index": 2, "psn": 3})
            told, comes = rng.randrange(12), rng.randrange(20)
            takes = rng.randrange(20)
            status = rng.choice([AccessStatus.OK, *AccessStatus])
            port, other = (dut.local, dut.failed) if status == AccessStatus.OK else (dut.failed, dut.local)
            ctx.set(dut.operated.payload.status, status)
            for cycle in range(50):
                ctx.set(dut.told, cycle >= told)
                ctx.set(dut.operated.valid, cycle >= comes)
                ctx.set(port.ready, cycle >= takes)
                ctx.set(other.ready, rng.randrange(2))
                _, _, busy, qp, valid, wrong, ready, payload = await ctx.tick().sample(
                    dut.busy, dut.qp, port.valid, other.valid, dut.operated.ready, port.payload
                )
                assert (busy, qp, wrong) == (1, begun["qp"], 0)
                assert valid == (cycle >= max(told + KNOWN_AFTER, comes))
                if valid:
                    assert payload.qp == begun["qp"]
                    assert ready == (cycle >= takes)
                    if status == AccessStatus.OK:
                        assert payload.psn == begun["psn"]
                    else:
                        assert (payload.wqe_index, payload.syndrome) == (number, status)
                        assert payload.status == expected(status, begun["binds"])
                    if cycle >= takes:
                        break
            ctx.set(dut.operated.valid, 0)
            assert not ctx.get(dut.busy)

    simulate(dut, testbench, seed=rng.seed_value)
