"""What the simulation needs besides the standard library: the packages of the extra ``sim``."""

import importlib.util

__all__ = ["require"]


def require(*packages, extra="sim"):
    """``ModuleNotFoundError``, which names the extra, if one of these packages is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"the simulation needs {', '.join(missing)}: pip install 'verbena[{extra}]'", name=missing[0]
        )
