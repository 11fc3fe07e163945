"""Drift of single items: false flags, power by size of the move and number of responses, and who is named the mover.

Items of the two-parameter model with examinees N(0, 1) and the links known. Each item has a factor per period made as
the engine makes it, from the posterior under the population model: Q = -Cov(l, phi) Var(phi)^-1, h = E l + Q E phi, l
the gradient of the log likelihood in slope and intercept, here on a grid. One item in ten moves in one period by a
number of population SDs of ability, easier or harder.

    python benchmarks/drift.py            # the tables of docs/guides/drift.md, about a minute
    python benchmarks/drift.py --quick
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np
import polars as pl
from scipy.special import expit
from scipy.stats import norm

from concal.consensus.analytic.consensus import consensus_from_totals
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.drift.drift import Drift, find_drift
from concal.consensus.factors.period import GroupFactors, PeriodFactors, Placed
from concal.consensus.gaussian import log_cholesky
from concal.metric import phi_of
from concal.response import make_model

SIZES, RESPONSES, PERIODS = (0.2, 0.3, 0.5, 0.8), (20, 50, 200, 1000), (4, 10)
BETA, SIGMA = np.array([[0.0, 0.0]]), np.diag([1.0, 0.1])
SHARE = 0.1
D, LOG_A = (g.ravel() for g in np.meshgrid(np.linspace(-4, 4, 81), np.linspace(-1.3, 1.3, 41), indexing="ij"))
GRID = phi_of(np.column_stack([D, LOG_A]))
PRIOR = -0.5 * (D**2 / SIGMA[0, 0] + LOG_A**2 / SIGMA[1, 1])
SQUARES = np.column_stack([GRID, GRID[:, 0] ** 2, GRID[:, 0] * GRID[:, 1], GRID[:, 1] ** 2])


def factors(xi: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Q and h of items xi (items, 2), each answered by n examinees of known ability: the n-quantiles of N(0, 1)."""
    theta = norm.ppf((np.arange(n) + 0.5) / n)
    score = (rng.random((len(xi), n)) < expit(np.exp(xi[:, 1:]) * (theta - xi[:, :1]))).astype(float)
    eta = GRID[:, :1] + GRID[:, 1:] * theta
    expected = np.column_stack([expit(eta).sum(axis=1), expit(eta) @ theta])
    given = np.column_stack([score.sum(axis=1), score @ theta])
    log_density = score @ eta.T - np.logaddexp(0.0, eta).sum(axis=1) + PRIOR
    weight = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    moments = weight @ SQUARES
    mean, slope = moments[:, :2], given - weight @ expected
    variance = moments[:, [2, 3, 3, 4]].reshape(-1, 2, 2) - mean[:, :, None] * mean[:, None, :]
    both = (weight @ (GRID[:, :, None] * expected[:, None, :]).reshape(-1, 4)).reshape(-1, 2, 2)
    cross = mean[:, :, None] * (weight @ expected)[:, None, :] - both
    Q = -np.linalg.solve(variance, cross)
    Q = 0.5 * (Q + Q.transpose(0, 2, 1))
    return Q, slope + np.einsum("jab,jb->ja", Q, mean)


def programme(n_items: int, n_periods: int, n: int, size: float, seed: int) -> tuple[list[Placed], np.ndarray]:
    """Placed factors, and for every item the period it moved in or -1."""
    rng = np.random.default_rng([seed, n_items, n_periods, n, int(100 * size)])
    xi = rng.multivariate_normal(BETA[0], SIGMA, n_items)
    moved = np.where(np.arange(n_items) < SHARE * n_items, rng.integers(0, n_periods, n_items), -1)
    way = rng.choice([-1.0, 1.0], n_items)
    if size == 0.0:
        moved[:] = -1
    ids = tuple(f"item-{j:04d}" for j in range(n_items))
    placed = []
    for m in range(n_periods):
        here = xi + np.column_stack([size * way * (moved == m), np.zeros(n_items)])
        Q, h = factors(here, n, rng)
        group = GroupFactors(
            name="g", dimension="x", model=make_model("2pl", None), item_ids=ids, features=("1",), coding="c",
            X=np.ones((n_items, 1)), n_responses=np.full(n_items, n), Q=Q, h=h, mean=xi,
            covariance=np.tile(0.1 * np.eye(2), (n_items, 1, 1)), worst_rhat=np.ones(n_items), b=BETA,
            V=1e-4 * np.eye(2), beta_precision=1e4 * np.eye(2), sigma=SIGMA, sigma_coordinates=log_cholesky(SIGMA),
            hyperprior=1e-3 * np.eye(1),
        )  # fmt: skip
        period = PeriodFactors(f"P{m:02d}", ("x",), {"g": group}, np.zeros((1, 2, 2)))
        placed.append(Placed(period, "P00", np.zeros((1, 2)), np.zeros((1, 2, 2))))
    return placed, moved


def judge(found: Drift, moved: np.ndarray) -> dict[str, float]:
    """Shares: flagged of the movers and of the others, false discoveries, right mover among the detected."""
    items = found.items.unique("item_id", maintain_order=True).sort("item_id")
    flagged = items["movers"].is_not_null().to_numpy()
    named = items["movers"].fill_null("").to_list()
    is_mover = moved >= 0
    right = np.array([named[j] == f"P{m:02d}" for j, m in enumerate(moved)])
    caught = flagged & is_mover
    return {
        "flagged": float(flagged.sum()),
        "false": float((flagged & ~is_mover).sum()),
        "nominal": float((items["item_p_value"].to_numpy()[~is_mover] < 0.05).mean()),
        "power": float(caught.sum() / max(is_mover.sum(), 1)),
        "right": float((right & caught).sum() / max(caught.sum(), 1)),
    }


def run(n_items: int, seeds: int = 1) -> pl.DataFrame:
    """Every cell of the design."""
    rows = []
    for n_periods, n, size in itertools.product(PERIODS, RESPONSES, (0.0, *SIZES)):
        found = []
        for seed in range(seeds):
            placed, moved = programme(n_items, n_periods, n, size, seed)
            found.append(judge(find_drift(placed, consensus_from_totals(sum_periods(placed))), moved))
        total = {key: sum(f[key] for f in found) for key in found[0]}
        rows.append(
            {
                "periods": n_periods,
                "responses": n,
                "move": size,
                "p < .05 without move": total["nominal"] / seeds,
                "flagged": int(total["flagged"]),
                "false share": total["false"] / max(total["flagged"], 1.0),
                "power": total["power"] / seeds if size else None,
                "mover named right": total["right"] / seeds if size else None,
            }
        )
    return pl.DataFrame(rows)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="fewer items")
    options.add_argument("--items", type=int, default=None)
    given = options.parse_args()
    start = time.perf_counter()
    table = run(given.items or (200 if given.quick else 800))
    with pl.Config(tbl_rows=-1, tbl_cols=-1, float_precision=3, tbl_hide_column_data_types=True):
        print(table)
    print(f"{time.perf_counter() - start:.0f} s")
