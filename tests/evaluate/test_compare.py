"""Two versions side by side, against the obvious way."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from concal.consensus.result import Consensus, GroupConsensus
from concal.evaluate.compare import compare
from concal.response import make_model


def group(ids, d):
    n = len(ids)
    return GroupConsensus(
        name="vocabulary", dimension="reading", model=make_model("2pl", None), item_ids=tuple(ids), features=("1",),
        X=np.ones((n, 1)), mean=np.column_stack([d, np.zeros(n)]), covariance=np.tile(0.04 * np.eye(2), (n, 1, 1)),
        source=np.array(["consensus"] * n), n_responses=np.arange(n) + 10, n_periods=np.full(n, 2),
        beta=np.zeros((1, 2)), sigma=np.eye(2),
    )  # fmt: skip


def consensus(ids, d, B=0.0):
    links = pl.DataFrame({"period": ["p"], "dimension": ["reading"], "A_mean": [1.0], "B_mean": [B]})
    return Consensus("joint", "p", ("reading",), ("p",), {"vocabulary": group(ids, d)}, links)


def test_items_and_links():
    found = compare(consensus(["a", "b", "c"], [0.0, 1.0, 2.0]), consensus(["b", "a", "e"], [1.5, 0.0, 0.3], B=0.1))
    rows = {row["item_id"]: row for row in found.items.iter_rows(named=True)}
    assert {item: row["change"] for item, row in rows.items()} == {"a": "same", "b": "changed", "c": "gone", "e": "new"}
    assert found.items["item_id"][0] == "b"
    theta = np.linspace(-8, 8, 4001)
    weight = np.exp(-(theta**2) / 2)
    weight /= weight.sum()
    shift = 1 / (1 + np.exp(1.5 - theta)) - 1 / (1 + np.exp(1.0 - theta))
    assert rows["b"]["score_shift"] == pytest.approx(weight @ shift, abs=1e-6)
    assert rows["b"]["score_size"] == pytest.approx(np.sqrt(weight @ shift**2), abs=1e-6)
    assert rows["b"]["d_move"] == pytest.approx(2.5)
    assert rows["e"]["d_before"] is None
    assert found.links.row(0, named=True)["B_now"] == 0.1


def test_first_answers_are_told():
    before, after = (consensus(["a"], [0.0]) for _ in range(2))
    old = replace(before.groups["vocabulary"], source=np.array(["predicted"]))
    found = compare(replace(before, groups={"vocabulary": old}), after)
    assert found.items["change"].to_list() == ["first answered"]
