"""Whatever is in the tables, the check either accepts them or says what is wrong; it never breaks."""

import datetime
import random

import polars as pl
import pytest

from concal.data.check import check_period
from concal.errors import DataError
from concal.spec import Spec

SPEC = Spec.parse(
    {
        "bank": {"dimensions": ["r", "w"]},
        "groups": {
            "v": {"model": "2pl", "dimension": "r", "features": "~ length*C(cefr) + bs(z, 4)"},
            "s": {"model": "gpcm", "categories": 3, "dimension": "w", "features": "~ poly(z, 2) + cefr"},
        },
    }
)
CELLS = {
    pl.String: [None, "", "a", "1", "0", "v", "s", "i1", " "],
    pl.Float64: [None, 0.0, 1.0, 2.0, float("nan"), float("inf")],
    pl.Int8: [0, 1, 2, -1],
    pl.Null: [None],
    pl.Boolean: [True, False, None],
    pl.List(pl.Int64): [[1], []],
    pl.Date: [datetime.date(2026, 1, 1)],
    pl.Categorical: ["a", "b", None],
    pl.Binary: [b"x"],
    pl.Decimal(10, 2): [None],
    pl.Struct({"x": pl.Int64}): [{"x": 1}],
}


def strange(rng: random.Random, n: int) -> pl.Series:
    kind = rng.choice(list(CELLS))
    return pl.Series([rng.choice(CELLS[kind]) for _ in range(n)], dtype=kind)


def ids(rng: random.Random, prefix: str, n: int, among: int) -> pl.Series:
    return pl.Series([f"{prefix}{rng.randrange(max(among, 1))}" for _ in range(n)], dtype=pl.String)


def tables(rng: random.Random) -> tuple[pl.DataFrame, pl.DataFrame]:
    n, m = rng.choice([0, 1, 2, 5, 20]), rng.choice([0, 1, 3, 10, 30])
    responses = {
        "person_id": ids(rng, "p", n, n),
        "item_id": ids(rng, "i", n, m),
        "score": pl.Series([float(rng.randrange(2)) for _ in range(n)], dtype=pl.Float64),
    }
    items = {
        "item_id": pl.Series([f"i{k}" for k in range(m)], dtype=pl.String),
        "group": pl.Series([rng.choice("vs") for _ in range(m)], dtype=pl.String),
        "length": pl.Series([rng.random() for _ in range(m)], dtype=pl.Float64),
        "z": pl.Series([rng.random() for _ in range(m)], dtype=pl.Float64),
        "cefr": pl.Series([rng.choice("ab") for _ in range(m)], dtype=pl.String),
    }
    for table, size in ((responses, n), (items, m)):
        for name in list(table):
            if rng.random() < 0.1:
                table[name] = strange(rng, size)
            elif rng.random() < 0.01:
                del table[name]
    return pl.DataFrame(responses), pl.DataFrame(items)


@pytest.mark.property
def test_accepted_or_explained():
    rng = random.Random(20261)
    accepted, messages = 0, []
    for _ in range(250):
        responses, items = tables(rng)
        options = {"wide": rng.random() < 0.1}
        try:
            check_period(
                responses,
                items,
                SPEC,
                earlier_persons=rng.choice([None, {"Q1": {"p1"}}, {"Q1": ["p0"], "Q2": []}]),
                **options,
            )
            accepted += 1
        except DataError as error:
            messages.append(str(error))
    assert accepted > 5
    assert len(messages) > 50
    assert all("in the data\n  - " in text for text in messages)
