"""Devices and contexts."""

import atexit
import contextlib
import errno
import os
import threading
import weakref

from verbena.hdl.abi.counters import COUNTERS
from verbena.hdl.abi.gids import GidType

from ..adapter import Adapter
from ..pkeys import PKEY_COUNT
from ..port import has_port, mac_of, open_port, port_names
from .addr import GID
from .base import DeviceHolder, PyverbsCM, PyverbsObject, bury, close_all, refuse
from .cq_moderation import MAX_INTERVAL, interval_of
from .device_attr import (
    DeviceAttr,
    GIDEntry,
    PortAttr,
    guid_format,
    guid_of,
    guid_to_hex,
    phys_state_to_str,
    port_state_to_str,
    speed_to_str,
    translate_device_caps,
    translate_event_type,
    translate_gid_type,
    translate_link_layer,
    translate_mtu,
    translate_node_type,
    translate_port_cap_flags,
    translate_port_cap_flags2,
    translate_transport_type,
    width_to_str,
)
from .device_caps import (
    CQModerationCaps,
    DeviceAttrEx,
    ODPCaps,
    PacketPacingCaps,
    PCIAtomicCaps,
    QueryDeviceExInput,
    RSSCaps,
    TMCaps,
    TSOCaps,
)
from .direct_memory import DM, AllocDmAttr
from .event_queue import EventQueue
from .libibverbs_enums import (
    IBV_GID_TYPE_ROCE_V1,
    IBV_GID_TYPE_ROCE_V2,
    IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
    IBV_GID_TYPE_SYSFS_ROCE_V2,
    IBV_NODE_CA,
    IBV_TRANSPORT_IB,
    IBV_VALUES_MASK_RAW_CLOCK,
    ibv_event_type,
)
from .number import within
from .pyverbs_error import PyverbsUserError
from .unsupported import unsupported
from .waiting import EVENT_QUANTUM, glance, wait_for

__all__ = [
    "DM",
    "AllocDmAttr",
    "AsyncEvent",
    "CQModerationCaps",
    "Context",
    "Device",
    "DeviceAttr",
    "DeviceAttrEx",
    "GIDEntry",
    "ODPCaps",
    "PCIAtomicCaps",
    "PacketPacingCaps",
    "PortAttr",
    "QueryDeviceExInput",
    "RSSCaps",
    "TMCaps",
    "TSOCaps",
    "get_device_list",
    "guid_format",
    "guid_to_hex",
    "open_adapter",
    "phys_state_to_str",
    "port_state_to_str",
    "speed_to_str",
    "translate_device_caps",
    "translate_event_type",
    "translate_gid_type",
    "translate_link_layer",
    "translate_mtu",
    "translate_node_type",
    "translate_port_cap_flags",
    "translate_port_cap_flags2",
    "translate_transport_type",
    "width_to_str",
]

_lock = threading.Lock()
_shared = weakref.WeakSet()  # adapters that outlive the process


def open_adapter(port):
    """The adapter behind an open device, brought up once and shared by all Contexts. ``OSError`` if it cannot be."""
    with _lock:
        if getattr(port, "_driver", None) is None:
            port._driver = Adapter(port)
            if hasattr(port, "key"):
                _shared.add(port._driver)
        return port._driver


@atexit.register
def _close_adapters():
    """Devices that outlive the process are given up, after all that is on them."""
    close_all()
    for adapter in list(_shared):
        with contextlib.suppress(OSError):
            adapter.close()


def _forget():
    """In a child process: the adapters are its parent's, of which a thread may have had the lock."""
    global _lock
    _lock = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget)


class Device(PyverbsObject):
    """One entry of the device list."""

    def __init__(self, name, index):
        self._name = name
        self.index = index
        self.node_type = IBV_NODE_CA
        self.transport_type = IBV_TRANSPORT_IB

    @property
    def name(self):
        return self._name.encode()

    @property
    def guid(self):
        """Of the device's MAC address. Opens the device if it alone knows it."""
        return guid_of(mac_of(self._name))

    def __str__(self):
        return f"Device {self._name}, node type CA, transport type IB, index {self.index}"


def get_device_list():
    """All devices."""
    return [Device(name, i) for i, name in enumerate(port_names())]


class AsyncEvent(PyverbsObject):
    """An asynchronous event; ``element`` is the QP or CQ that it is about, None once that is gone; of an event of the
    port, the Context.
    """

    def __init__(self, event_type=0, element=None):
        self.event_type = ibv_event_type(event_type)
        self._element = (lambda: None) if element is None else weakref.ref(element)
        self._acked = False

    @property
    def element(self):
        return self._element()

    def ack(self):
        """Tells that the event has been dealt with; its object can be closed only after that."""
        element = self.element
        if element is not None and not self._acked:
            element._unacked_events -= 1
        self._acked = True

    def __str__(self):
        return f"{translate_event_type(self.event_type)} of {self.element}"


