"""What a bandwidth test posts, and what it makes of its times."""

from types import SimpleNamespace

import pytest
from verbena.sw.tools.perftest import bandwidth
from verbena.sw.tools.perftest.bandwidth import MIB, Receiver, Sender, transfer
from verbena.sw.tools.perftest.kinds import KINDS
from verbena.sw.tools.perftest.options import Options
from verbena.sw.tools.session import ToolError, run
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

RECV = 128


class Queue:
    """A queue pair that notes down what is posted."""

    def __init__(self, number):
        self.qp_num = number
        self.sends = []
        self.receives = []

    def post_send(self, wr):
        self._note(self.sends, wr, lambda wr: (wr.wr_id, bool(wr.send_flags)))

    def post_recv(self, wr):
        self._note(self.receives, wr, lambda wr: wr.wr_id)

    @staticmethod
    def _note(into, wr, what):
        while wr is not None:
            into.append(what(wr))
            wr = wr.next_wr


class End:
    """An endpoint whose clock the test sets."""

    header = 0

    def __init__(self, qps, srq=None):
        self.qps = [Queue(0x40 + i) for i in range(qps)]
        self.srq = srq
        self.receives = self.qps if srq is None else [srq]
        self.index = {qp.qp_num: i for i, qp in enumerate(self.qps)}
        self.now = 0
        self.context = SimpleNamespace(time_ns=lambda: self.now)
        self.found = []

    def poll(self):
        return self.found.pop(0)


MESSAGES = SimpleNamespace(
    send=lambda index, number, signaled: (
        SendWR(number, num_sge=1, sg=[SGE(0, 0, 0)])
        if signaled
        else SendWR(number, num_sge=1, sg=[SGE(0, 0, 0)], send_flags=0)
    ),
    receive=lambda index, number: RecvWR(number),
)


def options(name="write_bw", **given):
    return Options(**given).resolved(KINDS[name])


def sent(number, qp=0x40):
    return SimpleNamespace(qp_num=qp, wr_id=number, opcode=1)


def received(number, size, qp=0x40):
    return SimpleNamespace(qp_num=qp, wr_id=number, opcode=RECV, byte_len=size)


def test_posts_fill_the_queue_and_some_are_signaled():
    end = End(1)
    sender = Sender(end, MESSAGES, options(iterations=10, tx_depth=6, cq_mod=4))
    sender.post()
    assert end.qps[0].sends == [(0, False), (1, False), (2, False), (3, True), (4, False), (5, False)]
    sender.post()
    assert len(end.qps[0].sends) == 6
    sender.complete(sent(3))
    sender.post()
    assert end.qps[0].sends[6:] == [(6, False), (7, True), (8, False), (9, True)]
    sender.complete(sent(7))
    assert not sender.done
    sender.complete(sent(9))
    assert sender.done


def test_report():
    end = End(2)
    sender = Sender(end, MESSAGES, options(size=MIB, iterations=5, qps=2, tx_depth=3, cq_mod=1))
    end.now = 1_000_000
    sender.post()  # three on each
    for number, time in enumerate((100, 200, 205, 206, 207)):
        for qp in (0x40, 0x41):
            end.now = 1_000_000 + time * 1_000_000
            sender.complete(sent(number, qp))
            sender.post()
    assert sender.done
    report = sender.report()
    assert (report.size, report.iterations) == (MIB, 10)
    assert report.average == pytest.approx(10 / 0.207)
    assert report.message_rate == pytest.approx(10 / 0.207e6)
    # The last of each queue pair were posted at 200 ms and complete at 207 ms.
    assert report.peak == pytest.approx(2 / 0.007)


def test_a_peak_that_would_take_too_long(monkeypatch):
    monkeypatch.setattr(bandwidth, "PEAK_WORK", 24)
    end = End(1)
    sender = Sender(end, MESSAGES, options(size=8, iterations=5, cq_mod=1))
    sender.post()
    end.now = 1000
    for number in range(5):
        sender.complete(sent(number))
    assert sender.report().peak == 0
    assert sender.report().average > 0


