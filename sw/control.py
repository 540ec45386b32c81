"""What is said to a device and read from it: registers, counters, and commands with their mailbox."""

import errno
import math
import threading
from ipaddress import IPv4Address, IPv6Address

from verbena.hdl.abi import registers as reg
from verbena.hdl.abi.commands import COMMAND, Command, CommandStatus, QpAction
from verbena.hdl.abi.counters import COUNTERS
from verbena.hdl.abi.eqe import EVENT_QUEUE
from verbena.hdl.abi.gids import GROUP_MEMBER
from verbena.hdl.abi.registers import REGISTERS

from .errors import AdapterError
from .gids import PORT_ADDRESS, gid_writes, ipv4_of, mapped

__all__ = ["Control", "read_counters"]

COMMAND_CYCLES = 4_000_000
GROUP_WORDS = GROUP_MEMBER.fields["valid"].word + 1
"""Of a row of the table of group members, those that count: the last one makes it."""
ARP_TRIES = 3
"""ARP requests or neighbour solicitations, a second apart: as many as Linux sends (``mcast_solicit``,
``retrans_time``)."""
ARP_QUIET = 100_000
"""Cycles in which a device has nothing to do, after which an answer is not waited for: a device that cannot tell, as
others may speak any time, always has something to do."""
SECOND_NS = 10**9
ARP_KNOWN = 1 << 31


def read_counters(port, *names):
    """The counters of the engine behind ``port``, by name; all, if none is named. It need not be brought up."""
    values = {}
    for i, name in enumerate(COUNTERS):
        if names and name not in names:
            continue
        offset = reg.COUNTERS + 8 * i
        high = port.read32(offset + 4)
        while True:
            low = port.read32(offset)
            again = port.read32(offset + 4)
            if again == high:
                break
            high = again
        values[name] = high << 32 | low
    return values


