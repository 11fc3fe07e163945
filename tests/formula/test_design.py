"""Design matrices: the same numbers as formulaic, the same coding in later periods, honest refusals."""

import json
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concal.errors import DataError
from concal.formula.design import apply_design, coding_of, doubt_rank, learn_design


def build_design(formula, table, group, state=None, **options):
    """Learn, then apply."""
    learned = learn_design(formula, table, group, state)
    return *apply_design(formula, table, group, learned, **options), learned


def items(n: int = 60, seed: int = 1) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "item_id": [f"i{k}" for k in range(n)],
            "x": rng.normal(size=n),
            "z": rng.uniform(1, 5, n),
            "cefr": rng.choice(["A1", "B1", "C1"], n),
            "kind": rng.choice(["u", "v", "w"], n),
            "grade": rng.integers(1, 12, n),
            "odd name": rng.normal(size=n),
        }
    )


FORMULAS = [
    "~ 1",
    "~ x",
    "~ x + C(cefr)",
    "~ C(grade)",
    "~ x*cefr",
    "~ cefr:kind",
    "~ cefr*kind",
    "~ cefr + cefr:kind",
    "~ x:cefr",
    "~ x + x:cefr",
    "~ kind + x:cefr:kind",
    "~ x*cefr*kind",
    "~ bs(z, df=5)",
    "~ bs(z, df=6, degree=2)",
    "~ bs(z, df=4):cefr",
    "~ poly(z, 3)",
    "~ scale(x) + center(z)",
    "~ center(log(z))",
    "~ log(z) + I(x ** 2) + I((x - z) / (1 + z))",
    "~ `odd name` + x",
]


@pytest.mark.reference
@pytest.mark.parametrize("formula", FORMULAS)
def test_same_columns_as_formulaic(formula):
    formulaic = pytest.importorskip("formulaic")
    X, names, _ = build_design(formula, items(), "g")
    theirs = formulaic.model_matrix(formula, items().to_pandas()).to_numpy().astype(float)
    assert X.shape == theirs.shape == (60, len(names))
    # formulaic orders interaction columns differently: compare as sets of columns
    left = X[:, np.lexsort(X.round(9))]
    right = theirs[:, np.lexsort(theirs.round(9))]
    np.testing.assert_allclose(left, right, atol=1e-9)
    assert names[0] == "1"
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("formula", FORMULAS)
def test_later_periods_code_alike(formula):
    table = items()
    X, names, state = build_design(formula, table, "g")
    stored = json.loads(json.dumps(state))
    some = table[[40, 3, 17]]
    again, same_names, same_state = build_design(formula, some, "g", stored)
    np.testing.assert_array_equal(again, X[[40, 3, 17]])
    assert same_names == names
    assert same_state == state


@pytest.mark.property
@given(seed=st.integers(0, 2**32 - 1), formula=st.sampled_from(FORMULAS))
def test_rows_do_not_depend_on_their_order(seed, formula):
    table = items()
    order = np.random.default_rng(seed).permutation(table.height)
    X, names, _ = build_design(formula, table, "g")
    shuffled, same_names, _ = build_design(formula, table[order], "g")
    np.testing.assert_allclose(shuffled, X[order], rtol=1e-10, atol=1e-10)
    assert same_names == names


def test_names_are_the_users_words():
    _, names, _ = build_design("~ x*cefr + poly(z, 2) + C(grade)", items(), "g")
    assert names[:5] == ("1", "x", "cefr[B1]", "cefr[C1]", "poly(z, 2)[1]")
    assert "C(grade)[2]" in names
    assert names[-1] == "x:cefr[C1]"


def test_number_levels_are_ordered_by_value_and_spelling_does_not_matter():
    table = items()
    _, names, state = build_design("~ C(grade)", table, "g")
    assert state["features"]["C(grade)"]["levels"] == [str(k) for k in sorted(table["grade"].unique())]
    as_float = table.with_columns(pl.col("grade").cast(pl.Float64))
    as_text = table.with_columns(pl.col("grade").cast(pl.String))
    for other in (as_float, as_text):
        X, same_names, _ = build_design("~ C(grade)", other, "g", state)
        assert same_names == names
        np.testing.assert_array_equal(X, build_design("~ C(grade)", table, "g", state)[0])


def test_unseen_level_is_an_error_with_the_nearest_and_an_option():
    _, _, state = build_design("~ cefr", items(), "g")
    later = pl.DataFrame({"item_id": ["n1", "n2"], "cefr": ["B1", "b1"]})
    with pytest.raises(
        DataError, match=r"groups\.g\.features: cefr has 1 level .*\('b1'\), 1 item: 'n2'; nearest.*'B1'"
    ):
        build_design("~ cefr", later, "g", state)
    warnings: list[str] = []
    X, _, _ = build_design("~ cefr", later, "g", state, unseen_level="mean", warnings=warnings)
    assert len(warnings) == 1
    assert "'n2'" in warnings[0]
    np.testing.assert_allclose(X[1], build_design("~ cefr", items(), "g")[0].mean(axis=0))


