"""The device, and its connection manager, that an address belongs to."""

import errno

from verbena.sw.cm.ip_header import address_text
from verbena.sw.cm.manager import manager_of

from ..port import addresses
from .base import refuse
from .device import Context
from .pyverbs_error import PyverbsRDMAError

__all__ = ["manager_at"]


def manager_at(failed, ip=0, peer=0, context=None):
    """The connection manager of the device with the IPv4 address ``ip``.

    Without an address it is that of a device that this process has opened, or of the first one that can be opened; not
    of the one with the address ``peer``, if there is another. ``context`` names the device instead. ENODEV: there is
    none; EADDRNOTAVAIL: the device of ``context`` has another address; else as of :class:`.Context`, or EBUSY if QP1's
    place is taken.
    """
    if context is not None:
        context._check_open()
        port = context._adapter.port
        if ip not in (0, port.ip):
            refuse(f"{failed}: {context.name} has not the address {address_text(ip)}", errno.EADDRNOTAVAIL)
        return manager_of(context._adapter, lambda: Context(port=port))
    known = addresses()
    names = [name for name, (address, _) in known.items() if address == ip or not ip]
    if not names:
        refuse(f"{failed}: no device has the address {address_text(ip)}", errno.ENODEV)
    names.sort(key=lambda name: (not known[name][1], known[name][0] == peer, name))
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
