"""Scores one examinee at a time, for programs that serve people while they wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from concal.calibration.workers import Workers, available_cores
from concal.data.findings import Findings
from concal.data.rows import score_units
from concal.errors import DataError, counted, first_few
from concal.score.grid import Grid, common_grid
from concal.score.posterior import Integrand, Misfit, Moments, Target, integrate
from concal.score.prior import Prior, priors_of
from concal.score.reporting import reported_scores
from concal.score.rows import Answered, LikelihoodRows, atom_rows
from concal.score.score import ScoringBank
from concal.score.stages import posterior

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """One examinee's score.

    Attributes
    ----------
    theta, se : dict of dimension -> float
        Posterior mean and SD on the reference metric.
    n : dict of dimension -> int
        Responses; a dimension without any has its prior's estimate.
    covariance : (D, D)
    reported, se_reported : dict of name -> float
    unknown : tuple of str
        Items the bank does not know, ignored.
    """

    theta: Mapping[str, float]
    se: Mapping[str, float]
    n: Mapping[str, int]
    covariance: Array
    reported: Mapping[str, float]
    se_reported: Mapping[str, float]
    unknown: tuple[str, ...] = ()


class Scorer:
    """EAP scores from one version of a bank, pinned to it and safe to use from many threads.

    All likelihoods of scores with a probability of their own are computed when it is made; scoring adds them up, and
    nothing is changed afterwards.

    Parameters
    ----------
    bank
        What `Version.scoring` gives.
    items
        "mean" or "soft", as in `Version.score`.
    prior
        The ability distribution: a period's name, "all", or a `Prior`.
    """

    def __init__(
        self, bank: ScoringBank, *, items: Literal["mean", "soft"] = "soft", prior: str | Prior = "all"
    ) -> None:
        if items not in ("mean", "soft"):
            raise DataError(f'a scorer takes items = "mean" or "soft", not {items!r}; score files for draws')
        self._bank, self._soft = bank, items == "soft"
        place = {item: k for k, item in enumerate(bank.items.item_ids)}
        meant = {old: place.get(new) for old, new in bank.split.now.items()}
        self._place = {**place, **meant}  # ids of items that were split mean the item as it is now
        self._units = score_units(bank.items.table, bank.spec, Findings("scoring"))
        self._workers = Workers(1)  # no threads of its own: calls run in the thread that makes them
        priors = priors_of([prior], np.zeros(1, np.int32), bank.abilities, bank.items.dimensions)
        self._target = Target(priors.group, priors.mean, priors.covariance, self._rows_at)
        self._grid: Grid = common_grid(priors.mean, priors.covariance)
        self._dim = np.concatenate([np.full(g.n_items, g.dim) for g in bank.items.groups])
        self._atoms = _every_atom(bank)
        loaders = Workers(available_cores())
        try:
            table = (self._atoms.soft_table if self._soft else self._atoms.mean_table)(self._grid.nodes[0], loaders)
        finally:
            loaders.close()
        prior_weights = self._grid.weights(priors.mean, priors.covariance)
        margins = self._grid.margins(priors.mean, priors.covariance)
        self._ready = Integrand(self._grid, table, prior_weights, margins)

    def _rows_at(self, rows: LikelihoodRows, nodes: Array) -> Array:
        return rows.soft_table(nodes, self._workers) if self._soft else rows.mean_table(nodes, self._workers)

    def score(self, responses: Mapping[str, float], *, unknown: Literal["error", "ignore"] = "error") -> Score:
        """Score one examinee: item id -> score. Without responses: the prior."""
        known: dict[int, float] = {}
        strange: list[str] = []
        twice: list[str] = []
        for name, value in responses.items():
            at = self._place.get(name)
            if at is None:
                strange.append(name)
            elif at in known:
                twice.append(name)
            else:
                known[at] = value
        if twice:
            raise DataError(
                f"{counted(len(twice), 'id')} mean an item that is answered already, because it was split: "
                f"{first_few(twice)}; keep one response to it"
            )
        if strange and unknown != "ignore":
            raise DataError(
                f"{counted(len(strange), 'item')} the bank does not know: {first_few(strange)}; leave them out, or "
                'score with unknown = "ignore"'
            )
        item = np.fromiter(known, np.int32, len(known))
        score = self._units.scores(item, np.fromiter(known.values(), np.float64, len(known)))
        self._check(item, score)
        answered = Answered(np.array([0, item.size]), item, score)
        return self._told(self._moments(answered), item, tuple(strange))

    def _check(self, item: npt.NDArray[np.int32], score: Array) -> None:
        for g in self._bank.items.groups:
            own = (item >= g.first) & (item < g.first + g.n_items)
            bad = own.copy()
            bad[own] = g.model.bad_scores(score[own])
            if bad.any():
                shown = [f"{score[r]:g} on {self._bank.items.item_ids[item[r]]!r}" for r in np.flatnonzero(bad)[:5]]
                raise DataError(
                    f"group {g.name!r} ({g.model.name}): {counted(int(bad.sum()), 'score')} must be "
                    f"{g.model.score_rule()}: {', '.join(shown)}"
                )

    def _moments(self, answered: Answered) -> Moments:
        """From the table made at the start; where a score or the grid does not fit it, from the models themselves."""
        items = self._bank.items
        place = atom_rows(items, answered.item, answered.score)
        if (place >= 0).all():
            rows = LikelihoodRows(self._atoms.rows[place], self._atoms.dim, ())
            found = integrate(rows, answered, self._target, self._ready, self._workers)
            if not Misfit.of(found, self._grid).any[0]:
                return found
        rows = LikelihoodRows.of(items, answered)
        return posterior(items, rows, answered, self._target, self._grid, self._workers)

    def _told(self, found: Moments, item: npt.NDArray[np.int32], strange: tuple[str, ...]) -> Score:
        names = self._bank.items.dimensions
        counts = np.bincount(self._dim[item], minlength=len(names))
        sd = np.sqrt(found.variance[0])
        reported = reported_scores(self._bank.reporting, names, found.mean, found.covariance)
        return Score(
            dict(zip(names, found.mean[0].tolist(), strict=True)),
            dict(zip(names, sd.tolist(), strict=True)),
            dict(zip(names, counts.tolist(), strict=True)),
            found.covariance[0],
            {n: float(reported[f"score_{n}"][0]) for n in self._bank.reporting},
            {n: float(reported[f"se_score_{n}"][0]) for n in self._bank.reporting},
            strange,
        )


def _every_atom(bank: ScoringBank) -> LikelihoodRows:
    """Rows of every item's atoms, in the order of `ScoringItems.first_atom`."""
    items = bank.items
    item = np.concatenate(
        [np.repeat(np.arange(g.first, g.first + g.n_items), len(g.model.atoms)) for g in items.groups]
    ).astype(np.int32)
    score = np.concatenate([np.tile(np.asarray(g.model.atoms, np.float64), g.n_items) for g in items.groups])
    return LikelihoodRows.of(items, Answered(np.array([0, item.size]), item, score))
