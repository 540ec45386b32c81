"""Work in a child process that is forked, not a new program."""

import os
import signal
import warnings

__all__ = ["in_child"]


def in_child(work, seconds=20):
    """What ``work()`` returns, or raises, in a forked child, as ``repr`` has it. The child dies if it takes longer."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which is what is tested
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        try:
            text = repr(work())
        except BaseException as error:
            text = repr(error)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child hangs"
    return text
