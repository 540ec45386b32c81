"""Arguments of another class than the one that is wanted, at the call, as pyverbs refuses them."""

import pytest
from verbena.sw.verbs.addr import AH, AHAttr
from verbena.sw.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel
from verbena.sw.verbs.cq import CQ, CQEX, CompChannel
from verbena.sw.verbs.device import DM, AllocDmAttr
from verbena.sw.verbs.libibverbs_enums import IBV_REREG_MR_CHANGE_PD, ibv_qp_attr_mask, ibv_qp_type
from verbena.sw.verbs.mr import MR, MW
from verbena.sw.verbs.pd import ParentDomain, ParentDomainInitAttr
from verbena.sw.verbs.qp import QP, QPInitAttr
from verbena.sw.verbs.wr import RecvWR


@pytest.mark.parametrize("bad", [None, 5, AddrInfo()], ids=["None", "int", "AddrInfo"])
def test_of_another_class(context, pd, make_qp, bad):
    qp, mr, channel = make_qp(), MR(pd, 64), CMEventChannel()
    calls = {
        "expected Context": [
            lambda: CQ(bad, 4),
            lambda: CQEX(bad),
            lambda: CompChannel(bad),
            lambda: DM(bad, AllocDmAttr(64)),
            lambda: ParentDomain(bad, ParentDomainInitAttr(pd)),
        ],
        "expected PD": [
            lambda: MW(bad, 1),
            lambda: AH(bad, attr=AHAttr()),
            lambda: ParentDomainInitAttr(bad),
        ],
        "expected AllocDmAttr": [lambda: DM(context, bad)],
        "expected ParentDomainInitAttr": [lambda: ParentDomain(context, bad)],
        "expected QPInitAttr": [lambda: QP(pd, bad), lambda: CMID(channel).create_qp(bad)],
        "expected QPAttr": [lambda: qp.modify(bad, ibv_qp_attr_mask.IBV_QP_STATE), lambda: qp.to_init(bad)],
        "expected SGE": [lambda: RecvWR(num_sge=1, sg=[bad])],
        "expected CMEventChannel": [lambda: CMEvent(bad)],
    }
    if bad is not None:  # which stands for none elsewhere
        calls["expected CompChannel"] = [lambda: CQ(context, 4, channel=bad)]
        calls["expected CqInitAttrEx"] = [lambda: CQEX(context, bad)]
        calls["expected CQ"] = [
            lambda: CompChannel(context).get_cq_event(bad),
            lambda: QP(pd, QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=bad, rcq=CQ(context, 4))),
        ]
        calls["expected GlobalRoute"] = [lambda: AHAttr(is_global=1, gr=bad)]
        calls["expected PD"].append(lambda: mr.rereg(IBV_REREG_MR_CHANGE_PD, pd=bad))
        calls["expected ConnParam"] = [lambda: CMID(channel).connect(bad)]
    if not isinstance(bad, AddrInfo):
        calls["expected AddrInfo"] = [lambda: CMID(channel).bind_addr(bad), lambda: CMID(channel).resolve_addr(bad)]
    for text, some in calls.items():
        for call in some:
            with pytest.raises(TypeError, match=f"has incorrect type .{text}, got {type(bad).__name__}.$"):
                call()


def test_a_domain_is_no_context(context, pd):
    """Nor the other way round."""
    for call in (
        lambda: CQ(pd, 4),
        lambda: CompChannel(pd),
        lambda: MW(context, 1),
        lambda: CQ(context, 4, channel=pd),
    ):
        with pytest.raises(TypeError, match="has incorrect type"):
            call()
