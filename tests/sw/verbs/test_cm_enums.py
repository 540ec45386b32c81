"""Numbers of ``<rdma/rdma_cma.h>``, written out by hand."""

from verbena.sw.verbs import cm_enums as ce


def test_events():
    assert ce.RDMA_CM_EVENT_ADDR_RESOLVED == 0
    assert ce.RDMA_CM_EVENT_CONNECT_REQUEST == 4
    assert ce.RDMA_CM_EVENT_UNREACHABLE == 7
    assert ce.RDMA_CM_EVENT_ESTABLISHED == 9
    assert ce.RDMA_CM_EVENT_DISCONNECTED == 10
    assert ce.RDMA_CM_EVENT_TIMEWAIT_EXIT == 15
    assert ce.rdma_cm_event_type(8).name == "RDMA_CM_EVENT_REJECTED"


def test_the_rest():
    assert (ce.RDMA_PS_IPOIB, ce.RDMA_PS_TCP, ce.RDMA_PS_UDP, ce.RDMA_PS_IB) == (0x2, 0x106, 0x111, 0x13F)
    assert (ce.RAI_PASSIVE, ce.RAI_NUMERICHOST, ce.RAI_NOROUTE, ce.RAI_FAMILY, ce.RAI_SA, ce.RAI_DNS) == (
        1,
        2,
        4,
        8,
        16,
        32,
    )
    assert (ce.RDMA_OPTION_ID, ce.RDMA_OPTION_ID_TOS, ce.RDMA_OPTION_ID_ACK_TIMEOUT) == (0, 0, 3)
    assert ce.RDMA_CM_JOIN_MC_ATTR_ADDRESS | ce.RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS == 3
    assert (ce.RDMA_MC_JOIN_FLAG_FULLMEMBER, ce.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) == (0, 1)
