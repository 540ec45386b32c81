"""The wire's limits, against frames that scapy builds."""

import pytest
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from verbena.hdl.abi.wqe import SendOpcode
from verbena.sim.wire_limit import ACK, FRAMING, both_ways_cycles, directions, go_back_n, request_bytes, wire_cycles

MTU = 1024
WIRE = 8 + 4 + 12
"""Preamble, FCS and gap of each frame."""

PARTS = {"RETH": 16, "AtomicETH": 28, "AtomicAckETH": 8, "ImmDt": 4}
"""Bytes of the headers that scapy does not know, from the InfiniBand Architecture Specification, chapter 9."""

OPCODES = {
    "SEND_ONLY": 0x04,
    "SEND_ONLY_IMM": 0x05,
    "SEND_FIRST": 0x00,
    "SEND_MIDDLE": 0x01,
    "SEND_LAST": 0x02,
    "WRITE_FIRST": 0x06,
    "WRITE_MIDDLE": 0x07,
    "WRITE_LAST": 0x08,
    "WRITE_LAST_IMM": 0x09,
    "WRITE_ONLY": 0x0A,
    "WRITE_ONLY_IMM": 0x0B,
    "READ_REQUEST": 0x0C,
    "RESPONSE_FIRST": 0x0D,
    "RESPONSE_MIDDLE": 0x0E,
    "RESPONSE_LAST": 0x0F,
    "RESPONSE_ONLY": 0x10,
    "ACKNOWLEDGE": 0x11,
    "ATOMIC_ACKNOWLEDGE": 0x12,
    "COMPARE_SWAP": 0x13,
    "FETCH_ADD": 0x14,
}


def on_the_wire(name, size=0, *parts, aeth=False):
    """Bytes that a frame of this operation occupies; scapy adds the ICRC."""
    headers = Raw(bytes(sum(PARTS[part] for part in parts)))
    pad = -size & 3
    frame = Ether(dst="02:00:00:00:00:01") / IP(dst="10.0.0.1") / UDP(sport=1, dport=4791)
    frame /= BTH(opcode=OPCODES[name], padcount=pad)
    if aeth:
        frame /= AETH()
    return len(bytes(frame / headers / Raw(bytes(size + pad)))) + WIRE


