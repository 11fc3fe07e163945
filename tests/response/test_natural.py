"""Natural parameters: what people bring, and what they are told when it cannot be."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from concal.errors import DataError, SpecError
from concal.response import make_model, model_class
from concal.response.natural import natural_from_xi, xi_from_natural

COLUMNS = {"item_id": ["i1", "i2"], "a": [1.0, 2.0], "d": [0.0, -1.0], "c": [0.2, 0.25]}


@pytest.mark.parametrize("frame", [COLUMNS, pd.DataFrame(COLUMNS), pl.DataFrame(COLUMNS), pa.table(COLUMNS)], ids=type)
def test_any_table_will_do(frame):
    xi = xi_from_natural(make_model("3pl"), frame)
    assert xi[:, 0] == pytest.approx([0.0, -1.0])
    assert natural_from_xi(make_model("3pl"), xi)["c"] == pytest.approx([0.2, 0.25])


def test_missing_column_is_named():
    with pytest.raises(DataError, match="'c'"):
        xi_from_natural(make_model("3pl"), {"a": [1.0], "d": [0.0]})


@pytest.mark.parametrize(
    ("model", "columns", "rule"),
    [
        (make_model("2pl"), {"a": [1, -1.0], "d": [0, 0]}, "a above 0"),
        (make_model("2pl"), {"a": [1, 1], "d": [0, np.nan]}, "finite"),
        (make_model("3pl"), {"a": [1, 1], "d": [0, 0], "c": [0.1, 0.0]}, "use 2pl"),
        (make_model("grm", 3), {"a": [1, 1], "d": [0, 0], "c_1": [-1, 1], "c_2": [1, -1]}, "increasing"),
        (
            make_model("ordered_beta"),
            {"a": [1, 1], "d": [0, 0], "phi": [5, 5], "k_0": [-1, 1], "k_1": [1, -1]},
            "k_0 below",
        ),
    ],
)
def test_impossible_parameters_name_the_item_and_the_rule(model, columns, rule):
    with pytest.raises(DataError, match=rule) as error:
        xi_from_natural(model, {"item_id": ["fine", "broken"], **columns})
    assert "'broken'" in str(error.value)
    assert "'fine'" not in str(error.value)


def test_text_is_not_a_number():
    with pytest.raises(DataError, match="'a'"):
        xi_from_natural(make_model("2pl"), {"a": ["x"], "d": [0.0]})


def test_wrong_width_and_uneven_columns():
    with pytest.raises(DataError, match="2 parameters"):
        natural_from_xi(make_model("2pl"), np.zeros((3, 3)))
    with pytest.raises(DataError, match="different length"):
        xi_from_natural(make_model("2pl"), {"a": [1.0, 2.0], "d": [0.0]})


@pytest.mark.parametrize("name", ["gpcm", "grm"])
def test_steps_off_centre_move_the_location_and_not_the_likelihood(name):
    """eta - c_k with mean step m is the same model as d + m / a with centred steps."""
    model = make_model(name, 4)
    xi = xi_from_natural(model, {"a": [2.0], "d": [0.5], "c_1": [0.0], "c_2": [1.0], "c_3": [2.0]})
    centred = xi_from_natural(model, {"a": [2.0], "d": [1.0], "c_1": [-1.0], "c_2": [0.0], "c_3": [1.0]})
    assert xi == pytest.approx(centred)


def test_models_are_found_by_name_and_near_names_are_offered():
    with pytest.raises(SpecError, match="did you mean 'gpcm'"):
        model_class("gpmc")
    with pytest.raises(SpecError, match="number of categories"):
        make_model("grm")
    with pytest.raises(SpecError, match="no categories"):
        make_model("beta", 4)
    with pytest.raises(SpecError, match="at least 2"):
        make_model("grm", 1)
