"""Writes docs/interface.md: ``python docs/write_interface.py``."""

from pathlib import Path

from verbena.hdl.abi.header import markdown

__all__ = ["FILE", "text"]

FILE = Path(__file__).with_name("interface.md")

INTRODUCTION = """\
# Interface of engine and driver

Generated from `hdl/abi` by `python docs/write_interface.py`; do not edit. The same descriptions give the hardware its
layouts, the driver its packing, and C its header (`python -m verbena.hdl.generate --header verbena.h`). How the engine
uses all this stands in [architecture.md](architecture.md).

"""


def text():
    """The file's content."""
    return INTRODUCTION + markdown()


if __name__ == "__main__":
    FILE.write_text(text())
