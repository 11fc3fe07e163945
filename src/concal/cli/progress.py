"""Progress of long work: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Report = Callable[[str, float, str], None]
LINE_SECONDS = 15.0


@contextmanager
def shown_progress(wanted: bool, *, resumes: bool = True) -> Iterator[Report | None]:
    """A function (stage, share done, message) that shows where an update stands, on standard error.

    Ctrl-C ends the command with the way to go on instead of a traceback; `resumes` where work so far is kept.
    """
    try:
        if not wanted:
            yield None
        elif sys.stderr.isatty():
            with _bars() as report:
                yield report
        else:
            yield plain_lines()
    except KeyboardInterrupt:
        again = "the same command goes on where it stopped" if resumes else "give the same command again"
        sys.stderr.write(f"interrupted: nothing visible has changed; {again}\n")
        sys.exit(130)


@contextmanager
def _bars() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def report(stage: str, share: float, message: str) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=1.0, note="")
            bars.update(tasks[stage], completed=share, note=message)

        yield report


def plain_lines(clock: Callable[[], float] = time.monotonic) -> Report:
    """One line when a stage begins and, while it lasts, one every `LINE_SECONDS`."""
    told: dict[str, float] = {}

    def report(stage: str, share: float, message: str) -> None:
        now = clock()
        if stage in told and now - told[stage] < LINE_SECONDS:
            return
        told[stage] = now
        detail = f": {message}" if message else ""
        sys.stderr.write(f"{stage} {share:4.0%}{detail}\n")
        sys.stderr.flush()

    return report
