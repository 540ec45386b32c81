"""The recipe by which a circuit for an ECP5 is built: how the tools are called, and what helps yosys before it runs and
behind it.
"""

import json
import re
import shutil
from pathlib import Path

__all__ = [
    "BLOCK_RAM",
    "LUT_RAM_MUX",
    "MAPPING",
    "SEED",
    "absorb_registers",
    "finish",
    "free_states",
    "place_memories",
    "synth_ecp5",
]

BLOCK_RAM = "DP16KD"

LUT_RAM_MUX = Path(__file__).with_name("native") / "lut_ram_mux.v"

MAPPING = "abc9.script.flow3"
"""yosys' script for ABC that maps logic to LUTs four times, each time written anew in another way, and keeps the best.
It takes 3.4 % fewer LUT4 of the standard engine than the one that ``synth_ecp5`` uses by itself, with as many levels,
and 12 s more.
"""

SEED = 1
"""nextpnr's, if nobody says otherwise. Placements differ by a tenth, by luck."""

STATE = re.compile(
    r"^  attribute \\init .*\n((?:  attribute .*\n)*  wire width \d+ \\\w+_state(?:\$\d+)?\n)", re.MULTILINE
)

MEMORY = re.compile(r"^(?:  attribute .*\n)*  memory width (?P<width>\d+) size (?P<rows>\d+) ", re.MULTILINE)

BLOCK, DISTRIBUTED = ('attribute \\ram_style "block"', 'attribute \\ram_style "distributed"')

PLAIN = {"CLKMUX": "CLK", "REGSET": "RESET"}
"""What a flip-flop must be for the block RAM's register to do the same: both are 0 after configuration."""


def free_states(rtlil):
    """Takes the initial values from state registers, so that yosys gives each state a bit of its own.

    yosys recodes no state machine with an initial value, and Amaranth gives one to all of them. So the circuit needs a
    reset after configuration, as it has on a board that holds it in reset until its clock is steady.
    """
    return STATE.sub(r"\1", rtlil)


def synth_ecp5(folder, options):
    """yosys' commands that map what it has read to cells of an ECP5; ``options`` are those of ``synth_ecp5``. It is to
    run in ``folder``, where a file is left that it reads: YoWASP's sees no other one below /tmp.

    Which 16 of 64 rows of LUT RAM are read takes two LUT4 a bit, and the multiplexer that their slice has besides. Left
    to itself yosys takes three.
    """
    shutil.copy(LUT_RAM_MUX, folder)
    run = f"synth_ecp5 {options} -run"
    mapping = f"scratchpad -copy {MAPPING} abc9.script"
    return f"{run} :map_gates; techmap -map {LUT_RAM_MUX.name} t:$bmux; {mapping}; {run} map_gates:"


def place_memories(rtlil, *, lut_rows=0, lut_width=1 << 20):
    """What asks for block RAM goes to LUT RAM, if it has at most ``lut_rows`` rows of less than ``lut_width`` bits: 36
    bits of 16 rows take 9 of them, and so 54 LUT4 sites, instead of a block RAM that is nearly empty.

    To do so here leaves the engine the same for all devices: what block RAM does when a row is read that is being
    written is the strictest.
    """

    def choose(found):
        few = int(found["rows"]) <= lut_rows and int(found["width"]) < lut_width
        return found[0].replace(BLOCK, DISTRIBUTED) if few else found[0]

    return MEMORY.sub(choose, rtlil)


def absorb_registers(netlist, top):
    """Puts the registers behind block RAM into the block RAM, in the module ``top`` of ``netlist`` (yosys' JSON, after
    ``synth_ecp5``), which is changed; returns how many flip-flops went.

    Each port of a DP16KD can have a register behind its output, which costs nothing and gives the data a nanosecond
    earlier. yosys leaves it unused, and makes flip-flops, one a bit. The outputs of a port are registered if each of
    them that is used goes to one flip-flop and to nothing else, and those have the port's clock and neither enable nor
    reset.
    """
    module = netlist["modules"][top]
    cells = module["cells"]
    users = {}  # bit to (cell, port), for each use
    for port in module["ports"].values():
        for bit in port["bits"]:
            users.setdefault(bit, []).append((None, None))
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input":
                for bit in bits:
                    users.setdefault(bit, []).append((name, port))

    gone = 0
    for cell in list(cells.values()):
        if cell["type"] != BLOCK_RAM:
            continue
        # A port of 36 bits has the data outputs of both sides, and so both sides' registers.
        wide = any(int(str(cell["parameters"][f"DATA_WIDTH_{side}"]), 2) == 36 for side in "AB")
        for sides in ("AB",) if wide else ("A", "B"):
            outputs = {
                port: bits[0]
                for port, bits in cell["connections"].items()
                if port[:2] == "DO" and port[2] in sides and bits and users.get(bits[0])
            }
            clocks = [cell["connections"][f"CLK{side}"] for side in sides]
            registers = {}
            for port, bit in outputs.items():
                name, pin = users[bit][0]
                if len(users[bit]) == 1 and pin == "DI" and all(_plain(cells[name], clock) for clock in clocks):
                    registers[port] = name
            if not outputs or len(registers) != len(outputs):
                continue
            for side in sides:
                cell["parameters"][f"REGMODE_{side}"] = "OUTREG"
                cell["connections"][f"OCE{side}"] = ["1"]
            for port, name in registers.items():
                cell["connections"][port] = cells.pop(name)["connections"]["Q"]
            gone += len(registers)
    return gone


def _plain(cell, clock):
    """It is a flip-flop with ``clock``, and takes its input at each edge, whatever else happens."""
    connections, parameters = cell["connections"], cell["parameters"]
    return (
        cell["type"] == "TRELLIS_FF"
        and connections["CLK"] == clock
        and all(parameters[name].strip() == value for name, value in PLAIN.items())
        and (parameters["CEMUX"].strip() == "1" or connections.get("CE") == ["1"])
        and connections.get("LSR", ["0"]) == ["0"]
    )


def finish(path, top):
    """Does :func:`absorb_registers` to the netlist in the file ``path``."""
    netlist = json.loads(path.read_text())
    absorbed = absorb_registers(netlist, top)
    path.write_text(json.dumps(netlist))
    return absorbed
