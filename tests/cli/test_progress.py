"""Progress where there is no terminal."""

from concal.cli.progress import LINE_SECONDS, plain_lines


def test_plain_lines_come_when_a_stage_begins_and_then_seldom(capsys):
    now = [0.0]
    report = plain_lines(clock=lambda: now[0])
    for second in range(40):
        now[0] = float(second)
        report("calibrate", second / 40, f"sweep {second}")
    report("link", 0.0, "")
    lines = capsys.readouterr().err.splitlines()
    expected = [f"calibrate {s / 40:4.0%}: sweep {s}" for s in range(0, 40, int(LINE_SECONDS))]
    assert lines == [*expected, "link   0%"]
