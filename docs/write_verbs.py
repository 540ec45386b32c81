"""Writes docs/verbs.md: ``python docs/write_verbs.py``."""

import importlib
import inspect
import re
from enum import Enum, EnumMeta
from pathlib import Path
from types import SimpleNamespace

from verbena.sw.verbs import base
from verbena.sw.verbs.libibverbs_enums import IBV_WR_LOCAL_INV

__all__ = ["FILE", "MODULES", "text"]

FILE = Path(__file__).with_name("verbs.md")

MODULES = [
    "device",
    "pd",
    "addr",
    "mr",
    "fast_region",
    "cq",
    "wr",
    "qp",
    "srq",
    "xrcd",
    "wq",
    "flow",
    "spec",
    "mem_alloc",
    "dma_util",
    "dmabuf",
    "base",
    "pyverbs_error",
    "libibverbs_enums",
    "utils",
    "fork",
    "cmid",
    "cm_enums",
]
"""What a program imports. All else in the folder belongs to these."""

REFUSED = {
    "wr_send_tso",
    "wr_atomic_write",
    "wr_flush",
    "wr_set_ud_addr",
    "wr_set_xrc_srqn",
}
"""What refuses in more than one way, or later: the `wr_` calls of what RC has not when `wr_complete` comes."""

HANDED_OUT = ["Device", "DeviceAttr", "DeviceAttrEx", "PortAttr"]
"""Classes that the driver alone makes."""

