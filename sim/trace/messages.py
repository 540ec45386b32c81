"""Messages of a run, each with what happened for it on both sides, from a capture with the host buses.

A packet belongs to the message that has its PSN; an access to memory to the message of the packet whose payload was
read or written there; a read of MPT or MTT to the first message that uses what was read.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass, field

from verbena.hdl.abi.cqe import WcStatus
from verbena.hdl.abi.tables import MTT
from verbena.hdl.abi.wqe import SEND_WQE, SGE, SGE_OFFSET, SendFlag, SendOpcode
from verbena.hdl.transport.common.aeth import AethSyndrome
from verbena.hdl.wire.opcodes import Kind

from .address_map import AddressMap
from .packets import PSNS

__all__ = ["REQUESTER", "RESPONDER", "Event", "Message", "Messages"]

REQUESTER, RESPONDER = 0, 1
ATOMICS = (SendOpcode.ATOMIC_CMP_AND_SWP, SendOpcode.ATOMIC_FETCH_AND_ADD)
READS = (SendOpcode.RDMA_READ, *ATOMICS)
RECEIVED = (SendOpcode.SEND, SendOpcode.SEND_WITH_IMM, SendOpcode.RDMA_WRITE_WITH_IMM, SendOpcode.SEND_WITH_INV)


@dataclass
class Event:
    """``start`` and ``end`` in cycles; ``side`` where it happened, of a packet where it was sent; ``to`` is the cycle
    in which a packet arrived, or None.
    """

    kind: str  # doorbell, wqe, mpt, mtt, read, write, packet, cqe
    side: int
    start: int
    end: int
    size: int
    text: str = ""
    to: int | None = None
    flags: tuple = ()


@dataclass
class Message:
    """``first`` is its PSN as a distance from the send queue's first, ``packets`` how many PSNs it has."""

    session: object
    peer: object
    index: int
    opcode: int | None
    length: int
    sges: list
    remote: tuple  # address, rkey
    inline: bool
    first: int
    packets: int
    events: list = field(default_factory=list)
    status: int | None = None
    receive: int | None = None  # index of the receive WQE that it takes

    @property
    def name(self):
        return "unknown" if self.opcode is None else SendOpcode(self.opcode).name

    @property
    def result(self):
        """The completion's status in words; an empty string if there is none."""
        return "" if self.status is None else WcStatus(self.status).name

    @property
    def begin(self):
        """Cycle of its doorbell; the receive WQE may have been fetched before."""
        return next(event.start for event in self.events if event.kind == "doorbell")

    @property
    def end(self):
        return max(event.end if event.to is None else event.to for event in self.events)


