"""The page: what a capture holds, as data, and as one HTML file that needs nothing else."""

import json
from importlib.resources import files
from string import Template

from verbena.hdl.transport.common.aeth import AethSyndrome
from verbena.hdl.wire.opcodes import Kind

from ..ticks import tick_text
from .hops import hops_of
from .messages import Messages
from .packets import PSNS, psn_after

__all__ = ["data_of", "render"]

FIRST_IP = 0x0A000001
"""Address of the device ``sim0`` (:class:`..sim_port.SimPort`); ``sim1`` has the next."""


def data_of(capture, first=1000, number=None):
    """What the page shows of a :class:`.capture_file.Capture`, as a dictionary for JSON.

    No more than ``first`` messages, and of the chart twenty packets for each; ``number`` is a QP number, other QPs are
    left out.
    """
    hops = hops_of(capture.frames)
    run = Messages(capture, hops)
    names = _names(run)
    chosen = [m for m in run.list if number is None or number in (m.session.number, m.peer and m.peer.number)]
    zero = min((message.begin for message in run.list), default=None)
    chart, hosts = _chart(run, hops, names, capture.clock_hz, number, zero)
    shown, rows = chosen[:first], chart[: 20 * first]
    messages = [_message(run, message, names) for message in shown]
    qps = dict.fromkeys([message["qp"] for message in messages] + [row["qp"] for row in rows])
    return {
        "summary": _summary(capture, run, hops, chosen, shown, chart, rows),
        "clock": run.clock_hz,
        "zero": zero or 0,
        "unit": "cycle" if capture.clock_hz else "µs",
        "qps": list(qps),
        "hosts": hosts,
        "messages": messages,
        "chart": rows,
    }


def render(data, title):
    """The HTML of what :func:`data_of` returns."""
    folder = files(__package__)
    parts = {name: (folder / f"page.{end}").read_text() for name, end in (("style", "css"), ("script", "js"))}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    safe = title.replace("&", "&amp;").replace("<", "&lt;")
    return Template((folder / "page.html").read_text()).substitute(parts, title=safe, data=text)


def _dotted(address):
    if address >> 32:
        return ":".join(f"{address >> shift & 0xFFFF:x}" for shift in range(112, -1, -16))
    return ".".join(str(byte) for byte in address.to_bytes(4, "big"))


def _names(run):
    """Of the hosts, by address: those of the devices, which number their addresses."""
    known = [map_.ip for map_ in run.maps.values() if map_.ip is not None]
    return {ip: f"sim{ip - FIRST_IP}" if 0 <= ip - FIRST_IP < 256 else _dotted(ip) for ip in known}


def _qp(session, names, run_ip):
    peer = session.context["dest_ip"]
    return f"{run_ip} {session.number:#x} → {names.get(peer, _dotted(peer))} {session.context['dest_qpn']:#x}"


def _message(run, message, names):
    context = message.session.context
    here = names[run.maps[message.session.adapter].ip]
    there = names.get(context["dest_ip"], _dotted(context["dest_ip"]))
    events = sorted(message.events, key=lambda event: (event.start, event.side))
    sq_psn = message.session.sq_psn or 0
    return {
        "qp": _qp(message.session, names, here),
        "ends": [here, there],
        "op": message.name,
        "size": message.length,
        "index": message.index,
        "psn": (sq_psn + message.first) % PSNS,
        "result": message.result,
        "begin": message.begin,
        "end": message.end,
        "events": [[e.kind, e.side, e.start, e.end, e.size, e.text, e.to, list(e.flags)] for e in events],
    }


def _summary(capture, run, hops, chosen, shown, chart, rows):
    parts = []
    if run.maps:
        ticks = sorted({map_.tick for map_ in run.maps.values() if map_.tick is not None})
        parts.append(
            f"{len(run.maps)} adapter{'s' * (len(run.maps) > 1)}, {8 * next(iter(run.maps.values())).beat} bits"
        )
        parts.append(f"{run.clock_hz / 1e6:g} MHz nominal clock")
        parts += [tick_text(tick, run.clock_hz) for tick in ticks]
    packets = [hop for hop in hops if hop.packet is not None]
    naks = sum(bool(hop.packet.nak) for hop in packets)
    found = [_counted(len(run.list), "message")] if run.maps else []
    packets_of = f"{_counted(len(packets), 'RoCE packet')} of {_counted(len(hops), 'frame')}"
    parts.append(", ".join([*found, packets_of]))
    if lost := sum(hop.lost for hop in packets):
        parts.append(f"{lost} lost")
    if naks:
        parts.append(_counted(naks, "NAK"))
    if len(shown) < len(chosen) or len(rows) < len(chart):
        parts.append(
            f"shown: the first {len(shown)} of {len(chosen)} messages, the first {len(rows)} of {len(chart)} packets"
        )
    return " · ".join(parts)