INTRODUCTION = """\
# Verbs

Generated from `sw/verbs` by `python docs/write_verbs.py`; do not edit.

`verbena.sw.verbs` has the modules, classes, parameters, defaults and errors of pyverbs (rdma-core 59). Programs that
import pyverbs run unchanged:

```
verbena run script.py [arguments]
verbena run -m module [arguments]
```

In that process, and nowhere else, `pyverbs` is another name of `verbena.sw.verbs`. Programs of one's own import
`verbena.sw.verbs.device` and so on.

## What to know

* **What the adapter cannot do** raises `PyverbsRDMAError` with `error_code` EOPNOTSUPP when it is asked for: XRC QPs,
  on-demand paging, dma-bufs, flow steering by specs, tag matching, timestamps. Objects that only describe such a thing
  (`XRCDInitAttr`, …) can be made. Counters of flows have no class in pyverbs. The modules of other vendors' devices are
  not there.
* **Multicast**: `QP.attach_mcast` and `detach_mcast` are ibv_attach_mcast and ibv_detach_mcast, which pyverbs does not
  have. An `AH` to the GID of a group, and QP 0xffffff, send to it. What an adapter sends does not come back to its own
  QPs. They tell the network nothing; `CMID.join_multicast` tells switches and routers by IGMPv3 or MLDv2, twice within
  a second and then every 100 seconds in which the program calls the driver, through a raw packet queue that the driver
  makes with the first report, and tells nobody on a device without such queues. Queries of switches and routers are not
  answered. Of IPv6 groups Linux' rdma_cm refuses those of RoCEv2.
* **Keys that work requests change**, on devices that can (IBV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_MGT_EXTENSIONS;
  simulated ones do): `MW` of type 1 with `QP.bind_mw`, and of type 2 (IBV_DEVICE_MEM_WINDOW_TYPE_2B) with
  `SendWR.set_bind_wr` or `QPEx.wr_bind_mw`; and fast registration, which pyverbs does not have, as the kernel has it
  in `ib_alloc_mr`, `ib_map_mr_sg` and `ib_reg_wr`: `fast_region.FastMR(pd, max_pages)`, its `map(address, length)`,
  and `SendWR(opcode=IBV_WR_REG_MR)` with `set_reg_wr(mr, access)`. IBV_WR_LOCAL_INV and IBV_WR_SEND_WITH_INV take the
  key in `imm_data`, and make such a region, or a window of type 2, invalid again; of a window, only those of the queue
  pair to which it is bound. A region with bound windows is not deregistered, registered anew or mapped anew (EBUSY);
  if it goes with a parent, or because nobody has it any more, its windows are bound to nothing then. Each of these
  requests but the SEND begins when all before it in its queue are complete. One that fails ends the queue pair:
  IBV_WC_MW_BIND_ERR for a window, IBV_WC_LOC_QP_OP_ERR for the others, IBV_WC_REM_ACCESS_ERR for a SEND with
  invalidate. The completion of REG_MR has the kernel's opcode, 10.
* **Ethernet frames**, on devices that can (`max_raw_ethy_qp`; simulated ones do): a QP of type IBV_QPT_RAW_PACKET sends
  whole frames, from the destination address on and without FCS, of 14 to 4096 bytes, and zeros behind one that is
  shorter than 60. A longer one completes with IBV_WC_LOC_LEN_ERR. It has one attribute, the port. What comes to the
  adapter and is not RoCE goes to the one QP that has a `flow.Flow(qp, FlowAttr(flow_type=...))`, which ends with it:
  with IBV_FLOW_ATTR_ALL_DEFAULT frames to the own MAC address and to groups, with IBV_FLOW_ATTR_SNIFFER those to other
  stations, too; a second one is EBUSY. Nothing of a RoCE packet comes there, a damaged one neither. The adapter goes on
  answering ARP and ping to its own addresses, and the QP sees them; so software answers for addresses of its own. A
  frame for which there is no receive, or that does not fit it, is dropped.
* **Completion vectors and moderation.** Each of the `num_comp_vectors` (simulated devices have four) is an event queue
  with an interrupt of its own; `comp_vector` says which gets the completion events of a CQ. All other events go to the
  first. Where `cq_mod_caps` is not 0, `CQ.modify(ModifyCqAttr(moderate=ModerateCq(count, period)))`, which pyverbs does
  not have, is ibv_modify_cq: an event that is asked for comes when `count` completions are there, or `period`
  microseconds after the first of them, whichever is sooner. It counts from the completion that fulfils the request:
  with `solicited_only` one that is solicited or failed; all that follow count. The event comes early if the device
  needs the CQ's place for another one, or if the CQ is modified or resized. IBV_EVENT_CQ_ERR is never delayed.
  `Context.moderate_interrupts` is for the interrupts.
* **Errors.** `error_code` is the errno: EINVAL for a wrong argument, ENOMEM for what is full, EBUSY for what has
  events that are not acknowledged, EDEADLK for an event that can never come. Of `query_gid_table` it is negative, as
  in pyverbs. Texts begin as those of pyverbs and go on with the reason.
* **Time.** A simulated device's time passes only inside calls. `poll` and `start_poll` give it some when they find
  nothing; `get_cq_event` and `get_async_event` as much as it takes; `Context.advance` what it is told.
* **Files.** `CompChannel.fd` and `Context.async_fd` are real file descriptors, readable while there is an event, for
  `select`, `poll` and `asyncio`. They are not to be read from; `get_cq_event` and `get_async_event` take the event. A
  program that sits in `select` calls nothing: from the moment that it asks for such a file, a thread gives simulated
  devices time while the program makes no call (for 50 ms: `VERBENA_GRACE_MS`), unless `VERBENA_EXACT` is set
  ([simulation.md](simulation.md)). Devices of a `World` that the program has made itself stand still: another thread,
  or a task, must give them time, by any call that polls or waits, or by `Context.advance` in a loop.

  After `os.set_blocking(channel.fd, False)`, `get_cq_event` does not wait: EAGAIN. So it is after
  `channel.blocking = False`, Verbena's own, which needs no file, so that no thread gives time: a seed repeats the run.
* **Threads.** All calls may be made from several threads. Requests of an extended QP are built by each thread apart,
  and posted together by its `wr_complete`; of an extended CQ each thread has a completion of its own. No lock is held
  between two calls.
* **Forks.** In a child process all of the parent's objects count as closed, and the device stays the parent's.
* **Memory that is not the program's.** `DM` is memory of the device itself, if it has some (simulated ones have 1 MiB),
  and `DMMR` a region of it. `PhysicalMR(pd, bus, length, access, iova=None)` in `verbena.sw.verbs.mr`, which pyverbs
  does not have, is a region of whatever answers at a bus address, such as an accelerator; nobody checks what stands
  there. Both need no translation table, and an engine with `Config(physical=True)`. With `IBV_ACCESS_ZERO_BASED` the
  first byte of any region has the address 0; it must begin a page of 4 KiB.
* **Connections.** rdma_cm is there (`cmid`, `cm_enums`): connections of RC (RDMA_PS_TCP) and datagrams to a service
  (RDMA_PS_UDP), by IPv4 or IPv6 address and port, with or without an event channel, also with Linux at the other end.
  The own address is the GID of RoCEv2 that is nearest to the peer's, of its kind and scope, unless the program names
  one; the scope of a link-local address is a device's name, as in `fe80::2%sim0`. A listener answers by the GID, and
  the version of RoCE, that it was asked by. Its messages pass through QP1, whenever a call gives the device time. Their
  times are those of Linux: a REQ is repeated after 6 seconds, a request of such a connection's QP after 2, unless
  `set_option` says otherwise. A second of a simulated device is shorter ([simulation.md](simulation.md)); where a world
  has nothing to do while a program waits for an event, what is due next is due at once. An address of none is that of a
  device that the program has opened, or of the first that is free.
* **Life.** Each resource is a context manager; `close()` may be called again; what is forgotten is closed; a parent
  closes its children first.

## What differs from pyverbs

* A `CQEX` is a `CQ`: it has `poll` as well. `get_cq_event` returns the CQ; without an expected CQ it takes the next
  event of any.
* `poll_next` beyond the last completion leaves the fields of the last one readable.
* `MR.write`, `MR.read` and requests check ranges and widths, and raise `PyverbsUserError`, where C would write
  somewhere.
* Addresses may be given as buffers (`bytearray`, numpy arrays, ctypes, `mmap`) as well as by number.
* `WC.vendor_err` is a `verbena.hdl.abi.cqe.Syndrome`.
* A `CMID` has a context and a PD from the moment that it has a device (`.context`, `.pd`). `Context(cmid=)` is one more
  context of that device; it becomes the CMID's, if the CMID has no PD yet. `CMID.set_option` takes RDMA_OPTION_ID_TOS,
  too.
* `ParentDomain` takes allocators and does not call them. `Context.cmd_fd` can be duplicated, but not be opened as a
  device.
* `query_rt_values_ex` reads nanoseconds of the device's time, so `hca_core_clock` is 1,000,000 kHz.
* Objects for attributes have no values that overflow in silence: a number that is out of range is refused where it is
  used.

## Call by call

✓: served. EOPNOTSUPP: refused. What an object is made of it has as attributes, too.
"""


