"""Flows: who gets raw frames, and what the device hears of it."""

import errno

import pytest
from fake_device import FakeDevice, provided
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.flow import Flow, FlowAttr
from verbena.sw.verbs.libibverbs_enums import ibv_flow_attr_type, ibv_qp_state, ibv_qp_type
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QP, QPAttr, QPInitAttr

RAW_REGISTER = 0x700
ALL, SNIFFER = ibv_flow_attr_type.IBV_FLOW_ATTR_ALL_DEFAULT, ibv_flow_attr_type.IBV_FLOW_ATTR_SNIFFER


@pytest.fixture
def device():
    with provided(FakeDevice(raw=True)) as fake:
        yield fake


def queue(context, kind=ibv_qp_type.IBV_QPT_RAW_PACKET, **more):
    pd, cq = PD(context), CQ(context, 16)
    return QP(pd, QPInitAttr(kind, scq=cq, rcq=cq), **more)


def written(device):
    return [value for offset, value in device.writes if offset == RAW_REGISTER]


def refused(code, function, *args):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args)
    assert caught.value.error_code == code
    assert str(caught.value).startswith("Flow creation failed")


def test_the_device_hears_whose_the_frames_are(device):
    with Context(name=device.name) as context:
        first, second = queue(context), queue(context)
        flow = Flow(first, FlowAttr(flow_type=ALL))
        refused(errno.EBUSY, Flow, second, FlowAttr(flow_type=ALL))
        refused(errno.EBUSY, Flow, first, FlowAttr(flow_type=SNIFFER))
        flow.close()
        flow.close()
        Flow(second, FlowAttr(flow_type=SNIFFER))
        second.close()
        third = Flow(first, FlowAttr(flow_type=ALL))
        assert third.qp is first
    assert written(device) == [first.qp_num, 0, second.qp_num | 1 << 24, 0, first.qp_num, 0]


def test_what_is_refused(device):
    with Context(name=device.name) as context:
        raw, rc = queue(context), queue(context, ibv_qp_type.IBV_QPT_RC)
        for qp in (rc, "qp", None):
            refused(errno.EINVAL, Flow, qp, FlowAttr(flow_type=ALL))
        for wrong in ({"port": 0}, {"port": 2}, {"priority": 1}, {"flow_type": 4}):
            refused(errno.EINVAL, Flow, raw, FlowAttr(**{"flow_type": ALL} | wrong))
        for absent in ({"flow_type": 0}, {"flow_type": 2}, {"num_of_specs": 1}, {"flags": 1}):
            refused(errno.EOPNOTSUPP, Flow, raw, FlowAttr(**{"flow_type": ALL} | absent))
        raw.close()
        refused_closed = pytest.raises(PyverbsRDMAError, match="QP is closed")
        with refused_closed:
            Flow(raw, FlowAttr(flow_type=ALL))
    assert written(device) == []


def test_a_queue_with_attributes_begins_in_rts(device):
    with Context(name=device.name) as context:
        assert queue(context, qp_attr=QPAttr()).query()[0].qp_state == ibv_qp_state.IBV_QPS_RTS


def test_a_device_without_raw_packets():
    with provided(FakeDevice("fake1")) as fake, Context(name=fake.name) as context:
        with pytest.raises(PyverbsRDMAError) as caught:
            queue(context)
        assert caught.value.error_code == errno.EOPNOTSUPP
        refused(errno.EOPNOTSUPP, Flow, queue(context, ibv_qp_type.IBV_QPT_RC), FlowAttr(flow_type=ALL))
