"""A device that keeps fewer bits of bus addresses than the memory has."""

import errno
from types import SimpleNamespace

import pytest
from fake_device import FakeDevice, provided
from verbena.sw import host_memory
from verbena.sw.adapter import Adapter, AdapterError
from verbena.sw.reach import Reach
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QP, QPCap, QPInitAttr

BITS = 36
TOP = 1 << BITS


class Memory:
    """Host memory whose bus addresses are ``away`` from where they would be just within reach, however much of it is
    taken."""

    def __init__(self):
        self.away = 0
        self.allocated = []

    def _moved(self, bus, base):
        return bus - base + TOP - host_memory.CONTIGUOUS + self.away

    def alloc_contiguous(self, size, alignment=4096):
        address, bus = host_memory.alloc_contiguous(size, alignment)
        self.allocated.append(address)
        return address, self._moved(bus, host_memory.CONTIGUOUS_BUS)

    def bus_pages(self, address, length):
        return [self._moved(bus, host_memory.SCATTERED_BUS) for bus in host_memory.bus_pages(address, length)]

    def alloc(self, size, alignment=8):
        self.allocated.append(host_memory.alloc(size, alignment))
        return self.allocated[-1]

    def free(self, address):
        self.allocated.remove(address)
        host_memory.free(address)

    read, write = staticmethod(host_memory.read), staticmethod(host_memory.write)


@pytest.fixture
def device():
    fake = FakeDevice(reach=BITS)
    fake.memory = Memory()
    with provided(fake):
        yield fake


def refused(code, function, *args):
    with pytest.raises(PyverbsRDMAError, match="the device reaches bus addresses of 36 bits, not 0x10") as caught:
        function(*args)
    assert caught.value.error_code == code


@pytest.mark.parametrize(
    ("size", "bus", "fits"), [(4096, TOP - 4096, True), (4097, TOP - 4096, False), (1, TOP, False)]
)
def test_the_last_byte_counts(size, bus, fits):
    freed = []
    memory = SimpleNamespace(
        alloc=None, read=None, write=None, free=freed.append, alloc_contiguous=lambda size, alignment=4096: (7, bus)
    )
    reach = Reach(memory, BITS)
    if fits:
        assert reach.alloc_contiguous(size, 64) == (7, bus)
    else:
        with pytest.raises(AdapterError, match=f"not {bus + size - 1:#x}"):
            reach.alloc_contiguous(size)
    assert freed == [7] * (not fits)


def test_tables_beyond(device):
    device.memory.away = host_memory.CONTIGUOUS
    with pytest.raises(AdapterError, match="the device reaches bus addresses of 36 bits, not 0x10") as caught:
        Adapter(device)
    assert caught.value.errno == errno.EFAULT
    assert device.memory.allocated == []
    refused(errno.EFAULT, lambda: Context(name=device.name))


def test_regions_and_rings_beyond(device):
    """They fail, leave no memory behind, and what is within reach goes on."""
    with Context(name=device.name) as context:
        pd, cq = PD(context), CQ(context, 16)
        init = QPInitAttr(2, None, cq, cq, None, QPCap())
        kept = MR(pd, 8192)
        known = list(device.memory.allocated)
        device.memory.away = host_memory.CONTIGUOUS
        refused(errno.EFAULT, MR, pd, 8192)
        refused(errno.EFAULT, CQ, context, 16)
        refused(errno.EFAULT, QP, pd, init)
        refused(errno.EFAULT, kept.rereg, 1, None, kept.buf, 4096)
        assert device.memory.allocated == known
        device.memory.away = 0
        MR(pd, 8192)
        QP(pd, init)
