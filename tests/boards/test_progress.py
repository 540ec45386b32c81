"""What is said of a build's stages."""

from verbena.boards import progress


def test_a_line_a_stage_and_one_a_minute(monkeypatch, capsys):
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    say = progress.Stages("blinker")
    for after, text in ((0, "placing"), (1, "placing"), (61, "routing, 9 left"), (119, "routing, 8 left")):
        now = 100.0 + after
        say(text)
    now = 221.0
    say("routing, 7 left")
    assert say.seconds == 121
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["  0:00  blinker: placing", "  1:01  blinker: routing, 9 left", "  2:01  blinker: routing, 7 left"]
