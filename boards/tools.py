"""How programs are run: their output goes to a file, and what they say in the end is an error of ours."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

__all__ = ["BuildError", "program", "run_tool", "run_yosys", "side_by_side"]

_running = set()
_ended = threading.Event()
_lock = threading.Lock()  # nothing is begun between the look at `_ended` and `_running`


class BuildError(RuntimeError):
    """A tool is missing or failed, the design does not fit, or a clock is missed."""


def program(tool):
    """What a variable names (``NEXTPNR_ECP5`` for nextpnr-ecp5), else YoWASP's of this environment."""
    return os.environ.get(tool.upper().replace("-", "_")) or str(Path(sys.executable).with_name(f"yowasp-{tool}"))


def run_tool(tool, arguments, folder, log, heard=lambda line: None, environment=None):
    """Runs ``tool``, as :func:`program` finds it, in ``folder``, and leaves what it says in the file ``log`` there.

    ``heard`` is called with each line of that while the program runs; ``environment`` is the program's, by default
    ours. ``BuildError`` if the program cannot be run or fails, with the last line that has ``ERROR``. Whatever ends the
    call, such as Ctrl-C, ends the program.
    """
    path, command = folder / log, [program(tool), *arguments]
    with path.open("w", buffering=1) as file:

        def keep(line):
            file.write(line)
            heard(line)

        status = _run(command, folder, keep, environment)
    if status:
        raise _failure(command, path, path.read_text().splitlines())


def run_yosys(script, folder, log="yosys.log"):
    """Runs yosys' commands ``script`` as :func:`run_tool` does. It writes ``log`` itself: of what YoWASP's says on its
    output nothing comes any more when ABC has run, not even why it fails.
    """
    path, command, said = folder / log, [program("yosys"), "-q", "-l", log, "-p", script], []
    path.unlink(missing_ok=True)
    if _run(command, folder, said.append):
        raise _failure(command, path, (path.read_text() if path.exists() else "".join(said)).splitlines())


def _run(command, folder, heard, environment=None):
    """Runs it, with each line that it says; returns its status."""
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with _lock:
        if _ended.is_set():
            raise BuildError(f"{command[0]} is not begun: the others were ended")
        try:
            process = subprocess.Popen(command, cwd=folder, env=environment, **output)
        except OSError as error:
            raise BuildError(f"{command[0]} cannot be run: {error.strerror}") from None
        _running.add(process)
    with process:
        try:
            for line in process.stdout:
                heard(line)
            process.wait()
        finally:
            with _lock:
                _running.discard(process)
            process.terminate()  # if something ends this call
    return process.returncode


def _failure(command, path, said):
    """The error of a program that has said these lines, which are in ``path``."""
    # Small letters are for those who have no others: "1 error" is nextpnr's last line, behind what it was.
    errors = [line for line in said if "ERROR" in line] or [line for line in said if "ERROR" in line.upper()]
    return BuildError(f"{command[0]} failed: {errors[-1] if errors else 'no message'} (see {path})")


@contextmanager
def side_by_side(count):
    """A pool of ``count`` threads. Whatever ends the block, such as Ctrl-C, ends all programs that run, and until the
    threads have ended none is begun: their callers get a ``BuildError``.
    """
    try:
        with ThreadPoolExecutor(count) as pool:
            try:
                yield pool
            except BaseException:
                with _lock:
                    _ended.set()
                    for process in _running:
                        process.terminate()
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        _ended.clear()
