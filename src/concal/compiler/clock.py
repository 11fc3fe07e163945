"""What compiling has cost this process."""

from __future__ import annotations

import time
from threading import Lock
from typing import Any

from numba.core import event


class _Clock(event.Listener):  # type: ignore[misc]
    """Adds up compilations; those of functions that are compiled along the way are part of the first one's."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._since, self._lock = 0.0, 0, 0.0, Lock()

    def on_start(self, event: Any) -> None:
        with self._lock:
            self._since = self._since if self._depth else time.perf_counter()
            self._depth += 1

    def on_end(self, event: Any) -> None:
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self.seconds += time.perf_counter() - self._since


_CLOCK = _Clock()
event.register("numba:compile", _CLOCK)


def compile_seconds() -> float:
    """Seconds this process has spent compiling so far; machine code that was found costs none."""
    return _CLOCK.seconds
