"""What an address of the host bus means, with transactions made by hand."""

import pytest
from verbena.hdl.abi import registers as reg
from verbena.hdl.abi.commands import COMMAND, Command
from verbena.hdl.abi.registers import REGISTERS
from verbena.sim.trace.address_map import AddressMap
from verbena.sim.trace.capture_file import Transaction

CQC, QPC = 0x1_2345_0000, 0x7_0000_8000


def register(name, value, write=True):
    return Transaction(0, True, write, 0, 0, REGISTERS[name].offset, 1, 2, value.to_bytes(4, "little"))


def device(log_qps, log_window):
    """The map of one that was brought up with tables of CQs and QPs."""
    known = AddressMap(0)
    sizes = log_qps << reg.LOG_CAPABILITIES["qps"] | log_window << reg.LOG_CAPABILITIES["window"]
    known.take(register("capabilities", sizes, write=False))
    for name, value in (("cqc", CQC), ("qpc", QPC)):
        known.take(register(f"{name}_low", value & 0xFFFF_FFFF))
        known.take(register(f"{name}_high", value >> 32))
    known.take(register("cqc_log_size", 4))
    return known


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(("log_window", "size"), [(5, 2048), (6, 4096)])
def test_records(write, log_window, size):
    known = device(14, log_window)
    places = {
        QPC: ("qp", 0),
        QPC + size - 8: ("qp", 0),
        QPC + 777 * size + 64: ("qp", 777),
        QPC + (16383 + 1) * size - 8: ("qp", 16383),
        QPC + 16384 * size: ("other", 0),
        QPC - 8: ("other", 0),
        CQC: ("cq", 0),
        CQC + 16 * 64 - 8: ("cq", 0),
        CQC + 16 * 64: ("other", 0),
    }
    for address in places:
        known.take(Transaction(0, False, write, 0, 0, address, 5, 9, bytes(8)))
    assert [(access.kind, access.key) for access in known.accesses] == list(places.values())


def test_without_tables_there_are_no_records():
    known = AddressMap(0)
    known.take(Transaction(0, False, False, 0, 0, 0x40, 5, 9, bytes(8)))
    assert [access.kind for access in known.accesses] == ["other"]


def test_shared_receive_queues_are_no_queue_pairs():
    known = device(14, 5)
    for opcode in (Command.CREATE_SRQ, Command.MODIFY_SRQ):
        known.take(register("command", COMMAND.words(opcode=opcode, number=3)[0]))
    address = reg.SRQ_PAGES + 3 * reg.PAGE
    known.take(Transaction(0, True, True, 0, 0, address, 1, 2, (7).to_bytes(4, "little")))
    assert known.sessions == []
    known.take(register("command", COMMAND.words(opcode=Command.CREATE_QP, number=3)[0]))
    assert [session.number for session in known.sessions] == [3]
