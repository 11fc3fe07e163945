"""How the consensus scales with the number of periods: 50,000 items, 2 to 40 periods.

Run ``python benchmarks/consensus.py [--items N] [--periods 2 5 10 20 40]``. Periods are synthetic factors (2PL response
tables by ability with their Gaussians; every period sees 60 % of the items): what is timed is the combination. The
analytic update is one `add_period` on the totals of the past plus all items' posteriors, in CPU seconds of its
thread; it must not grow with the past. The joint method runs from scratch. "rms z" is the distance from the truth in
SDs.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from concal.consensus.analytic.consensus import consensus_from_totals
from concal.consensus.analytic.totals import add_period, sum_periods
from concal.consensus.factors.period import GroupFactors, PeriodFactors, Placed
from concal.consensus.joint.consensus import combine_jointly
from concal.response import make_model
from concal.spec import ConsensusSpec

DIMENSIONS = ("comprehension", "production")
BINS = np.array([-1.4, -0.6, 0.0, 0.6, 1.4])


def make_period(m: int, n_items: int, rng: np.random.Generator, xi: list, X: list) -> Placed:
    """A period that saw 60 % of the items (the first: all) of two groups."""
    groups, link = {}, np.zeros((2, 2))
    for k, dimension in enumerate(DIMENSIONS):
        link[k] = (0.0, 0.0) if m == 0 else rng.normal(size=2) * (0.1, 0.3)
        n = n_items // 2
        here = np.sort(rng.choice(n, n if m == 0 else int(0.6 * n), replace=False))
        groups[f"group-{k}"] = make_group(f"group-{k}", dimension, here, xi[k][here], X[k][here], link[k], rng)
    wobble = np.repeat(np.diag([1e-5, 2e-5])[None], 2, 0)
    factors = PeriodFactors(f"P{m:02d}", DIMENSIONS, groups, wobble)
    spread = np.repeat(np.eye(2)[None] * 1e-4, 2, 0) if m else np.zeros((2, 2, 2))
    return Placed(factors, "P00", link, spread)


def make_group(
    name: str,
    dimension: str,
    here: np.ndarray,
    xi: np.ndarray,
    X: np.ndarray,
    link: np.ndarray,
    rng: np.random.Generator,
) -> GroupFactors:
    """Tables of binomial counts at five abilities, and the Gaussians around the truth."""
    n, F = X.shape
    a = np.exp(xi[:, 1] + link[0])
    c = -a * (xi[:, 0] - link[1]) * np.exp(-link[0])
    phi = np.stack([c, a], axis=1)
    size = 1 + rng.geometric(1 / 12, size=(n, 5)).astype(float)
    P = 1.0 / (1.0 + np.exp(-(c[:, None] + a[:, None] * BINS)))
    right = rng.binomial(size.astype(int), P).astype(float)
    basis = np.stack([np.ones(5), BINS])
    Q = np.einsum("jb,ub,vb->juv", size * P * (1 - P), basis, basis)
    h = np.einsum("juv,jv->ju", Q, phi) + (right - size * P) @ basis.T
    sigma = np.diag([1.0, 0.09])
    own = np.stack([-c / a, np.log(a)], axis=1)
    return GroupFactors(
        name=name,
        dimension=dimension,
        model=make_model("2pl", None),
        item_ids=tuple(f"{dimension}-{j}" for j in here),
        features=("1", *(f"f{i}" for i in range(1, F))),
        coding="",
        X=X,
        n_responses=size.sum(axis=1).astype(np.int64),
        Q=Q,
        h=h,
        mean=own,
        covariance=np.repeat(sigma[None], n, 0),
        worst_rhat=np.ones(n),
        b=np.zeros((F, 2)),
        V=np.eye(2 * F) * 1e-4,
        beta_precision=np.eye(2 * F) * 1e4,
        sigma=sigma,
        sigma_coordinates=np.array([0.0, 0.0, np.log(0.3)]),
        hyperprior=0.01 * np.eye(F),
        bin_mean=np.repeat(BINS[None], n, 0),
        bin_sd=np.full((n, 5), 1e-3),
        cell_score=np.broadcast_to(np.array([0.0, 1.0]), (n, 5, 2)).copy(),
        cell_count=np.stack([size - right, right], axis=2),
        dQ=np.zeros((n, 2, 2)),
        dh=np.zeros((n, 2)),
        obtained="gradients",
    )


def best_of(function, repeats: int, clock=time.perf_counter) -> float:
    """Fastest of several runs, seconds of `clock`."""
    times = []
    for _ in range(repeats):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--periods", type=int, nargs="+", default=[2, 5, 10, 20, 40])
    parser.add_argument("--no-joint", action="store_true")
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    n = arguments.items // 2
    X = [np.column_stack([np.ones(n), rng.normal(size=(n, 3))]) for _ in DIMENSIONS]
    xi = [rng.normal(size=(n, 2)) * (1.0, 0.3) for _ in DIMENSIONS]
    placed = [make_period(m, arguments.items, rng, xi, X) for m in range(max(arguments.periods) + 1)]
    spec = ConsensusSpec()
    small = [make_period(m, 400, rng, [x[:200] for x in xi], [x[:200] for x in X]) for m in range(3)]
    combine_jointly(small, sum_periods(small), spec)  # compile
    first = None
    print("periods  update s  ratio  joint s  joint cpu s  rms z d  rms z log a")
    for M in arguments.periods:
        past = sum_periods(placed[:M])
        new = replace(placed[-1], factors=replace(placed[-1].factors, period="new"))
        update = best_of(lambda past=past, new=new: consensus_from_totals(add_period(past, new)), 5, time.thread_time)
        first = update if first is None else first
        joint = cpu = float("nan")
        error = np.full(2, np.nan)
        if not arguments.no_joint:
            start, busy = time.perf_counter(), time.process_time()
            result = combine_jointly(placed[:M], past, spec)
            joint, cpu = time.perf_counter() - start, time.process_time() - busy
            group = result.groups["group-0"]
            rows = [int(i.split("-")[1]) for i in group.item_ids]
            error = np.sqrt((((group.mean - xi[0][rows]) / group.sd) ** 2).mean(axis=0))
        print(
            f"{M:7d} {update:9.3f} {update / first:6.2f} {joint:8.1f} {cpu:12.1f} {error[0]:8.3f} {error[1]:12.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
