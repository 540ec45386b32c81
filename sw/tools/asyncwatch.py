"""``ibv_asyncwatch``: the asynchronous events of a device, as they come."""

import errno
import sys

from ..verbs.device import Context
from ..verbs.libibverbs_enums import ibv_event_type
from ..verbs.pyverbs_error import PyverbsRDMAError
from .command import Parser
from .devices import found, tell

__all__ = ["asyncwatch"]


def _events(name):
    """A line an event, in the form of rdma-core's program, until no event can come any more."""
    with Context(name=name or found()[0]) as context:
        yield f"{context.name}: async event FD {context.async_fd}"
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
            yield f"  event_type {kind.name} ({int(kind)}){where}"
            event.ack()


def asyncwatch(argv=None, *, prog="ibv_asyncwatch"):
    """Command line. It is the device's driver: no other program can have the device at the same time."""
    parser = Parser(prog=prog, description="Tells the asynchronous events of a device that no other program has.")
    parser.add_argument("-d", "--ib-dev", metavar="DEVICE", help="default: the first")
    return tell(prog, _events(parser.parse_args(argv).ib_dev))
