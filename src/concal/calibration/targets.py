"""How far a run is from its targets, and how much longer it will take."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from concal.calibration.delivered import DeliveredError, delivered_error
from concal.calibration.diagnostics import diagnose
from concal.calibration.verdict import enough_items, error_text
from concal.spec import CalibrationSpec

if TYPE_CHECKING:
    from concal.calibration.trace import Trace

LONGEST = 50.0
BEGINNING = 8
"""The first eighth of what was sampled is a chain's beginning."""
OUTSIDE = 10.0
"""SDs of the second half within which a chain's mean over its beginning must be: of slow normal chains (autocorrelation
.9 to .995, 25 to 400 draws) none in 2,400 goes so far, with tails of a t in slow turn one in a hundred. One chain that
began ten away would shift averages by an eighth of its way."""


class Reached(NamedTuple):
    """What a look at a run found.

    Attributes
    ----------
    max_rhat, min_ess : float
        Of the population parameters; an R-hat that is undefined (a chain that stands still) counts as infinite.
    error : DeliveredError
    item_share : float or None
        Share of the items within their R-hat target; looked at only where everything else holds.
    converged : bool
    """

    max_rhat: float
    min_ess: float
    error: DeliveredError
    item_share: float | None = None
    converged: bool = False


def look(trace: Trace, spec: CalibrationSpec, threads: int | None = None) -> Reached:
    """Population parameters and the delivered error, then, where these hold, the items' R-hat."""
    found = diagnose(trace.judged(), kinds=("rhat", "ess_bulk"), threads=threads)
    reached = Reached(worst_rhat(found.rhat), worst_ess(found.ess_bulk), delivered_error(trace.averages))
    if trace.kept < trace.per_chain or stretch(reached, spec) > 1.0:
        return reached
    stored = (trace.stored_xi(k) for k in range(len(trace.xi)))
    worst = [diagnose(xi, kinds=("rhat",), threads=threads).rhat.max(axis=1) for xi in stored]
    good = np.concatenate(worst) <= spec.max_item_rhat
    share = float(good.mean()) if good.size else 1.0
    return reached._replace(item_share=share, converged=enough_items(good, spec))


def began_outside(draws: npt.NDArray[np.float64]) -> bool:
    """Whether a chain was sampled on its way to where all of them are now; `draws` (chain, draw, parameter) of places.

    R-hat of ranks is blind to that: of eight chains one far away, however far, is below 1.3.
    """
    n = draws.shape[1]
    if n < 2 * BEGINNING:
        return False
    first, late = draws[:, : n // BEGINNING].mean(axis=1), draws[:, n // 2 :]
    return bool((np.abs(first - late.mean(axis=(0, 1))) > OUTSIDE * late.std(axis=(0, 1))).any())


def worst_rhat(rhat: npt.NDArray[np.float64]) -> float:
    """The largest of many; infinite where one is not a number, whatever the order."""
    return float(np.max(np.where(np.isnan(rhat), np.inf, rhat)))


def worst_ess(ess: npt.NDArray[np.float64]) -> float:
    """The smallest of many; zero where one is not a number."""
    return float(np.min(np.where(np.isnan(ess), 0.0, ess)))


def stretch(reached: Reached, spec: CalibrationSpec) -> float:
    """How many times longer the run must be: R-hat - 1 falls like 1 / length, errors like its root."""
    needed = [(reached.max_rhat - 1.0) / (spec.max_rhat - 1.0)]
    if spec.min_ess is not None:
        needed.append(spec.min_ess / max(reached.min_ess, 1.0))
    else:
        needed += [(reached.error.mean / spec.mean_error) ** 2, (reached.error.sd / spec.sd_error) ** 2]
    return float(np.max(needed))


def shortfall(reached: Reached, spec: CalibrationSpec, sweeps: int) -> str:
    """What is missing, in words, after so many sweeps, those of the warm-up among them."""
    notes = [f"largest population R-hat {reached.max_rhat:.3f} (target {spec.max_rhat})"]
    if spec.min_ess is not None:
        notes.append(f"smallest population bulk ESS {reached.min_ess:.0f} (target {spec.min_ess:.0f})")
    else:
        notes.append(
            f"error of posterior means {error_text(reached.error.mean)} of an SD (target {spec.mean_error:.0%}) and of "
            f"SDs {error_text(reached.error.sd)} (target {spec.sd_error:.0%})"
        )
    if reached.item_share is not None:
        notes.append(
            f"{reached.item_share:.1%} of the items within R-hat {spec.max_item_rhat} (target {spec.item_share:.1%})"
        )
    return f"{', '.join(notes)} after {sweeps:,} sweeps a chain"


class Forecast:
    """How many sweeps sampling will need, from what each look found missing.

    An estimate from one look can be far off; the range is that of the last few.
    """

    def __init__(self) -> None:
        self.needs: list[float] = []

    def add(self, sweeps: int, reached: Reached, spec: CalibrationSpec) -> None:
        """Take in a look after so many sweeps."""
        self.needs = [*self.needs[-2:], sweeps * min(stretch(reached, spec), LONGEST)]

    def range(self, next_look: int) -> tuple[int, int | None]:
        """At least and at most so many sweeps; no upper end before the first look."""
        if not self.needs:
            return next_look, None
        wide = 1.5 if len(self.needs) == 1 else 1.2
        low, high = int(min(self.needs) / wide), int(wide * max(self.needs))
        return max(low, next_look), max(high, next_look)
