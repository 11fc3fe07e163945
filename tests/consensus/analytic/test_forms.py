"""Groups whose features, coding or number of categories changed; items without features; guided periods."""

from dataclasses import replace

import numpy as np
import pytest
from phi_worlds import assert_same, by_id, changed, lacking, phi_world

from concal.calibration.priors import beta_moments
from concal.consensus.analytic.consensus import consensus_from_totals
from concal.consensus.analytic.forms import carry_slope, unite_forms
from concal.consensus.analytic.population import Population, consensus_population, with_common_evidence
from concal.consensus.analytic.totals import sum_periods
from concal.consensus.gaussian import inverse
from concal.consensus.item_posterior import item_posterior
from concal.errors import DataError
from concal.response import make_model


@pytest.fixture(scope="module")
def world():
    return phi_world(seed=3)


def with_feature(placed, seed=1):
    """The period's group with a further feature, its coefficients known to be zero."""
    group = placed.factors.groups["g"]
    n, p = group.h.shape
    X = np.column_stack([group.X, np.random.default_rng(seed).normal(size=n)])
    b = np.vstack([group.b, np.zeros((1, p))])
    V = np.kron(np.eye(3), group.sigma) * 1e-4
    return changed(
        placed, X=X, b=b, V=V, beta_precision=np.linalg.inv(V), features=(*group.features, "length"),
        hyperprior=1e-3 * np.eye(3),
    )  # fmt: skip


@pytest.mark.parametrize("model", ["2pl", "gpcm"])
def test_the_population_layer_counts_the_hyperprior_once(model):
    """beta* = (sum V^-1 - (M-1) T)^-1 (sum V^-1 b - (M-1) T b_0) and Sigma*, written out; b_0 is zero for 2pl."""
    world = phi_world(seed=3, model=model, categories=4 if model == "gpcm" else None, tau=0.5)
    p = len(world.model.parameters)
    form = sum_periods([replace(p, link_mean=np.zeros((1, 2))) for p in world.placed]).groups["g:0"]
    got = consensus_population(form)
    groups = [p.factors.groups["g"] for p in world.placed]
    T = 0.5 * np.diag(np.tile(np.array(world.model.prior.sd) ** -2.0, 2))
    b_0 = np.concatenate([world.model.prior.mean, np.zeros(p)])
    precision = sum(np.linalg.inv(g.V) for g in groups) - 2 * T
    told = sum(np.linalg.solve(g.V, g.b.ravel()) for g in groups) - 2 * T @ b_0
    beta = np.linalg.solve(precision, told)
    np.testing.assert_allclose(got.beta.ravel(), beta, rtol=1e-8)
    np.testing.assert_allclose(np.linalg.inv(got.beta_covariance), precision, rtol=1e-8, atol=1e-6)
    n = np.array([g.n_items for g in groups])
    z = np.average([g.sigma_coordinates for g in groups], axis=0, weights=n)
    L = np.zeros((p, p))
    L[np.tril_indices(p)] = z
    L[np.diag_indices(p)] = np.exp(np.diag(L))
    np.testing.assert_allclose(got.sigma, L @ L.T, rtol=1e-9)
    X = np.array([[1.0, 0.7]])
    mean, covariance = got.predict(X)
    np.testing.assert_allclose(mean, X @ got.beta)
    K = np.kron(X, np.eye(p))
    np.testing.assert_allclose(covariance[0], got.sigma + K @ got.beta_covariance @ K.T, rtol=1e-9)