def _plain(docstring):
    """The first sentence of a docstring, as Markdown."""
    paragraph = inspect.cleandoc(docstring).split("\n\n")[0].replace("\n", " ")
    sentence = re.match(r".*?\.(?= |$)", paragraph + " ")
    words = sentence.group() if sentence else paragraph
    words = re.sub(r":\w+:`~?\.?([^`]*)`", lambda m: f"`{m.group(1).removeprefix('.')}`", words)
    return words.replace("``", "`").replace("|", "\\|")


def _default(value):
    return value.name if isinstance(value, Enum) else repr(value)


def _signature(function, *, method=False):
    parts, star = [], False
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters[1:] if method else parameters:
        if parameter.kind == parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or parameter.kind == parameter.VAR_POSITIONAL
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        given = "" if parameter.default is parameter.empty else f"={_default(parameter.default)}"
        parts.append(f"{prefix}{parameter.name}{given}")
    return f"({', '.join(parts)})"


def _row(call, function, docstring):
    if not docstring:
        raise ValueError(f"{call} has no docstring")
    refused = hasattr(function, "unsupported") or re.search(r"\w+", call).group() in REFUSED
    here = "EOPNOTSUPP" if refused else "✓"
    return f"| `{call}` | {here} | {_plain(docstring)} |"


