"""A period in shards: dealt, calibrated one after the other or on a cluster, put together.

Every shard has a shelf of its own until the period is committed, so a run that was interrupted, or refused because a
shard had not converged, goes on with the shards that have not. What comes out is one calibration; the bank does not see
that there were shards, but for the engine's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from concal.bank.building.new_period import finished_tables
from concal.bank.building.progress import Clock
from concal.bank.jobs.calibrating import Calibrator, calibrate_on_shelf
from concal.bank.jobs.cluster import Cluster, Task, calibrate_there, connected
from concal.bank.jobs.travel import TravellingCheckpoint, drop_tables
from concal.bank.store.manifest import FileEntry
from concal.bank.store.shelf import Shelf
from concal.bank.store.store import Store
from concal.bank.tables.calibration import read_calibration
from concal.bank.tables.results import read_factors
from concal.calibration.fingerprint import fingerprint
from concal.calibration.result import Calibration
from concal.calibration.streams import seed_of
from concal.consensus.shards import unite_shards
from concal.data.deal import deal, of_shards
from concal.data.period import PeriodData
from concal.spec import Spec


@dataclass(frozen=True)
class ShardedRun:
    """Calibrates a period shard by shard; see `concal.bank.jobs.calibrating.Calibrator`.

    Attributes
    ----------
    store : Store
    run : Calibrator
        What calibrates a shard on this machine.
    clock : Clock
    cluster : address or client, or None
        Where the shards are calibrated side by side.
    """

    store: Store
    run: Calibrator
    clock: Clock
    cluster: Cluster | None = None

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
        n, alone = spec.calibration.shards, of_shards(spec, 1)
        parts, seeds = self._deal(data, spec, seed)
        shelves = [Shelf(self.store, data.period, name) for name in self.identities(data, spec, seed)]
        try:
            calibrate = self._here if self.cluster is None else self._elsewhere
            files = calibrate(parts, alone, seeds, shelves, resume)
            readers = [shelf.reader(found) for shelf, found in zip(shelves, files, strict=True)]
            shards, factors = [read_calibration(r) for r in readers], [read_factors(r) for r in readers]
            self.clock.tell("calibrate", 0.95, f"putting {n} shards together")
            return unite_shards(shards, data, spec, seed=seed, factors=factors)
        finally:
            for shelf in shelves:
                shelf.release()

    def clear(self, period: str, identities: Sequence[str]) -> None:
        """The period is committed: nobody needs its shards any more."""
        for identity in identities:
            shelf = Shelf(self.store, period, identity)
            TravellingCheckpoint(self.store, shelf.folder).clear()
            shelf.clear()

    def identities(self, data: PeriodData, spec: Spec, seed: int) -> list[str]:
        """Of every shard: what its shelf is named by."""
        parts, seeds = self._deal(data, spec, seed)
        alone = of_shards(spec, 1)
        return [fingerprint(part, alone, s, self.run) for part, s in zip(parts, seeds, strict=True)]

    def _deal(self, data: PeriodData, spec: Spec, seed: int) -> tuple[list[PeriodData], list[int]]:
        """Data and seed of every shard."""
        n = spec.calibration.shards
        return deal(data, n), [seed_of(seed, k, n) for k in range(n)]

    def _here(
        self, parts: list[PeriodData], spec: Spec, seeds: list[int], shelves: list[Shelf], resume: bool
    ) -> list[dict[str, FileEntry]]:
        """The finished tables of the shards, calibrated one after the other."""

        def shard(k: int) -> dict[str, FileEntry]:
            label = Clock(lambda stage, share, message: self.clock.tell(f"calibrate shard {k + 1}", share, message))
            told = label.engine
            return calibrate_on_shelf(
                self.store, shelves[k], self.run, parts[k], spec, seeds[k], progress=told, resume=resume
            )

        return [shard(k) for k in range(len(parts))]

    def _elsewhere(
        self, parts: list[PeriodData], spec: Spec, seeds: list[int], shelves: list[Shelf], resume: bool
    ) -> list[dict[str, FileEntry]]:
        """The same on the cluster, side by side; shards that are done are left alone."""
        done = [finished_tables(shelf, spec.calibration) if resume else None for shelf in shelves]
        tasks = {
            f"calibrate shard {k + 1}": Task(shelves[k], parts[k], spec, seeds[k])
            for k, found in enumerate(done)
            if found is None
        }
        if not tasks:
            return [found for found in done if found is not None]
        with connected(self.cluster, self.store) as client:
            made = calibrate_there(client, self.store, tasks, self.clock, resume=resume)
        for task in tasks.values():
            drop_tables(self.store, task.shelf.folder.name)
        return [found or made[f"calibrate shard {k + 1}"] for k, found in enumerate(done)]
