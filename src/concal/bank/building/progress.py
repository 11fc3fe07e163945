"""What an update reports while it runs and when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from concal.allocator import give_back
from concal.calibration.result import Convergence
from concal.calibration.verdict import error_text
from concal.consensus.result import Consensus
from concal.cost import Cost, measure_cost
from concal.linking.result import Link
from concal.shown import doubts, shown

if TYPE_CHECKING:
    from concal.calibration.sampler import Progress as Sampling

Progress = Callable[[str, float, str], None]
"""Called with the stage, the share of it that is done, and a message."""


@shown
@dataclass(frozen=True)
class Update:
    """What happened, as data.

    Attributes
    ----------
    version : int
        The bank's version after the update.
    action : str
    period : str or None
    warnings : tuple of str
        Of all stages.
    tables : dict of str -> polars DataFrame
        What the check found (exposure, groups, items, persons).
    convergence : Convergence or None
    link : Link or None
        The period's link to the reference.
    relinked : tuple of str
        Other periods that were linked anew.
    consensus : Consensus or None
        None when no period is left.
    costs : dict of stage -> Cost
        Wall seconds, CPU seconds of this process and its peak memory.
    """

    version: int
    action: str
    period: str | None
    warnings: tuple[str, ...]
    consensus: Consensus | None
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    convergence: Convergence | None = None
    link: Link | None = None
    relinked: tuple[str, ...] = ()
    costs: Mapping[str, Cost] = field(default_factory=dict)

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time by stage."""
        return {stage: cost.seconds for stage, cost in self.costs.items()}

    def _facts(self) -> dict[str, object]:
        consensus, convergence, link = self.consensus, self.convergence, self.link
        n = sum(len(g.item_ids) for g in consensus.groups.values()) if consensus else 0
        return {
            "version": f"{self.version}: {self.action}",
            "items": f"{n:,} on the metric of {consensus.reference}, method {consensus.method}" if consensus else None,
            "calibration": ("converged" if convergence.converged else "targets missed") if convergence else None,
            "anchors": link.anchors_in_words() if link is not None else None,
            "linked anew": ", ".join(self.relinked),
            "warnings": doubts(self.warnings),
            "seconds": f"{sum(self.seconds.values()):.1f}" if self.seconds else None,
        }


class Clock:
    """Times the stages and tells the progress callback."""

    def __init__(self, progress: Progress | None) -> None:
        self.costs: dict[str, Cost] = {}
        self._progress = progress

    @contextmanager
    def stage(self, name: str, message: str = "") -> Iterator[None]:
        """One stage; what those before it left free goes back to the system first."""
        give_back()
        self.tell(name, 0.0, message)
        with self.measured(name):
            yield
        self.tell(name, 1.0, message)

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Book what this costs under a stage, less what stages within it cost."""
        before = self._spent()
        with measure_cost() as cost:
            yield
        seconds, cpu_seconds = (now - then for now, then in zip(self._spent(), before, strict=True))
        known = self.costs.setdefault(name, Cost())
        known.seconds += cost.seconds - seconds
        known.cpu_seconds += cost.cpu_seconds - cpu_seconds
        known.peak_mib, known.since_start = max(known.peak_mib, cost.peak_mib), cost.since_start

    def _spent(self) -> tuple[float, float]:
        return sum(c.seconds for c in self.costs.values()), sum(c.cpu_seconds for c in self.costs.values())

    def tell(self, stage: str, share: float, message: str = "") -> None:
        """Report."""
        if self._progress is not None:
            self._progress(stage, share, message)

    def sampling(self, stage: str, report: Sampling) -> None:
        """What the engine reports while it samples (`concal.calibration.sampler.Progress`)."""
        sweep, expected, reached = report.sweep, report.expected_sweeps, report.reached
        notes = [f"{report.phase}, sweep {sweep}", f"{report.sweeps_per_second:.1f} sweeps/s"]
        if reached is not None:
            notes.append(f"worst R-hat {reached.max_rhat:.3f}, error {error_text(reached.error.mean)} of an SD")
        notes.append(_time_left(*report.remaining))
        if report.needs is not None:
            notes.append(f"the limit of sweeps comes first: the targets need some {_round(report.needs):,}")
        self.tell(stage, min(sweep / expected, 1.0) if expected else 0.0, ", ".join(notes))


def _round(n: int) -> int:
    """To two digits: more is not known of a forecast."""
    step = 10 ** max(len(str(n)) - 2, 0)
    return -(-n // step) * step


def _time_left(low: float, high: float | None) -> str:
    """A range of seconds, in words that promise no more than is known."""
    if high is None:
        return f"at least {low:.0f} s left"
    return f"about {high:.0f} s left" if high - low < max(5.0, 0.2 * high) else f"{low:.0f} to {high:.0f} s left"
