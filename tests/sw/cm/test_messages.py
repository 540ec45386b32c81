"""Messages against those that Linux sent, and bad ones."""

import pytest
from mads import CAPTURES, captured_mads
from verbena.sw.cm.ip_header import PORT_SPACE_TCP, PORT_SPACE_UDP, IpAddresses, service_id
from verbena.sw.cm.messages import MESSAGES, Dreq, Rej, Rep, Req, Rtu, SidrRep, SidrReq, unpack
from verbena.sw.gids import mapped

NAMES = sorted(path.stem for path in CAPTURES.glob("cm_*.pcap"))
NEAR, FAR = (mapped(0x0A000000 + number) for number in (1, 2))


@pytest.mark.parametrize("name", [*NAMES, "tool_rping_v4"])
def test_each_is_understood_and_made_again(name):
    mads = captured_mads(name)
    assert mads
    for mad in mads:
        tid, message = unpack(mad)
        assert message.pack(tid) == mad


def test_every_kind_was_there():
    seen = {type(unpack(mad)[1]) for name in NAMES for mad in captured_mads(name)}
    assert seen == set(MESSAGES.values())


def test_what_linux_says_for_a_connection():
    (tid, req), (_, rep), (_, rtu), (last, dreq), _ = map(unpack, captured_mads("cm_rping_v4"))
    assert req.service_id == service_id(PORT_SPACE_TCP, 7174) == 0x0000000001061C06
    assert (req.qpn, req.responder_resources, req.initiator_depth) == (0x11, 1, 1)
    assert (req.remote_response_timeout, req.local_response_timeout, req.max_cm_retries) == (20, 20, 15)
    assert (req.retry_count, req.rnr_retry, req.path_mtu, req.pkey) == (7, 7, 5, 0xFFFF)
    assert (req.starting_psn, req.hop_limit, req.ack_timeout) == (0x0D0C0C, 64, 19)
    assert (req.local_gid, req.remote_gid) == (NEAR, FAR)
    assert IpAddresses.unpack(req.private_data) == (NEAR, 0xDE20, FAR)
    assert req.private_data[:36] == IpAddresses(NEAR, 0xDE20, FAR).pack()
    assert (rep.local_id, rep.remote_id, rep.qpn, rep.ack_delay, rep.rnr_retry) == (
        0x6DA2C7B5,
        req.local_id,
        0x11,
        15,
        7,
    )
    assert (rtu.local_id, rtu.remote_id, tid) == (req.local_id, rep.local_id, 0x26B7927A9)
    assert (dreq.qpn, dreq.remote_id, last) == (rep.qpn, rep.local_id, tid)


def test_what_linux_says_for_a_refusal_and_for_datagrams():
    _, (_, rej) = map(unpack, captured_mads("cm_reject_consumer"))
    assert (rej.what, rej.reason, rej.private_data[:14]) == (0, 28, b"no room today\0")
    (_, asks), (_, tells) = map(unpack, captured_mads("cm_udaddy_v4"))
    assert asks.service_id == tells.service_id == service_id(PORT_SPACE_UDP, 7174)
    assert (tells.request_id, tells.status, tells.qpn, tells.qkey) == (asks.request_id, 0, 0x13, 0x01234567)


def test_private_data_have_the_room_that_rdma_cm_counts_on():
    room = {kind.__name__: kind.layout.tail for kind in MESSAGES.values()}
    assert room == {
        "Req": 92,
        "Mra": 222,
        "Rej": 148,
        "Rep": 196,
        "Rtu": 224,
        "Dreq": 220,
        "Drep": 224,
        "SidrReq": 216,
        "SidrRep": 136,
    }
    assert Rep(private_data=b"x" * 196).pack(1)[-196:] == b"x" * 196
    with pytest.raises(ValueError, match="REP has room for 196 bytes of private data, not for 197"):
        Rep(private_data=b"x" * 197)


def test_what_does_not_fit():
    with pytest.raises(ValueError, match=r"DREQ\.qpn has 24 bits and cannot hold 16777216"):
        Dreq(qpn=1 << 24)
    with pytest.raises(ValueError, match="RTU has no field 'qpn'"):
        Rtu(qpn=1)
    with pytest.raises(ValueError, match=r"REQ\.transport has 2 bits and cannot hold -1"):
        Req(transport=-1)


@pytest.mark.parametrize(("at", "value"), [(0, 2), (1, 3), (2, 1), (3, 0x83), (3, 1), (17, 0x0F), (17, 0x1A), (16, 1)])
def test_others_are_none_of_ours(at, value):
    mad = bytearray(Rtu(local_id=1, remote_id=2).pack(3))
    assert unpack(bytes(mad))[1].remote_id == 2
    mad[at] = value
    assert unpack(bytes(mad)) is None


def test_what_is_reserved_does_not_matter():
    mad = bytearray(Rej(local_id=1, what=2, reason=8).pack(3))
    mad[24 + 8] |= 0x3F
    mad[24 + 9] |= 1
    _, rej = unpack(bytes(mad))
    assert (rej.what, rej.ari_length, rej.reason) == (2, 0, 8)
    assert repr(rej) == "Rej(local_id=0x1, what=0x2, reason=0x8)"


@pytest.mark.parametrize("name", ["cm_rping_v6", "cm_rping_linklocal"])
def test_what_linux_says_over_ipv6(name):
    """The addresses stand in the header as in the GIDs."""
    _, req = unpack(captured_mads(name)[0])
    addresses = IpAddresses.unpack(req.private_data)
    assert (addresses.source, addresses.destination) == (req.local_gid, req.remote_gid)
    assert req.private_data[:36] == addresses.pack()
    assert (addresses.source >> 112 == 0xFE80) == (name == "cm_rping_linklocal")


@pytest.mark.parametrize(("at", "value"), [(0, 1), (1, 0x70), (1, 0x50)])
def test_addresses_of_another_kind(at, value):
    header = bytearray(IpAddresses(NEAR, 1, FAR).pack() + bytes(56))
    header[at] = value
    with pytest.raises(ValueError, match="header version"):
        IpAddresses.unpack(bytes(header))


def test_requests_for_datagrams_have_room_for_180_bytes():
    data = IpAddresses(NEAR, 9, FAR).pack() + b"y" * 180
    assert SidrReq(private_data=data).pack(0)[-180:] == b"y" * 180
    assert SidrRep().layout.tail == 136
