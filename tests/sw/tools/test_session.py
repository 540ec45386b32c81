"""Sessions take turns."""

import pytest
from verbena.sw.tools.session import WORKED, Patience, ToolError, run


def test_results_come_in_order():
    def session(turns):
        for _ in range(turns):
            yield WORKED
        return turns

    assert run(session(3), session(0), session(1)) == [3, 0, 1]


def test_a_session_hears_whether_another_one_lets_time_pass():
    heard = []

    def waiting():
        for _ in range(4):
            heard.append((yield))

    def working():
        yield WORKED
        yield

    run(waiting(), working())
    assert heard == [True, False, False, False]


def test_alone_nobody_lets_time_pass():
    heard = []

    def waiting():
        heard.append((yield))

    run(waiting())
    assert heard == [False]


def test_if_one_fails_the_others_are_closed():
    closed = []

    def other():
        try:
            while True:
                yield
        finally:
            closed.append(True)

    def failing():
        yield
        raise ToolError("enough")

    with pytest.raises(ToolError, match="enough"):
        run(other(), failing())
    assert closed == [True]


def test_patience(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    patience = Patience(5)
    now[0] = 104.9
    patience.check("rain")
    patience.renew()
    now[0] = 109.8
    patience.check("rain")
    now[0] = 110.0
    with pytest.raises(ToolError, match="waited 5 s in vain for rain"):
        patience.check("rain")
    Patience().check("rain")
