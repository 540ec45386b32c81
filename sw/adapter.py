"""One adapter behind its port: bring-up, tables in host memory, queue pairs and completion queues, events.

All Contexts on a device share it.
"""

import errno
import random
import threading
import weakref
from collections import deque

from verbena.hdl.abi import registers as reg
from verbena.hdl.abi.commands import Command, CommandStatus, QpAction
from verbena.hdl.abi.contexts import CQ_CONTEXT, QP_CONTEXT, QP_DYNAMIC, QpState
from verbena.hdl.abi.cqc import CQN_BITS
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.abi.registers import CqDoorbell, SrqDoorbell

from .control import Control
from .cq_table import CqTable
from .device_memory import DeviceMemory
from .errors import AdapterError
from .events import EventRing, take_events, watch_events
from .gids import own_gids
from .groups import Groups
from .owner import claim
from .pkeys import own_pkeys
from .port import GonePort
from .qp_numbers import QpNumbers
from .qp_table import QpTable
from .reach import Reach
from .regions import LOG_MPT_SIZE, Regions

__all__ = ["Adapter", "AdapterError"]

LOG_EQ_SIZE = 12
STATE = QP_CONTEXT.fields["state"]
EVENT_STEPS = 1000
"""Steps of 32 cycles in which an event comes that the device has sent."""
LOST = "the device has lost this QP: its record in host memory was overwritten or cannot be read"


