"""Boards as devices of the driver: ``etherbone:192.168.1.50``."""

__all__ = ["openers"]


def _open(address):
    # Only who opens a board needs what it is made of.
    from .etherbone_client import UdpTransport
    from .port import BoardPort

    port = BoardPort(f"etherbone:{address}", UdpTransport(address))
    port.key = port.name  # other processes can open it, too
    return port


def openers():
    """For the entry point ``verbena.devices``: whatever address stands behind the colon."""
    return {"etherbone:": _open}
