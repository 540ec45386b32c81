"""Messages between two adapters, in one program and in two."""

import pytest
from verbena.sim.message_speed import KINDS, PLACES, measure_messages

pytestmark = pytest.mark.verilator


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_messages_go(kind, place):
    assert measure_messages(kind, place, seconds=0.05) > 0


def test_a_program_that_ends_too_early_is_told(monkeypatch, tmp_path):
    """The other one, which waits for it, is ended."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.exit(1) if 'far' in sys.orig_argv else None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="a program that measures has ended: status 1"):
        measure_messages("write", "two programs")
