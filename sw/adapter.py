"""One adapter behind its port: bring-up, commands, tables in host memory, events.

All Contexts on a device share it.
"""

import errno
import random
from collections import deque

from verbena.hdl.abi import registers as reg
from verbena.hdl.abi.commands import COMMAND, Command, CommandStatus, QpAction
from verbena.hdl.abi.contexts import CQ_CONTEXT, QP_CONTEXT, QP_DYNAMIC
from verbena.hdl.abi.counters import COUNTERS
from verbena.hdl.abi.eqe import EQE, EventType
from verbena.hdl.abi.registers import REGISTERS
from verbena.hdl.abi.tables import MPT, MTT

__all__ = ["Adapter", "AdapterError", "Region"]

LOG_MPT_SIZE = 14
LOG_EQ_SIZE = 12
COMMAND_CYCLES = 4_000_000


class AdapterError(OSError):
    """The adapter refused a command, or does not answer."""


class Region:
    """A registered memory region: its key and what must be freed with it."""

    def __init__(self, index, key, mtt, entry):
        self.index = index
        self.key = key
        self.mtt = mtt
        self.entry = entry


class Adapter:
    """Brings the device up and owns everything that Contexts share.

    Parameters
    ----------
    port : Port
        The device.

    Raises
    ------
    AdapterError
        The device is not a Verbena engine, or speaks another version of the interface.
    """

    def __init__(self, port):
        self.port = port
        self.memory = port.memory
        magic, version = self._read("magic"), self._read("version")
        if magic != reg.MAGIC:
            raise AdapterError(errno.ENODEV, f"device {port.name!r} is no Verbena engine: magic {magic:#010x}")
        if version != reg.VERSION:
            raise AdapterError(
                errno.ENODEV, f"device {port.name!r} speaks interface {version}, the driver {reg.VERSION}"
            )
        capabilities = self._read("capabilities")
        self.max_qp, self.max_cq, self.data_bytes, self.window = (1 << (capabilities >> s & 15) for s in (0, 4, 8, 12))
        self.random = random.Random(port.mac)
        self.qps = {}
        self.cqs = {}
        self.regions = {}
        self.pds = set()
        self.async_events = deque()
        self._bring_up()

    # Registers and commands

    def _read(self, name):
        return self.port.read32(REGISTERS[name].offset)

    def _write(self, name, value):
        self.port.write32(REGISTERS[name].offset, value)

    def _bring_up(self):
        port = self.port
        mpt_bytes = MPT.size << LOG_MPT_SIZE
        self.mpt_address, mpt_bus = self.memory.alloc_contiguous(mpt_bytes)
        self.memory.write(self.mpt_address, bytes(mpt_bytes))
        eq_bytes = EQE.size << LOG_EQ_SIZE
        self.eq_address, eq_bus = self.memory.alloc_contiguous(eq_bytes)
        self.memory.write(self.eq_address, bytes(eq_bytes))
        self.eq_consumer = 0
        for name, value in (
            ("mac_low", port.mac & 0xFFFFFFFF),
            ("mac_high", port.mac >> 32),
            ("ip", port.ip),
            ("mpt_low", mpt_bus & 0xFFFFFFFF),
            ("mpt_high", mpt_bus >> 32),
            ("mpt_log_size", LOG_MPT_SIZE),
            ("eq_low", eq_bus & 0xFFFFFFFF),
            ("eq_high", eq_bus >> 32),
            ("eq_log_size", LOG_EQ_SIZE),
            ("control", 3),
        ):
            self._write(name, value)

    def command(self, opcode, number=0, action=QpAction.NONE, words=()):
        """Runs a command to its end; ``words`` go to the mailbox before. ``AdapterError`` (EINVAL) if it is refused,
        ETIMEDOUT if it does not end.
        """
        for i, word in enumerate(words):
            self.port.write32(reg.MAILBOX + 4 * i, word)
        self._write("command", COMMAND.words(opcode=opcode, action=action, number=number)[0])
        waited = 0
        while (status := self._read("command_status")) >> 31:
            self.process_events()
            self.port.advance(256)
            waited += 256
            if waited > COMMAND_CYCLES:
                raise AdapterError(errno.ETIMEDOUT, f"{Command(opcode).name} of {number:#x} does not end")
        if status & 15:
            raise AdapterError(
                errno.EINVAL, f"{Command(opcode).name} of {number:#x} was refused: {CommandStatus(status & 15).name}"
            )

    def counters(self):
        """All counters of the engine by name."""
        values = {}
        for i, name in enumerate(COUNTERS):
            offset = reg.COUNTERS + 8 * i
            high = self.port.read32(offset + 4)
            while True:
                low = self.port.read32(offset)
                again = self.port.read32(offset + 4)
                if again == high:
                    break
                high = again
            values[name] = high << 32 | low
        return values

    def cycles(self):
        """Low 32 bits of the engine's clock."""
        return self._read("clock")

    # Queue pairs and completion queues

    def create_qp(self, owner, **attributes):
        """A QP number, with the QP in RESET; events about it go to ``owner``."""
        number = self._free_number(self.qps, self.max_qp, self.max_qp, "QP")
        self.command(Command.CREATE_QP, number, words=QP_CONTEXT.words(**attributes))
        self.qps[number] = owner
        return number

    def modify_qp(self, number, action, **attributes):
        self.command(Command.MODIFY_QP, number, action, QP_CONTEXT.words(**attributes))

    def query_qp(self, number):
        """Attributes and dynamic fields of a QP, in one dictionary (dynamic ones named ``current_…``)."""
        self.command(Command.QUERY_QP, number)
        words = (QP_CONTEXT.size + QP_DYNAMIC.size) // 4
        data = b"".join(self.port.read32(reg.MAILBOX + 4 * i).to_bytes(4, "little") for i in range(words))
        values = QP_CONTEXT.unpack(data[: QP_CONTEXT.size])
        values.update({f"current_{k}": v for k, v in QP_DYNAMIC.unpack(data[QP_CONTEXT.size :]).items()})
        return values

    def destroy_qp(self, number):
        self.command(Command.DESTROY_QP, number)
        del self.qps[number]

    def create_cq(self, owner, base, log_size):
        number = self._free_number(self.cqs, self.max_cq, 0, "CQ")
        self.command(Command.CREATE_CQ, number, words=CQ_CONTEXT.words(base=base, log_size=log_size, valid=1))
        self.cqs[number] = owner
        return number

    def destroy_cq(self, number):
        self.command(Command.DESTROY_CQ, number)
        del self.cqs[number]

    def _free_number(self, used, count, base, what):
        free = [n for n in range(base, base + count) if n not in used]
        if not free:
            raise AdapterError(errno.ENOMEM, f"all {count} {what}s are in use")
        return free[0]

    def ring_qp(self, number, register, index):
        """Rings a doorbell of a QP (:class:`verbena.hdl.abi.registers.QpDoorbell`)."""
        self.port.write32(reg.QP_PAGES + number % self.max_qp * reg.PAGE + register, index & 0xFFFF)

    def ring_cq(self, number, register, value):
        """Rings a doorbell of a CQ (:class:`verbena.hdl.abi.registers.CqDoorbell`)."""
        self.port.write32(reg.CQ_PAGES + number * reg.PAGE + register, value & 0xFFFF)

    # Memory regions

    def register(self, pd, address, length, access):
        """Registers memory and returns its :class:`Region`; its pages are as large as the bus addresses allow."""
        pages = self.memory.bus_pages(address, length) if length else []
        log_page, entries = _best_pages(address, pages)
        mtt = None
        mtt_bus = 0
        if entries:
            mtt, mtt_bus = self.memory.alloc_contiguous(max(64, MTT.size * len(entries)), 64)
            self.memory.write(mtt, b"".join(MTT.pack(present=1, page=entry >> 12) for entry in entries))
        index = self._free_index()
        variant = self.random.randrange(256)
        entry = {"address": address, "length": length, "log_page_size": log_page, "valid": 1, "mtt_address": mtt_bus}
        entry.update(pd=pd, variant=variant, access=access)
        self._write_mpt(index, **entry)
        region = Region(index, index << 8 | variant, mtt, entry)
        self.regions[index] = region
        return region

    def deregister(self, region):
        self._write_mpt(region.index)
        self.command(Command.INVALIDATE_KEY, region.index)
        if region.mtt is not None:
            self.memory.free(region.mtt)
        del self.regions[region.index]

    def change_region(self, region, **fields):
        """Replaces fields of a region's entry; the engine uses them once this returns."""
        region.entry.update(fields)
        self._write_mpt(region.index, **region.entry)
        self.command(Command.INVALIDATE_KEY, region.index)

    def _write_mpt(self, index, **fields):
        self.memory.write(self.mpt_address + MPT.size * index, MPT.pack(**fields))

    def _free_index(self):
        if len(self.regions) >= (1 << LOG_MPT_SIZE) - 1:
            raise AdapterError(errno.ENOMEM, f"all {1 << LOG_MPT_SIZE} keys are in use")
        while True:
            index = self.random.randrange(1, 1 << LOG_MPT_SIZE)
            if index not in self.regions:
                return index

    # Events

    def process_events(self):
        """Hands every event in the ring to whom it concerns. Returns how many there were."""
        count = 0
        while True:
            slot = self.eq_consumer & (1 << LOG_EQ_SIZE) - 1
            event = EQE.unpack(self.memory.read(self.eq_address + EQE.size * slot, EQE.size))
            if event["phase"] == self.eq_consumer >> LOG_EQ_SIZE & 1:
                break
            self.eq_consumer = self.eq_consumer + 1 & 0xFFFF
            count += 1
            self._dispatch(event["type"], event["number"])
        if count:
            self._write("eq_consumer", self.eq_consumer)
        return count

    def _dispatch(self, kind, number):
        if kind in (EventType.COMPLETION, EventType.CQ_ERR):
            owner = self.cqs.get(number)
        else:
            owner = self.qps.get(number)
        if owner is not None:
            owner._event(kind)

    def advance(self, max_cycles):
        """Lets the device work and takes its events; returns whether it has anything left to do."""
        busy = self.port.advance(max_cycles)
        return bool(self.process_events()) or busy


def _best_pages(address, pages):
    """The largest page size in which ``pages`` (bus addresses of 4 KiB pages, the one of ``address`` first) can be
    told, and its entries.
    """
    if not pages:
        return 12, []
    first = address >> 12
    for log_page in range(30, 12, -1):
        group = 1 << log_page - 12
        if group > 2 * len(pages):
            continue
        mask = group - 1
        if all(
            (pages[i] >> 12) & mask == (first + i) & mask
            and (i == 0 or (first + i) & mask == 0 or pages[i] == pages[i - 1] + 4096)
            for i in range(len(pages))
        ):
            entries = [
                pages[i] & ~((1 << log_page) - 1) for i in range(len(pages)) if i == 0 or (first + i) & mask == 0
            ]
            return log_page, entries
    return 12, list(pages)
