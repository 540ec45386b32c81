"""Command lines of the tools."""

import argparse
import contextlib
import errno
import functools
import os
import select
import signal
import sys
import threading

from ..verbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from .session import ToolError

__all__ = [
    "Parser",
    "command_line",
    "first_line",
    "plain",
    "port_number",
    "reader_is_gone",
    "status_of",
    "whole_number",
]

INTERRUPTED, UNHEARD, TERMINATED = (128 + number for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM))
"""What a shell tells of programs that these signals have ended."""


def first_line(doc):
    """Of a docstring, which ``python -OO`` leaves out."""
    return (doc or "").partition("\n")[0]


def reader_is_gone():
    """Whether who has read this program's output has ended, as ``head`` does."""
    with contextlib.suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    return False


def _terminate(*_):
    raise SystemExit(TERMINATED)


@contextlib.contextmanager
def _sigterm_unwinds():
    """SIGTERM leaves what stands open in order, as Ctrl-C does, unless somebody else has taken it."""
    mine = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if mine:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if mine and signal.getsignal(signal.SIGTERM) == _terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _drop_output():
    """What is still in the buffer goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def command_line(main):
    """A ``main`` that returns a status also when Ctrl-C ends it, or when nobody reads what it prints: without a word,
    as other programs do. SIGTERM is a ``SystemExit``, so that it ends what the program has begun.
    """

    @functools.wraps(main)
    def ended(*arguments, **options):
        try:
            try:
                with _sigterm_unwinds():
                    return main(*arguments, **options)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:
            if not reader_is_gone():
                raise
            _drop_output()
            return UNHEARD
        except OSError as error:
            if error.errno != errno.ENOSPC or error.filename is not None:
                raise
            _drop_output()
            print(f"cannot write the output: {error.strerror}", file=sys.stderr)
            return 1

    return ended


def status_of(work, idle=None):
    """The status of a program that does ``work()``: 0, or 1 if it cannot, as a line on stderr tells. ``idle`` are the
    words for a wait that can never end.
    """
    try:
        work()
    except BrokenPipeError:  # of what is printed
        raise
    except (ToolError, PyverbsError, OSError) as error:
        stuck = isinstance(error, PyverbsRDMAError) and error.error_code == errno.EDEADLK
        print(idle if stuck and idle else plain(error), file=sys.stderr)
        return 1
    return 0


class Parser(argparse.ArgumentParser):
    """A parser to which a wrong option is one line on stderr, and status 1. Options may not be abbreviated. The
    description may be a docstring's, which marks code.
    """

    def __init__(self, *arguments, description=None, **options):
        description = description and description.replace("``", "")
        super().__init__(*arguments, allow_abbrev=False, description=description, **options)

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


def whole_number(text):
    """A number of the command line: decimal, or as Python has it with ``0x``, ``0o`` or ``0b``."""
    try:
        return int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def port_number(text):
    """A TCP port, of the command line; ``ValueError`` if it is none."""
    number = int(text)
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"a TCP port is 1 to 65535, not {text}")
    return number
