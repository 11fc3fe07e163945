"""The comparisons of the validation protocol on objects whose answer is known."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from pooled_worlds import DRAWS, PERIODS, make_world

import concal
from concal.consensus.links import links_in_force
from concal.errors import DataError
from concal.evaluate.agreement import ability_agreement, agreement
from concal.evaluate.pairs import compare_pairs, tertile_of


@pytest.fixture(scope="module")
def world():
    return make_world()


def test_known_shift_and_ratio(world):
    found = agreement(world.consensus, world.pooled, world.calibrations.values())
    assert found.table.columns == [
        *("method", "dimension", "model", "parameter", "n", "share_screened"),
        *("mean_r", "mean_rmse", "sd_r", "sd_rmse", "sd_ratio_low", "sd_ratio_mid", "sd_ratio_high"),
    ]
    assert set(found.table.select("dimension", "model").iter_rows()) == {("reading", "2pl"), ("writing", "gpcm")}
    d = found.table.filter((pl.col("model") == "2pl") & (pl.col("parameter") == "d")).row(0, named=True)
    assert d["n"] == 60
    assert d["share_screened"] == 0
    assert d["mean_r"] == pytest.approx(1.0, abs=1e-6)
    assert d["mean_rmse"] == pytest.approx(0.05, abs=1e-6)
    assert d["sd_r"] == pytest.approx(1.0, abs=1e-6)
    for tertile in ("low", "mid", "high"):
        assert d[f"sd_ratio_{tertile}"] == pytest.approx(0.9, abs=1e-3)
    assert found.overall.filter(pl.col("parameter") == "d")["n"].item() == 120


def test_predicted_items_are_no_evidence(world):
    pairs = compare_pairs(world.consensus, world.pooled)
    assert not pairs["item_id"].str.ends_with("-new").any()


def test_screen_takes_the_pair_and_says_so(world):
    group = world.calibrations[PERIODS[1]].groups["vocabulary"]
    rhat = group.rhat.copy()
    rhat[3, 0], rhat[4, 1], rhat[5, 0] = 1.2, np.nan, 1.1
    period = replace(
        world.calibrations[PERIODS[1]],
        groups={**world.calibrations[PERIODS[1]].groups, "vocabulary": replace(group, rhat=rhat)},
    )
    found = agreement(world.consensus, world.pooled, [world.calibrations[PERIODS[0]], period])
    gone = found.pairs.filter(~pl.col("kept"))
    assert set(gone.select("item_id", "parameter").iter_rows()) == {
        ("vocabulary-003", "d"),
        ("vocabulary-004", "log_a"),
    }
    row = found.table.filter((pl.col("model") == "2pl") & (pl.col("parameter") == "d")).row(0, named=True)
    assert row["n"] == 59
    assert row["share_screened"] == pytest.approx(1 / 60)


def test_exposure_tertiles_separate_the_ratios(world):
    group = world.consensus.groups["vocabulary"]
    covariance = group.covariance.copy()
    covariance[:20] *= 0.25  # the least answered third
    under = replace(world.consensus, groups={"vocabulary": replace(group, covariance=covariance)})
    d = agreement(under, world.pooled).table.filter(pl.col("parameter") == "d").row(0, named=True)
    assert d["sd_ratio_low"] == pytest.approx(0.45, abs=1e-3)
    assert d["sd_ratio_high"] == pytest.approx(0.9, abs=1e-3)


def test_tied_exposures_stay_together():
    assert len(set(tertile_of(np.array([5.0] * 10)))) == 1
    labels = tertile_of(np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0]))
    assert labels[0] == labels[1]
    assert labels[4] == labels[5] == "high"


def test_abilities_are_compared_on_the_reference_metric(world):
    table = ability_agreement(world.calibrations, world.links, world.consensus.links, world.pooled, PERIODS)
    row = table.filter((pl.col("period") == PERIODS[1]) & (pl.col("dimension") == "reading")).row(0, named=True)
    assert row["pairwise_mean_difference"] == pytest.approx(0.5 - 0.4)
    assert row["pairwise_sd_ratio"] == pytest.approx(1.1 / 1.1)
    assert row["mean_difference"] == pytest.approx(0.45 - 0.4)
    assert row["sd_ratio"] == pytest.approx(1.21 / 1.1)
    reference = table.filter(pl.col("period") == PERIODS[0])
    assert reference["mean_difference"].abs().max() == 0


def test_links_in_force_keep_the_draws_spread(world):
    rng = np.random.default_rng(3)
    link = world.links[PERIODS[1]]
    A, B = link.A * np.exp(rng.normal(0, 0.1, link.A.shape)), link.B + rng.normal(0, 0.2, link.B.shape)
    placed = links_in_force({PERIODS[1]: replace(link, A=A, B=B)}, world.consensus.links)[PERIODS[1]]
    np.testing.assert_allclose(placed.A.mean(axis=0), 1.21)
    np.testing.assert_allclose(placed.B.mean(axis=0), 0.45)
    scale = 1.21 / A.mean(axis=0)
    np.testing.assert_allclose(placed.A, scale * A)
    np.testing.assert_allclose(placed.B.std(axis=0), scale * B.std(axis=0))


def test_linked_abilities_follow_the_linked_draws(world):
    some = np.arange(0, 4 * DRAWS, 5)
    link = world.links[PERIODS[1]]
    thinned = replace(link, A=link.A[some], B=link.B[some], draw_index=some)
    links = {**world.links, PERIODS[1]: thinned}
    table = ability_agreement(world.calibrations, links, world.consensus.links, world.pooled, PERIODS)
    assert table.height == 4


def test_nothing_in_common_is_said(world):
    other = replace(world.pooled, groups={"other": world.pooled.groups["essay"]})
    with pytest.raises(DataError, match="no answered item in common"):
        agreement(world.consensus, other)


def test_single_population_has_no_ability_comparison(world):
    with pytest.raises(DataError, match="fit_pooled"):
        ability_agreement(
            world.calibrations, world.links, world.consensus.links, world.calibrations[PERIODS[0]], PERIODS
        )


def test_public_name():
    assert concal.agreement is agreement
