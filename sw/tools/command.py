"""Command lines of the tools."""

import argparse
import sys

__all__ = ["Parser", "plain", "port_number"]


class Parser(argparse.ArgumentParser):
    """A parser to which a wrong option is one line on stderr, and status 1. Options may not be abbreviated."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, allow_abbrev=False, **options)

    def error(self, message):
        print(f"{self.prog}: {message}; --help tells more", file=sys.stderr)
        raise SystemExit(1)


def plain(error):
    """What an exception says, for a user: of an ``OSError`` the file's name, if there is one, and the reason, without
    the number that ``str`` puts first.
    """
    reason = getattr(error, "strerror", None)
    if not isinstance(error, OSError) or not reason:
        return str(error)
    return reason if error.filename is None else f"{error.filename}: {reason}"


def port_number(text):
    """A TCP port, of the command line; ``ValueError`` if it is none."""
    number = int(text)
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"a TCP port is 1 to 65535, not {text}")
    return number
