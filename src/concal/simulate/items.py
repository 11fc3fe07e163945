r"""Items of a simulated bank: features, :math:`\xi_j \sim N(X_j\beta_g, \Sigma_g)`, life spans, popularity, drift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.errors import SpecError
from concal.formula import parse_formula
from concal.names import split_stratum, stratum_name
from concal.response import ResponseModel
from concal.simulate.plan import Plan
from concal.spec import GroupSpec, Spec

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

CATEGORIES = (2, 3, 5)
"""Numbers of categories of items in a group that leaves them to the items."""
LEVELS = ("A1", "A2", "B1", "B2", "C1")
_CENTRES = {"log_frequency": 3.5, "length": 8.0}
# effects on (d, log a) per unit of a number, and per step up a category
_EFFECTS = {"log_frequency": (-0.30, 0.04), "length": (0.08, -0.02), "cefr": (0.30, 0.03)}


@dataclass(frozen=True)
class Group:
    """One group's items, in the order they enter the bank."""

    name: str
    dimension: int
    model: ResponseModel
    ids: list[str]
    xi: Array  # (items, p), before drift
    features: tuple[str, ...]
    beta: Array  # (features, p)
    covariance: Array  # (p, p)


@dataclass(frozen=True)
class SimulatedItems:
    """All items; index arrays run over the groups one after the other."""

    groups: tuple[Group, ...]
    table: pl.DataFrame  # what the user brings
    group: Index
    within: Index
    first: Index  # period an item enters
    last: Index  # its last period
    popularity: Array
    drift_period: Index  # the number of periods where it does not drift
    drift: Array

    @property
    def dimension(self) -> Index:
        """Dimension of every item."""
        return np.array([g.dimension for g in self.groups])[self.group]

    @property
    def max_score(self) -> Array:
        """Largest score of every item."""
        return np.array([g.model.max_score for g in self.groups])[self.group]

    @property
    def ids(self) -> pl.Series:
        """Item ids in index order."""
        return self.table["item_id"]

    def active(self, period: int) -> npt.NDArray[np.bool_]:
        """Which items are in use."""
        found: npt.NDArray[np.bool_] = (self.first <= period) & (period <= self.last)
        return found

    def xi(self, period: int) -> list[Array]:
        """Item vectors of each group, drift included."""
        moved = []
        for g, group in enumerate(self.groups):
            mine = self.group == g
            xi = group.xi.copy()
            xi[:, 0] += np.where(self.drift_period[mine] <= period, self.drift[mine], 0.0)
            moved.append(xi)
        return moved


def simulate_items(spec: Spec, plan: Plan, shares: Mapping[str, float] | None) -> SimulatedItems:
    """Draw the bank; every cohort that enters has the same mix of groups."""
    names, weights = _strata(spec, _weights(list(spec.groups), shares))
    first, last, group = _life_spans(plan, weights)
    order = np.argsort(group, kind="stable")
    first, last, group = first[order], last[order], group[order]
    groups: list[Group] = []
    tables, within = [], np.zeros(plan.items, dtype=np.int64)
    for g, name in enumerate(names):
        n = int((group == g).sum())
        within[group == g] = np.arange(n)
        rng, own = plan.rng("items", g), spec.group(name)
        assert own is not None
        head = next((h.beta[:, :2] for h in groups if split_stratum(h.name)[0] == split_stratum(name)[0]), None)
        made, table = _draw_group(name, own, spec.bank.dimensions, n, plan.log_a, rng, head)
        groups.append(made)
        tables.append(table)
    rng = plan.rng("exposure")
    popularity = np.exp(plan.exposure_spread * rng.normal(size=plan.items))
    drift_period, drift = _draw_drift(plan, first, last)
    table = pl.concat(tables, how="diagonal")
    return SimulatedItems(tuple(groups), table, group, within, first, last, popularity, drift_period, drift)


def _strata(spec: Spec, weights: Array) -> tuple[list[str], Array]:
    """Groups, and the strata of those whose items have their own numbers of categories; with their shares."""
    names, shares = [], []
    for (name, group), weight in zip(spec.groups.items(), weights.tolist(), strict=True):
        mixed = group.polytomous and group.categories is None
        parts = [stratum_name(name, k) for k in CATEGORIES] if mixed else [name]
        names += parts
        shares += [weight / len(parts)] * len(parts)
    return names, np.array(shares)


def _weights(names: list[str], shares: Mapping[str, float] | None) -> Array:
    if shares is None:
        return np.full(len(names), 1.0 / len(names))
    if set(shares) != set(names) or min(shares.values()) <= 0:
        raise SpecError(f"simulate: shares must give a positive number for each of the groups {', '.join(names)}")
    weights = np.array([shares[name] for name in names], dtype=np.float64)
    normed: Array = weights / weights.sum()
    return normed


