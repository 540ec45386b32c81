"""The life of resources."""

import errno
import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from verbena.sw.adapter import AdapterError
from verbena.sw.verbs import base
from verbena.sw.verbs.base import PyverbsCM, PyverbsObject, PyverbsRDMAErrno, attempt, bury, inc_rkey, refuse
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError


class Thing(PyverbsCM):
    """Notes its end in ``log``."""

    def __init__(self, log, name, *parents, rank=0, fails=()):
        super().__init__(*parents)
        self.log, self.name, self._rank, self.fails = log, name, rank, list(fails)
        self._opened()

    def _destroy(self):
        if self.fails:
            raise self.fails.pop()
        self.log.append(self.name)


@pytest.fixture
def log():
    return []


def test_inc_rkey():
    assert inc_rkey(0x12345678) == 0x12345679
    assert inc_rkey(0x123456FF) == 0x12345600


def test_errno_of_the_last_failure():
    with pytest.raises(PyverbsRDMAError):
        refuse("no", errno.EBUSY)
    assert PyverbsRDMAErrno("again").error_code == errno.EBUSY


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (MemoryError("full"), "Failed. Errno: 12, Cannot allocate memory"),
        (AdapterError(errno.EIO, "broken"), "Failed: broken. Errno: 5, Input/output error"),
    ],
)
def test_attempt(cause, text):
    with pytest.raises(PyverbsRDMAError) as caught, attempt("Failed"):
        raise cause
    assert str(caught.value) == text


def test_attempt_lets_everything_else_through():
    with pytest.raises(ValueError, match="mine"), attempt("Failed"):
        raise ValueError("mine")
    with attempt("Failed"):
        pass


def test_close_is_idempotent(log):
    with Thing(log, "a") as thing:
        thing.close()
        thing.close()
    assert log == ["a"]


def test_children_go_first_by_rank_and_age(log):
    root = Thing(log, "root")
    keep = [Thing(log, f"{rank}{i}", root, rank=rank) for i, rank in enumerate((2, 1, 2, 0, 1))]
    grandchild = Thing(log, "g", keep[0], root)
    root.close()
    assert log == ["03", "g", "11", "14", "20", "22", "root"]
    assert grandchild._closed


def test_one_may_be_its_parent_twice(log):
    root = Thing(log, "root")
    child = Thing(log, "child", root, root)
    child.close()
    assert root._living == 0


def test_a_closed_parent_takes_no_children(log):
    root = Thing(log, "root")
    root.close()
    with pytest.raises(PyverbsRDMAError, match="Thing is closed") as caught:
        Thing(log, "child", root)
    assert caught.value.error_code == errno.EINVAL


def test_refusing_to_close(log):
    root = Thing(log, "root")
    child = Thing(log, "child", root)
    child._may_close = lambda: refuse("in use", errno.EBUSY)
    with pytest.raises(PyverbsRDMAError):
        child.close()
    assert log == []
    root.close()
    assert log == ["child", "root"]


def test_an_end_that_fails_can_be_tried_again(log):
    thing = Thing(log, "a", fails=[AdapterError(errno.ETIMEDOUT, "slow")])
    with pytest.raises(PyverbsRDMAError, match="Failed to destroy Thing: slow"):
        thing.close()
    thing.close()
    assert log == ["a"]


def test_forgotten_objects_are_closed_by_the_next_call_and_not_before(log):
    root = Thing(log, "root")
    child = Thing(log, "child", root)
    del child
    assert log == []
    Thing(log, "next", root).close()
    assert log == ["child", "next"]


