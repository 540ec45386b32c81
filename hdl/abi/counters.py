"""Counters of the engine, 64 bits each, readable from :data:`verbena.hdl.abi.registers.COUNTERS` on."""

from dataclasses import dataclass

__all__ = ["COUNTERS", "Counter"]


@dataclass(frozen=True)
class Counter:
    """``width``: bits of the increment that may arrive each cycle (1 for an event)."""

    name: str
    doc: str
    width: int = 1


COUNTERS = {
    c.name: c
    for c in [
        Counter("tx_packets", "RoCE packets sent, acknowledgements included"),
        Counter("tx_bytes", "payload bytes sent", 13),
        Counter("tx_messages", "work requests whose last packet was sent"),
        Counter("tx_acks", "ACKs sent"),
        Counter("tx_naks", "NAKs sent, RNR included"),
        Counter("rx_packets", "RoCE packets accepted by the packet checks"),
        Counter("rx_bytes", "payload bytes of accepted packets", 13),
        Counter("rx_acks", "ACKs received"),
        Counter("rx_naks", "NAKs received, RNR included"),
        Counter(
            "drop_not_roce",
            "frames that are not RoCE for this engine: other MAC, ethertype, protocol, port or IP; ARP and ping, too",
        ),
        Counter("drop_malformed", "lengths, versions or opcodes that contradict each other, or are unknown"),
        Counter("drop_icrc", "wrong ICRC, or a frame damaged on the wire"),
        Counter("drop_overflow", "receive buffer full"),
        Counter(
            "drop_qp",
            "unknown QP, wrong state, P_Key or source; with a table of GIDs also another GID or VLAN than the QP's",
        ),
        Counter("drop_duplicate", "PSN behind the expected one"),
        Counter("drop_sequence", "PSN ahead of the expected one"),
        Counter("drop_error", "refused requests, each answered with a NAK or behind one"),
        Counter("mpt_hits", ""),
        Counter("mpt_misses", ""),
        Counter("mtt_hits", ""),
        Counter("mtt_misses", ""),
        Counter("access_errors", "accesses refused: key, PD, range, rights or page"),
        Counter("bus_errors", "AXI responses other than OKAY", 2),
        Counter("cqes", "completions written"),
        Counter("events", "events written"),
        Counter("cq_overruns", ""),
        Counter("stall_tx_payload", "cycles in which a packet waited for its payload"),
        Counter("stall_tx_wire", "cycles in which the wire was not ready"),
        Counter("stall_rx_memory", "cycles in which received payload waited for memory"),
        Counter("retries", "times a send queue went back: NAK, timeout, RNR or a skipped response"),
        Counter("timeouts", "local ACK timeouts"),
        Counter("implied_naks", "responses that skipped an outstanding READ or atomic"),
        Counter("drop_response", "responses and acknowledgements that nothing waits for: duplicates and ghosts"),
        Counter("read_responses", "READ response packets sent"),
        Counter("atomics", "atomic operations executed for peers"),
        Counter("replays", "atomics answered from what was kept of them"),
        Counter("stall_window", "turns in which a QP could not send because too much is unacknowledged"),
        Counter("arp_replies", "ARP requests and neighbour solicitations answered"),
        Counter("echo_replies", "ICMP and ICMPv6 echo requests (ping) answered"),
        Counter(
            "drop_station", "ARP and ICMP packets not looked at: another was being answered, or they are too large"
        ),
        Counter("pushes", "send WQEs taken from what the driver pushed"),
        Counter("push_fetches", "send WQEs read from the ring although the driver pushed them"),
        Counter("drop_busy", "READs and atomics for which there was no room among those that wait for their answer"),
        Counter("cq_fetches", "CQ records read from host memory"),
        Counter("qp_fetches", "QPs that came from host memory to a slot"),
        Counter("raw_tx_packets", "raw frames sent"),
        Counter("raw_rx_packets", "raw frames stored for the raw packet queue; they count in drop_not_roce, too"),
        Counter(
            "drop_raw",
            "frames for the raw packet queue that are too short or too long, or damaged, or for which there is no room",
        ),
    ]
}
