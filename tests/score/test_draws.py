"""Item uncertainty: the split of the variance, plausible values, pooling."""

import numpy as np
import polars as pl
import pytest
from worlds import brute_force, make_bank, people, simulate

from concal import metric
from concal.calibration.workers import Workers
from concal.errors import DataError
from concal.score.metric import draw_metrics
from concal.score.modes import Estimates
from concal.score.over_draws import over_draws
from concal.score.plausible import person_keys, uniforms
from concal.score.pool import correlation_of, mean_of, pool, regression_of, variance_of
from concal.score.score import ScoreOptions, draw_plausible_values, score_examinees, variance_shares


def test_draws_are_the_law_of_total_variance():
    """Against brute force at every draw of items and priors."""
    bank = make_bank([("2pl", None), ("grm", 3)], dimensions=2, sd=0.5, n_draws=12, wobble=0.1)
    _, answered = simulate(bank, 2, 4)
    found = score_examinees(bank, people(answered), ScoreOptions(items="draws", draws=12))
    for p in range(2):
        each = [
            brute_force(
                bank, answered, p, [g.draws[s].astype(float) for g in bank.items.groups],
                bank.abilities.draw_mean[s, 0], bank.abilities.draw_covariance[s, 0], per_axis=100,
            )
            for s in range(12)
        ]  # fmt: skip
        means, within = np.array([m for m, _ in each]), np.mean([C for _, C in each], axis=0)
        total = within + np.cov(means, rowvar=False)
        for k in range(2):
            row = found.row(p, named=True)
            assert row[f"theta_dim{k}"] == pytest.approx(means[:, k].mean(), abs=1e-6)
            assert row[f"se_dim{k}"] == pytest.approx(np.sqrt(total[k, k]), abs=1e-6)
            assert row[f"se_measurement_dim{k}"] == pytest.approx(np.sqrt(within[k, k]), abs=1e-6)
            parts = sum(row[f"se_{part}_dim{k}"] ** 2 for part in ("measurement", "items", "link"))
            assert parts == pytest.approx(total[k, k], abs=1e-6)


def test_parts_of_the_variance_by_hand():
    """Two priors with different regressors, and an estimate that is not finite at one draw."""
    rng = np.random.default_rng(8)
    S, n, D = 30, 6, 2
    theta, root = rng.normal(5.0, 0.2, (S, n, D)), rng.normal(size=(S, n, D, D))
    covariance = root @ root.swapaxes(2, 3)
    theta[4, 3, 1] = np.inf
    group = np.array([0, 1, 1, 0, 0, 1], np.int32)
    metrics = [np.linalg.qr(x - x.mean(axis=0))[0] for x in (rng.normal(size=(S, 2)), rng.normal(size=(S, 3)))]
    sets = (Estimates(theta[s], covariance[s]) for s in range(S))
    found = over_draws(sets, group, metrics, S, Workers(1))
    for i in (0, 1, 2, 4, 5):
        np.testing.assert_allclose(found.theta[i], theta[:, i].mean(axis=0))
        between = np.cov(theta[:, i], rowvar=False)
        np.testing.assert_allclose(found.covariance[i], covariance[:, i].mean(axis=0) + between)
        np.testing.assert_allclose(found.items[i] + found.link[i], np.diag(between))
        X, squares = metrics[group[i]], (S - 1) * np.diag(between)
        explained = ((X.T @ theta[:, i]) ** 2).sum(axis=0)
        free = S - 1 - X.shape[1]
        exact = np.maximum(explained - X.shape[1] * (squares - explained) / free, 0.0) / (S - 1)
        np.testing.assert_allclose(found.link[i], exact, atol=1e-12)
    assert found.theta[3, 1] == np.inf
    assert np.isfinite(found.theta[3, 0])


def test_link_share_is_exact_where_only_the_metric_moves():
    """All items and the prior of a draw on the metric A theta + B: the estimate is A m + B and all of it is link."""
    bank = make_bank([("2pl", None)], n_items=20, n_draws=60, wobble=0.1)
    _, answered = simulate(bank, 30, 10)
    found = score_examinees(bank, people(answered), ScoreOptions(items="draws", draws=60, prior="P1"))
    log_A, B = bank.abilities.links[:, 0, 0].T
    point = score_examinees(bank, people(answered), ScoreOptions(items="mean", prior="P1"))
    m = point["theta_dim0"].to_numpy()
    exact = np.var(np.exp(log_A) * m[:, None] + B, axis=1, ddof=1)
    np.testing.assert_allclose(found["se_link_dim0"].to_numpy() ** 2, exact, rtol=0.02)
    assert (found["se_items_dim0"].to_numpy() ** 2 < 0.02 * exact).all()


def test_item_share_where_the_metric_does_not_move():
    bank = make_bank([("2pl", None)], n_items=400, sd=0.5, n_draws=100)
    _, answered = simulate(bank, 200, 10)
    found = score_examinees(bank, people(answered), ScoreOptions(items="draws", draws=100, prior="P1"))
    shares = variance_shares(found).row(0, named=True)
    assert shares["items"] > 10 * shares["link"] > 0
    assert shares["share_measurement"] + shares["share_items"] + shares["share_link"] == pytest.approx(1.0)


def test_metric_of_a_draw_is_found():
    bank = make_bank([("2pl", None), ("gpcm", 4)], n_items=300, dimensions=2, sd=0.2, n_draws=20, wobble=0.05)
    found = draw_metrics(bank.items, np.arange(20))
    np.testing.assert_allclose(found, bank.abilities.links[:, 0], atol=0.03)
    moved = metric.move_items(bank.items.groups[0].mean, np.exp(0.01), 0.02)
    np.testing.assert_allclose(
        moved - bank.items.groups[0].mean,
        metric.location_patterns(bank.items.groups[0].mean[:, 0], 2) @ [0.01, 0.02],
        atol=3e-4,
    )