def _counted(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


class _Flow:
    """Packets of one direction of a connection."""

    def __init__(self):
        self.next = None
        self.seen = set()

    def judge(self, packet):
        """Flags, and a remark about PSNs that are missing before this one."""
        flags, note = [], ""
        this = (packet.row.code, packet.psn, packet.syndrome if packet.nak else None)
        if this in self.seen:
            flags.append("again")
        elif not packet.response:
            if self.next is not None and psn_after(packet.psn, self.next):
                note = f"PSN {self.next} to {(packet.psn - 1) % PSNS} not seen before"
            # How many PSNs a READ's response takes the request does not tell.
            self.next = None if packet.row.kind == Kind.READ_REQUEST else (packet.psn + 1) % PSNS
        self.seen.add(this)
        return flags + (["nak"] if packet.nak else []), note


def _chart(run, hops, names, clock_hz, number, zero):
    """Rows of the sequence chart, and the names of its columns. Times count from ``zero``, the cycle of the first
    doorbell, as those of the timeline do, or if that is None from the first packet.
    """
    hosts, rows, flows, last, ends = [], [], {}, None, _Ends(hop.packet for hop in hops if hop.packet is not None)
    fine = 3 if any(hop.time % 1000 for hop in hops) else 1  # decimals of a microsecond

    def column(name):
        if name not in hosts:
            hosts.append(name)
        return hosts.index(name)

    for hop in hops:
        packet = hop.packet
        if packet is None:
            continue
        qpn, responder = ends.of(packet)
        if number is not None and number not in (packet.dest_qpn, qpn):
            continue
        source, target = (names.get(ip, _dotted(ip)) for ip in (packet.source, packet.destination))
        if packet.source == packet.destination:  # an adapter, or a host, with itself
            source, target = (f"{source} {end}" for end in ("requester", "responder")[:: -1 if packet.response else 1])
        there, back = (target, source) if packet.response else (source, target)
        qp = f"{there}{'' if qpn is None else f' {qpn:#x}'} → {back}{'' if responder is None else f' {responder:#x}'}"
        flow = flows.setdefault((packet.source, packet.destination, packet.dest_qpn, packet.response), _Flow())
        flags, note = flow.judge(packet)
        if hop.comment:
            flags = [flag for flag in flags if flag != "again" or not hop.comment.startswith("the wire")]
            flags += hop.comment.split(", ")
        time = run.cycle(hop.time) if clock_hz else hop.time / 1000
        since = 0 if last is None else time - last
        start = last is None
        last = time
        base = zero if zero is not None else rows[0]["at"] if rows else time
        rows.append(
            {
                "at": time,
                "time": f"{time - base:,}" if clock_hz else f"{time - base:,.{fine}f}",
                "after": "" if start else f"+{since:,}" if clock_hz else f"+{since:,.{fine}f}",
                "from": column(source),
                "to": column(target),
                "qp": qp,
                "text": packet.name,
                "more": _more(packet),
                "answer": packet.response,
                "flags": flags,
                "note": note,
            }
        )
    return rows, hosts


def _more(packet):
    parts = [f"PSN {packet.psn}"]
    if packet.payload:
        parts.append(f"{packet.payload} B")
    if "reth.dma_length" in packet.fields and packet.row.kind == Kind.READ_REQUEST:
        parts.append(f"{packet.fields['reth.dma_length']} B")
    if "aeth.msn" in packet.fields and packet.syndrome & 0x60 == AethSyndrome.ACK:
        parts.append(f"MSN {packet.fields['aeth.msn']}")
    return " · ".join(parts)


class _Ends:
    """Which QP numbers belong together: a packet names its destination's only, so that of its source comes from the
    packets of the other direction with the same PSN."""

    def __init__(self, packets):
        asked = {}  # (requester, responder, PSN): responder's QP
        self._requester, self._responder = {}, {}
        for packet in packets:
            if not packet.response:
                asked[packet.source, packet.destination, packet.psn] = packet.dest_qpn
            elif (responder := asked.get((packet.destination, packet.source, packet.psn))) is not None:
                self._requester.setdefault((packet.source, responder), packet.dest_qpn)
                self._responder.setdefault((packet.source, packet.dest_qpn), responder)

    def of(self, packet):
        """Numbers of the requester's QP and of the responder's; None for one that nothing tells."""
        if packet.response:
            return packet.dest_qpn, self._responder.get((packet.source, packet.dest_qpn))
        return self._requester.get((packet.destination, packet.dest_qpn)), packet.dest_qpn
