"""How programs are run: their output goes to a file, and what they say in the end is an error of ours."""

import subprocess
import time

__all__ = ["BuildError", "StalledError", "run_tool"]

LOOK = 1.0
"""Seconds between two looks at what a program says."""


class BuildError(RuntimeError):
    """A tool is missing or failed, the design does not fit, or a clock is missed."""


class StalledError(BuildError):
    """A tool was stopped, because it would not have come to an end."""


def run_tool(command, folder, log, stalled=None, environment=None):
    """Runs ``command``, a list, in ``folder``, and leaves what it says in the file ``log`` there.

    ``stalled`` is called with each line of that, and says whether to give up; ``environment`` is the program's, by
    default ours. ``BuildError`` if the program cannot be run or fails, with the last line that has ``ERROR``;
    ``StalledError`` if it was given up.
    """
    path = folder / log
    with path.open("w") as file:
        try:
            process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, env=environment)
        except OSError as error:
            raise BuildError(f"{command[0]} cannot be run: {error.strerror}") from None
        with process, path.open(errors="replace") as said:
            try:
                given_up = stalled is not None and _watch(process, said, stalled)
                if not given_up:
                    process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
    if given_up:
        raise StalledError(f"{command[0]} comes to no end (see {path})")
    if process.returncode:
        said = path.read_text(errors="replace").splitlines()
        # Small letters are for those who have no others: "1 error" is nextpnr's last line, behind what it was.
        errors = [line for line in said if "ERROR" in line] or [line for line in said if "ERROR" in line.upper()]
        raise BuildError(f"{command[0]} failed: {errors[-1] if errors else 'no message'} (see {path})")


def _watch(process, said, stalled):
    """Until the end, or until it is to be given up, which is returned."""
    line = ""
    while True:
        ended = process.poll() is not None
        while piece := said.readline():
            line += piece
            if line.endswith("\n"):
                if stalled(line):
                    return True
                line = ""
        if ended:
            return False
        time.sleep(LOOK)