class Context(PyverbsCM):
    """An open device, ``Context(name="sim0")``. Several Contexts on one device share its adapter.

    ``push`` is Verbena's own: whether a send posted alone to an empty queue is written to the device with its doorbell,
    which saves the device a read of host memory. By default it is, unless the environment's ``VERBENA_PUSH`` is 0. It
    never is if the device cannot, or its port says that it does not pay. ``port``, its own too, is a device that is
    open already, in the place of ``name``.
    """

    _rank = 9

    def __init__(self, *, name=None, attr=None, cmid=None, cmd_fd=None, push=None, port=None):
        for what, given in (("attr", attr), ("cmd_fd", cmd_fd)):
            if given is not None:
                refuse(f"Failed to open a device by {what}", errno.EOPNOTSUPP)
        bury()
        if cmid is not None:
            if not isinstance(cmid, DeviceHolder) or cmid.context is None:
                refuse(f"Failed to open a device by cmid: {cmid} has none", errno.EINVAL)
            port = cmid.context._adapter.port
        if port is not None:
            name = port.name
        if name is None:
            raise PyverbsUserError("Device name must be provided")
        self.name = name.decode() if isinstance(name, bytes) else name
        if port is None and not has_port(self.name):
            refuse(f"Failed to find device {self.name}", errno.ENODEV)
        try:
            port = open_port(self.name) if port is None else port
            self._adapter = open_adapter(port)
        except MemoryError:
            refuse(f"Failed to open device {self.name}", errno.ENOMEM)
        except (OSError, ImportError) as error:
            why = getattr(error, "strerror", None) or error
            if getattr(error, "filename", None) is not None:
                why = f"{why}: {error.filename}"
            refuse(f"Failed to open device {self.name}: {why}", getattr(error, "errno", None) or errno.EIO)
        # The port's owner, if there is one, closes the contexts before the port.
        super().__init__(*getattr(port, "owners", ()))
        wanted = os.environ.get("VERBENA_PUSH", "1") != "0" if push is None else push
        self._push = bool(wanted and self._adapter.may_push)
        self.num_comp_vectors = self._adapter.control.event_queues
        self._events = EventQueue()
        self._unacked_events = 0
        self._cmd_fd = None
        self._adapter.contexts.add(self)
        self._opened()
        if cmid is not None:
            cmid.use_context(self)

    def _destroy(self):
        self._events.close()
        if self._cmd_fd is not None:
            os.close(self._cmd_fd)
        self._adapter.contexts.discard(self)

    @property
    def cmd_fd(self):
        """A file descriptor of this context, of the null device: no kernel stands behind it. It may be duplicated, but
        not be opened as a device.
        """
        self._check_open()
        if self._cmd_fd is None:
            self._cmd_fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        return self._cmd_fd

    @property
    def async_fd(self):
        """A file descriptor that is readable while there is an event for :meth:`get_async_event`; as of
        :attr:`.cq.CompChannel.fd`.
        """
        self._check_open()
        self._adapter.tell_by_files()
        return self._events.fileno()

    def query_device(self):
        """Attributes of the device, a :class:`DeviceAttr`."""
        self._check_open()
        return DeviceAttr(self._adapter)

    def query_device_ex(self, ex_input=None):
        """Attributes and capabilities of the device, a :class:`DeviceAttrEx`."""
        self._check_open()
        if ex_input is not None and ex_input.comp_mask:
            refuse(f"Failed to query EX device {self.name}", errno.EINVAL)
        return DeviceAttrEx(self._adapter)

    def query_rt_values_ex(self, comp_mask=IBV_VALUES_MASK_RAW_CLOCK):
        """The device's clock, as ``(seconds, nanoseconds)`` from any start; in simulation, simulated time."""
        self._check_open()
        if comp_mask != IBV_VALUES_MASK_RAW_CLOCK:
            refuse("Failed to query real time values", errno.EOPNOTSUPP)
        return divmod(self._adapter.port.time_ns(), 10**9)

    def query_port(self, port_num):
        """State and attributes of a port, a :class:`PortAttr`."""
        self._check(f"Failed to query port {port_num}", port_num)
        return PortAttr(self._adapter.control.link, getattr(self._adapter.port, "mtu", None), len(self._adapter.gids))

    @unsupported("Failed to query the speed of a port")
    def query_port_speed(self, port_num):
        """Speed of a port in 100 Mb/s."""

    def query_gid(self, port_num, index):
        """A :class:`.GID` of a port; of a row that is empty zeros, as of libibverbs."""
        row = self._gid(f"Failed to query gid {index} of port {port_num}", port_num, index)
        return GID.of(0 if row is None else row.gid)

    def query_gid_type(self, port_num, index):
        """``enum ibv_gid_type_sysfs`` of a GID; of a row that is empty RoCEv1, as of libibverbs."""
        failed = f"Failed to query gid type of port {port_num} and gid index {index}"
        row = self._gid(failed, port_num, index)
        is_v1 = row is None or row.type == GidType.ROCE_V1
        return IBV_GID_TYPE_SYSFS_IB_ROCE_V1 if is_v1 else IBV_GID_TYPE_SYSFS_ROCE_V2

    def query_gid_ex(self, port_num, gid_index, flags=0):
        """A row of the GID table, a :class:`GIDEntry`; ``flags`` must be 0. ENODATA: it is empty."""
        failed = f"Failed to query gid table of port {port_num} in index {gid_index}"
        row = self._gid(failed, port_num, gid_index)
        if flags:
            refuse(failed, errno.EOPNOTSUPP)
        if row is None:
            refuse(failed, errno.ENODATA)
        kind = IBV_GID_TYPE_ROCE_V1 if row.type == GidType.ROCE_V1 else IBV_GID_TYPE_ROCE_V2
        return GIDEntry.of(GID.of(row.gid), gid_index, port_num, kind)

    def query_gid_table(self, max_entries, flags=0):
        """All rows of the GID table that are not empty. The negative of EINVAL: they are more than ``max_entries``."""
        self._check_open()
        rows = [index for index, row in enumerate(self._adapter.gids) if row is not None]
        if max_entries < len(rows) or flags:
            refuse("Failed to query gid tables of the device", -errno.EOPNOTSUPP if flags else -errno.EINVAL)
        return [self.query_gid_ex(1, index) for index in rows]

    def query_pkey(self, port_num, index):
        """A partition key; 0 if the row is empty."""
        failed = f"Failed to query pkey {index} of port {port_num}"
        self._check(failed, port_num)
        if not within(index, 0, PKEY_COUNT - 1):
            refuse(failed, errno.EINVAL)
        return self._adapter.pkeys[index]

    def get_pkey_index(self, port_num, pkey):
        """The index of a partition key."""
        failed = f"Failed to get the index of pkey {pkey!r} of port {port_num}"
        self._check(failed, port_num)
        if not pkey or pkey not in self._adapter.pkeys:
            refuse(failed, errno.EINVAL)
        return self._adapter.pkeys.index(pkey)

    def get_async_event(self):
        """Waits for an asynchronous event. EDEADLK if none can come any more (:func:`.waiting.wait_for`); EAGAIN if
        there is none and :attr:`async_fd` does not block.
        """
        bury()
        self._check_open()
        failed = "Failed to get async event"
        if not self._events.blocking:
            return glance(self._adapter, self._take, failed)
        return wait_for(self._adapter, lambda: bool(self._events), self._take, failed)

    def _take(self):
        self._check_open()
        while (event := self._events.take()) is not None:
            element = event.element
            if element is not None:
                element._unacked_events += 1
                return event
        return None

    def query_counters(self, *names):
        """Verbena's own: counters of the engine by name (:mod:`verbena.hdl.abi.counters`); all, if none is named. Each
        takes three register accesses. EINVAL: there is no such counter.
        """
        self._check_open()
        if unknown := [name for name in names if name not in COUNTERS]:
            refuse(f"Failed to query counters: there is no {', '.join(map(str, unknown))}", errno.EINVAL)
        return self._adapter.control.counters(*names)

    def time_ns(self):
        """Verbena's own: time as the device has it, in nanoseconds from any start; in simulation, simulated time."""
        self._check_open()
        return self._adapter.port.time_ns()

    def advance(self, max_cycles=EVENT_QUANTUM):
        """Verbena's own, for who waits for something else than a completion or an event, such as a byte in memory or on
        a socket: gives a simulated device up to ``max_cycles`` of time; hardware, which has its own, a short while.
        Returns whether the device has anything left to do.
        """
        bury()
        self._check_open()
        return self._adapter.advance(max_cycles)

    def moderate_interrupts(self, microseconds, comp_vector=0):
        """Verbena's own: between two interrupts of the event queue ``comp_vector`` there are so many microseconds at
        least; 0: they come at once. It is the device's, for all contexts on it. EOPNOTSUPP if the device cannot.
        """
        self._check_open()
        failed = "Failed to moderate interrupts"
        control = self._adapter.control
        if not control.interrupt_moderation:
            refuse(failed, errno.EOPNOTSUPP)
        if not within(microseconds, 0, MAX_INTERVAL) or not within(comp_vector, 0, self.num_comp_vectors - 1):
            refuse(f"{failed} of {comp_vector!r} to {microseconds!r} microseconds", errno.EINVAL)
        control.moderate_interrupts(comp_vector, interval_of(microseconds))

    @contextlib.contextmanager
    def watching(self, address, length):
        """Verbena's own: inside, :meth:`advance` ends early when the device writes to this host memory."""
        self._check_open()
        watch = self._adapter.port.watch(address, length)
        try:
            yield
        finally:
            self._adapter.port.unwatch(watch)

    def _event(self, kind):
        self._events.put(AsyncEvent(kind, self), self)

    def _forget_events(self, element):
        """An element that goes takes its undelivered events with it."""
        self._events.drop(element)

    def _gid(self, failed, port_num, index):
        """A row of the GID table, an :class:`.OwnGid`, or None."""
        self._check(failed, port_num)
        if not within(index, 0, len(self._adapter.gids) - 1):
            refuse(failed, errno.EINVAL)
        return self._adapter.gids[index]

    def _check(self, failed, port_num):
        self._check_open()
        if port_num != 1:
            refuse(failed, errno.EINVAL)

    def __str__(self):
        return f"Context of device {self.name}"
