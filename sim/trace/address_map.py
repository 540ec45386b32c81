"""What the transactions of one adapter's host bus are about, learned from those transactions alone.

The driver tells the engine by registers where rings and tables stand, and the tables that the engine reads tell it the
pages of memory; who has seen both knows what each address means. What was set up before the capture began is unknown.
"""

from dataclasses import dataclass, field

from verbena.hdl.abi import registers as reg
from verbena.hdl.abi.commands import COMMAND, OPERANDS, Command, QpAction
from verbena.hdl.abi.contexts import CQ_CONTEXT, QP_CONTEXT
from verbena.hdl.abi.cqc import CQC_BYTES
from verbena.hdl.abi.cqe import CQE
from verbena.hdl.abi.eqe import EQE
from verbena.hdl.abi.qpc import qpc_bytes
from verbena.hdl.abi.registers import REGISTERS, CqDoorbell, QpDoorbell
from verbena.hdl.abi.tables import MPT, MTT
from verbena.hdl.abi.wqe import SEND_WQE

__all__ = ["Access", "AddressMap", "Queue", "Session"]

_REGISTERS = {register.offset: name for name, register in REGISTERS.items()}
_INDEX = 1 << 16


@dataclass
class Access:
    """A transaction and its meaning.

    ``places`` are what a ``data`` transaction may touch: pairs of MPT index and virtual address of its first byte, as
    many as regions have the page.
    """

    kind: str  # wqe, recv wqe, mpt, mtt, data, cqe, eqe, cq or qp (a record), other
    transaction: object
    key: int = 0
    places: tuple = ()
    used: bool = False

    @property
    def start(self):
        return self.transaction.start

    @property
    def end(self):
        return self.transaction.end


@dataclass
class Queue:
    """A send or receive queue: doorbells, and what the engine has fetched, by free-running index of 16 bits that goes
    on counting beyond."""

    producer: int = 0
    doorbells: list = field(default_factory=list)  # (first index, producer behind it, start, end, pushed)
    fetches: dict = field(default_factory=dict)  # index: [Access]
    entries: dict = field(default_factory=dict)  # index: bytes

    def ring(self, value, start, end, pushed):
        """Takes a producer doorbell."""
        news = (value - self.producer) % _INDEX
        if news:
            self.doorbells.append((self.producer, self.producer + news, start, end, pushed))
            self.producer += news

    def index_of(self, slot, log_size):
        """The newest index that stands in this slot; None if nothing was posted there."""
        index = self.producer - 1 - (self.producer - 1 - slot) % (1 << log_size)
        return index if index >= 0 else None


@dataclass
class Session:
    """A QP between two RESETs: ``context`` as of its last command."""

    adapter: int
    number: int
    begin: int
    context: dict
    sends: Queue = field(default_factory=Queue)
    receives: Queue = field(default_factory=Queue)
    sq_psn: int | None = None
    rq_psn: int | None = None
    completions: dict = field(default_factory=dict)  # (receive, wqe index of 16 bits): [(fields, Access)]