class Control:
    """The registers, counters and commands of the engine behind a port, and what it says it can do.

    Whoever holds ``lock`` is alone with the commands; it may be taken again by the same thread.

    Parameters
    ----------
    port : Port
        The device.
    meanwhile : callable
        Called again and again while a command runs: it must take events, because a full event ring holds commands up.

    Raises
    ------
    AdapterError
        ENODEV: the device is not a Verbena engine, or speaks another version of the interface.
    """

    def __init__(self, port, meanwhile):
        self.port = port
        self.lock = threading.RLock()
        self._meanwhile = meanwhile
        magic, version = self.read("magic"), self.read("version")
        if magic != reg.MAGIC:
            raise AdapterError(errno.ENODEV, f"device {port.name!r} is no Verbena engine: magic {magic:#010x}")
        if version != reg.VERSION:
            raise AdapterError(
                errno.ENODEV, f"device {port.name!r} speaks interface {version}, the driver {reg.VERSION}"
            )
        capabilities = self.read("capabilities")
        sizes = {name: 1 << (capabilities >> bit & 15) for name, bit in reg.LOG_CAPABILITIES.items()}
        self.max_qp = sizes["qps"]
        self.cq_slots = sizes["cqs"]
        self.data_bytes, self.window = sizes["data_bytes"], sizes["window"]
        self.max_responses = sizes["responses"] - 1
        self.has_qp_table = bool(capabilities & reg.QP_TABLE)
        self.responds_only = bool(capabilities & reg.RESPONDS_ONLY)
        self.atomics = not capabilities & reg.NO_ATOMICS
        self.reach = capabilities >> reg.REACH & reg.REACH_MASK
        self.can_push = bool(capabilities & reg.CAN_PUSH)
        self.physical_regions = bool(capabilities & reg.PHYSICAL)
        queues = self.read("queues")
        self.max_srq = queues & reg.SRQ_MASK
        self.event_queues = 1 << (queues >> reg.LOG_EVENT_QUEUES & 15)
        self.cq_moderation = bool(queues & reg.CQ_MODERATION)
        self.interrupt_moderation = bool(queues & reg.INTERRUPT_MODERATION)
        transports = self.read("transports")
        self.qp_types = frozenset(kind for kind in range(16) if transports >> kind & 1)
        self.has_gids = transports >> reg.GID_ROWS & 0xFF != 0
        self.has_roce_v1 = bool(transports & reg.ROCE_V1)
        self.has_multicast = bool(transports & reg.MULTICAST)
        self.wqe_bytes = 1 << (transports >> reg.LOG_WQE_BYTES & 15)
        self.key_operations = bool(transports & reg.KEY_OPERATIONS)
        self._read_block = getattr(port, "read_block", self._read_words)
        self._write_block = getattr(port, "write_block", self._write_words)

    def read(self, name):
        return self.port.read32(REGISTERS[name].offset)

    def write(self, name, value):
        self.port.write32(REGISTERS[name].offset, value)

    def _read_words(self, offset, count):
        return [self.port.read32(offset + 4 * i) for i in range(count)]

    def _write_words(self, offset, values):
        for i, value in enumerate(values):
            self.port.write32(offset + 4 * i, value)

    def reset(self):
        """Makes the device as new: QPs, CQs, keys, events, and what it has begun, are gone; it is not enabled.

        ``AdapterError`` (ETIMEDOUT) if it does not end.
        """
        with self.lock:
            self.write("command", COMMAND.words(opcode=Command.DEVICE_RESET)[0])
            if self._wait(lambda: None) is None:
                raise AdapterError(errno.ETIMEDOUT, "DEVICE_RESET does not end")

    def command(self, opcode, number=0, action=QpAction.NONE, words=(), results=0):
        """Runs a command to its end; ``words`` go to the mailbox before, and as many as ``results`` come from there. A
        device that is gone has nothing left to be commanded.

        ``AdapterError``: EINVAL if it is refused, EIO if a table cannot be read, ETIMEDOUT if it does not end, EBUSY if
        an earlier one has not.
        """
        name = f"{Command(opcode).name} of {number:#x}"
        if getattr(self.port, "gone", False):
            return []
        with self.lock:
            if self.read("command_status") >> 31:
                # The mailbox belongs to the command that runs: the device would refuse it.
                raise AdapterError(errno.EBUSY, f"{name}: an earlier command does not end")
            if words:
                self._write_block(reg.MAILBOX, list(words))
            self.write("command", COMMAND.words(opcode=opcode, action=action, number=number)[0])
            status = self._wait(self._meanwhile)
            if status is None:
                why = "host memory does not answer" if self.read("status") & reg.FATAL else "it does not end"
                raise AdapterError(errno.ETIMEDOUT, f"{name}: {why}")
            if status & 15:
                why = next((s.name for s in CommandStatus if s == status & 15), status & 15)
                code = errno.EIO if status & 15 == CommandStatus.BUS_ERROR else errno.EINVAL
                error = AdapterError(code, f"{name} was refused: {why}")
                error.status = status & 15
                raise error
            return self._read_block(reg.MAILBOX, results) if results else []

    def _wait(self, meanwhile):
        """The status when no command runs any more; None if that takes too long."""
        waited = 0
        while waited < COMMAND_CYCLES:
            if not (status := self.read("command_status")) >> 31:
                return status
            meanwhile()
            step = 32 if waited < 512 else 1024
            self.port.advance(step)
            waited += step
        return None

    def counters(self, *names):
        """The counters of the engine by name; all, if none is named."""
        return read_counters(self.port, *names)

    @property
    def link(self):
        """Whether the port has a link."""
        return bool(self.read("status") >> 1 & 1)

    def write_gids(self, rows):
        """Fills the table of GIDs with rows of :func:`.gids.own_gids`."""
        for offset, value in gid_writes(rows):
            self.port.write32(reg.GIDS + offset, value)

    def write_member(self, row, gid, qpn):
        """Writes a row of the table of group members; ``qpn`` None: it does not count."""
        if getattr(self.port, "gone", False):
            return
        fields = {"gid_low": gid & (1 << 64) - 1, "gid_high": gid >> 64, "qpn": qpn or 0, "valid": qpn is not None}
        for word, value in enumerate(GROUP_MEMBER.words(row=row, **fields)[:GROUP_WORDS]):
            self.port.write32(reg.GROUPS + 4 * word, value)

    def begin_event_queue(self, number, bus, log_size):
        """Gives an event queue its ring, which is empty."""
        low, high = bus & 0xFFFFFFFF, bus >> 32
        if number:
            self._write_event_queue(number, "base", low, high)
            self._write_event_queue(number, "log_size", log_size)
        else:
            for name, value in (("eq_low", low), ("eq_high", high), ("eq_log_size", log_size)):
                self.write(name, value)

    def consume_events(self, number, consumer):
        """Tells an event queue which event is the next that the driver will read, a free-running count."""
        if number:
            self._write_event_queue(number, "consumer", consumer)
        else:
            self.write("eq_consumer", consumer)

    def moderate_interrupts(self, number, interval):
        """Between two rises of the interrupt of an event queue there are ``interval`` times 1.024 us at least."""
        self._write_event_queue(number, "interval", interval)

    def _write_event_queue(self, number, field, *words):
        offset = reg.EVENT_QUEUES + EVENT_QUEUE.size * number + 4 * EVENT_QUEUE.fields[field].word
        self._write_words(offset, words)

    def resolve_gid(self, gid, index, timeout_ms=math.inf):
        """MAC address of the neighbour with this GID, a number: one that the port knows, or who answers an ARP request
        or a neighbour solicitation from the own GID ``index``, in its VLAN. Three are sent, each when the one before is
        a second old (:class:`.port.Port`).

        ``AdapterError``: EHOSTUNREACH if nobody answers, ETIMEDOUT if nobody has in ``timeout_ms``.
        """
        ip = ipv4_of(gid)
        address = IPv6Address(gid) if ip is None else IPv4Address(ip)
        try:
            return self.port.resolve(int(address))
        except KeyError:
            pass

        def ask():
            if self.has_gids:
                self._write_words(reg.NEIGHBOUR, (*(gid >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)), index))
            else:
                self.write("neighbour_ip", ip)

        return self._ask(ask, address, timeout_ms)

    def resolve(self, ip, timeout_ms=math.inf):
        """:meth:`resolve_gid` for an IPv4 address, from the port's own one."""
        return self.resolve_gid(mapped(ip), PORT_ADDRESS, timeout_ms)

    def _ask(self, ask, address, timeout_ms):
        """The answer to what ``ask()`` makes the device send."""
        with self.lock:
            second = getattr(self.port, "second_ns", SECOND_NS)
            last = self.port.time_ns() + timeout_ms * second / 1000
            for _ in range(ARP_TRIES):
                ask()
                end = min(last, self.port.time_ns() + second)
                quiet = 0
                while quiet < ARP_QUIET and self.port.time_ns() < end:
                    quiet = 0 if self.port.advance(1024) else quiet + 1024
                    if (high := self.read("neighbour_mac_high")) & ARP_KNOWN:
                        return (high & 0xFFFF) << 32 | self.read("neighbour_mac_low")
                if self.port.time_ns() >= last:
                    break
        if self.port.time_ns() >= last:
            raise AdapterError(errno.ETIMEDOUT, f"nobody has the address {address} for {timeout_ms} ms")
        raise AdapterError(errno.EHOSTUNREACH, f"nobody has the address {address}")

    def cycles(self):
        """Low 32 bits of the engine's clock."""
        return self.read("clock")
