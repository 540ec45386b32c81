"""The device, and its connection manager, that an address belongs to."""

import errno

from verbena.sw.cm.identifier import ANY, ANY_IPV4
from verbena.sw.cm.ip_header import address_text
from verbena.sw.cm.manager import manager_of

from ..port import addresses
from .base import refuse
from .device import Context
from .pyverbs_error import PyverbsRDMAError

__all__ = ["manager_at"]


def manager_at(failed, gid=ANY, peer=ANY, context=None, device=None):
    """The connection manager of the device with the address ``gid``.

    Without an address it is that of a device that this process has opened, or of the first one that can be opened; not
    of the one with the address ``peer``, if there is another. ``context`` names the device instead, and so does
    ``device``, a name. ENODEV: there is none; EADDRNOTAVAIL: the device of ``context`` has another name, or its table
    of GIDs has no such address; else as of :class:`.Context`, or EBUSY if QP1's place is taken.
    """
    anywhere = gid in (ANY, ANY_IPV4)
    if context is not None:
        manager = _of_context(failed, context, device)
    else:
        manager = _found(failed, gid, peer, device, anywhere)
    if not anywhere and all(row is None or row.gid != gid for row in manager.gids):
        refuse(f"{failed}: {manager.context.name} has not the address {address_text(gid)}", errno.EADDRNOTAVAIL)
    return manager


def _of_context(failed, context, device):
    context._check_open()
    if device not in (None, context.name):
        refuse(f"{failed}: {context.name} is not {device}", errno.EADDRNOTAVAIL)
    return manager_of(context._adapter, lambda: Context(port=context._adapter.port))


def _found(failed, gid, peer, device, anywhere):
    known = addresses()
    names = [name for name, (own, _) in known.items() if (anywhere or gid in own) and device in (None, name)]
    if not names:
        where = f" at {device}" if device else ""
        refuse(f"{failed}: no device has the address {address_text(gid)}{where}", errno.ENODEV)
    names.sort(key=lambda name: (not known[name][1], peer in known[name][0], name))
    for name in names:
        try:
            opened = Context(name=name)
        except PyverbsRDMAError as error:
            # Another program has it.
            if error.error_code != errno.EBUSY or name == names[-1]:
                raise
            continue
        break
    manager = manager_of(opened._adapter, lambda: opened)
    if manager.context is not opened:
        opened.close()
    return manager
