"""What a test prints, against what perftest 4.5 printed of a test with the same figures."""

import pytest
from verbena.sw.tools.exchange.perftest import Key, Report
from verbena.sw.tools.perftest import report
from verbena.sw.tools.perftest.kinds import KINDS
from verbena.sw.tools.perftest.latency import Latency
from verbena.sw.tools.perftest.options import Options

GID = bytes.fromhex("00000000000000000000ffff0a0000f0")


def header(name, *, server, **given):
    kind = KINDS[name]
    return list(report.header(kind, Options(**given).resolved(kind), "sim0", 4096, server=server))


def test_header():
    assert header("write_bw", server=False, iterations=20, size=3000) == [
        "---------------------------------------------------------------------------------------",
        "                    RDMA_Write BW Test",
        " Dual-port       : OFF\t\tDevice         : sim0",
        " Number of qps   : 1\t\tTransport type : IB",
        " Connection type : RC\t\tUsing SRQ      : OFF",
        " TX depth        : 20",
        " CQ Moderation   : 20",
        " Mtu             : 4096[B]",
        " Link type       : Ethernet",
        " GID index       : 0",
        " Max inline data : 0[B]",
        " rdma_cm QPs\t : OFF",
        " Data ex. method : Ethernet",
        " Times           : the device's",
        "---------------------------------------------------------------------------------------",
    ]


@pytest.mark.parametrize(
    ("name", "server", "both", "depths"),
    [
        ("write_bw", False, False, ["TX"]),
        ("write_bw", True, False, []),
        ("write_bw", True, True, ["TX"]),
        ("send_bw", False, False, ["TX"]),
        ("send_bw", True, False, ["RX"]),
        ("send_bw", True, True, ["TX", "RX"]),
        ("send_lat", True, False, ["RX"]),
        ("read_lat", False, False, ["TX"]),
    ],
)
def test_depths_of_the_queues_that_count(name, server, both, depths):
    lines = header(name, server=server, bidirectional=both)
    assert [line.split()[0] for line in lines if "depth" in line] == depths
    assert any("CQ Moderation" in line for line in lines) == name.endswith("bw")


def test_titles():
    def title(name, **given):
        return report.title(KINDS[name], Options(**given))

    assert title("send_bw", bidirectional=True) == "Send Bidirectional BW Test"
    assert title("read_lat") == "RDMA_Read Latency Test"
    assert title("atomic_bw") == "Atomic FETCH_AND_ADD BW Test"
    assert title("atomic_lat", compare_and_swap=True) == "Atomic CMP_AND_SWAP Latency Test"


def test_addresses():
    key = Key(0x13, 0xC26FE3, GID, 16, 0x45A, 0x55B19EE39000)
    assert list(report.address("local", KINDS["write_bw"], key)) == [
        " local address: LID 0000 QPN 0x0013 PSN 0xc26fe3 RKey 0x00045a VAddr 0x0055b19ee39000",
        " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:240",
    ]
    first = [next(iter(report.address("remote", KINDS[name], key))) for name in ("read_bw", "send_bw", "atomic_bw")]
    assert first == [
        " remote address: LID 0000 QPN 0x0013 PSN 0xc26fe3 OUT 0x10 RKey 0x00045a VAddr 0x0055b19ee39000",
        *[" remote address: LID 0000 QPN 0x0013 PSN 0xc26fe3"] * 2,
    ]


def test_bandwidth():
    lines = list(report.results(Report(3000, 20, 0.29, 0.286, 0.0001), Options()))
    assert lines[1:3] == [
        " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]",
        " 3000       20               0.29               0.29   \t\t     0.000100",
    ]
    assert lines[0] == lines[3] == "-" * 87


def test_gigabits():
    lines = list(report.results(Report(65536, 5, 1000, 500, 0.008), Options(gbits=True)))
    assert "BW average[Gb/sec]" in lines[1]
    assert lines[2].split() == ["65536", "5", "8.39", "4.19", "0.008000"]


def test_latency():
    latency = Latency(2, 1000, 1.61, 2.5, 1.63, 1.64, 0.01, 1.8, 2.4)
    assert list(report.results(latency, Options()))[1:3] == [
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
        "99% percentile[usec]   99.9% percentile[usec] ",
        " 2       1000          1.61           2.50         1.63     \t       1.64        \t0.01   "
        "\t\t1.80    \t\t2.40   ",
    ]
