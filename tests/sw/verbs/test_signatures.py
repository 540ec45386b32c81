"""Parameters, defaults and texts of errors are those of pyverbs, written out by hand."""

import errno
import importlib
import inspect
from types import SimpleNamespace

import pytest
from verbena.sw.verbs import libibverbs_enums as e
from verbena.sw.verbs.addr import AH, AHAttr
from verbena.sw.verbs.base import PyverbsRDMAErrno, inc_rkey
from verbena.sw.verbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.mr import MR, MREx
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError
from verbena.sw.verbs.qp import QP, QPAttr, QPInitAttr
from verbena.sw.verbs.srq import SRQ, OpsWr, SrqAttr, SrqInitAttr
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR
from verbena.sw.verbs.xrcd import XRCD, XRCDInitAttr

SIGNATURES = """
pyverbs_error
    PyverbsError(msg, error_code=-1)
    PyverbsRDMAError(msg, error_code=-1)
base
    inc_rkey(rkey)
    PyverbsRDMAErrno(msg)
device
    get_device_list()
    Context.query_device()
    Context.query_device_ex(ex_input=None)
    Context.query_port(port_num)
    Context.query_gid(port_num, index)
    Context.query_gid_type(port_num, index)
    Context.query_gid_table(max_entries, flags=0)
    Context.query_gid_ex(port_num, gid_index, flags=0)
    Context.query_pkey(port_num, index)
    Context.get_pkey_index(port_num, pkey)
    Context.query_port_speed(port_num)
    Context.query_rt_values_ex(comp_mask=1)
    Context.get_async_event()
    AsyncEvent(event_type=0, ...)
    AsyncEvent.ack()
    QueryDeviceExInput(comp_mask)
    AllocDmAttr(length, log_align_req=0, comp_mask=0)
    DM(context, dm_attr)
    GIDEntry.gid_str()
    guid_format(num)
    guid_to_hex(node_guid)
pd
    PD(creator, ...)
    PD.advise_mr(advise, flags, sg_list)
    ParentDomainInitAttr(pd, pd_context=None, comp_mask=0)
    ParentDomainContext(pd, alloc_func, free_func, user_data=None)
    ParentDomain(context, attr)
addr
    GID(val=None)
    GRH(sgid=None, dgid=None, version_tclass_flow=0, paylen=0, next_hdr=0, hop_limit=1)
    GlobalRoute(dgid=None, flow_label=0, sgid_index=0, hop_limit=1, traffic_class=0)
    AHAttr(dlid=0, sl=0, src_path_bits=0, static_rate=0, is_global=0, port_num=1, gr=None)
    AH(pd, ...)
mr
    MR(creator, length=0, access=0, address=None, implicit=False, ...)
    MR.write(data, length, offset=0)
    MR.read(length, offset)
    MR.rereg(flags, pd=None, addr=0, length=0, access=0)
    MREx(pd, length=0, access=0, address=None, iova=None, fd=None, fd_offset=0, dmah=None, implicit=False, buf=None)
    Buf(pd, size)
    Buf.export_dmabuf_fd()
    BufMR(pd, buf, length, access, offset=0)
    MW(pd, mw_type)
    MWBindInfo(mr, addr, length, mw_access_flags)
    MWBind(info, send_flags, wr_id=0)
    DMMR(pd, length, access, dm, offset)
    DmaBufMR(pd, length, access, dmabuf=None, offset=0, gpu=0, gtt=0)
    mwtype2str(mw_type)
mem_alloc
    posix_memalign(size, alignment=8)
    malloc(size)
    free(ptr)
    mmap(addr=0, length=100, prot=3, flags=34, fd=0, offset=0)
    munmap(addr, length)
    madvise(addr, length, flags)
    read(addr, length, offset=0)
    write(addr, data, length=None, offset=0)
    read32(addr, offset=0)
    read64(addr, offset=0)
    writebe32(addr, val, offset=0)
    writebe64(addr, val, offset=0)
cq
    CompChannel(context)
    CompChannel.get_cq_event(expected_cq=None)
    CQ(context, cqe, cq_context=None, channel=None, comp_vector=0)
    CQ.poll(num_entries=1)
    CQ.req_notify(solicited_only=False)
    CQ.ack_events(num_events)
    CQ.resize(cqe)
    WC(wr_id=0, status=0, opcode=0, vendor_err=0, byte_len=0, qp_num=0, src_qp=0, imm_data=0, wc_flags=0, pkey_index=0, slid=0, sl=0, dlid_path_bits=0)
    CqInitAttrEx(cqe=100, channel=None, comp_vector=0, wc_flags=0, comp_mask=0, flags=0, parent_domain=None)
    PollCqAttr()
    CQEX(context, init_attr=None)
    CQEX.start_poll(attr=None)
    CQEX.poll_next()
    CQEX.end_poll()
    CQEX.read_opcode()
    CQEX.read_vendor_err()
    CQEX.read_byte_len()
    CQEX.read_imm_data()
    CQEX.read_qp_num()
    CQEX.read_src_qp()
    CQEX.read_wc_flags()
    CQEX.read_slid()
    CQEX.read_sl()
    CQEX.read_dlid_path_bits()
    CQEX.read_timestamp()
    CQEX.read_cvlan()
    CQEX.read_flow_tag()
    CQEX.read_tm_info()
    CQEX.read_completion_wallclock_ns()
wr
    SGE(addr, length, lkey)
    SGE.read(length, offset)
    RecvWR(wr_id=0, num_sge=0, sg=None, next_wr=None)
    SendWR(wr_id=0, opcode=2, num_sge=0, imm_data=0, sg=None, send_flags=2, next_wr=None)
    SendWR.set_wr_rdma(rkey, addr)
    SendWR.set_wr_atomic(rkey, addr, compare_add, swap=0)
    SendWR.set_wr_ud(ah, rqpn, rqkey)
    SendWR.set_bind_wr(mw, bind_info)
    SendWR.set_qp_type_xrc(remote_srqn)
srq
    SrqAttr(max_wr=100, max_sge=1, srq_limit=0)
    SrqInitAttr(attr=None)
    SrqInitAttrEx(max_wr=100, max_sge=1, srq_limit=0)
    SRQ(creator, attr)
    SRQ.post_recv(wr, bad_wr=None)
    SRQ.query()
    SRQ.modify(attr, comp_mask)
    SRQ.get_srq_num()
    SRQ.post_srq_ops(wr, bad_wr=None)
    OpsWr(wr_id=0, opcode=0, flags=1, next_wr=None, unexpected_cnt=0, recv_wr_id=0, num_sge=None, tag=0, mask=0, sg_list=None)
xrcd
    XRCDInitAttr(comp_mask, oflags, fd)
    XRCD(context, init_attr)
qp
    QPCap(max_send_wr=1, max_recv_wr=10, max_send_sge=1, max_recv_sge=1, max_inline_data=0)
    QPInitAttr(qp_type=4, qp_context=None, scq=None, rcq=None, srq=None, cap=None, sq_sig_all=1)
    QPInitAttrEx(qp_type=4, qp_context=None, scq=None, rcq=None, srq=None, cap=None, sq_sig_all=0, comp_mask=0, pd=None, xrcd=None, create_flags=0, max_tso_header=0, source_qpn=0, hash_conf=None, ind_table=None, send_ops_flags=0)
    QPAttr(qp_state=1, cur_qp_state=0, port_num=1, path_mtu=3)
    QP(creator, init_attr, qp_attr=None)
    QP.to_init(qp_attr)
    QP.to_rtr(qp_attr)
    QP.to_rts(qp_attr)
    QP.modify(qp_attr, comp_mask)
    QP.query(attr_mask=33554431)
    QP.post_send(wr, bad_wr=None)
    QP.post_recv(wr, bad_wr=None)
    QP.bind_mw(mw, mw_bind)
    QP.query_data_in_order(op, flags=0)
    QPEx(creator, init_attr, qp_attr=None)
    QPEx.wr_start()
    QPEx.wr_send()
    QPEx.wr_send_imm(data)
    QPEx.wr_send_inv(invalidate_rkey)
    QPEx.wr_send_tso(hdr, hdr_sz, mss)
    QPEx.wr_rdma_write(rkey, remote_addr)
    QPEx.wr_rdma_write_imm(rkey, remote_addr, data)
    QPEx.wr_rdma_read(rkey, remote_addr)
    QPEx.wr_atomic_cmp_swp(rkey, remote_addr, compare, swap)
    QPEx.wr_atomic_fetch_add(rkey, remote_addr, add)
    QPEx.wr_atomic_write(rkey, remote_addr, atomic_wr)
    QPEx.wr_flush(rkey, remote_addr, length, ptype, level)
    QPEx.wr_bind_mw(mw, rkey, bind_info)
    QPEx.wr_local_inv(invalidate_rkey)
    QPEx.wr_set_sge(sge)
    QPEx.wr_set_sge_list(num_sge, sg_list)
    QPEx.wr_set_inline_data(addr, length)
    QPEx.wr_set_inline_data_list(num_buf, buf_list)
    QPEx.wr_set_ud_addr(ah, remote_qpn, remote_rkey)
    QPEx.wr_set_xrc_srqn(remote_srqn)
    QPEx.wr_complete()
    QPEx.wr_abort()
    DataBuffer(addr, length)
wq
    WQInitAttr(wq_context=None, wq_pd=None, wq_cq=None, wq_type=0, max_wr=100, max_sge=1, comp_mask=0, create_flags=0)
    WQAttr(attr_mask=0, wq_state=0, curr_wq_state=0, flags=0, flags_mask=0)
    WQ(ctx, attr)
    WQ.modify(wq_attr)
    WQ.post_recv(wr, bad_wr=None)
flow
    FlowAttr(num_of_specs=0, flow_type=0, priority=0, port=1, flags=0)
    Flow(qp, flow_attr)
utils
    gid_str(subnet_prefix, interface_id)
    gid_str_to_array(val)
    qp_type_to_str(qp_type)
    qp_state_to_str(qp_state)
    mtu_to_str(mtu)
    access_flags_to_str(flags)
    mig_state_to_str(mig)
    rereg_error_to_str(error)
fork
    fork_init()
    is_fork_initialized()
cmid
    ConnParam(resources=1, depth=1, flow_control=0, retry=5, rnr_retry=5, srq=0, qp_num=0)
    JoinMCAttrEx(addr, comp_mask=0, join_flags=0)
    UDParam(cm_event)
    AddrInfo(src=None, dst=None, src_service=None, dst_service=None, port_space=0, flags=0)
    CMEvent(channel)
    CMEvent.ack_cm_event()
    CMEvent.event_str()
    CMEventChannel()
    CMID(creator=None, qp_init_attr=None, pd=None, port_space=262, listen_id=None, ...)
    CMID.get_request()
    CMID.bind_addr(lai)
    CMID.resolve_addr(rai, timeout_ms=2000)
    CMID.resolve_route(timeout_ms=2000)
    CMID.join_multicast(addr=None, mc_attr=None, context=0)
    CMID.leave_multicast(addr)
    CMID.listen(backlog=0)
    CMID.connect(param=None)
    CMID.disconnect()
    CMID.accept(param=None)
    CMID.establish()
    CMID.set_local_ece(ece)
    CMID.get_remote_ece()
    CMID.create_qp(qp_init)
    CMID.query_qp(attr_mask)
    CMID.init_qp_attr(qp_state)
    CMID.reg_msgs(size)
    CMID.reg_read(size=0)
    CMID.reg_write(size=0)
    CMID.post_recv(mr, length=None)
    CMID.post_send(mr, flags=2, length=None)
    CMID.post_read(mr, length, remote_addr, rkey, flags=0)
    CMID.post_write(mr, length, remote_addr, rkey, flags=0)
    CMID.post_ud_send(mr, ah, rqpn=0, flags=2, length=None)
    CMID.get_recv_comp()
    CMID.get_send_comp()
    CMID.set_option(level, optname, optval, optlen)
    CMID.reject(private_data=None, private_data_len=0)
"""  # noqa: E501


