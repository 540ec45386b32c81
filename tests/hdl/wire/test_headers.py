"""The header tables against scapy and captured frames."""

import pytest
from ether_frames import ip_text, mac_text, number
from hypothesis import given
from hypothesis import strategies as st
from roce_frames import CAPTURES
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap
from verbena.hdl.wire.headers import ENCAPSULATIONS, HEADERS, Header
from verbena.hdl.wire.icrc import icrc


def test_sizes():
    sizes = {name: header.size for name, header in HEADERS.items()}
    assert sizes == {
        "ethernet": 14,
        "feth": 4,
        "ipv4": 20,
        "ipv6": 40,
        "grh": 40,
        "udp": 8,
        "bth": 12,
        "reth": 16,
        "atomiceth": 28,
        "aeth": 4,
        "atomicacketh": 8,
        "immdt": 4,
        "ieth": 4,
        "deth": 8,
    }


@given(st.data())
def test_pack_unpack(data):
    header = data.draw(st.sampled_from(list(HEADERS.values())))
    values = {name: data.draw(st.integers(0, (1 << field.width) - 1)) for name, field in header.fields.items()}
    packed = header.pack(**values)
    assert len(packed) == header.size
    assert header.unpack(packed + b"more") == values


@given(st.data())
def test_against_scapy(data):
    def bits(width):
        return data.draw(st.integers(0, (1 << width) - 1))

    source, destination = bits(48), bits(48)
    assert HEADERS["ethernet"].pack(destination=destination, source=source, ethertype=0x800) == bytes(
        Ether(dst=mac_text(destination), src=mac_text(source), type=0x800)
    )
    source, destination, tos, length, ttl, checksum = bits(32), bits(32), bits(8), bits(16), bits(8), bits(16)
    assert HEADERS["ipv4"].pack(
        version=4,
        header_words=5,
        traffic_class=tos,
        total_length=length,
        dont_fragment=1,
        hop_limit=ttl,
        protocol=17,
        checksum=checksum,
        source=source,
        destination=destination,
    ) == bytes(
        IP(
            tos=tos,
            len=length,
            id=0,
            flags="DF",
            ttl=ttl,
            proto=17,
            chksum=checksum,
            src=ip_text(source),
            dst=ip_text(destination),
        )
    )
    port = bits(16)
    assert HEADERS["udp"].pack(source_port=port, destination_port=4791, length=length, checksum=checksum) == bytes(
        UDP(sport=port, dport=4791, len=length, chksum=checksum)
    )
    names = {
        "opcode": ("opcode", 8),
        "solicited": ("solicited", 1),
        "migrated": ("migreq", 1),
        "pad": ("padcount", 2),
        "version": ("version", 4),
        "pkey": ("pkey", 16),
        "fecn": ("fecn", 1),
        "becn": ("becn", 1),
        "reserved": ("resv6", 6),
        "dest_qpn": ("dqpn", 24),
        "ack_request": ("ackreq", 1),
        "psn": ("psn", 24),
    }
    values = {name: bits(width) for name, (_, width) in names.items()}
    theirs = BTH(**{names[name][0]: value for name, value in values.items()}, icrc=0)
    assert HEADERS["bth"].pack(**values) == bytes(theirs)[:12]
    syndrome, msn = bits(8), bits(24)
    assert HEADERS["aeth"].pack(syndrome=syndrome, msn=msn) == bytes(AETH(syndrome=syndrome, msn=msn))


def test_captured_icrc():
    """The ICRC of every captured frame, IPv4 and IPv6."""
    seen = {"RoCEv2/IPv4": 0, "RoCEv2/IPv6": 0}
    for file in sorted(CAPTURES.glob("*.pcap")):
        for packet in rdpcap(str(file)):
            if BTH not in packet:
                continue
            name = "RoCEv2/IPv6" if IPv6 in packet else "RoCEv2/IPv4"
            row = ENCAPSULATIONS[name]
            frame = bytes(packet)
            ip = HEADERS[row.headers[0]].unpack(frame[14:])
            size = ip["total_length"] if IP in packet else ip["payload_length"] + 40
            assert HEADERS["ethernet"].unpack(frame)["ethertype"] == row.ethertype
            assert frame[14 + size - 4 : 14 + size] == icrc(row, frame[14 : 14 + size - 4]), file.name
            seen[name] += 1
    assert seen["RoCEv2/IPv4"] > 200
    assert seen["RoCEv2/IPv6"] > 10


def test_memory_order():
    assert HEADERS["immdt"].pack(immediate=0x04030201) == bytes([1, 2, 3, 4])
    assert HEADERS["ieth"].pack(immediate=0x04030201) == bytes([1, 2, 3, 4])
    assert number("1.2.3.4") == 0x01020304


def test_arguments():
    with pytest.raises(ValueError, match="not 12 bits"):
        Header("odd", [("a", 12)])
    with pytest.raises(ValueError, match="stands twice"):
        Header("twice", [("a", 8), ("a", 8)])
    with pytest.raises(ValueError, match="not \\['big'\\]"):
        Header("order", [("a", 8, "big")])
    with pytest.raises(ValueError, match="whole bytes"):
        Header("nibble", [("a", 4, "memory"), ("b", 4)])
    with pytest.raises(ValueError, match="no field 'colour'"):
        HEADERS["aeth"].pack(colour=1)
    with pytest.raises(ValueError, match="cannot hold 256"):
        HEADERS["aeth"].pack(syndrome=256)
    with pytest.raises(ValueError, match="not 3"):
        HEADERS["aeth"].unpack(bytes(3))
