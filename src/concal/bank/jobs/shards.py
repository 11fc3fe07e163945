"""A period in shards: dealt, calibrated one after the other or on a cluster, put together.

Every shard has a shelf of its own until the period is committed, so a run that was interrupted, or refused because a
shard had not converged, goes on with the shards that have not. What comes out is one calibration; the bank does not see
that there were shards, but for the engine's name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from concal.bank.building.progress import Clock
from concal.bank.jobs.calibrating import Calibrator, Task
from concal.bank.jobs.cluster import Cluster, calibrate
from concal.bank.jobs.travel import drop_tables
from concal.bank.store.store import Store
from concal.bank.tables.calibration import read_calibration
from concal.bank.tables.results import read_factors
from concal.calibration.result import Calibration
from concal.calibration.streams import seed_of
from concal.consensus.shards import unite_shards
from concal.data.deal import deal, of_shards
from concal.data.period import PeriodData
from concal.spec import Spec


class ShardedRun:
    """Calibrates a period shard by shard; see `concal.bank.jobs.calibrating.Calibrator`.

    Parameters
    ----------
    store : Store
    run : Calibrator
        What calibrates a shard on this machine.
    clock : Clock
    cluster : address or client, or None
        Where the shards are calibrated side by side.
    """

    def __init__(self, store: Store, run: Calibrator, clock: Clock, cluster: Cluster | None = None) -> None:
        self.store, self.run, self.clock, self.cluster = store, run, clock, cluster
        self._identities: list[str] = []

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
        tasks = self._tasks(data, spec, seed)
        try:
            files = calibrate(self.store, tasks, self.run, self.clock, self.cluster, resume=resume)
            if self.cluster is not None:
                drop_tables(self.store, *(task.shelf.folder.name for task in tasks.values()))
            readers = [task.shelf.reader(files[label]) for label, task in tasks.items()]
            shards, factors = [read_calibration(r) for r in readers], [read_factors(r) for r in readers]
            self.clock.tell("calibrate", 0.95, f"putting {len(tasks)} shards together")
            return unite_shards(shards, data, spec, seed=seed, factors=factors)
        finally:
            for task in tasks.values():
                task.shelf.release()

    def _tasks(self, data: PeriodData, spec: Spec, seed: int) -> dict[str, Task]:
        """Every shard on a shelf of its own, by what is shown of it."""
        n, alone = spec.calibration.shards, of_shards(spec, 1)
        tasks = {
            f"calibrate shard {k + 1}": Task.of(self.store, part, alone, seed_of(seed, k, n), self.run)
            for k, part in enumerate(deal(data, n))
        }
        self._identities = [task.shelf.identity for task in tasks.values()]
        return tasks

    def identities(self, data: PeriodData, spec: Spec, seed: int) -> list[str]:
        """What the shards' shelves are named by; dealt for that alone where an earlier run finished the period."""
        if not self._identities:
            for task in self._tasks(data, spec, seed).values():
                task.shelf.release()
        return self._identities
