"""What a tool holds of a device."""

import errno
import random
from types import SimpleNamespace

import pytest
from verbena.sw.tools import endpoint
from verbena.sw.tools.endpoint import Endpoint, chain, mtu_of, open_device
from verbena.sw.tools.session import ToolError, run
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.wr import RecvWR


def test_chain():
    requests = [RecvWR(i) for i in range(3)]
    wr = chain(iter(requests))
    assert [wr.wr_id, wr.next_wr.wr_id, wr.next_wr.next_wr.wr_id] == [0, 1, 2]
    assert wr.next_wr.next_wr.next_wr is None
    assert chain([]) is None


def test_mtu():
    assert [mtu_of(size) for size in (256, 512, 1024, 2048, 4096)] == [1, 2, 3, 4, 5]
    with pytest.raises(ToolError, match="not 1000"):
        mtu_of(1000)


def test_the_first_device_is_the_default(device, monkeypatch):
    monkeypatch.setattr(endpoint, "get_device_list", lambda: [SimpleNamespace(name=device.name.encode())])
    with open_device() as context:
        assert context.name == device.name
    monkeypatch.setattr(endpoint, "get_device_list", list)
    with pytest.raises(ToolError, match="there is no device"):
        open_device()


def test_it_is_closed_with_all_it_holds(context):
    adapter = context._adapter
    before = len(adapter.qps), len(adapter.cqs), len(adapter.regions.by_index), set(adapter.pds)
    with Endpoint(context, 4096, qps=3, rng=random.Random(1)) as end:
        assert [len(adapter.qps), len(adapter.cqs), len(adapter.regions.by_index)] == [3, 1, 1]
        assert end.index == {qp.qp_num: i for i, qp in enumerate(end.qps)}
        assert end.gid[:12] == bytes(10) + b"\xff\xff"
        assert len(set(end.psns)) == 3
    assert (len(adapter.qps), len(adapter.cqs), len(adapter.regions.by_index), adapter.pds) == before


def test_nothing_stays_of_one_that_cannot_be(context):
    adapter = context._adapter
    before = len(adapter.qps), len(adapter.cqs), len(adapter.regions.by_index), set(adapter.pds)
    with pytest.raises(PyverbsRDMAError) as caught:
        Endpoint(context, 4096, qps=adapter.control.max_qp + 1)
    assert caught.value.error_code == errno.ENOMEM
    assert (len(adapter.qps), len(adapter.cqs), len(adapter.regions.by_index), adapter.pds) == before


def test_events_need_no_file(context):
    """With one a thread would give time by the wall's clock, and no seed would repeat a run."""
    with Endpoint(context, 4096, events=True) as end:
        assert end.poll(1) == []
        assert not context._adapter.files


def test_a_failed_completion_is_told_in_words(context, monkeypatch):
    with Endpoint(context, 4096) as end:
        wc = SimpleNamespace(status=12, vendor_err=3, qp_num=0x40, wr_id=7)
        monkeypatch.setattr(end._cq, "poll", lambda count: (1, [wc]))
        with pytest.raises(ToolError) as caught:
            end.poll()
    assert str(caught.value) == "QP 0x40, request 7: IBV_WC_RETRY_EXC_ERR (12), vendor error RANGE"


def test_waiting_ends_when_the_peer_is_gone(context):
    def gone():
        raise ToolError("gone")

    with Endpoint(context, 4096, channel=SimpleNamespace(check=gone)) as end:
        assert end.poll() == []  # what comes now is looked at, too
        with pytest.raises(ToolError, match="gone"):
            end.poll()


def test_a_peer_that_is_gone_is_waited_for_while_the_device_works(context, device, monkeypatch):
    def gone():
        raise ToolError("gone")

    with Endpoint(context, 4096, channel=SimpleNamespace(check=gone)) as end:
        device.script.extend([lambda: True] * 20)
        for _ in range(10):
            assert end.poll() == []
        wc = SimpleNamespace(status=12, vendor_err=3, qp_num=0x40, wr_id=7)
        monkeypatch.setattr(end._cq, "poll", lambda count: (1, [wc]))
        with pytest.raises(ToolError, match="IBV_WC_RETRY_EXC_ERR"):
            end.poll()


def test_waiting_ends_with_patience(context):
    with Endpoint(context, 4096, patience=-1) as end, pytest.raises(ToolError, match="in vain for a completion"):
        end.poll()


def test_settling_ends(context, device):
    with Endpoint(context, 4096) as end:
        run(end.settle())
        idle = len(device.advanced)
        device.script.extend([lambda: None] * 1000)
        run(end.settle())
        assert len(device.advanced) - idle == endpoint.SETTLE
