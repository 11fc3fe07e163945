"""Simulate a programme: periods of responses to an evolving bank, and the truth behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.errors import DataError, SpecError
from concal.simulate.examinees import Examinees, group_of, simulate_examinees
from concal.simulate.items import SimulatedItems, simulate_items
from concal.simulate.plan import Plan, demo_spec
from concal.simulate.select import Experience, choose_adaptively, choose_tests
from concal.spec import Spec

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

_CHUNK = 400_000  # responses simulated at a time: bounds memory, not the result


@dataclass(frozen=True)
class Truth:
    """What generated a programme, on the reference metric (the first period's).

    Attributes
    ----------
    items : polars DataFrame
        period, item_id, group, dimension, parameter, value: xi of the items in use, drift included.
    abilities : polars DataFrame
        period, person_id, person_group where there are several, and a column per dimension.
    periods : polars DataFrame
        period, dimension, mean, sd of the population of new examinees.
    correlations : polars DataFrame
        dimension, other, value.
    population : polars DataFrame
        group, feature, parameter, value: beta.
    covariance : polars DataFrame
        group, parameter, other, value: Sigma.
    drift : polars DataFrame
        item_id, period of the jump, shift of d.
    """

    items: pl.DataFrame
    abilities: pl.DataFrame
    periods: pl.DataFrame
    correlations: pl.DataFrame
    population: pl.DataFrame
    covariance: pl.DataFrame
    drift: pl.DataFrame


@dataclass(frozen=True)
class Programme:
    """A simulated programme: what a user would bring, and the truth."""

    spec: Spec
    items: pl.DataFrame
    responses: dict[str, pl.DataFrame]
    truth: Truth

    def write(
        self, folder: str | Path, format: Literal["csv", "parquet"] = "csv", *, overwrite: bool = False
    ) -> dict[str, Path]:
        """Write bank.toml, items, one response file per period and, in a folder of its own, the truth.

        Returns
        -------
        dict
            ``"spec"``, ``"items"``, every period, and ``"truth"``: where each was written.
        """
        if format not in ("csv", "parquet"):
            raise SpecError(f"simulate: format = {format!r}; choose csv or parquet")
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{str(folder)!r} is a file; name a folder")
        if not overwrite and folder.is_dir() and any(folder.iterdir()):
            raise DataError(f"the folder {str(folder)!r} is not empty; name another one, or overwrite on purpose")
        (folder / "truth").mkdir(parents=True, exist_ok=True)
        places = {"spec": folder / "bank.toml", "items": folder / f"items.{format}", "truth": folder / "truth"}
        self.spec.write(places["spec"])
        _write_frame(self.items, places["items"])
        for period, frame in self.responses.items():
            places[period] = folder / f"responses-{period}.{format}"
            _write_frame(frame, places[period])
        for field in fields(self.truth):
            _write_frame(getattr(self.truth, field.name), places["truth"] / f"{field.name}.{format}")
        return places


def simulate_programme(
    spec: Spec | None = None, *, shares: Mapping[str, float] | None = None, **options: Any
) -> Programme:
    """Simulate M periods of an evolving item bank, with the truth.

    Parameters
    ----------
    spec : Spec, optional
        Groups, models and dimensions; formulas may use the columns log_frequency, length and cefr of the simulated
        item table. A gpcm or grm group without `categories` gets items with 2, 3 and 5 of them. Default: two
        dimensions, 2pl, gpcm and ordered_beta.
    shares : mapping of group to number, optional
        How the items divide over the groups; default equally.
    **options
        The options of `concal.simulate.Plan`: periods, items, examinees, responses_per_examinee, seed, selection,
        turnover, new_item_exposure, exposure_spread, ability_shift, ability_spread, correlation, drift_share,
        drift_size, drift_direction, log_a, overlap, person_groups, group_shift.

    Returns
    -------
    Programme

    Examples
    --------
    >>> programme = simulate_programme(periods=2, items=60, examinees=50, responses_per_examinee=20, seed=3)
    >>> {period: frame.height for period, frame in programme.responses.items()}
    {'2026Q1': 1000, '2026Q2': 1000}
    """
    known = [field.name for field in fields(Plan)]
    if unknown := sorted(set(options) - set(known)):
        raise SpecError(f"simulate: unknown option {unknown[0]!r}; known: {', '.join(known)}")
    plan = Plan(**options)
    spec = demo_spec() if spec is None else spec
    items = simulate_items(spec, plan, shares)
    examinees = simulate_examinees(plan, len(spec.bank.dimensions))
    experience = Experience.none(plan.items)
    responses = {
        period: _simulate_period(m, plan, items, examinees, experience) for m, period in enumerate(plan.period_names)
    }
    return Programme(spec, items.table, responses, _truth(spec, plan, items, examinees))


def _simulate_period(
    m: int, plan: Plan, items: SimulatedItems, examinees: Examinees, experience: Experience
) -> pl.DataFrame:
    weights = np.where(items.active(m), 1.0 if plan.selection == "random" else items.popularity, 0.0)
    weights = weights * np.where((items.first == m) & (m > 0), plan.new_item_exposure, 1.0)
    theta, xi = examinees.theta[m], items.xi(m)
    n, length = plan.examinees, plan.responses_per_examinee
    choice, answer = plan.rng("selection", m), plan.rng("responses", m)
    if plan.selection in ("adaptive", "adaptive_within"):
        experience = Experience.none(plan.items) if plan.selection == "adaptive_within" else experience
        score = np.empty((n, length))
        position = iter(range(length))

        def respond(person: Index, item: Index) -> Array:
            given = _respond(items, xi, item, theta[person], answer)
            score[:, next(position)] = given
            return given / items.max_score[item]

        shape = (n, length, theta.shape[1])
        tests = choose_adaptively(weights, items.dimension, shape, respond, experience, choice)
    else:
        tests = choose_tests(weights, n, length, choice)
        score = np.concatenate(
            [
                _respond(items, xi, some.ravel(), np.repeat(abilities, length, axis=0), answer)
                for some, abilities in _chunks(tests, theta, max(_CHUNK // length, 1))
            ]
        )
    who = np.repeat(np.arange(n), length)
    return pl.DataFrame(
        {
            "person_id": _person_ids(examinees.person[m]).gather(who),
            "item_id": items.ids.gather(tests.ravel()),
            "score": score.ravel(),
            **{name: column.gather(who) for name, column in _group_column(examinees.person[m], plan).items()},
        }
    )


def _group_column(person: Index, plan: Plan) -> dict[str, pl.Series]:
    """`person_group` of examinees, where there are several: A, B, ..."""
    if plan.person_groups == 1:
        return {}
    names = pl.Series([chr(ord("A") + k) for k in range(plan.person_groups)])
    return {"person_group": names.gather(group_of(person, plan))}


def _chunks(tests: Index, theta: Array, size: int) -> list[tuple[Index, Array]]:
    return [(tests[k : k + size], theta[k : k + size]) for k in range(0, tests.shape[0], size)]


def _respond(items: SimulatedItems, xi: list[Array], item: Index, theta: Array, rng: np.random.Generator) -> Array:
    """Raw scores of abilities (n, dimensions) on items (n,)."""
    score = np.empty(item.shape[0])
    group = items.group[item]
    for g, made in enumerate(items.groups):
        mine = np.flatnonzero(group == g)
        if mine.size:
            score[mine] = made.model.simulate(theta[mine, made.dimension], xi[g][items.within[item[mine]]], rng)
    return score


def _person_ids(number: Index) -> pl.Series:
    return pl.select("p" + pl.lit(pl.Series(number + 1)).cast(pl.String).str.zfill(8)).to_series()


def _truth(spec: Spec, plan: Plan, items: SimulatedItems, examinees: Examinees) -> Truth:
    dimensions = list(spec.bank.dimensions)
    periods = [
        {"period": period, "dimension": name, "mean": float(examinees.mean[m, k]), "sd": float(examinees.sd[m, k])}
        for m, period in enumerate(plan.period_names)
        for k, name in enumerate(dimensions)
    ]
    correlations = [
        {"dimension": one, "other": two, "value": float(examinees.correlation[i, j])}
        for i, one in enumerate(dimensions)
        for j, two in enumerate(dimensions)
        if i < j
    ]
    schema = {"dimension": pl.String, "other": pl.String, "value": pl.Float64}
    abilities = [
        pl.DataFrame(
            {
                "period": [period] * plan.examinees,
                "person_id": _person_ids(examinees.person[m]),
                **_group_column(examinees.person[m], plan),
            }
        ).with_columns(pl.Series(name, examinees.theta[m][:, k]) for k, name in enumerate(dimensions))
        for m, period in enumerate(plan.period_names)
    ]
    drifting = np.flatnonzero(items.drift != 0)
    return Truth(
        items=pl.concat(_true_items(m, period, items, dimensions) for m, period in enumerate(plan.period_names)),
        abilities=pl.concat(abilities),
        periods=pl.DataFrame(periods),
        correlations=pl.DataFrame(correlations, schema=schema),
        population=pl.concat(
            _long({"group": g.name}, "feature", g.features, g.model.parameters, g.beta) for g in items.groups
        ),
        covariance=pl.concat(
            _long({"group": g.name}, "other", g.model.parameters, g.model.parameters, g.covariance)
            for g in items.groups
        ),
        drift=pl.DataFrame(
            {
                "item_id": items.ids.gather(drifting),
                "period": pl.Series([plan.period_names[m] for m in items.drift_period[drifting]], dtype=pl.String),
                "shift": items.drift[drifting],
            }
        ),
    )


def _true_items(m: int, period: str, items: SimulatedItems, dimensions: list[str]) -> pl.DataFrame:
    active, frames = items.active(m), []
    for g, (group, xi) in enumerate(zip(items.groups, items.xi(m), strict=True)):
        used = np.flatnonzero(active[items.group == g])
        labels = {"period": period, "group": group.name, "dimension": dimensions[group.dimension]}
        ids = pl.Series(group.ids, dtype=pl.String).gather(used).to_list()
        frames.append(_long(labels, "item_id", ids, group.model.parameters, xi[used]))
    return pl.concat(frames)


def _long(labels: Mapping[str, str], name: str, rows: Any, columns: tuple[str, ...], values: Array) -> pl.DataFrame:
    """A matrix as (labels, row name, parameter, value) rows."""
    n, p = values.shape
    return pl.DataFrame(
        {
            name: pl.Series(rows, dtype=pl.String).gather(np.repeat(np.arange(n), p)),
            "parameter": pl.Series(columns, dtype=pl.String).gather(np.tile(np.arange(p), n)),
            "value": values.ravel(),
        }
    ).select(*(pl.lit(value).alias(key) for key, value in labels.items()), pl.all())


def _write_frame(frame: pl.DataFrame, path: Path) -> None:
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)
