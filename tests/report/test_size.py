"""A bank of 20,000 items in four periods, compared by two methods, stays under 5 MB."""

from dataclasses import replace

import numpy as np
import polars as pl
from reported_bank import PERIODS

from concal.evaluate.digest import score_curves
from concal.report.data import THETA, PeriodItems
from concal.report.page import build_page

N = 20_000


def enlarged(data):
    """The same report with as many items as an operational bank has; all numbers are noise, which packs worst."""
    rng = np.random.default_rng(1)
    periods = (*PERIODS, "2026Q4")
    groups, curves, by_period, pairs = {}, {}, {p: {} for p in periods}, []
    for name, group in data.consensus.groups.items():
        n, p = N // 3 + 1, group.mean.shape[1]
        ids = tuple(f"{name}-{k:07d}" for k in range(n))
        sd = rng.uniform(0.05, 0.6, (n, p))
        groups[name] = replace(
            group,
            item_ids=ids,
            X=np.ones((n, group.X.shape[1])),
            mean=rng.normal(0, 1, (n, p)),
            covariance=np.eye(p) * (sd**2)[:, None, :],
            source=np.array(["consensus"] * n),
            n_responses=rng.integers(0, 2000, n),
            n_periods=np.full(n, 4),
        )
        curves[name] = score_curves(groups[name], THETA, draws=20)
        for period in periods:
            seen = np.sort(rng.permutation(n)[: int(0.7 * n)])
            by_period[period][name] = PeriodItems(
                tuple(ids[k] for k in seen),
                rng.normal(0, 1, (seen.size, p)),
                rng.uniform(0.1, 0.9, (seen.size, p)),
                1 + rng.gamma(1, 0.01, seen.size),
                rng.integers(1, 900, seen.size),
                rng.random(seen.size),
                (np.sort(rng.normal(0, 1, (seen.size, 5))), rng.random((seen.size, 5))),
            )
        for method in ("joint", "analytic"):
            pairs.append(
                pl.DataFrame(
                    {
                        "method": [method] * (n * p),
                        "item_id": pl.Series(ids).gather(np.repeat(np.arange(n), p)),
                        "dimension": [group.dimension] * (n * p),
                        "model": [group.model.name] * (n * p),
                        "parameter": list(group.model.parameters) * n,
                        "tertile": rng.choice(["low", "mid", "high"], n * p).tolist(),
                        "exposure": rng.uniform(1, 900, n * p).round(2),
                        "kept": [True] * (n * p),
                        **{c: rng.normal(0, 1, n * p) for c in ("mean", "sd", "pooled_mean", "pooled_sd")},
                    }
                )
            )
    ids = [item for group in groups.values() for item in group.item_ids]
    anchors = pl.concat(
        pl.DataFrame(
            {
                "period": [period] * N,
                "item_id": ids[:N],
                "dimension": rng.choice(["reading", "writing"], N).tolist(),
                "group": ["vocabulary"] * N,
                "n_responses": rng.integers(1, 900, N),
                "kept": rng.random(N) > 0.3,
                "dropped_by": [None] * N,
                "round": rng.integers(0, 5, N),
                "residual": rng.normal(0, 0.2, N),
                "displacement": rng.normal(0, 0.2, N),
                "displacement_sd": rng.uniform(0.05, 0.4, N),
            },
            schema_overrides={"dropped_by": pl.String},
        ).head(int(0.7 * N))
        for period in periods[1:]
    )
    every = pl.concat(pairs)
    return replace(
        data,
        consensus=replace(data.consensus, groups=groups),
        curves=curves,
        by_period=by_period,
        anchors=anchors,
        periods=pl.DataFrame({"period": list(periods), "n_responses": [10**6] * 4}),
        evaluation=replace(data.evaluation, pairs=every, methods=("joint", "analytic")),
        flags=dict.fromkeys(ids[:500], ("drift in 2026Q2: easier",)),
    )


def test_twenty_thousand_items_fit_five_megabytes(reported):
    text = build_page(enlarged(reported[1]))
    assert len(text.encode("utf-8")) < 5_000_000