def test_new_features_join_a_known_state():
    _, _, state = build_design("~ scale(x)", items(), "g")
    later = items(seed=2)
    X, names, joined = build_design("~ scale(x) + scale(z)", later, "g", state)
    assert names == ("1", "scale(x)", "scale(z)")
    assert joined["features"]["scale(x)"] == state["features"]["scale(x)"]
    assert abs(X[:, 2].mean()) < 1e-12 < abs(X[:, 1].mean())


def test_fingerprint_tells_equal_names_coded_differently():
    """Centres, levels and knots are in it; other features of the state and the order of terms are not."""
    first, second = items(seed=1), items(seed=2)
    for formula in ("~ scale(x)", "~ bs(z, df=5)", "~ poly(z, 3)", "~ center(z) + cefr"):
        learned = build_design(formula, first, "g")[2]
        other = build_design(formula, second, "g")[2]
        assert coding_of(formula, learned) == coding_of(formula, build_design(formula, first, "g")[2])
        assert coding_of(formula, learned) != coding_of(formula, other)
        # a later period that reuses the state is coded alike
        assert coding_of(formula, build_design(formula, second, "g", learned)[2]) == coding_of(formula, learned)
    both = build_design("~ scale(x) + center(z)", first, "g")[2]
    alone = build_design("~ scale(x)", first, "g")[2]
    assert coding_of("~ scale(x)", both) == coding_of("~ scale(x)", alone)
    assert coding_of("~ center(z) + scale(x)", both) == coding_of("~ scale(x) + center(z)", both)
    levels = build_design("~ cefr", first, "g")[2]
    fewer = build_design("~ cefr", first.filter(pl.col("cefr") != "C1"), "g")[2]
    assert coding_of("~ cefr", levels) != coding_of("~ cefr", fewer)
    assert json.loads(json.dumps(both)) == both
    assert coding_of("~ scale(x)", json.loads(json.dumps(both))) == coding_of("~ scale(x)", both)


def test_a_feature_keeps_its_kind():
    _, _, state = build_design("~ grade", items(), "g")
    with pytest.raises(DataError, match="'grade' was a number"):
        build_design("~ grade", items().with_columns(pl.col("grade").cast(pl.String)), "g", state)


def test_spline_is_constant_beyond_its_range_and_says_so():
    _, _, state = build_design("~ bs(z, df=4)", items(), "g")
    low, high = state["features"]["bs(z, df=4)"]["ends"]
    warnings: list[str] = []
    later = pl.DataFrame({"item_id": ["in", "out"], "z": [high, high + 3]})
    X, _, _ = build_design("~ bs(z, df=4)", later, "g", state, warnings=warnings)
    np.testing.assert_array_equal(X[0], X[1])
    assert len(warnings) == 1
    assert "1 item: 'out'" in warnings[0]
    assert low < high


@pytest.mark.parametrize(
    ("formula", "change", "message"),
    [
        ("~ xx", {}, r"no column 'xx'; did you mean 'x'"),
        ("~ x", {"x": None}, r"'x' is missing or not finite for 60 items: 'i0', 'i1', 'i2', 'i3', 'i4' and 55 more"),
        ("~ x", {"x": float("nan")}, "'x' is missing or not finite"),
        ("~ x", {"x": float("inf")}, "'x' is missing or not finite"),
        ("~ cefr", {"cefr": None}, "'cefr' is missing"),
        ("~ log(x)", {}, r"log\(x\) is not a finite number for \d+ items"),
        ("~ I(1 / x)", {"x": 0.0}, r"is not a finite number for 60 items"),
        ("~ log(cefr)", {}, r"'cefr' is not a number.*C\(cefr\)"),
        ("~ poly(grade, 3)", {"grade": 2}, "needs more than 3 different values"),
    ],
)
def test_refusals_say_what_and_where(formula, change, message):
    table = items().with_columns(pl.lit(value).alias(name) for name, value in change.items())
    with pytest.raises(DataError, match=message) as caught:
        build_design(formula, table, "g")
    assert str(caught.value).startswith("groups.g.features: ")


@pytest.mark.parametrize(
    ("formula", "change", "n", "message"),
    [
        ("~ x", {"x": 3.0}, 60, "1 of 2 .* by the 60 items of this period: 'x' follows from '1'; their coeff.* priors"),
        ("~ x", {"x": 0.0}, 60, "'x' is zero for every item"),
        ("~ scale(x)", {"x": 3.0}, 60, r"'scale\(x\)' is zero for every item"),
        ("~ x + I(2 * x)", {}, 60, r"'I\(2 \* x\)' follows from 'x'"),
        ("~ x + z + I(x - z)", {}, 60, r"'I\(x - z\)' follows from 'x', 'z'"),
        ("~ x + z", {}, 2, "1 of 3 design columns .* by the 2 items"),
        ("~ x + z", {}, 1, "2 of 3 design columns .* by the one item"),
    ],
)
def test_columns_the_items_cannot_tell_apart_are_doubted(formula, change, n, message):
    table = items(n).with_columns(pl.lit(value).alias(name) for name, value in change.items())
    X, names, _ = build_design(formula, table, "g")
    (text,) = doubt_rank(X, names, "g")
    assert text.startswith("groups.g.features: ")
    assert re.search(message, text)


def test_columns_of_full_rank_are_not_doubted():
    X, names, _ = build_design("~ x*cefr + poly(z, 2) + C(grade)", items(), "g")
    assert doubt_rank(X, names, "g") == []
