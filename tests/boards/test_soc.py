"""The example is short, and whole."""

import re
from pathlib import Path

import pytest
from verbena.boards import soc
from verbena.hdl.config import Config
from verbena.hdl.generate import to_rtlil


@pytest.mark.slow
def test_soc():
    assert len(Path(soc.__file__).read_text().splitlines()) < 60
    text = to_rtlil(soc.Soc(Config(qps=4, cqs=4, window=16)), "soc")
    top = text[text.index("module \\soc\n") :].split("\nend\n")[0]
    ports = set(re.findall(r"wire width \d+ (?:in|out)put \d+ +\\(\w+?)__", top))
    assert ports == {"axil", "bus", "gmii"}
    assert {"rnic", "memory", "ethernet"} <= set(re.findall(r"cell \\soc\.(\w+) ", top))