def test_independent_draws_say_so_and_tell_no_link_share():
    bank = make_bank([("2pl", None)], sd=0.5)
    _, answered = simulate(bank, 5, 6)
    found = score_examinees(bank, people(answered), ScoreOptions(items="draws", draws=20))
    assert found["items"].unique().to_list() == ["independent draws"]
    assert found["se_link_dim0"].is_null().all()
    assert (found["se_items_dim0"] > 0.02).all()
    one = score_examinees(bank, people(answered.part(3, 4)), ScoreOptions(items="draws", draws=20))
    assert one["theta_dim0"][0] == found["theta_dim0"][3]  # whoever else is scored


def test_levels_agree_where_items_are_known():
    bank = make_bank([("2pl", None), ("gpcm", 4)], sd=1e-5, n_draws=5)
    _, answered = simulate(bank, 50, 6)
    mean, soft, draws = (
        score_examinees(bank, people(answered), ScoreOptions(items=level, draws=5))
        for level in ("mean", "soft", "draws")
    )
    for other in (soft, draws):
        np.testing.assert_allclose(other["theta_dim0"], mean["theta_dim0"], atol=1e-4)
        np.testing.assert_allclose(other["se_dim0"], mean["se_dim0"], atol=1e-4)
    assert soft["se_measurement_dim0"].is_null().all()


@pytest.mark.parametrize("method", ["map", "ml", "wle"])
def test_point_estimates_over_draws(method):
    bank = make_bank([("2pl", None)], n_items=12, sd=0.4, n_draws=10)
    _, answered = simulate(bank, 20, 10)
    found = score_examinees(bank, people(answered), ScoreOptions(method, "draws", draws=10))
    finite = found.filter(pl.col("flag_dim0").is_null())
    assert finite.height > 10
    assert (finite["se_items_dim0"] > 0).all()
    assert found.filter(pl.col("flag_dim0") == "not finite")["theta_dim0"].is_infinite().all()


def test_uniform_numbers():
    keys = person_keys([f"p{i}" for i in range(4000)], 3)
    u = uniforms(keys, 2, 3)
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(u.T) - np.eye(3)).max() < 0.05
    np.testing.assert_array_equal(uniforms(keys[7:9], 2, 3), u[7:9])


def test_plausible_values_recover_the_population_and_a_regression():
    bank = make_bank([("2pl", None), ("gpcm", 4)], n_items=60, dimensions=2, sd=0.05, n_draws=10, correlation=0.6)
    n = 3000
    rng = np.random.default_rng(5)
    theta = rng.multivariate_normal([0, 0], bank.abilities.covariance[0], n)
    _, answered = simulate(bank, n, 12, theta=theta)
    who = people(answered)
    values = draw_plausible_values(bank, who, 5, ScoreOptions(prior="P1"), per_draw=2)
    assert values.columns == ["person_id", "pv", "item_draw", "theta_dim0", "theta_dim1"]
    assert values.height == n * 10
    pooled = pl.concat(
        [
            pool(values, mean_of("theta_dim0", "theta_dim1")),
            pool(values, variance_of("theta_dim0", "theta_dim1")),
            pool(values, correlation_of("theta_dim0", "theta_dim1")),
        ],
        how="diagonal_relaxed",
    )
    truth = [*theta.mean(axis=0), *theta.var(axis=0), np.corrcoef(theta.T)[0, 1]]
    for row, exact in zip(pooled.iter_rows(named=True), truth, strict=True):
        assert abs(row["estimate"] - exact) < 3.5 * row["se"], row["name"]
        assert row["se"] < 0.06
    # regression of one dimension on the other: the prior's correlation is in the posterior, so it is not attenuated
    slope = pool(values, regression_of("theta_dim0", "theta_dim1")).row(1, named=True)
    assert slope["name"] == "theta_dim1"
    assert slope["estimate"] == pytest.approx(0.6, abs=0.05)
    assert 0 <= slope["share_items"] <= slope["share_imputation"] <= 1


def test_plausible_values_carry_the_link_error():
    """With a wobbling metric the mean of the population is uncertain by it, however many examinees there are."""
    bank = make_bank([("2pl", None)], n_items=60, n_draws=40, wobble=0.1)
    _, answered = simulate(bank, 2000, 20)
    values = draw_plausible_values(bank, people(answered), 40, ScoreOptions(prior="P1"))
    se = pool(values, mean_of("theta_dim0"))["se"][0]
    assert se == pytest.approx(np.hypot(np.std(bank.abilities.links[:, 0, 0, 1], ddof=1), 1 / np.sqrt(2000)), rel=0.1)


def test_rubins_rules_by_hand():
    table = pl.DataFrame({"person_id": ["a", "b"] * 3, "pv": [1, 1, 2, 2, 3, 3], "item_draw": [0, 0, 5, 5, 9, 9],
                          "x": [0.0, 2.0, 1.0, 3.0, 2.0, 6.0]})  # fmt: skip
    row = pool(table, mean_of("x")).row(0, named=True)
    Q, U = np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.0, 4.0])
    T = U.mean() + (4 / 3) * Q.var(ddof=1)
    assert row["estimate"] == pytest.approx(Q.mean())
    assert row["se"] == pytest.approx(np.sqrt(T))
    r = (4 / 3) * Q.var(ddof=1) / U.mean()
    assert row["df"] == pytest.approx(2 * (1 + 1 / r) ** 2)
    assert row["share_items"] is None
    with pytest.raises(DataError, match="at least two sets"):
        pool(table.filter(pl.col("pv") == 1), mean_of("x"))
