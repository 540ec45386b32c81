"""A device of its own for each test, without an engine."""

import pytest
from fake_device import FakeDevice, Memory, provided
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.qp import QP, QPCap, QPInitAttr


@pytest.fixture(autouse=True)
def memory_comes_back():
    """An adapter has its tables until its process ends; here each test has other ones, and the process has a thousand
    tests.
    """
    yield
    Memory.give_back()


@pytest.fixture(params=[False, True], ids=["slots", "table"])
def device(request):
    """A fake device that the driver finds as ``fake0``: with slots for all QPs, and with a table of them."""
    with provided(FakeDevice(table=request.param)) as fake:
        yield fake


@pytest.fixture
def context(device):
    with Context(name=device.name) as context:
        yield context


@pytest.fixture
def pd(context):
    return PD(context)


@pytest.fixture
def cq(context):
    return CQ(context, 16)


@pytest.fixture
def make_qp(pd, cq):
    """A function that makes a QP with some of its capacities changed."""

    def make(*, sq_sig_all=0, scq=None, rcq=None, qp_attr=None, **cap):
        init = QPInitAttr(ibv_qp_type.IBV_QPT_RC, "mine", scq or cq, rcq or cq, None, QPCap(**cap), sq_sig_all)
        return QP(pd, init, qp_attr)

    return make
