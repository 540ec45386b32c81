"""Flow steering: who gets the frames that are not RoCE."""

import errno

from .base import PyverbsCM, PyverbsObject, attempt, refuse
from .libibverbs_enums import IBV_FLOW_ATTR_NORMAL, ibv_flow_attr_type, ibv_qp_type
from .qp import QP

__all__ = ["Flow", "FlowAttr"]

T = ibv_flow_attr_type


class FlowAttr(PyverbsObject):
    """``struct ibv_flow_attr``; ``specs`` is a list."""

    def __init__(self, num_of_specs=0, flow_type=IBV_FLOW_ATTR_NORMAL, priority=0, port=1, flags=0):
        self.num_of_specs = num_of_specs
        self.type = flow_type
        self.priority = priority
        self.port = port
        self.flags = flags
        self.specs = []


class Flow(PyverbsCM):
    """Leads to a QP of type RAW_PACKET, until it is closed, the frames that come to the adapter and are not RoCE.

    With ``IBV_FLOW_ATTR_ALL_DEFAULT`` those to the adapter's own MAC address and to groups, broadcast among them; with
    ``IBV_FLOW_ATTR_SNIFFER`` those to other stations, too. The adapter answers ARP and ping to its own address all the
    same; the QP gets these frames as well.

    EBUSY: the adapter has a flow already. EINVAL: no QP, one of another type, or an attribute out of range. EOPNOTSUPP:
    the device has no raw packet queue, the type is another one, or there are specs or flags.
    """

    def __init__(self, qp, flow_attr):
        failed = "Flow creation failed"
        if not isinstance(qp, QP):
            refuse(f"{failed}: of a QP, not {type(qp)}", errno.EINVAL)
        adapter = qp._adapter
        if ibv_qp_type.IBV_QPT_RAW_PACKET not in adapter.control.qp_types:
            refuse(failed, errno.EOPNOTSUPP)
        if not qp._raw:
            refuse(f"{failed}: {qp} is not of type RAW_PACKET", errno.EINVAL)
        if flow_attr.port != 1 or flow_attr.priority:
            refuse(f"{failed}: port {flow_attr.port}, priority {flow_attr.priority}", errno.EINVAL)
        if flow_attr.type not in set(T):
            refuse(f"{failed}: type {flow_attr.type!r}", errno.EINVAL)
        kinds = (T.IBV_FLOW_ATTR_ALL_DEFAULT, T.IBV_FLOW_ATTR_SNIFFER)
        if flow_attr.type not in kinds or flow_attr.num_of_specs or flow_attr.specs or flow_attr.flags:
            refuse(f"{failed}: only ALL_DEFAULT and SNIFFER, without specs and flags", errno.EOPNOTSUPP)
        super().__init__(qp)
        self.qp = qp
        with attempt(failed):
            adapter.lead_raw(qp.qp_num, flow_attr.type == T.IBV_FLOW_ATTR_SNIFFER)
        self._opened()

    def _destroy(self):
        self.qp._adapter.lead_raw(0)
