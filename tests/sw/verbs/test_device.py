"""Devices, contexts, asynchronous events."""

import errno
import os
import select
import threading

import pytest
from fake_device import TRANSPORTS, FakeDevice
from in_child import in_child
from verbena.hdl.abi.counters import COUNTERS
from verbena.hdl.abi.registers import GID_ROWS, GIDS, ROCE_V1
from verbena.sw import events, host_memory, port
from verbena.sw.verbs import base, waiting
from verbena.sw.verbs import device as module
from verbena.sw.verbs.cq import CQ, CompChannel
from verbena.sw.verbs.device import DM, AllocDmAttr, AsyncEvent, Context, QueryDeviceExInput, get_device_list
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

PORT_ERR = 10
MAPPED = "0000:0000:0000:0000:0000:ffff:0a00:00a1"


def refused(code, function, *args, **kwargs):
    with pytest.raises(PyverbsRDMAError) as caught:
        function(*args, **kwargs)
    assert caught.value.error_code == code
    return str(caught.value)


def readable(fd):
    return bool(select.select([fd], [], [], 0)[0])


def test_the_list(device):
    devices = get_device_list()
    assert [d.index for d in devices] == list(range(len(devices)))
    found = next(d for d in devices if d.name == b"fake0")
    assert (found.node_type, found.transport_type) == (1, 0)
    assert found.guid == 0x005642FFFE0000A1
    assert "fake0" in str(found)


def test_the_list_opens_nothing(provided):
    provided("never", lambda: 1 / 0)
    assert b"never" in [d.name for d in get_device_list()]


@pytest.mark.parametrize("said", [None, False, True])
@pytest.mark.parametrize("variable", [None, "0", "1"])
@pytest.mark.parametrize("able", [False, True])
def test_who_pushes(provided, monkeypatch, said, variable, able):
    monkeypatch.delenv("VERBENA_PUSH", raising=False)
    if variable is not None:
        monkeypatch.setenv("VERBENA_PUSH", variable)
    fake = FakeDevice("pusher", push=able)
    provided("pusher", lambda: fake)
    with Context(name="pusher", push=said) as context:
        assert context._push == (able and (variable != "0" if said is None else said))


@pytest.mark.parametrize("name", ["fake0", b"fake0"])
def test_open(device, name):
    with Context(name=name) as context:
        assert context.name == "fake0"
        assert context.num_comp_vectors == 1
        assert "fake0" in str(context)
    context.close()


def test_contexts_share_the_adapter(device):
    with Context(name="fake0") as a:
        written = len(device.writes)
        with Context(name="fake0") as b:
            assert a._adapter is b._adapter
            assert len(device.writes) == written


def test_a_device_that_is_replaced_is_brought_up(device):
    Context(name="fake0").close()
    other = FakeDevice()
    port.provide("fake0", lambda: other)
    Context(name="fake0").close()
    assert other.registers[0x0C] == 3


def test_open_refused(device, provided):
    with pytest.raises(PyverbsUserError, match="Device name must be provided"):
        Context()
    assert "Failed to find device nowhere" in refused(errno.ENODEV, Context, name="nowhere")
    for other in ("attr", "cmd_fd"):
        refused(errno.EOPNOTSUPP, Context, **{other: object()})
    with pytest.raises(TypeError):
        Context(nonsense=1)


