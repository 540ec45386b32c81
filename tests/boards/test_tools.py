"""Programs that are run, that fail, and that are stopped."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from verbena.boards import tools


@pytest.fixture(autouse=True)
def tool(monkeypatch):
    monkeypatch.setenv("SOME_TOOL", sys.executable)


def python(text):
    """Name and arguments of a tool that does this."""
    return "some-tool", ["-u", "-c", text]


def test_which_program(monkeypatch):
    assert tools.program("some-tool") == sys.executable
    monkeypatch.delenv("SOME_TOOL")
    assert tools.program("some-tool") == str(Path(sys.executable).with_name("yowasp-some-tool"))


def test_what_it_says_is_kept(tmp_path):
    tools.run_tool(*python("import os; print(os.getcwd())"), tmp_path, "log")
    assert (tmp_path / "log").read_text() == f"{tmp_path}\n"


def test_its_environment(tmp_path):
    program = python("import os; print(os.environ['GREETING'])")
    tools.run_tool(*program, tmp_path, "log", environment={"GREETING": "hello"})
    assert (tmp_path / "log").read_text() == "hello\n"


def test_a_program_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_TOOL", "/nowhere/tool")
    with pytest.raises(tools.BuildError, match="/nowhere/tool cannot be run: No such file"):
        tools.run_tool("some-tool", [], tmp_path, "log")


@pytest.mark.parametrize(("said", "message"), [("ERROR: too large", "ERROR: too large"), ("?", "no message")])
def test_a_program_that_fails(said, message, tmp_path):
    with pytest.raises(tools.BuildError, match=f"failed: {message} .see .*log"):
        tools.run_tool(*python(f"print({said!r}); raise SystemExit(3)"), tmp_path, "log")


def test_what_yosys_says_behind_abc(tmp_path):
    """YoWASP's says nothing any more on its output when ABC has run; its log has all, and so has the error."""
    script = "read_verilog top.v; synth; abc; stat; nothing_of_this_name"
    (tmp_path / "top.v").write_text("module top(input a, b, output o); assign o = a ^ b; endmodule\n")
    with pytest.raises(tools.BuildError, match="No such command: nothing_of_this_name"):
        tools.run_yosys(script, tmp_path)
    log = (tmp_path / "yosys.log").read_text()
    assert 0 < log.index("Executing ABC pass") < log.index("Printing statistics")


def test_a_yosys_that_does_not_come_to_its_log(tmp_path, monkeypatch):
    """What it says is told, and no log of an older run."""
    (tmp_path / "yosys.log").write_text("ERROR: an old one\n")
    (tmp_path / "yosys").write_text("#!/bin/sh\necho ERROR: no library; exit 1\n")
    (tmp_path / "yosys").chmod(0o755)
    monkeypatch.setenv("YOSYS", str(tmp_path / "yosys"))
    with pytest.raises(tools.BuildError, match="failed: ERROR: no library"):
        tools.run_yosys("help", tmp_path)


ENDLESS = "import os, time; print(os.getpid())\nwhile True: time.sleep(1)"


def test_what_ends_the_block_ends_programs_of_other_threads(tmp_path):
    """And none that they would begin then is begun; behind the block all is as it was."""
    begun, runs = threading.Event(), []

    def one_and_another():
        with pytest.raises(tools.BuildError, match="no message"):
            tools.run_tool(*python(ENDLESS), tmp_path, "first", lambda line: begun.set())
        tools.run_tool(*python(ENDLESS), tmp_path, "second")

    def until_ctrl_c():
        with tools.side_by_side(1) as pool:
            runs.extend([pool.submit(one_and_another), pool.submit(one_and_another)])
            assert begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        until_ctrl_c()
    with pytest.raises(tools.BuildError, match="is not begun"):
        runs[0].result()
    assert runs[1].cancelled()
    tools.run_tool(*python("print(1)"), tmp_path, "log")


def test_sigterm_ends_program_and_tool(tmp_path):
    text = """
import sys
from pathlib import Path
from verbena.boards.tools import run_tool
from verbena.sw.tools.command import command_line

@command_line
def main():
    run_tool("some-tool", ["-u", "-c", sys.argv[1]], Path(sys.argv[2]), "log", lambda line: print(line, flush=True))

sys.exit(main())
"""
    command = [sys.executable, "-c", text, ENDLESS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        number = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    end = time.monotonic() + 60
    while Path(f"/proc/{number}/stat").exists() and Path(f"/proc/{number}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)


def test_lines_are_whole(tmp_path):
    """Whoever watches sees each line once, in one piece, however it was written, and while the program runs; so does
    who reads the log.
    """
    lines, log = [], tmp_path / "log"
    slow = "import os, time\nfor piece in (b'a', b'b\\nc', b'\\nd\\n'): os.write(1, piece); time.sleep(0.2)"
    tools.run_tool(*python(slow), tmp_path, log.name, lambda line: lines.append((line, log.read_text())))
    assert lines == [("ab\n", "ab\n"), ("c\n", "ab\nc\n"), ("d\n", "ab\nc\nd\n")]


def test_a_program_may_work_on_when_it_has_said_all(tmp_path):
    text = "import os, time; os.close(1); os.close(2); time.sleep(0.5); open('done', 'w').close()"
    tools.run_tool(*python(text), tmp_path, "log")
    assert (tmp_path / "done").exists()


def test_what_ends_the_call_ends_the_program(tmp_path):
    def interrupt(line):
        raise KeyboardInterrupt

    text = "import time; print('here'); time.sleep(20); open('survived', 'w').close()"
    with pytest.raises(KeyboardInterrupt):
        tools.run_tool(*python(text), tmp_path, "log", interrupt)
    assert not (tmp_path / "survived").exists()
