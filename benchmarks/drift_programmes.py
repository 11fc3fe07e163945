"""Drift through the whole method: whole programmes simulated, calibrated, linked, combined and looked through.

    python benchmarks/drift_programmes.py --programmes 20 --to drift_programmes.jsonl

One dimension, 100 2pl and 40 gpcm items that all periods have, four periods of 1,000 examinees who answer 40 items at
random (about 290 responses per item and period). Each programme comes in three versions with the same examinees:

none       nothing moves
movers     one item in ten moves in one period (any of them), by .5 or .8, half of them easier, half harder
one-sided  in the last period every fifth item of either format is .5 harder

It measures false flags, power and who is named the mover (none, movers; at the default consensus), and bias and
coverage of the last period's link by the paper's rule for anchors, by ours, and in the joint consensus without and with
`robust_links` (none, one-sided). A period's own metric is that of its sample of examinees, known to a wobble. Pairwise
links contain the wobble and are compared with the population's mean and SD; in the joint consensus only the reference's
wobble is in the links, and they are compared with the sample's. A run that was stopped goes on from the file it wrote.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import concal
from concal.consensus.combine import combine, place
from concal.consensus.drift.drift import find_drift
from concal.consensus.factors.make import make_factors
from concal.linking.result import identity_link
from concal.spec import ConsensusSpec, LinkingSpec, Spec

PERIODS = ("P1", "P2", "P3", "P4")
MEANS, SDS = (0.0, 0.2, -0.15, 0.3), (1.0, 1.1, 0.95, 1.2)
N_ITEMS, EXAMINEES, ANSWERS = {"choice": 100, "essay": 40}, 1000, 40
SIZES, SHARE, ONE_SIDED = (0.5, 0.8), 0.1, 0.5
SPEC = Spec.parse(
    {
        "bank": {"dimensions": ["x"]},
        "groups": {
            "choice": {"model": "2pl", "dimension": "x"},
            "essay": {"model": "gpcm", "categories": 4, "dimension": "x"},
        },
    }
)


def some_items(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Items as their population has them."""
    found = {}
    for name, n in N_ITEMS.items():
        model = SPEC.groups[name].response_model
        sd = np.minimum(model.prior.sd, 1.0)
        sd[1] = 0.3
        found[name] = model.prior.mean + sd * rng.normal(size=(n, sd.size))
    return found


