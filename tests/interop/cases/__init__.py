"""The cases, in groups that share one guest and one adapter."""

from . import addresses, faults, refusals, tools, transfers

__all__ = ["groups"]


def groups(seed):
    """Lists of cases by the name of their group; ``seed`` decides what random faults do."""
    families = (addresses, transfers, refusals, faults, tools)
    return {name: cases for family in families for name, cases in family.groups(seed).items()}
