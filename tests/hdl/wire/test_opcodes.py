"""The opcode table against scapy's."""

import pytest
from scapy.contrib.roce import _bth_opcodes
from verbena.hdl.wire.opcodes import DATAGRAMS, OPCODES, REFUSED, SUPPORTED, UNRELIABLE, Kind, Transport, opcode


def test_names_and_codes_are_scapys():
    theirs = {code: name for code, name in _bth_opcodes.items() if not name.startswith("RD_")}
    ours = {
        code: row.name
        for code, row in OPCODES.items()
        if not row.invalidate and row.kind not in (Kind.FLUSH, Kind.ATOMIC_WRITE)
    }
    assert ours == theirs


def test_header_words():
    words = {row.name: row.header_words for row in OPCODES.values()}
    assert words["RC_SEND_ONLY"] == 0
    assert words["RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE"] == 5
    assert words["RC_ATOMIC_ACKNOWLEDGE"] == 3
    assert words["RC_COMPARE_SWAP"] == 7
    assert words["UD_SEND_ONLY_WITH_IMMEDIATE"] == 3
    assert words["RC_RDMA_READ_RESPONSE_MIDDLE"] == 0


def test_messages_begin_and_end():
    for row in OPCODES.values():
        begins = row.name.endswith("FIRST") or "ONLY" in row.name
        ends = "LAST" in row.name or "ONLY" in row.name
        if row.kind in (Kind.SEND, Kind.WRITE, Kind.READ_RESPONSE):
            assert (row.first, row.last) == (begins, ends), row.name
        else:
            assert row.first
            assert row.last


def test_supported():
    assert len(SUPPORTED) == 23 + 12 + 2
    assert {OPCODES[code].transport for code in SUPPORTED} == {Transport.RC, Transport.UC, Transport.UD}
    assert all(OPCODES[code].flat for code in SUPPORTED)
    assert sorted(UNRELIABLE) == list(range(0x20, 0x2C))
    assert UNRELIABLE < SUPPORTED
    assert sorted(DATAGRAMS) == [0x64, 0x65]
    assert DATAGRAMS < SUPPORTED
    assert all(OPCODES[code].headers[0] == "deth" for code in DATAGRAMS)
    assert {0x0C, 0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12, 0x13, 0x14} < SUPPORTED
    assert not any(OPCODES[code].payload for code in (opcode("RC_ACKNOWLEDGE"), opcode("RC_RDMA_READ_REQUEST")))


def test_refused():
    """Of RC all that is not served, and no opcode of another transport."""
    assert {OPCODES[code].name for code in REFUSED} == {
        "RC_FLUSH",
        "RC_ATOMIC_WRITE",
    }
    assert not REFUSED & SUPPORTED


def test_unknown_name():
    with pytest.raises(ValueError, match="not 'RC_PIGEON'"):
        opcode("RC_PIGEON")