def _members(kind, documented):
    """Methods and properties of a class and of those bases that no module has, by name."""
    found = {}
    for parent in kind.__mro__:
        if parent is not kind and (parent in documented or parent.__module__ in ("builtins", base.__name__)):
            break
        for name, member in vars(parent).items():
            if not name.startswith("_"):
                found.setdefault(name, member)
    return found


_SOME_CONTROL = SimpleNamespace(
    max_qp=0,
    max_responses=0,
    max_srq=0,
    atomics=True,
    key_operations=True,
    has_multicast=True,
    cq_moderation=True,
    qp_types=frozenset(),
    wqe_bytes=128,
)
_SOME_ADAPTER = SimpleNamespace(port=SimpleNamespace(mac=0), control=_SOME_CONTROL, max_cq=0, device_memory=None)
_ARGUMENTS = {
    "DeviceAttr": {"adapter": _SOME_ADAPTER},
    "DeviceAttrEx": {"adapter": _SOME_ADAPTER},
    "SendWR": {"opcode": IBV_WR_LOCAL_INV},
}
"""What an example of a class is made of that cannot be made of nothing."""


def _attributes(kind):
    """Attributes of an object that are no parameters of its class, if such an object can be made of nothing."""
    if not issubclass(kind, base.PyverbsObject) or issubclass(kind, base.PyverbsCM):
        return []
    arguments = _ARGUMENTS.get(kind.__name__, {})
    parameters = inspect.signature(kind).parameters.values()
    if any(parameter.default is parameter.empty and parameter.name not in arguments for parameter in parameters):
        return []
    made = kind(**arguments)
    known = {parameter.name for parameter in parameters}
    return [name for name in vars(made) if not name.startswith("_") and name not in known]


def _class_rows(kind, documented):
    made = kind.__init__
    own = made is not object.__init__ and not (issubclass(kind, Exception) and "__init__" not in vars(kind))
    signature = "" if kind.__name__ in HANDED_OUT else _signature(made, method=True) if own else "()"
    yield _row(kind.__name__ + signature, made, kind.__doc__)
    members = _members(kind, documented)
    plain = [name for name, member in members.items() if isinstance(member, property) and not member.fget.__doc__]
    attributes = dict.fromkeys(plain + [name for name in _attributes(kind) if name not in members])
    if attributes:
        yield f"| {', '.join(f'`.{name}`' for name in attributes)} | ✓ | attributes |"
    for name, member in members.items():
        if name in plain:
            continue
        if isinstance(member, property):
            yield _row(f".{name}", member, member.fget.__doc__)
        elif isinstance(member, classmethod):
            yield _row(f"{kind.__name__}.{name}{_signature(member.__func__, method=True)}", member, member.__doc__)
        elif inspect.isfunction(member):
            yield _row(f".{name}{_signature(member, method=True)}", member, member.__doc__)


def _section(name, documented):
    module = importlib.import_module(f"verbena.sw.verbs.{name}")
    yield f"\n### {name}\n"
    yield f"{_plain(module.__doc__)}\n"
    if name.endswith("_enums"):
        kinds = [n for n in module.__all__ if isinstance(getattr(module, n), EnumMeta)]
        older = "`enums` is its older name. " if name == "libibverbs_enums" else ""
        yield f"{older}{', '.join(f'`{kind}`' for kind in kinds)}, and constants without a class."
        return
    yield "| call | here | what it does |\n|---|---|---|"
    for member in module.__all__:
        thing = getattr(module, member)
        if inspect.isclass(thing):
            yield from _class_rows(thing, documented - {thing})
        elif callable(thing):
            yield _row(member + _signature(thing), thing, thing.__doc__)
        else:
            yield f"| `{member}` | ✓ | {thing:#x} |"


def _documented():
    kinds = set()
    for name in MODULES:
        module = importlib.import_module(f"verbena.sw.verbs.{name}")
        kinds |= {thing for n in module.__all__ if inspect.isclass(thing := getattr(module, n))}
    return kinds


def text():
    """The file's content."""
    documented = _documented()
    lines = [line for name in MODULES for line in _section(name, documented)]
    return INTRODUCTION + "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
