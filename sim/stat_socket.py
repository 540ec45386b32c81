"""How ``verbena stat`` looks at the adapter of another program: a socket beside those of the switch.

A program that has ``simN`` of a network listens at ``simN.counters`` in the network's folder. For each line that comes
it answers with one: the counters, as a JSON object (:func:`verbena.sw.tools.stat.told_by`). A look takes the adapter
some cycles, as any read of registers does, so a program with ``VERBENA_EXACT`` shows nothing.
"""

import atexit
import contextlib
import json
import os
import select
import socket
import threading
import weakref

__all__ = ["Glass", "Teller", "place"]

TURN = 0.2
"""Seconds between two looks whether the world is still there."""

PATIENCE = 20.0
"""Seconds in which a program answers, which may be busy or stopped."""


def place(folder, name):
    """Where the program listens that has the adapter of that name."""
    return folder / f"{name}.counters"


_tellers = weakref.WeakSet()


def _forget():
    """In a child process: it shows nothing of its parent's adapters."""
    for teller in list(_tellers):
        for sock in teller._sockets:
            sock.close()
    _tellers.clear()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def _leave():
    for teller in list(_tellers):
        teller.leave()


class Teller(threading.Thread):
    """Answers those who look at ``port``, a simulated device, at ``path``, until its world is closed."""

    brings_nothing = True

    def __init__(self, port, path):
        super().__init__(name="verbena-teller", daemon=True)
        self._port = weakref.ref(port)
        self._path = path
        path.unlink(missing_ok=True)  # of a killed program
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        self._sockets = [listener]  # behind it, those who look
        self._mine = path.stat().st_ino
        _tellers.add(self)
        self.start()

    def run(self):
        listener, sockets = self._sockets[0], self._sockets
        while (port := self._port()) is not None and not port.gone:
            del port
            for sock in select.select(sockets, [], [], TURN)[0]:
                if sock is listener:
                    sockets.append(sock.accept()[0])
                elif not self._answer(sock):
                    sockets.remove(sock)
                    sock.close()
        for sock in sockets:
            sock.close()
        self.leave()

    def _answer(self, sock):
        """Answers one line; False if there is nobody any more."""
        from verbena.sw.tools.stat import told_by

        port = self._port()
        try:
            if not sock.recv(64) or port is None or port.gone:
                return False
            sock.sendall(json.dumps(told_by(port)).encode() + b"\n")
        except (OSError, ValueError):  # who looked has gone, or the world
            return False
        return True

    def leave(self):
        """Takes the socket's file away, if it is not yet another program's."""
        _tellers.discard(self)
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._mine:
                self._path.unlink()


class Glass:
    """Looks at the adapter of another program. ``OSError`` if nobody shows it at ``path``."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._lines = self._socket.makefile("rb")

    def look(self):
        """What the program tells (:func:`verbena.sw.tools.stat.told_by`); None if it has ended. ``TimeoutError`` if it
        does not answer.
        """
        try:
            self._socket.sendall(b"\n")
            line = self._lines.readline()
        except (BrokenPipeError, ConnectionResetError):
            return None
        except TimeoutError:
            raise TimeoutError(f"the program has not answered for {PATIENCE:g} s: it may be stopped") from None
        return json.loads(line) if line.endswith(b"\n") else None

    def close(self):
        self._lines.close()
        self._socket.close()
