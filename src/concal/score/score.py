"""Scores of examinees: from a response table to one row per examinee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.calibration.workers import Workers, available_cores
from concal.data.read import Table
from concal.errors import DataError, counted, first_few
from concal.score.covariates import covariate_matrix
from concal.score.estimate import Estimator, Level, Method
from concal.score.items import ScoringItems
from concal.score.over_draws import Variances
from concal.score.plausible import person_keys, plausible_values
from concal.score.prior import Abilities, Prior, Priors, named_priors, priors_of
from concal.score.regression import conditioned_values
from concal.score.reporting import reported_scores
from concal.score.responses import Examinees
from concal.score.rows import Answered
from concal.score.split import SplitItems
from concal.spec import ReportedScore, Spec

Array = npt.NDArray[np.float64]
CHUNK = 8_000_000
"""Responses scored at a time; what holds them and their examinees' sums takes some 500 MB with 100 draws."""
LOOSE = 24
"""A score that is no atom has a likelihood row of its own: it costs the memory of so many responses."""
LEVELS = ("mean", "soft", "draws")
METHODS = ("eap", "map", "ml", "wle")


@dataclass(frozen=True)
class ScoringBank:
    """All that scoring needs of one version of a bank.

    Attributes
    ----------
    items : ScoringItems
    abilities : Abilities
    spec : Spec
    split : SplitItems
        Which items ids mean that were split.
    unconverged : mapping of item id to periods
        Items whose chains had not converged, with the periods in which they had not.
    """

    items: ScoringItems
    abilities: Abilities
    spec: Spec
    split: SplitItems = field(default_factory=SplitItems)
    unconverged: Mapping[str, str] = field(default_factory=dict)

    @property
    def reporting(self) -> Mapping[str, ReportedScore]:
        """How theta becomes a reported score."""
        return self.spec.reporting

    def doubts(self, people: Examinees) -> tuple[str, ...]:
        """What is to be said about the items these examinees answered."""
        if not self.unconverged:
            return ()
        answered = [self.items.item_ids[j] for j in np.unique(people.answered.item)]
        found = [item for item in answered if item in self.unconverged]
        if not found:
            return ()
        said = f"{counted(len(found), 'answered item')} had not converged in some period: {first_few(found)}"
        return (f"{said}; their scores may change when the period is calibrated longer",)


@dataclass(frozen=True)
class ScoreOptions:
    """How to score.

    Attributes
    ----------
    method : "eap", "map", "ml" or "wle"
    items : "mean", "soft" or "draws", or None
        Item uncertainty; None: "soft" with eap, "mean" with the others.
    prior : str or Prior
        "all" (the distribution of all periods), the name of a period, or a distribution.
    draws : int
        How many draws of the items, for items = "draws".
    seed : int
        Of plausible values.
    threads : int
    """

    method: Method = "eap"
    items: Level | None = None
    prior: str | Prior = "all"
    draws: int = 100
    seed: int = 20264
    threads: int = field(default_factory=available_cores)

    @property
    def level(self) -> Level:
        """The level of item uncertainty in force."""
        return self.items or ("soft" if self.method == "eap" else "mean")

    def check(self, bank: ScoringBank) -> None:
        """Refuse what cannot be done, before any work."""
        if self.method not in METHODS:
            raise DataError(f"method must be one of {', '.join(METHODS)}, not {self.method!r}")
        if self.items is not None and self.items not in LEVELS:
            raise DataError(f"items must be one of {', '.join(LEVELS)}, not {self.items!r}")
        if self.level == "soft" and self.method != "eap":
            raise DataError(
                f'items = "soft" averages likelihoods and has no information function, so {self.method} cannot use it; '
                'take items = "mean" or "draws"'
            )
        if self.level == "draws":
            bank.items.spread_draws(self.draws)


