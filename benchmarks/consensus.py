"""How the two consensus methods scale with the number of periods: 50,000 items, 2 to 40 periods.

Run ``python benchmarks/consensus.py [--items N] [--periods 2 5 10 20 40]``. Periods are synthetic summaries (no draws):
what is timed is the combination. The analytic update is one `add_period` on the totals of the past plus the closed
form for all items, in CPU seconds of its thread; it must not grow with the past. The joint method runs from scratch.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from concal.combine.analytic import consensus_from_totals
from concal.combine.joint import JointOptions, combine_jointly
from concal.combine.summary import GroupSummary, PeriodSummary
from concal.combine.totals import add_period, sum_periods
from concal.response import make_model
from concal.spec import ConsensusSpec

ONLY_MODE = JointOptions(keep_draws=False, draws=1, sampler="laplace")
DIMENSIONS = ("comprehension", "production")


def make_summary(m: int, n_items: int, rng: np.random.Generator, xi: list, X: list) -> PeriodSummary:
    """A period that saw 60 % of the items (the first: all) of two groups, measured with Gaussian error.

    The curvature is there to be worked through; the measurements have none, so it is small.
    """
    model = make_model("2pl", None)
    groups, mean = {}, np.zeros((2, 2))
    sigma = np.diag([1.0, 0.09])
    for k, dimension in enumerate(DIMENSIONS):
        u, B = (0.0, 0.0) if m == 0 else rng.normal(size=2) * (0.1, 0.3)
        mean[k] = u, B
        n = n_items // 2
        here = np.sort(rng.choice(n, n if m == 0 else int(0.6 * n), replace=False))
        responses = rng.geometric(1 / 60, size=here.size)
        own = xi[k][here].copy()
        own[:, 0] = (own[:, 0] - B) * np.exp(-u)
        own[:, 1] += u
        error = np.stack([2.5 / np.sqrt(responses), 1.5 / np.sqrt(responses)], axis=1)
        Q = np.zeros((here.size, 2, 2))
        Q[:, 0, 0], Q[:, 1, 1] = 1 / error[:, 0] ** 2, 1 / error[:, 1] ** 2
        y = own + rng.normal(size=own.shape) * error
        h = np.einsum("jab,jb->ja", Q, y)
        Dinv = np.diag([np.exp(-u), 1.0])
        Omega = np.repeat(np.linalg.inv(sigma)[None], here.size, 0)
        Lambda = Dinv @ Q @ Dinv + Omega
        t = np.array([B, -u])
        shift = np.einsum("jab,jb->ja", Dinv @ Q, y + t @ Dinv * [1, 1])
        own_precision = Q + np.linalg.inv(sigma)
        F = X[k].shape[1]
        groups[f"group-{k}"] = GroupSummary(
            f"group-{k}",
            dimension,
            model,
            tuple(f"{dimension}-{j}" for j in here),
            ("1", *(f"f{i}" for i in range(1, F))),
            X[k][here],
            responses.astype(np.int64),
            np.linalg.solve(Lambda, shift[:, :, None])[:, :, 0],
            Lambda,
            np.zeros((here.size, 2)),
            Omega,
            Q,
            h,
            np.zeros((F, 2)),
            np.eye(2 * F) * 1e-4,
            np.eye(2 * F) * 1e4,
            sigma,
            np.array([0.0, 0.0, np.log(0.3)]),
            0.01 * np.eye(F),
            np.full(here.size, 1000.0),
            np.zeros((here.size, 2)),
            np.zeros((here.size, 2)),
            np.ones(here.size),
            np.linalg.solve(own_precision, h[:, :, None])[:, :, 0],
            own_precision,
            np.tile([0.3, 0.0, 0.0], (here.size, 1)),
        )
    wobble = np.repeat(np.diag([1e-5, 2e-5])[None], 2, 0)
    return PeriodSummary(f"P{m:02d}", "P00", DIMENSIONS, groups, mean, np.repeat(np.eye(2)[None] * 1e-4, 2, 0), wobble)


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
    summaries = [make_summary(m, arguments.items, rng, xi, X) for m in range(max(arguments.periods) + 1)]
    spec = ConsensusSpec()
    small = [make_summary(m, 400, rng, [x[:200] for x in xi], [x[:200] for x in X]) for m in range(3)]
    combine_jointly(small, spec=spec)  # compile
    first = None
    print("periods  update s  ratio  newton s  joint s  joint cpu s  rms z")
    for M in arguments.periods:
        past = sum_periods(summaries[:M])
        new = replace(summaries[-1], period="new")
        update = best_of(lambda past=past, new=new: consensus_from_totals(add_period(past, new)), 15, time.thread_time)
        first = update if first is None else first
        newton = joint = cpu = error = float("nan")
        if not arguments.no_joint:
            options = JointOptions(keep_draws=False)
            newton = best_of(lambda M=M: combine_jointly(summaries[:M], spec=spec, options=ONLY_MODE), 1)
            start, busy = time.perf_counter(), time.process_time()
            result = combine_jointly(summaries[:M], spec=spec, options=options)
            joint, cpu = time.perf_counter() - start, time.process_time() - busy
            group = result.groups["group-0"]
            rows = [int(i.split("-")[1]) for i in group.item_ids]
            error = float(np.sqrt((((group.mean - xi[0][rows]) / group.sd) ** 2).mean()))
        print(
            f"{M:7d} {update:9.3f} {update / first:6.2f} {newton:9.1f} {joint:8.1f} {cpu:12.1f} {error:6.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
