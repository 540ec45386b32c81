"""Ethernet frames of the raw packet queue: from host memory to host memory."""

from verbena.sim.devices import world
from verbena.sim.pair import End
from verbena.sw.verbs.flow import Flow, FlowAttr
from verbena.sw.verbs.libibverbs_enums import ibv_flow_attr_type, ibv_qp_type, ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.qp import QPAttr
from verbena.sw.verbs.wr import SGE, SendWR

from .batch import MTU, REGION, cycle_of, data_width, drain, figures, receives

__all__ = ["SIZES", "frames"]

SIZES = (64, 1500)
SHORT, LONG = 64, 256
"""Frames of a batch. The difference of the two is free of latencies at both ends."""


def frames(size):
    """One row: frames of ``size`` bytes with their Ethernet header, from one raw packet queue to another, until the
    last one is complete at the receiver. The limit is their beats.
    """
    sizes = {"depth": LONG, "cqe": 2 * LONG, "qp_type": ibv_qp_type.IBV_QPT_RAW_PACKET}
    with End("sim0", REGION, **sizes) as a, End("sim1", REGION, **sizes) as b:
        for end in (a, b):
            end.qp.to_rts(QPAttr())
        with Flow(b.qp, FlowAttr(flow_type=ibv_flow_attr_type.IBV_FLOW_ATTR_ALL_DEFAULT)):
            macs = (end.context._adapter.port.mac.to_bytes(6, "big") for end in (b, a))
            a.mr.write(b"".join(macs) + b"\x88\xb5", 14)
            completed = 0

            def batch(count):
                nonlocal completed
                b.qp.post_recv(receives(b, 2048, count))
                world().advance(2000)
                request = None
                for _ in range(count):
                    following, request = (
                        request,
                        SendWR(
                            0,
                            ibv_wr_opcode.IBV_WR_SEND,
                            1,
                            sg=[SGE(a.mr.buf, size, a.mr.lkey)],
                            send_flags=ibv_send_flags.IBV_SEND_SIGNALED,
                        ),
                    )
                    request.next_wr = following
                start = world().cycles
                a.qp.post_send(request)
                completed += count
                cycles = cycle_of(b.cq, completed - 1, start)
                drain(a, b)
                return cycles

            _, before, after = batch(LONG), batch(SHORT), batch(LONG)
    cycles = (after - before) / (LONG - SHORT)
    limit = -(-size * 8 // data_width())
    return figures("SEND", size, MTU, 1, cycles, transport="RAW_PACKET", limit=limit, messages=LONG - SHORT)
