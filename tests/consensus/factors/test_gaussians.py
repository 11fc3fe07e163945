"""Gaussian factors from gradients and from draws alone: the likelihood comes back, whatever the prior was."""

from dataclasses import replace

import numpy as np
import pytest
from gaussian_worlds import CONVERGED, DIMENSIONS

from concal import metric
from concal.calibration.result import Calibration, GroupDraws
from concal.consensus.factors.check import collapsed
from concal.consensus.factors.gaussians import FLOOR, finish, from_gradients, prior_precision
from concal.consensus.factors.make import make_factors
from concal.errors import DataError
from concal.response import make_model

N = 12


def phi_period(seed=1, n=N, draws=4000, model="2pl", told=None, wobble=None, se=0.1, gradients=False, ess=None):
    """A period whose likelihood is exactly N(centre, R) in phi: draws of its posterior by importance resampling.

    The prior is N(X beta, Sigma) in xi, or `told`: (mean, covariance, (log A, B)) of a guide.
    """
    rng = np.random.default_rng(seed)
    model = make_model(model, None)
    p = len(model.parameters)
    X = np.column_stack([np.ones(n), np.linspace(-1, 1, n)])
    beta = np.zeros((2, p))
    beta[0], beta[1, 0] = np.array(model.prior.mean), 0.5
    sigma = np.diag([0.8, 0.09, *[0.2] * (p - 2)]) + 0.02
    xi = X @ beta + 0.7 * rng.normal(size=(n, p)) @ np.linalg.cholesky(sigma).T
    L = se * (np.eye(p) + 0.2 * rng.normal(size=(n, p, p)))
    R = L @ L.transpose(0, 2, 1)
    centre = metric.phi_of(xi) + np.einsum("jab,jb->ja", L, rng.normal(size=(n, p)))
    chosen, moments = np.empty((draws, n, p)), []
    for j in range(n):
        phi = centre[j] + 1.1 * rng.normal(size=(20 * draws, p)) @ np.linalg.cholesky(R[j]).T
        phi = phi[phi[:, 1] > 0.02]
        x = metric.xi_of(phi)
        z = np.linalg.solve(np.linalg.cholesky(R[j]), (phi - centre[j]).T)
        log_w = -0.5 * (1 - 1 / 1.21) * (z**2).sum(axis=0) - 2.0 * np.log(phi[:, 1])
        if told is None:
            r = x - X[j] @ beta
            log_w -= 0.5 * (r * np.linalg.solve(sigma, r.T).T).sum(axis=1)
        else:
            r = metric.move_items(x, np.exp(told[2][0]), told[2][1]) - told[0][j]
            log_w -= 0.5 * (r * np.linalg.solve(told[1][j], r.T).T).sum(axis=1)
        w = np.exp(log_w - log_w.max())
        pick = rng.choice(len(w), draws, p=w / w.sum())
        chosen[:, j] = x[pick]
        l = np.linalg.solve(R[j], (centre[j] - phi[pick]).T).T
        products = [phi[pick].T @ v / draws for v in (phi[pick], l)]
        moments.append(np.concatenate([phi[pick].mean(axis=0), l.mean(axis=0), *(v.ravel() for v in products)]))
    if wobble is not None:
        w = rng.multivariate_normal(np.zeros(2), wobble, size=draws)
        chosen = metric.move_items(chosen, np.exp(w[:, :1]), w[:, 1:])
    group = GroupDraws(
        name="g", dimension="reading", model=model, item_ids=tuple(f"i{j}" for j in range(n)), features=("1", "x"),
        X=X, xi=chosen.reshape(4, -1, n, p).astype(np.float32),
        beta=np.broadcast_to(beta, (4, draws // 4, 2, p)).copy(),
        sigma=np.broadcast_to(sigma, (4, draws // 4, p, p)).copy(), n_responses=np.full(n, 50), rhat=np.ones((n, p)),
        ess_bulk=np.full((n, p), float(ess or draws)), ess_tail=np.full((n, p), float(draws)),
        moments=np.array(moments) if gradients else None,
    )  # fmt: skip
    if told is not None:
        link = np.broadcast_to(told[2], (4, draws // 4, 2)).copy()
        group = replace(group, guide_mean=told[0], guide_covariance=told[1], guide_link=link)
    made = Calibration("P1", DIMENSIONS, {"g": group}, None, CONVERGED, 0.01, {"g": 0.01 * np.eye(2)}, 1, "synthetic")
    return made, centre, R


def compare(factors, centre, R):
    """Distance of the factors' centres in their standard errors, and ratio of standard errors."""
    g = factors.groups["g"]
    found, covariance = np.linalg.solve(g.Q, g.h[:, :, None])[:, :, 0], np.linalg.inv(g.Q)
    se = np.sqrt(np.diagonal(R, axis1=1, axis2=2))
    return (found - centre) / se, np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)) / se


@pytest.mark.parametrize("model", ["2pl", "3pl"])
def test_draws_alone_give_the_likelihood_back(model):
    calibration, centre, R = phi_period(model=model)
    off, ratio = compare(make_factors(calibration), centre, R)
    assert np.sqrt((off**2).mean()) < 0.1
    np.testing.assert_allclose(np.median(ratio, axis=0), 1.0, atol=0.05)
    assert make_factors(calibration).groups["g"].obtained == "draws"


def test_gradients_give_it_back_with_few_draws():
    """A hundred draws: a quadratic log-likelihood is known without error from gradients, not from draws."""
    calibration, centre, R = phi_period(draws=100, gradients=True, seed=3)
    calm = replace(calibration, groups={"g": replace(calibration.groups["g"])})
    Q, l, mean, _ = from_gradients(calm.groups["g"], np.zeros((2, 2)))
    np.testing.assert_allclose(Q, np.linalg.inv(R), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.linalg.solve(Q, l[:, :, None])[:, :, 0] + mean, centre, atol=1e-8)
    rough = make_factors(replace(calm, groups={"g": replace(calm.groups["g"], moments=None)}))
    off, _ = compare(rough, centre, R)
    assert np.sqrt((off**2).mean()) > 0.02
    assert make_factors(calm).groups["g"].obtained == "gradients"


def test_what_the_period_was_told_does_not_matter():
    """Priors from a bank, shifted one way and the other, on its metric: equal factors within the draws' noise."""
    found = []
    for shift in (0.3, -0.3):
        _, centre, R = phi_period()
        A, B = np.exp(0.2), -0.4
        mean = metric.move_items(metric.xi_of(centre), A, B) + shift
        covariance = np.tile(np.diag([0.3, 0.05]), (N, 1, 1))
        calibration, centre, R = phi_period(told=(mean, covariance, (0.2, -0.4)))
        factors = make_factors(calibration)
        assert factors.groups["g"].guided
        off, ratio = compare(factors, centre, R)
        assert np.sqrt((off**2).mean()) < 0.1
        np.testing.assert_allclose(np.median(ratio, axis=0), 1.0, atol=0.05)
        found.append(off)
    assert np.sqrt(((found[0] - found[1]) ** 2).mean()) < 0.12


def test_few_effective_draws_widen_the_factor_and_are_told():
    """The inverse of a covariance from few draws is too large; what is known of their number corrects it."""
    ratios = []
    for seed in range(12):
        calibration, centre, R = phi_period(draws=40, seed=seed)
        ratios.append(compare(make_factors(calibration), centre, R)[1])
    assert np.mean(np.array(ratios) ** -2.0) == pytest.approx(1.0, abs=0.15)
    warned = make_factors(phi_period(draws=40, ess=4)[0]).warnings
    assert any("too few effective draws" in w for w in warned)
    calibration = phi_period(draws=400)[0]
    group = replace(calibration.groups["g"], ess_bulk=np.full((N, 2), np.nan))
    assert any(
        "without an effective sample size" in w
        for w in make_factors(replace(calibration, groups={"g": group})).warnings
    )


def test_the_floor():
    """No direction says less than .01 of the prior; other directions are left alone; unanswered items say nothing."""
    mean, sigma = np.array([[0.3, 1.0], [-0.5, 0.8], [0.1, 1.2]]), np.array([[0.9, 0.1], [0.1, 0.1]])
    unit = prior_precision(mean, sigma)
    Q = np.stack([3.0 * unit[0], -unit[1], unit[2]])
    gradient = np.array([[1.0, -1.0], [0.5, 0.2], [0.3, 0.3]])
    got_Q, got_h = finish(Q, gradient, mean, sigma, np.array([True, True, False]))
    np.testing.assert_allclose(got_Q[0], Q[0], rtol=1e-9)
    np.testing.assert_allclose(got_Q[1], FLOOR * unit[1], rtol=1e-8)
    np.testing.assert_allclose(got_h[:2], gradient[:2] + np.einsum("jab,jb->ja", got_Q[:2], mean[:2]), rtol=1e-9)
    assert not got_Q[2].any()
    assert not got_h[2].any()
    # K' Sigma^-1 K with K = d xi / d phi
    step = 1e-6
    for j in range(3):
        K = np.stack(
            [(metric.xi_of(mean[j] + step * e) - metric.xi_of(mean[j] - step * e)) / (2 * step) for e in np.eye(2)], 1
        )
        np.testing.assert_allclose(unit[j], K.T @ np.linalg.solve(sigma, K), rtol=1e-6)


def test_factors_are_a_function_of_the_calibration_alone():
    calibration, _, _ = phi_period(draws=200)
    one, other = make_factors(calibration), make_factors(calibration)
    for name in ("Q", "h", "mean", "covariance", "b", "V", "beta_precision"):
        np.testing.assert_array_equal(getattr(one.groups["g"], name), getattr(other.groups["g"], name))
    xi = calibration.groups["g"].flat("xi")
    np.testing.assert_allclose(one.groups["g"].mean, xi.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(one.groups["g"].covariance[3], np.cov(xi[:, 3].T), rtol=1e-6)


def test_blocks_of_items_change_nothing(monkeypatch):
    calibration, _, _ = phi_period(draws=100)
    whole = make_factors(calibration).groups["g"]
    monkeypatch.setattr("concal.consensus.factors.moments.BLOCK_BYTES", 8 * 100 * 2 * 5)
    parts = make_factors(calibration).groups["g"]
    np.testing.assert_allclose(parts.Q, whole.Q, rtol=1e-9)
    np.testing.assert_allclose(parts.h, whole.h, rtol=1e-9)


def with_group(calibration, **changes):
    return replace(calibration, groups={"g": replace(calibration.groups["g"], **changes)})


def test_bad_draws_are_refused_by_name():
    good, _, _ = phi_period(draws=40)
    group = good.groups["g"]
    xi = group.xi.copy()
    xi[0, 0, 3, 0], xi[1, 2, 7, 1] = np.nan, np.inf
    with pytest.raises(DataError, match=r"'P1', group 'g'.*'i3', 'i7'.*not finite"):
        make_factors(with_group(good, xi=xi))
    with pytest.raises(DataError, match=r"'P1', group 'g': 4 draws are too few.*i0"):
        make_factors(with_group(good, xi=group.xi[:, :1], beta=group.beta[:, :1], sigma=group.sigma[:, :1]))
    with pytest.raises(DataError, match=r"'P1', group 'g'.*population model is missing"):
        make_factors(with_group(good, beta=np.zeros((4, 10, 0, 2))))
    with pytest.raises(DataError, match=r"'P1', group 'g'.*hyperprior is missing"):
        make_factors(replace(good, beta_prior_precision={}))
    beta = group.beta.copy()
    beta[1, 2] = np.inf
    with pytest.raises(DataError, match=r"'P1', group 'g'.*not finite"):
        make_factors(with_group(good, beta=beta))
    with pytest.raises(DataError, match=r"'P1', group 'g'.*not positive definite"):
        make_factors(with_group(good, sigma=-group.sigma))
    with pytest.raises(DataError, match="intercept"):
        make_factors(with_group(good, X=2.0 * group.X))
    with pytest.raises(DataError, match="'writing' is not one of"):
        make_factors(with_group(good, dimension="writing"))


def test_a_spread_that_cannot_be_told_from_zero_is_named():
    calm, _, _ = phi_period(draws=400)
    assert not any("told from zero" in w for w in make_factors(calm).warnings)
    sigma = calm.groups["g"].sigma.copy()
    scale = np.exp(np.random.default_rng(3).normal(0.0, 1.5, sigma.shape[:2]))  # SDs over two orders of magnitude
    sigma[..., 1, :] *= scale[..., None]
    sigma[..., :, 1] *= scale[..., None]
    found = make_factors(with_group(calm, sigma=sigma)).warnings
    assert len([w for w in found if "the items' spread of log_a cannot be told from zero" in w]) == 1


def test_a_spread_that_strata_share_is_named_once():
    calm, _, _ = phi_period(draws=400, model="3pl")
    group = replace(calm.groups["g"], model=make_model("gpcm", 3))
    scale = np.exp(np.random.default_rng(3).normal(0.0, 1.5, group.sigma.shape[:2]))
    shaky = group.sigma * scale[..., None, None] ** 2
    strata = {f"g ({k} categories)": replace(group, name=f"g ({k} categories)", sigma=shaky) for k in (3, 4)}
    (text,) = collapsed({**strata, "calm": replace(group, name="calm")})
    assert text.startswith("group 'g': the items' spread of d, log_a, c_1 (3 categories), c_1 (4 categories) cannot")
    guided = {name: replace(g, guide_mean=np.zeros((1, 3))) for name, g in strata.items()}
    assert collapsed(guided) == []


def test_wobble_is_found_and_taken_out():
    """Draws with a known common shift and stretch: the estimate has it, and the factors do not."""
    C = np.array([[0.0016, 0.0006], [0.0006, 0.0036]])
    shaken, centre, R = phi_period(n=150, draws=1000, wobble=C, seed=5)
    calm, _, _ = phi_period(n=150, draws=1000, seed=5)
    found, still = make_factors(shaken), make_factors(calm)
    np.testing.assert_allclose(found.wobble[0], C, rtol=0.2, atol=2e-4)
    assert np.trace(still.wobble[0]) < 0.06 * np.trace(C)
    _, ratio = compare(found, centre, R)
    np.testing.assert_allclose(np.median(ratio, axis=0), 1.0, atol=0.05)
    assert (found.groups["g"].covariance[:, 0, 0] > still.groups["g"].covariance[:, 0, 0]).mean() > 0.9
