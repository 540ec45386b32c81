"""Protection domains."""

import errno

import pytest
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD, ParentDomain, ParentDomainInitAttr
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError


def test_numbers_are_shared_by_the_contexts_of_a_device(device, context):
    with Context(name=device.name) as other:
        pds = [PD(context), PD(other), PD(context)]
        assert [pd.handle for pd in pds] == [1, 2, 3]
        pds[1].close()
        assert PD(context).handle == 2
    assert str(pds[0]) == "PD 1"


def test_none_is_left(context, monkeypatch):
    monkeypatch.setattr("verbena.sw.verbs.pd.MAX_PD", 2)
    keep = PD(context), PD(context)
    with pytest.raises(PyverbsRDMAError, match="Failed to allocate PD") as caught:
        PD(context)
    assert caught.value.error_code == errno.ENOMEM
    keep[0].close()
    assert PD(context).handle == 1


def test_it_takes_its_regions_with_it(device, context):
    with PD(context) as pd:
        MR(pd, 64, 1)
        keep = MR(pd, 64, 1)
    assert context._adapter.regions.by_index == {}
    assert keep._closed
    assert context._adapter.pds == set()


def test_closed_context(context):
    context.close()
    with pytest.raises(PyverbsRDMAError, match="Context is closed"):
        PD(context)


def test_advice_is_not_taken(pd):
    with pytest.raises(PyverbsRDMAError) as caught:
        pd.advise_mr(0, 0, [])
    assert caught.value.error_code == errno.EOPNOTSUPP


def test_one_of_another_process(context, pd):
    with pytest.raises(PyverbsRDMAError, match="Failed to import PD") as caught:
        PD(context, handle=1)
    assert caught.value.error_code == errno.EOPNOTSUPP
    with pytest.raises(PyverbsRDMAError, match="Failed to import PD"):
        pd.unimport()


def test_who_makes_one(pd):
    with pytest.raises(PyverbsUserError, match="Cannot create PD from <class"):
        PD(creator=pd)


@pytest.mark.parametrize("comp_mask", [0, 4])
def test_a_parent_domain_refused(device, context, pd, comp_mask):
    with Context(name=device.name) as other:
        with pytest.raises(PyverbsRDMAError, match="Failed to allocate Parent Domain: ") as caught:
            ParentDomain(context if comp_mask else other, ParentDomainInitAttr(pd, comp_mask=comp_mask))
    assert caught.value.error_code == errno.EINVAL