def test_items_are_their_factor_times_the_prediction(world):
    totals = sum_periods(world.placed)
    got = consensus_from_totals(totals).groups["g"]
    form = totals.groups["g:0"]
    mean, covariance = item_posterior(form.Q, form.h, *consensus_population(form).predict(form.X))
    np.testing.assert_allclose(got.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(got.covariance, covariance, rtol=1e-9, atol=1e-15)


def test_a_further_feature_starts_a_form_and_factors_go_on(world):
    last = with_feature(world.placed[2])
    totals = sum_periods([*world.placed[:2], last])
    assert list(totals.groups) == ["g:0", "g:1"]
    consensus = consensus_from_totals(totals)
    got, same = consensus.groups["g"], by_id(consensus_from_totals(sum_periods(world.placed)))
    assert got.features == ("1", "f1", "length")
    here = set(last.factors.groups["g"].item_ids)
    for j, item in enumerate(got.item_ids):
        # the newest table describes the items of the newest period, the older form the others
        assert np.isnan(got.X[j]).any() == (item not in here)
        sd = np.sqrt(np.diag(same[item][1]))
        np.testing.assert_allclose((got.mean[j] - same[item][0]) / sd, 0.0, atol=0.1)
        assert got.source[j] == "consensus"
    back = consensus_from_totals(sum_periods([world.placed[0], last, world.placed[1]]))
    assert back.groups["g"].features == ("1", "f1")  # formulas go A -> B -> A: the newest counts
    assert set(by_id(back)) == set(by_id(consensus))


def test_equal_names_coded_differently_are_never_summed(world):
    other = changed(world.placed[1], coding="other")
    totals = sum_periods([world.placed[0], other, world.placed[2]])
    assert [f.coding for f in totals.forms("g")] == ["c", "other"]
    assert totals.groups["g:0"].population_weight == 2.0
    assert totals.groups["g:1"].population_weight == 1.0
    evidence = unite_forms(totals.forms("g"))
    assert evidence.form.features == ("1", "f1")
    np.testing.assert_allclose(evidence.form.population.beta, consensus_population(totals.groups["g:0"]).beta)
    # what the responses said is summed all the same
    np.testing.assert_array_equal(evidence.n_periods.sum(), sum(p.factors.groups["g"].n_items for p in world.placed))


def test_items_without_features_under_the_newest_formula_are_named(world):
    """Described only by a period that tells no population, in a coding of its own: predicted from the whole group."""
    told = changed(world.placed[0], coding="other", guided=True)
    consensus = consensus_from_totals(sum_periods([told, world.placed[1]]))
    got = consensus.groups["g"]
    here = set(world.placed[1].factors.groups["g"].item_ids)
    bare = [j for j, item in enumerate(got.item_ids) if item not in here]
    assert any(
        f"{len(bare)} items" in w and "without features under the newest formula" in w for w in consensus.warnings
    )
    assert np.isnan(got.X[bare]).all()
    assert (got.source[bare] == "consensus").all()
    assert (got.sd[bare] < 1.1 * np.sqrt(np.diag(got.sigma))).all()


def test_a_newer_coding_that_tells_no_population_is_refused(world):
    told = changed(world.placed[1], coding="other", guided=True)
    with pytest.raises(DataError, match="priors from the bank"):
        consensus_from_totals(sum_periods([world.placed[0], told]))


def test_all_guided_periods_leave_the_population_unknown(world):
    with pytest.raises(DataError, match=r"'g'.*priors from the bank.*calibration.prior"):
        consensus_from_totals(sum_periods([changed(p, guided=True) for p in world.placed]))
    nobody = [changed(p, n_responses=0 * p.factors.groups["g"].n_responses) for p in world.placed]
    with pytest.raises(DataError, match="no period has an item with a response"):
        consensus_from_totals(sum_periods(nobody))


def test_guided_periods_tell_items_and_no_population(world):
    guided = [world.placed[0], *(changed(p, guided=True) for p in world.placed[1:])]
    alone, all_three = sum_periods(guided[:1]).groups["g:0"], sum_periods(guided).groups["g:0"]
    for name in ("beta_precision", "beta_shift", "sigma", "item_weight", "population_weight", "hyperprior"):
        np.testing.assert_array_equal(getattr(all_three, name), getattr(alone, name))
    everybody = sum_periods(world.placed).groups["g:0"]
    np.testing.assert_array_equal(all_three.Q, everybody.Q)


def test_items_nobody_answered(world):
    X = np.array([[1.0, 0.5], [1.0, -2.0]])
    totals = sum_periods(world.placed)
    got = consensus_from_totals(totals, {"g": (["new-1", "item-003", "new-2"], np.vstack([X[0], [1.0, 9.0], X[1]]))})
    found = by_id(got)
    population = consensus_population(totals.groups["g:0"])
    for item, x in zip(("new-1", "new-2"), X, strict=True):
        mean, covariance = population.predict(x[None])
        np.testing.assert_allclose(found[item][0], mean[0], rtol=1e-12)
        np.testing.assert_allclose(found[item][1], covariance[0], rtol=1e-12)
        assert found[item][2] == "predicted"
    assert found["item-003"][2] == "consensus"
    assert got.groups["g"].X[got.groups["g"].item_ids.index("item-003"), 1] == 9.0  # the catalogue's row counts
    with pytest.raises(DataError, match=r"group 'g'.*new-1.*shape"):
        consensus_from_totals(totals, {"g": (["new-1"], np.ones((1, 5)))})
    quiet = world.placed[2].factors.groups["g"].n_responses.copy()
    quiet[:3] = 0
    g = consensus_from_totals(sum_periods([changed(world.placed[2], n_responses=quiet)])).groups["g"]
    assert g.source.tolist() == ["predicted"] * 3 + ["consensus"] * (len(quiet) - 3)


@pytest.mark.parametrize("places", [(0, 1, 2), (2, 0, 1)])
def test_a_period_that_lacked_a_column_tells_nothing_about_those_that_had_it(places):
    """Wherever it stands among the periods: population, predictions and the items of others stay as they were."""
    world = phi_world(seed=5, n_items=60, effect=0.8, links=False)
    whole, poor = [world.placed[0], world.placed[1]], lacking(world.placed[2])
    periods = [(*whole, poor)[k] for k in places]
    totals = sum_periods(periods)
    assert sorted(form.whole >= 0 for form in totals.forms("g")) == [False, True]
    before, consensus = consensus_from_totals(sum_periods(whole)), consensus_from_totals(totals)
    one, both = before.groups["g"], consensus.groups["g"]
    assert (both.features, both.coding) == (("1", "f1"), "c")
    for name in ("beta", "beta_covariance", "sigma"):
        np.testing.assert_array_equal(getattr(both, name), getattr(one, name))
    seen, was, now = set(poor.factors.groups["g"].item_ids), by_id(before), by_id(consensus)
    for item in set(one.item_ids) - seen:
        np.testing.assert_allclose(now[item][0], was[item][0], rtol=1e-12)
    gained = [np.trace(now[item][1]) / np.trace(was[item][1]) for item in set(one.item_ids) & seen]
    assert np.mean(gained) < 0.9, "its responses count"
    only_there = sorted(seen - set(one.item_ids))
    assert only_there
    assert any(f"{len(only_there)} items" in w and "no period has every feature" in w for w in consensus.warnings)
    evidence = unite_forms(totals.forms("g"))
    (other,) = evidence.others
    rows = np.flatnonzero(other.describes)
    assert sorted(evidence.item_ids[j] for j in rows) == only_there
    population = consensus_population(sum_periods([poor]).groups["g:0"])
    for j in rows:
        mean, covariance = population.predict(np.ones((1, 1)))
        np.testing.assert_allclose(evidence.prior_mean[j], mean[0], rtol=1e-9)
        np.testing.assert_allclose(evidence.prior_covariance[j], covariance[0], rtol=1e-9)


def test_periods_that_all_lack_a_column_go_by_what_they_have():
    world = phi_world(seed=5, n_items=40, links=False)
    consensus = consensus_from_totals(sum_periods([lacking(p) for p in world.placed]))
    assert consensus.groups["g"].features == ("1",)
    assert not consensus.warnings
    plain = [changed(lacking(p), lacking=()) for p in world.placed]
    assert_same(consensus, consensus_from_totals(sum_periods(plain)))


def test_a_formula_that_is_taken_back_is_in_force_whatever_others_lacked():
    """Without a feature on purpose: the same form as that of a period that lacked it, and the newest."""
    world = phi_world(seed=5, n_items=40, links=False)
    back = changed(lacking(world.placed[2]), lacking=())
    periods = [world.placed[0], lacking(world.placed[1])]
    assert consensus_from_totals(sum_periods(periods)).groups["g"].features == ("1", "f1")
    assert consensus_from_totals(sum_periods([*periods, back])).groups["g"].features == ("1",)


def test_thresholds_of_another_number_of_categories_are_other_parameters():
    """gpcm rescored from 3 to 4 categories: old factors tell slope and intercept of items the new form has not seen."""
    old = phi_world(seed=4, model="gpcm", categories=3, n_periods=1, share=1.0).placed[0]
    new = phi_world(seed=4, model="gpcm", categories=4, n_periods=2, share=0.6).placed[1]
    consensus = consensus_from_totals(sum_periods([old, new]))
    got = consensus.groups["g"]
    assert got.model == make_model("gpcm", 4)
    assert any("only seen under an earlier number of categories" in w for w in consensus.warnings)
    assert any("only the newest scoring counts" in w for w in consensus.warnings)
    again = by_id(consensus_from_totals(sum_periods([replace(new, reference="P1")])))
    sd = np.sqrt(np.diag(got.sigma))
    for j, item in enumerate(got.item_ids):
        if item in again:
            np.testing.assert_allclose(got.mean[j], again[item][0], atol=1e-8)
        else:
            assert got.source[j] == "consensus"
            assert (np.sqrt(np.diag(got.covariance[j]))[:2] < 0.95 * sd[:2]).all()
            assert (np.sqrt(np.diag(got.covariance[j]))[2:] > 0.8 * sd[2:]).all()


def test_a_later_formula_brings_no_earlier_number_of_categories_back():
    """3 categories, then 4, then 4 under another formula: whoever was answered under 4 is judged by that alone."""
    old = phi_world(seed=4, model="gpcm", categories=3, n_periods=1, share=1.0).placed[0]
    world = phi_world(seed=4, model="gpcm", categories=4, n_periods=3, share=0.6).placed
    rescored = [world[1], with_feature(world[2])]
    consensus = consensus_from_totals(sum_periods([old, *rescored]))
    got = consensus.groups["g"]
    alone = consensus_from_totals(sum_periods([replace(p, reference="P1") for p in rescored])).groups["g"]
    assert set(alone.item_ids) - set(world[2].factors.groups["g"].item_ids)  # of the older form only
    place = {item: j for j, item in enumerate(got.item_ids)}
    rows = [place[item] for item in alone.item_ids]
    np.testing.assert_array_equal(got.n_periods[rows], alone.n_periods)
    np.testing.assert_array_equal(got.n_responses[rows], alone.n_responses)
    np.testing.assert_allclose(got.mean[rows], alone.mean, atol=1e-9)
    [text] = [w for w in consensus.warnings if "only seen under an earlier number" in w]
    assert f"{got.mean.shape[0] - len(rows)} items" in text


def test_carried_slopes_have_the_extras_integrated_out():
    """Against the joint Gaussian of phi with the prediction of the extras, marginalised."""
    rng = np.random.default_rng(5)
    root = rng.normal(size=(4, 3, 3))
    Q, h = root @ root.transpose(0, 2, 1) + 0.5 * np.eye(3), rng.normal(size=(4, 3))
    population = Population(rng.normal(size=(1, 3)), np.zeros((3, 3)), np.diag([1.0, 0.2, 0.3]))
    got_Q, got_h = carry_slope(Q, h, population, np.ones((4, 1)), 4)
    assert got_Q.shape == (4, 4, 4)
    for j in range(4):
        P, shift = Q[j].copy(), h[j].copy()
        P[2, 2] += 1 / 0.3
        shift[2] += population.beta[0, 2] / 0.3
        C = np.linalg.inv(P)
        marginal = np.linalg.inv(C[:2, :2])
        np.testing.assert_allclose(got_Q[j, :2, :2], marginal, rtol=1e-8)
        np.testing.assert_allclose(got_h[j, :2], marginal @ (C @ shift)[:2], rtol=1e-8)
        assert not got_Q[j, 2:].any()
        assert not got_h[j, 2:].any()
    plain = carry_slope(Q[:, :2, :2], h[:, :2], None, np.ones((4, 1)), 3)
    np.testing.assert_array_equal(plain[0][:, :2, :2], Q[:, :2, :2])
    assert inverse(Q).shape == Q.shape


def test_forms_of_a_group_with_equal_slopes_tell_it_together():
    """As if all coefficients of both forms were unknowns of one system, with one log a."""
    world = phi_world(seed=6, n_items=30, links=False, tau=0.2)
    model, whole, poor = make_model("1pl"), world.placed[0], lacking(world.placed[1])
    forms = sum_periods([changed(whole, model=model), changed(poor, model=model)]).forms("g")
    told = with_common_evidence(forms)
    F = [form.beta_shift.size for form in forms]
    own = [np.array([F[0] * k + i for i in range(F[k])]) for k in range(2)]
    own[1][1] = 1  # the coordinate of log a is the first form's
    P, h, centre = np.zeros((sum(F), sum(F))), np.zeros(sum(F)), np.zeros(sum(F))
    for form, at in zip(forms, own, strict=True):
        b_0, once = beta_moments(form.hyperprior, model.prior)
        if at[1] != at[0] + 1:
            once[1, :], once[:, 1] = 0.0, 0.0  # counted with the first form
        P[np.ix_(at, at)] += form.beta_precision + once
        h[at] += form.beta_shift
        centre[at] = b_0.ravel()
    free = np.setdiff1d(np.arange(sum(F)), [F[0] + 1])
    covariance = np.linalg.inv(P[np.ix_(free, free)])
    beta = centre[free] + covariance @ h[free]
    place = {int(i): k for k, i in enumerate(free)}
    for form, at in zip(told, own, strict=True):
        got, rows = consensus_population(form), [place[int(i)] for i in at]
        np.testing.assert_allclose(got.beta.ravel(), beta[rows], rtol=1e-8)
        np.testing.assert_allclose(got.beta_covariance, covariance[np.ix_(rows, rows)], rtol=1e-6, atol=1e-12)
    alone = [consensus_population(form).beta[0, 1] for form in forms]
    assert abs(alone[0] - alone[1]) > 1e-3, "they do not agree by themselves"
