"""What a program and its peer tell each other when they connect."""

from dataclasses import dataclass, replace

from ..verbs.limits import MAX_RD_ATOMIC
from .address_vector import AddressVector

__all__ = ["MOST_RETRIES", "Parameters", "Path"]

MOST_RETRIES = 7
"""What 3 bits hold: for ever, of RNR retries."""


@dataclass(frozen=True)
class Parameters:
    """``struct rdma_conn_param``, as one side sees it: the READs and atomics of the peer that it serves at a time, and
    those of its own that it issues.
    """

    responder_resources: int = MAX_RD_ATOMIC
    initiator_depth: int = MAX_RD_ATOMIC
    flow_control: int = 0
    retry_count: int = MOST_RETRIES
    rnr_retry_count: int = MOST_RETRIES
    srq: int = 0
    qp_num: int = 0
    private_data: bytes = b""

    @classmethod
    def of(cls, message):
        """What a REQ or REP says, as its receiver sees it: each side issues what the other one serves."""
        return cls(
            responder_resources=message.initiator_depth,
            initiator_depth=message.responder_resources,
            flow_control=message.flow_control,
            retry_count=getattr(message, "retry_count", 0),
            rnr_retry_count=message.rnr_retry,
            srq=message.srq,
            qp_num=message.qpn,
            private_data=message.private_data,
        )

    def limited(self, *others):
        """As much as these and each of ``others`` allow, and the adapter can."""
        serves = min(MAX_RD_ATOMIC, self.responder_resources, *(other.responder_resources for other in others))
        issues = min(MAX_RD_ATOMIC, self.initiator_depth, *(other.initiator_depth for other in others))
        return replace(self, responder_resources=serves, initiator_depth=issues)


@dataclass(frozen=True)
class Path:
    """What the QP of a connection is to be told: where its peer is, how packets get there, and what both agreed on."""

    vector: AddressVector
    dest_qpn: int
    rq_psn: int
    sq_psn: int
    mtu: int
    flow_label: int
    traffic_class: int
    ack_timeout: int
    retry_count: int
    rnr_retry: int
    responder_resources: int
    initiator_depth: int
