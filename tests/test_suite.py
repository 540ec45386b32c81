"""What the tests themselves rest on: the cases that `make test` chooses, and seeds that stay the same."""

import re
from pathlib import Path

import pytest
from conftest import spread
from streams import make_rng

HERE = Path(__file__).parent


@pytest.mark.parametrize(("count", "of"), [(2, 3), (2, 4), (4, 180), (7, 7), (9, 7), (2, 2)])
def test_spread(count, of):
    chosen = spread(count, of)
    assert len(chosen) == min(count, of)
    assert {0, of - 1} <= chosen <= set(range(of))


def test_samples_name_what_is_there():
    for line in (HERE / "samples.txt").read_text().splitlines():
        if not line.startswith("#"):
            path, function, count, elsewhere = re.fullmatch(r"tests/(.*)::(\w+) (\d+)(?: (\d+))?", line).groups()
            assert int(count) >= 1
            assert elsewhere is None or int(elsewhere) >= 1
            assert re.search(rf"parametrize\(.*?\ndef {function}\(", (HERE / path).read_text(), re.DOTALL), line


def test_a_seed_comes_from_the_name(monkeypatch):
    monkeypatch.delenv("VERBENA_SEED", raising=False)
    first = make_rng().seed_value
    assert make_rng().seed_value == first
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/hdl/test_a.py::test_b[3] (call)")
    assert make_rng().seed_value not in (first, None)
    second = make_rng().seed_value
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/hdl/test_a.py::test_b[3] (setup)")
    assert make_rng().seed_value == second
