"""A bank with made-up calibrations (no engine), so that reports are quick to make; one id is a piece of HTML.

The third period comes with response tables, as concal's own engine gives them; the others are draws alone.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from concal.bank.bank import Bank
from concal.calibration.layout import lay_out
from concal.calibration.others import item_points, told_by_others
from concal.calibration.result import Abilities, Calibration, Convergence, GroupDraws
from concal.calibration.tables import response_table
from concal.data.period import PeriodData
from concal.metric import move_items, phi_of
from concal.spec import Spec

CHAINS, DRAWS = 2, 50
PERIODS = ("2026Q1", "2026Q2", "2026Q3")
HTML_ID = "<img src=x onerror=\"document.title='owned'\"></script><b>&amp;"
HTML_NAME = "English <b>test</b>"

SPEC = Spec.parse(
    {
        "bank": {"name": HTML_NAME, "dimensions": ["reading", "writing"]},
        "groups": {
            "vocabulary": {"model": "2pl", "dimension": "reading", "features": "~ length"},
            "essay": {"model": "gpcm", "categories": 4, "dimension": "writing"},
            "dictation": {"model": "ordered_beta", "dimension": "reading"},
        },
        "consensus": {"method": "analytic"},  # the joint sampler takes its time with draws that no likelihood made
    }
)


def items_table(n: int) -> pl.DataFrame:
    ids = [f"{g}-{k:05d}" for g in ("vocabulary", "essay", "dictation") for k in range(n)]
    ids[3] = HTML_ID
    return pl.DataFrame(
        {
            "item_id": ids,
            "group": [g for g in SPEC.groups for _ in range(n)],
            "length": [float(k % 7) for k in range(n)] * 3,
        }
    )


def responses_table(items: pl.DataFrame, period: str, per_item: int = 3) -> pl.DataFrame:
    """Everybody new in each period; an item in ten is left out of a period, popular items get more answers."""
    rng = np.random.default_rng(zlib.crc32(period.encode()))
    used = items.filter(pl.Series(rng.random(items.height) > 0.1))
    n = np.maximum((per_item * np.exp(rng.normal(0, 0.8, used.height))).astype(int), 1)
    item = np.repeat(np.arange(used.height), n)
    person = rng.permutation(item.size) // 20
    score = rng.random(item.size)
    group = used["group"].to_numpy()[item]
    score = np.where(group == "vocabulary", score > 0.5, np.where(group == "essay", np.floor(score * 4), score))
    table = pl.DataFrame(
        {
            "person_id": [f"{period}-{k}" for k in person],
            "item_id": used["item_id"].gather(item),
            "score": score.astype(float),
        }
    )
    return table.unique(["person_id", "item_id"], maintain_order=True)


def truth(item_id: str, p: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(zlib.crc32(item_id.encode()))
    return np.concatenate([rng.normal(0, 1, 1), rng.normal(0, 0.3, p - 1)])


def made_up(
    data: PeriodData, spec: Spec, *, period: str, seed: int, checkpoint: Path | None = None, **more: Any
) -> Calibration:
    """Draws around the truth on the period's own metric (the reference's for the first period and the pooled fit)."""
    rng = np.random.default_rng([seed, zlib.crc32(period.encode())])
    own = period not in (PERIODS[0], "pooled")
    A, B = (np.exp(rng.normal(0, 0.1)), rng.normal(0, 0.2)) if own else (1.0, 0.0)
    groups = {}
    for name, group in data.groups.items():
        p, n = len(group.model.parameters), len(group.item_ids)
        centre = move_items(np.array([truth(i, p) for i in group.item_ids]), A, B)
        counts = np.bincount(group.item, minlength=n).astype(np.int64)
        noise = rng.normal(size=(CHAINS, DRAWS, n, p)) * (0.1 + 0.3 / np.sqrt(1 + counts))[:, None]
        sigma = np.diag([1.0, *[0.1] * (p - 1)]) * np.exp(rng.normal(0, 0.05, (CHAINS, DRAWS, 1, 1)))
        groups[name] = GroupDraws(
            name=name,
            dimension=group.dimension,
            model=group.model,
            item_ids=group.item_ids,
            features=group.features,
            X=group.X,
            xi=(centre + noise).astype(np.float32),
            beta=rng.normal(0, 0.05, (CHAINS, DRAWS, len(group.features), p)),
            sigma=sigma,
            n_responses=counts,
            rhat=1.0 + rng.gamma(1.0, 0.006, (n, p)),
            ess_bulk=rng.uniform(50, 100, (n, p)),
            ess_tail=np.full((n, p), 80.0),
            population_rhat={"sigma[d,d]": 1.01},
            population_ess={"sigma[d,d]": 88.0},
        )
    k, n, m = len(data.dimensions), data.person_ids.len(), len(data.populations)
    shape = (CHAINS, DRAWS, m, k)
    moments = rng.normal(0, 0.01, shape), 1 + rng.normal(0, 0.01, shape)
    made = Calibration(
        period=period,
        dimensions=data.dimensions,
        groups=groups,
        abilities=Abilities(
            person_ids=data.person_ids,
            mean=rng.normal(size=(n, k)) * 0.9,
            sd=np.full((n, k), 0.3),
            n_responses=np.full((n, k), 10, dtype=np.int64),
            draw_mean=moments[0][:, :, 0],
            draw_sd=moments[1][:, :, 0],
            correlation=np.broadcast_to(np.eye(k), (CHAINS, DRAWS, k, k)).copy(),
            populations=data.populations,
            population_mean=moments[0],
            population_sd=moments[1],
        ),
        convergence=Convergence(period != PERIODS[1], 1000, 500, 1, 12.5, 1.011, 480.0, 0.997, ("a doubt <i>",)),
        tau=0.01,
        beta_prior_precision={name: 0.01 * np.eye(len(g.features)) for name, g in groups.items()},
        seed=seed,
        engine="made up",
    )
    return with_tables(made, data) if period == PERIODS[2] else made


def with_tables(calibration: Calibration, data: PeriodData) -> Calibration:
    """The same with what concal's engine adds: response tables, and gradients that know most of each posterior."""
    groups, layout, abilities = {}, lay_out(data), calibration.abilities
    points = {name: item_points(group.xi) for name, group in calibration.groups.items()}
    told = told_by_others(layout, points, abilities.mean, abilities.sd)
    for (name, group), place in zip(calibration.groups.items(), layout.groups, strict=True):
        phi = phi_of(group.flat("xi"))
        centred = phi - phi.mean(axis=0)
        covariance = np.einsum("sja,sjb->jab", centred, centred) / len(phi)
        gradient = -0.8 * np.einsum("jab,sjb->sja", np.linalg.inv(covariance), centred)
        products = [np.einsum("sja,sjb->jab", phi, other) / len(phi) for other in (phi, gradient)]
        moments = np.concatenate(
            [phi.mean(axis=0), gradient.mean(axis=0), *(p.reshape(group.n_items, -1) for p in products)], axis=1
        )
        table = response_table(place, told[name])
        groups[name] = replace(group, moments=moments, **table._asdict())
    return replace(calibration, groups=groups)


def make_bank(folder: Path, n: int = 60, periods: tuple[str, ...] = PERIODS) -> Bank:
    items = items_table(n)
    bank = Bank.create(folder, SPEC)
    for period in periods:
        bank.add(
            period, responses_table(items, period), items, calibrator=made_up, reason="made up", accept_unconverged=True
        )
    return bank
