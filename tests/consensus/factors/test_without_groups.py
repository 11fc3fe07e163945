"""What is left of factors without some groups of examinees: against the exact likelihood of the others' responses."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss

from concal import metric
from concal.calibration.fit.by_group import TABLE_BINS, group_evidence
from concal.calibration.fit.cells import Responses
from concal.calibration.fit.period_fit import _group_frame
from concal.calibration.result import GroupDraws
from concal.calibration.tables import BINS, ResponseTable, table_of_responses
from concal.consensus.factors import without_groups
from concal.consensus.factors.linearise import cubature, linearise
from concal.consensus.factors.period import GroupFactors
from concal.consensus.factors.pooled import pooled, side_by_side
from concal.consensus.factors.remainder import kernel_tables
from concal.consensus.factors.without_groups import (
    counts_of_rest,
    item_prior,
    moved_draws,
    moved_item,
    rest_of,
    with_rest,
)
from concal.consensus.item_posterior import item_posterior
from concal.data.period import GroupData
from concal.errors import DataError
from concal.response import make_model
from concal.response.registry import kernels

NAMES = ("a", "b", "c")
IDS = ("i0", "i1", "i2")
N = 400
DIFFERS = 0.8


def responses(model, seed=3):
    """Three items answered by three groups of N; i1 is harder for b by DIFFERS. Item, score, ability, its SD, group."""
    rng = np.random.default_rng(seed)
    xi = np.array(model.prior.mean) + 0.3 * np.array(model.prior.sd) * rng.normal(size=(3, len(model.parameters)))
    item, who = np.repeat(np.arange(3), 3 * N), np.tile(np.repeat(np.arange(3), N), 3)
    mean, sd = rng.normal(-0.4 * (who == 1), 0.9), rng.uniform(0.25, 0.4, item.size)
    theta, moved = mean + sd * rng.normal(size=item.size), xi[item].copy()
    moved[:, 0] += DIFFERS * ((item == 1) & (who == 1))
    return xi, item, model.simulate(theta, moved, rng), mean, sd, who


def exact_posterior(model, score, mean, sd, prior, around):
    """Mean and SD of xi given responses alone, summed over points spread as `around` (mean, covariance)."""
    rng = np.random.default_rng(0)
    root = 1.3 * np.linalg.cholesky(around[1])
    z = rng.normal(size=(400, around[0].size))
    z = np.concatenate([z, -z])
    xi = around[0] + z @ root.T
    nodes, weights = hermegauss(15)
    weights = weights / weights.sum()
    theta, encoded = mean[:, None] + sd[:, None] * nodes, model.encode_score(score)[:, None]
    log_w = 0.5 * (z**2).sum(axis=1)
    for k, x in enumerate(xi):
        par = model.kernel_parameters(x[None])[0][:, None, None]
        ll = kernels(model.tag).log_terms(
            model.tag, np.broadcast_to(encoded, theta.shape), par[0] * (theta - par[1]), par
        )
        log_w[k] += np.log(np.exp(ll[0]) @ weights).sum()
    r = xi - prior[0]
    log_w -= 0.5 * np.einsum("na,ab,nb->n", r, np.linalg.inv(prior[1]), r)
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    m = w @ xi
    return m, np.sqrt(w @ (xi - m) ** 2)


def period(model, guide=None):
    """Factors, draws and `PeriodFit.groups` of the responses, all groups together at their own posterior."""
    xi, item, score, mean, sd, who = responses(model)
    p, n = xi.shape[1], np.bincount(item)
    table = table_of_responses(model, 3, item, model.encode_score(score), mean, sd)
    prior = np.tile(model.prior.mean, (3, 1)), np.tile(np.diag(np.square(model.prior.sd)), (3, 1, 1))
    centre, covariance = xi, 0.01 * np.tile(np.eye(p), (3, 1, 1))
    for _ in range(8):
        Q, h, _ = linearise(model, kernel_tables(table), cubature(centre, covariance))
        centre, covariance = item_posterior(Q, h, *prior)
    said = group_evidence(model, centre, Responses(item, score, mean, sd), who, 3)
    data = GroupData("g", "x", model, IDS, ("1",), np.ones((3, 1)), who, item, score)
    nothing, zero = np.zeros((3, p, p)), np.zeros((3, p))
    beta = np.array(model.prior.mean)[None]
    factors = GroupFactors(
        "g", "x", model, IDS, ("1",), "", np.ones((3, 1)), n, Q, h, centre, covariance, np.ones(3), beta, np.eye(p),
        np.eye(p), prior[1][0], np.zeros(1), np.eye(1), *table, nothing, zero,
    )  # fmt: skip
    z = np.random.default_rng(1).normal(size=(2, 4000, 3, p))
    draws = centre + np.einsum("jab,csjb->csja", np.linalg.cholesky(covariance), z)
    made = GroupDraws(
        "g", "x", model, IDS, ("1",), np.ones((3, 1)), draws.astype(np.float32), np.zeros(0), np.zeros(0), n, zero,
        zero, zero, **table._asdict(), **(guide or {}),
    )  # fmt: skip
    return factors, made, _group_frame(data, said, NAMES), prior


MODELS = [("2pl", None), ("3pl", None), ("gpcm", 4), ("beta", None), ("ordered_beta", None)]
WITHIN = {"2pl": 0.12, "3pl": 0.2, "gpcm": 0.05, "beta": 0.08, "ordered_beta": 0.12}
"""Posterior SDs."""


@pytest.mark.parametrize("kind", MODELS, ids=lambda m: m[0])
def test_the_rest_is_what_the_others_responses_say(kind):
    """Also where they have the item several SDs from where all groups together have it."""
    model = make_model(*kind)
    factors, draws, said, prior = period(model)
    _, item, score, mean, sd, who = responses(model)
    rest = rest_of(factors, draws, said, {"i1": frozenset("b")})
    assert (rest.item_ids, rest.rows.tolist(), rest.n_responses.tolist()) == (("i1",), [1], [2 * N])
    found, covariance = item_posterior(rest.Q, rest.h, prior[0][:1], prior[1][:1])
    kept = (item == 1) & (who != 1)
    around = found[0], covariance[0]
    expected, spread = exact_posterior(model, score[kept], mean[kept], sd[kept], (prior[0][0], prior[1][0]), around)
    assert np.abs((factors.mean[1] - expected) / spread).max() > 1.5
    np.testing.assert_allclose((found[0] - expected) / spread, 0.0, atol=WITHIN[model.name])
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance[0])) / spread, 1.0, atol=0.08)


def test_items_the_rest_does_not_place_are_refused(monkeypatch):
    monkeypatch.setattr(without_groups, "MOST_STEPS", 1)
    factors, draws, said, _ = period(make_model("2pl"))
    with pytest.raises(DataError, match=r"do not place 1 item \('i1'\).*exclude the item there for everybody"):
        rest_of(factors, draws, said, {"i1": frozenset("b")})


@pytest.mark.parametrize("kind", MODELS, ids=lambda m: m[0])
def test_table_and_remainder_are_the_gaussian_where_the_rest_has_the_item(kind):
    model = make_model(*kind)
    factors, draws, said, prior = period(model)
    rest = rest_of(factors, draws, said, {"i1": frozenset("b")})
    mean, covariance = item_posterior(rest.Q, rest.h, prior[0][:1], prior[1][:1])
    table_Q, table_h, _ = linearise(model, kernel_tables(rest.table), cubature(mean, covariance))
    phi = metric.phi_of(mean)[0]
    slope = table_h[0] + rest.dh[0] - (table_Q[0] + rest.dQ[0]) @ phi
    scale = np.sqrt(np.diagonal(rest.Q[0]))
    np.testing.assert_allclose(slope / scale, (rest.h[0] - rest.Q[0] @ phi) / scale, atol=1e-6)
    assert np.linalg.eigvalsh(rest.dQ[0])[0] > -1e-8
    lacking = np.linalg.eigvalsh((rest.Q[0] - table_Q[0] - rest.dQ[0]) / np.outer(scale, scale))
    assert lacking[-1] < 1e-6
    assert rest.table.cell_count.shape[1] == BINS
    assert rest.table.cell_count.sum() == 2 * N


def test_items_of_other_groups_are_left_alone():
    factors, draws, said, _ = period(make_model("2pl"))
    rest = rest_of(factors, draws, said, {"i1": frozenset("b"), "other": frozenset("b")})
    assert rest_of(factors, draws, said, {"other": frozenset("b")}) is None
    changed, counted, moved = with_rest(factors, rest), counts_of_rest(draws, rest), moved_draws(draws.xi, rest)
    for name in ("Q", "h", "mean", "covariance", "n_responses", "cell_count", "dQ", "dh"):
        np.testing.assert_array_equal(getattr(changed, name)[[0, 2]], getattr(factors, name)[[0, 2]])
    assert counted.n_responses.tolist() == [3 * N, 2 * N, 3 * N]
    np.testing.assert_array_equal(moved[:, :, [0, 2]], draws.xi[:, :, [0, 2]])
    np.testing.assert_array_equal(moved[:, :, 1], moved_item(draws.xi[:, :, 1], rest, "i1"))
    np.testing.assert_allclose(moved[:, :, 1].mean(axis=(0, 1)), changed.mean[1], atol=0.01)
    flat = moved[:, :, 1].reshape(-1, 2)
    np.testing.assert_allclose(np.cov(flat, rowvar=False), changed.covariance[1], rtol=0.1, atol=1e-3)


def test_priors_are_the_populations_or_the_guides_on_the_periods_metric():
    model, A, B = make_model("2pl"), 1.25, 0.4
    mean, covariance = np.array([[0.3, 0.1]] * 3), np.tile(np.diag([0.04, 0.01]), (3, 1, 1))
    guide = {
        "guide_mean": metric.move_items(mean, A, B), "guide_covariance": metric.move_item_covariance(covariance, A),
        "guide_link": np.tile([np.log(A), B], (2, 5, 1)),
    }  # fmt: skip
    rows = np.array([1, 2])
    factors, draws, *_ = period(model)
    found = item_prior(factors, draws, rows)
    np.testing.assert_allclose(found[0], np.tile(model.prior.mean, (2, 1)))
    np.testing.assert_allclose(found[1], np.tile(np.diag(np.square(model.prior.sd)), (2, 1, 1)))
    factors, draws, *_ = period(model, guide)
    found = item_prior(factors, draws, rows)
    np.testing.assert_allclose(found[0], mean[rows], atol=1e-12)
    np.testing.assert_allclose(found[1], covariance[rows], atol=1e-12)


def test_tables_put_together_hold_everybody():
    model = make_model("ordered_beta")
    _, item, score, mean, sd, who = responses(model)
    encoded = model.encode_score(score)
    parts = [table_of_responses(model, 3, item[who == g], encoded[who == g], mean[who == g], sd[who == g], TABLE_BINS)
             for g in range(3)]  # fmt: skip
    joined = ResponseTable(*(np.concatenate([part[k][1] for part in parts]) for k in range(4)))
    found = pooled(joined)
    at_once = table_of_responses(model, 3, item, encoded, mean, sd)
    np.testing.assert_allclose(found.cell_count.sum(axis=1), 3 * N / BINS, rtol=0.1)
    np.testing.assert_allclose(found.bin_mean, at_once.bin_mean[1], atol=0.05)
    np.testing.assert_allclose(found.bin_sd, at_once.bin_sd[1], atol=0.05)
    np.testing.assert_allclose(
        (found.cell_count * found.cell_score).sum(), (joined.cell_count * joined.cell_score).sum()
    )


def test_tables_of_different_lengths_stand_side_by_side_used_bins_first():
    count = np.zeros((4, 2))
    count[[1, 3]] = 1.0
    short = ResponseTable(np.arange(4.0), np.ones(4), np.zeros((4, 2)), count)
    whole = ResponseTable(np.arange(4.0), np.ones(4), np.zeros((4, 2)), np.ones((4, 2)))
    found = side_by_side([short, whole])
    assert found.bin_mean.tolist() == [[1.0, 3.0, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0]]
    np.testing.assert_array_equal(kernel_tables(found)[0], [2, 4])
    few = pooled(ResponseTable(*(values[:2] for values in whole)))
    assert few.bin_mean[:2].tolist() == [0.0, 1.0]
    assert few.cell_count.sum() == 4
