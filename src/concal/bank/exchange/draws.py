"""Draws of any Bayesian engine as a `Calibration`.

Names and shapes, for each item group g of the spec that the period has:

========================  =======================================  ====================================================
``xi_g``                  (chain, draw, item, parameter)           in the order of the response model's parameters; or
                                                                   one array (chain, draw, item) per parameter:
                                                                   ``d_g``, ``log_a_g``, ...
``beta_g``, ``sigma_g``   (chain, draw, feature, parameter),       the population model; estimated from the item draws
                          (chain, draw, parameter, parameter)      (with a warning) where absent
``n_responses_g``         (item,)                                  responses behind each item; 1 (with a warning) where
                                                                   absent
========================  =======================================  ====================================================

Items of a group that differ in their numbers of categories come by number, and g is ``essay (3 categories)``; they
share the population of d and log a, the first two columns of beta and the head of Sigma.

And over all groups, optional, with k dimensions: ``ability_mean``, ``ability_sd`` (chain, draw, k), ``correlation``
(chain, draw, k, k), ``theta_mean``, ``theta_sd`` (person, k) with the persons' ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from concal.bank.building.new_period import check_calibration, check_item_draws
from concal.bank.exchange.population import population_of_draws
from concal.calibration.diagnostics import diagnose
from concal.calibration.result import Abilities, Calibration, Convergence, GroupDraws
from concal.calibration.standardise import group_rows, standardise
from concal.calibration.streams import seed_of
from concal.calibration.verdict import enough_items, good_items
from concal.data.findings import Findings
from concal.data.items import read_items
from concal.data.read import Table
from concal.errors import DataError, SpecError, counted, first_few
from concal.formula.design import apply_design, coding_of, learn_design
from concal.names import check_safe_name, split_stratum, stratum_name
from concal.spec import GroupSpec, Spec

Array = npt.NDArray[np.float64]


def calibration_from_draws(
    period: str,
    draws: Mapping[str, Any],
    spec: Spec,
    *,
    item_ids: Mapping[str, Sequence[str]],
    items: Table | None = None,
    design_states: Mapping[str, Any] | None = None,
    person_ids: Sequence[str] | None = None,
    engine: str = "other",
    seed: int = 0,
    sampled: bool = True,
) -> tuple[Calibration, dict[str, Any]]:
    """A calibration from arrays by name; see the module for names and shapes.

    Parameters
    ----------
    period
        Its name.
    draws
        Arrays by name.
    spec
        The programme.
    item_ids
        Ids along the item axis, by group.
    items
        Item table with the features; not needed where formulas are "~ 1".
    design_states
        How the bank codes features (`Bank.design_states`).
    person_ids
        Ids along the person axis of `theta_mean`.
    engine
        Kept as where the draws come from.
    seed
        For the population step, where it is needed.
    sampled
        The draws are a sampler's, and there must be enough effective ones; False for draws made from estimates.

    Returns
    -------
    Calibration, and the design states with this period's features.
    """
    check_safe_name(period)
    parts = {name: spec.group(name) for name in item_ids}
    unknown = sorted(name for name, group in parts.items() if group is None)
    if unknown or not item_ids:
        raise SpecError(f"groups {first_few(unknown)} are not in the spec; it has {first_few(list(spec.groups))}")
    _unique([i for ids in item_ids.values() for i in ids])
    _numbered({name: group for name, group in parts.items() if group is not None})
    warnings: list[str] = []
    states = dict(design_states or {})
    rng = np.random.default_rng(seed_of(seed, period))
    order = list(spec.groups)
    groups = {
        name: _group(name, group, draws, tuple(item_ids[name]), items, spec, states, warnings, rng)
        for name, group in sorted(parts.items(), key=lambda part: order.index(split_stratum(part[0])[0]))
        if group is not None
    }
    shapes = {name: g.xi.shape[:2] for name, g in groups.items()}
    if len(set(shapes.values())) > 1:
        raise DataError(f"groups have different numbers of chains and draws: {shapes}; keep the same for all")
    used = {g.dimension for g in groups.values()}
    dimensions = tuple(d for d in spec.bank.dimensions if d in used)
    tau, whole = spec.calibration.tau, group_rows({name: g.X for name, g in groups.items()})
    calibration = Calibration(
        period=period,
        dimensions=dimensions,
        groups=groups,
        abilities=_abilities(draws, dimensions, person_ids),
        convergence=_convergence(groups, spec, warnings, sampled=sampled),
        tau=tau,
        beta_prior_precision={name: standardise(g.X, whole[name]).prior_precision(tau) for name, g in groups.items()},
        seed=seed,
        engine=engine,
    )
    check_calibration(calibration, spec)
    return calibration, states


def _unique(ids: list[str]) -> None:
    twice = [i for i in dict.fromkeys(ids) if ids.count(i) > 1] if len(set(ids)) < len(ids) else []
    if twice:
        raise DataError(f"{counted(len(twice), 'item id')} more than once: {first_few(twice)}; an item has one row")


def _numbered(parts: Mapping[str, GroupSpec]) -> None:
    """Items of a polytomous group without a number of its own come by their numbers of categories."""
    bare = [name for name, group in parts.items() if group.polytomous and group.categories is None]
    if bare:
        names = " and ".join(f"'xi_{stratum_name(bare[0], k)}'" for k in (2, 3))
        raise DataError(
            f"draws of group {first_few(bare)} do not say how many categories the items have: give them by number, as "
            f"{names} (and so for item ids, beta and sigma), or set categories in the group"
        )


def _group(
    name: str,
    group: GroupSpec,
    draws: Mapping[str, Any],
    ids: tuple[str, ...],
    items: Table | None,
    spec: Spec,
    states: dict[str, Any],
    warnings: list[str],
    rng: np.random.Generator,
) -> GroupDraws:
    model = group.response_model
    if model.shared:
        raise DataError(
            f"group {name!r} has equal slopes or steps, and draws or estimates from elsewhere are not taken for such a "
            'group; add its responses, or give it slopes = "free" and steps = "free"'
        )
    xi = _item_draws(name, model.parameters, draws)
    if xi.shape[2] != len(ids):
        raise DataError(f"xi_{name} has {xi.shape[2]} items, but {len(ids)} item ids were given")
    check_item_draws(f"group {name!r}", ids, xi)
    X, features = _design(name, group, ids, items, spec, states)
    chains, n_draws, n, p = xi.shape
    f = len(features)
    if f"beta_{name}" in draws and f"sigma_{name}" in draws:
        beta = _shaped(draws, f"beta_{name}", (chains, n_draws, f, p))
        sigma = _shaped(draws, f"sigma_{name}", (chains, n_draws, p, p))
    else:
        warnings.append(f"group {name!r} came without beta_{name} and sigma_{name}: estimated from its item draws")
        flat = xi.reshape(-1, n, p).astype(np.float64)
        found = population_of_draws(flat, X, model, spec.calibration.tau, rng)
        beta, sigma = (v.reshape(chains, n_draws, *v.shape[1:]) for v in found)
    if f"n_responses_{name}" in draws:
        counts = np.asarray(draws[f"n_responses_{name}"]).astype(np.int64)
        if counts.shape != (n,) or (counts < 0).any():
            raise DataError(f"n_responses_{name} must be {n} counts, got shape {counts.shape}")
    else:
        warnings.append(f"group {name!r} came without n_responses_{name}: every item counts alike as an anchor")
        counts = np.ones(n, dtype=np.int64)
    guide: dict[str, Any] = {}
    if f"guide_mean_{name}" in draws:
        shapes = {"mean": (n, p), "covariance": (n, p, p), "link": (chains, n_draws, 2)}
        missing = [f"guide_{key}_{name}" for key in shapes if f"guide_{key}_{name}" not in draws]
        if missing:
            raise DataError(f"group {name!r} has priors of its items, but {first_few(missing)} is missing")
        guide = {f"guide_{key}": _shaped(draws, f"guide_{key}_{name}", shape) for key, shape in shapes.items()}
    mixing = diagnose(xi)
    return GroupDraws(
        name=name,
        dimension=group.dimension,
        model=model,
        item_ids=ids,
        features=features,
        X=X,
        xi=xi,
        beta=beta,
        sigma=sigma,
        n_responses=counts,
        rhat=mixing.rhat,
        ess_bulk=mixing.ess_bulk,
        ess_tail=mixing.ess_tail,
        coding=coding_of(group.features, states[name]),
        **guide,
    )


def _item_draws(name: str, parameters: tuple[str, ...], draws: Mapping[str, Any]) -> npt.NDArray[np.float32]:
    if f"xi_{name}" in draws:
        xi = np.asarray(draws[f"xi_{name}"])
    else:
        missing = [f"{p}_{name}" for p in parameters if f"{p}_{name}" not in draws]
        if missing:
            raise DataError(
                f"no draws of group {name!r}: give xi_{name} (chain, draw, item, parameter), or "
                f"{', '.join(f'{p}_{name}' for p in parameters)} (chain, draw, item); found {first_few(sorted(draws))}"
            )
        xi = np.stack([np.asarray(draws[f"{p}_{name}"]) for p in parameters], axis=-1)
    if xi.ndim != 4 or xi.shape[-1] != len(parameters) or xi.dtype.kind not in "fiu":
        raise DataError(f"xi_{name} must be (chain, draw, item, {len(parameters)} parameters), got {xi.shape}")
    return np.ascontiguousarray(xi, dtype=np.float32)


def _shaped(draws: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Array:
    values = np.asarray(draws[name], dtype=np.float64)
    if values.shape != shape:
        raise DataError(f"{name} has shape {values.shape}, expected {shape}")
    return values


def _design(
    name: str, group: GroupSpec, ids: tuple[str, ...], items: Table | None, spec: Spec, states: dict[str, Any]
) -> tuple[Array, tuple[str, ...]]:
    """Design rows in the order of the ids."""
    if items is None:
        if group.features.replace(" ", "") not in ("~1", "~"):
            raise DataError(f"group {name!r} has features ({group.features}); give the item table too (--items)")
        table = pl.DataFrame({"item_id": list(ids)}, schema={"item_id": pl.String})
    else:
        found = Findings("items")
        table = read_items(items, spec, found)
        found.stop_if_bad()
        table = table.filter(pl.col("group") == name)
        order = pl.DataFrame({"item_id": list(ids)}, schema={"item_id": pl.String})
        lost = order.filter(~pl.col("item_id").is_in(table["item_id"].implode()))["item_id"].to_list()
        if lost:
            raise DataError(f"{counted(len(lost), 'item')} of group {name!r} not in the item table: {first_few(lost)}")
        table = order.join(table, on="item_id", how="left", maintain_order="left")
    states[name] = learn_design(group.features, table, name, states.get(name))
    return apply_design(group.features, table, name, states[name], unseen_level=spec.data.unseen_level, warnings=[])


def _abilities(
    draws: Mapping[str, Any], dimensions: tuple[str, ...], person_ids: Sequence[str] | None
) -> Abilities | None:
    if "theta_mean" not in draws or person_ids is None:
        return None
    n, k = len(person_ids), len(dimensions)
    mean, sd = _shaped(draws, "theta_mean", (n, k)), _shaped(draws, "theta_sd", (n, k))
    shape = np.shape(draws["ability_mean"])[:2]
    return Abilities(
        person_ids=pl.Series("person_id", list(person_ids), dtype=pl.String),
        mean=mean,
        sd=sd,
        n_responses=np.zeros((n, k), dtype=np.int64),
        draw_mean=_shaped(draws, "ability_mean", (*shape, k)),
        draw_sd=_shaped(draws, "ability_sd", (*shape, k)),
        correlation=_shaped(draws, "correlation", (*shape, k, k)),
    )


def _convergence(groups: Mapping[str, GroupDraws], spec: Spec, warnings: list[str], *, sampled: bool) -> Convergence:
    r"""Whether items' R-hat is within the target, and whether their effective draws give the means asked for.

    The mean of n effective draws has an error of :math:`1/\sqrt n` posterior SDs, the SD one of
    :math:`1/\sqrt{2n}` of itself.
    """
    targets, unknown = spec.calibration, float("nan")
    good = np.concatenate([good_items(g, targets) for g in groups.values()])
    share, enough = float(good.mean()), enough_items(good, targets)
    if not enough:
        warnings.append(
            f"only {100 * share:.1f} % of the items have R-hat <= {targets.max_item_rhat}; run longer chains"
        )
    if not sampled:
        return Convergence(enough, 0, 0, 1, 0.0, unknown, unknown, share, tuple(warnings))
    ess = np.nan_to_num(np.concatenate([g.ess_bulk.min(axis=1) for g in groups.values()]))
    wanted = targets.mean_error**-2 if targets.min_ess is None else targets.min_ess
    if not enough_items(ess >= wanted, targets):
        enough = False
        warnings.append(
            f"{(ess < wanted).sum()} of {ess.size} items have fewer than {wanted:.0f} effective draws, the fewest "
            f"{ess.min():.0f}; run longer chains"
        )
    error = max(float(np.quantile(ess, 1.0 - targets.item_share)), 1.0) ** -0.5
    return Convergence(
        enough, 0, 0, 1, 0.0, unknown, unknown, share, tuple(warnings), mean_error=error, sd_error=error / np.sqrt(2.0)
    )


def draws_of_numpyro(mcmc: Any) -> dict[str, Any]:
    """Arrays by name from a NumPyro `MCMC` that has run, with the chain axis first."""
    return {name: np.asarray(value) for name, value in mcmc.get_samples(group_by_chain=True).items()}


def draws_of_stan(fit: Any) -> dict[str, Any]:
    """Arrays by name from a CmdStanPy fit (`CmdStanMCMC`)."""
    posterior = fit.draws_xr()
    return {str(name): np.asarray(posterior[name].transpose("chain", "draw", ...)) for name in posterior.data_vars}


def draws_of_pymc(idata: Any) -> dict[str, Any]:
    """Arrays by name from what `pymc.sample` returns (InferenceData or DataTree)."""
    posterior = idata["posterior"]
    return {str(name): np.asarray(posterior[name].transpose("chain", "draw", ...)) for name in posterior.data_vars}
