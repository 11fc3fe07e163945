"""A synthetic programme: calibrations without an engine, cheap enough for hundreds of updates."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from concal.calibration.fit.period_fit import fit_period
from concal.calibration.layout import lay_out
from concal.calibration.others import item_points, told_by_others
from concal.calibration.result import Abilities, Calibration, Convergence, GroupDraws
from concal.calibration.tables import response_table
from concal.consensus.factors.moments import item_moments
from concal.data.period import PeriodData
from concal.metric import move_items
from concal.spec import Spec

SPEC = Spec.parse(
    {
        "bank": {"name": "test", "dimensions": ["reading", "writing"]},
        "groups": {
            "vocabulary": {"model": "2pl", "dimension": "reading", "features": "~ length"},
            "essay": {"model": "gpcm", "categories": 4, "dimension": "writing"},
        },
        "linking": {"min_anchors": 3},
        "consensus": {"method": "analytic"},
    }
)
CHAINS, DRAWS = 2, 50


def items_table(n: int = 16) -> pl.DataFrame:
    """Two groups, one feature."""
    return pl.DataFrame(
        {
            "item_id": [f"v{k:02d}" for k in range(n)] + [f"e{k:02d}" for k in range(n)],
            "group": ["vocabulary"] * n + ["essay"] * n,
            "length": [float(k % 5) for k in range(n)] * 2,
        }
    )


def responses_table(
    period: str, first: int = 0, n: int = 12, persons: int = 30, seed: int = 0, items: int = 16
) -> pl.DataFrame:
    """Everybody answers items first .. first + n of both groups, at random."""
    rng = np.random.default_rng([seed, zlib.crc32(period.encode())])
    which = [(first + k) % items for k in range(n)]
    ids = [f"v{k:02d}" for k in which] + [f"e{k:02d}" for k in which]
    score = np.concatenate([rng.integers(0, 2, (persons, n)), rng.integers(0, 4, (persons, n))], axis=1)
    return pl.DataFrame(
        {
            "person_id": np.repeat([f"{period}-{i:03d}" for i in range(persons)], 2 * n),
            "item_id": ids * persons,
            "score": score.ravel().astype(float),
        }
    )


def truth(item_id: str, p: int) -> np.ndarray[Any, Any]:
    """Where an item is, on the programme's metric."""
    rng = np.random.default_rng(zlib.crc32(item_id.encode()))
    return np.concatenate([rng.normal(0, 1, 1), rng.normal(0, 0.2, p - 1)])


def fake_calibrator(
    data: PeriodData,
    spec: Spec,
    *,
    period: str,
    seed: int,
    checkpoint: Path | None = None,
    progress: Any = None,
    resume: bool = True,
) -> Calibration:
    """Draws around the truth, on a metric of the period's own; the same input gives the same draws."""
    rng = np.random.default_rng([seed, zlib.crc32(period.encode())])
    A, B = np.exp(rng.normal(0, 0.1)), rng.normal(0, 0.2)
    groups = {}
    for name, group in data.groups.items():
        p, n = len(group.model.parameters), len(group.item_ids)
        centre = move_items(np.array([truth(i, p) for i in group.item_ids]), A, B)
        counts = np.bincount(group.item, minlength=n).astype(np.int64)
        noise = rng.normal(size=(CHAINS, DRAWS, n, p)) * (0.15 + 0.1 / np.sqrt(1 + counts))[:, None]
        beta, sigma = np.zeros((CHAINS, DRAWS, len(group.features), p)), np.zeros((CHAINS, DRAWS, p, p))
        beta += rng.normal(0, 0.05, beta.shape)
        sigma += np.diag([1.0, *[0.1] * (p - 1)]) * np.exp(rng.normal(0, 0.1, (CHAINS, DRAWS, 1, 1)))
        groups[name] = GroupDraws(
            name=name,
            dimension=group.dimension,
            model=group.model,
            item_ids=group.item_ids,
            features=group.features,
            X=group.X,
            xi=(centre + noise).astype(np.float32),
            beta=beta,
            sigma=sigma,
            n_responses=counts,
            rhat=np.full((n, p), 1.001),
            ess_bulk=np.full((n, p), 90.0),
            ess_tail=np.full((n, p), 80.0),
            beta_mean=None if len(groups) else beta * 0.9,
            coding=group.coding,
            lacking=group.lacking,
            population_rhat={"sigma[d,d]": 1.01, "odd": float("nan")},
            population_ess={"sigma[d,d]": 88.0},
        )
    k, n = len(data.dimensions), data.person_ids.len()
    if checkpoint is not None:
        checkpoint.write_text(json.dumps({"seed": seed}))
    return Calibration(
        period=period,
        dimensions=data.dimensions,
        groups=groups,
        abilities=Abilities(
            person_ids=data.person_ids,
            mean=rng.normal(size=(n, k)),
            sd=np.full((n, k), 0.3),
            n_responses=np.full((n, k), 12, dtype=np.int64),
            draw_mean=rng.normal(0, 0.01, (CHAINS, DRAWS, k)),
            draw_sd=np.ones((CHAINS, DRAWS, k)),
            correlation=np.broadcast_to(np.eye(k), (CHAINS, DRAWS, k, k)).copy(),
        ),
        convergence=Convergence(True, 100, 50, 1, 0.5, 1.01, 88.0, 1.0, ("a doubt",)),
        tau=0.01,
        beta_prior_precision={name: 0.01 * np.eye(len(g.features)) for name, g in groups.items()},
        seed=seed,
        engine="fake",
    )