def signatures():
    """(module, call, [parameters]) of each line; the last parameter ``...`` stands for more, which have defaults."""
    for line in SIGNATURES.strip().splitlines():
        if not line.startswith(" "):
            module = line
            continue
        call, parameters = line.strip().removesuffix(")").split("(")
        yield module, call, parameters.split(", ") if parameters else []


def told(parameter):
    """A parameter as the table has it; the numbers of enumerations as numbers."""
    if parameter.default is parameter.empty:
        return parameter.name
    default = parameter.default
    return f"{parameter.name}={int(default) if isinstance(default, int) and default not in (True, False) else default}"


@pytest.mark.parametrize(("module", "call", "expected"), list(signatures()), ids=lambda value: value if value else "")
def test_a_signature(module, call, expected):
    thing = importlib.import_module(f"verbena.sw.verbs.{module}")
    for name in call.split("."):
        thing = getattr(thing, name)
    method = "." in call
    parameters = list(inspect.signature(thing).parameters.values())[1 if method else 0 :]
    if expected and expected[-1] == "...":
        expected = expected[:-1]
        assert all(parameter.default is not parameter.empty for parameter in parameters[len(expected) :])
        parameters = parameters[: len(expected)]
    normal = [told(p).replace("=False", "=0") for p in parameters]
    assert normal == [text.replace("=False", "=0") for text in expected]
    assert all(parameter.kind == parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)