def test_a_child_keeps_its_parent(log):
    child = Thing(log, "child", Thing(log, "root"))
    bury()
    assert log == []
    del child
    bury()
    assert log == ["child"]
    bury()
    assert log == ["child", "root"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_a_knot_is_untied_from_the_children_on(log, order):
    """Garbage collection finds the members of a cycle in any order, and clears weak references before."""
    root = Thing(log, "root")
    child = Thing(log, "child", root)
    things = [root, child, Thing(log, "leaf", child)]
    for thing in things:
        thing.knot = things
        thing._children.clear()
    del root, child, thing
    base._forgotten.extend(things[i] for i in order)
    bury()
    assert log == ["leaf", "child", "root"]


def test_garbage_collection_for_real(log):
    root = Thing(log, "root")
    root.knot = [Thing(log, "leaf", Thing(log, "child", root))]
    del root
    gc.collect()
    bury()
    assert log == ["leaf", "child", "root"]


def test_nobody_hears_of_a_failure_of_the_forgotten(log):
    thing = Thing(log, "a", fails=[AdapterError(errno.EIO, "gone")])
    del thing
    bury()
    assert log == []


def test_an_object_that_was_never_opened_has_nothing_to_close(log):
    class Failing(PyverbsCM):
        def __init__(self):
            super().__init__()
            refuse("no", errno.EINVAL)

        def _destroy(self):
            log.append("destroyed")

    with pytest.raises(PyverbsRDMAError):
        Failing()
    bury()
    assert log == []


def test_parents_may_come_later(log):
    parent, late = Thing(log, "parent"), Thing(log, "late")
    late._belong(parent)
    assert late not in base._roots
    parent.close()
    assert log == ["late", "parent"]


def test_at_exit_everything_is_closed(log, monkeypatch):
    monkeypatch.setattr(base, "_roots", type(base._roots)())
    root = Thing(log, "root")
    child = Thing(log, "child", root)
    other = Thing(log, "other", fails=[ValueError("no device any more")])
    base.close_all()
    assert log == ["child", "root"]
    assert child._closed
    assert not other._closed


PROGRAM = """
import atexit, sys
sys.path.insert(0, sys.argv[1])
from fake_device import FakeDevice
device = FakeDevice()
atexit.register(lambda: print(device.qps, device.cqs, device.watches, [c[0] for c in device.commands]))

from verbena.sw.port import provide
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import IBV_QPT_RC
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.qp import QP, QPInitAttr

provide("fake0", lambda: device)
context = Context(name="fake0")
cq = CQ(context, 4)
qp = QP(PD(context), QPInitAttr(IBV_QPT_RC, scq=cq, rcq=cq))
knot = [MR(qp.pd, 8, 1)]
knot.append(knot)
del knot, cq
"""


def test_a_program_that_closes_nothing_ends_quietly_and_leaves_nothing_behind():
    folder = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", PROGRAM, folder], capture_output=True, text=True, check=True)
    create_qp, destroy_qp, create_cq, destroy_cq, invalidate = 1, 4, 5, 6, 7
    commands = sorted([create_qp, destroy_qp, create_cq, destroy_cq, invalidate])
    *state, found = done.stdout.strip().partition(" [")
    assert done.stderr == ""
    assert state[0] == "{} {} {}"
    assert sorted(int(x) for x in found.strip("]").split(",")) == commands


class Slow(Thing):
    """Its end takes until another thread has tried it, too, or has waited in vain."""

    def _destroy(self):
        self.begun.set()
        self.tried.wait(0.3)
        super()._destroy()


def test_two_threads_end_it_once(log):
    """One closes its parent, as garbage collection has found it the other one does."""
    parent = Thing(log, "parent")
    child = Slow(log, "child", parent)
    child.begun, child.tried = threading.Event(), threading.Event()
    closing = threading.Thread(target=parent.close)
    closing.start()
    assert child.begun.wait(10)
    other = threading.Thread(target=lambda: (child._end(), child.tried.set()))
    other.start()
    for thread in (closing, other):
        thread.join(10)
    assert log == ["child", "parent"]
    assert (parent._living, child._closed) == (0, True)


class Plain(PyverbsObject):
    def __init__(self, **values):
        vars(self).update(values)


class Spoken(Plain):
    def __str__(self):
        return self.text


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (Plain(), "<Plain>"),
        (Plain(cqe=4, _hidden=5), "<Plain: cqe 4>"),
        (Spoken(text="Spoken 3: of 4 bytes"), "<Spoken 3: of 4 bytes>"),
        (Spoken(text="max_wr   : 4\nmax_sge  : 1"), "<Spoken: max_wr : 4, max_sge : 1>"),
    ],
)
def test_repr(thing, text):
    assert repr(thing) == text


def test_repr_of_what_is_closed(log):
    thing = Thing(log, "child")
    thing.close()
    assert repr(thing) == "<Thing, closed>"