def by_person_group(data: PeriodData, spec: Spec, **options: Any) -> Calibration:
    """The same; where there are groups of examinees with everything that the engine gives and a file of draws lacks."""
    made = fake_calibrator(data, spec, **options)
    if len(data.populations) == 1:
        return made
    layout, abilities = lay_out(data), made.abilities
    assert abilities is not None
    centres = {name: g.xi.mean(axis=(0, 1), dtype=np.float64) for name, g in made.groups.items()}
    points = {name: item_points(g.xi) for name, g in made.groups.items()}
    told = told_by_others(layout, points, abilities.mean, abilities.sd)
    groups = {}
    for g in layout.groups:
        tables = response_table(g, told[g.name])
        groups[g.name] = replace(made.groups[g.name], moments=_moments(made.groups[g.name]), **tables._asdict())
    shape = (CHAINS, DRAWS, len(data.populations), len(data.dimensions))
    abilities = replace(
        abilities, populations=data.populations, population=data.population,
        population_mean=np.zeros(shape), population_sd=np.ones(shape),
    )  # fmt: skip
    fit = fit_period(data, layout, centres, told, abilities.sd)
    return replace(made, groups=groups, abilities=abilities, fit=fit)


def _moments(group: GroupDraws) -> np.ndarray[Any, Any]:
    """Averages of a quadratic log-likelihood that is flat at the posterior mean and has half of its precision."""
    mean, covariance = item_moments(group, "")[2]
    n, p = mean.shape
    square = covariance + mean[:, :, None] * mean[:, None, :]
    cross = np.broadcast_to(-0.5 * np.eye(p), (n, p, p))
    return np.concatenate([mean, np.zeros((n, p)), square.reshape(n, -1), cross.reshape(n, -1)], axis=1)


def same(left: Any, right: Any, path: str = "") -> None:
    """Two results are equal in every field, arrays bit for bit."""
    if hasattr(left, "__dataclass_fields__"):
        assert type(left) is type(right), path
        for name in left.__dataclass_fields__:
            same(getattr(left, name), getattr(right, name), f"{path}.{name}")
    elif isinstance(left, np.ndarray):
        assert left.dtype.kind == right.dtype.kind, path
        np.testing.assert_array_equal(left, right, err_msg=path)
    elif isinstance(left, pl.DataFrame | pl.Series):
        assert left.equals(right), path
    elif isinstance(left, dict):
        assert list(left) == list(right), path
        for key in left:
            same(left[key], right[key], f"{path}[{key!r}]")
    elif isinstance(left, tuple | list):
        assert len(left) == len(right), path
        for k, (a, b) in enumerate(zip(left, right, strict=True)):
            same(a, b, f"{path}[{k}]")
    elif isinstance(left, float) and np.isnan(left):
        assert np.isnan(right), path
    else:
        assert left == right, path
