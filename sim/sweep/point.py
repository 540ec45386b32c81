"""One point of a sweep: a process, and what it has found out."""

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from .grid import command_of

__all__ = ["run_point"]

GRACE = 5
"""Seconds that a process has to end after SIGTERM."""


def run_point(program, arguments, point, *, folder=None, result=None, settings=None, stop=None):
    """Runs a point to its end, in a process of its own, and tells what came out as a dictionary.

    ``status``: that of the process, or None if it could not be started; ``seconds``: of wall time; ``rows``: of
    results, dictionaries; ``tail``: the last lines that it printed. Each line of its output that is a JSON object is a
    row; with ``result`` the JSON file of that name, an object or a list of them, has the rows. ``folder`` is the
    point's own, by default one that is removed again. ``settings`` are variables of the environment. When
    ``stop.is_set()`` the process is ended.
    """
    with tempfile.TemporaryDirectory() as own:
        folder = str(Path(folder or own).absolute())
        Path(folder).mkdir(parents=True, exist_ok=True)
        command, environment = command_of(program, arguments, point, folder)
        output, began = Path(folder) / "output.txt", time.monotonic()
        try:
            with output.open("wb") as file:
                process = subprocess.Popen(
                    command,
                    env=os.environ | (settings or {}) | environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            return {"status": None, "seconds": 0.0, "rows": [], "tail": str(error)}
        try:
            status = _wait(process, stop)
        except BaseException:
            _end(process)
            raise
        text = output.read_text(errors="replace")
        found = {"status": status, "seconds": round(time.monotonic() - began, 3), "tail": _tail(text)}
        try:
            rows = _file(result.replace("{folder}", folder)) if result else _lines(text)
        except (OSError, ValueError) as error:
            return found | {"status": status or 1, "rows": [], "tail": f"{found['tail']}\n{error}".strip()}
        return found | {"rows": rows}


def _wait(process, stop):
    while True:
        try:
            return process.wait(0.1 if stop else None)
        except subprocess.TimeoutExpired:
            if stop.is_set():
                _end(process)


def _end(process):
    """The process and all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        return


def _lines(text):
    rows = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                rows.append(row)
    return rows


def _file(path):
    rows = json.loads(Path(path).read_text())
    rows = rows if isinstance(rows, list) else [rows]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} holds other than objects")
    return rows


def _tail(text, lines=5):
    return "\n".join(text.splitlines()[-lines:])