def test_keywords():
    wanted = {
        Context: {"name", "attr", "cmid", "cmd_fd"},
        PD: {"handle"},
        MR: {"handle"},
        AH: {"attr", "wc", "grh", "port_num"},
    }
    for kind, names in wanted.items():
        parameters = inspect.signature(kind).parameters
        assert {name for name in names if parameters[name].default is None} == names


ATTRIBUTES = {
    SendWR: "wr_id opcode num_sge imm_data send_flags next_wr sg_list rkey rdma_rkey rdma_remote_addr",
    SGE: "addr length lkey",
}


def test_attributes_of_requests():
    wr = SendWR(num_sge=1, sg=[SGE(1, 2, 3)])
    assert all(hasattr(wr, name) for name in ATTRIBUTES[SendWR].split())
    assert all(hasattr(wr.sg_list[0], name) for name in ATTRIBUTES[SGE].split())


# Errors


def errors():
    """(what is done with a context ``c``, a PD ``p``, a CQ ``q``, errno, text that the error begins with)."""
    rc = e.IBV_QPT_RC
    wr = SendWR(num_sge=1, sg=[SGE(0, 8, 0)])
    yield lambda s: Context(name="nowhere"), errno.ENODEV, "Failed to find device nowhere"
    yield lambda s: s.c.query_port(2), errno.EINVAL, "Failed to query port 2. Errno: 22, Invalid argument"
    yield lambda s: s.c.query_gid(1, 7), errno.EINVAL, "Failed to query gid 7 of port 1"
    yield lambda s: s.c.query_gid_type(1, 7), errno.EINVAL, "Failed to query gid type of port 1 and gid index 7"
    yield lambda s: s.c.query_gid_ex(1, 7), errno.EINVAL, "Failed to query gid table of port 1 in index 7"
    yield lambda s: s.c.query_gid_table(0), -errno.EINVAL, "Failed to query gid tables of the device"
    yield lambda s: s.c.query_pkey(1, 8), errno.EINVAL, "Failed to query pkey 8 of port 1"
    yield lambda s: s.c.query_rt_values_ex(2), errno.EOPNOTSUPP, "Failed to query real time values"
    yield lambda s: s.c.get_async_event(), errno.EDEADLK, "Failed to get async event"
    yield lambda s: PD(s.c, handle=5), errno.EOPNOTSUPP, "Failed to import PD"
    yield lambda s: s.p.advise_mr(0, 0, []), errno.EOPNOTSUPP, "Failed to advise MR"
    yield lambda s: AH(s.p, attr=AHAttr()), errno.EINVAL, "Failed to create AH"
    yield (
        lambda s: MR(s.p, 64, e.IBV_ACCESS_REMOTE_WRITE),
        errno.EINVAL,
        "Failed to register a MR. length: 64, access flags: 2. Errno: 22, Invalid argument",
    )
    yield lambda s: MR(s.p, 64, e.IBV_ACCESS_REMOTE_ATOMIC), errno.EINVAL, "Failed to register a MR. length: 64"
    yield lambda s: MR(s.p, 64, e.IBV_ACCESS_ON_DEMAND), errno.EOPNOTSUPP, "Failed to register a MR. length: 64"
    yield lambda s: MR(s.p, handle=5), errno.EOPNOTSUPP, "Failed to import MR"
    yield lambda s: MR(s.p, 64).rereg(8), errno.EINVAL, "Failed to rereg MR"
    yield lambda s: MREx(s.p, 64, fd=0), errno.EOPNOTSUPP, "Failed to register MR using extended API"
    yield lambda s: CQ(s.c, 0), errno.EINVAL, "Failed to create a CQ"
    yield lambda s: CQ(s.c, 1 << 20), errno.EINVAL, "Failed to create a CQ"
    yield lambda s: CQ(s.c, 1, comp_vector=1), errno.EINVAL, "Failed to create a CQ"
    yield lambda s: CQEX(s.c, CqInitAttrEx(0)), errno.EINVAL, "Failed to create extended CQ"
    yield lambda s: CQEX(s.c, CqInitAttrEx(wc_flags=128)), errno.EOPNOTSUPP, "Failed to create extended CQ"
    yield lambda s: CompChannel(s.c).get_cq_event(s.q), errno.EDEADLK, "Failed to get CQ event"
    yield lambda s: QP(s.p, QPInitAttr(e.IBV_QPT_RAW_PACKET, scq=s.q, rcq=s.q)), errno.EOPNOTSUPP, "Failed to create QP"
    yield lambda s: QP(s.p, QPInitAttr(rc)), errno.EINVAL, "Failed to create QP"
    yield lambda s: s.qp().modify(QPAttr(), e.IBV_QP_STATE), errno.EINVAL, "Failed to modify QP"
    yield lambda s: s.qp().post_send(wr), errno.EINVAL, "Failed to post send"
    yield lambda s: s.qp().post_recv(RecvWR(num_sge=1, sg=[SGE(0, 8, 0)])), errno.EINVAL, "Failed to post recv"
    yield lambda s: s.qp().bind_mw(None, None), errno.EOPNOTSUPP, "Failed to Bind MW"
    yield lambda s: SRQ(s.p, SrqInitAttr(SrqAttr(max_sge=8))), errno.EINVAL, "Failed to create SRQ"
    yield lambda s: s.srq().post_recv(None), errno.EINVAL, "Failed to post receive to SRQ"
    yield lambda s: s.srq().modify(SrqAttr(), e.IBV_SRQ_MAX_WR), errno.EINVAL, "Failed to modify SRQ"
    yield lambda s: s.srq().post_srq_ops(OpsWr()), errno.EOPNOTSUPP, "post SRQ ops failed"
    yield lambda s: XRCD(s.c, XRCDInitAttr(0, 0, 0)), errno.EOPNOTSUPP, "Failed to allocate XRCD"


