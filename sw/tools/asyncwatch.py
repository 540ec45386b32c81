"""``ibv_asyncwatch``: the asynchronous events of a device, as they come."""

import errno
import sys

from ..verbs.device import Context, get_device_list
from ..verbs.libibverbs_enums import ibv_event_type
from ..verbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from .command import Parser, plain
from .session import ToolError

__all__ = ["asyncwatch"]


def _watch(name):
    """Prints a line an event, in the form of rdma-core's program; returns when no event can come any more."""
    with Context(name=name) as context:
        print(f"{name}: async event FD {context.async_fd}", flush=True)
        while True:
            try:
                event = context.get_async_event()
            except PyverbsRDMAError as error:
                if error.error_code != errno.EDEADLK:
                    raise
                print("the device is idle, and nobody is at its port: no event can come any more", file=sys.stderr)
                return
            kind = event.event_type
            where = "" if kind == ibv_event_type.IBV_EVENT_DEVICE_FATAL else ", port 1"
            print(f"  event_type {kind.name} ({int(kind)}){where}", flush=True)
            event.ack()


def asyncwatch(argv=None, *, prog="ibv_asyncwatch"):
    """Command line. It is the device's driver: no other program can have the device at the same time."""
    parser = Parser(prog=prog, description="Tells the asynchronous events of a device that no other program has.")
    parser.add_argument("-d", "--ib-dev", metavar="DEVICE", help="default: the first")
    args = parser.parse_args(argv)
    try:
        names = [device.name.decode() for device in get_device_list()] if args.ib_dev is None else [args.ib_dev]
        if not names:
            raise ToolError("no RDMA devices found")
        _watch(names[0])
    except BrokenPipeError:  # of what is printed
        raise
    except (ToolError, PyverbsError, OSError) as error:
        print(f"{prog}: {plain(error)}", file=sys.stderr)
        return 1
    return 0
