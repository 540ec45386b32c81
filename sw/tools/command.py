"""Command lines of the tools."""

import argparse
import sys

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """A parser to which a wrong option is one line on stderr, and status 1. Options may not be abbreviated."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, allow_abbrev=False, **options)

    def error(self, message):
        print(f"{self.prog}: {message}; --help tells more", file=sys.stderr)
        raise SystemExit(1)
