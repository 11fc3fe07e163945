"""A calibration on its shelf: finished by an earlier run, or sampled from its checkpoint, or from the start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from concal.allocator import give_back
from concal.bank.building.new_period import finished_tables, keep_calibration
from concal.bank.jobs.travel import TravellingCheckpoint
from concal.bank.store.files import disk_errors
from concal.bank.store.manifest import FileEntry
from concal.bank.store.shelf import Shelf
from concal.bank.store.store import Store
from concal.calibration.fingerprint import fingerprint
from concal.calibration.period import calibrate_period
from concal.calibration.result import Calibration
from concal.data.period import PeriodData
from concal.errors import BankError
from concal.spec import Spec


class Calibrator(Protocol):
    """What calibrates a period: `concal.calibration.period.calibrate_period`, or anything with its signature."""

    def __call__(
        self,
        data: PeriodData,
        spec: Spec,
        *,
        period: str,
        seed: int,
        checkpoint: Path | None,
        progress: Callable[..., None] | None,
        resume: bool,
    ) -> Calibration:
        """Draws of the period on its own metric."""


def calibrator_of(asked: Calibrator | None, cluster: object | None) -> Calibrator:
    """The one asked for, or concal's own engine: the only one that the workers of a cluster have."""
    if asked is None:
        return calibrate_period
    if cluster is not None and asked is not calibrate_period:
        raise BankError(
            "a cluster calibrates with concal's own engine; leave out `cluster` to calibrate with another one here, or "
            "`calibrator` to calibrate there"
        )
    return asked


@dataclass(frozen=True)
class Task:
    """A calibration, and the shelf it is to be on: held by this process, lent to a worker."""

    shelf: Shelf
    data: PeriodData
    spec: Spec
    seed: int

    @classmethod
    def of(cls, store: Store, data: PeriodData, spec: Spec, seed: int, run: Calibrator) -> Task:
        """On the shelf that is named by everything the draws depend on."""
        return cls(Shelf(store, data.period, fingerprint(data, spec, seed, run)), data, spec, seed)


def calibrate_on_shelf(
    task: Task, run: Calibrator, *, progress: Callable[..., None] | None, resume: bool = True
) -> dict[str, FileEntry]:
    """Calibrate on this machine; returns the finished tables, which stay on the shelf.

    Parameters
    ----------
    task
        What is calibrated, and where.
    run
        What calibrates.
    progress
        As the engine calls it.
    resume
        False: from the start, whatever is there.
    """
    shelf, data, spec = task.shelf, task.data, task.spec
    if resume:
        if done := finished_tables(shelf, spec.calibration):
            return done
        TravellingCheckpoint(shelf.store, shelf.folder).fetch()
    with disk_errors(f"calibrating period {data.period!r}"):
        calibration = run(
            data,
            spec,
            period=data.period,
            seed=task.seed,
            checkpoint=shelf.checkpoint,
            progress=progress,
            resume=resume,
        )
    give_back()
    return keep_calibration(shelf, calibration, spec)


@contextmanager
def until_done(shelf: Shelf) -> Iterator[None]:
    """Clear a shelf when what it is needed for is done; after an error the next run finds what there is."""
    try:
        yield
    except BaseException:
        shelf.release()
        raise
    TravellingCheckpoint(shelf.store, shelf.folder).clear()
    shelf.clear()
