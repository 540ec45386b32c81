"""Flow steering, which the engine does not have."""

from .base import PyverbsObject
from .libibverbs_enums import IBV_FLOW_ATTR_NORMAL
from .unsupported import unsupported

__all__ = ["Flow", "FlowAttr"]


class FlowAttr(PyverbsObject):
    """``struct ibv_flow_attr``; ``specs`` is a list."""

    def __init__(self, num_of_specs=0, flow_type=IBV_FLOW_ATTR_NORMAL, priority=0, port=1, flags=0):
        self.num_of_specs = num_of_specs
        self.type = flow_type
        self.priority = priority
        self.port = port
        self.flags = flags
        self.specs = []


class Flow(PyverbsObject):
    """A rule that leads packets to a QP."""

    @unsupported("Flow creation failed")
    def __init__(self, qp, flow_attr):
        """Creates it."""
