"""The sampler: start, warm-up, sampling until the targets hold, with checkpoints."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from concal.calibration.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from concal.calibration.layout import Layout
from concal.calibration.saving import Part, Saving
from concal.calibration.state import initial_state
from concal.calibration.sweep import NEWTON_START, Sweep
from concal.calibration.targets import Reached
from concal.calibration.trace import Trace
from concal.calibration.workers import Workers
from concal.compiler import compile_seconds
from concal.spec import CalibrationSpec

WARMUP = 80
"""Two rounds of learning for the carried moves; whether it was enough R-hat decides. With 120 or 200 sweeps errors
after as many sampled ones were the same (600 items, a third of them with few responses: .055 SD and 4 % of the SDs;
2,300 items with 600,000 responses: .037 and 2.7 %)."""
FAR_APART = 1.3  # R-hat of eight chains with 27 effective draws in all
FEWEST_SWEEPS = 20  # sampled even when a limit cuts the warm-up short
CHECKPOINT_SECONDS = 60.0
LOST_AT_MOST = 0.2
"""Share of a run's time since its last checkpoint: a long run writes less often, and what a crash costs stays small."""


@dataclass(frozen=True)
class Progress:
    """What a progress display shows.

    `remaining` is a range in seconds; it has no upper end while nothing is known about how the chains mix. `needs` is
    how many sweeps the targets seem to take at least, where the limit of sweeps comes before that.
    """

    phase: str
    sweep: int
    expected_sweeps: int
    sweeps_per_second: float
    reached: Reached | None
    remaining: tuple[float, float | None]
    needs: int | None = None


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Sampled:
    """What a run leaves for its result. The state of the chains and what moves keep is not among it.

    Attributes
    ----------
    converged : bool
        Whether every target held at the last check.
    stuck : tuple of (group, index)
        Items that some chain never moved while sampling.
    still : tuple of (group, parameter)
        What the items of a group share (slope, steps), where some chain never moved it.
    stopped_by : str or None
        The option that ended the run before its targets held.
    """

    trace: Trace
    spec: CalibrationSpec
    threads: int
    sweeps: int
    warmup: int
    seconds: float
    converged: bool
    stuck: tuple[tuple[str, int], ...]
    still: tuple[tuple[str, str], ...]
    stopped_by: str | None


class Stopped(Exception):
    """Raised by a report to end the run as Ctrl-C does: its checkpoint stays."""