def raising(error):
    def opener():
        raise error

    return opener


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (OSError(errno.EACCES, "Permission denied"), errno.EACCES, "Permission denied"),
        (ImportError("No module named 'amaranth'"), errno.EIO, "No module named 'amaranth'"),
        (OSError("something else"), errno.EIO, "something else"),
        (MemoryError(), errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_a_device_that_does_not_open(provided, error, code, text):
    provided("broken", raising(error))
    message = refused(code, Context, name="broken")
    assert message.startswith("Failed to open device broken")
    assert text in message


def test_a_device_of_another_kind(provided):
    other = FakeDevice("other")
    other.registers[0] = 0x1234
    provided("other", lambda: other)
    assert "no Verbena engine" in refused(errno.ENODEV, Context, name="other")
    other.registers[0] = 0x56524231
    Context(name="other").close()


def test_gids_of_both_versions(provided):
    """What the driver writes into the table, and says of it."""
    other = FakeDevice("other")
    other.registers[TRANSPORTS] |= 16 << GID_ROWS | ROCE_V1
    other.roce_v1 = True
    provided("other", lambda: other)
    with Context(name="other") as context:
        rows = context.query_gid_table(16)
        assert [(row.gid_index, row.gid_type) for row in rows] == [(0, 2), (1, 2), (2, 1), (3, 1)]
        assert [row.gid_str() for row in rows[2:]] == [row.gid_str() for row in rows[:2]]
        assert [context.query_gid_type(1, index) for index in range(5)] == [1, 1, 0, 0, 0]
        written = dict(other.writes)
        kinds = [written[GIDS + 32 * row + 16] for row in range(5)]
        assert kinds == [1 << 31, 1 << 31 | 1, 1 << 31 | 2, 1 << 31 | 2, 0]
        assert [written[GIDS + 32 * 3 + 4 * word] for word in range(4)] == [
            written[GIDS + 32 + 4 * n] for n in range(4)
        ]


def test_gid_table(context):
    assert context.query_gid(1, 0).gid == MAPPED
    assert context.query_gid_type(1, 0) == 1
    entry = context.query_gid_ex(1, 0)
    assert (entry.gid_index, entry.port_num, entry.gid_type, entry.gid_str()) == (0, 1, 2, MAPPED)
    assert [e.gid_str() for e in context.query_gid_table(5)] == [MAPPED]
    assert refused(-errno.EINVAL, context.query_gid_table, 0).startswith("Failed to query gid tables")
    for query in (context.query_gid_table, context.query_gid_ex):
        with pytest.raises(PyverbsRDMAError) as caught:
            query(1, 0, 1) if query == context.query_gid_ex else query(5, 1)
        assert abs(caught.value.error_code) == errno.EOPNOTSUPP
    for query in (context.query_gid, context.query_gid_type, context.query_gid_ex):
        assert "Failed to query gid" in refused(errno.EINVAL, query, 1, 1)
        refused(errno.EINVAL, query, 2, 0)


def test_pkeys(context):
    assert context.query_pkey(1, 0) == 0xFFFF
    assert context.get_pkey_index(1, 0xFFFF) == 0
    assert [context.query_pkey(1, index) for index in range(1, 8)] == [0] * 7
    refused(errno.EINVAL, context.query_pkey, 1, 8)
    refused(errno.EINVAL, context.query_pkey, 1, -1)
    refused(errno.EINVAL, context.get_pkey_index, 1, 0)
    refused(errno.EINVAL, context.query_pkey, 0, 0)
    refused(errno.EINVAL, context.get_pkey_index, 1, 0x7FFF)
    refused(errno.EINVAL, context.get_pkey_index, 2, 0xFFFF)


def test_port(context):
    assert context.query_port(1).state == 4
    for number in (0, 2):
        text = refused(errno.EINVAL, context.query_port, number)
        assert text == f"Failed to query port {number}. Errno: 22, Invalid argument"


def test_what_is_not_there_is_not_pretended(context):
    refused(errno.EOPNOTSUPP, context.query_port_speed, 1)
    assert refused(errno.EOPNOTSUPP, DM, context, AllocDmAttr(4096)).startswith("Failed to allocate device memory")
    with pytest.raises(TypeError):
        DM(context)


def test_the_command_file_can_be_duplicated_and_ends(context):
    fd = context.cmd_fd
    assert context.cmd_fd == fd
    os.close(os.dup(fd))
    context.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    refused(errno.EINVAL, lambda: context.cmd_fd)


def test_the_clock(device, context):
    device.now = 3_000_000_007
    assert context.query_rt_values_ex() == context.query_rt_values_ex(1) == (3, 7)
    assert "Failed to query real time values" in refused(errno.EOPNOTSUPP, context.query_rt_values_ex, 3)


def test_capabilities(context):
    attr = context.query_device_ex()
    assert context.query_device_ex(QueryDeviceExInput(0)).comp_mask == 0
    assert "Failed to query EX device fake0" in refused(errno.EINVAL, context.query_device_ex, QueryDeviceExInput(1))
    assert vars(attr.orig_attr) == vars(context.query_device())
    assert attr.device_cap_flags_ex == attr.orig_attr.device_cap_flags
    assert attr.phys_port_cnt_ex == attr.orig_attr.phys_port_cnt
    assert attr.hca_core_clock == 10**6  # kHz, of a clock of nanoseconds
    assert attr.completion_timestamp_mask == attr.max_dm_size == attr.raw_packet_caps == attr.max_wq_type_rq == 0


CAPS = {
    "odp_caps": "general_caps rc_odp_caps uc_odp_caps ud_odp_caps xrc_odp_caps",
    "tso_caps": "max_tso supported_qpts",
    "rss_caps": "supported_qpts max_rwq_indirection_tables max_rwq_indirection_table_size rx_hash_fields_mask "
    "rx_hash_function",
    "packet_pacing_caps": "qp_rate_limit_min qp_rate_limit_max supported_qpts",
    "tm_caps": "max_rndv_hdr_size max_num_tags flags max_ops max_sge",
    "cq_mod_caps": "max_cq_count max_cq_period",
    "pci_atomic_caps": "fetch_add swap compare_swap",
}


@pytest.mark.parametrize("name", CAPS)
def test_capabilities_that_no_engine_has(context, name):
    caps = getattr(context.query_device_ex(), name)
    assert vars(caps) == dict.fromkeys(CAPS[name].split(), 0)
    assert f"{CAPS[name].split()[0]} 0" in str(caps)


def test_async_events_can_be_selected(device, context):
    assert not readable(context.async_fd)
    device.event(PORT_ERR, 0)
    assert not readable(context.async_fd)  # nobody has looked
    context.advance()
    assert readable(context.async_fd)
    context.get_async_event()
    assert not readable(context.async_fd)
    os.set_blocking(context.async_fd, False)
    assert "Failed to get async event" in refused(errno.EAGAIN, context.get_async_event)
    device.script.append(lambda: device.event(PORT_ERR, 0))
    assert context.get_async_event().event_type == PORT_ERR


def test_an_event_of_nothing():
    event = AsyncEvent()
    assert (event.event_type, event.element) == (0, None)
    event.ack()


def test_a_child_process_leaves_the_device_alone(device, context):
    cq = CQ(context, 4)
    commands = len(device.commands)

    def child():
        base.close_all()
        module._close_adapters()
        context.close()
        cq.close()
        with pytest.raises(PyverbsRDMAError, match="is closed"):
            CQ(context, 4)
        return len(device.commands) == commands, cq._closed, context._closed

    assert in_child(child) == "(True, True, True)"
    CQ(context, 4)


class Holder(threading.Thread):
    """Holds a lock, for so many seconds at most, until the block ends."""

    def __init__(self, lock, seconds=30):
        super().__init__(daemon=True)
        self._lock, self._seconds = lock, seconds
        self._holds, self._end = threading.Event(), threading.Event()
        self.start()
        assert self._holds.wait(30)

    def run(self):
        with self._lock:
            self._holds.set()
            self._end.wait(self._seconds)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._end.set()
        self.join(30)


@pytest.mark.parametrize(
    ("holder", "lock", "work"),
    [
        (port, "_lock", lambda device: b"fake0" in [d.name for d in get_device_list()]),
        (module, "_lock", lambda device: Context(name="fake0").name == "fake0"),
        (events, "_driven_lock", lambda device: Context(name="fake0").advance() is False),
        (waiting, "_lock", lambda device: "idle" in refused(errno.EDEADLK, Context(name="fake0").get_async_event)),
    ],
)
def test_a_child_process_does_not_wait_for_a_thread_of_its_parent(device, holder, lock, work):
    """Which may have any of the driver's locks at the moment of the fork."""
    with Holder(getattr(holder, lock)):
        assert in_child(lambda: work(device)) == "True"


def test_a_child_process_has_host_memory(device):
    """It is forked when no thread is about to change the arena."""
    with Holder(host_memory._lock, 0.2):
        assert in_child(lambda: host_memory.free(host_memory.alloc(4096))) == "None"
    assert in_child(lambda: host_memory.free(host_memory.alloc(4096))) == "None"
    host_memory.free(host_memory.alloc(4096))


def test_counters(device, context):
    device.counters[0] = 77
    assert context.query_counters()["tx_packets"] == 77
    assert list(context.query_counters()) == list(COUNTERS)


def test_counters_by_name(device, context):
    device.counters[0], device.counters[2] = 77, 78
    first, second, *_ = COUNTERS
    assert context.query_counters(second) == {second: 78}
    assert context.query_counters(second, first) == {first: 77, second: 78}
    text = refused(errno.EINVAL, context.query_counters, first, "nothing", 5)
    assert text.startswith("Failed to query counters: there is no nothing, 5.")


def test_time(device, context):
    device.now = 4096
    assert context.time_ns() == 4096


def test_advance_tells_whether_there_is_work_left(device, context):
    device.script.extend([lambda: None, lambda: None])
    assert context.advance(100) is True
    assert context.advance() is False
    assert device.advanced == [100, 4096]


def test_watching_ends(device, context):
    before = dict(device.watches)
    with context.watching(0x1000, 8):
        assert set(device.watches.values()) - set(before.values()) == {(0x1000, 8)}
    assert device.watches == before


def test_a_closed_context_answers_nothing(device, context):
    context.close()
    before = len(device.writes), len(device.advanced)
    for name, args in {
        "query_device": (),
        "query_device_ex": (),
        "query_port": (1,),
        "query_port_speed": (1,),
        "query_gid": (1, 0),
        "query_gid_type": (1, 0),
        "query_gid_ex": (1, 0),
        "query_gid_table": (1,),
        "query_pkey": (1, 0),
        "get_pkey_index": (1, 0xFFFF),
        "get_async_event": (),
        "query_counters": (),
        "time_ns": (),
        "advance": (),
        "__getattribute__": ("cmd_fd",),
    }.items():
        assert "Context is closed" in refused(errno.EINVAL, getattr(context, name), *args), name
    with pytest.raises(PyverbsRDMAError, match="Context is closed"), context.watching(0x1000, 8):
        pass
    assert (len(device.writes), len(device.advanced)) == before


def test_closing_closes_everything(device, context, make_qp):
    qp = make_qp()
    mr = MR(qp.pd, 8, 1)
    channel = CompChannel(context)
    cq = CQ(context, 8, channel=channel)
    context.close()
    assert all(x._closed for x in (qp, qp._scq, qp.pd, mr, channel, cq))
    assert (device.qps, device.cqs, device.watches) == ({}, {}, {})
    for function, args in ((PD, (context,)), (CQ, (context, 8)), (CompChannel, (context,))):
        assert "Context is closed" in refused(errno.EINVAL, function, *args)
    refused(errno.EINVAL, context.query_port, 1)
    refused(errno.EINVAL, context.get_async_event)


@pytest.mark.parametrize("ends", ["close", "forget"])
def test_what_a_driver_leaves_behind_says_nothing_to_the_next(device, make_qp, ends):
    """A number names something else there by now: a QP that is forgotten must not destroy its successor."""
    qp, mr = make_qp(), MR(PD(Context(name=device.name)), 64, 0)
    old = qp.context._adapter
    getattr(old, ends)()
    device._driver = None
    with Context(name=device.name) as context:
        assert context._adapter is not old
        said = len(device.writes)
        old.process_events()
        assert not old.advance(100)
        for each in (mr, qp):
            each.close()
        qp.context.close()
        assert device.writes[said:] == []


def test_one_context_leaves_the_other_alone(device, context, make_qp):
    qp = make_qp()
    with Context(name="fake0") as other:
        MR(PD(other), 8, 1)
    assert qp.qp_state == 0
    assert context._adapter.regions.by_index == {}


def test_waiting_for_an_event(device, context, make_qp):
    qp = make_qp()
    device.script.extend([lambda: None, lambda: device.event(1, qp.qp_num)])
    event = context.get_async_event()
    assert len(device.advanced) == 2
    assert event.event_type == 1
    assert "IBV_EVENT_QP_FATAL" in str(event)
    event.ack()
    assert "the device is idle" in refused(errno.EDEADLK, context.get_async_event)


def test_events_go_to_the_context_that_made_the_object(device, context, make_qp):
    qp = make_qp()
    with Context(name="fake0") as other:
        device.event(3, qp.qp_num)
        refused(errno.EDEADLK, other.get_async_event)
        assert context.get_async_event().element is qp
    assert device.advanced == [module.EVENT_QUANTUM]


def test_events_of_the_forgotten_are_forgotten(device, context, make_qp):
    qp, other = make_qp(), make_qp()
    for number in (qp.qp_num, other.qp_num):
        device.event(3, number)
    context._adapter.process_events()
    del qp
    assert context.get_async_event().element is other


def test_events_of_the_port_come_to_every_context(device, context):
    with Context(name=device.name) as other:
        device.event(10, 1)
        device.registers[0x18] = 0
        for here in (context, other):
            event = here.get_async_event()
            assert (event.event_type, event.element) == (10, here)
            event.ack()
            assert here.query_port(1).state == 1
        device.event(9, 1)
        device.registers[0x18] = 2
    assert context.get_async_event().event_type == 9
    assert context.query_port(1).state == 4
