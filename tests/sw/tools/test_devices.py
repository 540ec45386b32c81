"""ibv_devices and ibv_devinfo: the columns of their models."""

import pytest
from fake_device import TRANSPORTS
from verbena.hdl.abi.registers import GID_ROWS, ROCE_V1
from verbena.sw.tools.devices import devices, devinfo
from verbena.sw.verbs.device import Device
from verbena.sw.verbs.device_attr import CAP_FLAGS


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    """Only the fake device is listed: to ask a simulated one would build a world."""
    found = [Device("fake0", 0)]
    monkeypatch.setattr("verbena.sw.tools.devices.get_device_list", lambda: found)
    return found


def test_a_device_that_cannot_be_opened_is_told(capsys, device, listed):
    listed.append(Device("nosuch", 1))
    assert devices([]) == 1
    out = capsys.readouterr().out
    assert "    fake0           \t005642fffe0000a1\n" in out
    assert "    nosuch          \t(no device 'nosuch'" in out


def test_devices(capsys, device):
    assert devices([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["    device          \t   node GUID", "    ------          \t----------------"]
    # EUI-64 of 02:56:42:00:00:a1, with the universal/local bit turned
    assert lines[2:] == ["    fake0           \t005642fffe0000a1"]


def test_devinfo(capsys, device):
    assert devinfo(["-d", "fake0"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "hca_id:\tfake0",
        "\ttransport:\t\t\tInfiniBand (0)",
        "\tfw_ver:\t\t\t\t0.1.0",
        "\tnode_guid:\t\t\t0056:42ff:fe00:00a1",
        "\tsys_image_guid:\t\t\t0056:42ff:fe00:00a1",
        "\tvendor_id:\t\t\t0x5652",
        "\tvendor_part_id:\t\t\t1",
        "\thw_ver:\t\t\t\t0x1",
        "\tphys_port_cnt:\t\t\t1",
        "\t\tport:\t1",
        "\t\t\tstate:\t\t\tPORT_ACTIVE (4)",
        "\t\t\tmax_mtu:\t\t4096 (5)",
        "\t\t\tactive_mtu:\t\t4096 (5)",
        "\t\t\tsm_lid:\t\t\t0",
        "\t\t\tport_lid:\t\t0",
        "\t\t\tport_lmc:\t\t0x00",
        "\t\t\tlink_layer:\t\tEthernet",
        "",
    ]


def test_verbose(capsys, device):
    assert devinfo(["-d", "fake0", "-i", "1", "-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "\tmax_qp:\t\t\t\t8" in lines
    assert "\tmax_cq:\t\t\t\t4" in lines
    assert "\tatomic_cap:\t\t\tATOMIC_HCA (1)" in lines
    assert f"\tdevice_cap_flags:\t\t{CAP_FLAGS:#010x}" in lines
    assert "\t\t\t\t\tRC_RNR_NAK_GEN" in lines
    assert "\t\t\tphys_state:\t\tLINK_UP (5)" in lines
    assert "\t\t\tactive_speed:\t\t10.0 Gbps (4)" in lines
    assert "\t\t\tGID[  0]:\t\t::ffff:10.0.0.161, RoCE v2" in lines


def test_gids_of_both_versions(capsys, device):
    device.registers[TRANSPORTS] |= 16 << GID_ROWS | ROCE_V1
    device.roce_v1 = True
    assert devinfo(["-d", "fake0", "-v"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "GID[" in line]
    assert lines == [
        f"\t\t\tGID[{index:3}]:\t\t{text}"
        for index, text in enumerate(
            [
                "::ffff:10.0.0.161, RoCE v2",
                "fe80:0000:0000:0000:0056:42ff:fe00:00a1, RoCE v2",
                "::ffff:10.0.0.161, RoCE v1",
                "fe80:0000:0000:0000:0056:42ff:fe00:00a1, RoCE v1",
            ]
        )
    ]


def test_a_port_without_a_link(capsys, device):
    device.registers[0x18] = 0
    assert devinfo(["-d", "fake0", "-v"]) == 0
    out = capsys.readouterr().out
    assert "\t\t\tstate:\t\t\tPORT_DOWN (1)\n" in out
    assert "\t\t\tphys_state:\t\tDISABLED (3)\n" in out


def test_list(capsys, listed):
    assert devinfo(["-l"]) == 0
    assert capsys.readouterr().out == "1 HCA found:\n\tfake0\n\n"
    listed.append(Device("fake1", 1))
    assert devinfo(["-l"]) == 0
    assert capsys.readouterr().out == "2 HCAs found:\n\tfake0\n\tfake1\n\n"
    listed.clear()
    assert devinfo(["-l"]) == 1
    assert capsys.readouterr().err == "ibv_devinfo: no RDMA devices found\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-d", "nosuch"], "Failed to find device nosuch"),
        (["-d", "fake0", "-i", "2"], "fake0 has no port 2, but 1 to 1"),
    ],
)
def test_what_is_wrong_is_one_line(capsys, device, arguments, complaint):
    assert devinfo(arguments) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert complaint in err


@pytest.mark.parametrize("program", [devices, devinfo])
def test_wrong_options_are_one_line_and_status_1(capsys, program):
    with pytest.raises(SystemExit) as caught:
        program(["--frobnicate"])
    out, err = capsys.readouterr()
    assert (caught.value.code, out, err.count("\n")) == (1, "", 1)
    assert "--frobnicate" in err
