"""Scores on the edge and scores out of a maximum: what is taken, what is refused, and with which remedy."""

import numpy as np
import polars as pl
import pytest

from concal.data.check import check_period
from concal.errors import DataError
from concal.spec import Spec


def spec_of(model: str, **options) -> Spec:
    group = {"model": model, "dimension": "x", **options}
    return Spec.parse({"bank": {"dimensions": ["x"]}, "groups": {"g": group}, "data": {"few_responses": 0}})


def answers(*scores: float, item: str = "a") -> pl.DataFrame:
    return pl.DataFrame(
        {"person_id": [f"p{k}" for k in range(len(scores))], "item_id": [item] * len(scores), "score": scores}
    )


A = pl.DataFrame({"item_id": ["a"]})


@pytest.mark.parametrize(
    ("model", "options", "given", "taken"),
    [
        ("ordered_beta", {"max_score": 100}, [0.0, 35.0, 100.0], [0.0, 0.35, 1.0]),
        ("beta", {"max_score": 112}, [1.0, 56.0, 111.0], [1 / 112, 0.5, 111 / 112]),
        ("2pl", {"max_score": 4}, [0.0, 4.0], [0.0, 1.0]),
        ("gpcm", {"max_score": 100, "categories": 5}, [0.0, 25.0, 50.0, 75.0, 100.0], [0.0, 1.0, 2.0, 3.0, 4.0]),
        ("grm", {"max_score": 9, "categories": 4}, [0.0, 3.0, 6.0, 9.0], [0.0, 1.0, 2.0, 3.0]),
        ("gpcm", {"max_score": 3, "categories": 7}, [0.0, 0.5, 1.5, 3.0], [0.0, 1.0, 3.0, 6.0]),
        ("gpcm", {"max_score": 3.5, "categories": 8}, [0.0, 0.5, 3.5], [0.0, 1.0, 7.0]),
    ],
)
def test_scores_out_of_a_declared_maximum(model, options, given, taken):
    checked = check_period(answers(*given), A, spec_of(model, **options))
    np.testing.assert_array_equal(checked.data.groups["g"].score, taken)


def test_half_points_are_steps_where_the_item_says_so():
    """A maximum of the item's own goes with a number of its own: the group's was meant for other items."""
    spec, table = spec_of("gpcm", categories=5), A.with_columns(max_score=2.0)
    own = check_period(answers(0.0, 0.5, 2.0), table.with_columns(categories=5), spec_of("gpcm"))
    np.testing.assert_array_equal(own.data.groups["g (5 categories)"].score, [0.0, 1.0, 4.0])
    with pytest.raises(DataError, match=r"max_score that does not fit 5 categories: 'a'; .* column categories"):
        check_period(answers(0.0, 1.0, 2.0), table, spec)
    said = spec_of("gpcm", categories=5, max_score=2)  # the group's maximum, said again for the item
    np.testing.assert_array_equal(check_period(answers(0.0, 0.5, 2.0), table, said).data.groups["g"].score, [0, 1, 4])


def test_a_maximum_of_the_item_comes_before_the_groups():
    table = pl.DataFrame({"item_id": ["a", "b", "c"], "max_score": [10.0, None, 4.0]})
    rows = pl.concat([answers(5.0, item="a"), answers(50.0, item="b"), answers(1.0, item="c")])
    checked = check_period(rows, table, spec_of("ordered_beta", max_score=100))
    assert dict(zip("abc", checked.data.groups["g"].score, strict=True)) == {"a": 0.5, "b": 0.5, "c": 0.25}


@pytest.mark.parametrize(
    ("model", "options", "table", "given", "message"),
    [
        (
            "beta",
            {},
            A,
            [0.0, 0.5, 1.0, 0.0],
            r'3 scores.*strictly between.*2 are exactly 0 and 1 exactly 1: model = "o',
        ),
        ("beta", {}, A, [0.0, 35.0], r"the largest is 35: points or percent need their maximum declared \(max_score"),
        ("ordered_beta", {}, A, [35.0, 80.0], r"from 0 to 1.*the largest is 80.*max_score"),
        (
            "ordered_beta",
            {"max_score": 50},
            A,
            [35.0, 80.0],
            r"1 score must be a number from 0 to 1, in units of max_score: 80 of 50 .*; scores above their",
        ),
        ("2pl", {"max_score": 4}, A, [0.0, 2.0], r"1 score must be 0 or 1, in units of max_score: 2 of 4 \('p1'"),
        ("2pl", {}, A, [0.0, 3.0], r"3 \('p1' on 'a'\); ordered scores need a model that takes them \(gpcm, grm\)"),
        ("gpcm", {"categories": 3}, A, [0.0, 3.0], "from 0 to 2: 3 .*the item's number of categories"),
        ("grm", {"categories": 5}, A, [1.0, 2.0, 5.0], r"scores go from 1 to 5: count from 0, every score 1 less"),
        ("2pl", {}, A, [1.0, 2.0], r"scores go from 1 to 2: count from 0, every score 1 less"),
        ("grm", {"categories": 5}, A, [0.0, 6.0], r"scores go up to 6: .*a column categories .* 7 categories"),
        (
            "gpcm",
            {"max_score": 3},
            A,
            [0.5, 3.0],
            r"scores in steps of 0.5: count the steps, categories = 7 with max_score = 3$",
        ),
        ("gpcm", {"categories": 4}, A, [0.5, 2.0], r"steps of 0.5: .* categories = 7 with max_score = 3$"),
        ("gpcm", {"categories": 4}, A, [0.3, 0.77], r"shares need a model that takes them \(beta, ordered_beta\)"),
        ("gpcm", {"categories": 5}, A.with_columns(max_score=3.0), [1.0], "1 item with a max_score that does not fit"),
        (
            "2pl",
            {},
            A.with_columns(max_score=pl.lit("ten")),
            [1.0],
            "1 item whose max_score is not a number above 0: 'a'",
        ),
        ("2pl", {}, A.with_columns(max_score=0.0), [1.0], "max_score is not a number above 0"),
    ],
)
def test_refusals_name_the_remedy(model, options, table, given, message):
    with pytest.raises(DataError, match=message):
        check_period(answers(*given), table, spec_of(model, **options))


