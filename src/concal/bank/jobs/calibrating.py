"""A calibration on its shelf: finished by an earlier run, or sampled from its checkpoint, or from the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from concal.allocator import give_back
from concal.bank.building.new_period import finished_tables, keep_calibration
from concal.bank.jobs.travel import TravellingCheckpoint
from concal.bank.store.files import disk_errors
from concal.bank.store.manifest import FileEntry
from concal.bank.store.shelf import Shelf
from concal.bank.store.store import Store
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


def calibrate_on_shelf(
    store: Store,
    shelf: Shelf,
    run: Calibrator,
    data: PeriodData,
    spec: Spec,
    seed: int,
    *,
    progress: Callable[..., None] | None,
    resume: bool = True,
) -> dict[str, FileEntry]:
    """Calibrate on this machine; returns the finished tables, which stay on the shelf.

    Parameters
    ----------
    store, shelf
        The bank's, and the calibration's own.
    run
        What calibrates.
    data, spec, seed
        What the shelf's fingerprint was made from.
    progress
        As the engine calls it.
    resume
        False: from the start, whatever is there.
    """
    if resume:
        if done := finished_tables(shelf, spec.calibration):
            return done
        TravellingCheckpoint(store, shelf.folder).fetch()
    with disk_errors(f"calibrating period {data.period!r}"):
        calibration = run(
            data,
            spec,
            period=data.period,
            seed=seed,
            checkpoint=shelf.checkpoint,
            progress=progress,
            resume=resume,
        )
    give_back()
    return keep_calibration(shelf, calibration, spec)
