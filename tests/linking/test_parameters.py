"""`link_parameters` on tables people have, good and bad."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from concal import LinkError
from concal.linking.parameters import link_parameters

REF = {"item_id": ["a", "b", "c", "d"], "a": [1.0, 0.8, 1.4, 1.1], "d": [-1.0, 0.2, 1.1, 0.4]}


def focal(A=2.0, B=0.5, **changes):
    a, d = np.array(REF["a"]) * A, (np.array(REF["d"]) - B) / A
    return {"item_id": list(REF["item_id"]), "a": a.tolist(), "d": d.tolist(), **changes}


@pytest.mark.parametrize(
    "make", [dict, pl.DataFrame, pd.DataFrame, pa.table], ids=["dict", "polars", "pandas", "arrow"]
)
def test_tables_of_any_library(make):
    answer = link_parameters(make(REF), make(focal()))
    np.testing.assert_allclose([answer.A, answer.B], [2.0, 0.5], atol=1e-8)
    assert answer.converged
    assert answer.anchors == ("a", "b", "c", "d")


def test_only_common_items_are_anchors():
    foc = focal(item_id=["a", "b", "x", "d"])
    assert link_parameters(REF, foc).anchors == ("a", "b", "d")


def test_categories_come_from_the_columns():
    steps = {"c_1": [-1.0, -0.5, -0.8, -0.2], "c_2": [0.2, 0.1, 0.3, -0.3], "c_3": [0.8, 0.4, 0.5, 0.5]}
    answer = link_parameters({**REF, **steps}, {**focal(), **steps}, model="gpcm")
    np.testing.assert_allclose([answer.A, answer.B], [2.0, 0.5], atol=1e-8)
    with pytest.raises(LinkError, match=r"cannot tell the number of categories of 'gpcm'.*c_1, c_2, c_3"):
        link_parameters(REF, focal(), model="gpcm")


def test_three_parameter_items():
    c = {"c": [0.2, 0.25, 0.1, 0.15]}
    answer = link_parameters({**REF, **c}, {**focal(), **c}, model="3pl")
    np.testing.assert_allclose([answer.A, answer.B], [2.0, 0.5], atol=1e-8)


def test_weights_by_column_array_and_both_tables():
    foc = focal(d=[-0.7, -0.1, 0.5, -0.05])
    w = [1.0, 2.0, 3.0, 4.0]
    one = link_parameters(REF, foc, weights=w)
    assert link_parameters(REF, {**foc, "n": w}, weights="n") == one
    assert link_parameters({**REF, "n": w}, {**foc, "n": w}, weights="n") == one
    assert link_parameters(REF, foc) != one
    dropped = link_parameters(REF, foc, weights=[1.0, 1.0, 1.0, 0.0])
    assert dropped.anchors == ("a", "b", "c")


@pytest.mark.parametrize(
    ("foc", "options", "message"),
    [
        (focal(a=[1.0, -0.8, 1.4, 1.1]), {}, r"`foc`.*'b'.*a above 0"),
        (focal(a=[1.0, 0.0, 1.4, 1.1]), {}, r"`foc`.*'b'"),
        (focal(d=[1.0, np.nan, 1.4, np.inf]), {}, r"`foc`.*'b', 'd'"),
        (focal(item_id=["a", "x", "y", "z"]), {}, r"at least 2 anchors, but 1 item ids match.*'x'"),
        (focal(item_id=["w", "x", "y", "z"]), {}, r"at least 2 anchors, but 0 item ids match"),
        (focal(item_id=["a", "a", "b", "c"]), {}, r"`foc` repeats item ids: 'a'"),
        (focal(item_id=["a", None, "b", "c"]), {}, r"`foc` has rows without an item_id"),
        ({"a": [1.0], "d": [1.0]}, {}, r"`foc` has no column 'item_id'"),
        ({"item_id": ["a", "b"], "d": [1.0, 2.0]}, {}, r"`foc`.*lacks the column\(s\) 'a'"),
        (focal(), {"weights": [1.0, 2.0]}, r"one entry per row of `foc` \(4\), got 2"),
        (focal(), {"weights": "n"}, r"neither table has a column 'n'"),
        (focal(), {"weights": [1.0, -1.0, 1.0, 1.0]}, r"finite and not negative"),
        (focal(), {"weights": [1.0, 0.0, 0.0, 0.0]}, r"at least 2 anchors with a positive weight, got 1"),
        (focal(), {"method": "haebarra"}, r"unknown linking method 'haebarra'"),
        (focal(), {"loss": "huber"}, r"unknown loss 'huber'"),
        (focal(), {"loss": "power", "power": 1.0}, r"needs eps > 0"),
        (focal(), {"loss": "power", "power": 3.0, "eps": 0.1}, r"0 < power <= 2"),
        (focal(), {"delta": 0.0}, r"delta > 0"),
        (focal(), {"grid_metric": "new"}, r"unknown grid_metric 'new'"),
        (focal(), {"grid_metric": "own"}, r"unknown grid_metric 'own' of haebara; known: ref, focal, symmetric"),
        (focal(), {"method": "haebara_joint", "grid_metric": "ref"}, r"of haebara_joint; known: own"),
        (focal(), {"nodes": [0.0, 1.0]}, r"at least 3 nodes"),
        (focal(), {"nodes": [0.0, 1.0, 1.0]}, r"must differ"),
        (focal(), {"nodes": [0.0, 1.0, 2.0], "node_weights": [0.0, 0.0, 0.0]}, r"not all zero"),
        (focal(d=[0.3, 0.3, 0.3, 0.3]), {"method": "mean_sigma"}, r"differ in location"),
    ],
)
def test_bad_input(foc, options, message):
    with pytest.raises(LinkError, match=message):
        link_parameters(REF, foc, **options)


def test_order_of_nodes_is_irrelevant():
    nodes = np.linspace(-4, 4, 21)
    foc = focal(d=[-0.7, -0.1, 0.5, -0.05])
    assert link_parameters(REF, foc, nodes=nodes[::-1]) == link_parameters(REF, foc, nodes=nodes)