@pytest.mark.parametrize(
    ("given", "doubt"),
    [
        ([0.2, 0.5], 'no score of exactly 0 or 1: the cut points rest on their priors, model = "beta" would do'),
        (
            [0.0] * 10 + [0.5],
            "no score of exactly 1: its cut point is held by its prior until there are 10",
        ),
        ([0.0] * 10 + [0.5] + [1.0] * 10, None),
        (
            [0.0] * 2 + [0.5] + [1.0] * 10,
            "only 2 scores of exactly 0: its cut point is held by its prior until there are 10",
        ),
        (
            [0.0] * 9 + [0.5] + [1.0],
            "only 9 scores of exactly 0 and 1 score of exactly 1: their cut points are held by their priors until "
            "there are 10",
        ),
        (
            [0.5] + [1.0] * 3,
            "no score of exactly 0 and 3 scores of exactly 1: their cut points are held by their priors until "
            "there are 10",
        ),
    ],
)
def test_ends_that_hardly_anybody_reached_are_doubted(given, doubt):
    found = check_period(answers(*given), A, spec_of("ordered_beta")).warnings
    assert [w.split(": ", 1)[1] for w in found if "exactly" in w] == ([doubt] if doubt else [])


@pytest.mark.parametrize(
    ("inside", "doubt"),
    [
        ([], "no score between 0 and 1"),
        ([0.5] * 2, "only 2 scores between 0 and 1"),
        ([0.5] * 3, None),
    ],
)
def test_scores_that_are_hardly_anything_but_ends_are_doubted(inside, doubt):
    found = check_period(answers(*[0.0, 1.0] * 120, *inside), A, spec_of("ordered_beta")).warnings
    said = [w.split(": ", 1)[1] for w in found if "between 0 and 1" in w]
    assert said == (
        [f'{doubt}: precision and cut points rest on their priors, model = "2pl" would do'] if doubt else []
    )


def test_scores_that_are_shares_already_are_doubted():
    shares = [k / 30 for k in range(1, 31)]
    both = pl.concat([answers(*shares), answers(*(k / 20 for k in range(31)), item="b")])
    table = pl.DataFrame({"item_id": ["a", "b"]})

    def said(rows, table, spec):
        return [text for text in check_period(rows, table, spec).warnings if "shares already" in text]

    (text,) = said(both, table, spec_of("ordered_beta", max_score=100))
    assert text == (
        "group 'g': the largest of 61 scores is 1.5, but max_score is 100: if they are shares already, take max_score "
        "away; otherwise give the points"
    )
    own = table.with_columns(max_score=pl.Series([100.0, 2.0]))
    (text,) = said(both, own, spec_of("ordered_beta"))
    assert text == (
        "group 'g': 1 item whose largest score is below 2 % of its max_score: 'a' (1 of 100); if they are shares "
        "already, take their max_score away; otherwise give the points"
    )
    assert not said(answers(*shares[:29]), A, spec_of("ordered_beta", max_score=100)), "too few to tell"
    assert not said(answers(*[0.0] * 40), A, spec_of("ordered_beta", max_score=100)), "nobody scored"
    assert not said(answers(*(30 * s for s in shares)), A, spec_of("ordered_beta", max_score=100))
    assert not said(answers(*([0.0, 1.0] * 20)), A, spec_of("2pl"))


def test_common_examinees_are_said_not_to_link():
    spec = spec_of("2pl")
    rows = pl.concat([answers(0.0, 1.0), answers(1.0, 1.0, 0.0, item="b")])
    table = pl.DataFrame({"item_id": ["a", "b"]})
    earlier = {"Q1": {"x": ["c", "d"]}}
    with pytest.raises(DataError, match="1 examinee in common do not help: periods are linked by the items they share"):
        check_period(rows, table, spec, period="Q2", earlier_persons={"Q1": ["p0"]}, earlier_items=earlier)
