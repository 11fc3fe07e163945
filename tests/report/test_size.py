"""A bank of 20,000 items in four periods, compared by two methods, stays under 5 MB."""

from dataclasses import replace

import numpy as np
import polars as pl
from reported_bank import PERIODS

from concal.report.page import build_page
from concal.report.view import View

N = 20_000


def enlarged(bank):
    """The same report with as many items as an operational bank has; all numbers are noise, which packs worst."""
    view = View(bank)
    rng = np.random.default_rng(1)
    consensus, last = view.consensus, view.placed[2]
    groups = {name: larger_consensus(group, rng) for name, group in consensus.groups.items()}
    fourth = consensus.links.filter(period=PERIODS[2]).with_columns(period=pl.lit("2026Q4"))
    periods = (*PERIODS, "2026Q4")
    factors = {
        period: {name: larger_factors(last.factors.groups[name], groups[name].item_ids, rng) for name in groups}
        for period in periods
    }
    drift, links = view.drift, view.links
    ids = [item for group in groups.values() for item in group.item_ids]
    evaluation = view.evaluation
    vars(view).update(
        drift=drift,
        notices=view.notices,
        links=links | {p: replace(links[PERIODS[2]], period=p, anchors=larger_anchors(ids, rng)) for p in periods[1:]},
        consensus=replace(consensus, groups=groups, links=pl.concat([consensus.links, fourth])),
        placed=[replace(last, factors=replace(last.factors, period=p, groups=f)) for p, f in factors.items()],
        evaluation=replace(evaluation, pairs=larger_pairs(groups, rng), methods=("joint", "analytic")),
        item_ids=tuple(ids),
    )
    return view


def larger_consensus(group, rng):
    n, p = N // 3 + 1, group.mean.shape[1]
    sd = rng.uniform(0.05, 0.6, (n, p))
    return replace(
        group,
        item_ids=tuple(f"{group.name}-{k:07d}" for k in range(n)),
        X=np.ones((n, group.X.shape[1])),
        mean=rng.normal(0, 1, (n, p)),
        covariance=np.eye(p) * (sd**2)[:, None, :],
        source=np.array(["consensus"] * n),
        n_responses=rng.integers(0, 2000, n),
        n_periods=np.full(n, 4),
    )


def larger_factors(group, ids, rng):
    """Seven items in ten, with response tables."""
    here = np.sort(rng.permutation(len(ids))[: int(0.7 * len(ids))])
    n, p = here.size, group.mean.shape[1]
    again = rng.integers(0, group.n_items, n)
    every = {name: getattr(group, name)[again] for name in group.PER_ITEM if getattr(group, name) is not None}
    noise = {
        "mean": rng.normal(0, 1, (n, p)),
        "covariance": np.eye(p) * (rng.uniform(0.1, 0.9, (n, p)) ** 2)[:, None, :],
        "worst_rhat": 1 + rng.gamma(1, 0.01, n),
        "n_responses": rng.integers(1, 900, n),
        "bin_mean": np.sort(rng.normal(0, 1, (n, group.bin_mean.shape[1]))),
    }
    return replace(group, item_ids=tuple(ids[k] for k in here), **{**every, **noise})


def larger_anchors(ids, rng):
    n = int(0.7 * N)
    return pl.DataFrame(
        {
            "item_id": ids[:n],
            "dimension": rng.choice(["reading", "writing"], n).tolist(),
            "group": ["vocabulary"] * n,
            "n_responses": rng.integers(1, 900, n),
            "kept": rng.random(n) > 0.3,
            "dropped_by": [None] * n,
            "round": rng.integers(0, 5, n),
            "residual": rng.normal(0, 0.2, n),
            "displacement": rng.normal(0, 0.2, n),
            "displacement_sd": rng.uniform(0.05, 0.4, n),
        },
        schema_overrides={"dropped_by": pl.String},
    )


def larger_pairs(groups, rng):
    pairs = []
    for group in groups.values():
        ids, p = group.item_ids, group.mean.shape[1]
        n = len(ids)
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
    return pl.concat(pairs)


def test_twenty_thousand_items_fit_five_megabytes(reported):
    text = build_page(enlarged(reported[0]))
    size = len(text.encode("utf-8"))
    assert size < 5_000_000
