"""Regions that need no translation, of the device's own memory and by bus addresses, and those that begin at 0."""

import pytest
from ends import FETCH_ADD, READ, SEND, WRITE, End, completions, connect, recv
from streams import make_rng
from verbena.sim.device_memory import SIZE
from verbena.sw import host_memory
from verbena.sw.verbs import libibverbs_enums as e
from verbena.sw.verbs.device import DM, AllocDmAttr
from verbena.sw.verbs.mr import DMMR, MR, PhysicalMR
from verbena.sw.verbs.wr import SGE, SendWR

pytestmark = pytest.mark.every_width

ALL = 15 | e.IBV_ACCESS_ZERO_BASED


@pytest.fixture
def pair():
    with End("sim0", 65536) as a, End("sim1", 65536) as b:
        connect(a, b, mtu=1024)
        yield a, b


def do(end, opcode, near, at, length, far, to):
    """Does one operation between two regions; its status."""
    wr = SendWR(opcode, opcode, 1, sg=[SGE(near.buf + at, length, near.lkey)])
    if opcode == FETCH_ADD:
        wr.set_wr_atomic(far.rkey, far.buf + to, 5)
    else:
        wr.set_wr_rdma(far.rkey, far.buf + to)
    end.qp.post_send(wr)
    return completions(end.cq, 1)[0].status


def test_from_device_to_device(pair):
    """Any place and length, as a sink and as a source; the host's memory is not touched."""
    rng = make_rng()
    size = SIZE // 2
    regions = [DMMR(end.pd, size, ALL, DM(end.context, AllocDmAttr(size)), 0) for end in pair]
    content = [bytearray(rng.randbytes(size)) for _ in pair]
    for mr, bytes_ in zip(regions, content):
        mr.write(bytes_, size)
    for _ in range(12):
        opcode, length = rng.choice((WRITE, READ)), rng.choice((1, rng.randrange(1, 100), rng.randrange(1, 20_000)))
        at, to = (rng.randrange(size - length) for _ in (0, 1))
        assert do(pair[0], opcode, regions[0], at, length, regions[1], to) == 0
        source, sink = ((0, at), (1, to)) if opcode == WRITE else ((1, to), (0, at))
        content[sink[0]][sink[1] : sink[1] + length] = content[source[0]][source[1] : source[1] + length]
    assert [mr.read(size, 0) for mr in regions] == content
    recv(pair[1], [SGE(4000, 3000, regions[1].lkey)])
    assert do(pair[0], SEND, regions[0], 17, 3000, regions[1], 0) == 0
    assert completions(pair[1].cq, 1)[0].byte_len == 3000
    assert regions[1].read(3000, 4000) == regions[0].read(3000, 17)
    before = int.from_bytes(regions[1].read(8, 4096), "little")
    assert do(pair[0], FETCH_ADD, regions[0], 8, 8, regions[1], 4096) == 0
    assert int.from_bytes(regions[0].read(8, 8), "little") == before
    assert int.from_bytes(regions[1].read(8, 4096), "little") == (before + 5) % (1 << 64)


def test_host_memory_by_its_bus_address(pair):
    """What is contiguous there, from the middle of a page on, by another address; and nothing beyond it."""
    a, b = pair
    address, bus = host_memory.alloc_contiguous(3 * 4096)
    host_memory.write(address, bytes(3 * 4096))
    mr = PhysicalMR(b.pd, bus + 100, 2 * 4096, 15, iova=0x7777_0000_0000 + 100)
    content = make_rng().randbytes(2 * 4096)
    a.mr.write(content, len(content))
    assert do(a, WRITE, a.mr, 0, len(content), mr, 0) == 0
    assert host_memory.read(address, 3 * 4096) == bytes(100) + content + bytes(4096 - 100)
    assert do(a, WRITE, a.mr, 0, 8, mr, 2 * 4096 - 7) == e.IBV_WC_REM_ACCESS_ERR
    assert host_memory.read(address + 100 + 2 * 4096, 8) == bytes(8)
    mr.close()
    host_memory.free(address)


def test_where_nothing_answers(pair):
    """The bus says so, and the queue pair ends as after any bus error."""
    a, b = pair
    mr = PhysicalMR(b.pd, 0x1_0000, 4096, 15)
    assert do(a, WRITE, a.mr, 0, 64, mr, 0) == e.IBV_WC_REM_OP_ERR


def test_a_region_that_begins_at_0(pair):
    a, b = pair
    with MR(b.pd, 10_000, ALL) as mr:
        a.mr.write("from the end", 12)
        wr = SendWR(1, WRITE, 1, sg=[SGE(a.mr.buf, 12, a.mr.lkey)])
        wr.set_wr_rdma(mr.rkey, 10_000 - 12)
        a.qp.post_send(wr)
        assert completions(a.cq, 1)[0].status == 0
        assert mr.read(12, 10_000 - 12) == b"from the end"
        wr.set_wr_rdma(mr.rkey, mr.buf)
        a.qp.post_send(wr)
        assert completions(a.cq, 1)[0].status == e.IBV_WC_REM_ACCESS_ERR
