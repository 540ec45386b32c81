"""What a driver keeps of its own accord, and what a program has left behind."""

from verbena.sw.verbs.libibverbs_enums import ibv_qp_type

__all__ = ["queue_pairs_left"]


def queue_pairs_left(context):
    """Numbers of QPs, but of those that the connection manager keeps as long as the device is open: QP1, and the raw
    one for reports of multicast groups, if anybody was in one.
    """
    raw = ibv_qp_type.IBV_QPT_RAW_PACKET
    return [number for number, qp in context._adapter.qps.items() if number != 1 and qp().qp_type != raw]
