"""An existing bank's item parameters with standard errors, as a starting period."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.exchange.draws import calibration_from_draws
from concal.bank.exchange.population import gibbs, population_of_draws
from concal.calibration.result import Calibration
from concal.calibration.streams import seed_of
from concal.data.findings import Findings
from concal.data.items import read_items
from concal.data.read import Table
from concal.data.strata import strata
from concal.errors import DataError, counted, first_few
from concal.formula.design import apply_design, learn_design
from concal.response.natural import xi_from_natural
from concal.spec import Spec

Array = npt.NDArray[np.float64]
CHAINS = 4


def legacy_calibration(
    period: str,
    parameters: Table,
    spec: Spec,
    *,
    prior: Literal["none", "included"] = "none",
    design_states: Mapping[str, Any] | None = None,
    draws: int | None = None,
    seed: int = 0,
) -> tuple[Calibration, dict[str, Any]]:
    r"""Item parameters with standard errors as a period, on the metric they are reported on.

    Parameters
    ----------
    parameters
        Path or data frame with one row per item: `item_id`, `group`, the response model's natural parameters (`a`,
        `d`, ... as in `concal.link_parameters`), standard errors ``se_d`` and ``se_a`` (or ``se_log_a``, and
        ``se_<name>`` for further coordinates of xi), optionally `n_responses`, and the features of the spec.
    prior
        "none": the standard errors are those of a likelihood (maximum likelihood, marginal or joint); the items'
        posterior under the population model is sampled, and combining takes the population out again.
        "included": estimate and SE are a posterior mean and SD; draws are N(estimate, SE).
    draws
        Default: the spec's.
    """
    if prior not in ("none", "included"):
        raise DataError(f'prior must be "none" or "included", not {prior!r}')
    found = Findings("parameters")
    table = read_items(parameters, spec, found)
    found.stop_if_bad()
    n_draws = draws or spec.calibration.draws
    n_draws -= n_draws % CHAINS
    rng = np.random.default_rng(seed_of(seed, period))
    arrays: dict[str, Any] = {}
    ids: dict[str, list[str]] = {}
    states = dict(design_states or {})
    for name, group in strata(table, spec).items():
        rows = table.filter(pl.col("group") == name)
        model = group.response_model
        estimate = xi_from_natural(model, rows)
        se = _standard_errors(rows, model.parameters, name)
        states[name] = learn_design(group.features, rows, name, states.get(name))
        X, _ = apply_design(group.features, rows, name, states[name], warnings=[])
        if prior == "none":
            xi, beta, sigma = gibbs(estimate, se, X, model, spec.calibration.tau, n_draws, rng)
        else:
            xi = estimate + se * rng.standard_normal((n_draws, *estimate.shape))
            beta, sigma = population_of_draws(xi, X, model, spec.calibration.tau, rng)
        for key, values in ((f"xi_{name}", xi), (f"beta_{name}", beta), (f"sigma_{name}", sigma)):
            arrays[key] = values.reshape(CHAINS, -1, *values.shape[1:])
        counts = rows["n_responses"].to_numpy() if "n_responses" in rows.columns else _counts(se)
        arrays[f"n_responses_{name}"] = np.maximum(np.asarray(counts, dtype=np.int64), 1)
        ids[name] = rows["item_id"].to_list()
    if not ids:
        raise DataError("parameters: the table has no items")
    return calibration_from_draws(
        period, arrays, spec, item_ids=ids, items=table, design_states=states, engine="legacy", seed=seed, sampled=False
    )


def _standard_errors(rows: pl.DataFrame, parameters: tuple[str, ...], group: str) -> Array:
    """SEs of xi; that of log a from that of a by the delta method, se(log a) = se(a) / a."""
    columns = []
    for name in parameters:
        if f"se_{name}" in rows.columns:
            columns.append(rows[f"se_{name}"].cast(pl.Float64, strict=False).to_numpy())
        elif name == "log_a" and "se_a" in rows.columns:
            columns.append((rows["se_a"].cast(pl.Float64, strict=False) / rows["a"]).to_numpy())
        else:
            raise DataError(f"parameters of group {group!r}: the column se_{name} is missing")
    se = np.stack(columns, axis=1)
    bad = ~(np.isfinite(se) & (se > 0)).all(axis=1)
    if bad.any():
        ids = rows.filter(pl.Series(bad))["item_id"].to_list()
        raise DataError(f"{counted(len(ids), 'item')} without a positive standard error: {first_few(ids)}")
    return se


def _counts(se: Array) -> Array:
    """About how many responses an SE of d speaks of: an item of a = 1 at its best point gives 1/4 a response."""
    return np.asarray(np.ceil(4.0 / np.square(se[:, 0])))
