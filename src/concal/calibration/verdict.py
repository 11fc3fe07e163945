"""Whether a calibration may be used: what a run that missed its targets lacks, where, and what to do about it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from concal.calibration.result import Calibration, Convergence, GroupDraws
from concal.errors import ConvergenceError, first_few
from concal.spec import CalibrationSpec

WORST = 5


def refuse_unconverged(calibration: Calibration, spec: CalibrationSpec) -> None:
    """Raise a `ConvergenceError` for a run that missed its targets; a converged one passes."""
    if not calibration.convergence.converged:
        raise ConvergenceError(unconverged_text(calibration, spec))


def good_items(group: GroupDraws, spec: CalibrationSpec) -> npt.NDArray[np.bool_]:
    """Items whose every coordinate is within the R-hat target, (items,); an R-hat that is not a number is not."""
    good: npt.NDArray[np.bool_] = group.worst_rhat <= spec.max_item_rhat
    return good


def enough_items(good: npt.NDArray[np.bool_], spec: CalibrationSpec) -> bool:
    """Whether enough items are good: all but the allowed share, and in any case all but one."""
    return int((~good).sum()) <= max(1.0, (1.0 - spec.item_share) * good.size)


def unconverged_text(calibration: Calibration, spec: CalibrationSpec) -> str:
    """What is wrong, in which groups and items, and what to do."""
    reached = calibration.convergence
    own = calibration.engine.startswith("concal")
    lines = [f"period {calibration.period!r} has not converged, so it is not put into the bank"]
    if not np.isnan(reached.max_rhat_population):
        target = "" if spec.min_ess is None else f" (target {spec.min_ess:.0f})"
        lines.append(
            f"population: largest R-hat {reached.max_rhat_population:.3f} (target {spec.max_rhat}), smallest bulk ESS "
            f"{reached.min_ess_population:.0f}{target} after {reached.sweeps:,} sweeps a chain"
        )
    if spec.min_ess is None and not np.isnan(reached.mean_error):
        lines.append(
            f"items: Monte Carlo error of posterior means {error_text(reached.mean_error)} of an SD (target "
            f"{spec.mean_error:.0%}), of SDs {error_text(reached.sd_error)} (target {spec.sd_error:.0%})"
        )
    n_before = len(lines)
    if worst := _worst_parameters(calibration, spec):
        lines.append(f"worst: {'; '.join(worst)}")
    for name, group in calibration.groups.items():
        bad = [group.item_ids[j] for j in np.flatnonzero(~good_items(group, spec))]
        if bad:
            lines.append(
                f"group {name!r}: {len(bad)} of {group.n_items} items above R-hat {spec.max_item_rhat}: "
                f"{first_few(bad, WORST)}"
            )
    where = "in the groups named above " if len(lines) > n_before else ""
    longer = _longer(reached, spec) if own else "run longer chains in the engine the draws come from"
    wider = _wider(reached, spec) if own else ""
    lines.append(
        f"what helps: {longer}; {wider}or fewer parameters {where}(a shorter formula, a simpler model, groups merged); "
        "or --accept-unconverged, which takes the period as it is and marks it everywhere"
    )
    return "\n  - ".join(lines)


def _longer(reached: Convergence, spec: CalibrationSpec) -> str:
    """How the run can go on, by the limit that ended it."""
    out_of_time = spec.max_minutes is not None and reached.seconds > 60.0 * spec.max_minutes
    if out_of_time and reached.sweeps < spec.max_sweeps:
        minutes = "1 minute" if spec.max_minutes == 1 else f"{spec.max_minutes:g} minutes"
        return (
            f"it stopped after {minutes} (calibration.max_minutes): give it more in bank.toml (concal add --spec), and "
            "it goes on where it stopped"
        )
    sweeps = f"give it more sweeps, e.g. --max-sweeps {2 * max(reached.sweeps, spec.max_sweeps)}"
    minutes = " and more minutes (calibration.max_minutes)" if out_of_time else ""
    return f"{sweeps}{minutes}: it goes on where it stopped"


def _wider(reached: Convergence, spec: CalibrationSpec) -> str:
    """Where nothing but SDs lags: those of items whose posteriors have long tails (guessing) take very long."""
    if spec.min_ess is not None or not reached.max_rhat_population <= spec.max_rhat:
        return ""
    if not (reached.mean_error <= spec.mean_error and spec.sd_error < reached.sd_error < math.inf):
        return ""
    return (
        f"or, as SDs alone lag, a calibration.sd_error that you can live with, e.g. {_next_step(reached.sd_error)} "
        "(posteriors with long tails, like those of guessing, need very long chains for less; the run begins anew); "
    )


def _next_step(error: float) -> float:
    """The error rounded up to the next hundredth."""
    return math.ceil(100.0 * error) / 100.0


def error_text(error: float) -> str:
    """A Monte Carlo error as a share of an SD; far beyond one, the estimate of the error itself means nothing."""
    if not math.isfinite(error):
        return "not yet known"
    return f"{error:.1%}" if error <= 10.0 else ">1,000%"


def _worst_parameters(calibration: Calibration, spec: CalibrationSpec) -> list[str]:
    """The population parameters farthest from their targets, by R-hat."""
    missed = [
        (rhat, group.population_ess.get(name, np.nan), f"{group.name}: {name}")
        for group in calibration.groups.values()
        for name, rhat in group.population_rhat.items()
        if not (rhat <= spec.max_rhat and group.population_ess.get(name, np.inf) >= (spec.min_ess or 0.0))
    ]
    missed.sort(key=lambda entry: (-np.nan_to_num(entry[0], nan=np.inf), entry[1]))
    return [f"{name} R-hat {rhat:.3f}, ESS {ess:.0f}" for rhat, ess, name in missed[:WORST]]
