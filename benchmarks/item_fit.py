"""Item fit: flags under the model, planted misfit that is found, and what it costs beside the calibration.

Every period is simulated, checked and calibrated by the engine; the fit is what a bank would keep.

    python benchmarks/item_fit.py             # the tables of docs/guides/fit.md
    python benchmarks/item_fit.py --quick
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from scipy.special import expit

from concal.calibration import period as engine
from concal.calibration.fit.pvalues import benjamini_hochberg
from concal.calibration.result import Calibration
from concal.data.check import check_period
from concal.data.period import PeriodData
from concal.simulate import simulate_programme
from concal.simulate.programme import Programme
from concal.spec import Spec

MODELS = ("2pl", "3pl", "gpcm", "grm", "beta", "ordered_beta")
PLANTED = 12  # items of each kind of misfit in a period


def spec_of(model: str, sweeps: int) -> Spec:
    """One group, one dimension; draws enough for posterior means."""
    group: dict[str, Any] = {"model": model, "dimension": "x"}
    if model in ("gpcm", "grm"):
        group["categories"] = 4
    bank = {"name": "fit", "dimensions": ["x"]}
    return Spec.parse({"bank": bank, "groups": {"g": group}, "calibration": {"max_sweeps": sweeps}})


def simulate(model: str, seed: int, **options: Any) -> tuple[Spec, PeriodData, Programme]:
    """One simulated period, checked."""
    spec = spec_of(model, {40: 1000, 100: 700}.get(options["items"], 1500))
    made = simulate_programme(spec, periods=1, seed=seed, **options)
    return spec, check_period(made.responses["2026Q1"], made.items, spec).data, made


def plant(data: PeriodData, made: Programme, rng: np.random.Generator) -> tuple[PeriodData, dict[str, list[str]]]:
    """Guessing (.25), curves that turn (four in ten of the best third are misled), doubled pairs; in popular items.

    Guessing in an easy or flat item looks like another easy or flat item: it is planted in steep ones above the mean.
    """
    group = data.groups["g"]
    often = np.argsort(-np.bincount(group.item, minlength=len(group.item_ids)))[: 4 * PLANTED]
    rng.shuffle(often)
    theta = made.truth.abilities.sort("person_id")["x"].to_numpy()
    xi = made.truth.items.pivot(on="parameter", index="item_id", values="value").sort("item_id")
    d, a = xi["d"].to_numpy().copy(), np.exp(xi["log_a"].to_numpy())
    a[often[: 2 * PLANTED]] = rng.uniform(1.4, 2.2, 2 * PLANTED)
    d[often[:PLANTED]], d[often[PLANTED : 2 * PLANTED]] = (
        rng.uniform(0.3, 1.3, PLANTED),
        rng.uniform(-1.0, 0.0, PLANTED),
    )
    score = group.score.copy()
    kinds = {"guessing": often[:PLANTED], "turning": often[PLANTED : 2 * PLANTED], "doubled": often[2 * PLANTED :]}
    for kind, items in kinds.items():
        own = np.isin(group.item, items)
        p = expit(a[group.item[own]] * (theta[group.person[own]] - d[group.item[own]]))
        if kind == "guessing":
            score[own] = rng.random(p.size) < 0.25 + 0.75 * p
        elif kind == "turning":
            score[own] = rng.random(p.size) < np.where(theta[group.person[own]] > 0.5, 0.6 * p, p)
    answers = {(p, j): k for k, (p, j) in enumerate(zip(group.person.tolist(), group.item.tolist(), strict=True))}
    for first, second in zip(kinds["doubled"][::2].tolist(), kinds["doubled"][1::2].tolist(), strict=True):
        for person in group.person[group.item == second].tolist():
            if (person, first) in answers:
                score[answers[person, second]] = score[answers[person, first]]
    names = {kind: [group.item_ids[j] for j in items] for kind, items in kinds.items()}
    return replace(data, groups={"g": replace(group, score=score)}), names


def calibrate(data: PeriodData, spec: Spec, seed: int, cost: list[tuple[float, float]]) -> Calibration:
    """The engine, with CPU seconds of the whole and of the fit."""
    inner, spent = engine.fit_period, []

    def timed(*arguments: Any) -> Any:
        start = time.process_time()
        found = inner(*arguments)
        spent.append(time.process_time() - start)
        return found

    engine.fit_period = timed
    try:
        start = time.process_time()
        made = engine.calibrate_period(data, spec, seed=seed)
    finally:
        engine.fit_period = inner
    cost.append((spent[0], time.process_time() - start - spent[0]))
    return made


def share(p: np.ndarray, level: float) -> float:
    """Of the p-values there are, how many are at or below the level."""
    there = p[np.isfinite(p)]
    return float(np.mean(there <= level)) if there.size else float("nan")


def under_the_model(models: tuple[str, ...], periods: int, **options: Any) -> None:
    """Share of flags where every item fits."""
    print(f"\n{periods} periods a model in which every item fits, {options}")
    print(
        "| model | items | flagged at 5 % | at 1 % | chi-square | infit | outfit | q <= 5 % | dependent pairs | cost |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for model in models:
        cost: list[tuple[float, float]] = []
        tables, pairs, tested = [], 0, 0
        for seed in range(1, periods + 1):
            spec, data, _ = simulate(model, seed, **options)
            fit = calibrate(data, spec, seed, cost).fit
            assert fit is not None
            tables.append(fit.items)
            pairs, tested = pairs + int((fit.pairs["q_value"] <= 0.05).sum()), tested + fit.n_pairs
        table = pl.concat(tables)
        p = {k: table[k].fill_null(float("nan")).to_numpy() for k in ("p_value", "chi_square_p", "infit_p", "outfit_p")}
        q = sum(int((benjamini_hochberg(t["p_value"].drop_nulls().to_numpy()) <= 0.05).sum()) for t in tables)
        spent = sum(c[0] for c in cost) / sum(c[1] for c in cost)
        shares = [share(p["p_value"], 0.05), share(p["p_value"], 0.01), *(share(p[k], 0.05) for k in list(p)[1:])]
        cells = " | ".join(f"{value:.3f}" for value in shares)
        print(f"| {model} | {table.height:,} | {cells} | {q} | {pairs} of {tested:,} | {spent:.1%} |", flush=True)


def planted(periods: int, **options: Any) -> None:
    """Share of planted misfit that is found, at 5 % false discoveries."""
    found = {kind: [0, 0] for kind in ("guessing", "turning", "doubled", "false flags", "false pairs")}
    responses = []
    for seed in range(1, periods + 1):
        spec, data, made = simulate("2pl", seed, **options)
        changed, names = plant(data, made, np.random.default_rng(seed))
        fit = calibrate(changed, spec, seed, []).fit
        assert fit is not None
        items = fit.items.filter(pl.col("p_value").is_not_null())
        flagged = items.filter(pl.Series(benjamini_hochberg(items["p_value"].to_numpy()) <= 0.05))["item_id"].to_list()
        for kind in ("guessing", "turning"):
            found[kind][0] += len(set(flagged) & set(names[kind]))
            found[kind][1] += len(names[kind])
            responses += items.filter(pl.col("item_id").is_in(names[kind]))["n_responses"].to_list()
        innocent = [i for i in flagged if not any(i in kind for kind in names.values())]
        found["false flags"] = [found["false flags"][0] + len(innocent), found["false flags"][1] + len(flagged)]
        listed = fit.pairs.filter(pl.col("q_value") <= 0.05)
        true = {frozenset(names["doubled"][k : k + 2]) for k in range(0, len(names["doubled"]), 2)}
        named = [frozenset(pair) for pair in listed.select("item_id", "other_id").iter_rows()]
        found["doubled"] = [found["doubled"][0] + len(true & set(named)), found["doubled"][1] + len(true)]
        turning = set(names["turning"])  # they mislead the same examinees, so their residuals do go together
        other = [pair for pair in named if pair not in true and not pair <= turning]
        found["false pairs"] = [found["false pairs"][0] + len(other), found["false pairs"][1] + len(named)]
    print(f"\n{periods} periods of 2pl items with planted misfit, {options}")
    print(f"median of {np.median(responses):.0f} responses to a planted item")
    for kind, (n, of) in found.items():
        print(f"{kind}: {n} of {of}")


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--small", action="store_true", help="Periods of 100 items and 800 examinees, 700 sweeps.")
    parser.add_argument("--short", action="store_true", help="Tests of 6 responses: 40 items, 1,500 examinees.")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--periods", type=int, default=20)
    parser.add_argument("--planted", type=int, default=4, help="Periods with planted misfit.")
    options = parser.parse_args()
    size = {"items": 150, "examinees": 1500, "responses_per_examinee": 30}
    if options.small:
        size = {"items": 100, "examinees": 800, "responses_per_examinee": 20}
    if options.short:
        size = {"items": 40, "examinees": 1500, "responses_per_examinee": 6}
    n = 1 if options.quick else options.periods
    models = ("2pl",) if options.quick else tuple(options.models)
    if models:
        under_the_model(models, n, **size)
    if not options.planted:
        return
    planted(
        1 if options.quick else options.planted,
        items=120,
        examinees=4000,
        responses_per_examinee=40,
        exposure_spread=0.5,
    )


if __name__ == "__main__":
    main()
