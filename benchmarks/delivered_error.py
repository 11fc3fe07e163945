"""How much Monte Carlo error the results of a calibration carry, by the length of the run.

Usage: python benchmarks/delivered_error.py [--design toy] [--sweeps 100 200 400 800]

One simulated period (2pl, gpcm and ordered_beta) is calibrated twice with different seeds; after so many sampled sweeps
each run is made into factors and combined alone. Half of the squared difference between the two is the variance of the
Monte Carlo error: of item means in posterior SDs, of the SDs relative, for the joint and the analytic consensus and for
the kept draws, root mean squares over all items and parameters; of the coefficients (beta) the same way; of the items'
spreads (log of Sigma's diagonal) the means, in posterior SDs. Beside it what the runs say about themselves: largest
R-hat and smallest bulk ESS of the population, and the error a run stops by (`mean_error`, `sd_error`; 99 % of the items
are within it, so it is larger than a root mean square). Designs: `toy` (60 items, 400 examinees), `dense` (200 items,
2,000 examinees), `sparse` (600 items, a third with few responses, 4,000 examinees). `--sweeps 0` stops at the default
targets.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import concal
from concal.calibration.period import calibrate_period
from concal.calibration.result import Calibration
from concal.calibration.sampler import WARMUP
from concal.calibration.sweep import NEWTON_START
from concal.consensus.combine import combine, place
from concal.consensus.factors.make import make_factors
from concal.data.check import check_period
from concal.linking.result import identity_link

DESIGNS: dict[str, dict[str, Any]] = {
    "toy": {"items": 60, "examinees": 400, "responses_per_examinee": 20},
    "dense": {"items": 200, "examinees": 2000, "responses_per_examinee": 36, "exposure_spread": 0.5},
    "sparse": {"items": 600, "examinees": 4000, "responses_per_examinee": 30, "exposure_spread": 2.0},
}
Delivered = dict[str, tuple[np.ndarray, np.ndarray]]


def main() -> None:
    """Two runs, looked at after every number of sweeps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--design", choices=DESIGNS, default="toy")
    parser.add_argument("--sweeps", type=int, nargs="+", default=[100, 200, 400, 800])
    options = parser.parse_args()
    programme = concal.simulate_programme(seed=1, periods=1, **DESIGNS[options.design])
    (responses,) = programme.responses.values()
    data = check_period(responses, programme.items, programme.spec).data
    print("sampled   R-hat        ESS      told: mean, SD     joint: mean, SD   analytic: mean, SD   draws: mean, SD")
    print("          below, joint and analytic: mean and SD of coefficients, mean of spreads")
    with tempfile.TemporaryDirectory() as folder:
        for sweeps in options.sweeps:
            # never content: the limit decides
            limits = {"max_sweeps": NEWTON_START + WARMUP + sweeps, "min_ess": 1e9} if sweeps else {}
            spec = programme.spec.model_copy(
                update={"calibration": programme.spec.calibration.model_copy(update=limits)}
            )
            runs = [calibrate_period(data, spec, seed=seed, checkpoint=Path(folder) / f"{seed}.npz") for seed in (1, 2)]
            show(sweeps or runs[0].convergence.sweeps - NEWTON_START - WARMUP, runs)


def show(sweeps: int, runs: list[Calibration]) -> None:
    """One line: what the runs say, and by how much they differ."""
    said = [run.convergence for run in runs]
    told = f"{np.mean([c.mean_error for c in said]):.3f} {np.mean([c.sd_error for c in said]):.3f}"
    line = (
        f"{sweeps:7d}   {max(c.max_rhat_population for c in said):.3f}   {min(c.min_ess_population for c in said):8.0f}"
    )
    one, two = (delivered(run) for run in runs)
    errors = [difference(one[name], two[name]) for name in ("joint", "analytic", "draws")]
    print(line + f"{told:>20s}" + "".join(f"{mean:12.3f} {sd:.3f}  " for mean, sd in errors), flush=True)
    of_population = []
    for method in ("joint", "analytic"):
        mean, sd = difference(one[f"{method} beta"], two[f"{method} beta"])
        of_population.append(f"{mean:.3f} {sd:.3f} {difference(one[f'{method} sigma'], two[f'{method} sigma'])[0]:.3f}")
    print(f"{'':10s}{of_population[0]}    {of_population[1]}", flush=True)


def delivered(run: Calibration) -> Delivered:
    """Means and SDs of all items' parameters, end to end, by every way they leave the engine."""
    placed = place(make_factors(run), identity_link(run.period, run.dimensions, run.n_draws))
    found: Delivered = {}
    for method in ("joint", "analytic"):
        groups = combine([placed], method=method).groups.values()
        covariances = [np.diagonal(g.covariance, axis1=1, axis2=2).ravel() for g in groups]
        found[method] = np.concatenate([g.mean.ravel() for g in groups]), np.sqrt(np.concatenate(covariances))
        V = [np.diag(g.beta_covariance) for g in groups if g.beta_covariance is not None]
        found[f"{method} beta"] = np.concatenate([g.beta.ravel() for g in groups]), np.sqrt(np.concatenate(V))
        spreads = [np.log(np.diag(g.sigma)) for g in groups]
        known = [np.log(np.diagonal(g.flat("sigma"), axis1=1, axis2=2)).std(axis=0) for g in run.groups.values()]
        found[f"{method} sigma"] = np.concatenate(spreads), np.concatenate(known)
    draws = [g.flat("xi").reshape(g.n_draws, -1).astype(np.float64) for g in run.groups.values()]
    found["draws"] = (
        np.concatenate([xi.mean(axis=0) for xi in draws]),
        np.concatenate([xi.std(axis=0) for xi in draws]),
    )
    return found


def difference(one: tuple[np.ndarray, np.ndarray], two: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Root mean square error of a run's means, in SDs, and of its log SDs, from the difference of two runs."""
    means = (one[0] - two[0]) / np.sqrt(one[1] * two[1])
    return tuple(float(np.sqrt(0.5 * np.mean(np.square(z)))) for z in (means, np.log(one[1] / two[1])))  # type: ignore


if __name__ == "__main__":
    main()
