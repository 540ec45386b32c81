"""The guest's end of the control channel: JSON lines over a virtio-serial port, one answer a request.

A request is ``{"method": name, "arguments": {...}}``, an answer ``{"result": ...}`` or ``{"error": text}``. Programs of
the tests come as source (``load``), so that the image does not change with them.
"""

import contextlib
import json
import os
import subprocess
import time
import traceback
from pathlib import Path


def port(name):
    """The device of the virtio-serial port with this name; waits for it, as the host tells names when it likes."""
    while True:
        for path in Path("/sys/class/virtio-ports").glob("*/name"):
            if path.read_text().strip() == name:
                return Path("/dev", path.parent.name)
        time.sleep(0.01)


class Agent:
    """What the host can ask for."""

    def __init__(self):
        self.jobs = {}
        self.objects = {}

    def run(self, command, seconds=30):
        """Runs a shell command to its end: ``[status, output]``."""
        done = subprocess.run(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds
        )
        return [done.returncode, done.stdout.decode(errors="replace")]

    def start(self, command):
        """Starts a shell command; returns a number for ``job`` and ``kill``."""
        number = len(self.jobs)
        with self._output(number).open("wb") as out:
            self.jobs[number] = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        return number

    def _output(self, number):
        return Path(f"/tmp/job{number}")

    def job(self, number, seconds=0):
        """Waits so long at most: ``[status or None, output so far]``."""
        process = self.jobs[number]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return [process.returncode, self._output(number).read_text(errors="replace")]

    def kill(self, number):
        self.jobs[number].kill()
        self.jobs[number].wait()

    def load(self, name, source, create, arguments):
        """Runs ``source`` as a program called ``name``; ``create(**arguments)`` of it becomes the object ``name``."""
        self.objects.pop(name, None)
        program = {"__name__": name}
        exec(compile(source, name, "exec"), program)
        self.objects[name] = program[create](**arguments)

    def call(self, name, method, arguments):
        """A method of the object ``name``."""
        return getattr(self.objects[name], method)(**arguments)


def main():
    agent = Agent()
    channel = os.open(port("agent"), os.O_RDWR)
    pending = b""
    while True:
        data = os.read(channel, 1 << 16)
        if not data:
            # Nobody is connected: also after a snapshot is restored.
            time.sleep(0.005)
            continue
        pending += data
        while b"\n" in pending:
            line, pending = pending.split(b"\n", 1)
            request = json.loads(line)
            try:
                answer = {"result": getattr(agent, request["method"])(**request["arguments"])}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
            answer = json.dumps(answer).encode() + b"\n"
            while answer:
                answer = answer[os.write(channel, answer) :]


main()
