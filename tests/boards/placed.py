"""A placed circuit, as nextpnr writes it, small enough for a picture."""

import itertools

__all__ = ["Placed"]

INPUTS = {
    "TRELLIS_COMB": ("A", "B", "C", "D", "M", "F1", "FXA", "FXB", "FCI", "WRE", "WD"),
    "TRELLIS_FF": ("DI", "M", "CE", "LSR", "CLK"),
    "TRELLIS_RAMW": ("A0",),
    "DP16KD": ("DIA0", "ADA0", "CLKA", "DIB0", "ADB0", "CLKB"),
}


class Placed:
    """Cells that are added one by one; a signal is named by whoever comes first."""

    CLOCK = "clk"

    def __init__(self):
        self._bits = {}
        self._numbers = itertools.count(2)
        self.module = {"cells": {}, "netnames": {}}

    def bit(self, name):
        if name not in self._bits:
            self._bits[name] = next(self._numbers)
            self.module["netnames"][name] = {"bits": [self._bits[name]]}
        return self._bits[name]

    def add(self, name, kind, bel, parameters=None, **connections):
        inputs = INPUTS[kind]
        self.module["cells"][name] = {
            "type": kind,
            "parameters": parameters or {},
            "attributes": {"NEXTPNR_BEL": bel},
            "port_directions": {port: "input" if port in inputs else "output" for port in (*inputs, *connections)},
            "connections": {port: [] for port in inputs}
            | {port: [self.bit(signal)] for port, signal in connections.items()},
        }

    def lut(self, name, bel, *inputs, **connections):
        ports = dict(zip("ABCD", inputs))
        self.add(name, "TRELLIS_COMB", bel, F=f"{name}.F", **ports, **connections)
