"""``verbena run``: runs a program that imports pyverbs, unchanged, with Verbena's verbs in its place.

Only in that process is ``pyverbs`` another name of :mod:`verbena.sw.verbs`, and ``pyverbs.device`` of
:mod:`verbena.sw.verbs.device`, and so on. A pyverbs that is installed is not imported there, and not touched elsewhere.
"""

import importlib
import pkgutil
import runpy
import sys
import traceback
from pathlib import Path

from .tools.command import command_line, reader_is_gone

__all__ = ["alias", "main"]

USAGE = """usage: verbena run SCRIPT [arguments]
       verbena run -m MODULE [arguments]

Runs a Python program that says `import pyverbs.device` and the like, with Verbena's devices."""


def alias(name="pyverbs"):
    """Makes ``name`` and its submodules other names of :mod:`verbena.sw.verbs` and of its submodules, in this process.

    ``RuntimeError`` if another package of that name is imported already.
    """
    package = importlib.import_module("verbena.sw.verbs")
    if sys.modules.get(name, package) is not package:
        raise RuntimeError(f"another {name} is imported already")
    sys.modules[name] = package
    for module in pkgutil.iter_modules(package.__path__):
        sys.modules[f"{name}.{module.name}"] = importlib.import_module(f"{package.__name__}.{module.name}")


def _own_frames(error, path):
    """The traceback from the first frame of the program on; all of it if there is none."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != path:
        frames = frames.tb_next
    return frames or error.__traceback__


@command_line
def main(arguments=None):
    """Command line. Returns the status; ``SystemExit`` of the program passes."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 1
    module = arguments[0] == "-m"
    if module and len(arguments) < 2:
        print("verbena run: -m wants the name of a module", file=sys.stderr)
        return 1
    program, *rest = arguments[1:] if module else arguments
    if not module and not (Path(program) / "__main__.py" if Path(program).is_dir() else Path(program)).exists():
        print(f"verbena run: there is no program {program!r}", file=sys.stderr)
        return 1
    alias()
    sys.argv = [program, *rest]
    sys.path[0] = "" if module else str(Path(program).resolve().parent)
    try:
        if module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except Exception as error:
        if isinstance(error, BrokenPipeError) and reader_is_gone():
            raise
        traceback.print_exception(type(error), error, _own_frames(error, program))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