def score_examinees(bank: ScoringBank, people: Examinees, options: ScoreOptions) -> pl.DataFrame:
    """One row per examinee; the columns are those of `Version.score`."""
    options.check(bank)
    priors = examinee_priors(bank, people, options.prior)
    workers = Workers(options.threads)
    try:
        draws = bank.items.spread_draws(options.draws) if options.level == "draws" else np.zeros(0, np.int64)
        estimator = Estimator(bank.items, priors, options.method, options.level, draws, workers)
        frames = [
            _frame(bank, people, (lo, hi), priors, estimator.estimate(part, priors.group[lo:hi]), options)
            for lo, hi in chunks(bank.items, people.answered)
            for part in [people.answered.part(lo, hi)]
        ]
    finally:
        workers.close()
    return pl.concat(frames)


def draw_plausible_values(
    bank: ScoringBank,
    people: Examinees,
    n: int,
    options: ScoreOptions,
    *,
    per_draw: int = 1,
    covariates: Table | None = None,
) -> pl.DataFrame:
    """Plausible values as a long table: person_id, pv, item_draw, theta_D.

    With `covariates` the prior is a regression on them, estimated from these examinees (`concal.score.regression`).
    """
    if per_draw < 1:
        raise DataError(f"per_draw must be at least 1, not {per_draw}")
    draws = np.repeat(bank.items.spread_draws(n, "plausible values"), per_draw)
    if covariates is not None and (options.prior != "all" or people.prior is not None):
        raise DataError("covariates make the prior themselves; leave the prior (and its column) out")
    X = None if covariates is None else covariate_matrix(covariates, people.person_ids, bank.spec.data.person_id)
    priors = examinee_priors(bank, people, options.prior)
    workers, frames = Workers(options.threads), []
    keys = person_keys(people.person_ids.to_list(), options.seed)
    try:
        estimator = Estimator(bank.items, priors, "eap", "draws", draws, workers)
        for lo, hi in chunks(bank.items, people.answered) if X is None else [(0, keys.size)]:
            part = people.answered.part(lo, hi)
            sets = (
                plausible_values(estimator, part, priors.group[lo:hi], keys[lo:hi])
                if X is None
                else conditioned_values(estimator, part, X, keys, options.seed)
            )
            values = np.stack(list(sets), axis=1)  # (persons, sets, D)
            size = values.shape[:2]
            columns = {f"theta_{d}": values[:, :, k].ravel() for k, d in enumerate(bank.items.dimensions)}
            frames.append(
                pl.DataFrame(
                    {
                        "person_id": people.person_ids[lo:hi].gather(np.repeat(np.arange(size[0]), size[1])),
                        "pv": np.tile(np.arange(1, size[1] + 1), size[0]),
                        "item_draw": np.tile(draws, size[0]),
                        **columns,
                    }
                )
            )
    finally:
        workers.close()
    return pl.concat(frames)


def examinee_priors(bank: ScoringBank, people: Examinees, prior: str | Prior) -> Priors:
    """Each examinee's prior: the one their column names, or the one for all."""
    n = people.person_ids.len()
    if people.prior is None:
        return priors_of([prior], np.zeros(n, np.int32), bank.abilities, bank.items.dimensions)
    names, group = named_priors(people.prior.to_list(), people.person_ids.to_list(), bank.abilities)
    return priors_of(names, group, bank.abilities, bank.items.dimensions)


def chunks(items: ScoringItems, answered: Answered) -> Iterator[tuple[int, int]]:
    """Examinees lo..hi that fit into memory together, at least one and never a part of one."""
    loose = np.zeros(len(items.item_ids), dtype=bool)
    for g in items.groups:
        loose[g.first : g.first + g.n_items] = g.model.levels > 0
    cost = np.concatenate([[0], np.cumsum(1 + LOOSE * loose[answered.item])])[answered.start]
    cost = cost + 8 * np.arange(cost.size)
    lo, n = 0, answered.n_persons
    while lo < n:
        hi = max(lo + 1, int(np.searchsorted(cost, cost[lo] + CHUNK, side="right")) - 1)
        yield lo, min(hi, n)
        lo = min(hi, n)
    if not n:
        yield 0, 0


