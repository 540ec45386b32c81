"""The connection manager on whole adapters: connections, refusals, losses, and what programs see of them."""

import errno
import gc
import os
import select
import threading
import weakref

import pytest
from verbena.sim.devices import world
from verbena.sim.world import World
from verbena.sw.cm.clock import skip
from verbena.sw.cm.messages import unpack
from verbena.sw.verbs import base
from verbena.sw.verbs import cm_enums as ce
from verbena.sw.verbs.addr import AH
from verbena.sw.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam, UDParam
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import ibv_access_flags, ibv_qp_state, ibv_qp_type
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr

PORT = "7471"
NEAR, FAR = IPV4 = "10.0.0.1", "10.0.0.2"
NEAR6, FAR6 = IPV6 = "fe80::56:42ff:fe00:1", "fe80::56:42ff:fe00:2"
both_networks = pytest.mark.parametrize("network", [IPV4, IPV6], ids=["IPv4", "IPv6"])
A, S = ibv_access_flags, ibv_qp_state
RC, UD = ibv_qp_type.IBV_QPT_RC, ibv_qp_type.IBV_QPT_UD
PATIENCE = 120


def init(kind=RC, **cap):
    return QPInitAttr(kind, cap=QPCap(**{"max_recv_wr": 4, "max_send_wr": 4} | cap), sq_sig_all=1)


@pytest.fixture
def network():
    """Addresses of the active and of the listening side, unless a test has others."""
    return IPV4


def listening(port_space=ce.RDMA_PS_TCP, service=PORT, at=FAR):
    return AddrInfo(src=at, src_service=service, port_space=port_space, flags=ce.RAI_PASSIVE)


def towards(port_space=ce.RDMA_PS_TCP, service=PORT, network=IPV4):
    return AddrInfo(src=network[0], dst=network[1], dst_service=service, port_space=port_space)


def expect(channel, kind, status=0):
    event = CMEvent(channel)
    assert (event.event_str(), event.status) == (kind.name, status)
    event.ack_cm_event()
    assert event.event_str() == ""
    return event


def both(near, far):
    """Runs two functions side by side, each in a thread, and returns what they return."""
    found, failed = {}, []

    def run(name, function):
        try:
            found[name] = function()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in (("near", near), ("far", far))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    if failed:
        raise failed[0]
    return found["near"], found["far"]


@both_networks
def test_synchronous(network):
    """As rdma_client and rdma_server are written."""

    def serve():
        with CMID(listening(at=network[1]), qp_init_attr=init()) as listener:
            listener.listen()
            ready.set()
            with listener.get_request() as cmid:
                mr = cmid.reg_msgs(64)
                cmid.post_recv(mr)
                cmid.accept()
                wc = cmid.get_recv_comp()
                assert (wc.status, wc.byte_len) == (0, 16)
                assert mr.read(16, 0) == b"a question......"
                mr.write("an answer", 9)
                cmid.post_send(mr, length=9)
                assert cmid.get_send_comp().status == 0
                cmid.disconnect()
                return cmid.query_qp(0)[0].qp_state

    def ask():
        ready.wait()
        with CMID(towards(network=network), qp_init_attr=init()) as cmid:
            mr = cmid.reg_msgs(64)
            cmid.post_recv(mr)
            cmid.connect()
            out = cmid.reg_msgs(16)
            out.write("a question......", 16)
            cmid.post_send(out)
            assert cmid.get_send_comp().status == 0
            assert cmid.get_recv_comp().byte_len == 9
            cmid.disconnect()
            return mr.read(9, 0)

    ready = threading.Event()
    assert both(ask, serve) == (b"an answer", S.IBV_QPS_ERR)


def test_a_synchronous_one_ends_once(network):
    """Who has ended the connection does not wait for its end again; nor does who was refused."""

    def serve():
        with CMID(listening(at=network[1]), qp_init_attr=init()) as listener:
            listener.listen()
            ready.set()
            with listener.get_request() as cmid:
                cmid.accept()
                cmid.disconnect()
                cmid.disconnect()
            with listener.get_request() as cmid:
                cmid.reject()
        return True

    def ask():
        ready.wait()
        with CMID(towards(network=network), qp_init_attr=init()) as cmid:
            cmid.connect()
            for _ in range(3):
                cmid.disconnect()
        with CMID(towards(network=network), qp_init_attr=init()) as cmid:
            with pytest.raises(PyverbsRDMAError):
                cmid.connect()
            cmid.disconnect()
            return cmid.query_qp(0)[0].qp_state

    ready = threading.Event()
    assert both(ask, serve) == (S.IBV_QPS_ERR, True)


