"""Tables in host memory that the engine caches: memory protection (MPT) and memory translation (MTT)."""

from enum import IntEnum

from .record import Field, Record

__all__ = ["KEY_INDEX_BITS", "MPT", "MTT", "Access", "AccessStatus", "KeyKind"]

KEY_INDEX_BITS = 24
"""High bits of an lkey or rkey: the MPT index. The low 8 bits must equal the entry's variant."""

MPT = Record(
    "mpt_entry",
    32,
    [
        Field("length", 48, "bytes of the region"),
        Field("log_page_size", 6, "12 (4 KiB) to 30 (1 GiB)"),
        Field("physical", 1, "the region is contiguous on the bus, and has no MTT entries; `log_page_size` is 12"),
        Field("kind", 2, "KeyKind: what work requests may do to the entry"),
        Field("_", 6),
        Field("valid", 1, "0: the key means nothing; written last, and cleared first"),
        Field("address", 64, "virtual address of the region's first byte"),
        Field(
            "mtt_address",
            64,
            "bus address of the region's first MTT entry, 8-byte aligned; the page of `address` comes first. Of a"
            " `physical` region bits 63:3 are the number of its first page, the bus address in 4 KiB",
        ),
        Field("pd", 24, "protection domain"),
        Field("variant", 8, "low 8 bits of the key"),
        Field("access", 8, "enum ibv_access_flags, low 5 bits"),
        Field(
            "pages_or_qpn",
            24,
            "FAST_REGION: pages of 4 KiB that its translation table has room for; WINDOW_2: number of the QP that it is"
            " bound to",
        ),
    ],
    "Memory protection table entry: one memory region. The first 8 bytes are read first, then the others. An entry"
    " becomes valid by its first 8 bytes, when the others stand. It is changed by 8 aligned bytes at once; or it is"
    " made invalid, INVALIDATE_KEY follows, then the others are changed, and it becomes valid. After any change"
    " INVALIDATE_KEY waits for all accesses that have seen the old entry. Work requests change entries of another"
    " `kind` than REGION in the same way, and the engine keeps those that are valid, and those of windows, until"
    " INVALIDATE_KEY. Who takes such an entry away clears its first 8 bytes, and does so again, each time with"
    " INVALIDATE_KEY, until nothing is written to them meanwhile.",
)

MTT = Record(
    "mtt_entry",
    8,
    [
        Field("present", 1, "0: the page may not be touched"),
        Field("_", 11),
        Field("page", 52, "bits 63:12 of the page's bus address, aligned to the region's page size"),
    ],
    "Memory translation table entry: one page. An entry that has been present is not changed as long as a region has"
    " it, and its memory becomes an entry of another region only after an INVALIDATE_MTT that follows the region's"
    " INVALIDATE_KEY.",
)


class KeyKind(IntEnum):
    """What an MPT entry is."""

    REGION = 0
    FAST_REGION = 1  # made valid by REG_MR, invalid by LOCAL_INV and by a SEND with invalidate
    WINDOW = 2  # of type 1: made valid by BIND_MW, for all QPs of its PD
    WINDOW_2 = 3  # of type 2B: made valid by BIND_MW, for that QP alone; invalid as a FAST_REGION


class Access(IntEnum):
    """``enum ibv_access_flags``. Local read is always allowed."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8
    MW_BIND = 16


class AccessStatus(IntEnum):
    """Verdict on an access, 3 bits. Equal to the first eight values of :class:`verbena.hdl.abi.cqe.Syndrome`."""

    OK = 0
    KEY = 1
    PD = 2
    RANGE = 3
    RIGHTS = 4
    PAGE = 5
    POISONED = 6
    BUS = 7