@pytest.mark.parametrize(("call", "code", "text"), list(errors()))
def test_an_error(context, pd, cq, call, code, text):
    things = SimpleNamespace(c=context, p=pd, q=cq, qp=lambda: QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq)))
    things.srq = lambda: SRQ(pd, SrqInitAttr())
    with pytest.raises(PyverbsRDMAError) as caught:
        call(things)
    assert caught.value.error_code == code
    assert str(caught.value).startswith(text)
    assert f". Errno: {code}, " in str(caught.value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Context(), "Device name must be provided"),
        (lambda: AHAttr(is_global=1), "Global AH Attr is created but gr parameter is None"),
        (lambda: SendWR(), "A WR needs at least one SGE"),
        (lambda: PD("context"), "Cannot create PD from <class 'str'>"),
    ],
)
def test_a_mistake_of_the_caller(call, text):
    with pytest.raises(PyverbsUserError) as caught:
        call()
    assert str(caught.value) == text


def test_errors_have_their_codes():
    assert str(PyverbsError("Failed")) == "Failed"
    assert str(PyverbsError("Failed", 22)) == "Failed. Errno: 22, Invalid argument"
    assert (PyverbsRDMAError("Failed").error_code, PyverbsRDMAError("Failed", -22).error_code) == (-1, -22)
    assert issubclass(PyverbsRDMAError, PyverbsError)
    assert issubclass(PyverbsUserError, PyverbsError)
    with pytest.raises(PyverbsUserError):
        Context()
    assert isinstance(PyverbsRDMAErrno("Failed"), PyverbsRDMAError)
    assert (inc_rkey(0x1234FF), inc_rkey(0x123400)) == (0x123400, 0x123401)