class Messages:
    """All messages in ``list``, by the cycle of their doorbells; ``maps`` are the adapters', by number.

    Parameters
    ----------
    capture : .capture_file.Capture
        With the host buses, from before the devices were opened.
    hops : list of .hops.Hop
    """

    def __init__(self, capture, hops):
        self.clock_hz = capture.clock_hz or 156.25e6
        self.maps = {}
        for transaction in capture.transactions:
            self.maps.setdefault(transaction.adapter, AddressMap(transaction.adapter)).take(transaction)
        self._sessions = {}  # by address and QP number, in their order
        self._towards = {}  # by address, and the peer's address and QP number
        for map_ in self.maps.values():
            for session in map_.sessions:
                self._sessions.setdefault((map_.ip, session.number), []).append(session)
                context = session.context
                self._towards[map_.ip, context["dest_ip"], context["dest_qpn"]] = session
        self.list = []
        self._sent = {}  # messages of each session
        for map_ in self.maps.values():
            for session in map_.sessions:
                self._sent[id(session)] = self._of(session)
        self._index_accesses()
        self.unmatched = 0
        self._expected = {}  # by session and side: the PSN, as a distance, whose payload is taken next
        # In the order of time: what is sent, and what arrives, which may overtake.
        packets = [hop for hop in hops if hop.packet is not None]
        moments = [(self.cycle(hop.time), 0, i, hop) for i, hop in enumerate(packets)]
        moments += [(self.cycle(hop.arrived), 1, i, hop) for i, hop in enumerate(packets) if hop.arrived is not None]
        for cycle, arrives, _, hop in sorted(moments, key=lambda moment: moment[:3]):
            (self._arrive if arrives else self._send)(hop, cycle)
        self._translations()
        self.list.sort(key=lambda message: message.begin)

    def cycle(self, time):
        """Of a time in ns."""
        return round(time * self.clock_hz / 1e9)

    def _session(self, address, number, cycle):
        """The session that a QP number meant in this cycle; None if nobody had it."""
        found = None
        for session in self._sessions.get((address, number), ()):
            if session.begin <= cycle:
                found = session
        return found

    def _of(self, session):
        """The messages of a send queue, with what the bus of the requester shows of them."""
        found, first, received = [], 0, 0
        mtu = _mtu(session)
        peer = None
        for begin, behind, start, end, pushed in session.sends.doorbells:
            for index in range(begin, behind):
                peer = self._session(session.context["dest_ip"], session.context["dest_qpn"], end) or peer
                message = self._message(session, peer, index, first, mtu)
                first += message.packets
                text = "the WQE and its doorbell" if pushed else f"{behind - begin} WQEs" if behind - begin > 1 else ""
                message.events.append(Event("doorbell", REQUESTER, start, end, 4, text))
                for access in session.sends.fetches.get(index, ()):
                    message.events.append(_event(access, "wqe", REQUESTER))
                if peer is not None and message.opcode in RECEIVED:
                    message.receive = received
                    for access in peer.receives.fetches.get(received, ()):
                        message.events.append(_event(access, "wqe", RESPONDER))
                    self._complete(message, peer, True, received)
                    received += 1
                self._complete(message, session, False, index)
                found.append(message)
        self.list += found
        return found

    def _complete(self, message, session, receive, index):
        entries = session.completions.get((receive, index % (1 << 16)), ())
        if index >> 16 < len(entries):
            fields, access = entries[index >> 16]
            text = WcStatus(fields["status"]).name
            message.events.append(_event(access, "cqe", RESPONDER if receive else REQUESTER, text=text))
            if not receive:
                message.status = fields["status"]

    def _message(self, session, peer, index, first, mtu):
        entry = session.sends.entries.get(index)
        if entry is None:
            return Message(session, peer, index, None, 0, [], (0, 0), False, first, 0)
        wqe = SEND_WQE.unpack(entry[: SEND_WQE.size])
        inline = bool(wqe["flags"] & SendFlag.INLINE)
        count = 1 if wqe["opcode"] in ATOMICS else wqe["sge_count"]
        sges = [] if inline else _sges(entry[SGE_OFFSET : SGE_OFFSET + SGE.size * count])
        packets = 1 if wqe["opcode"] in ATOMICS else max(1, -(-wqe["length"] // mtu))
        remote = wqe["remote_address"], wqe["rkey"]
        return Message(session, peer, index, wqe["opcode"], wqe["length"], sges, remote, inline, first, packets)

    # Packets, and the accesses to memory that they stand for

    def _index_accesses(self):
        """Accesses to data by adapter, direction, key, and address of the bus's word."""
        self._accesses, self._uses = {}, {}
        for map_ in self.maps.values():
            for access in sorted(map_.accesses, key=lambda access: access.start):
                for key, address in access.places:
                    word = address // map_.beat * map_.beat
                    place = map_.adapter, access.transaction.write, key, word
                    self._accesses.setdefault(place, deque()).append(access)

    def _message_of(self, packet, cycle):
        """The message of a packet, and the distance of its PSN from the send queue's first; None if there is none."""
        session = self._session(packet.destination, packet.dest_qpn, cycle)
        if not packet.response:
            if session is not None:
                session = self._session(session.context["dest_ip"], session.context["dest_qpn"], cycle)
            else:  # the responder is of another program, or machine
                session = self._towards.get((packet.source, packet.destination, packet.dest_qpn))
        if session is None or session.sq_psn is None:
            return None, None
        at = (packet.psn - session.sq_psn) % PSNS
        return self._by_psn(session, at), at

    def _send(self, hop, at):
        packet = hop.packet
        message, psn = self._message_of(packet, at)
        if message is None:
            self.unmatched += 1
            return
        session = message.session
        side = RESPONDER if packet.response else REQUESTER
        map_ = self.maps[session.adapter]
        arrived = None if hop.arrived is None else self.cycle(hop.arrived)
        start = at - -(-hop.size // map_.beat) + 1
        sent_before = any(
            event.kind == "packet" and event.side == side and event.text == _label(packet) for event in message.events
        )
        flags = ("again",) if sent_before and not hop.comment.startswith("the wire") else ()
        flags += ("nak",) if packet.nak else ()
        flags += tuple(hop.comment.split(", ")) if hop.comment else ()
        message.events.append(Event("packet", side, start, at, hop.size, _label(packet), arrived, flags))
        if packet.nak and packet.syndrome & 0x60 == AethSyndrome.RNR:  # the responder goes back to this one
            self._expected[id(session), RESPONDER] = psn
        if packet.payload or packet.row.kind == Kind.ATOMIC_RESPONSE:
            self._take(message, side, False, (psn - message.first) * _mtu(session), _size(packet), at)

    def _arrive(self, hop, at):
        """The payload is written if the packet comes in turn."""
        packet = hop.packet
        message, psn = (None, None) if hop.harmed else self._message_of(packet, at)
        if message is None or packet.row.kind == Kind.ACK:
            return
        side = REQUESTER if packet.response else RESPONDER
        place = id(message.session), side
        first = 0 if side == RESPONDER else self._next_read(message.session, 0)
        if psn != self._expected.get(place, first):
            return
        behind = message.first + message.packets
        if side == RESPONDER:
            self._expected[place] = behind if message.opcode in READS else psn + 1
        else:
            self._expected[place] = psn + 1 if psn + 1 < behind else self._next_read(message.session, behind)
        if packet.payload or packet.row.kind == Kind.ATOMIC_RESPONSE:
            begin = at - -(-hop.size // self.maps[message.session.adapter].beat)
            self._take(message, side, True, (psn - message.first) * _mtu(message.session), _size(packet), begin)

    def _next_read(self, session, psn):
        """PSN of the first response of the next READ or atomic."""
        sent = self._sent[id(session)]
        at = bisect_left(sent, psn, key=lambda message: message.first)
        return next((m.first for m in sent[at:] if m.opcode in READS and m.packets), None)

    def _by_psn(self, session, at):
        sent = self._sent[id(session)]
        place = bisect_right(sent, at, key=lambda message: message.first) - 1
        while place >= 0 and not sent[place].packets:
            place -= 1
        message = sent[place] if place >= 0 else None
        return message if message is not None and at < message.first + message.packets else None

    def _memory(self, message, side):
        """Scatter/gather entries of a side: address, length and key."""
        if side == REQUESTER:
            return message.sges
        if message.opcode in (SendOpcode.SEND, SendOpcode.SEND_WITH_IMM, SendOpcode.SEND_WITH_INV):
            entry = message.peer and message.peer.receives.entries.get(message.receive)
            return _sges(entry) if entry else []
        length = 8 if message.opcode in ATOMICS else message.length
        return [(message.remote[0], length, message.remote[1])]

    def _take(self, message, side, write, offset, size, cycle):
        """Gives the message the accesses of these bytes of it: the first that are
        nobody's yet, of reads only those that begin before ``cycle``, of writes those that begin after it."""
        session = message.session if side == REQUESTER else message.peer
        if session is None or (side == REQUESTER and message.inline):
            return
        map_ = self.maps[session.adapter]
        for address, length, key in self._memory(message, side):
            taken = min(size, max(0, length - offset))
            at, end = address + offset, address + offset + taken
            offset = max(0, offset - length)
            size -= taken
            while at < end:
                access = self._access((map_.adapter, write, key >> 8, at // map_.beat * map_.beat), write, cycle)
                if access is None:
                    break
                access.used = True
                message.events.append(_event(access, "write" if write else "read", side))
                self._uses.setdefault((map_.adapter, key >> 8), []).append((access.start, message, side))
                at = at // map_.beat * map_.beat + len(access.transaction.data)
                if message.opcode in ATOMICS and side == RESPONDER and not write:
                    self._take(message, side, True, 0, 8, access.end)

    def _access(self, place, write, cycle):
        queue = self._accesses.get(place, ())
        while queue and (queue[0].used or (write and queue[0].start < cycle)):
            queue.popleft()
        if not queue or (not write and queue[0].start > cycle):
            return None
        return queue.popleft()

    # Translations

    def _translations(self):
        uses = {place: sorted(found, key=lambda use: use[0]) for place, found in self._uses.items()}
        for map_ in self.maps.values():
            for access in map_.accesses:
                if access.kind not in ("mpt", "mtt"):
                    continue
                found = uses.get((map_.adapter, access.key), ())
                at = bisect_left(found, access.end, key=lambda use: use[0])
                if at < len(found):
                    _, message, side = found[at]
                    entries = len(access.transaction.data) // MTT.size
                    text = f"key {access.key:#x}" + (
                        f", {entries} pages" if access.kind == "mtt" and entries > 1 else ""
                    )
                    message.events.append(_event(access, access.kind, side, text=text))


def _event(access, kind, side, text=""):
    return Event(kind, side, access.start, access.end, len(access.transaction.data), text)


def _mtu(session):
    return 128 << session.context["path_mtu"]


def _size(packet):
    return 8 if packet.row.kind == Kind.ATOMIC_RESPONSE else packet.payload


def _label(packet):
    return f"{packet.name} {packet.psn}"


def _sges(data):
    found = [SGE.unpack(data[at : at + SGE.size]) for at in range(0, len(data) - SGE.size + 1, SGE.size)]
    return [(sge["address"], sge["length"], sge["lkey"]) for sge in found if sge["length"]]
