"""Resets of an ECP5 that reach their flip-flops by networks that the chip has, instead of by thousands of wires."""

__all__ = ["FASTEST", "FEWEST", "MOST", "reset_by_clock_network", "reset_globally"]

FEWEST = 1000
"""Flip-flops of a reset that is worth a network."""

FASTEST = 100_000_000
"""Hz of a clock whose registers may be reset so: nextpnr counts no delay in these networks. Between clocks that makes
no difference, for all have it; a reset has it, some nanoseconds, on top of the clock's and of the way to the DCCA.
"""

MOST = 4
"""Resets that get one. The chip has 16 networks, half of which lead to more than clocks."""


def reset_globally(netlist, top, clock="clk", reset="rst", release=None):
    """Resets the flip-flops of ``top`` in ``netlist`` by the network that the chip has for that, beside its wires;
    returns how many.

    Those with ``clock`` whose reset is ``reset`` and nothing else no longer take it as an input: 16,000 inputs are more
    wire than any other signal needs. All others keep theirs, also those of another clock with this reset. The network
    sets each flip-flop to the value it has after configuration, which is that of its reset, and lets go with an edge of
    ``release``, else of ``clock`` (SGSR).
    """
    module = netlist["modules"][top]
    cells = module["cells"]
    bits = {name: _net(module, name) for name in (clock, reset, release or clock)}
    gone = 0
    for cell in cells.values():
        if cell["type"] != "TRELLIS_FF":
            continue
        connections, parameters = cell["connections"], cell["parameters"]
        ours = connections["CLK"] == bits[clock] and parameters["CLKMUX"].strip() == "CLK"
        if ours and connections.get("LSR") == bits[reset] and parameters["LSRMUX"].strip() == "LSR":
            connections["LSR"] = ["0"]
            parameters["GSR"] = "ENABLED"
            gone += 1
    inverted = [_last_bit(module) + 1]
    cells["reset_inverter"] = {
        "hide_name": 0,
        "type": "LUT4",
        "parameters": {"INIT": "0101010101010101"},
        "attributes": {},
        "port_directions": {"A": "input", "B": "input", "C": "input", "D": "input", "Z": "output"},
        "connections": {"A": bits[reset], "B": ["0"], "C": ["0"], "D": ["0"], "Z": inverted},
    }
    cells["reset_network"] = {
        "hide_name": 0,
        "type": "SGSR",
        "parameters": {},
        "attributes": {"keep": "1"},
        "port_directions": {"GSR": "input", "CLK": "input"},
        "connections": {"GSR": inverted, "CLK": bits[release or clock]},
    }
    module["netnames"]["reset_inverted"] = {"hide_name": 0, "bits": inverted, "attributes": {}}
    return gone


def _net(module, name):
    """Bits of a port, or else of a wire."""
    return (module["ports"].get(name) or module["netnames"][name])["bits"]


def reset_by_clock_network(netlist, top, fewest=None):
    """Leads a reset that at least ``fewest`` (:data:`FEWEST`) flip-flops of ``top`` in ``netlist`` have to these by one
    of the networks that the chip has for clocks; returns how many flip-flops they are.

    nextpnr routes by such a network whatever a DCCA drives, and on its own gives one to clocks only. yosys makes one of
    all registers that are the same, so the resets of the engine's parts are one net, of three quarters of all
    flip-flops: as wires, these inputs keep the router busy for most of its time. What else the reset goes to, such as a
    LUT, keeps its wire.
    """
    module = netlist["modules"][top]
    users = {}
    for cell in module["cells"].values():
        for bit in cell["connections"].get("LSR", []) if cell["type"] == "TRELLIS_FF" else []:
            if isinstance(bit, int):
                users.setdefault(bit, []).append(cell)
    many = [bit for bit in users if len(users[bit]) >= (FEWEST if fewest is None else fewest)]
    many = sorted(many, key=lambda bit: -len(users[bit]))[:MOST]
    last = _last_bit(module)
    for number, bit in enumerate(many):
        network = [last + 1 + number]
        module["cells"][f"reset_buffer_{number}"] = {
            "hide_name": 0,
            "type": "DCCA",
            "parameters": {},
            "attributes": {},
            "port_directions": {"CLKI": "input", "CLKO": "output"},
            "connections": {"CLKI": [bit], "CLKO": network},
        }
        module["netnames"][f"reset_network_{number}"] = {"hide_name": 0, "bits": network, "attributes": {}}
        for cell in users[bit]:
            cell["connections"]["LSR"] = network
    return sum(len(users[bit]) for bit in many)


def _last_bit(module):
    return max(bit for net in module["netnames"].values() for bit in net["bits"] if isinstance(bit, int))