class AddressMap:
    """Learns from transactions in the order of their ends.

    ``sessions`` holds all :class:`Session`, ``accesses`` all DMA, ``ip`` the adapter's address, ``tick`` its register,
    ``beat`` the bytes of its bus, ``window`` how many messages of a QP may be under way.
    """

    def __init__(self, adapter):
        self.adapter = adapter
        self.sessions, self.accesses = [], []
        self.ip = self.tick = None
        self.beat, self.max_qp, self.window = 8, 64, 64
        self._registers, self._mailbox = {}, {}
        self._qps, self._cqs = {}, {}
        self._pushes = {}
        self._mpt = {}  # index: bytearray
        self._pages = {}  # log2 of the page's size: {bus page: {index: virtual address}}

    def take(self, transaction):
        if not transaction.register:
            self._dma(transaction)
        elif transaction.write:
            self._write(transaction)
        elif transaction.address == REGISTERS["capabilities"].offset:
            value = int.from_bytes(transaction.data[:4], "little")
            self.max_qp = 1 << (value >> reg.LOG_CAPABILITIES["qps"] & 15)
            self.beat = 1 << (value >> reg.LOG_CAPABILITIES["data_bytes"] & 15)
            self.window = 1 << (value >> reg.LOG_CAPABILITIES["window"] & 15)

    # Register writes

    def _write(self, t):
        value = int.from_bytes(t.data[:4], "little")
        if t.address >= reg.SRQ_PAGES:
            return  # completions tell which of its receives were used
        if t.address >= reg.CQ_PAGES:
            self._ring_cq((t.address - reg.CQ_PAGES) // reg.PAGE, t.address % reg.PAGE, value)
        elif t.address >= reg.QP_PAGES:
            self._ring_qp((t.address - reg.QP_PAGES) // reg.PAGE, t.address % reg.PAGE, value, t)
        elif reg.MAILBOX <= t.address < reg.MAILBOX_END:
            self._mailbox[t.address] = t.data[:4]
        elif t.address == REGISTERS["command"].offset:
            self._command(t.start, **COMMAND.unpack(t.data[:4] + bytes(4)))
        elif name := _REGISTERS.get(t.address):
            self._registers[name] = value
            if name in ("ip", "tick"):
                setattr(self, name, value)

    def _address(self, name):
        return self._registers.get(f"{name}_low", 0) | self._registers.get(f"{name}_high", 0) << 32

    def _command(self, cycle, number, opcode, action):
        if opcode == Command.DEVICE_RESET:
            self._qps, self._cqs, self._mpt, self._pages = {}, {}, {}, {}
        if opcode == Command.INVALIDATE_KEY:
            self._mpt.pop(number, None)
            for pages in self._pages.values():
                for regions in pages.values():
                    regions.pop(number, None)
        if opcode not in OPERANDS:
            return
        record = OPERANDS[opcode]
        fields = record.unpack(
            b"".join(self._mailbox.get(reg.MAILBOX + at, bytes(4)) for at in range(0, record.size, 4))
        )
        if record is CQ_CONTEXT:
            self._cqs[number] = fields
            return
        if opcode in (Command.CREATE_SRQ, Command.MODIFY_SRQ):
            return
        assert record is QP_CONTEXT
        page = number % self.max_qp
        if opcode == Command.CREATE_QP or action == QpAction.RESET or page not in self._qps:
            self._qps[page] = Session(self.adapter, number, cycle, fields)
            self.sessions.append(self._qps[page])
        session = self._qps[page]
        session.context = fields
        if action == QpAction.START_RECEIVE:
            session.rq_psn = fields["rq_psn"]
        if action == QpAction.START_SEND:
            session.sq_psn = fields["sq_psn"]

    def _ring_cq(self, number, offset, value):
        if offset == CqDoorbell.CONSUMER and number in self._cqs:
            self._cqs[number]["consumer"] = value

    def _ring_qp(self, page, offset, value, t):
        if offset >= reg.QP_PUSH:
            self._pushes.setdefault(page, []).append((offset - reg.QP_PUSH, t))
            return
        session = self._qps.get(page)
        if session is None:
            return
        if offset == QpDoorbell.RQ_PRODUCER:
            session.receives.ring(value, t.start, t.end, False)
            return
        pushed = self._pushes.pop(page, []) if offset == QpDoorbell.SQ_PUSH else []
        session.sends.ring(value, min([t.start, *(word.start for _, word in pushed)]), t.end, bool(pushed))
        if pushed:
            entry = bytearray(1 << session.context["log_sq_stride"])
            for at, word in pushed:
                entry[at : at + 4] = word.data[:4]
            session.sends.entries[session.sends.producer - 1] = bytes(entry)

    # DMA

    def _dma(self, t):
        access = self._table(t) or self._ring(t) or self._data(t) or Access("other", t)
        self.accesses.append(access)

    def _table(self, t):
        base = self._address("cqc")
        if base and base <= t.address < base + (CQC_BYTES << self._registers.get("cqc_log_size", 0)):
            return Access("cq", t)
        base, size = self._address("qpc"), qpc_bytes(self.window)
        if base and base <= t.address < base + size * self.max_qp:
            return Access("qp", t, key=(t.address - base) // size)
        base, size = self._address("mpt"), MPT.size << self._registers.get("mpt_log_size", 0)
        if not t.write and base and base <= t.address < base + size:
            index, at = divmod(t.address - base, MPT.size)
            entry = self._mpt.setdefault(index, bytearray(MPT.size))
            entry[at : at + len(t.data)] = t.data[: MPT.size - at]
            return Access("mpt", t, key=index)
        if not t.write:
            for index, entry in self._mpt.items():
                region = MPT.unpack(bytes(entry))
                page = 1 << region["log_page_size"]
                first = region["address"] & -page
                count = -(-(region["address"] + region["length"] - first) // page)
                at = t.address - region["mtt_address"]
                if region["mtt_address"] and 0 <= at < MTT.size * count:
                    pages = self._pages.setdefault(region["log_page_size"], {})
                    for i in range(len(t.data) // MTT.size):
                        bus = MTT.unpack(t.data[MTT.size * i : MTT.size * (i + 1)])["page"] << 12
                        pages.setdefault(bus & -page, {})[index] = first + (at // MTT.size + i) * page
                    return Access("mtt", t, key=index)
        return None

    def _ring(self, t):
        if t.write:
            eq = self._address("eq")
            if eq and eq <= t.address < eq + (EQE.size << self._registers.get("eq_log_size", 0)):
                return Access("eqe", t)
            for cq in self._cqs.values():
                if cq["base"] <= t.address < cq["base"] + (CQE.size << cq["log_size"]):
                    access = Access("cqe", t)
                    for at in range(0, len(t.data) - CQE.size + 1, CQE.size):
                        self._completed(CQE.unpack(t.data[at : at + CQE.size]), access)
                    return access
            return None
        for session in self._qps.values():
            for which, queue, kind in (("sq", session.sends, "wqe"), ("rq", session.receives, "recv wqe")):
                stride, log_size = session.context[f"log_{which}_stride"], session.context[f"log_{which}_size"]
                at = t.address - session.context[f"{which}_base"]
                if 0 <= at < 1 << stride + log_size:
                    access = Access(kind, t)
                    for offset in range(0, len(t.data), 1 << stride):
                        index = queue.index_of((at + offset) >> stride, log_size)
                        if index is not None:
                            queue.fetches.setdefault(index, []).append(access)
                            entry = t.data[offset : offset + (1 << stride)]
                            if kind == "recv wqe" or len(entry) >= SEND_WQE.size:
                                queue.entries[index] = entry
                    return access
        return None

    def _completed(self, fields, access):
        session = self._qps.get(fields["qpn"] % self.max_qp)
        if session is not None:
            key = (fields["opcode"] >= 128, fields["wqe_index"])
            session.completions.setdefault(key, []).append((fields, access))

    def _data(self, t):
        places = []
        for log, pages in self._pages.items():
            bus = t.address & -(1 << log)
            places += [(index, virtual + t.address - bus) for index, virtual in pages.get(bus, {}).items()]
        return Access("data", t, places=tuple(places)) if places else None
