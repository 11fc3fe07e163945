"""Classical item statistics against NumPy, one item at a time."""

import re

import numpy as np
import polars as pl

from concal.data.check import check_period
from concal.spec import Spec

SPEC = Spec.parse(
    {
        "bank": {"name": "t", "dimensions": ["x"]},
        "groups": {
            "a": {"model": "2pl", "dimension": "x"},
            "b": {"model": "gpcm", "categories": 3, "dimension": "x"},
        },
        "data": {"few_responses": 1},
    }
)


def test_item_rest_and_omitted():
    rng = np.random.default_rng(1)
    ids = ["a1", "a2", "a3", "b1", "b2", "same"]
    score = np.column_stack([rng.integers(0, 2, (40, 3)), rng.integers(0, 3, (40, 2)), np.ones(40)]).astype(float)
    score[rng.random(score.shape) < 0.2] = np.nan
    score[0] = np.nan
    score[0, 0] = 1.0  # somebody without a rest
    wide = pl.DataFrame({"person": [f"p{i}" for i in range(40)]} | {k: score[:, j] for j, k in enumerate(ids)})
    wide = wide.with_columns(pl.col(pl.Float64).fill_nan(None))
    items = pl.DataFrame({"item_id": ids, "group": ["a", "a", "a", "b", "b", "a"]})
    found = check_period(wide, items, SPEC, wide=True).tables["items"]
    share = score / np.array([1, 1, 1, 2, 2, 1])
    for j, item in enumerate(ids):
        row = found.filter(item_id=item).row(0, named=True)
        given = ~np.isnan(share[:, j])
        assert row["omitted"] == 40 - given.sum()
        others = np.delete(share, j, axis=1)
        rest = np.array([np.nanmean(r) if np.isfinite(r).any() else np.nan for r in others])
        both = given & np.isfinite(rest)
        if item == "same":
            assert row["item_rest"] is None
        else:
            np.testing.assert_allclose(row["item_rest"], np.corrcoef(share[both, j], rest[both])[0, 1])
    long = wide.unpivot(index="person", variable_name="item_id", value_name="score").rename({"person": "person_id"})
    checked = check_period(long.drop_nulls(), items, SPEC).tables["items"]
    assert checked["omitted"].null_count() == 6  # who left it out cannot be told from who did not get it
    assert checked.drop("omitted").equals(found.drop("omitted"))
    told = check_period(long, items, SPEC).tables["items"]  # rows without a score tell
    assert told.equals(found)


def reversed_key(n: int, items: tuple[int, ...] = (2,), slope: float = 1.5) -> tuple[str, ...]:
    """Warnings of a period of ten items and n examinees in which these items' keys are reversed."""
    rng = np.random.default_rng(3)
    right = rng.random((n, 10)) < 1 / (1 + np.exp(-slope * rng.standard_normal((n, 1))))
    right[:, list(items)] ^= True
    wide = pl.DataFrame(right.astype(float), schema=[f"i{j:02d}" for j in range(10)])
    wide = wide.insert_column(0, pl.Series("person", [f"p{i}" for i in range(n)]))
    table = pl.DataFrame({"item_id": wide.columns[1:], "group": ["a"] * 10})
    checked = check_period(wide, table, SPEC, wide=True)
    assert checked.warnings == checked.data.warnings, "they stay with the period"
    return tuple(text for text in checked.warnings if "item-rest" in text)


def test_a_reversed_key_is_told():
    (text,) = reversed_key(200)
    assert text.startswith("1 item whose score falls with the rest of the test (item-rest correlation): 'i02' (-.")
    assert text.endswith("): is the key reversed?")
    (text,) = reversed_key(400, (2, 5, 7))
    assert text.startswith("3 items whose scores fall with the rest of the test")
    assert {item for item in ("'i02'", "'i05'", "'i07'") if item in text} == {"'i02'", "'i05'", "'i07'"}


def test_as_many_reversed_as_not_are_told():
    """The rest of the test then says nothing: what the items have in common does."""
    (text,) = reversed_key(400, (1, 3, 5, 7, 9))
    assert text.startswith("5 items whose scores fall with the rest of the test")
    told = {int(name) for name in re.findall(r"'i(\d+)'", text)}
    assert told == {1, 3, 5, 7, 9}, "which half is the other is not in the data: the first item is taken as right"
    (text,) = reversed_key(400, (0, 2, 3, 4, 6, 7))
    assert text.startswith("4 items"), "the majority is right"


def test_items_without_anything_in_common_are_not_told():
    assert reversed_key(400, (1, 3, 5, 7, 9), slope=0.0) == ()


def test_dimensions_are_judged_one_by_one():
    """Two of five scales of a questionnaire are scored as they were asked, half of them reversed."""
    spec = Spec.parse(
        {
            "bank": {"dimensions": ["x", "y"]},
            "groups": {"a": {"model": "2pl", "dimension": "x"}, "b": {"model": "2pl", "dimension": "y"}},
        }
    )
    rng = np.random.default_rng(5)
    theta = rng.standard_normal((300, 2)).repeat(6, axis=1)
    right = rng.random((300, 12)) < 1 / (1 + np.exp(-2 * theta))
    right[:, [1, 2, 4, 6]] ^= True
    wide = pl.DataFrame(right.astype(float), schema=[f"{'ab'[j // 6]}{j % 6}" for j in range(12)])
    wide = wide.insert_column(0, pl.Series("person", [f"p{i}" for i in range(300)]))
    table = pl.DataFrame({"item_id": wide.columns[1:], "group": ["a"] * 6 + ["b"] * 6})
    (text,) = [t for t in check_period(wide, table, spec, wide=True).warnings if "item-rest" in t]
    told = {item for item in wide.columns[1:] if f"{item!r}" in text}
    assert told in ({"a1", "a2", "a4", "b0"}, {"a0", "a3", "a5", "b0"})


def test_neither_chance_nor_few_responses_are_told():
    assert reversed_key(49) == ()
    assert reversed_key(300, ()) == ()


def test_an_adaptive_test_reverses_no_key():
    rng = np.random.default_rng(4)
    place = np.linspace(-2.5, 2.5, 60)
    rows = []
    for p in range(500):
        theta, estimate, left = rng.standard_normal(), 0.0, list(range(60))
        for step in range(15):
            j = left.pop(int(np.argmin(np.abs(place[left] - estimate + rng.normal(0, 0.2, len(left))))))
            right = float(rng.random() < 1 / (1 + np.exp(place[j] - theta)))
            rows.append((f"p{p}", f"i{j:02d}", right))
            estimate += (2 * right - 1) * 1.2 / (1 + 0.3 * step)
    answers = pl.DataFrame(rows, schema=["person_id", "item_id", "score"], orient="row")
    table = pl.DataFrame({"item_id": [f"i{j:02d}" for j in range(60)], "group": ["a"] * 60})
    checked = check_period(answers, table, SPEC)
    assert checked.tables["items"]["item_rest"].min() < -0.2
    assert not [text for text in checked.warnings if "item-rest" in text]
