"""The C interface of ``native/api.cpp`` for ctypes, declared in the same order."""

import ctypes
import dataclasses
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_int64, c_uint8, c_uint32, c_uint64, c_void_p

__all__ = [
    "FAULTS",
    "FRAMES",
    "FaultSettings",
    "LinkSettings",
    "MemorySettings",
    "RingPlace",
    "WireSettings",
    "capture_frames",
    "fault_settings",
    "load",
]

FAULTS = ("lose", "duplicate", "reorder", "corrupt", "delay", "damage")

FRAMES = {"sent": 1, "received": 2, "both": 3}
"""Where a capture takes frames: ``Frames`` of ``native/capture.h``."""


def capture_frames(name):
    """The number of a key of :data:`FRAMES`. ``ValueError`` if there is no such one."""
    if name not in FRAMES:
        raise ValueError(f"frames must be one of {', '.join(FRAMES)}, not {name!r}")
    return FRAMES[name]


class MemorySettings(Structure):
    _fields_ = [
        ("read_latency", c_uint32),
        ("write_latency", c_uint32),
        ("read_bandwidth", c_uint32),
        ("write_bandwidth", c_uint32),
        ("outstanding", c_uint32),
        ("stall", c_double),
        ("shuffle", ctypes.c_bool),
        ("silent_reads", ctypes.c_bool),
        ("silent_writes", ctypes.c_bool),
    ]


class WireSettings(Structure):
    _fields_ = [("paced", ctypes.c_bool), ("delay", c_uint32), ("stall", c_double), ("store", ctypes.c_bool)]


class FaultSettings(Structure):
    _fields_ = [("probability", c_double * len(FAULTS)), ("reorder_cycles", c_uint32), ("delay_cycles", c_uint32)]


class RingPlace(Structure):
    _fields_ = [("offset", c_uint64), ("slot_bytes", c_uint64), ("slots", c_uint64)]


class LinkSettings(Structure):
    _fields_ = [
        ("socket", c_int),
        ("memory", c_int),
        ("memory_bytes", c_uint64),
        ("out", RingPlace),
        ("in", RingPlace),
        ("latency", c_uint64),
        ("interval", c_uint64),
        ("epoch", c_uint64),
        ("bell", c_uint64),
        ("peers_bell", c_uint64),
    ]


def fault_settings(faults):
    """The native form of :class:`.ports.Faults`."""
    values = dataclasses.asdict(faults)
    probability = (c_double * len(FAULTS))(*(values.pop(name) for name in FAULTS))
    return FaultSettings(probability, **values)


_bytes = POINTER(c_uint8)
_counters = POINTER(c_uint64)
_FUNCTIONS = {
    "data_bytes": (c_uint32,),
    "shared": (c_void_p,),
    "create": (c_void_p, c_int, c_double, c_uint64),
    "destroy": (None, c_void_p),
    "adapters": (c_int, c_void_p),
    "cycle": (c_uint64, c_void_p),
    "advance": (c_uint64, c_void_p, c_uint64, c_uint32),
    "set_helper": (None, c_void_p, c_int),
    "idle": (c_int, c_void_p),
    "seed": (None, c_void_p, c_uint64),
    "reset": (None, c_void_p, c_int, c_uint32),
    "interrupt": (c_int, c_void_p, c_int),
    "take_events": (c_uint32, c_void_p),
    "take_violation": (c_int, c_void_p, c_char_p, c_uint32),
    "write32": (c_int, c_void_p, c_int, c_uint32, c_uint32, c_uint32),
    "read32": (c_int, c_void_p, c_int, c_uint32, POINTER(c_uint32), c_uint32),
    "resume": (c_int, c_void_p, c_int, POINTER(c_uint32)),
    "start_write": (None, c_void_p, c_int, c_uint32, c_uint32),
    "start_read": (None, c_void_p, c_int, c_uint32),
    "access_result": (c_int, c_void_p, c_int, POINTER(c_uint32)),
    "add_window": (c_int, c_void_p, c_uint64, c_void_p, c_uint64, c_uint64),
    "remove_window": (c_int, c_void_p, c_uint64),
    "find": (c_void_p, c_void_p, c_uint64),
    "watch": (c_int, c_void_p, c_void_p, c_uint64),
    "unwatch": (c_int, c_void_p, c_int),
    "memory_settings": (None, c_void_p, c_int, POINTER(MemorySettings)),
    "answer_silent": (None, c_void_p, c_int),
    "memory_counters": (None, c_void_p, c_int, _counters),
    "wire_settings": (None, c_void_p, POINTER(WireSettings)),
    "add_tap": (c_int, c_void_p),
    "link": (None, c_void_p, c_int, c_int),
    "port_mac": (None, c_void_p, c_int, c_char_p),
    "port_counters": (None, c_void_p, c_int, _counters),
    "faults": (None, c_void_p, c_int, POINTER(FaultSettings)),
    "fault_at": (c_int, c_void_p, c_int, c_uint64, c_int),
    "fault_counters": (None, c_void_p, c_int, _counters),
    "send": (None, c_void_p, c_int, c_char_p, c_uint32, c_int),
    "inject": (None, c_void_p, c_int, c_char_p, c_uint32, c_int),
    "receive": (c_int64, c_void_p, c_int, c_char_p, c_uint32, POINTER(c_int)),
    "attach": (c_int, c_void_p, POINTER(LinkSettings)),
    "detach": (None, c_void_p),
    "abandon": (None, c_void_p),
    "set_wait": (None, c_void_p, c_uint32),
    "link_state": (c_int, c_void_p),
    "capture_open": (c_int, c_void_p, c_char_p, c_int, c_int),
    "capture_close": (None, c_void_p),
    "capture_flush": (None, c_void_p),
    "trace_open": (c_int, c_void_p, c_char_p),
    "trace_close": (None, c_void_p),
}


class _Library:
    """The functions, without their prefix."""

    def __init__(self, path):
        self._library = ctypes.CDLL(str(path))
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(self._library, f"vw_{name}")
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)


_loaded = {}


def load(path):
    """The library at ``path``, loaded once a process."""
    if path not in _loaded:
        _loaded[path] = _Library(path)
    return _loaded[path]
