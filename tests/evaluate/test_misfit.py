"""What the fit of items becomes in the attention list and beside an item."""

import polars as pl

from concal.bank.tables.fit import PAIRS as PAIR_COLUMNS
from concal.bank.tables.fit import TESTS
from concal.consensus.drift.dif import SCHEMA as DIF_COLUMNS
from concal.evaluate.misfit import misfit_flags, misfit_notices

FIT = pl.DataFrame(
    {
        "item_id": ["a", "b", "c"],
        "period": ["Q1", "Q2", "Q1"],
        "flagged": [True, True, False],
        "misfit": [0.08, 0.01, 0.3],
        "falling_p": [0.4, 1e-9, 1e-9],
    }
)
PAIRS = pl.DataFrame(
    {"item_id": ["a", "b"], "other_id": ["x", "y"], "period": ["Q1", "Q1"], "q3": [0.6, 0.1], "q_value": [0.001, 0.001]}
)

DIF = pl.DataFrame(
    {
        "item_id": ["a", "b"],
        "person_group": ["fr", "fr"],
        "flagged": [True, True],
        "direction": ["harder", "easier"],
        "score_shift": [-0.12, 0.001],
        "score_size": [0.13, 0.001],
    }
)
NO_FIT, NO_PAIRS, NO_DIF = FIT.clear(), PAIRS.clear(), DIF.clear()


def test_only_what_is_sure_and_large_is_said():
    texts = [notice.text for notice in misfit_notices(FIT, PAIRS, NO_DIF)]
    assert len(texts) == 2
    assert texts[0].startswith("1 item does not follow")
    assert "'a' in 'Q1' (0.08 of the score)" in texts[0]
    assert "'a' and 'x' in 'Q1' (Q3 0.60)" in texts[1]
    flags = list(misfit_flags(FIT, PAIRS, NO_DIF))
    assert [item for item, _ in flags] == ["a", "a", "x"]


def test_a_falling_score_asks_about_the_key():
    fit = FIT.with_columns(falling_p=pl.lit(1e-6))
    first, second = misfit_notices(fit, NO_PAIRS, NO_DIF)
    assert "1 item does not follow" in first.text
    assert (second.level, second.section) == ("problem", "fit")
    assert second.text == "the score of 1 item falls with the ability: 'a' in 'Q1'; is the key reversed?"
    assert list(misfit_flags(fit, NO_PAIRS, NO_DIF)) == [
        ("a", "misfit in Q1: 0.08 of the score; it falls with the ability: is the key reversed?")
    ]


def test_nothing_is_said_of_falling_scores_where_slopes_are_equal():
    fit = FIT.with_columns(falling_p=pl.lit(None, dtype=pl.Float64))
    assert [text for _, text in misfit_flags(fit, NO_PAIRS, NO_DIF)] == ["misfit in Q1: 0.08 of the score"]
    assert len(list(misfit_notices(fit, NO_PAIRS, NO_DIF))) == 1


def test_items_that_groups_do_not_answer_alike():
    (notice,) = misfit_notices(NO_FIT, NO_PAIRS, DIF)
    assert notice.section == "fit"
    assert "1 item is not answered alike" in notice.text
    assert "'a' for 'fr' (harder by 0.12 in the expected score)" in notice.text
    steeper = DIF.with_columns(score_shift=pl.lit(-0.01))
    (notice,) = misfit_notices(NO_FIT, NO_PAIRS, steeper)
    assert "'a' for 'fr' (another shape of the curve, by 0.13 in the expected score)" in notice.text
    assert list(misfit_flags(NO_FIT, NO_PAIRS, DIF)) == [("a", "for fr harder by 0.12 of the score")]


def test_nothing_to_say():
    assert list(misfit_notices(NO_FIT, NO_PAIRS, NO_DIF)) == []
    untested = [pl.DataFrame(schema=columns) for columns in (TESTS, PAIR_COLUMNS, DIF_COLUMNS)]
    assert list(misfit_notices(*untested)) == []
    assert list(misfit_flags(*untested)) == []
