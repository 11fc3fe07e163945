"""A period that is to come in, and how."""

from __future__ import annotations

from dataclasses import dataclass

from concal.bank.building.progress import Progress
from concal.bank.building.spec import changed, merge_specs
from concal.bank.jobs.calibrating import Calibrator
from concal.data.read import Table
from concal.spec import Spec


@dataclass(frozen=True)
class Request:
    """What `Bank.add` is asked, and as far as they ask the same, `Bank.check`, `backfill` and `add_calibration`.

    `seen` is the spec that `spec` was made from.
    """

    seen: Spec
    period: str
    responses: Table = None
    items: Table | None = None
    spec: Spec | None = None
    wide: bool = False
    replace: bool = False
    keep_responses: bool = True
    seed: int | None = None
    reason: str = ""
    resume: bool = True
    progress: Progress | None = None
    calibrator: Calibrator | None = None
    shards: int | None = None
    accept_unconverged: bool = False
    max_sweeps: int | None = None

    def spec_on(self, head: Spec) -> Spec:
        """The spec of a head with what this one changes."""
        return merge_specs(self.seen, self.spec, head)

    def limited(self, spec: Spec) -> Spec:
        """The spec with the limit of sweeps of this run alone."""
        return spec if self.max_sweeps is None else changed(spec, "calibration", max_sweeps=self.max_sweeps)
