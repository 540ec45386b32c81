"""The table of P_Keys: the partitions that an adapter is in."""

__all__ = ["DEFAULT_PKEY", "PKEY_COUNT", "own_pkeys"]

PKEY_COUNT = 8

DEFAULT_PKEY = 0xFFFF
"""Full membership of the partition that all are in (IBA 10.9.1.2)."""


def own_pkeys(port):
    """P_Keys of an adapter, by their index, 0 where there is none; see :class:`.port.Port`. ``ValueError`` if they are
    too many, too large, or none.
    """
    pkeys = list(getattr(port, "pkeys", (DEFAULT_PKEY,)))
    if not 1 <= len(pkeys) <= PKEY_COUNT:
        raise ValueError(f"a port has 1 to {PKEY_COUNT} P_Keys, not {len(pkeys)}")
    for pkey in pkeys:
        if not 0 <= pkey <= 0xFFFF:
            raise ValueError(f"a P_Key has 16 bits, not {pkey!r}")
    return pkeys + [0] * (PKEY_COUNT - len(pkeys))
