"""What a device, or the way to it, can raise."""

__all__ = ["AdapterError"]


class AdapterError(OSError):
    """The adapter refused a command, has no queue left, does not answer, or does not reach the memory.

    ``status`` is the device's :class:`~verbena.hdl.abi.commands.CommandStatus`, of a command that it refused.
    """

    status = None