def _life_spans(plan: Plan, weights: Array) -> tuple[Index, Index, Index]:
    """First and last period, and group, of every item in the order they enter."""
    first = np.concatenate([np.zeros(plan.n_active), *(np.full(plan.n_new, m) for m in range(1, plan.periods))])
    last = np.full(plan.items, plan.periods - 1)
    rng = plan.rng("turnover")
    for m in range(1, plan.periods):
        in_use = np.flatnonzero((first < m) & (last >= m))
        last[rng.choice(in_use, size=min(plan.n_new, in_use.size), replace=False)] = m - 1
    group = np.zeros(plan.items, dtype=np.int64)
    for cohort in range(plan.periods):  # every cohort that enters has the same mix of groups
        mine = np.flatnonzero(first == cohort)
        edges = np.round(np.cumsum(weights) * mine.size).astype(np.int64)
        group[mine] = np.searchsorted(edges, np.arange(mine.size), side="right").clip(max=weights.size - 1)
    return first.astype(np.int64), last.astype(np.int64), group


def _draw_group(
    name: str,
    spec: GroupSpec,
    dimensions: tuple[str, ...],
    n: int,
    log_a: float,
    rng: np.random.Generator,
    head: Array | None = None,
) -> tuple[Group, pl.DataFrame]:
    """Items of a group or stratum; `head` is the beta of d and log a that another stratum of the group has."""
    model, (base, categories) = spec.response_model, split_stratum(name)
    prefix = base if categories is None else f"{base}-{categories}"
    table = pl.DataFrame(
        {
            "item_id": [f"{prefix}-{k:05d}" for k in range(1, n + 1)],
            "group": [base] * n,
            **({} if categories is None else {"categories": [categories] * n}),
            "log_frequency": np.round(rng.normal(_CENTRES["log_frequency"], 1.0, n), 3),
            "length": np.clip(np.round(rng.normal(_CENTRES["length"], 2.5, n)), 1, 20),
            "cefr": [LEVELS[k % len(LEVELS)] for k in range(n)],
        }
    )
    X, features, beta = _population(name, spec, model, table, rng)
    beta[0, 1] += log_a
    if head is not None:
        beta[:, :2] = head
    sd = np.array(model.prior.sd)
    correlation = np.eye(sd.size)
    correlation[0, 1] = correlation[1, 0] = 0.2
    covariance = sd[:, None] * correlation * sd
    xi = X @ beta + rng.normal(size=(n, sd.size)) @ np.linalg.cholesky(covariance).T
    for c in model.shared:
        xi[:, c] = (X @ beta)[:, c].mean()
    group = Group(
        name, dimensions.index(spec.dimension), model, table["item_id"].to_list(), xi, features, beta, covariance
    )
    return group, table


def _population(
    name: str, spec: GroupSpec, model: ResponseModel, table: pl.DataFrame, rng: np.random.Generator
) -> tuple[Array, tuple[str, ...], Array]:
    """X, its columns and beta: the features the formula names explain d and log a, a little differently per group."""
    columns, names, rows = [np.ones(table.height)], ["1"], [np.array(model.prior.mean)]
    for column in parse_formula(spec.features).columns:
        if column not in _EFFECTS:
            raise SpecError(
                f"groups.{name}.features: a simulated item table has no column {column!r}; it has {', '.join(_EFFECTS)}"
            )
        effect = np.zeros(len(model.parameters))
        effect[:2] = np.array(_EFFECTS[column]) * rng.uniform(0.7, 1.3)
        if column in _CENTRES:
            columns.append(table[column].to_numpy())
            names.append(column)
            rows.append(effect)
            rows[0] = rows[0] - _CENTRES[column] * effect
        else:
            for step, level in enumerate(LEVELS[1:], start=1):
                columns.append((table[column] == level).cast(pl.Float64).to_numpy())
                names.append(f"C({column})[{level}]")
                rows.append(step * effect)
            rows[0] = rows[0] - (len(LEVELS) - 1) / 2 * effect
    return np.column_stack(columns), tuple(names), np.stack(rows)


def _draw_drift(plan: Plan, first: Index, last: Index) -> tuple[Index, Array]:
    """Which items jump, when and how far; only an item that lives through two periods can."""
    rng = plan.rng("drift")
    n = plan.items
    drifting = np.zeros(n, dtype=bool)
    able = np.flatnonzero(last > first)
    count = min(round(plan.drift_share * n), able.size)
    drifting[rng.permutation(able)[:count]] = True
    when = first + 1 + np.floor(rng.random(n) * np.maximum(last - first, 1)).astype(np.int64)
    sign = {"easier": -np.ones(n), "harder": np.ones(n), "both": np.where(rng.random(n) < 0.5, -1.0, 1.0)}
    jump = sign[plan.drift_direction] * plan.drift_size
    return np.where(drifting, when, plan.periods), np.where(drifting, jump, 0.0)
