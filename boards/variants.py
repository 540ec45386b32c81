"""Engines that are measured beside the standard one, by name: what of ``Config`` is changed."""

__all__ = ["NAMED", "ROWS"]

GIDS = {"ipv6": True, "roce_v1": True, "multicast": True}
EVENTS = {"event_queues": 4, "cq_moderation": True, "interrupt_moderation": True}
KEYS = {"key_operations": True, "physical": True}
ALL = {"srqs": 16, "raw_packets": True, "wqe_bytes": 512}

EVERYTHING = ALL | GIDS | EVENTS | KEYS

NAMED = {
    "standard": {},
    "RC alone": {"uc": False, "ud": False},
    "everything": EVERYTHING,
    "everything for 64 QPs": EVERYTHING | {"qps": 64},
}
SMALLER = {"uc": False, "ud": False, "atomics": False, "requests": False, "qps": 64, "slots": 16, "cqs": 16}
SINGLE = (
    SMALLER | ALL | KEYS | EVENTS | {"ipv6": True, "headers": 64, "address_width": 32, "memory_latency": 32}
).items()
CHANGES = [{name: value} for name, value in SINGLE] + [{"ipv6": True, name: True} for name in ("roce_v1", "multicast")]

ROWS = NAMED | {", ".join(f"{name}={value}" for name, value in each.items()): each for each in CHANGES}
"""Those with one thing changed as well."""
