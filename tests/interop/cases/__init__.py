"""The cases, in groups that share one guest and one device."""

from . import addresses, bridge, connections, faults, keys, networks, raw_packets, refusals, tools, transfers, vlans

__all__ = ["ADAPTER_CASES", "NODE_CASES", "groups"]

ADAPTER_CASES = f"^(?!bridge|{tools.SMALL})"
"""Pattern of the cases for an adapter alone: it has no bridge, and memory enough."""

NODE_CASES = "|".join(
    (
        "^(addresses|bridge|mtu 256|atomics|refusals)",
        "^shapes: .*(PSNs|entries)",
        "^faults .*: (RDMA_WRITE|RDMA_READ|ATOMIC_FETCH_AND_ADD): each frame",
        f"^{tools.SMALL}",
    )
)
"""Those for a simulated node: it has little memory, and time passes slowly there."""


def groups(seed):
    """Lists of cases by the name of their group; ``seed`` decides what random faults do."""
    families = (addresses, raw_packets, bridge, transfers, networks, vlans, refusals, keys, faults, tools, connections)
    return {name: cases for family in families for name, cases in family.groups(seed).items()}
