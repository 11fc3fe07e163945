"""How long the check of a large period takes: ``python benchmarks/check_rows.py [rows]`` (default ten million)."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from concal.data.check import check_period
from concal.spec import Spec

SPEC = Spec.parse(
    {
        "bank": {"dimensions": ["reading"]},
        "groups": {"vocabulary": {"model": "2pl", "dimension": "reading", "features": "~ length + C(cefr)"}},
    }
)


def programme(n_rows: int, n_items: int = 20_000, per_person: int = 30) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows in random order, ids as text with leading zeros, no duplicates."""
    rng = np.random.default_rng(1)
    n_persons = n_rows // per_person
    step = 1 + rng.integers(0, n_items // per_person - 1, n_persons)  # an examinee's items: start + k * step
    start = rng.integers(0, n_items, n_persons)
    item = (start[:, None] + step[:, None] * np.arange(per_person)).ravel() % n_items
    person = np.repeat(np.arange(n_persons), per_person)
    shuffle = rng.permutation(person.size)
    score = rng.integers(0, 2, person.size)
    responses = pl.DataFrame({"person": person[shuffle], "item": item[shuffle], "score": score}).select(
        pl.format("{}", pl.col("person").cast(pl.String).str.zfill(9)).alias("person_id"),
        pl.format("item-{}", pl.col("item").cast(pl.String).str.zfill(6)).alias("item_id"),
        "score",
    )
    items = pl.DataFrame(
        {
            "item_id": [f"item-{k:06d}" for k in range(n_items)],
            "group": "vocabulary",
            "length": rng.normal(size=n_items),
            "cefr": rng.choice(["A1", "A2", "B1", "B2"], n_items),
        }
    )
    return responses, items


def main() -> None:
    """Time the check from memory, Parquet and CSV."""
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    responses, items = programme(n_rows)
    with tempfile.TemporaryDirectory() as folder:
        parquet, csv = Path(folder) / "responses.parquet", Path(folder) / "responses.csv"
        responses.write_parquet(parquet)
        responses.write_csv(csv)
        by_person = responses.sort("person_id")
        sources = {"by examinee": by_person, "shuffled": responses, "Parquet": parquet, "CSV": csv}
        for name, source in sources.items():
            begin, busy = time.perf_counter(), time.process_time()
            checked = check_period(source, items, SPEC, period="2026Q1")
            seconds, cpu = time.perf_counter() - begin, time.process_time() - busy
            print(f"{name:>11}: {checked.data.n_responses:,} rows in {seconds:.1f} s ({cpu:.1f} s of CPU)")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"peak memory {peak:.1f} GiB")


if __name__ == "__main__":
    main()
