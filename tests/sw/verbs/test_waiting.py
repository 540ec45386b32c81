"""Who waits, and for how long: as long as another thread may bring something about."""

import _thread
import errno
import threading

import pytest
from verbena.sim import attach
from verbena.sw.verbs.cq import CQ, CompChannel
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.waiting import EVENT_QUANTUM

COMPLETION, QP_FATAL = 128, 1


class Thread(threading.Thread):
    """Its ``result`` is what the function returned or raised."""

    def __init__(self, function):
        super().__init__(daemon=True)
        self.function = function
        self.start()

    def run(self):
        try:
            self.result = self.function()
        except PyverbsRDMAError as error:
            self.result = error.error_code

    def end(self):
        self.join(30)
        assert not self.is_alive()
        return self.result


@pytest.fixture
def channel(context):
    return CompChannel(context)


@pytest.fixture
def cq(context, channel):
    return CQ(context, 8, channel=channel)


class Looks:
    """Lets another thread go on when the device was found idle ``count`` times."""

    def __init__(self, device, count=3):
        self.event = threading.Event()
        self.left = count
        advance = device.advance

        def counted(max_cycles):
            busy = advance(max_cycles)
            self.left -= 1
            if self.left <= 0:
                self.event.set()
            return busy

        device.advance = counted

    def wait(self):
        assert self.event.wait(30)


@pytest.mark.parametrize("what", ["completion", "async"])
def test_another_thread_may_bring_it(device, context, channel, cq, make_qp, what):
    qp = make_qp()
    looks = Looks(device)

    def bring():
        looks.wait()
        device.event(*((COMPLETION, cq._number) if what == "completion" else (QP_FATAL, qp.qp_num)))

    other = Thread(bring)
    if what == "completion":
        assert channel.get_cq_event(cq) is cq
    else:
        event = context.get_async_event()
        assert event.element is qp
        event.ack()
    other.end()


def test_another_thread_may_take_it_from_the_device(device, context, channel, cq):
    """It polls, or runs a command, and so hands out what is for the one who waits."""
    looks = Looks(device)

    def take():
        looks.wait()
        device.event(COMPLETION, cq._number)
        return context._adapter.process_events()

    other = Thread(take)
    assert channel.get_cq_event(cq) is cq
    other.end()


def test_as_soon_as_all_others_are_gone_nothing_can_come(device, channel, cq):
    looks = Looks(device)
    other = Thread(looks.wait)
    with pytest.raises(PyverbsRDMAError, match="the device is idle") as caught:
        channel.get_cq_event(cq)
    assert caught.value.error_code == errno.EDEADLK
    assert looks.left <= 0
    other.end()


def test_a_thread_that_makes_no_calls_brings_nothing(device, channel, cq):
    """Such as the one that moves the time of another adapter, which is linked."""
    end = threading.Event()

    class Mover(threading.Thread):
        brings_nothing = True

        def run(self):
            end.wait(30)

    mover = Mover(daemon=True)
    mover.start()
    with pytest.raises(PyverbsRDMAError, match="the device is idle"):
        channel.get_cq_event(cq)
    end.set()
    assert len(device.advanced) == 1
    assert attach.Mover.brings_nothing


def test_who_is_linked_to_others_waits_for_them(device, channel, cq):
    """They may send any time, though the device has nothing to do. It gets whole quanta of time meanwhile."""
    device.linked = True
    advance = device.advance

    def sends(max_cycles):
        if len(device.advanced) == 5:
            device.event(COMPLETION, cq._number)
        return advance(max_cycles)

    device.advance = sends
    assert channel.get_cq_event(cq) is cq
    assert device.advanced == [EVENT_QUANTUM] * 6


def test_alone_it_is_told_at_once(device, channel, cq):
    ready, stop = threading.Event(), threading.Event()

    def unknown():
        threading.current_thread()  # puts itself on the list of `threading`, for ever
        ready.set()
        stop.wait(30)

    _thread.start_new_thread(unknown, ())
    assert ready.wait(30)
    with pytest.raises(PyverbsRDMAError, match="the device is idle"):
        channel.get_cq_event(cq)
    stop.set()
    assert len(device.advanced) == 1


def test_who_waits_too_brings_nothing(device, context, channel, cq):
    """Of two that wait for each other one is told, and then may bring what the other one waits for."""
    other_channel = CompChannel(context)
    other_cq = CQ(context, 8, channel=other_channel)

    def wait(mine, yours):
        try:
            assert mine.comp_channel.get_cq_event(mine) is mine
        except PyverbsRDMAError as error:
            device.event(COMPLETION, yours._number)
            return error.error_code
        return 0

    start = threading.Barrier(3)
    threads = [Thread(lambda pair=pair: (start.wait(30), wait(*pair))[1]) for pair in ((cq, other_cq), (other_cq, cq))]
    start.wait(30)
    # The thread that runs the test could act; so it waits in the same way, and is told when both are gone.
    idle = CompChannel(context)
    while any(thread.is_alive() for thread in threads):
        with pytest.raises(PyverbsRDMAError):
            idle.get_cq_event(None)
    assert sorted(thread.end() for thread in threads) in ([0, errno.EDEADLK], [errno.EDEADLK] * 2)


def test_who_closes_it_ends_the_wait(device, channel):
    looks = Looks(device)

    def close():
        looks.wait()
        channel.close()

    other = Thread(close)
    with pytest.raises(PyverbsRDMAError, match="CompChannel is closed"):
        channel.get_cq_event(None)
    other.end()
