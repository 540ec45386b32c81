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


def test_what_else_is_used():
    lines = header("send_bw", server=True, use_srq=True, rdma_cm=True)
    assert " Connection type : RC\t\tUsing SRQ      : ON" in lines
    assert lines[-4:-2] == [" rdma_cm QPs\t : ON", " Data ex. method : rdma_cm"]


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
        " remote address: LID 0000 QPN 0x0013 PSN 0xc26fe3",
        " remote address: LID 0000 QPN 0x0013 PSN 0xc26fe3 RKey 0x00045a VAddr 0x0055b19ee39000",
    ]
    key = Key(0, 0, GID, 1, 0x45A, 0x55B19EE39000, lid=0x1F)
    assert (
        next(iter(report.address("local", KINDS["send_bw"], key))) == " local address: LID 0x1f QPN 000000 PSN 000000"
    )


def table(name, outcome, **given):
    options = Options(**given)
    return [report.columns(KINDS[name], options), *report.row(outcome, options)]


def test_bandwidth():
    lines = table("write_bw", Report(3000, 20, 0.29, 0.286, 0.0001))
    assert lines == [
        " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]",
        " 3000       20               0.29               0.29   \t\t     0.000100",
    ]


def test_gigabits():
    lines = table("write_bw", Report(65536, 5, 1000, 500, 0.008), gbits=True)
    assert "BW average[Gb/sec]" in lines[0]
    assert lines[1].split() == ["65536", "5", "8.39", "4.19", "0.008000"]


def test_latency():
    latency = Latency(2, 1000, 1.61, 2.5, 1.63, 1.64, 0.01, 1.8, 2.4, 1.65, 303030.3)
    assert table("write_lat", latency) == [
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
        "99% percentile[usec]   99.9% percentile[usec] ",
        " 2       1000          1.61           2.50         1.63     \t       1.64        \t0.01   "
        "\t\t1.80    \t\t2.40   ",
    ]


LATENCY = Latency(2, 4, 1.0, 2.5, 1.5, 1.25, 0.25, 2.5, 2.5, 1.667, 600000.0, (1.5, 1.0, 2.5))


def test_each_time():
    assert table("read_lat", LATENCY, unsorted=True)[1:5] == ["#, usec", "1, 1.5", "2, 1", "3, 2.5"]
    assert table("read_lat", LATENCY, histogram=True)[1:5] == ["#, usec", "1, 1", "2, 1.5", "3, 2.5"]
    latency = Latency.of(2, [0, 1930, 3859, 5785], ways=2, clock_hz=156.25e6)
    lines = table("send_lat", latency, histogram=True, cycles=True)
    assert lines[0].count("[cycles]") == 7
    assert lines[1:5] == ["#, cycles", "1, 150.5", "2, 150.5", "3, 151"]
    assert lines[5].split()[:5] == ["2", "4", "150.50", "150.50", "150.50"]


def test_latency_of_a_duration():
    """perftest tells nothing but the mean then, and how many messages there and back went in a second."""
    lines = table("write_lat", LATENCY, duration=1.0)
    assert lines == [
        " #bytes        #iterations       t_avg[usec]    tps average",
        " 2             4            1.67           600000.00",
    ]
    assert table("write_lat", LATENCY, duration=1.0, unsorted=True)[1:5] == ["#, usec", "1, 1.5", "2, 1", "3, 2.5"]


def test_records():
    assert report.record(Report(65536, 5, 1000, 500, 0.008), Options(gbits=True)) == {
        "MsgSize": 65536,
        "n_iterations": 5,
        "BW_peak": pytest.approx(8.388608),
        "BW_average": pytest.approx(4.194304),
        "MsgRate": 0.008,
    }
    assert report.record(LATENCY, Options()) == {
        "MsgSize": 2,
        "n_iterations": 4,
        "t_min": 1.0,
        "t_max": 2.5,
        "t_typical": 1.5,
        "t_avg": 1.25,
        "t_stdev": 0.25,
        "percentile_99": 2.5,
        "percentile_99.9": 2.5,
    }
    assert report.record(LATENCY, Options(duration=1.0)) == {
        "MsgSize": 2,
        "n_iterations": 4,
        "t_avg": 1.667,
        "tps_average": 600000.0,
    }
    assert [report.unit(KINDS["send_lat"], Options(cycles=c)) for c in (True, False)] == ["cycles", "usec"]
