"""QP1, the queue pair of the general services, on whole adapters."""

import errno
import random

import pytest
from ends import settle
from raw_peer import IP, MAC
from rocegram import rc_frame
from streams import make_rng
from verbena.sim.devices import world
from verbena.sw.cm.address_vector import AddressVector
from verbena.sw.cm.management_qp import MAD_BYTES, QKEY, MadPort
from verbena.sw.gids import mapped
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError

BTH = 14 + 20 + 8
DETH = QKEY.to_bytes(4, "big") + (1).to_bytes(4, "big")
SEND_ONLY = 0x64


@pytest.fixture
def sides():
    with Context(name="sim0") as near, Context(name="sim1") as far:
        for context in (near, far):
            if (manager := context._adapter.agent) is not None:
                manager.context.close()  # its QP1 is another test's
        yield near, far


def way(context, index):
    """To the own GID of that index, from the one of the same index."""
    return AddressVector(index, context._adapter.gids[index].gid)


@pytest.mark.every_width
@pytest.mark.parametrize(("index", "count"), [(0, 40), (1, 5), (2, 5), (3, 5)])
def test_mads_pass_both_ways(sides, index, count):
    """Over IPv4 and IPv6, of RoCEv2 and of RoCEv1; an answer goes the way back."""
    near, far = sides
    here, there = MadPort(near), MadPort(far)
    assert here.qp.qp_num == there.qp.qp_num == 1
    rng = make_rng()
    for _ in range(count):  # once more than there are places to send from
        mads = [rng.randbytes(MAD_BYTES) for _ in range(2)]
        assert here.send(mads[0], way(far, index))
        assert there.send(mads[1], way(near, index))
        settle()
        assert there.receive() == [(mads[0], way(near, index))]
        assert here.receive() == [(mads[1], way(far, index))]


def test_many_at_once(sides):
    """What there is no place for is as if lost; the next ones go."""
    near, far = sides
    here, there = MadPort(near), MadPort(far)
    sent = [n.to_bytes(MAD_BYTES, "big") for n in range(40)]
    went = [mad for mad in sent if here.send(mad, way(far, 0))]
    assert len(went) >= 32
    settle(20000)
    assert there.receive() == [(mad, way(near, 0)) for mad in went]
    assert here.send(sent[0], way(far, 0))
    settle()
    assert there.receive() == [(sent[0], way(near, 0))]


def test_it_is_one_an_adapter(sides):
    near, _ = sides
    port = MadPort(near)
    with pytest.raises(PyverbsRDMAError, match="the place of QP1") as caught:
        MadPort(near)
    assert caught.value.error_code == errno.EBUSY
    port.qp.close()
    assert not port.open
    assert MadPort(near).open


def test_what_linux_sends(sides):
    """Soft-RoCE asks for an acknowledgement, which nobody gives; a wrong Q_Key or length is none of ours."""
    near, _ = sides
    port = MadPort(near)
    tap = world().tap(MAC)
    near._adapter.port.add_neighbour(IP, MAC)
    own, peer = (world().adapters[0].mac, near._adapter.port.ip), AddressVector(0, mapped(IP))
    mad = random.Random(1).randbytes(MAD_BYTES)

    def send(mad, deth=DETH, **more):
        world().adapters[0].inject(rc_frame((MAC, IP), own, 1, 7, SEND_ONLY, deth + mad, **more))
        settle()

    send(mad, ack=1)
    assert port.receive() == [(mad, peer)]
    send(mad, b"\x11" * 4 + DETH[4:], ack=0)
    send(mad[4:])
    assert port.receive() == []
    assert tap.receive() is None
    assert port.send(mad, peer)
    settle()
    frame = tap.receive()
    assert (frame[BTH], frame[BTH + 5 : BTH + 8], frame[BTH + 12 : BTH + 20]) == (SEND_ONLY, b"\0\0\1", DETH)
    assert frame[BTH + 20 : -4] == mad


def test_nobody_is_there(sides, impatient):
    near, _ = sides
    assert not MadPort(near).send(bytes(MAD_BYTES), AddressVector(0, mapped(0x0A0000FE)))
