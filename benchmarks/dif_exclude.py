"""Items of which one group of examinees is excluded, against a calibration without that group's responses to them.

Responses are simulated as in `benchmarks/dif.py`: a tenth of the items differs for the second group. One bank has all
responses and excludes the second group from these items (`Bank.exclude(..., person_group=...)`); of the other's files
the rows are left out. Numbers are differences of the items' posterior means in posterior SDs (root mean square).

    python benchmarks/dif_exclude.py            # the table of docs/guides/dif.md, about 10 minutes
    python benchmarks/dif_exclude.py --quick
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from dif import Design, Simulated, simulate, spec_of

from concal.bank.bank import Bank
from concal.consensus.result import GroupConsensus

SHARE = 0.1
METHODS = ("analytic", "joint")
DESIGNS = (
    *(Design("2pl", n, SHARE, *by) for n in (2000, 6667) for by in ((0.4, 0.0), (0.8, 0.0), (0.0, 0.6))),
    *(Design("gpcm", 2000, SHARE, *by) for by in ((0.8, 0.0), (0.0, 0.6))),
    Design("ordered_beta", 2000, SHARE, 0.8),
)


class Compared(NamedTuple):
    """RMS differences of the items that differ before and after, (parameters,), SD ratios, and the other items'."""

    before: np.ndarray
    after: np.ndarray
    sd_ratio: np.ndarray
    others: np.ndarray


def build(path: Path, design: Design, made: Simulated, responses: pl.DataFrame, seed: int) -> Bank:
    """A bank of one period."""
    bank = Bank.create(path, spec_of(design.model))
    items = pl.DataFrame({"item_id": made.ids, "group": "g"})
    bank.add("2026Q1", responses, items, seed=seed, max_sweeps=12_000, accept_unconverged=True)
    return bank


def compare(design: Design, seed: int) -> dict[str, Compared]:
    """By method: the bank with all responses, before and after the exclusion, against the one that lacks the rows."""
    made = simulate(design, seed)
    differing = [item for item, differs in zip(made.ids, made.differs, strict=True) if differs]
    out = pl.col("item_id").is_in(differing) & (pl.col("person_group") == "focal")
    with tempfile.TemporaryDirectory() as folder:
        truth = build(Path(folder) / "truth", design, made, made.responses.filter(~out), seed + 100)
        bank = build(Path(folder) / "bank", design, made, made.responses, seed)
        before = bank.at(bank.version)
        for item in differing:
            bank.exclude(item, "2026Q1", person_group="focal")
        banks = (truth, before, bank)
        return {name: _compared(*(b.consensus(name).groups["g"] for b in banks), made.differs) for name in METHODS}


def _compared(truth: GroupConsensus, before: GroupConsensus, after: GroupConsensus, differs: np.ndarray) -> Compared:
    rows = np.array([int(item[1:]) for item in truth.item_ids])
    own, sd = differs[rows], spread(truth)

    def rms(found: GroupConsensus, which: np.ndarray) -> np.ndarray:
        return np.sqrt((((found.mean - truth.mean) / sd)[which] ** 2).mean(axis=0))

    ratio = np.exp(np.log(spread(after) / sd)[own].mean(axis=0))
    return Compared(rms(before, own), rms(after, own), ratio, rms(after, ~own))


def spread(group: GroupConsensus) -> np.ndarray:
    """Posterior SDs (items, parameters)."""
    return np.sqrt(np.diagonal(group.covariance, axis1=1, axis2=2))


def line(design: Design, periods: int) -> str:
    """A row of the table: d before log a before further parameters, over all runs."""
    runs = [compare(design, seed) for seed in range(1, periods + 1)]
    cells = [design.model, f"{design.examinees * 30 // 100 // 2:,}", f"d {design.d}, log a {design.log_a}"]
    for name in METHODS:
        found = [run[name] for run in runs]
        cells += [pooled([one.before for one in found]), pooled([one.after for one in found])]
        cells.append(", ".join(f"{v:.2f}" for v in np.mean([one.sd_ratio for one in found], axis=0)))
    cells.append(pooled([run["analytic"].others for run in runs]))
    return f"| {' | '.join(cells)} |"


def pooled(values: list[np.ndarray]) -> str:
    """Root mean square over runs."""
    return ", ".join(f"{v:.2f}" for v in np.sqrt(np.mean(np.square(values), axis=0)))


def main() -> None:
    """A line per design."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--periods", type=int, default=2)
    options = parser.parse_args()
    print(
        "| model | responses a group | differ by | analytic before | after | SD | joint before | after | SD | others |"
    )
    for design in DESIGNS[:1] if options.quick else DESIGNS:
        print(line(design, 1 if options.quick else options.periods), flush=True)


if __name__ == "__main__":
    main()
