"""What programs show on the terminal: parts of rich, and an error that says how to get it."""

from .extra import require

try:
    from rich import box
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.table import Table
except ModuleNotFoundError:
    require("rich")
    raise

__all__ = [
    "BarColumn",
    "Console",
    "Progress",
    "Table",
    "TextColumn",
    "TimeElapsedColumn",
    "TimeRemainingColumn",
    "TransferSpeedColumn",
    "box",
]
