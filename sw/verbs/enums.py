"""The name under which older pyverbs had the enumerations."""

from .libibverbs_enums import *  # noqa: F403