def long(first, middle, last, size, *, reth=False, aeth=False, imm=False):
    """Frames of ``size`` bytes in packets of 1024."""
    parts = [MTU] * ((size - 1) // MTU) + [(size - 1) % MTU + 1]
    total = on_the_wire(first, parts[0], *(["RETH"] if reth else []), aeth=aeth)
    total += sum(on_the_wire(middle, part) for part in parts[1:-1])
    return total + on_the_wire(last, parts[-1], *(["ImmDt"] if imm else []), aeth=aeth)


CASES = [
    (SendOpcode.SEND, 8, on_the_wire("SEND_ONLY", 8), 0),
    (SendOpcode.SEND, 5, on_the_wire("SEND_ONLY", 5), 0),
    (SendOpcode.SEND_WITH_IMM, 8, on_the_wire("SEND_ONLY_IMM", 8, "ImmDt"), 0),
    (SendOpcode.SEND, 3001, long("SEND_FIRST", "SEND_MIDDLE", "SEND_LAST", 3001), 0),
    (SendOpcode.RDMA_WRITE, 8, on_the_wire("WRITE_ONLY", 8, "RETH"), 0),
    (SendOpcode.RDMA_WRITE, 1024, on_the_wire("WRITE_ONLY", 1024, "RETH"), 0),
    (SendOpcode.RDMA_WRITE, 4095, long("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", 4095, reth=True), 0),
    (SendOpcode.RDMA_WRITE_WITH_IMM, 8, on_the_wire("WRITE_ONLY_IMM", 8, "RETH", "ImmDt"), 0),
    (
        SendOpcode.RDMA_WRITE_WITH_IMM,
        2048,
        long("WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST_IMM", 2048, reth=True, imm=True),
        0,
    ),
    *(
        (
            SendOpcode.RDMA_READ,
            size,
            on_the_wire("READ_REQUEST", 0, "RETH"),
            on_the_wire("RESPONSE_ONLY", size, aeth=True),
        )
        for size in (0, 8, 15, 16, 20, 32, 1024)
    ),
    (
        SendOpcode.RDMA_READ,
        5000,
        on_the_wire("READ_REQUEST", 0, "RETH"),
        long("RESPONSE_FIRST", "RESPONSE_MIDDLE", "RESPONSE_LAST", 5000, aeth=True),
    ),
    *(
        (
            opcode,
            8,
            on_the_wire(name, 0, "AtomicETH"),
            on_the_wire("ATOMIC_ACKNOWLEDGE", 0, "AtomicAckETH", aeth=True),
        )
        for opcode, name in (
            (SendOpcode.ATOMIC_FETCH_AND_ADD, "FETCH_ADD"),
            (SendOpcode.ATOMIC_CMP_AND_SWP, "COMPARE_SWAP"),
        )
    ),
]


@pytest.mark.parametrize("width", [64, 512])
@pytest.mark.parametrize(("opcode", "size", "requests", "responses"), CASES)
def test_both_directions_are_those_of_frames(opcode, size, requests, responses, width):
    found = directions(opcode, size, MTU, width)
    assert found == (requests * 8 / width, responses * 8 / width)
    assert wire_cycles(opcode, size, MTU, width) == max(requests, responses) * 8 / width


def test_requests_limit_small_reads_and_atomics():
    """A request with its RETH is longer than a response of 8 bytes; from 16 bytes on the response is."""
    assert wire_cycles(SendOpcode.RDMA_READ, 8, MTU, 64) == 12.25
    assert wire_cycles(SendOpcode.RDMA_READ, 32, MTU, 64) == directions(SendOpcode.RDMA_READ, 32, MTU, 64).responses
    for opcode in (SendOpcode.ATOMIC_FETCH_AND_ADD, SendOpcode.ATOMIC_CMP_AND_SWP):
        assert wire_cycles(opcode, 8, MTU, 64) == 13.75


def test_a_long_read_has_one_request():
    assert request_bytes(SendOpcode.RDMA_READ, 1 << 20, MTU) + FRAMING == on_the_wire("READ_REQUEST", 0, "RETH")


@pytest.mark.parametrize("per_ack", [1, 2.5, 16])
def test_acks_share_the_wire_with_what_goes_their_way(per_ack):
    write, ack = on_the_wire("WRITE_ONLY", 8, "RETH"), on_the_wire("ACKNOWLEDGE", aeth=True)
    assert ack == ACK + FRAMING
    assert directions(SendOpcode.RDMA_WRITE, 8, MTU, 64, per_ack) == (write / 8, ack / 8 / per_ack)
    assert both_ways_cycles(SendOpcode.RDMA_WRITE, 8, MTU, 64, per_ack) == pytest.approx((write + ack / per_ack) / 8)
    assert wire_cycles(SendOpcode.RDMA_WRITE, 8, MTU, 64, per_ack) == write / 8  # an ACK is shorter


def test_both_ways_reads_share_it_with_the_other_ones_responses():
    request, response = on_the_wire("READ_REQUEST", 0, "RETH"), on_the_wire("RESPONSE_ONLY", 8, aeth=True)
    assert both_ways_cycles(SendOpcode.RDMA_READ, 8, MTU, 64) == (request + response) / 8


def test_go_back_n():
    """Nothing lost, the whole rate; of 1 in 101 packets each loss costs 2 and those of a round trip."""
    assert go_back_n(0, 100, 150) == 1
    assert go_back_n(1 / 101, 100, 150) == pytest.approx(100 / 103.5)