class Adapter:
    """Brings the device up and owns everything that Contexts share.

    Commands, tables and events may be used from several threads.

    *Lost QPs*: a device that keeps QPs in a table in host memory (``QP_TABLE``) forgets a QP whose record cannot be
    read, or was overwritten. The owner gets the event QP_FATAL. From then on the device is told nothing of that QP:
    :meth:`query_qp` says ERR, :meth:`modify_qp` raises ``AdapterError`` (EIO), whatever the transition, doorbells are
    not rung, and :meth:`destroy_qp` frees the number. What was posted to it never completes.

    Parameters
    ----------
    port : Port
        The device.

    Raises
    ------
    AdapterError
        The device is not a Verbena engine, speaks another version of the interface, does not reach the memory that
        it gets for its tables, or is in use by another driver (EBUSY).
    """

    def __init__(self, port):
        self.port = port
        self.control = control = Control(port, self.process_events)
        self._lock = control.lock
        self._log_cqc_size = getattr(port, "log_cqc_size", CQN_BITS)
        self.max_cq = 1 << self._log_cqc_size
        self.memory = Reach(port.memory, control.reach) if control.reach < 64 else port.memory
        window = getattr(port, "device_memory", None) if control.physical_regions else None
        self.device_memory = DeviceMemory(window) if window is not None else None
        self.may_push = control.can_push and getattr(port, "pushes", True)
        self.qps = {}  # weak references to the owners: a forgotten QP must be free to go
        self.cqs = {}
        self.srqs = {}
        self._free_srqs = deque(range(control.max_srq))
        self.pds = set()
        self._raw_qpn = 0  # whose the frames are that are not RoCE
        self.contexts = weakref.WeakSet()  # who hears of the port
        self.files = False  # whether files tell of events
        self.agent = None  # works whenever time has passed: the connection manager, if there is one
        self._random = getattr(port, "random", None) or random.SystemRandom()
        self.qp_numbers = QpNumbers(control.max_qp, self._random)
        self.gids = own_gids(port, control.has_gids, control.has_roce_v1)
        self.groups = Groups(control)
        self.pkeys = own_pkeys(port)
        self.regions = self.cq_table = self.qp_table = None
        self.event_rings = []
        self.news = threading.Condition()  # notified when events have been handed out
        self.owner = claim(port)
        try:
            self._bring_up()
            watch_events(self, True)
        except BaseException:
            self._free_tables()
            self.owner.give_up()
            raise

    @property
    def gone(self):
        """The device is not there any more: what is left to do is to give host memory back."""
        return getattr(self.port, "gone", False)

    def close(self):
        """Gives up the device, which is reset if it is still there, and what it has in host memory. What is left on it
        says nothing to the device any more: that has another driver, perhaps.
        """
        with self._lock:
            if not self.gone:
                self.control.reset()
                self.owner.give_up()
            self.forget()
        self._free_tables()

    def forget(self):
        """As if the process had been killed: from now on the device is told nothing."""
        watch_events(self, False)
        with self._lock:
            self.owner.forget()
            self.port = self.control.port = GonePort(self.port)

    def _free_tables(self):
        for table in (self.regions, *self.event_rings, self.cq_table, self.qp_table):
            if table is not None:
                table.close()

    def tell_by_files(self):
        """From now on files tell of events, and the program may sleep until one does."""
        if not self.files:
            self.files = True
            if hasattr(self.port, "follow"):
                self.port.follow()

    def _bring_up(self):
        self.control.reset()
        port = self.port
        log_mpt_size = getattr(port, "log_mpt_size", LOG_MPT_SIZE)
        self.regions = Regions(self.memory, self._random, self._drop_key, self._drop_tables, log_mpt_size)
        mpt_bus = self.regions.bus
        self.cq_table = CqTable(self.memory, self._log_cqc_size, self.control.cq_slots)
        cqc_bus = self.cq_table.bus
        if self.control.has_qp_table:
            self.qp_table = QpTable(self.memory, self.control.max_qp, self.control.window)
            self.control.write("qpc_low", self.qp_table.bus & 0xFFFFFFFF)
            self.control.write("qpc_high", self.qp_table.bus >> 32)
        for _ in range(self.control.event_queues):
            self.event_rings.append(EventRing(self.memory, getattr(port, "log_eq_size", LOG_EQ_SIZE)))
        if self.control.has_gids:
            self.control.write_gids(self.gids)
        self.groups.clear()
        for name, value in (
            ("mac_low", port.mac & 0xFFFFFFFF),
            ("mac_high", port.mac >> 32),
            ("ip", port.ip),
            ("mpt_low", mpt_bus & 0xFFFFFFFF),
            ("mpt_high", mpt_bus >> 32),
            ("mpt_log_size", log_mpt_size),
            ("cqc_low", cqc_bus & 0xFFFFFFFF),
            ("cqc_high", cqc_bus >> 32),
            ("cqc_log_size", self._log_cqc_size),
            ("tick", port.tick),
            ("bus_timeout", reg.BUS_TIMEOUT),
        ):
            self.control.write(name, value)
        for number, ring in enumerate(self.event_rings):
            self.control.begin_event_queue(number, ring.bus, ring.log_size)
        self.control.write("control", 3)

    def _drop_key(self, index):
        self.control.command(Command.INVALIDATE_KEY, index)

    def _drop_tables(self):
        self.control.command(Command.INVALIDATE_MTT)

    # Queue pairs and completion queues

    def create_qp(self, owner, *, qp1=False, **attributes):
        """A QP number, with the QP in RESET; events about it go to ``owner._event``. With ``qp1`` it is 1."""
        words = QP_CONTEXT.words(**attributes)
        resting = self.agent.numbers_in_use() if self.agent is not None else frozenset()
        with self._lock:
            number = self.qp_numbers.take_qp1() if qp1 else self.qp_numbers.take(resting)
            try:
                if self.qp_table is not None:
                    self.qp_table.clear(number)
                self.control.command(Command.CREATE_QP, number, words=words)
            except BaseException:
                self.qp_numbers.give_back(number)
                raise
            self.qps[number] = weakref.ref(owner)
            return number

    def modify_qp(self, number, action, **attributes):
        words = QP_CONTEXT.words(**attributes)
        with self._lock:
            if self.qp_table is not None and action == QpAction.RESET:
                self.qp_table.clear(number)
            if self._command_of_qp(Command.MODIFY_QP, number, action, words) is None:
                raise AdapterError(errno.EIO, LOST)

    def settle_sends(self, number, producer):
        """Waits until all that was posted to a send queue in SQE, up to the free-running index ``producer``, has
        completed with an error, or the QP is in another state. Returns the next PSN.
        """
        while True:
            now = self.query_qp(number)
            if now["state"] != QpState.SQE or now["current_sq_completed"] == producer & 0xFFFF:
                return now["current_sq_psn"]
            self.port.advance(1024)

    def qp_state(self, number):
        """The state of a QP: of one that is lost ERR."""
        word, place = divmod(STATE.offset, 32)
        words = self._command_of_qp(Command.QUERY_QP, number, results=word + 1)
        return words[word] >> place & (1 << STATE.width) - 1 if words else QpState.ERR

    def query_qp(self, number):
        """Attributes and dynamic fields of a QP, in one dictionary (dynamic ones named ``current_…``). Of one that is
        lost all but the state is 0.
        """
        size = QP_CONTEXT.size + QP_DYNAMIC.size
        words = self._command_of_qp(Command.QUERY_QP, number, results=size // 4)
        data = bytes(size) if words is None else b"".join(word.to_bytes(4, "little") for word in words)
        values = QP_CONTEXT.unpack(data[: QP_CONTEXT.size])
        values.update({f"current_{k}": v for k, v in QP_DYNAMIC.unpack(data[QP_CONTEXT.size :]).items()})
        if words is None:
            values["state"] = QpState.ERR
        return values

    def destroy_qp(self, number):
        linger = getattr(self.port, "linger", None)
        if linger is not None and not self.gone:
            linger()
        with self._lock:
            for gid in self.groups.of(number):
                self.groups.detach(gid, number)
            self._command_of_qp(Command.DESTROY_QP, number)
            self.process_events()  # what it still has to say is not for its successor
            del self.qps[number]
            self.qp_numbers.give_back(number)

    def attach(self, number, gid):
        """The QP is in the multicast group ``gid``, a number, too. ``AdapterError`` (ENOMEM): there is no room."""
        with self._lock:
            self.groups.attach(gid, number)

    def detach(self, number, gid):
        """It is in the group no more. ``AdapterError`` (EINVAL): it has not been."""
        with self._lock:
            self.groups.detach(gid, number)

    def _command_of_qp(self, opcode, number, *args, **kwargs):
        """As :meth:`.Control.command`; None if the device has lost the QP."""
        with self._lock:
            try:
                if not self.qp_numbers.is_lost(number):
                    return self.control.command(opcode, number, *args, **kwargs)
            except AdapterError as error:
                if self.qp_table is None:
                    raise
                self.process_events()  # one of them may tell why
                # The record cannot be read, or the device knows the QP no more: the event is on its way.
                if error.status in (CommandStatus.BUS_ERROR, CommandStatus.BAD_NUMBER):
                    for _ in range(EVENT_STEPS):
                        if self.qp_numbers.is_lost(number):
                            break
                        self.port.advance(32)
                        self.process_events()
                if not self.qp_numbers.is_lost(number):
                    raise
        return None

    def lead_raw(self, number, promiscuous=False):
        """The frames that are not RoCE go to QP ``number``, with ``promiscuous`` those to other stations, too; with 0
        to nobody. ``AdapterError`` (EBUSY) if they go to another QP.
        """
        with self._lock:
            if number and self._raw_qpn:
                raise AdapterError(errno.EBUSY, f"they go to QP {self._raw_qpn:#x}")
            self._raw_qpn = number
            if not self.gone:
                self.port.write32(reg.RAW, number | reg.RAW_PROMISCUOUS * promiscuous)

    def create_cq(self, owner, base, log_size, **events):
        """A CQ number; events about it go to ``owner._event``. ``events`` are ``comp_vector`` and the like."""
        words = CQ_CONTEXT.words(base=base, log_size=log_size, valid=1, **events)
        with self._lock:
            number = self.cq_table.take()
            try:
                self.control.command(Command.CREATE_CQ, number, words=words)
            except AdapterError:
                self.cq_table.give_back(number)
                raise
            self.cqs[number] = weakref.ref(owner)
            return number

    def modify_cq(self, number, base, log_size, **events):
        """Gives a CQ another ring, from its first entry on; how it is armed stays. All that was written to the old one
        is visible, and nothing more will be.
        """
        self.control.command(
            Command.MODIFY_CQ, number, words=CQ_CONTEXT.words(base=base, log_size=log_size, valid=1, **events)
        )
        self.cq_table.begin_ring(number)

    def moderate_cq(self, number, base, log_size, **events):
        """Gives a CQ another ``cq_count`` and ``cq_period``; its other attributes are what they were."""
        self.control.command(
            Command.MODERATE_CQ, number, words=CQ_CONTEXT.words(base=base, log_size=log_size, valid=1, **events)
        )

    def destroy_cq(self, number):
        with self._lock:
            self.control.command(Command.DESTROY_CQ, number)
            self.process_events()
            del self.cqs[number]
            self.cq_table.give_back(number)

    def ring_qp(self, number, register, index):
        """Rings a doorbell of a QP (:class:`verbena.hdl.abi.registers.QpDoorbell`)."""
        if self.qp_table is not None:
            if self.qp_numbers.is_lost(number):
                return
            self.qp_table.post(number, register, index)
        self.port.write32(reg.QP_PAGES + self.qp_numbers.place(number) * reg.PAGE + register, index & 0xFFFF)

    def push_qp(self, number, entry, index):
        """Writes the newest send WQE, which stands in the ring already, to the device, and rings the doorbell."""
        if self.qp_numbers.is_lost(number):
            return
        page = reg.QP_PAGES + self.qp_numbers.place(number) * reg.PAGE
        for at in range(0, len(entry), 4):
            word = int.from_bytes(entry[at : at + 4], "little")
            if word or not at:
                self.port.write32(page + reg.QP_PUSH + at, word)
        self.ring_qp(number, reg.QpDoorbell.SQ_PUSH, index)

    def tell_consumer(self, number, consumer):
        """Tells a CQ how many CQEs are taken, a free-running count."""
        if not self.gone:
            self._ring_cq(number, CqDoorbell.CONSUMER, self.cq_table.consume(number, consumer))

    def arm_cq(self, number, solicited_only):
        """Asks for an event at the next completion of a CQ, or at the next one that is solicited or in error."""
        if not self.gone:
            with self._lock:
                self._ring_cq(number, CqDoorbell.ARM, self.cq_table.arm(number, solicited_only))

    def _ring_cq(self, number, register, value):
        self.port.write32(reg.CQ_PAGES + number * reg.PAGE + register, value)

    # Shared receive queues

    def create_srq(self, owner, **attributes):
        """The number of a shared receive queue; events about it go to ``owner._event``. One that was given back rests
        as long as it can. ``AdapterError`` (ENOMEM) if all are in use.
        """
        words = QP_CONTEXT.words(**attributes)
        with self._lock:
            if not self._free_srqs:
                raise AdapterError(errno.ENOMEM, f"all {self.control.max_srq} SRQs are in use")
            number = self._free_srqs[0]
            self.control.command(Command.CREATE_SRQ, number, words=words)
            self._free_srqs.popleft()
            self.srqs[number] = weakref.ref(owner)
            return number

    def modify_srq(self, number, **attributes):
        """Gives a shared receive queue the limit that the attributes have; the device takes no other of them."""
        self.control.command(Command.MODIFY_SRQ, number, words=QP_CONTEXT.words(**attributes))

    def destroy_srq(self, number):
        """No QP uses the shared receive queue any more."""
        with self._lock:
            self.control.command(Command.DESTROY_SRQ, number)
            self.process_events()
            del self.srqs[number]
            self._free_srqs.append(number)

    def ring_srq(self, number, producer):
        """WQEs before ``producer``, a free-running index, are posted to a shared receive queue."""
        self.port.write32(reg.SRQ_PAGES + number * reg.PAGE + SrqDoorbell.PRODUCER, producer & 0xFFFF)

    # Memory regions: see :mod:`.regions`

    def register(self, pd, address, length, access, iova=None):
        with self._lock:
            return self.regions.register(pd, address, length, access, iova)

    def register_physical(self, pd, bus, length, access, iova):
        """``EOPNOTSUPP`` if the device has no such regions, ``EFAULT`` if it does not reach them."""
        if not self.control.physical_regions:
            raise AdapterError(errno.EOPNOTSUPP, "the device has no physical regions")
        if bus + length > 1 << self.control.reach:
            raise AdapterError(errno.EFAULT, f"the device reaches {self.control.reach} bits of bus addresses")
        with self._lock:
            return self.regions.register_physical(pd, bus, length, access, iova)

    def register_fast(self, pd, pages):
        """``EOPNOTSUPP`` if work requests do not change keys."""
        self._need_key_operations()
        with self._lock:
            return self.regions.register_fast(pd, pages)

    def register_window(self, pd, kind):
        """``EOPNOTSUPP`` if work requests do not change keys."""
        self._need_key_operations()
        with self._lock:
            return self.regions.register_window(pd, kind)

    def _need_key_operations(self):
        if not self.control.key_operations:
            raise AdapterError(errno.EOPNOTSUPP, "work requests of the device do not change keys")

    def map_region(self, region, address, length):
        with self._lock:
            self.regions.map(region, address, length)

    def valid_key(self, region):
        with self._lock:
            return self.regions.valid_key(region)

    def last_key(self, region):
        with self._lock:
            return self.regions.last_key(region)

    def has_windows(self, region):
        """Whether a window is bound to a region now."""
        with self._lock:
            return bool(self.regions.bound(region))

    def deregister(self, region):
        with self._lock:
            self.regions.deregister(region)

    def change_region(self, region, memory=None, iova=None, **fields):
        with self._lock:
            self.regions.change(region, memory, iova, **fields)

    # Events

    def process_events(self, wait=True):
        """Hands every event in the rings to whom it concerns. Returns how many there were. Without ``wait`` it does
        nothing while another thread has the adapter, which then looks for events itself, or will be asked again.
        """
        if self.gone or not self._lock.acquire(blocking=wait):
            return 0
        try:
            count = 0
            for number, ring in enumerate(self.event_rings):
                before = ring.consumer
                while (event := ring.take()) is not None:
                    count += 1
                    self._dispatch(event["type"], event["number"])
                if ring.consumer != before:
                    self.control.consume_events(number, ring.consumer)
        finally:
            self._lock.release()
        if count:
            with self.news:
                self.news.notify_all()
        return count

    def _dispatch(self, kind, number):
        if kind in (EventType.PORT_ACTIVE, EventType.PORT_ERR, EventType.DEVICE_FATAL):
            for context in self.contexts:
                context._event(kind)
            return
        if kind == EventType.QP_FATAL and self.qp_table is not None and number < self.control.max_qp:
            number = self.qp_numbers.lose(number)
            if number is None:
                return
        owners = self._owners(kind)
        if kind == EventType.COMPLETION:
            self.cq_table.answered(number)
        elif kind == EventType.CQ_ERR:
            self.cq_table.die(number)
        owner = owners[number]() if number in owners else None
        if owner is not None:
            owner._event(kind)

    def _owners(self, kind):
        """Weak references to those whom events of a kind concern, by number."""
        if kind in (EventType.COMPLETION, EventType.CQ_ERR):
            return self.cqs
        return self.srqs if kind in (EventType.SRQ_ERR, EventType.SRQ_LIMIT_REACHED) else self.qps

    def advance(self, max_cycles):
        """Lets the device work and takes its events; returns whether it has anything left to do. The time of others in
        the same simulated world passes, too (:func:`take_events`).
        """
        busy = self.port.advance(max_cycles)
        count = self.process_events()
        world = getattr(self.port, "world", None)
        if world is not None:
            did = take_events(world)
        else:
            did = self.agent is not None and self.agent.work()
        return bool(count) or busy or did