def test_receives_are_posted_anew():
    end = End(1)
    receiver = Receiver(end, MESSAGES, options("send_bw", size=100, iterations=5, rx_depth=2))
    receiver.post()
    assert end.qps[0].receives == [0, 1]
    assert not receiver.begun
    receiver.complete(received(0, 100))
    receiver.post()
    assert receiver.begun
    for number in range(1, 5):
        assert not receiver.done
        end.now += 1000
        receiver.complete(received(number, 100))
        receiver.post()
    assert receiver.done
    assert end.qps[0].receives == [0, 1, 2, 3, 4]
    assert receiver.report().average == pytest.approx(400 / 4e-6 / MIB)


@pytest.mark.parametrize("wrong", [received(0, 99), received(1, 100)])
def test_a_message_that_should_not_be(wrong):
    receiver = Receiver(End(1), MESSAGES, options("send_bw", size=100, iterations=5))
    with pytest.raises(ToolError, match="message 0 of 100 bytes should be here"):
        receiver.complete(wrong)


def test_who_answers_sends_after_the_first_message():
    end = End(1)
    given = options("send_bw", size=100, iterations=5, cq_mod=5)
    sender, receiver = Sender(end, MESSAGES, given), Receiver(end, MESSAGES, given)
    receiver.post()
    session = transfer(end, sender, receiver, answer=True)
    end.found = [[], [received(0, 100)], [received(i, 100) for i in range(1, 5)], [sent(4)]]
    next(session)
    next(session)
    assert end.qps[0].sends == []
    run(session)
    assert len(end.qps[0].sends) == 5


def test_lists_are_posted_whole():
    end = End(1)
    sender = Sender(end, MESSAGES, options(size=8, iterations=10, tx_depth=9, post_list=4))
    sender.post()
    assert [number for number, _ in end.qps[0].sends] == list(range(8))
    assert [number for number, signaled in end.qps[0].sends if signaled] == [3, 7]
    sender.post()
    assert len(end.qps[0].sends) == 8
    sender.complete(sent(3))
    sender.post()
    assert end.qps[0].sends[8:] == [(8, False), (9, True)]  # what is left is no whole list


def test_a_duration():
    end = End(1)
    sender = Sender(end, MESSAGES, options(size=8, duration=1e-6, tx_depth=4, cq_mod=2))
    assert not sender.done
    sender.post()
    end.now = 999
    sender.complete(sent(1))
    sender.post()
    assert len(end.qps[0].sends) == 6
    end.now = 1000
    sender.complete(sent(3))
    sender.post()
    assert len(end.qps[0].sends) == 6
    assert not sender.done
    end.now = 1500
    sender.complete(sent(5))
    assert sender.done
    report = sender.report()
    assert (report.iterations, report.peak) == (6, 0)
    assert report.message_rate == pytest.approx(4)


def test_no_peak():
    end = End(1)
    sender = Sender(end, MESSAGES, options(size=8, iterations=5, cq_mod=1, peak=False))
    sender.post()
    end.now = 1000
    for number in range(5):
        sender.complete(sent(number))
    assert sender.report().peak == 0
    assert sender.report().average > 0


def test_a_shared_queue_is_posted_to_as_a_whole():
    srq = Queue(None)
    end = End(2, srq)
    places = []
    messages = SimpleNamespace(receive=lambda index, number: places.append((index, number)) or RecvWR(len(places)))
    options = Options(size=8, iterations=5, qps=2, rx_depth=6, use_srq=True).resolved(KINDS["send_bw"])
    receiver = Receiver(end, messages, options)
    receiver.post()
    assert places == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    for qp, number in ((0x41, 3), (0x41, 1), (0x40, 2)):  # in any order
        receiver.complete(received(number, 8, qp))
    receiver.post()
    assert places[6:] == [(0, 3), (1, 3), (0, 4)]
    assert srq.receives == list(range(1, 10))
    for number in range(7):
        assert not receiver.done
        receiver.complete(received(number, 8))
    assert receiver.done
