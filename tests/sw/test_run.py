"""``verbena run``: programs that import pyverbs."""

import os
import subprocess
import sys

import pytest
from verbena.sw import run

IMPORTS = """
import sys

import pyverbs
import pyverbs.device as d
import pyverbs.enums as old
import pyverbs.libibverbs_enums as e
from pyverbs.base import PyverbsRDMAErrno, inc_rkey
from pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx, PollCqAttr
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QPEx
import verbena.sw.verbs.device
import helper

assert d is pyverbs.device is verbena.sw.verbs.device
assert old.IBV_QPT_RC is e.ibv_qp_type.IBV_QPT_RC
print(__name__, sys.argv[1:], helper.WHERE, [device.name for device in d.get_device_list()])
try:
    d.Context(name="nowhere")
except PyverbsError as error:
    print(error)
try:
    import pyverbs.nothing
except ModuleNotFoundError as error:
    print(error)
sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "program.py").write_text(IMPORTS)
    (tmp_path / "helper.py").write_text("WHERE = 'beside it'\n")
    (tmp_path / "fails.py").write_text("import pyverbs.pd\n\n\ndef work():\n    raise ValueError('no')\n\n\nwork()\n")
    # Another pyverbs, that is found before: `verbena run` does not take it.
    (tmp_path / "pyverbs").mkdir()
    (tmp_path / "pyverbs" / "__init__.py").write_text("raise ImportError('the other one')\n")
    return tmp_path


def call(folder, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "verbena.sw.cli", "run", *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


EXPECTED = [
    "__main__ ['--size', '3'] beside it [b'sim0', b'sim1']",
    "Failed to find device nowhere. Errno: 19, No such device",
    "No module named 'pyverbs.nothing'",
]


@pytest.mark.parametrize("how", [["program.py"], ["-m", "program"]])
def test_a_program_is_run_unchanged(folder, how):
    result = call(folder, *how, "--size", "3", PYTHONPATH=str(folder))
    assert result.stdout.splitlines() == EXPECTED, result.stderr
    assert result.returncode == 3


def test_from_another_folder(folder, tmp_path_factory):
    result = call(tmp_path_factory.mktemp("elsewhere"), str(folder / "program.py"), "--size", "3")
    assert result.stdout.splitlines() == EXPECTED, result.stderr


def test_a_mistake_of_the_program_is_told_from_its_first_line(folder):
    result = call(folder, "fails.py")
    assert result.returncode == 1
    lines = result.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "fails.py" in lines[1]
    assert lines[-1] == "ValueError: no"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["missing.py"], "verbena run: there is no program 'missing.py'\n"),
        (["-m"], "verbena run: -m wants the name of a module\n"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, text):
    assert run.main(arguments) == 1
    assert capsys.readouterr() == ("", text)


def test_help(capsys):
    assert run.main(["--help"]) == 0
    assert "verbena run SCRIPT" in capsys.readouterr().out
    assert run.main([]) == 1
    assert "verbena run SCRIPT" in capsys.readouterr().err


def test_another_package_is_not_replaced(monkeypatch):
    monkeypatch.setitem(sys.modules, "somebodys", sys)
    with pytest.raises(RuntimeError, match="another somebodys is imported already"):
        run.alias("somebodys")