class Sampler(Saving):
    """Chains of one layout; `run` goes on until the targets hold or a limit is reached."""

    saved_fields = ("warmup_end", "seconds")

    def __init__(self, layout: Layout, spec: CalibrationSpec, seed: int, threads: int) -> None:
        self.layout, self.spec, self.seed, self.threads = layout, spec, seed, threads
        self.workers = Workers(threads)
        self.moves = Sweep(layout, spec.tau, seed, self.workers)
        self.state = initial_state(layout, seed)
        self.trace = Trace(layout, spec)
        self.warmup_end = NEWTON_START + WARMUP
        self.seconds = 0.0
        self.cut_short = False
        self.stopped_by: str | None = None

    def parts(self) -> Mapping[str, Part]:
        """See `concal.calibration.saving.Saving`."""
        return {"state": self.state, "moves": self.moves, "trace": self.trace}

    def close(self) -> None:
        """Stop the worker threads."""
        self.workers.close()

    def sampled(self) -> Sampled:
        """What is left of the run."""
        return Sampled(
            trace=self.trace,
            spec=self.spec,
            threads=self.threads,
            sweeps=self.state.sweep,
            warmup=self.warmup_end,
            seconds=self.seconds,
            converged=self.converged,
            stuck=self._stuck(),
            still=self._still(),
            stopped_by=self.stopped_by,
        )

    def _stuck(self) -> tuple[tuple[str, int], ...]:
        counts = zip(self.layout.groups, self.moves.units.item_accepted, strict=True)
        still = ((g.name, (c[:, : self.spec.chains] == 0).any(axis=1)) for g, c in counts)
        return tuple((name, int(j)) for name, items in still for j in np.flatnonzero(items))

    def _still(self) -> tuple[tuple[str, str], ...]:
        found = []
        for common in self.layout.in_common:
            k, c = common.members[0], common.coordinate
            drawn = self.trace.final(f"group{k}/beta")[:, :, 0, c]  # several moves change it: the draws tell
            if drawn.shape[1] > 1 and (drawn == drawn[:, :1]).all(axis=1).any():
                found.append((self.layout.groups[k].name, self.layout.groups[k].model.parameters[c]))
        return tuple(found)

    def sweep(self) -> None:
        """One sweep of every chain."""
        adapting = self.state.sweep < self.warmup_end
        # where the last sampled sweep ended is where this one's gradients are averaged: no pass of their own
        moments = self.trace.averages if self.trace.sweeps else None
        self.moves.run(self.state, adapting=adapting, moments=moments)

    def run(self, checkpoint: Checkpoint | None = None, report: Report | None = None, *, resume: bool = True) -> bool:
        """Sample; True when all targets hold. An interrupted run leaves its checkpoint behind."""
        if checkpoint is not None and resume and checkpoint.path.exists():
            load_checkpoint(checkpoint, self)
        with at_sweep_ends() as interrupted:
            return self._run(checkpoint, report, interrupted)

    def _run(self, checkpoint: Checkpoint | None, report: Report | None, interrupted: Callable[[], bool]) -> bool:
        started, saved, whole = time.monotonic() - self.seconds, time.monotonic(), True
        compiled = compile_seconds()
        try:
            while True:
                limit = self._limit()
                if limit and self.state.sweep < self.warmup_end:
                    self.leave(checkpoint)  # a longer run goes on from here, as if there had been no limit
                    self.cut_short = True
                    self.warmup_end = self.state.sweep + 1  # no time left to warm up: sample what there is
                if (self.trace.due or (limit and self.trace.sweeps >= FEWEST_SWEEPS)) and self._done(limit):
                    return self.converged
                whole = False
                self.sweep()
                self._keep()
                whole = True
                now = time.monotonic()
                self.seconds = now - started
                if checkpoint is not None and now - saved > max(CHECKPOINT_SECONDS, LOST_AT_MOST * self.seconds):
                    self.leave(checkpoint)
                    saved = time.monotonic()
                if report is not None and (self.state.sweep % 10 == 0 or self.state.sweep < 5):
                    report(self._progress(compile_seconds() - compiled))
                if interrupted():
                    raise KeyboardInterrupt
        except (KeyboardInterrupt, Stopped):
            if whole:
                self.leave(checkpoint)
            raise

    def leave(self, checkpoint: Checkpoint | None) -> None:
        """Save where the run is; one whose warm-up a limit has cut short left its checkpoint before that."""
        if checkpoint is not None and not self.cut_short:
            save_checkpoint(checkpoint, self)

    def _keep(self) -> None:
        if self.state.sweep == self.warmup_end:
            self.moves.units.forget_acceptance()
        elif self.state.sweep > self.warmup_end:
            self.trace.record(self.state, self.moves.units)

    @property
    def converged(self) -> bool:
        """Whether every target held at the last check."""
        return self.trace.reached is not None and self.trace.reached.converged

    def _limit(self) -> str | None:
        """The option that ends the run now, if any."""
        if self.spec.max_minutes is not None and self.seconds > 60.0 * self.spec.max_minutes:
            return "max_minutes"
        return "max_sweeps" if self.state.sweep >= self.spec.max_sweeps else None

    def _done(self, limit: str | None) -> bool:
        """Check the targets; prolong the warm-up when it had been too short, else plan the next check."""
        trace, spec = self.trace, self.spec
        reached = trace.look(spec, self.threads)
        if reached.converged:
            return True
        if limit:
            self.stopped_by = limit
            return True
        # After four times the warm-up, chains that only mix slowly are nearer to each other: these had not met.
        not_met = reached.max_rhat > FAR_APART and trace.sweeps >= 4 * self.warmup_end
        if not_met or trace.began_outside(self.state):
            # What was sampled becomes warm-up, and what moves learned while the chains disagreed is learned anew.
            self.warmup_end = self.state.sweep + WARMUP
            self.moves.forget()
            trace.clear()
            return False
        trace.plan_next(spec)
        return False

    def _progress(self, compiling: float) -> Progress:
        """Where the run is; seconds spent compiling say nothing about those to come."""
        sweep, trace = self.state.sweep, self.trace
        speed = sweep / max(self.seconds - compiling, 1e-9)
        warm = sweep < self.warmup_end
        low, high = (self.warmup_end + n if n is not None else None for n in trace.forecast.range(trace.next_check))
        assert low is not None
        limit = self.spec.max_sweeps
        last, most = min(low, limit), None if high is None else min(high, limit)
        return Progress(
            "start" if sweep <= NEWTON_START else "warm-up" if warm else "sampling",
            sweep,
            most or last,
            speed,
            trace.reached if not warm else None,
            (max(last - sweep, 0) / speed, None if most is None else max(most - sweep, 0) / speed),
            low if low > limit else None,
        )


@contextmanager
def at_sweep_ends() -> Iterator[Callable[[], bool]]:
    """Hold back Ctrl-C until the sweep is whole, so that a checkpoint never saves half a sweep; twice ends at once.

    A process that was started to ignore Ctrl-C (in the background of a script) goes on ignoring it.
    """
    asked = False

    def remember(signum: int, frame: object) -> None:
        nonlocal asked
        if asked:
            signal.default_int_handler(signum, None)
        asked = True

    ignored = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)
    if ignored or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    previous = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, previous)