def shifts(version: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Change of every item's d in every period, (items, periods)."""
    found = {name: np.zeros((n, len(PERIODS))) for name, n in N_ITEMS.items()}
    for values in found.values():
        n = len(values)
        if version == "movers":
            who = rng.permutation(n)[: round(SHARE * n)]
            size = np.resize(SIZES, who.size) * np.where(np.arange(who.size) % 4 < 2, 1.0, -1.0)
            values[who, rng.integers(0, len(PERIODS), who.size)] = size
        elif version == "one-sided":
            values[rng.permutation(n)[: n // 5], -1] = ONE_SIDED
    return found


def abilities(period: int, rng: np.random.Generator) -> np.ndarray:
    """A sample of the period's examinees."""
    return MEANS[period] + SDS[period] * rng.normal(size=EXAMINEES)


def responses(xi: dict[str, np.ndarray], period: int, rng: np.random.Generator) -> pl.DataFrame:
    """One period's answers."""
    theta = abilities(period, rng)
    total = sum(N_ITEMS.values())
    chosen = rng.random((EXAMINEES, total)).argsort(axis=1)[:, :ANSWERS]
    frames, first = [], 0
    for name, items in xi.items():
        person, at = np.nonzero((chosen >= first) & (chosen < first + len(items)))
        item = chosen[person, at] - first
        score = SPEC.groups[name].response_model.simulate(theta[person], items[item], rng)
        ids = np.array([f"{name}-{j:03d}" for j in range(len(items))])
        frames.append(
            pl.DataFrame({"person_id": [f"{period}-{i}" for i in person], "item_id": ids[item], "score": score})
        )
        first += len(items)
    return pl.concat(frames)


ITEMS = pl.DataFrame(
    {
        "item_id": [f"{name}-{j:03d}" for name, n in N_ITEMS.items() for j in range(n)],
        "group": [name for name, n in N_ITEMS.items() for _ in range(n)],
    }
)


def run(seed: int, version: str, kept: dict[Any, concal.Calibration]) -> dict[str, Any]:
    """One version of one programme; periods without any change are those of the version without drift."""
    xi = some_items(np.random.default_rng([seed, 1]))
    moved = shifts(version, np.random.default_rng([seed, 2]))
    fits = []
    for m, period in enumerate(PERIODS):
        change = {name: values[:, m] for name, values in moved.items()}
        key = (period, version if any(c.any() for c in change.values()) else "none")
        if key not in kept:
            here = {name: items.copy() for name, items in xi.items()}
            for name, values in change.items():
                here[name][:, 0] += values
            table = responses(here, m, np.random.default_rng([seed, 3, m]))
            kept[key] = concal.calibrate(table, ITEMS, SPEC, period=period, seed=seed)
        fits.append(kept[key])
    links = {rule: [linked(fit, fits[0], rule) for fit in fits] for rule in ("paper", "score")}
    placed = [place(make_factors(fit), link) for fit, link in zip(fits, links["score"], strict=True)]
    joint = combine(placed, spec=ConsensusSpec(robust_links=False))
    robust = combine(placed, spec=ConsensusSpec(robust_links=True))
    return {
        "seed": seed,
        "version": version,
        "links": {rule: of_draws(links[rule][-1]) for rule in links}
        | {"joint": of_table(joint.links), "robust": of_table(robust.links)},
        "flags": flags(find_drift(placed, robust).items, moved),
    }


def linked(fit: concal.Calibration, reference: concal.Calibration, rule: str) -> concal.Link:
    """The period's own link."""
    if fit is reference:
        return identity_link(fit.period, fit.dimensions, fit.n_draws)
    return concal.link(fit, reference, spec=LinkingSpec.model_validate({"purify": rule}))


def of_draws(link: concal.Link) -> dict[str, float]:
    """Mean and SD of the last period's constants."""
    return {"A": link.A.mean(), "A_sd": link.A.std(ddof=1), "B": link.B.mean(), "B_sd": link.B.std(ddof=1)}


def of_table(table: pl.DataFrame) -> dict[str, float]:
    """The same from a consensus."""
    row = table.filter(period=PERIODS[-1]).row(0, named=True)
    return {"A": row["A_mean"], "A_sd": row["A_sd"], "B": row["B_mean"], "B_sd": row["B_sd"]}


def flags(table: pl.DataFrame, moved: dict[str, np.ndarray]) -> list[tuple[float, int, bool, bool]]:
    """Size of the move, flagged, mover named right, p < .05, by item."""
    items = table.unique("item_id", maintain_order=True)
    found = []
    for row in items.iter_rows(named=True):
        name, j = row["item_id"].split("-")
        change = moved[name][int(j)]
        truth = PERIODS[int(np.abs(change).argmax())] if change.any() else None
        found.append(
            (float(np.abs(change).max()), int(row["movers"] is not None), row["movers"] == truth,
             bool(row["item_p_value"] < 0.05))
        )  # fmt: skip
    return found


def true_link(seed: int, *, sample: bool) -> dict[str, float]:
    """The last period's constants: of its population, or of its sample."""
    if not sample:
        return {"A": SDS[-1], "B": MEANS[-1]}
    last = len(PERIODS) - 1
    theta = abilities(last, np.random.default_rng([seed, 3, last]))
    return {"A": float(theta.std()), "B": float(theta.mean())}


def show(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The tables."""
    yield "| version | programmes | link | bias of B in SDs | RMS | 90 % covers B | A |"
    yield "|---|---|---|---|---|---|---|"
    for version in ("none", "one-sided"):
        some = [r for r in rows if r["version"] == version]
        for rule in ("paper", "score", "joint", "robust"):
            truth = [true_link(r["seed"], sample=rule in ("joint", "robust")) for r in some]
            z = {
                c: np.array(
                    [
                        (r["links"][rule][c] - t[c]) / r["links"][rule][f"{c}_sd"]
                        for r, t in zip(some, truth, strict=True)
                    ]
                )
                for c in ("A", "B")
            }
            cover = {c: np.mean(np.abs(v) < 1.645) for c, v in z.items()}
            yield (
                f"| {version} | {len(some)} | {rule} | {z['B'].mean():+.2f} | {np.sqrt((z['B'] ** 2).mean()):.2f} | "
                f"{cover['B']:.0%} | {cover['A']:.0%} |"
            )
    yield ""
    for version in ("none", "movers", "one-sided"):
        flat = np.array([f for r in rows if r["version"] == version for f in r["flags"]])
        size, flagged, right, small = flat.T
        still = size == 0
        text = (
            f"{version}: {int(flagged.sum())} of {flagged.size} flagged, {int(flagged[still].sum())} of them unmoved; "
        )
        text += f"p < .05 in {small[still].mean():.1%} of the unmoved"
        for s in np.unique(size[size > 0]):
            caught = (size == s) & (flagged == 1)
            text += f"; moved by {s}: power {flagged[size == s].mean():.0%}, mover right {right[caught].mean():.0%}"
        yield text


def main() -> None:
    """Run what is missing, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programmes", type=int, default=20)
    parser.add_argument("--to", type=Path, default=Path("drift_programmes.jsonl"))
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.to.read_text().splitlines()] if given.to.exists() else []
    done = {(r["seed"], r["version"]) for r in rows}
    start = time.perf_counter()
    for seed in range(1, given.programmes + 1):
        kept: dict[Any, concal.Calibration] = {}
        for version in ("none", "movers", "one-sided"):
            if (seed, version) not in done:
                rows.append(run(seed, version, kept))
                with given.to.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
        print(f"programme {seed}: {time.perf_counter() - start:.0f} s", flush=True)
    print("\n".join(show(rows)))


if __name__ == "__main__":
    main()