@pytest.fixture
def sides(network):
    """An active and a listening CMID with channels; the active one knows its way."""
    near, far = CMEventChannel(), CMEventChannel()
    with CMID(far) as listener, CMID(near) as active:
        listener.bind_addr(listening(at=network[1]))
        listener.listen()
        active.resolve_addr(towards(network=network))
        expect(near, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        active.resolve_route()
        expect(near, ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
        yield active, listener
    near.close(), far.close()


def requested(listener):
    event = CMEvent(listener.event_channel)
    assert event.event_type == ce.RDMA_CM_EVENT_CONNECT_REQUEST
    child = CMID(creator=event, listen_id=listener)
    event.ack_cm_event()
    return child, event


def connected(active, listener, **near):
    active.create_qp(init())
    active.connect(ConnParam(**near))
    child, _ = requested(listener)
    child.create_qp(init())
    child.accept()
    expect(active.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    expect(listener.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    return child


@both_networks
def test_events(sides, network):
    active, listener = sides
    param = ConnParam(resources=3, depth=2, retry=6, rnr_retry=4)
    param.private_data = b"from the client"
    active.create_qp(init())
    active.connect(param)
    child, event = requested(listener)
    assert event.private_data.rstrip(b"\0") == b"from the client"
    told = event.conn_param
    assert (told.responder_resources, told.initiator_depth, told.qp_num) == (2, 3, active.qpn)
    assert (told.retry_count, told.rnr_retry_count) == (6, 4)
    child.create_qp(init())
    answer = ConnParam(resources=16, depth=1, rnr_retry=5)
    answer.private_data = b"from the server"
    child.accept(answer)
    event = expect(active.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    assert event.private_data.rstrip(b"\0") == b"from the server"
    expect(listener.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    near, far = active.query_qp(0)[0], child.query_qp(0)[0]
    assert near.qp_state == far.qp_state == S.IBV_QPS_RTS
    assert (near.dest_qp_num, far.dest_qp_num) == (child.qpn, active.qpn)
    assert (near.rq_psn, near.sq_psn) == (far.sq_psn, far.rq_psn)
    # Each side issues at most what the other one serves.
    assert (near.max_dest_rd_atomic, near.max_rd_atomic) == (1, 2)
    assert (far.max_dest_rd_atomic, far.max_rd_atomic) == (2, 1)
    assert (near.retry_cnt, far.retry_cnt, near.rnr_retry, far.rnr_retry) == (6, 6, 5, 4)
    assert (near.timeout, far.timeout, near.min_rnr_timer, near.path_mtu) == (19, 19, 0, 5)
    assert near.ah_attr.flow_label == far.ah_attr.flow_label != 0
    index = int(network is IPV6)
    for cmid, other in ((active, child), (child, active)):
        route = cmid.query_qp(0x1FFFFFF)[0].ah_attr.gr
        assert (route.sgid_index, route.dgid) == (index, other.context.query_gid(1, index).gid)
    active.disconnect()
    expect(listener.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    child.disconnect()
    expect(active.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    assert active.query_qp(0)[0].qp_state == child.query_qp(0)[0].qp_state == S.IBV_QPS_ERR
    expect(active.event_channel, ce.RDMA_CM_EVENT_TIMEWAIT_EXIT)
    expect(listener.event_channel, ce.RDMA_CM_EVENT_TIMEWAIT_EXIT)
    with pytest.raises(PyverbsRDMAError) as caught:
        CMEvent(active.event_channel)
    assert caught.value.error_code == errno.EDEADLK
    child.close()


@both_networks
def test_an_adapter_with_itself(network):
    own = network[0]
    channel = CMEventChannel()
    with CMID(channel) as listener, CMID(channel) as active:
        listener.bind_addr(listening(at=own))
        listener.listen()
        active.resolve_addr(towards(network=(own, own)))
        expect(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        assert active.context is listener.context
        active.create_qp(init())
        active.connect()
        child, _ = requested(listener)
        child.create_qp(init())
        mr = child.reg_write(16)
        child.post_recv(mr)
        child.accept()
        expect(channel, ce.RDMA_CM_EVENT_ESTABLISHED)
        expect(channel, ce.RDMA_CM_EVENT_ESTABLISHED)
        out = active.reg_msgs(16)
        out.write("to the same card", 16)
        active.post_send(out)
        assert child.get_recv_comp().byte_len == 16
        assert mr.read(16, 0) == b"to the same card"
        child.disconnect()
        expect(channel, ce.RDMA_CM_EVENT_DISCONNECTED)
        active.disconnect()
        expect(channel, ce.RDMA_CM_EVENT_DISCONNECTED)
        child.close()


def test_two_connections_at_once(sides):
    """Each has its own events; to the same listener."""
    active, listener = sides
    with CMID(active.event_channel) as other:
        other.resolve_addr(towards())
        expect(active.event_channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        children = []
        for cmid in (active, other):
            cmid.create_qp(init())
            cmid.connect()
        for _ in range(2):
            child, _ = requested(listener)
            child.create_qp(init())
            child.accept()
            children.append(child)
        events = [CMEvent(active.event_channel) for _ in range(2)]
        assert {event.id for event in events} == {active, other}
        assert {event.event_type for event in events} == {ce.RDMA_CM_EVENT_ESTABLISHED}
        numbers = {cmid.qpn: cmid.query_qp(0)[0].dest_qp_num for cmid in (active, other)}
        assert {child.query_qp(0)[0].dest_qp_num: child.qpn for child in children} == numbers
        for child in children:
            child.close()


def test_a_qp_of_ones_own(sides):
    active, listener = sides

    def make(cmid):
        cq = CQ(cmid.context, 8)
        return QP(cmid.pd, QPInitAttr(RC, scq=cq, rcq=cq, cap=QPCap()), QPAttr())

    def bring_up(cmid, qp):
        for state in (S.IBV_QPS_INIT, S.IBV_QPS_RTR, S.IBV_QPS_RTS):
            qp.modify(*cmid.init_qp_attr(state))

    near = make(active)
    active.connect(ConnParam(qp_num=near.qp_num))
    child, _ = requested(listener)
    far = make(child)
    child.accept(ConnParam(qp_num=far.qp_num))
    bring_up(child, far)
    expect(active.event_channel, ce.RDMA_CM_EVENT_CONNECT_RESPONSE)
    bring_up(active, near)
    active.establish()
    expect(listener.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    assert near.query()[0].dest_qp_num == far.qp_num
    assert far.query()[0].dest_qp_num == near.qp_num
    child.close()


@both_networks
def test_datagrams(network):
    near, far = CMEventChannel(), CMEventChannel()
    with CMID(far, port_space=ce.RDMA_PS_UDP) as listener, CMID(near, port_space=ce.RDMA_PS_UDP) as active:
        listener.bind_addr(listening(ce.RDMA_PS_UDP, at=network[1]))
        listener.listen()
        active.resolve_addr(towards(ce.RDMA_PS_UDP, network=network))
        expect(near, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        active.resolve_route()
        expect(near, ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
        active.create_qp(init(UD))
        active.connect(ConnParam())
        child, _ = requested(listener)
        child.create_qp(init(UD))
        there = child.reg_msgs(64 + 40)
        child.post_recv(there)
        child.accept(ConnParam(qp_num=child.qpn))
        event = CMEvent(near)
        assert event.event_str() == "RDMA_CM_EVENT_ESTABLISHED"
        peer = UDParam(event)
        event.ack_cm_event()
        assert (peer.qp_num, peer.qkey) == (child.qpn, 0x01234567)
        here = active.reg_msgs(64)
        here.write("x" * 64, 64)
        active.post_ud_send(here, AH(active.pd, attr=peer.ah_attr), rqpn=peer.qp_num)
        assert active.get_send_comp().status == 0
        wc = child.get_recv_comp()
        assert (wc.byte_len, wc.src_qp) == (104, active.qpn)
        assert there.read(64, 40) == b"x" * 64
        child.close()


@pytest.mark.parametrize(
    ("own", "taken"), [("::", (IPV4, IPV6)), (None, (IPV4, IPV6)), ("0.0.0.0", (IPV4,)), (FAR6, (IPV6,))]
)
def test_which_addresses_a_listener_has(own, taken):
    """One at all of them takes both kinds, as Linux' does unless it is told otherwise."""
    near, far = CMEventChannel(), CMEventChannel()
    with Context(name="sim1") as there, CMID(far, context=there) as listener:
        listener.bind_addr(listening(at=own))
        listener.listen()
        for network in (IPV4, IPV6):
            with CMID(near) as active:
                active.resolve_addr(towards(network=network))
                expect(near, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
                active.create_qp(init())
                active.connect()
                if network not in taken:
                    expect(near, ce.RDMA_CM_EVENT_REJECTED, 28)
                    continue
                child, _ = requested(listener)
                child.create_qp(init())
                child.accept()
                expect(near, ce.RDMA_CM_EVENT_ESTABLISHED)
                expect(far, ce.RDMA_CM_EVENT_ESTABLISHED)
                child.close()
    near.close(), far.close()


def test_an_address_that_the_table_of_gids_has_not(sides, monkeypatch):
    """As of a device without IPv6."""
    manager = sides[1]._identifier.manager
    monkeypatch.setattr(manager, "gids", manager.gids[:1])
    for wanted, code in ((f"{FAR6}", errno.EADDRNOTAVAIL), ("fe80::77", errno.ENODEV)):
        with pytest.raises(PyverbsRDMAError) as caught:
            CMID(listening(at=wanted, service="7472"))
        assert caught.value.error_code == code
    with CMID(listening(service="7472")) as listener, pytest.raises(PyverbsRDMAError) as caught:
        listener.resolve_addr(towards(network=IPV6))
    assert caught.value.error_code == errno.ENETUNREACH


@pytest.mark.parametrize(("network", "index"), [(IPV4, 2), (IPV6, 3)])
def test_who_is_asked_by_rocev1_answers_so(sides, network, index):
    active, listener = sides
    active._identifier.vector = active._identifier.vector._replace(sgid_index=index)
    child = connected(active, listener)
    for cmid in (active, child):
        assert cmid.query_qp(0x1FFFFFF)[0].ah_attr.gr.sgid_index == index
    child.close()


def test_the_scope_of_an_address_is_a_device():
    info = AddrInfo(src=f"{FAR6}%sim1", src_service=PORT, flags=ce.RAI_PASSIVE)
    assert (info.device, str(info)) == ("sim1", f"src [{FAR6}]:{PORT}, dst [::]:0")
    with CMID(info) as listener:
        listener.listen()
        assert listener.context.name == "sim1"
        with CMID(AddrInfo(dst=f"{FAR6}%sim0", dst_service=PORT), qp_init_attr=init()) as active:
            assert active.context.name == "sim0"
            assert active.query_qp(0)[0].qp_state == S.IBV_QPS_INIT
    with pytest.raises(PyverbsRDMAError, match="different links") as caught:
        AddrInfo(src=f"{NEAR6}%sim0", dst=f"{FAR6}%sim1")
    assert caught.value.error_code == errno.EINVAL


@pytest.mark.parametrize("sync", [True, False])
def test_nobody_listens(sync):
    CMID(listening(), qp_init_attr=init()).close()  # that somebody is at that address's QP1
    if sync:
        with CMID(towards(), qp_init_attr=init()) as cmid, pytest.raises(PyverbsRDMAError) as caught:
            cmid.connect()
        assert caught.value.error_code == errno.ECONNREFUSED
        assert "reason 8, INVALID_SERVICE_ID" in str(caught.value)
        return
    channel = CMEventChannel()
    with CMID(channel) as cmid:
        cmid.resolve_addr(towards())
        cmid.resolve_route()
        cmid.create_qp(init())
        cmid.connect()
        for kind in (ce.RDMA_CM_EVENT_ADDR_RESOLVED, ce.RDMA_CM_EVENT_ROUTE_RESOLVED):
            expect(channel, kind)
        expect(channel, ce.RDMA_CM_EVENT_REJECTED, 8)
        assert cmid.query_qp(0)[0].qp_state == S.IBV_QPS_ERR


def test_refused_by_the_program(sides):
    active, listener = sides
    active.create_qp(init())
    active.connect()
    child, _ = requested(listener)
    child.reject("no room today")
    event = expect(active.event_channel, ce.RDMA_CM_EVENT_REJECTED, 28)
    assert event.private_data.rstrip(b"\0") == b"no room today"
    child.close()


def test_a_request_that_nobody_takes_is_refused(sides):
    active, listener = sides
    active.create_qp(init())
    active.connect()
    event = CMEvent(listener.event_channel)
    event.ack_cm_event()
    event = expect(active.event_channel, ce.RDMA_CM_EVENT_REJECTED, 28)
    assert str(event) == f"RDMA_CM_EVENT_REJECTED, reason 28, CONSUMER_DEFINED, of {active}"
    with pytest.raises(PyverbsRDMAError) as caught:
        active.connect()
    assert caught.value.error_code == errno.EINVAL


def losing(cmid, *kinds):
    """The device of ``cmid`` loses the first message of each of these kinds, and the names of all that it sends are
    told, but for those about connections from before: their ends may cross.
    """
    manager = cmid._identifier.manager
    left, names, send = list(kinds), [], type(manager._mads).send
    before = set(manager.connections)

    def lose(mad, ip):
        message = unpack(mad)[1]
        if getattr(message, "local_id", None) in before:
            return send(manager._mads, mad, ip)
        name = type(message).__name__
        names.append(name)
        if name in left:
            left.remove(name)
            return True
        return send(manager._mads, mad, ip)

    manager._mads.send = lose
    return names


@pytest.fixture(autouse=True)
def nothing_is_lost():
    yield
    for port in world().ports.values():
        if port._driver is not None and port._driver.agent is not None:
            vars(port._driver.agent._mads).pop("send", None)


@pytest.mark.parametrize("kind", ["Req", "Rep", "Rtu", "Dreq", "Drep"])
def test_a_message_is_lost(sides, kind):
    """The clock goes on to the repetition at once, where nothing else can happen."""
    active, listener = sides
    near, far = losing(active, kind), losing(listener, kind)
    start = world().cycles
    child = connected(active, listener)
    child.disconnect()
    expect(active.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    active.disconnect()
    expect(listener.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    # Who takes the event of the lost RTU's side sees the REP again; a REP that waits for its program brings a MRA.
    sent = {
        "Req": (["Req", "Req", "Rtu", "Drep"], ["Rep", "Dreq"]),
        "Rep": (["Req", "Rtu", "Drep"], ["Rep", "Rep", "Dreq"]),
        "Rtu": (["Req", "Rtu", "Rtu", "Drep"], ["Rep", "Rep", "Dreq"]),
        "Dreq": (["Req", "Rtu", "Drep"], ["Rep", "Dreq", "Dreq"]),
        "Drep": (["Req", "Rtu", "Drep", "Drep"], ["Rep", "Dreq", "Dreq"]),
    }
    assert (near, far) == sent[kind]
    assert world().cycles - start < 1_000_000
    child.close()


def test_data_count_as_the_rtu(sides):
    active, listener = sides
    losing(active, "Rtu")
    active.create_qp(init())
    active.connect()
    child, _ = requested(listener)
    child.create_qp(init())
    mr = child.reg_msgs(8)
    child.post_recv(mr)
    child.accept()
    expect(active.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    out = active.reg_msgs(8)
    active.post_send(out)
    assert child.get_recv_comp().byte_len == 8
    expect(listener.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    child.close()


def test_no_service_of_datagrams():
    CMID(listening()).close()
    cmid = CMID(towards(ce.RDMA_PS_UDP), qp_init_attr=init(UD))
    with cmid, pytest.raises(PyverbsRDMAError, match="UNREACHABLE, status 1, UNSUPPORTED") as caught:
        cmid.connect()
    assert caught.value.error_code == errno.ECONNREFUSED


def test_nobody_answers():
    CMID(listening()).close()
    with CMID(towards(), qp_init_attr=init()) as cmid:
        cmid._identifier.manager._mads.send = lambda mad, ip: True
        with pytest.raises(PyverbsRDMAError) as caught:
            cmid.connect()
        assert caught.value.error_code == errno.ETIMEDOUT


def test_the_program_decides_late(sides):
    """The REQ comes again meanwhile, and is told to wait."""
    active, listener = sides
    active.create_qp(init())
    near, far = losing(active), losing(listener)
    active.connect()
    child, _ = requested(listener)
    manager = active._identifier.manager
    manager.clock.go_on(7000)
    for _ in range(3):
        active.context.advance()
    assert (near, far) == (["Req", "Req"], ["Mra"])
    child.create_qp(init())
    child.accept()
    expect(active.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    expect(listener.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    child.close()


def test_closed_without_a_word(sides):
    """The peer of a CMID that is closed is told, whatever it is at."""
    active, listener = sides
    child = connected(active, listener)
    child.close()
    expect(active.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    active.disconnect()


def test_one_that_is_forgotten_is_closed(sides):
    active, listener = sides
    child = connected(active, listener)
    gone = weakref.ref(child)
    del child
    gc.collect()
    expect(active.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    assert gone() is None
    active.disconnect()


def test_one_that_is_closed_has_no_events(sides):
    active, listener = sides
    child = connected(active, listener)
    active.disconnect()
    while not listener.event_channel.pending:
        active.context.advance()
    child.close()
    assert listener.event_channel.pending == 0
    expect(active.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)


@pytest.mark.parametrize("accepts", [True, False])
def test_a_request_that_the_program_has_outlives_the_listener(sides, accepts):
    """As of a server of one client, which needs no listener any more."""
    active, listener = sides
    active.create_qp(init())
    active.connect()
    child, _ = requested(listener)
    listener.close()
    CMID(listening()).close()  # the port is free
    if accepts:
        child.create_qp(init())
        child.accept()
        expect(active.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
        expect(child.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    else:
        child.reject("not today")
        expect(active.event_channel, ce.RDMA_CM_EVENT_REJECTED, 28)
    child.close()


def test_a_listener_takes_its_requests_with_it(sides):
    """Those that nobody has taken."""
    active, listener = sides
    active.create_qp(init())
    active.connect()
    channel = listener.event_channel
    while not channel.pending:
        active.context.advance()
    listener.close()
    assert channel.pending == 0
    expect(active.event_channel, ce.RDMA_CM_EVENT_REJECTED, 28)


def test_a_request_whose_listener_has_gone_is_none(sides):
    active, listener = sides
    active.create_qp(init())
    active.connect()
    event = CMEvent(listener.event_channel)
    listener.close()
    with pytest.raises(PyverbsRDMAError, match="CMID is closed"):
        CMID(event, listen_id=listener)
    event.ack_cm_event()
    expect(active.event_channel, ce.RDMA_CM_EVENT_REJECTED, 28)


def test_it_goes_with_its_world():
    """And with what its program has not closed."""
    small = World(adapters=2, seed=5)
    ends = [small.context(name) for name in ("sim0", "sim1")]
    channel = CMEventChannel()
    with CMID(channel, context=ends[1]) as listener, CMID(channel, context=ends[0]) as active:
        listener.bind_addr(listening())
        listener.listen()
        active.resolve_addr(towards())
        expect(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        small.close()
        with pytest.raises(PyverbsRDMAError, match="CMID is closed") as caught:
            active.connect()
        assert caught.value.error_code == errno.EINVAL
    left = weakref.ref(small)
    del small, ends, listener, active, caught
    gc.collect()
    base.bury()
    gc.collect()
    assert left() is None


def test_more_requests_than_a_listener_wants(sides):
    """The others are refused."""
    active, listener = sides
    listener.close()
    with CMID(listener.event_channel) as small:
        small.bind_addr(listening())
        small.listen(1)
        others = [CMID(active.event_channel) for _ in range(2)]
        for cmid in (active, *others):
            if cmid is not active:
                cmid.resolve_addr(towards())
                expect(active.event_channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
            cmid.create_qp(init())
            cmid.connect()
        for _ in others:
            expect(active.event_channel, ce.RDMA_CM_EVENT_REJECTED, 28)
        child, _ = requested(small)
        child.create_qp(init())
        child.accept()
        expect(active.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
        for cmid in (child, *others):
            cmid.close()


def test_an_ack_timeout_of_ones_own(sides):
    active, listener = sides
    active.set_option(ce.RDMA_OPTION_ID, ce.RDMA_OPTION_ID_ACK_TIMEOUT, 13, 1)
    child = connected(active, listener)
    assert active.query_qp(0)[0].timeout == child.query_qp(0)[0].timeout == 13
    child.close()
    with pytest.raises(PyverbsUserError, match="only RDMA_OPTION_ID_ACK_TIMEOUT"):
        active.set_option(0, 1, 1, 1)
    with pytest.raises(PyverbsRDMAError) as caught:
        active.set_option(ce.RDMA_OPTION_ID, ce.RDMA_OPTION_ID_ACK_TIMEOUT, 32, 1)
    assert caught.value.error_code == errno.EINVAL


def test_a_traffic_class(sides):
    """Both sides send with it: the REQ tells."""
    active, listener = sides
    active.set_option(ce.RDMA_OPTION_ID, ce.RDMA_OPTION_ID_TOS, 0xA8, 1)
    child = connected(active, listener)
    for cmid in (active, child):
        assert cmid.query_qp(0x1FFFFFF)[0].ah_attr.gr.traffic_class == 0xA8
    child.close()
    for value, length in ((256, 1), (-1, 1), (8, 4)):
        with pytest.raises(PyverbsRDMAError) as caught:
            active.set_option(ce.RDMA_OPTION_ID, ce.RDMA_OPTION_ID_TOS, value, length)
        assert caught.value.error_code == errno.EINVAL


def test_a_file_tells_of_events(sides):
    """For select; and who does not want to wait need not."""
    active, listener = sides
    active.create_qp(init())
    os.set_blocking(listener.event_channel.fd, False)
    with pytest.raises(PyverbsRDMAError) as caught:
        CMEvent(listener.event_channel)
    assert caught.value.error_code == errno.EAGAIN
    active.connect()
    while not select.select([listener.event_channel.fd], [], [], 0)[0]:
        active.context.advance()
    child, _ = requested(listener)
    assert listener.event_channel.pending == 0
    child.close()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: CMID(5), "Cannot create CM ID from <class 'int'>"),
        (lambda: CMID(), "Cannot create CM ID from <class 'NoneType'>"),
    ],
)
def test_of_something_else(make, text):
    with pytest.raises(PyverbsUserError) as caught:
        make()
    assert str(caught.value) == text


def test_events_that_are_no_requests(sides):
    active, listener = sides
    active.create_qp(init())
    active.connect()
    event = CMEvent(listener.event_channel)
    with pytest.raises(PyverbsUserError, match="listen ID not provided"):
        CMID(event)
    with pytest.raises(PyverbsUserError, match="is no request to that CM ID"):
        CMID(event, listen_id=active)
    child = CMID(event, listen_id=listener)
    with pytest.raises(PyverbsUserError, match="is no request to that CM ID"):
        CMID(event, listen_id=listener)
    with pytest.raises(PyverbsUserError, match="tells nothing of a peer's UD QP"):
        UDParam(event)
    event.ack_cm_event()
    with pytest.raises(PyverbsUserError, match="a closed event is no request"):
        CMID(event, listen_id=listener)
    child.close()
    expect(active.event_channel, ce.RDMA_CM_EVENT_REJECTED, 28)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: CMID(AddrInfo(src="10.0.0.77", flags=ce.RAI_PASSIVE)), errno.ENODEV),
        (lambda: CMID(AddrInfo(src="fe80::77", flags=ce.RAI_PASSIVE)), errno.ENODEV),
        (lambda: CMID(AddrInfo(src=f"{NEAR6}%sim1", flags=ce.RAI_PASSIVE)), errno.ENODEV),
        (lambda: CMID(AddrInfo(src=FAR6, flags=ce.RAI_PASSIVE), context=Context(name="sim0")), errno.EADDRNOTAVAIL),
        (lambda: CMID(AddrInfo(dst=f"{FAR6}%sim1"), context=Context(name="sim0")), errno.EADDRNOTAVAIL),
        (lambda: CMID(AddrInfo(src=NEAR6, dst="fe80::77", dst_service=PORT)), errno.EHOSTUNREACH),
        (lambda: CMID(AddrInfo(src=NEAR6, dst=FAR, dst_service=PORT)), errno.ENETUNREACH),
        (lambda: CMID(AddrInfo(src=NEAR, dst="::")), errno.EINVAL),
        (lambda: AddrInfo(src="no.such.name.invalid"), errno.EINVAL),
        (lambda: AddrInfo(src="fe80:::1"), errno.EINVAL),
        (lambda: AddrInfo(src=NEAR, src_service="65536"), errno.EINVAL),
        (lambda: CMID(AddrInfo(src=NEAR, dst="10.0.0.77", dst_service=PORT)), errno.EHOSTUNREACH),
        (lambda: CMID(AddrInfo(src=NEAR)), errno.EINVAL),
        (lambda: CMID(CMEventChannel()).resolve_addr(towards(), -1), errno.EINVAL),
        (lambda: CMID(towards()).resolve_route("soon"), errno.EINVAL),
        (lambda: CMID(towards()).resolve_addr(towards(), 1 << 31), errno.EINVAL),
        (lambda: Context(cmid=CMID(CMEventChannel())), errno.EINVAL),
        (lambda: PD(CMID(CMEventChannel())), errno.EINVAL),
        (lambda: MR(CMID(CMEventChannel()), 64), errno.EINVAL),
        (lambda: CMID(CMEventChannel(), port_space=ce.RDMA_PS_IB), errno.EOPNOTSUPP),
        (lambda: CMID(CMEventChannel()).connect(), errno.EINVAL),
        (lambda: CMID(CMEventChannel()).create_qp(init()), errno.EINVAL),
        (lambda: CMID(towards()).connect(ConnParam(resources=256)), errno.EINVAL),
        (lambda: CMID(towards()).accept(), errno.EINVAL),
        (lambda: CMID(towards()).reject(), errno.EINVAL),
        (lambda: CMID(towards()).disconnect(), errno.EINVAL),
        (lambda: CMID(towards()).establish(), errno.EINVAL),
        (lambda: CMID(towards()).post_send(None), errno.EINVAL),
        (lambda: CMID(towards()).create_qp(init(UD)), errno.EINVAL),
        (lambda: CMID(towards()).init_qp_attr(S.IBV_QPS_RTR), errno.EINVAL),
        (lambda: CMID(towards()).join_multicast(towards()), errno.EINVAL),
        (lambda: CMEvent(CMEventChannel()), errno.EDEADLK),
    ],
)
def test_errors_at_the_call(call, code, impatient):
    with pytest.raises(PyverbsRDMAError) as caught:
        call()
    assert caught.value.error_code == code


def test_a_peer_is_looked_for_before_there_is_one(sides):
    """As of Linux, whose state is no longer ADDR_BOUND then; no event follows."""
    active, listener = sides
    child = connected(active, listener)
    for cmid in (active, listener, child):
        with pytest.raises(PyverbsRDMAError, match="it listens, or has a connection") as caught:
            cmid.resolve_addr(towards())
        assert caught.value.error_code == errno.EINVAL
    assert active.event_channel.pending == listener.event_channel.pending == 0
    child.close()


def test_names_are_texts():
    with pytest.raises(TypeError, match="a name must be a str, not int"):
        AddrInfo(src=NEAR, src_service=7471)


def test_a_port_belongs_to_one(sides):
    with pytest.raises(PyverbsRDMAError) as caught:
        CMID(listening())
    assert caught.value.error_code == errno.EADDRINUSE
    sides[1].close()
    CMID(listening()).close()


def test_too_much_private_data(sides):
    active, _ = sides
    param = ConnParam()
    param.private_data = bytes(57)
    with pytest.raises(PyverbsRDMAError, match="57 bytes of private data; a REQ has room for 56"):
        active.connect(param)


def test_an_answer_that_is_refused_may_be_given_again(sides):
    """Nothing has happened to the queue pair."""
    active, listener = sides
    active.create_qp(init())
    active.connect()
    child, _ = requested(listener)
    child.create_qp(init())
    param = ConnParam()
    param.private_data = bytes(197)
    with pytest.raises(PyverbsRDMAError, match="197 bytes of private data; a REP has room for 196"):
        child.accept(param)
    assert child.query_qp(0)[0].qp_state == S.IBV_QPS_INIT
    child.accept()
    expect(active.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    expect(listener.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    with pytest.raises(PyverbsRDMAError, match="the connection is in state ESTABLISHED"):
        child.accept()
    child.close()


def test_what_is_made_of_a_cmid(sides):
    """A Context, a PD and regions, as pyverbs makes them (a QP with CQs of one's own)."""
    active, listener = sides
    with Context(cmid=active) as context, CQ(context, 8) as cq:
        assert active.context is context
        pd = PD(active)
        assert (pd.handle, pd.context) == (active.pd.handle, context)
        active.create_qp(QPInitAttr(RC, scq=cq, rcq=cq, cap=QPCap(4, 4), sq_sig_all=1))
        mr = MR(active, 64, A.IBV_ACCESS_LOCAL_WRITE)
        assert mr.pd.handle == pd.handle
        active.connect()
        child, _ = requested(listener)
        child.create_qp(init())
        room = MR(PD(child), 64, A.IBV_ACCESS_LOCAL_WRITE)
        child.post_recv(room)
        child.accept()
        expect(active.event_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
        mr.write("by a region of the cmid", 23)
        active.post_send(mr, length=23)
        while not (found := cq.poll()[1]):
            pass
        assert found[0].status == 0
        assert room.read(23, 0) == b"by a region of the cmid"
        mr.close(), pd.close()
        assert active.pd.handle  # stays
        child.close()
        active.close()


def test_the_number_of_a_connection_in_timewait_is_not_used_again(sides, monkeypatch):
    active, listener = sides
    child = connected(active, listener)
    context = active.context
    numbers, old = context._adapter.qp_numbers, active.qpn
    active.disconnect()
    child.close()
    active.close()
    other = old // numbers.count ^ 2
    high = [old // numbers.count] * 3 + [other]
    monkeypatch.setattr(numbers._random, "sample", lambda population, k: [high.pop(0)])

    def another():
        """The number of a QP in the same place, whose random part is the same, as often as there are such."""
        numbers.free.remove(numbers.place(old))
        numbers.free.appendleft(numbers.place(old))
        with PD(context) as pd, CQ(context, 4) as cq:
            return QP(pd, QPInitAttr(RC, scq=cq, rcq=cq, cap=QPCap(1, 1))).qp_num

    assert old in context._adapter.agent.numbers_in_use()
    assert another() == other * numbers.count + numbers.place(old)
    while old in context._adapter.agent.numbers_in_use():
        context.advance()
        skip(context._adapter)
    high.append(old // numbers.count)
    assert another() == old
