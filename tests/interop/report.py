"""What a run tells: progress while it goes on, the table at its end, and ``interop.json``."""

import json
from collections import Counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["FAIL", "PASS", "Report"]

PASS, FAIL = "pass", "FAIL"


class Report:
    """Collects the lines of the table."""

    def __init__(self, total):
        self.console = Console(width=None if Console().is_terminal else 160, highlight=False)
        self.lines = []
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
        )
        self._task = self._progress.add_task("boot the guest", total=total)

    def __enter__(self):
        self._progress.start()
        return self

    def __exit__(self, *exc):
        self._progress.stop()

    def begin(self, what):
        self._progress.update(self._task, description=what)

    def say(self, text):
        self.console.print(text, markup=False)

    def add(self, case, cable, complaint, seconds):
        """One case has ended; ``complaint`` is None if it passed."""
        self.lines.append(
            {
                "tool" if case.tool else "case": case.name,
                "role": case.role,
                "ip": case.ip,
                "mtu": case.mtu,
                "faults": case.faults,
                "result": FAIL if complaint else PASS,
                "frames": cable.frames,
                "retries": cable.retries,
                "reason": complaint or case.reason,
                "seconds": round(seconds, 2),
            }
        )
        if complaint:
            self.say(f"{FAIL}: {case.name}, adapter as {case.role}, MTU {case.mtu}: {complaint}")
        self._progress.advance(self._task)

    def write(self, path):
        path.write_text(json.dumps(self.lines, indent=1) + "\n")

    def table(self):
        """Prints all lines, and how many passed."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("case or tool", "adapter is", "IP", "MTU", "faults", "result", "frames", "retries", "why"):
            right = name in ("MTU", "frames", "retries")
            table.add_column(name, justify="right" if right else "left", no_wrap=name in ("IP", "MTU", "result"))
        for line in self.lines:
            name = line.get("case") or line.get("tool")
            keys = ("role", "ip", "mtu", "faults", "result", "frames", "retries", "reason")
            style = "red" if line["result"] == FAIL else None
            table.add_row(name, *(str(line[key]) for key in keys), style=style)
        self.console.print(table)
        counts = Counter(line["result"] for line in self.lines)
        self.say(f"{counts[PASS]} of {len(self.lines)} cases pass")

    @property
    def failed(self):
        return [line for line in self.lines if line["result"] == FAIL]