def _frame(
    bank: ScoringBank,
    people: Examinees,
    span: tuple[int, int],
    priors: Priors,
    found: Variances,
    options: ScoreOptions,
) -> pl.DataFrame:
    """The table of examinees lo..hi."""
    lo, hi = span
    dimensions = bank.items.dimensions
    counts = people.counts(bank.items, lo, hi)
    uses_prior = options.method in ("eap", "map")
    level = bank.items.draws_kind if options.level == "draws" else options.level
    columns: dict[str, object] = {
        "person_id": people.person_ids[lo:hi],
        "n_responses": counts.sum(axis=1),
        **({"n_unknown": people.n_unknown[lo:hi]} if people.n_unknown is not None else {}),
        "prior": pl.Series(priors.names if uses_prior else [None] * len(priors.names), dtype=pl.String).gather(
            priors.group[lo:hi]
        ),
        "items": pl.repeat(level, hi - lo, dtype=pl.String, eager=True),
    }
    sd = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    for k, d in enumerate(dimensions):
        columns[f"theta_{d}"] = found.theta[:, k]
        columns[f"se_{d}"] = sd[:, k]
        for part in ("measurement", "items", "link"):
            value = getattr(found, part)
            columns[f"se_{part}_{d}"] = np.full(hi - lo, np.nan) if value is None else np.sqrt(value[:, k])
        columns[f"n_{d}"] = counts[:, k]
        columns[f"flag_{d}"] = _flags(found.theta[:, k], counts[:, k], uses_prior)
    for k, right in enumerate(dimensions):
        for l, left in enumerate(dimensions[:k]):
            columns[f"correlation_{left}_{right}"] = found.covariance[:, l, k] / (sd[:, l] * sd[:, k])
    columns |= reported_scores(bank.reporting, dimensions, found.theta, found.covariance)
    return pl.DataFrame(columns).with_columns(pl.selectors.float().fill_nan(None))


def _flags(theta: Array, n: npt.NDArray[np.int64], uses_prior: bool) -> pl.Series:
    """What to know about an estimate: no response behind it (then it is the prior's), or not finite."""
    text = np.where(n == 0, "prior" if uses_prior else "no responses", "")
    text = np.where(np.isinf(theta), "not finite", text)
    return pl.Series(text.tolist(), dtype=pl.String).replace({"": None})


def variance_shares(scores: pl.DataFrame) -> pl.DataFrame:
    r"""Reliability and the parts of the error variance over all examinees of a score table, one row per dimension.

    Variances are means of the squared standard errors; rows without a finite estimate are left out. With V the error
    variance and S the variance of the estimates, reliability is :math:`S / (S + V)` for estimates that have a prior and
    :math:`1 - V / S` for those without (ml, wle).
    """
    rows = []
    for name in [c.removeprefix("theta_") for c in scores.columns if c.startswith("theta_")]:
        used = scores.filter(pl.col(f"se_{name}").is_not_null())
        total = used[f"se_{name}"].pow(2).mean()
        row: dict[str, object] = {"dimension": name, "examinees": used.height, "variance": total}
        row["reliability"] = _reliability(used[f"theta_{name}"], total, shrunken=used["prior"].is_not_null().all())  # type: ignore[arg-type]
        for part in ("measurement", "items", "link"):
            value = used[f"se_{part}_{name}"].pow(2).mean()
            row[part] = value
            row[f"share_{part}"] = None if value is None or not total else value / total  # type: ignore[operator]
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def _reliability(theta: pl.Series, error: float | None, *, shrunken: bool) -> float | None:
    spread = theta.var() if theta.len() > 1 else None
    if not isinstance(spread, float) or not spread or error is None:
        return None
    return spread / (spread + error) if shrunken else 1.0 - error / spread
